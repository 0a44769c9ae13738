"""What the parameters of the learners may be; as scikit-learn wants it, they are looked at when a learner is fitted."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence

import numpy as np

from ..activations import NAMES
from ..errors import InvalidType, InvalidValue
from .training import OPTIMIZERS, SCHEDULES

_NAMED: dict[str, Sequence[str]] = {
    "profile": tuple(NAMES),
    "optimizer": tuple(OPTIMIZERS),
    "schedule": SCHEDULES,
}


def check_parameters(who: str, given: Mapping[str, object]) -> None:
    """Refuse parameters that are none, naming them.

    >>> check_parameters("RadialRegressor", {"hidden": (10,), "block_size": 3})
    Traceback (most recent call last):
    radnet.errors.InvalidValue: RadialRegressor: hidden=(10,): 10 does not split into blocks of 3
    """
    widths_of(who, given["hidden"], given["block_size"])
    for name, known in _NAMED.items():
        value = given[name]
        if not isinstance(value, str) or value not in known:
            raise InvalidValue(f"{who}: {name}={value!r}: expected one of {', '.join(known)}")
    for name in ("epochs", "batch_size", "restarts", "patience"):
        value = given[name]
        if name in ("restarts", "patience") or not (isinstance(value, str) and value == "auto"):
            _check_whole(who, name, value)
    rate = given["learning_rate"]
    if not (isinstance(rate, str) and rate == "auto") and not _is_between(rate, 0.0, math.inf, open_below=True):
        raise InvalidValue(f"{who}: learning_rate={rate!r}: expected a number above 0, or 'auto'")
    for name, most in (("validation_fraction", 1.0), ("weight_decay", math.inf)):
        if not _is_between(given[name], 0.0, most):
            raise InvalidValue(f"{who}: {name}={given[name]!r}: expected a number of at least 0 and below {most:g}")


def widths_of(who: str, hidden: object, block_size: object) -> list[int]:
    """The widths of the hidden layers, each of which splits into blocks."""
    listed = [hidden] if isinstance(hidden, numbers.Integral) else hidden
    if not isinstance(listed, Sequence | np.ndarray) or isinstance(listed, str):
        raise InvalidValue(f"{who}: hidden={hidden!r}: expected widths of hidden layers, such as (96,)")
    widths = [int(k) for k in listed if isinstance(k, numbers.Integral) and not isinstance(k, bool) and int(k) > 0]
    if len(widths) < len(listed):
        raise InvalidValue(f"{who}: hidden={hidden!r}: expected widths of hidden layers, such as (96,)")
    if block_size is not None:
        size = _check_whole(who, "block_size", block_size)
        if odd := [k for k in widths if k % size]:
            raise InvalidValue(f"{who}: hidden={hidden!r}: {odd[0]} does not split into blocks of {size}")
    return widths


def _check_whole(who: str, name: str, value: object) -> int:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or int(value) < 1:
        kind = InvalidValue if isinstance(value, numbers.Real) else InvalidType
        raise kind(f"{who}: {name}={value!r}: expected a whole number of at least 1")
    return int(value)


def _is_between(value: object, low: float, high: float, *, open_below: bool = False) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    number = float(value)
    return low < number < high or (number == low and not open_below)
