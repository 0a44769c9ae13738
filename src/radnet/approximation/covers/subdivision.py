"""Adaptive covers: large balls where f varies slowly, small ones where it varies fast.

Radii are ``inner 2^-k``, so that going from ball to ball scales coordinates by powers of two, exactly. In one
dimension a sweep lays the largest possible interval next to the last; elsewhere cells are cut in two along every axis
until f stays within its budget on the ball around each. A few starting sizes are tried, since the best one is not
known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from ..domains import Array, Domain, Mask
from .counts import TooManyBalls
from .cover import Balls
from .lattices import ENUMERATED, one_ball
from .pruning import prune

_DEEPEST = 40
_STARTS = 8

Fits = Callable[[Array, Array], Mask]


def adaptive_cover(domain: Domain, fits: Fits, max_balls: int, *, separated: bool = False) -> Balls:
    """Balls that cover K and fit: ``fits(points of K, inner radii)`` says for each whether f stays within its budget.

    Separated ones come largest first and stay in the middle of their cells, so that no ball contains an earlier centre.
    """
    if bool(fits(domain.centre[None], np.array([domain.radius]))[0]):
        return one_ball(domain, domain.radius)
    found: list[Balls] = []
    refused: list[TooManyBalls] = []
    for start in range(_STARTS if domain.dimension == 1 else 3):
        try:
            make = _sweep if domain.dimension == 1 else _cut
            found.append(make(domain, fits, start, max_balls, separated))
        except TooManyBalls as error:
            refused.append(error)
    if not found:
        raise refused[0]
    best = min(found, key=lambda balls: len(balls.levels))
    best = best.take(prune(domain, best.centres, best.radii))
    return best.take(np.argsort(best.levels, kind="stable")) if separated else best


def _sweep(domain: Domain, fits: Fits, start: int, max_balls: int, separated: bool) -> Balls:
    """From left to right, always the largest interval that fits."""
    inner = domain.radius * 2 ** (-start / _STARTS)
    radii: Array = np.asarray(inner * 0.5 ** np.arange(_DEEPEST + 1))
    position, upper = float(domain.lower[0]), float(domain.upper[0])
    centres, levels = [], []
    while position < upper:
        inside = np.minimum(position + radii, upper)
        c = position + radii if separated else inside
        ok = fits(inside[:, None], radii)
        if not ok.any():
            raise TooManyBalls(math.inf, exact=False)
        level = int(ok.argmax())
        if not c[level] + radii[level] > position:  # too far from 0 for steps so small
            raise TooManyBalls(math.inf, exact=False)
        centres.append(float(c[level]))
        levels.append(level)
        position = float(c[level] + radii[level])
        if len(centres) > max_balls:
            raise TooManyBalls(max_balls * (upper - domain.lower[0]) / (position - domain.lower[0]), exact=False)
    return Balls(np.array(centres)[:, None], np.array(levels, dtype=np.int64), inner, "subdivision")


def _cut(domain: Domain, fits: Fits, start: int, max_balls: int, separated: bool) -> Balls:
    """Cells of nearly equal sides, cut along every axis until they fit."""
    n = domain.dimension
    sides = domain.upper - domain.lower
    unit = max(sides.min(), sides.max() / 16)
    counts = [max(1, round((start + 1) * side / unit)) for side in sides]
    if math.prod(counts) > 4 * max_balls:
        raise TooManyBalls(math.prod(counts), exact=False)
    cell = sides / counts
    inner = float(np.linalg.norm(cell)) / 2
    axes = [lo + side * (np.arange(k) + 0.5) for lo, side, k in zip(domain.lower, cell, counts, strict=True)]
    middle = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, n)
    centres, levels, count = [], [], 0
    for level in range(_DEEPEST + 1):
        radius = inner * 0.5**level
        middle = middle[domain.distance(middle) <= radius]
        inside = domain.nearest(middle)
        ok = fits(inside, np.full(len(inside), radius))
        centres.append((middle if separated else inside)[ok])
        levels.append(np.full(int(ok.sum()), level, dtype=np.int64))
        count += int(ok.sum())
        middle = middle[~ok]
        if not len(middle) and count <= max_balls:
            return Balls(np.concatenate(centres), np.concatenate(levels), inner, "subdivision")
        if count + len(middle) > max_balls or len(middle) * 2**n > ENUMERATED * max_balls:
            raise TooManyBalls(count + len(middle) * 2**n, exact=False)
        corners = np.array(list(itertools.product((-0.25, 0.25), repeat=n))) * cell
        middle = (middle[:, None] + 0.5**level * corners[None]).reshape(-1, n)
    raise TooManyBalls(math.inf, exact=False)
