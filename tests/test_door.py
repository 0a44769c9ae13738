"""The names of the package: one table, what type checkers see, and every dotted name that texts use."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import radnet
from dotted import find
from places import ROOT

SOURCE = Path(radnet.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts)])
DOTTED = re.compile(r"(?<![\w./-])radnet(?:\.[A-Za-z_]\w*)+")


def docstrings():
    """Every docstring of the package, with the file and what it belongs to."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kinds) and ast.get_docstring(node):
                yield path.relative_to(SOURCE), ast.get_docstring(node)


def dotted_names():
    """Where each dotted name of radnet is used: pages and docstrings."""
    used = {}
    texts = [(page.relative_to(ROOT), page.read_text()) for page in PAGES]
    for place, text in [*texts, *docstrings()]:
        for name in DOTTED.findall(text):
            used.setdefault(name, set()).add(str(place))
    return used


def names_for_type_checkers():
    """Modules, and names by module, that ``if TYPE_CHECKING:`` imports in the package's own file."""
    modules, names = set(), {}
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for node in block.body:
        for alias in node.names:
            assert alias.asname == alias.name, "type checkers hand on `x as x` only"
            if node.module is None:
                modules.add(alias.name)
            else:
                names.setdefault(node.module, set()).add(alias.name)
    return modules, names


def test_type_checkers_see_the_names_that_are_loaded_on_first_use():
    modules, names = names_for_type_checkers()
    assert modules == set(radnet._DOOR)
    assert names == {module: set(given) for module, given in radnet._DOOR.items() if given}


def test_the_door_is_what_the_table_says():
    given = [name for names in radnet._DOOR.values() for name in names]
    assert len(given) == len(set(given))
    assert radnet.__all__ == sorted([*given, "testing"])
    assert not set(given) & {module.name for module in pkgutil.iter_modules([str(SOURCE)])}
    for module, names in radnet._DOOR.items():
        for name in names:
            assert getattr(radnet, name) is getattr(importlib.import_module(f"radnet.{module}"), name)
    assert set(radnet._DOOR) | set(radnet.__all__) <= set(dir(radnet))


def test_every_dotted_name_in_pages_and_docstrings_resolves():
    used = dotted_names()
    assert len(used) > 50
    lost = {}
    for name, places in used.items():
        try:
            find(name)
        except (AttributeError, ModuleNotFoundError) as error:
            lost[name] = (sorted(places), str(error))
    assert lost == {}


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the docs are not part of this copy")
def test_the_modules_that_pages_name_are_attributes_after_import_radnet():
    first = {name.split(".")[1] for name in dotted_names()}
    assert {"columns", "ensembles", "errors", "rbf", "training", "trials", "writing"} <= first
    assert first - {"__version__"} <= {*radnet._DOOR, *radnet.__all__}


@pytest.mark.parametrize("name", ["columns.Columns", "ensembles.fit_ensemble", "training.fit", "trials.run_trials"])
def test_a_module_is_loaded_when_it_is_asked_for(name):
    module = name.partition(".")[0]
    code = f"import radnet\nassert {module!r} not in vars(radnet)\nradnet.{name}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_nothing_of_torch_is_loaded_by_looking_at_the_door():
    code = "import sys, radnet\ndir(radnet), radnet.__all__, radnet.__version__\nsys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
