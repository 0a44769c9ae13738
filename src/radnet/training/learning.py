"""From a table of data to a network: columns chosen, scales folded into the weights, some rows held out to judge it by.

Columns are brought to mean 0 and variance 1 for training. That is affine, and so are the first and the last map of a
network, so afterwards the scales go into its weights: the network takes and gives the numbers of the table.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ..activations import Identity
from ..errors import InvalidValue, printable
from ..network import RadNet
from ..reading import some_of
from ..tables import MOST_CLASSES, Table
from ..widths import count_parameters
from .batches import Batch, Loss
from .loop import fit
from .rates import find_rate
from .result import FitResult

#: rows up to which all are one batch, and how many are one beyond
FULL_BATCH, BATCH = 4096, 256
#: rows that are too few to hold some out
FEW = 10
#: parameters of a network that is trained here
MOST_PARAMETERS = 2**28
#: the largest numbers in a table: their squares are numbers
LARGEST, LARGEST_FLOAT = 1e100, 1e30
#: columns further from 0 than so many times their spread need float64; beyond, that does not tell them apart either
FAR, FARTHEST = 1024.0, 1e11
#: the learning rate that Adam has by default
ADAMS_RATE = 1e-3


@dataclass(frozen=True)
class Columns:
    """Which columns of a table a network reads, which it gives, and the labels of its outputs if it tells classes."""

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    classes: tuple[str, ...] | None = None

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a row."""
        return len(self.targets) if self.classes is None else len(self.classes)

    def to_dict(self) -> dict[str, object]:
        """Plain data, for the header of a file."""
        classes = None if self.classes is None else list(self.classes)
        return {"inputs": list(self.inputs), "targets": list(self.targets), "classes": classes}

    @classmethod
    def of_header(cls, said: object, network: RadNet, where: str) -> Columns | None:
        """The columns that the header of a file names; None if it names none."""
        if said is None:
            return None
        read, given, classes = (
            said.get(k) if isinstance(said, dict) else None for k in ("inputs", "targets", "classes")
        )
        if not (_are_texts(read) and _are_texts(given) and (classes is None or _are_texts(classes))):
            raise InvalidValue(f"{where}: the header is damaged: it does not say which columns the network reads")
        columns = cls(tuple(read), tuple(given), None if classes is None else tuple(classes))
        if (len(columns.inputs), columns.outputs) != (network.widths[0], network.widths[-1]):
            raise InvalidValue(f"{where}: the header is damaged: its columns are not those of the network")
        return columns


def _are_texts(part: object) -> TypeGuard[list[str]]:
    return isinstance(part, list) and all(isinstance(text, str) for text in part)


