"""One contestant on one data set: a search on rows held out for it, then the winner from several seeds, on test rows.

Nothing is chosen by looking at test rows: they are set apart first, the search sees the others alone. Everybody gets
the same draws of the search, the same number of steps, and keeps the weights that are best on held-out rows.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..compression import compress
from ..errors import RadNetError
from ..estimators.training import Plan, RowLoss, Rows, cross_entropy, squared, train
from .data import named
from .dataset import Array, DataSet
from .networks import NETWORKS, Knobs, Network, Task
from .references import REFERENCES, Reference

#: rows of numbers, or whole numbers that name classes
Targets: TypeAlias = Any
Pair: TypeAlias = "tuple[Array, Targets]"
#: of the largest output of a column, in float32: further apart are two numbers that ship as one
ROUNDING = 1e-5
#: the loss of a trial that left the numbers
LOST = 1e9
CONTESTANTS: dict[str, Network | Reference] = {c.name: c for c in (*NETWORKS, *REFERENCES)}


@dataclass(frozen=True)
class Settings:
    """How the study is run, the same for everybody."""

    trials: int = 8  # of the search
    seeds: int = 3  # from which the winner is trained
    steps: int = 1500  # of Adam, for every network
    batch: int = 128
    test: float = 0.25  # share of the rows
    held_out: float = 0.2  # of the others
    rows: int = 10_000  # at most
    calls: int = 200  # of which the median is the time of one row


QUICK = Settings(trials=2, seeds=1, steps=60, rows=600, calls=20)


@dataclass(frozen=True)
class Entry:
    """What came out for one contestant on one data set.

    ``scores`` are errors on test rows of what ships: of classes the share that is wrong, of numbers the root of the
    mean square beside the standard deviation. ``searched`` are the losses of the search on held-out rows, best or not,
    and ``sizes`` the parameters that were trained in it.
    """

    data: str
    contestant: str
    scores: tuple[float, ...]
    searched: tuple[float, ...]
    sizes: tuple[int, ...]
    rate: float
    trained_parameters: int
    parameters: int
    seconds: float  # of one training
    microseconds: float  # of one row
    lossless: int | None  # trainings whose small network is the trained one; None where nothing is compressed
    changed: int | None  # test rows whose class is another, or whose number is further off than rounding explains

    def is_of(self, settings: Settings) -> bool:
        """Whether it can have come of such a run."""
        counts = len(self.scores) == settings.seeds and len(self.searched) == len(self.sizes) == settings.trials
        numbers = (*self.scores, *self.searched, self.rate, self.seconds, self.microseconds)
        sizes = (*self.sizes, self.trained_parameters, self.parameters)
        return counts and min(sizes) >= 0 and all(map(math.isfinite, numbers)) and min(self.scores) >= 0


class Fitted(NamedTuple):
    """A trained contestant: what it predicts, its loss on held-out rows, and what can be counted."""

    predict: Callable[[Array], Array]
    loss: float
    parameters: int
    seconds: float
    net: nn.Sequential | None = None


class Table(NamedTuple):
    """Rows for training, for the choice, and for the verdict; targets of numbers are standardised."""

    x: Array
    y: Targets
    x_test: Array
    y_test: Targets
    classes: int | None

    def divided(self, share: float, seed: int) -> tuple[Pair, Pair]:
        """The rows to train on and those that are held out: inputs and targets of each."""
        order = np.random.default_rng(seed).permutation(len(self.x))
        aside = round(share * len(order))
        return tuple((self.x[rows], self.y[rows]) for rows in (order[aside:], order[:aside]))  # type: ignore[return-value]


def table_of(data: DataSet, settings: Settings) -> Table:
    """The rows of a data set, those of the test set apart, scaled by what the others say."""
    X, y = data.load()
    order = np.random.default_rng(data.seed).permutation(len(X))[: settings.rows]
    aside = round(settings.test * len(order))
    test, rest = order[:aside], order[aside:]
    mean, size = X[rest].mean(axis=0), X[rest].std(axis=0)
    if data.alike:
        size = np.full_like(size, float(np.sqrt((size**2).mean())))
    X = (X - mean) / np.where(size > 0, size, 1.0)
    if data.classes is None:
        y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        y = (y - y[rest].mean(axis=0)) / y[rest].std(axis=0)
    return Table(X[rest], y[rest], X[test], y[test], data.classes)


def compete(data_name: str, contestant: str, settings: Settings) -> Entry:
    """Search, train from several seeds, judge."""
    data, who = named(data_name), CONTESTANTS[contestant]
    table = table_of(data, settings)
    rng = np.random.default_rng(data.seed)
    draws = [Knobs(*rng.uniform(size=4)) for _ in range(settings.trials)]  # the same for everybody
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rate that diverges is a trial that is lost
        searched = [_fit(who, data, table, knobs, settings, seed=0) for knobs in draws]
        losses = [f.loss for f in searched]
        best = draws[int(np.argmin(losses))]
        found = [_fit(who, data, table, best, settings, seed=1 + k) for k in range(settings.seeds)]
    lossless, changed, small = None, None, found
    if isinstance(who, Network) and who.radial:
        outcomes = [shipped(f, f.net, table) for f in found if f.net is not None]
        small = [outcome.fitted for outcome in outcomes]
        lossless, changed = sum(o.lossless for o in outcomes), sum(o.changed for o in outcomes)
    return Entry(
        data=data_name,
        contestant=contestant,
        scores=tuple(error(f.predict(table.x_test), table) for f in small),
        searched=tuple(losses),
        sizes=tuple(f.parameters for f in searched),
        rate=best.settings()[0],
        trained_parameters=found[0].parameters,
        parameters=small[0].parameters,
        seconds=statistics.median(f.seconds for f in found),
        microseconds=_microseconds(small[0].predict, table.x_test[:1], settings.calls),
        lossless=lossless,
        changed=changed,
    )


def error(outputs: Array, table: Table) -> float:
    """How wrong: the share of the classes, or the root of the mean square beside the standard deviation."""
    if table.classes is not None:
        return float((outputs.argmax(axis=1) != table.y_test).mean())
    misses = ((outputs - table.y_test) ** 2).mean(axis=0) / table.y_test.var(axis=0)
    return float(np.sqrt(misses.mean()))


class Shipped(NamedTuple):
    """What ships of a trained network, whether it is that network, and on how many test rows it says something else."""

    fitted: Fitted
    lossless: bool
    changed: int


def shipped(trained: Fitted, net: nn.Sequential, table: Table) -> Shipped:
    """The network that a trained one is compressed to; the trained one where that is refused."""
    x = torch.from_numpy(table.x_test).float()
    try:
        c = compress(net, torch.from_numpy(table.x[:256]).float())
    except RadNetError:
        return Shipped(trained, False, len(x))
    with torch.no_grad():
        before, after = net(x), c.network(x)
    if table.classes is not None:
        changed = int((before.argmax(dim=1) != after.argmax(dim=1)).sum())
    else:
        changed = int(((before - after).abs() > ROUNDING * before.abs().amax(dim=0)).any(dim=1).sum())
    small = trained._replace(predict=_predictor(c.network), parameters=_count(c.network), net=c.network)
    return Shipped(small, c.certificate.lossless, changed)


# --- training


def _fit(who: Network | Reference, data: DataSet, table: Table, knobs: Knobs, settings: Settings, seed: int) -> Fitted:
    inside, outside = table.divided(settings.held_out, data.seed + seed)
    start = time.perf_counter()
    if isinstance(who, Network):
        return _fit_network(who, data, knobs, settings, inside, outside, seed)
    classify = table.classes is not None
    models = []
    for column in range(1 if classify else table.y.shape[1]):
        model = who.build(knobs, classify, seed)
        models.append(model.fit(inside[0], inside[1] if classify else inside[1][:, column]))

    def predict(x: Array) -> Array:
        if classify:
            found: Array = np.log(np.clip(models[0].predict_proba(x), 1e-12, None))
            return found
        return np.stack([model.predict(x) for model in models], axis=1)

    return Fitted(predict, _loss(predict(outside[0]), outside[1], table.classes), 0, time.perf_counter() - start)


def _loss(outputs: Array, y: Array, classes: int | None) -> float:
    if classes is not None:
        return float(-outputs[np.arange(len(y)), y].mean())
    return float(((outputs - y) ** 2).mean())


def _fit_network(
    who: Network, data: DataSet, knobs: Knobs, settings: Settings, inside: Pair, outside: Pair, seed: int
) -> Fitted:
    rows, held_out = _rows(inside), _rows(outside)
    generator = torch.Generator().manual_seed(data.seed + seed)
    outputs = data.classes if data.classes is not None else rows.y.shape[1]
    net = who.build(Task(rows.x.shape[1], outputs, data.parameters, rows.x), knobs, generator)
    rate, decay = knobs.settings()
    batch = min(settings.batch, len(rows))
    epochs = max(1, settings.steps // math.ceil(len(rows) / batch))
    plan = Plan("adamw", rate, "cosine", epochs, batch, decay, epochs, progress=False)
    loss: RowLoss = cross_entropy if data.classes is not None else squared
    start = time.perf_counter()
    trained = train(net, rows, held_out, loss, plan, generator)
    seconds = time.perf_counter() - start
    net.eval()
    loss_held_out = trained.score if math.isfinite(trained.score) else LOST
    return Fitted(_predictor(net), loss_held_out, _count(net), seconds, net)


def _predictor(net: nn.Module) -> Callable[[Array], Array]:
    def predict(x: Array) -> Array:
        with torch.no_grad():
            found: Array = net(torch.from_numpy(x).float()).numpy()
        return found

    return predict


def _rows(pair: Pair) -> Rows:
    x, y = pair
    targets: Tensor = torch.from_numpy(y).long() if y.ndim == 1 else torch.from_numpy(y).float()
    return Rows(torch.from_numpy(x).float(), targets, torch.ones(len(x)))


def _count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def _microseconds(predict: Callable[[Array], Array], row: Array, calls: int) -> float:
    times = []
    for _ in range(calls + 3):
        start = time.perf_counter()
        predict(row)
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times[3:])
