"""The house: every file one subject, nothing too long, the drawing of the architecture names what exists."""

import ast
import collections
import re
from pathlib import Path

import pytest

import radnet
from places import HELPERS, ROOT
from radnet.compression import Reason
from radnet.compression.operations import BUILT_IN

PACKAGE = Path(radnet.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(HELPERS.parent.rglob("*.py"))
DRAWING = ROOT / "docs" / "architecture.md"


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_of_code(node):
    """Lines of a function without its docstring."""
    first = node.body[0]
    said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return node.end_lineno - node.lineno + 1 - (first.end_lineno - first.lineno + 1 if said else 0)


def test_files_have_at_most_400_lines_and_functions_60():
    long = {path.name: n for path in SOURCES if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}
    found = [
        (path.name, f.name) for path in SOURCES for f in functions(ast.parse(path.read_text())) if lines_of_code(f) > 60
    ]
    assert found == []


def test_nothing_is_dispatched_by_a_made_up_name():
    for path in SOURCES:
        assert not re.search(r"getattr\(self, f[\"']", path.read_text()), path


def test_any_stands_at_the_borders_of_torch_alone():
    count = sum(len(re.findall(r"\bAny\b", path.read_text())) for path in SOURCES)
    assert count <= 110


@pytest.mark.skipif(not DRAWING.exists(), reason="the docs are not part of this copy")
def test_the_drawing_names_every_module_of_compression_once():
    drawing = DRAWING.read_text().split("```")[1]
    modules = collections.Counter()
    for path in (PACKAGE / "compression").rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE / "compression").with_suffix("").parts)
        name = name.removesuffix(".__init__")
        if name not in ("__init__", "chain", "closed_form") and not name.startswith("operations."):
            modules[name] += 1
    folders = {"spaces", "tracing", "bounds", "judging"}
    wanted = {name for name in modules if name not in folders}
    drawn = collections.Counter(re.findall(r"^[ │├└─]*(?:[A-Z]{4,} +)?([a-z_]+(?:\.[a-z_]+)?)  ", drawing, flags=re.M))
    drawn.pop("radnet.compression", None)
    assert set(drawn) == wanted
    assert {name for name, n in drawn.items() if n > 1} == set()


def test_every_operation_says_what_it_is():
    for operation in BUILT_IN:
        assert operation.__doc__, operation
        assert "follow" in vars(operation), operation
    names = [operation.__name__ for operation in BUILT_IN]
    assert len(names) == len(set(names)) >= 20


def test_every_reason_is_a_sentence_that_somebody_gives():
    source = "\n".join(path.read_text() for path in SOURCES if path.name != "reasons.py")
    for reason in Reason:
        assert f"Reason.{reason.name}" in source, reason
        assert not reason.value.endswith("."), reason
    assert len({reason.value for reason in Reason}) == len(Reason)


def test_tests_stand_in_folders_as_the_source_does():
    files = [path.relative_to(HELPERS.parent) for path in TESTS]
    tests = [path for path in files if path.name.startswith("test_")]
    folders = {str(path.parent) for path in tests}
    packages = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")}
    assert folders <= packages
    assert folders >= {"approximation", "cli", "compression", "experiments", "plots", "rbf", "training"}
    assert len({path.name for path in tests}) == len(tests)  # pytest knows a file by its name alone
    assert {str(path.parent) for path in files if path not in tests and path.name != "conftest.py"} == {"helpers"}


def test_no_test_file_is_imported_by_another():
    for path in TESTS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                assert not any(part.startswith("test_") for name in names for part in name.split(".")), path