@dataclass(frozen=True, eq=False)
class Learned:
    """A network that was trained on a table.

    Attributes
    ----------
    network : RadNet
        Takes and gives the numbers of the table; for classes a number for each of them, the largest for the likeliest.
    columns : Columns
    result : FitResult
    rate : float
        The learning rate.
    score, baseline : float
        On the rows that were held out (on all, if there are few): the root of the mean square error, and that of the
        mean of the targets; for classes the share of right answers, and that of the commonest class.
    rows, held_out : int
        Rows to train on, and rows to judge by.
    trained : RadNet
        The network before the scales of the columns went into its weights: what was trained, on ``scaled`` rows.
    scaled : Tensor
        The inputs, in those scales.
    folded : callable
        Takes a network for scaled rows, gives the one for rows of the table.
    """

    network: RadNet
    columns: Columns
    result: FitResult
    rate: float
    score: float
    baseline: float
    rows: int
    held_out: int
    trained: RadNet
    scaled: Tensor
    folded: Callable[[RadNet], RadNet]

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data, for JSON."""
        return {
            "rows": self.rows,
            "held_out": self.held_out,
            "epochs": self.result.epochs,
            "best_epoch": self.result.best_epoch,
            "reason": self.result.reason,
            "rate": self.rate,
            "measure": "rmse" if self.columns.classes is None else "accuracy",
            "score": self.score,
            "baseline": self.baseline,
        }


def choose_columns(table: Table, targets: Sequence[str], inputs: Sequence[str] | None, classify: bool) -> Columns:
    """The columns that are read, by default all but the targets, and the classes if there are any."""
    table.check(targets)
    read = [name for name in table.names if name not in targets] if inputs is None else list(inputs)
    both = sorted(set(read) & set(targets))
    for names in (read, targets):
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidValue(f"{table.path}: {some_of(sorted(twice))} is named twice; once is enough")
    if both or not read or not targets:
        raise InvalidValue(
            f"{table.path}: {some_of(both)} cannot be input and target at once"
            if both
            else f"{table.path}: needs at least one input and one target beside each other"
        )
    if not classify:
        return Columns(tuple(read), tuple(targets))
    if len(targets) > 1:
        raise InvalidValue(f"{table.path}: classes stand in one column, got {some_of(targets)}")
    classes = sorted(set(table.labels(targets[0])))
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise InvalidValue(
            f"{table.path}: column {targets[0]} has {len(classes):,} different labels; expected 2 to {MOST_CLASSES:,}"
        )
    return Columns(tuple(read), tuple(targets), tuple(classes))


def learn(
    table: Table,
    columns: Columns,
    *,
    hidden: Sequence[int] = (64, 64),
    activation: str = "squash",
    epochs: int = 1000,
    rate: float | None = None,
    held_out: float = 0.2,
    patience: int | None = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> Learned:
    """Train a network on a table, with Adam and a learning rate that is found if none is given.

    Parameters
    ----------
    table : Table
    columns : Columns
    hidden : sequence of int
        Hidden widths.
    activation : str
        A name as in `RadNet`.
    epochs, patience : int
        As in `fit`; patience only where rows are held out.
    rate : float, optional
    held_out : float
        Share of the rows that are held out; none of fewer than 10 rows.
    seed : int
        For weights, batches and the rows that are held out.
    progress : bool, optional
    """
    if rate is not None and not 0 < rate < math.inf:
        raise InvalidValue(f"rate={rate!r}: expected a number above 0")
    widths = (len(columns.inputs), *hidden, columns.outputs)
    _check_size(widths)
    generator = torch.Generator().manual_seed(seed)
    x, y = _numbers(table, columns.inputs), _targets(table, columns)
    inside, outside = _divided(len(x), held_out, generator)
    aside = len(outside)
    scale_x = _Scale.of(x[inside])
    scale_y = _Scale.of(y[inside]) if columns.classes is None else _Scale.none(columns.outputs)
    net = RadNet(widths, activation, generator=generator)
    loss = nn.functional.mse_loss if columns.classes is None else nn.functional.cross_entropy

    def scaled(rows: Tensor) -> Batch:
        targets = y[rows] if columns.classes is not None else scale_y(y[rows]).float()
        return scale_x(x[rows]).float(), targets

    train = scaled(inside)
    data = train if len(inside) <= FULL_BATCH else _loader(train, generator)
    found = _rate(net, data, loss) if rate is None else rate
    result = fit(
        net,
        data,
        epochs=epochs,
        optimizer=torch.optim.Adam(net.parameters(), lr=found),
        loss=loss,
        validation=scaled(outside) if aside else None,
        patience=patience if aside else None,
        progress=progress,
    )
    net.eval()

    def folded(network: RadNet) -> RadNet:
        if scale_x.needs_double or scale_y.needs_double:
            network = copy.deepcopy(network).double()
        return with_scales(network, scale_x.mean, scale_x.size, scale_y.mean, scale_y.size)

    network = folded(net)
    judged = outside if aside else inside
    score = partial(_score, y=y[judged], classes=columns.classes is not None)
    with torch.no_grad():
        ours = score(network(x[judged].to(network.weights[0])).double())
        constant = y[inside].mean(dim=0) if columns.classes is None else _commonest(y[inside], columns.outputs)
        baseline = score(constant.expand(len(judged), -1))
    rows = scale_x(x).float()
    return Learned(network, columns, result, found, ours, baseline, len(inside), aside, net, rows, folded)


def _divided(count: int, held_out: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The rows to train on and the rows that are held out, by chance; none of few."""
    if not 0 <= held_out < 1:
        raise InvalidValue(f"held_out={held_out!r}: expected a share of the rows, at least 0 and below 1")
    order = torch.randperm(count, generator=generator)
    aside = round(held_out * count) if count >= FEW else 0
    if aside == count:
        raise InvalidValue(f"held_out={held_out!r}: of {count:,} rows that leaves none to train on")
    return order[aside:], order[:aside]


def _rate(net: RadNet, data: Batch | DataLoader[tuple[Tensor, ...]], loss: Loss) -> float:
    """A learning rate that was found; Adam's own where few noisy rows do not tell one."""
    try:
        return find_rate(net, data, loss=loss).rate
    except InvalidValue:
        return ADAMS_RATE


