"""A learning rate to start with: one short run on a copy, with a rate that grows until the loss does."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..checks import check_count, check_kind, check_number
from ..errors import InvalidType, InvalidValue
from .batches import Batch, Loss, Pair, batches_of, check_is_loss, check_loss, check_shapes, tensors_of
from .checkpoints import cuda_devices

#: the run ends when the loss is so many times its smallest
_TOO_MUCH = 4.0
#: share of the running mean of losses that a new one leaves
_KEPT = 0.9
#: steps at the smallest rates, which say what the loss is to begin with
_BASELINE = 12
#: how far below the rate with the smallest loss one starts
_SAFELY = 10.0


@dataclass(frozen=True)
class RateSearch:
    """What `find_rate` saw.

    Attributes
    ----------
    rates, losses : tuple of float
        Of every step.
    rate : float
        The one to start with: a tenth of the rate at which the running mean of the loss was smallest.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    rate: float


def find_rate(
    model: nn.Module,
    data: Pair | Iterable[Pair],
    *,
    optimizer: Callable[..., Optimizer] = torch.optim.Adam,
    loss: Loss = nn.functional.mse_loss,
    low: float = 1e-5,
    high: float = 10.0,
    steps: int = 120,
) -> RateSearch:
    """Find a learning rate: steps on a copy of the model with rates from ``low`` to ``high``.

    Neither the model nor torch's random numbers change.

    Parameters
    ----------
    model : nn.Module
    data : (inputs, targets), or an iterable of such pairs
        As for `fit`; an iterable is begun again when it ends.
    optimizer : callable
        Of parameters and ``lr``: a class of `torch.optim`.
    loss : callable
        Of predictions and targets.
    low, high : float
    steps : int

    Returns
    -------
    RateSearch

    Raises
    ------
    InvalidValue
        If no rate makes the loss smaller.

    Examples
    --------
    >>> import torch, radnet
    >>> from radnet.training import find_rate, fit
    >>> net = radnet.RadNet((1, 16, 1), "squash", generator=torch.Generator().manual_seed(0))
    >>> x = torch.linspace(-3, 3, 50).unsqueeze(1)
    >>> found = find_rate(net, (x, torch.sin(x)))
    >>> result = fit(net, (x, torch.sin(x)), epochs=300, optimizer=torch.optim.Adam(net.parameters(), lr=found.rate))
    >>> result.loss < 0.1 * result.losses[0]
    True
    """
    check_kind(model, nn.Module, "find_rate needs a module")
    if not callable(optimizer) or optimizer is torch.optim.LBFGS:
        raise InvalidType(
            "find_rate needs a class of torch.optim that steps without a closure, such as torch.optim.Adam"
        )
    check_is_loss(loss)
    check_count("steps", steps)
    if steps < 2 or not 0 < check_number("low", low) < check_number("high", high):
        raise InvalidValue(f"low={low!r}, high={high!r}, steps={steps!r}: needs 0 < low < high, and at least 2 steps")
    with torch.random.fork_rng(devices=cuda_devices(model)):
        rates, losses = _sweep(copy.deepcopy(model), data, optimizer, loss, low, high, steps)
    level = _smoothed(losses)
    first = min(_BASELINE, len(level) - 1)  # the rates are so small there that it is the mean of several batches
    best = min(range(first, len(level)), key=level.__getitem__)
    if best == first:
        raise InvalidValue(
            f"no learning rate between {low:g} and {high:g} makes the loss smaller than {level[first]:.3g}; is the "
            "model trainable, is low small enough, are there enough rows?"
        )
    return RateSearch(tuple(rates), tuple(losses), rates[best] / _SAFELY)


def _sweep(
    twin: nn.Module,
    data: Pair | Iterable[Pair],
    optimizer: Callable[..., Optimizer],
    loss: Loss,
    low: float,
    high: float,
    steps: int,
) -> tuple[list[float], list[float]]:
    """The rates, and the loss before each step."""
    stepping = optimizer(twin.parameters(), lr=low)
    rates: list[float] = []
    losses: list[float] = []
    for k, (x, y) in enumerate(itertools.islice(_again_and_again(data, twin), steps)):
        outputs = twin(x)
        if k == 0:
            check_shapes(loss, outputs, y)
        value: Tensor = loss(outputs, y)
        if k == 0:
            check_loss(value)
        number = float(value.detach())
        if not math.isfinite(number) or (losses and number > _TOO_MUCH * min(_smoothed(losses))):
            break
        rates.append(low * (high / low) ** (k / (steps - 1)))
        losses.append(number)
        for group in stepping.param_groups:
            group["lr"] = rates[-1]
        stepping.zero_grad()
        value.backward()
        stepping.step()
    if not losses:
        raise InvalidValue("the loss is not finite before the first step; look at the data and the weights")
    return rates, losses


def _smoothed(losses: list[float]) -> list[float]:
    """Their running mean, in which a batch that happens to be easy does not stand out.

    >>> [round(x, 3) for x in _smoothed([1.0, 1.0, 0.0])]
    [1.0, 1.0, 0.631]
    """
    total, found = 0.0, []
    for k, value in enumerate(losses, start=1):
        total = _KEPT * total + (1 - _KEPT) * value
        found.append(total / (1 - _KEPT**k))
    return found


def _again_and_again(data: Pair | Iterable[Pair], model: nn.Module) -> Iterator[Batch]:
    batches = batches_of(data, model)
    while True:
        rows = 0
        for x, y in tensors_of(batches, model):
            yield x, y
            rows += len(x)
        if rows == 0:
            raise InvalidValue("the data gave no rows; is the loader empty?")
