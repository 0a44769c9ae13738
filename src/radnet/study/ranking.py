"""Ranks over data sets, whether they differ by more than chance explains, and who beats whom clearly."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .contest import Entry
from .dataset import Array

#: how sure a difference of ranks has to be
LEVEL = 0.05
#: a loss so small is as good as none
TINY = 1e-12
#: so many it takes to call a difference clear
SEEDS = 3
Scores = Mapping[str, Mapping[str, Sequence[float]]]  # by data set and contestant, one for each seed


def scores_of(entries: Sequence[Entry]) -> dict[str, dict[str, Sequence[float]]]:
    """The scores by data set and contestant."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for e in entries:
        found.setdefault(e.data, {})[e.contestant] = e.scores
    return found


class Ranks(NamedTuple):
    """Ranks of contestants over data sets, 1 for the smallest error; equal errors share their ranks.

    Two mean ranks that are further apart than ``difference`` differ by more than chance explains (Nemenyi's test);
    ``p`` is Friedman's: how often chance alone would make ranks that differ so much.
    """

    names: tuple[str, ...]
    by_data: Array  # (data sets, contestants)
    p: float
    difference: float

    @property
    def mean(self) -> dict[str, float]:
        """By contestant."""
        return dict(zip(self.names, self.by_data.mean(axis=0).tolist(), strict=True))

    @property
    def median(self) -> dict[str, float]:
        """By contestant."""
        return dict(zip(self.names, np.median(self.by_data, axis=0).tolist(), strict=True))


def ranks(scores: Scores, names: Sequence[str]) -> Ranks:
    """Ranks of the mean scores.

    >>> found = ranks({"a": {"x": [1.0], "y": [2.0]}, "b": {"x": [3.0], "y": [3.0]}}, ["x", "y"])
    >>> found.mean
    {'x': 1.25, 'y': 1.75}
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    table = np.array([[statistics.fmean(row[name]) for name in names] for row in scores.values()])
    by_data = rankdata(table, axis=1)
    n, k = table.shape
    differ = n > 1 and k > 2 and bool((table != table[:, :1]).any())
    p = float(friedmanchisquare(*table.T).pvalue) if differ else math.nan
    q = float(studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2) if k > 1 else math.nan
    return Ranks(tuple(names), by_data, p, q * math.sqrt(k * (k + 1) / (6 * n)))


class Beside(NamedTuple):
    """On how many data sets one contestant is clearly better than another, neither, or clearly worse."""

    wins: int
    ties: int
    losses: int


def beside(scores: Scores, name: str, other: str) -> Beside:
    """Clearly better is a contestant whose worst seed is better than the best one of the other, of three and more.

    Two contestants that are alike look so, one way or the other, in one case of ten.

    >>> beside({"a": {"x": [1.0, 2.0, 2.0], "y": [3.0, 4.0, 4.0]}, "b": {"x": [1.0], "y": [3.0]}}, "x", "y")
    Beside(wins=1, ties=1, losses=0)
    """
    judged = [row for row in scores.values() if min(len(row[name]), len(row[other])) >= SEEDS]
    wins = sum(max(row[name]) < min(row[other]) for row in judged)
    losses = sum(max(row[other]) < min(row[name]) for row in judged)
    return Beside(wins, len(scores) - wins - losses, losses)


class Width(NamedTuple):
    """What training wide does, with the same draws of the search, the same steps and the same sizes that ship."""

    draws: int  # in which the wide network is wider
    data: int  # sets that these are of
    better: float  # share of them in which it has the smaller loss on held-out rows
    ratio: float  # its loss beside the other's, in the median draw
    by_data: dict[str, float]  # the same for each data set


def width(entries: Sequence[Entry], name: str = "radial", wide: str = "radial, wide") -> Width | None:
    """Draw by draw, those in which both are the same network left out; None if there is no other."""
    by = {(e.data, e.contestant): e for e in entries}
    ratios: dict[str, list[float]] = {}
    for data in dict.fromkeys(e.data for e in entries):
        one, other = by[data, name], by[data, wide]
        for a, b, n, m in zip(one.searched, other.searched, one.sizes, other.sizes, strict=True):
            if m > n:
                ratios.setdefault(data, []).append((b + TINY) / (a + TINY))
    found = [r for some in ratios.values() for r in some]
    if not found:
        return None
    return Width(
        len(found),
        len(ratios),
        sum(r < 1 for r in found) / len(found),
        statistics.median(found),
        {data: statistics.median(some) for data, some in ratios.items()},
    )
