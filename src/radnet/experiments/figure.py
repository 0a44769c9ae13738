"""A number over several trials, as the paper prints it: mean ± standard deviation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


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
