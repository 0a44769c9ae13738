"""The figures of the page, as SVG that takes its ink from the page around it, each with a caption and an alt text."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import plots
from ..activations import Squash
from ..approximation import Approximation
from ..plots.backend import matplotlib
from . import boundaries, recovery, results, stability
from .images import noisy_copies

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


def pictures(data: dict[str, Any], a: Approximation) -> list[Picture]:
    """The paper's figures and those of the experiments that were run; ``a`` is a function of two variables."""
    with _style("radnet"):
        return [Picture(name, as_svg(figure, name), caption, alt) for name, figure, caption, alt in _drawn(data, a)]


def as_svg(figure: Figure, name: str) -> str:
    """The figure as an ``<svg>`` element, the same to the bit every time."""
    buffer = io.StringIO()
    with _style(name):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    start, end = text.index("<metadata>"), text.index("</metadata>") + len("</metadata>")
    text = (text[:start] + text[end:]).replace(_INK, "currentColor").strip()
    used = set(
        re.findall(r"#([\w.-]+)", text)
    )  # other ids serve nobody, and would stand in a page once for each figure
    return re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", text)


def _style(name: str) -> Any:
    """Our colours and sizes, not the user's, for as long as we draw; the name makes the ids in the SVG its own."""
    return matplotlib("style").context(["default", {**_STYLE, "svg.hashsalt": name}])


