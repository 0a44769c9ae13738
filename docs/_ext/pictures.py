"""Draws the pictures of the documentation when it is built, so that they show what the code does now."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

import radnet
from radnet import plots
from radnet.estimators import RadialRegressor
from radnet.models import CoordinateNet
from radnet.training import fit

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
    figure.savefig(folder / "collapse.svg", transparent=True, dpi=200)
    draw_rings(folder)
    draw_table(folder)
    plt.close("all")
    wide = radnet.RadNet((2, 256, 256, 2), "sigmoid", generator=torch.Generator().manual_seed(0))
    (folder / "network.svg").write_text(radnet.compress(wide).picture(), encoding="utf-8")


def draw_rings(folder: Path) -> None:
    """The rings of docs/coordinates.md, the network that learned them, and its slope."""
    side, generator = 48, torch.Generator().manual_seed(0)
    u = torch.linspace(-1, 1, side)
    places = torch.stack(torch.meshgrid(u, u, indexing="xy"), dim=-1).reshape(-1, 2)
    r = places.norm(dim=1, keepdim=True)
    rings = torch.sin(25 * r * r)
    net = CoordinateNet(2, 1, [(32, 3), (32, 3)], frequency=20.0, generator=generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    fit(net, (places, rings), epochs=300, optimizer=optimizer, scheduler=schedule, progress=False)
    fine = torch.linspace(-1, 1, 4 * side)
    at = torch.stack(torch.meshgrid(fine, fine, indexing="xy"), dim=-1).reshape(-1, 2).requires_grad_()
    found = net(at)
    (slope,) = torch.autograd.grad(found.sum(), at)
    shown = {
        f"given: {side} x {side} pixels": rings.reshape(side, side),
        "the network, four times as fine": found.detach().reshape(4 * side, 4 * side),
        "the length of its slope": slope.norm(dim=1).reshape(4 * side, 4 * side),
    }
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4))
    for ax, (title, values) in zip(axes, shown.items(), strict=True):
        most = float(values.quantile(0.99))  # a block turns where its vector passes through 0: single points are steep
        ax.imshow(values, extent=(-1, 1, -1, 1), origin="lower", interpolation="none", vmax=most)
        ax.set_title(title)
    figure.tight_layout()
    figure.savefig(folder / "rings.svg", transparent=True)


def draw_table(folder: Path) -> None:
    """Predictions of docs/tables.md on rows held out, and what they change with one column."""
    X, y = make_friedman1(1000, noise=0.5, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = RadialRegressor(random_state=0).fit(X_train, y_train)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    left.plot(y_test, model.predict(X_test), ".", ms=4, alpha=0.6)
    ends = [y_test.min(), y_test.max()]
    left.plot(ends, ends, color="#000000", lw=0.8)
    left.set(xlabel="measured", ylabel="predicted", title=f"250 rows held out: R² {model.score(X_test, y_test):.3f}")
    column = np.linspace(0, 1, 200)
    rows = np.full((200, X.shape[1]), 0.5)
    for k, name in ((2, "third column: 20 (x - 1/2)²"), (3, "fourth column: 10 x"), (7, "eighth column: nothing")):
        at = rows.copy()
        at[:, k] = column
        right.plot(column, model.predict(at), label=name)
    right.set(xlabel="one column, the others at 1/2", ylabel="predicted", title="What the network has found")
    right.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "table.svg", transparent=True)


def setup(app):
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir) / "_pictures"))
    return {"parallel_read_safe": True}
