"""Training for the estimators: one network on arrays in memory, row weights, a schedule, the best weights kept."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import InvalidValue
from ..threads import torch_threads
from ..training.bar import bar
from ..training.rates import find_rate
from .arrays import Array

#: rows up to which all are one batch, where the batch size is left open, and how many are one beyond
FULL_BATCH, BATCH = 256, 128
#: steps that are taken where the number of epochs is left open, and the fewest and most epochs
STEPS, FEWEST, MOST = 1500, 20, 500
#: what is taken where no learning rate is found
RATE = 0.01
#: a run has left the numbers when its loss is so many times what it was to begin with
LOST = 1e6
#: a new loss on held-out rows has to be smaller by this share to count
BETTER = 1e-4
OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "sgd": torch.optim.SGD,
}
#: those that step all parameters in one call
FUSED = ("adam", "adamw", "sgd")
#: multiplications of a step, forward, up to which one thread trains
ONE_THREAD = 2**22
SCHEDULES = ("cosine", "constant")


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs, targets and how much each row counts."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> Rows:
        return Rows(self.x[rows], self.y[rows], self.weight[rows])


#: the loss of each row from outputs and targets
RowLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Plan:
    """How a network is trained."""

    optimizer: str
    rate: float
    schedule: str
    epochs: int
    batch: int
    weight_decay: float
    patience: int
    progress: bool | None


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network and what was seen: the loss after every epoch, on held-out rows too if there are some."""

    net: nn.Sequential
    losses: list[float]
    validation: list[float]
    best_epoch: int
    moments: dict[int, dict[str, Tensor]]

    @property
    def score(self) -> float:
        """The loss that counts: of the weights that were kept, on held-out rows if there are some."""
        return min(self.validation) if self.validation else self.losses[-1] if self.losses else math.inf


def squared(outputs: Tensor, y: Tensor) -> Tensor:
    """The mean square of each row."""
    return (outputs - y).square().mean(dim=1)


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Of each row."""
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def weighted(loss: RowLoss, net: nn.Module, rows: Rows) -> Tensor:
    """The mean over rows, each as much as it counts beside all rows, in whichever batch it is."""
    return (rows.weight * loss(net(rows.x), rows.y)).sum() / len(rows)


def train(
    net: nn.Sequential,
    rows: Rows,
    held_out: Rows | None,
    loss: RowLoss,
    plan: Plan,
    generator: torch.Generator,
    moments: dict[int, dict[str, Tensor]] | None = None,
) -> Trained:
    """Train a network in place; ``moments`` is what an optimizer remembered of an earlier run.

    A small network is trained with one thread: more are no faster, and far slower where other programs run.
    """
    work = sum(p.numel() for p in net.parameters()) * plan.batch
    with torch_threads(1 if work <= ONE_THREAD else None):
        return _trained(net, rows, held_out, loss, plan, generator, moments)


def _trained(
    net: nn.Sequential,
    rows: Rows,
    held_out: Rows | None,
    loss: RowLoss,
    plan: Plan,
    generator: torch.Generator,
    moments: dict[int, dict[str, Tensor]] | None,
) -> Trained:
    parameters = list(net.parameters())
    settings: dict[str, Any] = {"lr": plan.rate, "weight_decay": plan.weight_decay}
    if plan.optimizer in FUSED:
        settings["fused"] = True
    stepping = OPTIMIZERS[plan.optimizer](parameters, **settings)
    if moments:
        stepping.load_state_dict({**stepping.state_dict(), "state": moments})
    keeper = _Best(net)
    losses: list[float] = []
    validation: list[float] = []
    steps, done = plan.epochs * math.ceil(len(rows) / plan.batch), 0
    with bar(plan.progress, plan.epochs, 0) as tick:
        for epoch in range(plan.epochs):
            total = 0.0
            for part in _batches(rows, plan.batch, generator):
                if plan.schedule == "cosine":
                    for group in stepping.param_groups:
                        group["lr"] = 0.5 * plan.rate * (1 + math.cos(math.pi * done / steps))
                value = weighted(loss, net, part)
                stepping.zero_grad()
                value.backward()
                stepping.step()
                total, done = total + float(value.detach()) * len(part), done + 1
            losses.append(total / len(rows))
            if held_out is not None:
                validation.append(_loss(loss, net, held_out))
            counts = validation[-1] if validation else losses[-1]
            if not math.isfinite(losses[-1]) or not math.isfinite(counts) or losses[-1] > LOST * max(losses[0], 1.0):
                _warn_of_divergence(epoch, plan.rate, keeper)
                break
            keeper.see(counts, epoch)
            tick(counts)
            if validation and epoch - keeper.epoch >= plan.patience:
                break
    if not all(bool(p.isfinite().all()) for p in parameters) or validation:
        keeper.restore()
    return Trained(net, losses, validation, keeper.epoch + 1, stepping.state_dict()["state"])


class _Best:
    """The weights with the smallest loss so far; those before the first step, to begin with."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.loss, self.epoch = net, math.inf, -1
        self.state = copy.deepcopy(net.state_dict())

    def see(self, loss: float, epoch: int) -> None:
        """The weights after an epoch."""
        if loss < self.loss * (1 - BETTER) or self.epoch < 0:
            finite = all(bool(p.isfinite().all()) for p in self.net.parameters())
            if finite:
                self.loss, self.epoch = loss, epoch
                for kept, value in zip(self.state.values(), self.net.state_dict().values(), strict=True):
                    kept.copy_(value)

    def restore(self) -> None:
        self.net.load_state_dict(self.state)