def _drawn(data: dict[str, Any], a: Approximation) -> Iterator[tuple[str, Figure, str, str]]:
    new = matplotlib("figure").Figure

    figure = new(figsize=(6, 3.4))
    plots.activations(figure.subplots())
    yield (
        "activations",
        figure,
        "Radial rescaling functions on the line (fig:radial_act).",
        "Graphs of Step-ReLU, which is 0 between −1 and 1 and the identity outside, of the squashing function "
        "and of the shifted ReLU.",
    )

    figure = new(figsize=(7, 3.4))
    left, right = figure.subplots(1, 2)
    plots.activation_map(left, torch.relu).set_title("pointwise: ReLU")
    plots.activation_map(right, Squash()).set_title("radial: squashing")
    yield (
        "pointwise-radial",
        figure,
        "What an activation does to the plane (fig:ptwise-vs-radial). A pointwise one knows the axes; "
        "a radial one knows only lengths, so circles stay circles.",
        "Left: ReLU folds circles into the first quadrant. Right: the squashing function shrinks circles to smaller "
        "circles, all arrows pointing at the centre.",
    )

    figure = new(figsize=(9, 2.4))
    for ax, widths in zip(figure.subplots(1, 3), ((1, 4, 4, 1), (1, 2, 4, 1), (1, 2, 3, 1)), strict=True):
        plots.network_diagram(ax, widths)
    yield (
        "compression",
        figure,
        "Compression in three steps (fig:dim_red): every hidden width becomes one more than the one before.",
        "Three network diagrams: widths 1, 4, 4, 1 with 33 parameters, then 1, 2, 4, 1, then 1, 2, 3, 1 with 17.",
    )

    figure = new(figsize=(4.6, 4.2))
    plots.orthogonal_descent(figure.subplots())
    yield (
        "descent",
        figure,
        "Descent commutes with a symmetry of the loss (fig:orth-gd): from the mirrored start, the mirrored path.",
        "Contours of a loss over two weights, with two descent paths that are mirror images through the origin.",
    )

    count = len(a.cover)
    figure = new(figsize=(9, 3.2))
    x = torch.rand(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 - 1.5
    for ax, layer in zip(figure.subplots(1, 3), (0, count // 3, count), strict=True):
        plots.collapse(ax, a, x, layer)
    yield (
        "collapse",
        figure,
        "Universal approximation (fig:UA-asymp-lin): the domain is covered with balls, and every layer collapses "
        "one of them to its centre.",
        f"A square covered with {count} discs: none, a third, and all of them collapsed to their centres.",
    )
    yield from _of_experiments(data, new)


def _of_experiments(data: dict[str, Any], new: Any) -> Iterator[tuple[str, Figure, str, str]]:
    trials = results.trials_from(data, 3, "paper")
    if trials:
        figure = new(figsize=(6, 3.6))
        curves = {name: [getattr(t, name).history for t in trials] for name in ("full", "reduced")}
        ax = plots.convergence(figure.subplots(), curves, every=20)
        ax.axhline(0.01, color="0.5", lw=0.8, ls=":")
        yield (
            "race",
            figure,
            "Experiment 3, the paper's target: loss over epochs of the full and the reduced network; dotted, the goal.",
            "Loss curves of the two networks over the epochs, on a logarithmic scale.",
        )

    trials = results.trials_from(data, 4, "noise-3")
    if trials:
        side = round(trials[0].pixels ** 0.5)
        if side * side == trials[0].pixels:
            yield ("noise", _noise(data, new, side), *_NOISE_TEXTS)
        figure = new(figsize=(6, 3.6))
        curves = {
            name: [t.runs[kind].losses for t in trials[:5]]
            for name, kind in (("Step-ReLU radial", "radial"), ("ReLU", "relu"), ("linear", "linear"))
        }
        plots.convergence(figure.subplots(), curves)
        yield (
            "convergence",
            figure,
            f"Experiment 4 at noise_scale 3 (fig:noisy-threes, right): {len(trials[:5])} runs of each."
            + _coincide(trials),
            f"Loss over {len(trials[0].runs['relu'].losses)} epochs on a logarithmic scale, for radial, ReLU and "
            "linear networks.",
        )

    trials = results.trials_from(data, 5, "grid")
    if trials:
        yield (
            "stability",
            _stability(trials, new),
            "Experiment 5: final loss as a share of the best constant's, over depth; below 0.9 we say that it trains.",
            "Table of losses in colours: rows are profiles and initialisations, columns depths.",
        )

    trials = results.trials_from(data, 6, "data")
    if trials:
        figure = new(figsize=(7, 3.4))
        values = {
            {"relu": "ReLU", "radial": "radial", "blocks": "block-radial"}[name]: [
                (f.mean, f.std) for f in (boundaries.figure(trials, kind, name) for kind in boundaries.DATA)
            ]
            for name in boundaries.CONTESTANTS
        }
        ax = plots.bars(figure.subplots(), list(boundaries.DATA), values)
        ax.set_ylim(0.4, 1)
        ax.set_ylabel("test accuracy")
        yield (
            "boundaries",
            figure,
            "Experiment 6: test accuracy on four data sets, networks of the same widths.",
            "Bars of test accuracy for ReLU, radial and block-radial networks on ball, shells, discs and checkerboard.",
        )


def _coincide(trials: list[recovery.Trial]) -> str:
    same = all(t.runs["radial"].losses == t.runs["linear"].losses for t in trials)
    return " The curves of the radial and the linear network lie on each other." if same else ""


_NOISE_TEXTS = (
    "Noise levels (fig:noisy-threes, left): three images of one digit with growing noise_scale.",
    "Three handwritten digits in columns; down the rows the noise grows until little can be made out.",
)


def _noise(data: dict[str, Any], new: Any, side: int) -> Figure:
    settings = next(part["settings"] for one in data["experiments"] if one["number"] == 4 for part in one["parts"])
    scales = (0.0, 0.5, 1.0, 3.0)
    originals = recovery.images(recovery.Settings(**settings))[:3]
    rows = [
        noisy_copies(originals, 1, scale, torch.Generator().manual_seed(0))[:, 0].reshape(3, side, side)
        for scale in scales
    ]
    figure: Figure = new(figsize=(3.6, 4.4))
    ax = plots.grid_of_images(figure.subplots(), torch.stack(rows), rows=[f"{scale:g}" for scale in scales])
    ax.set_ylabel("noise_scale")
    return figure


def _stability(trials: list[stability.Trial], new: Any) -> Figure:
    cells = trials[0].cells
    kinds = list(dict.fromkeys((cell.profile, cell.init) for cell in cells))
    depths = list(dict.fromkeys(cell.depth for cell in cells))
    table = [
        [
            statistics.median(c.loss for t in trials for c in t.cells if (c.profile, c.init, c.depth) == (*kind, depth))
            for depth in depths
        ]
        for kind in kinds
    ]
    figure: Figure = new(figsize=(6, 3.8))
    ax = plots.heat(
        figure.subplots(),
        table,
        rows=[f"{profile}, {init}" for profile, init in kinds],
        columns=[str(d) for d in depths],
    )
    ax.set_xlabel("depth")
    return figure
