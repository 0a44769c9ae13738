"""The docs name what exists, and leave no statement of the paper out."""

import ast
import re
import subprocess
import sys

import pytest

import radnet
from dotted import find
from places import ROOT
from radnet.cli import app

MAP = ROOT / "docs" / "paper-map.md"

pytestmark = pytest.mark.skipif(not MAP.exists(), reason="the docs are not part of this copy")

# every labelled or numbered statement of the parts that are built
STATEMENTS = (
    "`eq:ptwise-act`", "`eq:radial-intro`", "`fig:ptwise-vs-radial`", "`sec:rad-nns`", "`ex:radialact`",
    "`eqn:step-relu`", "`fig:radial_act`", "partial feedforward functions", "remark without biases",
    "`sec:UA`", "`subsec:asymp-lin-approx`", "footnote on $N(f,K,\\varepsilon)$", "`thm:UA-asymp-lin`",
    "universality corollary", "`fig:UA-asymp-lin`", "`subsec:bdd-width-approx`", "`thm:UA-n+m+1`",
    "`app:UA-notation`", "`lem:def-N`", "`lem:def-M`", "`def:NM`", "`thm:bound-N`",
    "note on differentiable functions", "`app:asymp-lin`", "`def:asymp-lin-alt`",
    "remark on asymptotically linear functions", "`lem:ST`", "`prop:FN`", "`app:UA-n+m+1`", "`thm:UA-n+1`",
    "`thm:UA-bd=n-app`", "`lem:Gi`", "`lem:Hi`", "lemma on $H_M G_M$",
    "`subsec:paramspace`", "reduced widths", "`subsec:mod-comp`", "`thm:mod-comp`", "`alg:QR-mod-comp`",
    "example (1, 8, 16, 8, 1)", "`fig:dim_red`", "`subsec:qr`", "`prop:QR-gen`", "`prop:QR`", "QR remark 1",
    "QR remark 2", "QR remark 3", "QR remark 4", "`lem:radial-basics` 1", "`lem:radial-basics` 2",
    "`subsec:proof-mod-comp`", "`prop:rnns-invariance`", "remark on ReLU", "`eq:ext-map`", "`eq:feedforward-merged`",
    "`eq:O-hidden-action-neur`", "`alg:QR-mod-comp-merged`", "`prop:qinva-in-int`", "`appsubsec:withshifts`",
    "`thm:withshift`",
    "`subsec:proj-gd`", "`thm:proj-gd` 1", "`thm:proj-gd` 2", "`lem:nabla-g`", "`eq:g-nabla-orth`", "`lem:orth-gd`",
    "`fig:orth-gd`", "`appsubsec:interpolating`", "`diag:int`", "`thm:proj-gd-ap`", "`lem:repint` 1",
    "`lem:repint` 2", "`lem:repint` 3", "`appsubsec:ex-131`", "`eq:ex-parameters`",
    "`sec:exp`", "`app:exp`", "`subsec:implementation`", "experiment 1", "experiment 2", "experiment 3",
    "experiment 4, training", "experiment 4, test", "experiment 4, what explains it", "`fig:noisy-threes`, left",
    "`fig:noisy-threes`, right", "`sec:conclusions`, stability", "`sec:conclusions`, applications",
    "`app:rbfns`", "RBF network, single layer", "RBF network, constrained", "RBF network, constrained multilayer",
    "RBF proposition 1", "RBF proposition 2", "RBF conclusions",
)  # fmt: skip


def rows():
    lines = [line for line in MAP.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if row[0] not in ("in print", "---")]


def names_in(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_no_statement_of_the_paper_is_missing_from_the_map():
    assert [row[1] for row in rows()] == list(STATEMENTS)


@pytest.mark.parametrize("row", rows() if MAP.exists() else [], ids=lambda row: row[1])
def test_every_function_and_test_in_the_map_exists(row):
    *_, function, test = row
    assert find(function.strip("`")) is not None
    path, name = test.strip("`").split("::")
    assert name in names_in(path)


def test_every_test_named_in_the_errata_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "errata.md").read_text())
    assert len(named) >= 5
    for path, name in named:
        assert name in names_in(path)


def test_every_public_name_is_there_and_has_an_example():
    assert len(radnet.__all__) <= 26
    for name in radnet.__all__:
        thing = getattr(radnet, name)
        if name != "testing":
            assert ">>>" in thing.__doc__, name
        assert f"[`{name}`](" in (ROOT / "docs" / "api" / "index.md").read_text(), name
    assert set(radnet.__all__) <= set(dir(radnet))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        radnet.nonsense  # noqa: B018


def test_relative_links_in_the_docs_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        if {"_build", "gallery"} & {*page.parts}:  # made when the documentation is built
            continue
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            if target.startswith("_pictures/"):  # drawn when the documentation is built
                assert f'"{target.removeprefix("_pictures/")}"' in (ROOT / "docs/_ext/pictures.py").read_text()
            elif "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)


def test_the_readme_quotes_commands_that_exist():
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", readme, flags=re.M)) <= targets
    assert readme.index("make reproduce") < 900
    assert readme.index("make test") < 900


def test_every_command_stands_on_the_page_of_commands():
    page = (ROOT / "docs" / "commands.md").read_text()
    named = re.findall(r"^\| `radnet (\w+)` \|", page, flags=re.MULTILINE)
    assert sorted(named) == sorted(command.callback.__name__ for command in app.registered_commands)


def test_submodules_are_found_through_the_package_and_torch_waits():
    code = (
        "import sys, radnet\n"
        "assert 'torch' not in sys.modules\n"
        "radnet.rescaling.rescale, radnet.compression.closed_form, radnet.linalg.signed_qr\n"
        "from radnet import *\n"
        "RadNet((1, 2, 1))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
