"""Experiment 5: which profiles and initialisations train, and how deep?

Paper: "Conclusions and Discussion": "little is currently known about the stability properties of radial neural networks
during training, as well as their sensitivity to initialization". Every profile, under nn.Linear's initialisation (the
paper's) and under ours, which keeps norms level, at depths 2 to 16, on the function of experiment 3; a ReLU network
with nn.Linear's initialisation beside them. A network is said to train if it ends below 0.9 of the loss of the best
constant. At the start the length of the last hidden vector and how much of the gradient reaches the first layer are
recorded: they tell why.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .. import plots
from ..network import RadNet
from ..plots.backend import canvas
from .basics import check_counts
from .experiment import Drawing, Experiment, Line, Outcomes, Part, QuickLook, Row, Tell
from .figure import Figure, number
from .networks import feedforward
from .plain import as_plain

NUMBER = 5


@dataclass(frozen=True)
class Settings:
    """All ours: the paper has no such experiment."""

    depths: tuple[int, ...] = (2, 4, 8, 16)  # layers
    width: int = 16
    profiles: tuple[str, ...] = ("sigmoid", "squash", "shifted_relu", "step_relu")
    initialisations: tuple[str, ...] = ("linear", "stable")
    per_axis: int = 21  # the square of experiment 3, coarser
    epochs: int = 200
    rate: float = 0.01  # of Adam


@dataclass(frozen=True)
class Cell:
    """One network: what it was at the start, and its loss at the end as a share of the best constant's."""

    profile: str
    init: str
    depth: int
    norm: float  # median length of the last hidden vector at the start
    gradient: float  # |gradient of the first weight| / |gradient of the last weight| at the start
    loss: float

    @property
    def trains(self) -> bool:
        """Whether it left the best constant clearly behind."""
        return self.loss < 0.9


@dataclass(frozen=True)
class Trial:
    """All networks from one seed."""

    cells: tuple[Cell, ...]


def trial(settings: Settings, seed: int, tell: Tell = lambda share: None) -> Trial:
    """Train one network for every profile, initialisation and depth.

    Examples
    --------
    >>> t = trial(Settings(depths=(2,), per_axis=3, epochs=2), seed=0)
    >>> len(t.cells), t.cells[0].profile, t.cells[-1].profile
    (9, 'sigmoid', 'relu')
    """
    check_counts(epochs=settings.epochs, per_axis=settings.per_axis, width=settings.width)
    axis = torch.linspace(-3, 3, settings.per_axis)
    x = torch.cartesian_prod(axis, axis)
    data = (x, torch.exp(-x * x))
    kinds = [*itertools.product(settings.profiles, settings.initialisations), ("relu", "linear")]
    cells = []
    for (profile, init), depth in itertools.product(kinds, settings.depths):
        cells.append(_cell(profile, init, depth, data, settings, seed))
        tell(len(cells) / (len(kinds) * len(settings.depths)))
    return Trial(tuple(cells))


def share_trained(trials: Sequence[Trial], profile: str, init: str, depth: int) -> float:
    """In how many of the trials this kind of network trained."""
    cells = [
        cell for t in trials for cell in t.cells if (cell.profile, cell.init, cell.depth) == (profile, init, depth)
    ]
    return sum(cell.trains for cell in cells) / len(cells)


def make_network(profile: str, init: str, depth: int, width: int, generator: torch.Generator) -> RadNet | nn.Sequential:
    """Widths (2, width, ..., width, 2)."""
    widths = (2, *(width,) * (depth - 1), 2)
    if profile != "relu":
        return RadNet(widths, profile, init=init, generator=generator)
    return feedforward(widths, lambda width: nn.ReLU(), generator)