def with_scales(net: RadNet, mean_x: Tensor, size_x: Tensor, mean_y: Tensor, size_y: Tensor) -> RadNet:
    """The network ``x -> mean_y + size_y net((x - mean_x) / size_x)``, with the scales in its first and last layer.

    >>> net = RadNet((2, 5, 1), dtype=torch.float64)
    >>> x, m, s = torch.randn(4, 2).double(), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    >>> scaled = with_scales(net, m, s, torch.tensor([5.0]), torch.tensor([6.0]))
    >>> torch.allclose(scaled(x), 5 + 6 * net((x - m) / s))
    True
    """
    if not net.has_bias or type(net.activations[-1]) is not Identity or net.activations[-1].shift is not None:
        raise InvalidValue("scales go into a network that has biases and gives its last layer as it is")
    W = [w.detach().double() for w in net.weights]
    b = [torch.zeros(len(w)).double() if c is None else c.detach().double() for w, c in zip(W, net.biases, strict=True)]
    mean_x, size_x, mean_y, size_y = (part.double() for part in (mean_x, size_x, mean_y, size_y))
    W[0] = W[0] / size_x  # W ((x - m) / s) + b = (W / s) x + (b - (W / s) m)
    b[0] = b[0] - W[0] @ mean_x
    W[-1], b[-1] = size_y.unsqueeze(1) * W[-1], size_y * b[-1] + mean_y
    return net.with_parameters(W, b)


@dataclass(frozen=True)
class _Scale:
    """Columns to mean 0 and variance 1; one that never changes stays as large as it is."""

    mean: Tensor
    size: Tensor

    @classmethod
    def of(cls, x: Tensor) -> _Scale:
        size = x.std(dim=0, correction=0)
        return cls(x.mean(dim=0), torch.where(size > 0, size, 1.0))

    @property
    def needs_double(self) -> bool:
        """Whether float32 cannot hold such numbers, or tells too few of them apart: dates, counts of seconds."""
        largest = float((self.mean.abs() + self.size).max())
        return largest > LARGEST_FLOAT or bool((self.mean.abs() > FAR * self.size).any())

    @classmethod
    def none(cls, count: int) -> _Scale:
        return cls(torch.zeros(count).double(), torch.ones(count).double())

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.size


def _check_size(widths: Sequence[int]) -> None:
    if len(widths) > 2 and min(widths) < 1:
        raise InvalidValue(f"hidden widths {tuple(widths[1:-1])}: each must be at least 1")
    count = count_parameters(widths)
    if count > MOST_PARAMETERS:
        raise InvalidValue(
            f"widths {tuple(widths)}: {count:,} parameters; at most {MOST_PARAMETERS:,} are trained here"
        )


def _numbers(table: Table, names: Sequence[str]) -> Tensor:
    """Columns as numbers whose mean and variance are numbers too, and that differ from each other by enough to tell."""
    x = torch.from_numpy(table.numbers(names))
    for k, name in enumerate(names):
        column = x[:, k]
        row = int(column.abs().argmax())
        if float(column.abs().max()) > LARGEST:
            raise table.error(row, name, f"is {float(column[row]):g}, beyond {LARGEST:g}; give the column another unit")
        size, mean = float(column.std(correction=0)), float(column.mean().abs())
        differ = float(column.max() - column.min())
        if differ > 0 and (size < 1 / LARGEST or mean > FARTHEST * size):
            what = f"the numbers, around {mean:.3g}, differ by {differ:.3g} alone; subtract a constant, or scale them"
            raise InvalidValue(f"{table.path}: column {printable(name, 60)}: {what}")
    return x


def _targets(table: Table, columns: Columns) -> Tensor:
    if columns.classes is None:
        return _numbers(table, columns.targets)
    place = {label: k for k, label in enumerate(columns.classes)}
    return torch.tensor([place[label] for label in table.labels(columns.targets[0])])


def _loader(pair: Batch, generator: torch.Generator) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*pair), batch_size=BATCH, shuffle=True, generator=generator)


def _score(outputs: Tensor, *, y: Tensor, classes: bool) -> float:
    if classes:
        return float((outputs.argmax(dim=1) == y).double().mean())
    return float((outputs - y).square().mean().sqrt())


def _commonest(y: Tensor, count: int) -> Tensor:
    return torch.from_numpy(np.bincount(y.numpy(), minlength=count)).double()
