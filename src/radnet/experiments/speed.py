"""Experiment 3: the compressed network reaches a loss sooner, measured.

Paper: "Experiments" (3) and "Implementation details" (3). Two targets: the paper's, (exp(-t1^2), exp(-t2^2)), and the
one the authors' published script learns, (sigmoid(t1), sigmoid(t2)). The learning rate is not printed; the script has
0.01, at which the paper's target is far from reached after thousands of epochs, so it is run at 0.1. Both networks
start from the same function and take turns of a few epochs, so that whatever else the machine does hits both alike.
Each is evaluated in the layout that suits it: the narrow one with a sample a column (`radnet.columns`).
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import plots
from ..columns import Columns
from ..compression import compress
from ..errors import Diverged, InvalidValue
from ..network import RadNet
from ..plots.backend import canvas
from ..training import mse
from ..wording import counted
from .basics import check_counts
from .experiment import Drawing, Experiment, Headline, Line, Outcomes, Part, QuickLook, Row, Tell
from .figure import Figure, number

NUMBER = 3
PAPER = {"full": Figure(31.24, 4.55), "reduced": Figure(15.32, 2.53)}  # §7 (3), seconds
PAPER_RATIO = 31.24 / 15.32
NETWORKS = ("full", "reduced")
TARGETS: dict[str, Callable[[Tensor], Tensor]] = {
    "paper": lambda t: torch.exp(-t * t),  # §7 (3)
    "script": torch.sigmoid,  # the published script
}
_TURN = 20  # epochs
_BETWEEN = 8  # turns between two looks at the reduced network by rows
_NARROW = 8  # up to this width columns are faster than rows


@dataclass(frozen=True)
class Settings:
    """As printed where it is printed, with the place in the paper."""

    target: str = "paper"
    widths: tuple[int, ...] = (2, 16, 64, 128, 16, 2)  # §7 (3)
    per_axis: int = 121  # App. E.2 (3): (-3 + j/20, -3 + k/20), 0 <= j, k < 121
    loss: float = 0.01  # §7 (3): trained until the loss is at most this
    rate: float = 0.1  # not printed; the script has 0.01
    epochs: int = 6000  # ours: where we give up
    activation: str = "sigmoid"  # §7 (3)


@dataclass(frozen=True)
class Run:
    """One network of one trial; ``history`` has the loss of every 20th epoch, from the first."""

    epochs: int
    loss: float
    reached: bool
    history: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class Trial:
    """Both networks, from the same function; and what an epoch of the reduced one takes with a sample a row."""

    reduced_widths: tuple[int, ...]
    epoch_by_rows_seconds: float
    full: Run
    reduced: Run


def trial(settings: Settings, seed: int, tell: Tell = lambda share: None) -> Trial:
    """Train both networks to the loss, taking turns.

    Examples
    --------
    >>> t = trial(Settings(epochs=2, per_axis=5, loss=1e-9), seed=0)
    >>> t.reduced_widths, t.full.epochs, t.full.reached
    ((2, 3, 4, 5, 6, 2), 2, False)
    """
    check_counts(epochs=settings.epochs, per_axis=settings.per_axis)
    if settings.target not in TARGETS:
        raise InvalidValue(f"target={settings.target!r}: expected one of {', '.join(TARGETS)}")
    axis = -3 + torch.arange(settings.per_axis) / 20
    x = torch.cartesian_prod(axis, axis)
    net = RadNet(settings.widths, settings.activation, init="linear", generator=torch.Generator().manual_seed(seed))
    small = compress(net, x[:64]).network
    by_rows = _Racer(copy.deepcopy(small), x, settings, by_columns=False)
    racers = {"full": _Racer(net, x, settings), "reduced": _Racer(small, x, settings)}
    turn = 0
    while not all(racer.done for racer in racers.values()):
        for name in NETWORKS if turn % 2 == 0 else NETWORKS[::-1]:
            racers[name].go(_TURN)
        if turn % _BETWEEN == 0:
            by_rows.go(_TURN)
        turn += 1
        tell(min(racer.share for racer in racers.values()))
    return Trial(small.widths, by_rows.seconds / len(by_rows.losses), racers["full"].run(), racers["reduced"].run())


def seconds(trials: Sequence[Trial], which: str) -> Figure | None:
    """Time to the loss, for "full" or "reduced"; None if a trial did not reach it."""
    runs: list[Run] = [getattr(t, which) for t in trials]
    return Figure.of(run.seconds for run in runs) if all(run.reached for run in runs) else None


def ratio(trials: Sequence[Trial]) -> float | None:
    """How many times faster the reduced network got there; None if one of them did not."""
    full, reduced = (seconds(trials, which) for which in NETWORKS)
    return None if full is None or reduced is None else full.mean / reduced.mean


def ratio_by_rows(trials: Sequence[Trial]) -> float | None:
    """The same with both networks evaluated with a sample a row, from the time of a few epochs."""
    full = seconds(trials, "full")
    if full is None or not all(t.reduced.reached for t in trials):
        return None
    return full.mean / Figure.of(t.reduced.epochs * t.epoch_by_rows_seconds for t in trials).mean


class _Racer:
    """One network on its way to the loss."""

    def __init__(self, net: RadNet, x: Tensor, settings: Settings, *, by_columns: bool | None = None) -> None:
        narrow = max(net.widths) <= _NARROW
        self.model = Columns(net) if (narrow if by_columns is None else by_columns) else net
        self.x, self.y = x, TARGETS[settings.target](x)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=settings.rate)
        self.settings = settings
        self.losses: list[float] = []
        self.seconds = 0.0

    @property
    def reached(self) -> bool:
        return bool(self.losses) and self.losses[-1] <= self.settings.loss

    @property
    def done(self) -> bool:
        return self.reached or len(self.losses) >= self.settings.epochs

    @property
    def share(self) -> float:
        return 1.0 if self.done else len(self.losses) / self.settings.epochs

    def go(self, epochs: int) -> None:
        start = time.perf_counter()
        for _ in range(epochs):
            if self.done:
                break
            self.optimizer.zero_grad()
            loss = mse(self.model, self.x, self.y)
            loss.backward()
            self.optimizer.step()
            self.losses.append(float(loss.detach()))
        self.seconds += time.perf_counter() - start
        if self.losses[-1] != self.losses[-1]:
            raise Diverged(f"experiment {NUMBER}, epoch {len(self.losses)}: the loss is not a number")

    def run(self) -> Run:
        return Run(len(self.losses), self.losses[-1], self.reached, tuple(self.losses[::_TURN]), self.seconds)


def _rows(outcomes: Outcomes[Settings, Trial]) -> list[Row]:
    return [row for part, outcome in outcomes.items() for row in _part_rows(part, outcome.settings, outcome.trials)]


def _part_rows(part: str, settings: Settings, trials: Sequence[Trial]) -> list[Row]:
    both = _arrived(trials)
    missed = [
        f"{which}: not reached in {run.epochs:,} epochs, loss {run.loss:.4f}"
        for t in trials
        for which, run in (("full", t.full), ("reduced", t.reduced))
        if not run.reached
    ]
    said = f"learning rate {settings.rate:g}" + (f"; {len(both)} of {len(trials)} trials; " if missed else "")
    note = "; ".join([said + "; ".join(missed), "the reduced network with a sample a column"])
    rows = []
    for which in NETWORKS:
        runs: list[Run] = [getattr(t, which) for t in both]
        times = Figure.of(run.seconds for run in runs) if runs else None
        epochs = Figure.of(run.epochs for run in runs) if runs else None
        rows += [
            Row(NUMBER, part, f"seconds, {which}", len(both), times, PAPER[which], note=note, timed=True),
            Row(NUMBER, part, f"epochs, {which}", len(both), epochs, note=note),
        ]
    times_faster = ratio(both) if both else None
    by_rows = ratio_by_rows(both) if both else None
    printed = round(PAPER_RATIO, 2)
    return [
        *rows,
        Row(
            NUMBER,
            part,
            "full / reduced, both by rows",
            len(both),
            None if by_rows is None else Figure(by_rows, 0.0),
            note="with a sample a row for the reduced network too",
            timed=True,
        ),
        Row(
            NUMBER,
            part,
            "full / reduced seconds",
            len(both),
            None if times_faster is None else Figure(times_faster, 0.0),
            Figure(printed, 0.0),
            None if missed or times_faster is None else times_faster >= printed,
            "at least the paper's ratio, if all trials reach the loss",
            note,
            18 if part == "paper" else None,
            timed=True,
        ),
    ]


def _arrived(trials: Sequence[Trial]) -> list[Trial]:
    """Those in which both networks reached the loss."""
    return [t for t in trials if t.full.reached and t.reduced.reached]


def _headline(outcomes: Outcomes[Settings, Trial]) -> Headline:
    settings, trials = outcomes["script"].settings, outcomes["script"].trials
    both = _arrived(trials)
    times_faster = ratio(both) if both else None
    if times_faster is None:
        return Headline("Not reached", "No pair of networks reached the loss on the script's target.", False)
    word = f"{times_faster:.2g} times faster" if times_faster > 1 else f"{1 / times_faster:.2g} times slower"
    missed = f" ({len(both)} of {counted(len(trials), 'trial')} arrived)" if len(both) < len(trials) else ""
    said = f"To the same loss on the script's target{missed}, at learning rate {number(settings.rate)}. Printed: 2.04."
    return Headline(word, said, times_faster > 1)


def _findings(outcomes: Outcomes[Settings, Trial]) -> list[str]:
    said = [
        "The paper's target is (exp(−t₁²), exp(−t₂²)); the authors' published script learns (σ(t₁), σ(t₂)), and no "
        "learning rate is printed (erratum 18). Both are run here: "
        + ", ".join(f"the {part}'s at {number(outcomes[part].settings.rate)}" for part in ("paper", "script"))
        + ". The reduced network is evaluated with a sample a column, which suits narrow networks, the full one with a "
        "sample a row, which suits wide ones."
    ]
    for part, name in (("paper", "paper's"), ("script", "script's")):
        trials = outcomes[part].trials
        both = _arrived(trials)
        if both:
            steps = statistics.mean(t.reduced.epochs / t.full.epochs for t in both)
            cost = statistics.mean(
                (t.full.seconds / t.full.epochs) / (t.reduced.seconds / t.reduced.epochs) for t in both
            )
            rows = statistics.mean(t.full.seconds / t.full.epochs / t.epoch_by_rows_seconds for t in both)
            said.append(
                f"On the {name} target the reduced network needs {number(steps)} times the epochs, and each is "
                f"{number(cost)} times cheaper; with a sample a row for it too, {number(rows)} times."
            )
        for k, t in enumerate(trials):
            for which, run in (("full", t.full), ("reduced", t.reduced)):
                if not run.reached:
                    said.append(
                        f"On the {name} target, trial {k}, the {which} network had not reached the loss after "
                        f"{run.epochs:,} epochs; it was at {run.loss:.4f}."
                    )
    return said


def _table(t: Trial, seed: int) -> list[Line]:
    return [
        {"network": name, "epochs": run.epochs, "loss": run.loss, "reached": run.reached, "seconds": run.seconds}
        for name, run in (("full", t.full), ("reduced", t.reduced))
    ]


def _pictures(outcomes: Outcomes[Settings, Trial]) -> Iterator[Drawing]:
    trials, goal = outcomes["paper"].trials, outcomes["paper"].settings.loss
    figure = canvas(6, 3.6)
    curves = {"full": [t.full.history for t in trials], "reduced": [t.reduced.history for t in trials]}
    ax = plots.convergence(figure.subplots(), curves, every=_TURN)
    ax.axhline(goal, color="0.5", lw=0.8, ls=":")
    yield Drawing(
        "race",
        figure,
        "Experiment 3, the paper's target: loss over epochs of the full and the reduced network; dotted, the goal.",
        "Loss curves of the two networks over the epochs, on a logarithmic scale.",
    )


EXPERIMENT = Experiment(
    number=NUMBER,
    title="The compressed network trains faster",
    printed=True,
    settings=Settings,
    result=Trial,
    parts=(
        Part("paper", Settings(), 3),
        Part("script", Settings(target="script", rate=0.01), 10),  # §7 (3)
    ),
    quick=QuickLook({"rate": 0.1, "epochs": 150}, 1),
    seconds=70,
    trial=trial,
    rows=_rows,
    findings=_findings,
    headline=_headline,
    table=_table,
    pictures=_pictures,
)
