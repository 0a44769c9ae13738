"""All experiments, in one tuple. Its length is known at once; torch waits until an experiment is looked at."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..errors import InvalidValue

if TYPE_CHECKING:
    from .experiment import AnyExperiment

#: the file of each experiment, which ends with its object ``EXPERIMENT``; the first has number 1, and so on
FILES = ("lossless", "descent", "speed", "recovery", "stability", "boundaries")

#: their numbers
NUMBERS = tuple(range(1, len(FILES) + 1))


@functools.cache
def experiments() -> tuple[AnyExperiment, ...]:
    """The experiments themselves.

    >>> [experiment.number for experiment in experiments()] == list(NUMBERS)
    True
    """
    return tuple(importlib.import_module(f"{__package__}.{name}").EXPERIMENT for name in FILES)


def find(number: int) -> AnyExperiment:
    """The experiment of a number."""
    return {experiment.number: experiment for experiment in experiments()}[number]


def chosen(numbers: Collection[int]) -> list[AnyExperiment]:
    """The experiments of some numbers, in the order of the tuple.

    >>> chosen([1, 99])
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: experiments [1, 99]: expected some of 1, 2, 3...
    """
    known = {experiment.number: experiment for experiment in experiments()}
    if not numbers or set(numbers) - set(known):
        raise InvalidValue(f"experiments {sorted(numbers)}: expected some of {', '.join(map(str, known))}")
    return [experiment for number, experiment in known.items() if number in numbers]
