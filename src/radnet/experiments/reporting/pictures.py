"""The figures of the page, as SVG that takes its ink from the page around it, each with a caption and an alt text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ... import plots
from ...activations import Squash
from ...approximation import Approximation
from ...plots.backend import canvas, matplotlib
from ..collection import find
from ..experiment import Drawing
from .results import ExperimentResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK = "#010203"  # stands for the colour of the text, whatever it is
_STYLE = {
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.image_inline": True,
}


@dataclass(frozen=True)
class Picture:
    """One figure of the page."""

    name: str
    svg: str
    caption: str
    alt: str


def of_the_paper(a: Approximation) -> list[Picture]:
    """The paper's figures that belong to no experiment; ``a`` is a function of two variables."""
    return _all(_of_the_paper(a))


def of_experiment(one: ExperimentResult) -> list[Picture]:
    """Those of an experiment that was run."""
    return _all(find(one.number).pictures(one.outcomes()))


def _all(drawings: Iterable[Drawing]) -> list[Picture]:
    with _style("radnet"):
        return [Picture(d.name, as_svg(d.canvas, d.name), d.caption, d.alt) for d in drawings]


def as_svg(figure: Figure, name: str) -> str:
    """The figure as an ``<svg>`` element, the same to the bit every time."""
    buffer = io.StringIO()
    with _style(name):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    start, end = text.index("<metadata>"), text.index("</metadata>") + len("</metadata>")
    text = (text[:start] + text[end:]).replace(_INK, "currentColor").strip()
    text = re.sub(r"<style[^>]*>\*\{.*?</style>", "", text, flags=re.S)  # it would hold for the whole page
    used = set(
        re.findall(r"#([\w.-]+)", text)
    )  # other ids serve nobody, and would stand in a page once for each figure
    return re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", text)


def _style(name: str) -> AbstractContextManager[None]:
    """Our colours and sizes, not the user's, for as long as we draw; the name makes the ids in the SVG its own."""
    style: AbstractContextManager[None] = matplotlib("style").context(["default", {**_STYLE, "svg.hashsalt": name}])
    return style


def _of_the_paper(a: Approximation) -> Iterator[Drawing]:
    figure = canvas(6, 3.4)
    plots.activations(figure.subplots())
    yield Drawing(
        "activations",
        figure,
        "Radial rescaling functions on the line (Figure 2).",
        "Graphs of Step-ReLU, which is 0 between −1 and 1 and the identity outside, of the squashing function "
        "and of the shifted ReLU.",
    )

    figure = canvas(7, 3.4)
    left, right = figure.subplots(1, 2)
    plots.activation_map(left, torch.relu).set_title("pointwise: ReLU")
    plots.activation_map(right, Squash()).set_title("radial: squashing")
    yield Drawing(
        "pointwise-radial",
        figure,
        "What an activation does to the plane (Figure 1). A pointwise one knows the axes; "
        "a radial one knows only lengths, so circles stay circles.",
        "Left: ReLU folds circles into the first quadrant. Right: the squashing function shrinks circles to smaller "
        "circles, all arrows pointing at the centre.",
    )

    figure = canvas(9, 2.4)
    for ax, widths in zip(figure.subplots(1, 3), ((1, 4, 4, 1), (1, 2, 4, 1), (1, 2, 3, 1)), strict=True):
        plots.network_diagram(ax, widths)
    yield Drawing(
        "compression",
        figure,
        "Compression in three steps (Figure 4): every hidden width becomes one more than the one before.",
        "Three network diagrams: widths 1, 4, 4, 1 with 33 parameters, then 1, 2, 4, 1, then 1, 2, 3, 1 with 17.",
    )

    figure = canvas(4.6, 4.2)
    plots.orthogonal_descent(figure.subplots())
    yield Drawing(
        "descent",
        figure,
        "Descent commutes with a symmetry of the loss (Figure 6): from the mirrored start, the mirrored path.",
        "Contours of a loss over two weights, with two descent paths that are mirror images through the origin.",
    )

    count = len(a.cover)
    figure = canvas(9, 3.2)
    x = torch.rand(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 - 1.5
    for ax, layer in zip(figure.subplots(1, 3), (0, count // 3, count), strict=True):
        plots.collapse(ax, a, x, layer)
    yield Drawing(
        "collapse",
        figure,
        "Universal approximation (Figure 3): the domain is covered with balls, and every layer collapses "
        "one of them to its centre.",
        f"A square covered with {count} discs: none, a third, and all of them collapsed to their centres.",
    )
