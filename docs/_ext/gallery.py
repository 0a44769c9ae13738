"""The gallery: every example is run when the documentation is built, and shown with what it prints and draws.

Each is a notebook to download too, cut where the script has its functions.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import runpy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

EXAMPLES = Path(__file__).parents[2] / "examples"
#: titles, in the order of a first visit; what is not listed comes last, under its own name
TITLES = {
    "compress_a_network": "Compress a network",
    "train_wide_ship_tiny": "Train wide, ship tiny",
    "compress_digits": "Digits, convolved",
    "grow_train_compress": "Grow, train, compress",
    "approximate_a_function": "A function with a guarantee",
    "plot_activations": "Activations, drawn",
    "relu_rescaling": "What ReLU has instead",
}


def build(folder: Path) -> None:
    """A page and a notebook for each example, and the page that lists them."""
    folder.mkdir(exist_ok=True)
    paths = {path.stem: path for path in sorted(EXAMPLES.glob("*.py"))}
    names = [name for name in (*TITLES, *(n for n in paths if n not in TITLES)) if name in paths]
    cards = []
    for name in names:
        source = paths[name].read_text(encoding="utf-8")
        printed, drawn = run(paths[name], folder)
        _write(folder / f"{name}.md", page(name, source, printed, drawn))
        _write(folder / f"{name}.ipynb", json.dumps(notebook(name, source), indent=1) + "\n")
        cards.append(_card(name, source, drawn))
    said = "# Gallery\n\nPrograms to begin with, run when this page was built; each is a notebook to download too."
    listed = "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```"
    _write(folder / "index.md", "\n\n".join([said, "{.cards}\n" + "\n".join(cards), listed]) + "\n")


def _card(name: str, source: str, drawn: str | None) -> str:
    picture = "" if drawn is None else f"  {_drawing(name, drawn)}\n\n".replace("\n", "\n  ").rstrip() + "\n\n"
    return f"- [{title(name)}]({name}.md)\n\n{picture}  {about(source)[0]}\n"


def _drawing(name: str, drawn: str) -> str:
    return f"```{{drawing}} {drawn}\n:alt: What {name}.py draws\n```"


def _write(path: Path, text: str) -> None:
    """Only what has changed, so that nothing is built twice."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def title(name: str) -> str:
    """What a program is called.

    >>> title("my_own_example")
    'My own example'
    """
    return TITLES.get(name, name.replace("_", " ").capitalize())


def about(source: str) -> tuple[str, str]:
    """The first paragraph of a program's docstring, and the others.

    >>> about('"Grow, then\\nshrink.\\n\\nAlways."')
    ('Grow, then shrink.', 'Always.')
    """
    first, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    return " ".join(first.split()), rest


def run(path: Path, folder: Path) -> tuple[str, str | None]:
    """What a program prints, and the name of the picture that it draws or that its result has."""
    figures: list[Figure] = []
    save = Figure.savefig

    def kept(figure: Figure, *args: Any, **keywords: Any) -> None:
        figures.append(figure)
        save(figure, *args, **keywords)

    printed, before = io.StringIO(), Path.cwd()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(printed), torch.random.fork_rng():
        os.chdir(scratch)
        Figure.savefig = kept  # type: ignore[method-assign]
        try:
            found = runpy.run_path(str(path), run_name="example")["main"]()
        finally:
            Figure.savefig = save  # type: ignore[method-assign]
            os.chdir(before)
    drawn = folder / f"{path.stem}.svg"
    if figures:
        figures[-1].savefig(drawn, transparent=True, metadata={"Date": None})
    else:
        results = found.values() if isinstance(found, dict) else [found]
        for compression in (result for result in results if hasattr(result, "picture")):
            drawn.write_text(compression.picture(), encoding="utf-8")
    return printed.getvalue(), drawn.name if drawn.exists() else None


def page(name: str, source: str, printed: str, drawn: str | None) -> str:
    """The page of one example."""
    picture = "" if drawn is None else _drawing(name, drawn) + "\n\n"
    what = "\n\n".join(about(source)).strip()
    if "faster" in printed:
        what += "\n\nTimes are those of the machine that built this page, once, and busy; [measured ones](../speed.md)."
    return (
        f"# {title(name)}\n\n{what}\n\n{picture}"
        f"`python examples/{name}.py` prints\n\n```text\n{printed.strip()}\n```\n\n"
        f"{{download}}`As a notebook <{name}.ipynb>`\n\n```python\n{body(source)}\n```\n"
    )


def body(source: str) -> str:
    """A program without its docstring, which the page has said."""
    first = ast.parse(source).body[0]
    return "\n".join(source.splitlines()[first.end_lineno :]).strip()


def notebook(name: str, source: str) -> dict[str, Any]:
    """A program as a notebook: what it says, a cell for each part, and ``main()`` at the end."""
    what = "\n\n".join(about(source)).strip()
    cells = [_cell("markdown", f"# {title(name)}\n\n{what}\n\n`pip install 'radnet[sklearn,plot]'`")]
    cells += [_cell("code", part) for part in parts(source)]
    cells += [_cell("code", "result = main()")]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def parts(source: str) -> Iterator[str]:
    """What is imported and set, then the functions and classes one by one; not what begins a script."""
    lines, loose = source.splitlines(), []
    for node in ast.parse(source).body[1:]:
        start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        text = "\n".join(lines[start - 1 : node.end_lineno])
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if loose:
                yield "\n".join(loose)
                loose = []
            yield text
        elif not isinstance(node, ast.If) and "__future__" not in text:
            loose.append(text)
    if loose:
        yield "\n".join(loose)


def _cell(kind: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


def setup(app: Any) -> dict[str, Any]:
    """Before pages are read."""
    app.connect("builder-inited", lambda app: build(Path(app.srcdir) / "gallery"))
    return {"parallel_read_safe": True}
