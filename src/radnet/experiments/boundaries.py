"""Experiment 6: class boundaries that are spheres, or distances to points, and one that is neither.

Paper: "Conclusions and Discussion" expects radial networks to do well on "data spaces with circular or distance-based
class boundaries" and leaves it open. Four data sets: a ball off the centre, shells around it, a few discs in the plane,
and a checkerboard, which has nothing radial about it. Three contestants of the same widths and the same initial
weights: a ReLU network, a radial network, and a block-radial one, whose layers are split into blocks of four entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .. import plots
from ..activations import Squash
from ..plots.backend import canvas
from .basics import check_counts, streams
from .experiment import Drawing, Experiment, Line, Outcomes, Part, QuickLook, Row, Tell
from .figure import Figure
from .networks import feedforward

NUMBER = 6
CONTESTANTS = {"relu": "ReLU", "radial": "radial", "blocks": "block-radial"}
_BLOCK = 4


@dataclass(frozen=True)
class Settings:
    """All ours: the paper has no such experiment."""

    hidden: tuple[int, ...] = (32, 32, 32)
    train: int = 1000
    test: int = 4000
    epochs: int = 300
    rate: float = 0.01  # of Adam


@dataclass(frozen=True)
class Trial:
    """Test accuracy for each data set and contestant, and that of always naming the larger class."""

    accuracy: dict[str, dict[str, float]]
    larger_class: dict[str, float]


def trial(settings: Settings, seed: int, tell: Tell = lambda share: None) -> Trial:
    """Draw each data set once and train every contestant on it.

    Examples
    --------
    >>> t = trial(Settings(hidden=(8,), train=20, test=20, epochs=2), seed=0)
    >>> sorted(t.accuracy), sorted(t.accuracy["ball"])
    (['ball', 'checkerboard', 'discs', 'shells'], ['blocks', 'radial', 'relu'])
    """
    check_counts(train=settings.train, test=settings.test, epochs=settings.epochs)
    accuracy: dict[str, dict[str, float]] = {}
    larger = {}
    total = len(DATA) * len(CONTESTANTS)
    for data, draw in DATA.items():
        generator = streams(seed)[0]
        x, y = draw(settings.train, generator)
        x_test, y_test = draw(settings.test, generator)
        share = float(y_test.float().mean())
        larger[data] = max(share, 1 - share)
        accuracy[data] = {}
        for name in CONTESTANTS:
            net = make_network(name, (x.shape[1], *settings.hidden, 2), streams(seed)[1])
            _train(net, x, y, settings)
            with torch.no_grad():
                accuracy[data][name] = float((net(x_test).argmax(1) == y_test).float().mean())
            tell(sum(map(len, accuracy.values())) / total)
    return Trial(accuracy, larger)


def figure(trials: Sequence[Trial], data: str, contestant: str) -> Figure:
    """Test accuracy over the trials."""
    return Figure.of(t.accuracy[data][contestant] for t in trials)


def make_network(name: str, widths: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """The three differ in their activations alone; the radial ones have a trainable shift per layer."""
    return feedforward(widths, lambda width: _activation(name, width), generator)


def _activation(name: str, width: int) -> nn.Module:
    if name == "relu":
        return nn.ReLU()
    return Squash(shift="trainable", blocks=max(width // _BLOCK, 1) if name == "blocks" else None)


def _train(net: nn.Module, x: Tensor, y: Tensor, settings: Settings) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.rate)
    for _ in range(settings.epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


def _ball(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Normal points in ten dimensions; inside a ball around (1/2, ..., 1/2), or outside."""
    x = torch.randn(count, 10, generator=generator)
    return x, ((x - 0.5).norm(dim=1) < 3.32).long()


def _shells(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Directions in eight dimensions at radii from 1 to 3; between 1.5 and 2.2, or not."""
    v = torch.randn(count, 8, generator=generator)
    r = 1 + 2 * torch.rand(count, 1, generator=generator)
    return r * v / v.norm(dim=1, keepdim=True), ((r > 1.5) & (r < 2.2))[:, 0].long()


def _discs(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A square; inside one of three discs, or outside."""
    x = 4 * torch.rand(count, 2, generator=generator) - 2
    centres, radii = torch.tensor([[-1.0, -1.0], [1.0, 0.8], [-0.8, 1.2]]), torch.tensor([0.6, 0.8, 0.5])
    return x, (torch.cdist(x, centres) < radii).any(dim=1).long()


def _checkerboard(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A square of four by four fields, black or white."""
    x = 4 * torch.rand(count, 2, generator=generator) - 2
    return x, (x.floor().sum(dim=1) % 2).long()


DATA: dict[str, Callable[[int, torch.Generator], tuple[Tensor, Tensor]]] = {
    "ball": _ball,
    "shells": _shells,
    "discs": _discs,
    "checkerboard": _checkerboard,
}


def _rows(outcomes: Outcomes[Settings, Trial]) -> list[Row]:
    trials = outcomes["data"].trials
    return [
        Row(NUMBER, data, f"test accuracy, {name}", len(trials), figure(trials, data, name))
        for data in DATA
        for name in CONTESTANTS
    ]


def _findings(outcomes: Outcomes[Settings, Trial]) -> list[str]:
    trials = outcomes["data"].trials
    said = []
    for kind in DATA:
        radial, relu, blocks = (figure(trials, kind, name) for name in ("radial", "relu", "blocks"))
        doubt = 2 * math.hypot(radial.std, relu.std) / math.sqrt(len(trials))  # two standard errors
        ahead = radial.mean - relu.mean
        likely = f", give or take {doubt:.3f}" if len(trials) > 1 else ", in one trial"
        word = "wins" if ahead > doubt else "loses" if ahead < -doubt else "ties"
        said.append(
            f"{kind}: the radial network {word}, {radial.mean:.3f} against {relu.mean:.3f}{likely} "
            f"(block-radial {blocks.mean:.3f})."
        )
    return said


def _table(t: Trial, seed: int) -> list[Line]:
    return [
        {"data": data, "network": name, "accuracy": value, "larger class": t.larger_class[data]}
        for data, values in t.accuracy.items()
        for name, value in values.items()
    ]


def _pictures(outcomes: Outcomes[Settings, Trial]) -> Iterator[Drawing]:
    trials = outcomes["data"].trials
    values = {
        shown: [(f.mean, f.std) for f in (figure(trials, kind, name) for kind in DATA)]
        for name, shown in CONTESTANTS.items()
    }
    drawn = canvas(7, 3.4)
    ax = plots.bars(drawn.subplots(), list(DATA), values)
    ax.set_ylim(0.4, 1)
    ax.set_ylabel("test accuracy")
    yield Drawing(
        "boundaries",
        drawn,
        "Experiment 6: test accuracy on four data sets, networks of the same widths.",
        "Bars of test accuracy for ReLU, radial and block-radial networks on ball, shells, discs and checkerboard.",
    )


EXPERIMENT = Experiment(
    number=NUMBER,
    title="Circular and distance-based class boundaries",
    printed=False,
    settings=Settings,
    result=Trial,
    parts=(Part("data", Settings(), 5),),
    quick=QuickLook({"epochs": 60}, 1),
    seconds=13,
    trial=trial,
    rows=_rows,
    findings=_findings,
    table=_table,
    pictures=_pictures,
)
