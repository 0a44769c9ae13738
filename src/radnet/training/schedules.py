"""Learning rate schedulers: what a run needs of one, and whether it can go on from a state in a file."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch.optim import Optimizer

from ..checks import is_number
from ..errors import InvalidValue
from ..reading import Header
from ..threads import quietly


class Scheduler(Protocol):
    """What a learning rate scheduler can do, as far as a run needs it."""

    def step(self) -> object:
        """To the rate of the next epoch."""
        ...

    def state_dict(self) -> Header:
        """What it needs to go on."""
        ...

    def load_state_dict(self, state_dict: Header) -> object:
        """Go on from there."""
        ...


def check_schedule(
    path: str | os.PathLike[str],
    scheduler: Scheduler,
    state: Header,
    optimizer: Optimizer,
    groups: Sequence[Mapping[str, object]],
) -> None:
    """Raise unless a copy of the scheduler takes a step from a state in a file; scheduler and optimizer do not change.

    A scheduler that cannot take a step from its own state either, or cannot be copied, is none of the file's doing.
    """
    try:
        _try_a_step(scheduler, scheduler.state_dict(), optimizer, optimizer.param_groups)
    except MemoryError:
        raise
    except Exception:
        return
    try:
        _try_a_step(scheduler, state, optimizer, groups)
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidValue(
            f"{path}: the scheduler cannot go on from the state in the file ({type(error).__name__}: {error})"
        ) from error


def _try_a_step(
    scheduler: Scheduler, state: Header, optimizer: Optimizer, groups: Sequence[Mapping[str, object]]
) -> None:
    """Let a copy take a step with an optimizer of one number a group, in the place of the one it has."""
    rates = [
        {**copy.deepcopy({k: v for k, v in g.items() if k != "params"}), "params": [torch.zeros(1)]} for g in groups
    ]
    dummy = torch.optim.SGD(rates, lr=0.1)
    dummy.defaults = {**dummy.defaults, **optimizer.defaults}
    twin = copy.deepcopy(scheduler, {id(optimizer): dummy})
    twin.load_state_dict(copy.deepcopy(state))
    with quietly():  # torch warns of a scheduler that is ahead of its optimizer
        twin.step()
    for group in dummy.param_groups:
        rate = group["lr"].item() if isinstance(group["lr"], torch.Tensor) else group["lr"]
        if not is_number(rate) or not math.isfinite(rate):
            raise ValueError(f"the next learning rate is {rate!r}")
