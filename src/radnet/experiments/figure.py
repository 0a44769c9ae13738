"""A number over several trials, as the paper prints it: mean ± standard deviation."""

from __future__ import annotations

import math
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


def text_of(figure: Figure | None) -> str:
    """A figure as text.

    >>> text_of(Figure(2.04, 0.0)), text_of(Figure(1.31e-8, 4.45e-9)), text_of(None)
    ('2.04', '1.31e-08 ± 4.45e-09', '-')
    """
    if figure is None:
        return "-"
    return number(figure.mean) + (f" ± {number(figure.std)}" if figure.std else "")


def number(x: float) -> str:
    """A number in four digits or fewer.

    >>> [number(x) for x in (0.0, 1.0, 0.00256, 31.24, 1236382.0, 3e-9)]
    ['0', '1', '0.00256', '31.24', '1,236,382', '3.00e-09']
    """
    if not math.isfinite(x):
        return str(x)
    if x == int(x) and abs(x) < 1e15:
        return f"{int(x):,}"
    return f"{x:.2e}" if abs(x) < 1e-4 else f"{x:.4g}"
