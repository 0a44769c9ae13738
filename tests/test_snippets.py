"""What pages show is what happens: their Python runs, README prints what it says, tables and formulas are whole."""

import ast
import io
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch

import browser
import radnet
from places import ROOT
from radnet.cli import main

DOCS = ROOT / "docs"
README = ROOT / "README.md"
MADE = {"_build", "gallery"}  # by building the documentation
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.glob("**/*.md") if not MADE & {*page.parts})])
SHOWN = re.compile(r"^```python\n(.*?)^```$", flags=re.M | re.S)
TUPLE = re.compile(r"#.*?(\(\d+(?:, \d+)+\))")

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the docs are not part of this copy")


def run_blocks(page):
    """Run the Python of a page from top to bottom in one namespace, and return what it printed.

    Where the comment of an expression begins with widths, they are those of the expression.
    """
    names, printed = {"__name__": "page"}, io.StringIO()
    for code in SHOWN.findall(page.read_text()):
        lines = code.splitlines()
        for statement in ast.parse(code).body:
            with redirect_stdout(printed):
                if not isinstance(statement, ast.Expr):
                    exec(compile(ast.Module([statement], []), page.name, "exec"), names)  # noqa: S102
                    continue
                value = eval(compile(ast.Expression(statement.value), page.name, "eval"), names)  # noqa: S307
            said = TUPLE.match(lines[statement.end_lineno - 1][statement.end_col_offset :].strip())
            if said and isinstance(value, tuple):
                assert value == ast.literal_eval(said[1]), lines[statement.end_lineno - 1]
    return printed.getvalue()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != README and SHOWN.search(page.read_text())],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    run_blocks(page)


def rounded_away(text):
    """Gaps are rounding errors, another machine has others: only that there is one counts."""
    return re.sub(r"\d(?:\.\d+)?e-\d\d", "#", text)


def test_readme_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text()
    end = SHOWN.search(text).end()
    said = re.search(r"^```\n(.*?)^```$", text[end:], flags=re.M | re.S)[1]
    assert "lossless" in said
    assert rounded_away(run_blocks(README)) == rounded_away(said)


# --- commands

#: a line of its own, or within a sentence; where it says FILE no command is meant
COMMAND = re.compile(r"^radnet (.*)$|`radnet ([a-z]+ (?![^`]*\b[A-Z]{2,})[^`]+)`", flags=re.M)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the commands of the pages read: networks, a model of the user's and its tensors, tables, functions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_models.py").write_text(
        "import radnet\nfrom torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2))\n"
    )
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef f(x):\n    return x[:, 0] * x[:, 1]\n\n\ndef slope(lo, hi):\n"
        "    return torch.maximum(lo.abs(), hi.abs()).norm(dim=1)\n"
    )
    x = np.random.default_rng(0).normal(size=(60, 3))
    np.save("x.npy", x)
    rows = [f"{a},{b},{a - b}" for a, b, _ in x.tolist()]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,price", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    radnet.save(radnet.RadNet((3, 32, 2), generator=torch.Generator().manual_seed(0)), "net.safetensors")
    import my_models

    radnet.save(my_models.make(), "tensors.safetensors")
    yield tmp_path
    for name in ("my_models", "mine"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md" and COMMAND.search(page.read_text())],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_commands_of_a_page_run_from_top_to_bottom(page, folder, monkeypatch, capsys):
    """But for experiments and the study: these understand what they are told, and nobody waits for trials."""

    def understood(*args, **options):
        raise radnet.RadNetError("understood")

    monkeypatch.setattr("radnet.experiments.reproduce.reproduce", understood)
    monkeypatch.setattr("radnet.study.running.run", understood)
    for line in dict.fromkeys("".join(both) for both in COMMAND.findall(page.read_text())):
        arguments = shlex.split(line, comments=True)
        code = main(arguments)
        said = capsys.readouterr().err
        long = arguments[0] in ("reproduce", "study")
        assert (code, said) == (2, "radnet: understood\n") if long else code == 0, (line, said)


# --- tables


def tables(text):
    """The tables of a page as lists of lines, the line of dashes left out."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"\|(?:\s*:?-+:?\s*\|)+", line):
            end = next((j for j in range(i, len(lines)) if not lines[j].startswith("|")), len(lines))
            yield [lines[i - 1], *lines[i + 1 : end]]


def cells(line):
    """As Markdown has it: a bar ends a cell, also in a formula and in code, unless a backslash is before it."""
    return re.split(r"(?<!\\)\|", line.strip())[1:-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_has_as_many_cells_as_its_header(page):
    for header, *rows in tables(page.read_text()):
        for row in rows:
            assert len(cells(row)) == len(cells(header)), row


def test_bars_in_formulas_are_seen_to_cut_a_row():
    assert [len(cells(line)) for line in ("| a | b |", "| $|v|$ | b |", r"| $\|v\|$ | $\lvert v\rvert$ |")] == [2, 4, 2]
    assert [len(table) for table in tables((DOCS / "errata.md").read_text())] == [22]


# --- formulas


def in_a_browser(tmp_path, formulas):
    """Formulas as the documentation shows them; for each, by how many pixels it is higher than its box."""
    furo = pytest.importorskip("furo")
    pytest.importorskip("latex2mathml")
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        from mathml import display
    finally:
        sys.path.remove(str(DOCS / "_ext"))
    theme = Path(furo.__file__).parent / "theme" / "furo" / "static" / "styles" / "furo.css"
    sheets = "".join(
        f'<link rel="stylesheet" href="{sheet.as_uri()}">' for sheet in (theme, DOCS / "_static/pages.css")
    )
    boxes = "".join(f'<div class="math-wrapper">{display(formula)}</div>' for formula in formulas)
    page = tmp_path / "formulas.html"
    page.write_text(f'<!doctype html><html><head><meta charset="utf-8">{sheets}</head><body>{boxes}</body></html>')
    with browser.chromium() as window:
        window.window(1200, 900)
        window.open(page.as_uri())
        script = "return [...document.querySelectorAll('.math-wrapper')].map(b => b.scrollHeight - b.clientHeight)"
        return window.run(script)


@pytest.mark.skipif(browser.CHROMIUM is None or browser.DRIVER is None, reason="chromium is not installed")
def test_no_formula_of_the_documentation_is_clipped(tmp_path):
    formulas = [formula for page in PAGES for formula in re.findall(r"^\$\$(.*?)\$\$", page.read_text(), re.M | re.S)]
    assert len(formulas) > 10
    beyond = in_a_browser(tmp_path, formulas)
    assert {formula: pixels for formula, pixels in zip(formulas, beyond, strict=True) if pixels > 0} == {}


# --- the paper


@pytest.mark.parametrize("path", ["README.md", "docs/index.md", "CITATION.cff", "pyproject.toml"])
def test_the_paper_is_one_click_away(path):
    assert "https://arxiv.org/abs/2107.02550" in (ROOT / path).read_text()


def test_the_picture_of_the_readme_is_what_is_drawn_now():
    wide = radnet.RadNet((2, 256, 256, 2), "sigmoid", generator=torch.Generator().manual_seed(0))
    drawn = (DOCS / "_static" / "network.svg").read_text(encoding="utf-8")
    assert drawn == radnet.compress(wide)._repr_svg_() + "\n"
    assert "docs/_static/network.svg" in README.read_text()
