"""Draws the pictures of the documentation when it is built, so that they show what the code does now."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import radnet
from radnet import plots

SLOPE = 0.8578  # of exp(-r^2), rounded up


def gaussian(x):
    return torch.exp(-x.square().sum(1))


def local(lo, hi):
    """The largest slope of exp(-x^2) on an interval."""
    peak = 1 / 2**0.5
    slope = torch.maximum(2 * lo.abs() * torch.exp(-lo * lo), 2 * hi.abs() * torch.exp(-hi * hi))
    at_peak = ((lo <= peak) & (hi >= peak)) | ((lo <= -peak) & (hi >= -peak))
    return torch.where(at_peak, SLOPE, slope)[:, 0]


def draw(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    line = radnet.approximate(gaussian, radnet.Box(-3, 3), 0.1, lipschitz=SLOPE, limit=([[0]], [0]))
    adaptive = radnet.approximate(gaussian, radnet.Box(-3, 3), 0.1, lipschitz=local, limit=([[0]], [0]))
    figure, axes = plt.subplots(2, 2, figsize=(9, 4.5), sharex=True, height_ratios=(3, 1))
    for column, (a, title) in enumerate(((line, "one Lipschitz constant"), (adaptive, "one for every interval"))):
        plots.graph(axes[0, column], a, gaussian)
        axes[0, column].set_title(f"{title}: {len(a.cover)} balls")
        plots.cover(axes[1, column], a)
    figure.tight_layout()
    figure.savefig(folder / "graph.svg", transparent=True)
    plane = radnet.approximate(gaussian, radnet.Box([-2, -2], [2, 2]), 0.3, lipschitz=SLOPE)
    x = torch.as_tensor(4 * torch.rand(6000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 2)
    count = len(plane.cover)
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharex=True, sharey=True)
    for ax, layer in zip(axes, (0, count // 4, count // 2, count), strict=True):
        plots.collapse(ax, plane, x, layer)
    figure.tight_layout()
    figure.savefig(folder / "collapse.svg", transparent=True)
    plt.close("all")
    wide = radnet.RadNet((2, 256, 256, 2), "sigmoid", generator=torch.Generator().manual_seed(0))
    (folder / "network.svg").write_text(radnet.compress(wide).picture(), encoding="utf-8")


def setup(app):
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir) / "_pictures"))
    return {"parallel_read_safe": True}