def _cell(profile: str, init: str, depth: int, data: tuple[Tensor, Tensor], settings: Settings, seed: int) -> Cell:
    x, y = data
    net = make_network(profile, init, depth, settings.width, torch.Generator().manual_seed(seed))
    weights = [p for p in net.parameters() if p.ndim == 2]
    norm = float(_last_hidden(net, x).norm(dim=1).median())
    constant = float(y.var(dim=0, correction=0).mean())
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.rate)
    gradient, final = 0.0, math.inf
    for epoch in range(settings.epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        if epoch == 0:
            first, last = (float(W.grad.norm()) for W in (weights[0], weights[-1]) if W.grad is not None)
            gradient = first / last if last > 0 else 0.0
        optimizer.step()
        final = float(loss.detach())
    return Cell(profile, init, depth, norm, gradient, final / constant)


@torch.no_grad()
def _last_hidden(net: RadNet | nn.Sequential, x: Tensor) -> Tensor:
    if isinstance(net, RadNet):
        return net.partial(x)[-2]
    hidden: Tensor = net[:-1](x)
    return hidden


def _rows(outcomes: Outcomes[Settings, Trial]) -> list[Row]:
    trials = outcomes["grid"].trials
    kinds = list(dict.fromkeys((cell.profile, cell.init, cell.depth) for cell in trials[0].cells))
    return [
        Row(
            NUMBER,
            f"{profile}, {init}",
            f"loss / best constant's, depth {depth}",
            len(trials),
            Figure.of(cell.loss for t in trials for cell in t.cells if (cell.profile, cell.init, cell.depth) == kind),
            note=f"trains in {share_trained(trials, *kind):.0%}",
        )
        for kind in kinds
        for profile, init, depth in [kind]
    ]


def _findings(outcomes: Outcomes[Settings, Trial]) -> list[str]:
    trials = outcomes["grid"].trials
    shallowest, deepest = (pick(cell.depth for cell in trials[0].cells) for pick in (min, max))
    flat = [c for t in trials for c in t.cells if c.depth == shallowest]
    radial, relu = (statistics.median(c.loss for c in flat if (c.profile == "relu") == kind) for kind in (False, True))
    said = [
        f"At depth {shallowest} the radial networks end at {number(radial)} of the loss of the best constant (median), "
        f"ReLU networks at {number(relu)}: one radial hidden layer offers only a norm and a direction."
    ]
    for init, name in (
        ("linear", "nn.Linear's initialisation, the paper's"),
        ("stable", "ours, which keeps norms level"),
    ):
        cells = [c for t in trials for c in t.cells if (c.init, c.depth) == (init, deepest) and c.profile != "relu"]
        trained = sum(c.trains for c in cells)
        said.append(
            f"At depth {deepest} under {name}, {trained} of {len(cells)} radial networks train; the gradient of the "
            f"first layer is {number(statistics.median(c.gradient for c in cells))} times that of the last (median)."
        )
    return said


def _table(t: Trial, seed: int) -> list[Line]:
    return [as_plain(cell) for cell in t.cells]


def _pictures(outcomes: Outcomes[Settings, Trial]) -> Iterator[Drawing]:
    trials = outcomes["grid"].trials
    kinds = list(dict.fromkeys((cell.profile, cell.init) for cell in trials[0].cells))
    depths = list(dict.fromkeys(cell.depth for cell in trials[0].cells))
    medians = [
        [
            statistics.median(c.loss for t in trials for c in t.cells if (c.profile, c.init, c.depth) == (*kind, depth))
            for depth in depths
        ]
        for kind in kinds
    ]
    figure = canvas(6, 3.8)
    ax = plots.heat(
        figure.subplots(),
        medians,
        rows=[f"{profile}, {init}" for profile, init in kinds],
        columns=[str(d) for d in depths],
    )
    ax.set_xlabel("depth")
    yield Drawing(
        "stability",
        figure,
        "Experiment 5: final loss as a share of the best constant's, over depth; below 0.9 we say that it trains.",
        "Table of losses in colours: rows are profiles and initialisations, columns depths.",
    )


EXPERIMENT = Experiment(
    number=NUMBER,
    title="Sensitivity to initialisation and depth",
    printed=False,
    settings=Settings,
    result=Trial,
    parts=(Part("grid", Settings(), 3),),
    quick=QuickLook({"depths": (2, 8), "epochs": 30}, 1),
    seconds=35,
    trial=trial,
    rows=_rows,
    findings=_findings,
    table=_table,
    pictures=_pictures,
)
