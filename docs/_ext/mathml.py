"""Mathematics as MathML, which browsers show by themselves: no script, no font, no request."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def display(formula: str) -> str:
    """A formula on a line of its own."""
    return f'<div class="math">{convert(formula, display="block")}</div>'


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(display(node.astext()))
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