def _warn_of_divergence(epoch: int, rate: float, keeper: _Best) -> None:
    keeper.restore()
    warnings.warn(
        f"training diverged in epoch {epoch + 1} with learning rate {rate:g}; the best weights before it are kept. "
        "Lower learning_rate, or give 'auto'",
        ConvergenceWarning,
        stacklevel=5,
    )


def _batches(rows: Rows, size: int, generator: torch.Generator) -> Iterator[Rows]:
    if size >= len(rows):
        yield rows
        return
    for part in torch.randperm(len(rows), generator=generator).split(size):
        yield rows[part]


@torch.no_grad()
def _loss(loss: RowLoss, net: nn.Module, rows: Rows) -> float:
    parts = [rows] if len(rows) <= 4096 else [rows[part] for part in torch.arange(len(rows)).split(4096)]
    total = sum(float((part.weight * loss(net(part.x), part.y)).sum()) for part in parts)
    return total / max(float(rows.weight.sum()), torch.finfo(torch.float64).tiny)


def steps_to_epochs(rows: int, batch: int) -> int:
    """How many epochs there are where nobody says.

    >>> steps_to_epochs(100, 100), steps_to_epochs(12_800, 128), steps_to_epochs(10**6, 128)
    (500, 20, 20)
    """
    return min(MOST, max(FEWEST, math.ceil(STEPS / math.ceil(rows / batch))))


def found_rate(net: nn.Module, rows: Rows, loss: RowLoss, batch: int, optimizer: type[torch.optim.Optimizer]) -> float:
    """A learning rate that was looked for; `RATE` where few noisy rows do not tell one."""
    index = torch.arange(len(rows))
    pairs = [(rows.x[part], part) for part in index.split(batch)]

    def of_rows(outputs: Tensor, part: Tensor) -> Tensor:
        weight = rows.weight[part]
        return (weight * loss(outputs, rows.y[part])).sum() / len(part)

    try:
        return find_rate(copy.deepcopy(net), pairs, loss=of_rows, optimizer=optimizer).rate
    except InvalidValue:
        return RATE


def to_arrays(moments: dict[int, dict[str, Tensor]]) -> dict[int, dict[str, Array]]:
    """What an optimizer remembers, as arrays."""
    return {k: {name: value.numpy().copy() for name, value in state.items()} for k, state in moments.items()}


def to_tensors(moments: dict[int, dict[str, Array]]) -> dict[int, dict[str, Tensor]]:
    """As tensors again."""
    return {k: {name: torch.tensor(value) for name, value in state.items()} for k, state in moments.items()}
