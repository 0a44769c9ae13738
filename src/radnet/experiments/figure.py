"""A number over several trials, as the paper prints it: mean ± standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from ..errors import InvalidValue

Tell = Callable[[float], None]  # what share of a trial is done


@dataclass(frozen=True)
class Figure:
    """Mean and standard deviation over the trials.

    >>> Figure.of([1.0, 3.0])
    Figure(mean=2.0, std=1.4142135623730951)
    """

    mean: float
    std: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """Over the given values; one value has no deviation."""
        values = list(values)
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


#: seeds are below this: twice a seed and one more must be a seed of torch's generator, which keeps 32 bits
LARGEST_SEED = 2**31


def streams(seed: int) -> tuple[torch.Generator, torch.Generator]:
    """Two generators that have nothing to do with each other: one for data, one for weights."""
    return torch.Generator().manual_seed(2 * seed), torch.Generator().manual_seed(2 * seed + 1)


def check_counts(**counts: int) -> None:
    """Refuse a number of trials, epochs and the like that is not at least 1.

    >>> check_counts(trials=0)
    Traceback (most recent call last):
    radnet.errors.InvalidValue: trials=0: at least 1 is needed
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidValue(f"{name}={value!r}: at least 1 is needed")
