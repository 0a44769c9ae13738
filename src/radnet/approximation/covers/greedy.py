"""Covers from samples: greedy ones where nothing is known but values, farthest-point ones where balls must keep apart.

A finite K is its own sample, and what is found about it is certain. For a box or a ball a net of points is laid over K:
balls that cover the net with its mesh to spare cover K, and that is certain too; only how f varies between the samples
is not, and the certificate says so.
"""

from __future__ import annotations

import math

import numpy as np

from ..domains import Array, Box, Domain, Mask, Points
from ..targets import Target
from .counts import TooManyBalls
from .cover import Balls
from .lattices import cubic_counts, cubic_lattice
from .trees import Indices

_TRIES = 16
_DEEPEST = 30
_NET = 4096
_FINEST_NET = 200_000
CAUTION = 0.75  # share of the budget that samples may use up, where they are all we have


def greedy_cover(
    domain: Domain, f: Target, variation: float, margin: float, max_balls: int, rng: np.random.Generator
) -> Balls:
    """Balls on which the sampled values of f stay within `variation` of the value at the centre."""
    if isinstance(domain, Points):
        return _greedy(domain.x, f(domain.x), 0.0, domain, variation, margin, max_balls, rng)
    count = _NET
    while count <= _FINEST_NET:
        net, mesh = net_of(domain, count)
        extra = np.concatenate([domain.sample(count, rng), domain.boundary(256, rng)])
        x = np.concatenate([net, extra])
        try:
            return _greedy(x, f(x), mesh, domain, CAUTION * variation, margin, max_balls, rng)
        except _NetTooCoarse:
            count *= 4
    raise TooManyBalls(math.inf, exact=False)


class _NetTooCoarse(Exception):
    pass


def net_of(domain: Domain, count: int) -> tuple[Array, float]:
    """About that many points of K and their mesh: every point of K is within the mesh of one of them."""
    box = Box(domain.lower.tolist(), domain.upper.tolist())
    mesh = float(box.sides.max())
    while math.prod(cubic_counts(box.sides, mesh)) < count:
        mesh /= 1.2
    centres = cubic_lattice(box, cubic_counts(box.sides, mesh))
    return np.unique(domain.nearest(centres[domain.distance(centres) <= mesh]), axis=0), mesh


def _greedy(
    x: Array,
    y: Array,
    mesh: float,
    domain: Domain,
    variation: float,
    margin: float,
    max_balls: int,
    rng: np.random.Generator,
) -> Balls:
    """Of a few uncovered points, the one whose largest admissible ball covers most of what is left; again and again."""
    inner = domain.radius * (1 + 1e-9) + mesh if domain.radius > 0 else 1.0
    radii = inner * 0.5 ** np.arange(_DEEPEST + 1)
    left = np.arange(len(x))
    centres: list[Array] = []
    levels: list[int] = []
    while len(left):
        tries = left[rng.choice(len(left), min(_TRIES, len(left)), replace=False)]
        best: tuple[int, int, int, Mask] | None = None
        for i in tries.tolist():
            d = np.linalg.norm(x - x[i], axis=1)
            far = np.linalg.norm(y - y[i], axis=1) > variation
            nearest_bad = float(d[far].min()) if far.any() else math.inf
            fitting = radii * (1 + 2 * margin) < nearest_bad
            if not fitting.any():
                raise TooManyBalls(math.inf, exact=False)
            level = int(fitting.argmax())
            if mesh and radii[level] < 3 * mesh:
                raise _NetTooCoarse
            covered = d[left] <= radii[level] - mesh
            if best is None or int(covered.sum()) > best[0]:
                best = (int(covered.sum()), i, level, covered)
        if best is None:
            raise AssertionError("there was nothing to choose from")
        _, i, level, covered = best
        centres.append(x[i])
        levels.append(level)
        left = left[~covered]
        if len(centres) > max_balls:
            raise TooManyBalls(len(centres) * len(x) / (len(x) - len(left)), exact=False)
    return Balls(np.array(centres), np.array(levels, dtype=np.int64), inner, "greedy")


def safe_radius(x: Array, y: Array, variation: float) -> float:
    """The smallest distance of two points whose values differ by more than `variation`; infinite if there are none."""
    least = math.inf
    for i in range(0, len(x), 256):
        far = np.linalg.norm(y[i : i + 256, None] - y[None], axis=2) > variation
        if far.any():
            d = np.linalg.norm(x[i : i + 256, None] - x[None], axis=2)
            least = min(least, float(d[far].min()))
    return least


def separated_cover(domain: Domain, radius: float, margin: float, max_balls: int) -> Balls:
    """Balls of one radius, at most the given one, none of which contains the centre of another (lem:def-M, corrected).

    Centres are taken one after the other, always the point of K farthest from those before. When the next one would be
    at distance d, balls of radius d cover K, and the centres so far are at least the last distance apart. It stops
    where the last distance leaves room for the margins.
    """
    x, mesh = (domain.x, 0.0) if isinstance(domain, Points) else net_of(domain, 200_000)
    if mesh > 0.05 * radius:
        raise TooManyBalls(math.inf, exact=False)
    chosen: list[int] = [int(np.linalg.norm(x - domain.centre, axis=1).argmin())]
    d = np.linalg.norm(x - x[chosen[0]], axis=1)
    last = math.inf
    while True:
        i = int(d.argmax())
        inner = float(d[i]) + mesh
        if inner <= radius and inner * (1 + 3 * margin) < last:
            index: Indices = np.array(chosen)
            inner = max(inner, radius * 1e-6)
            return Balls(x[index], np.zeros(len(index), np.int64), inner, "farthest point")
        if len(chosen) >= max_balls:
            raise TooManyBalls(math.inf, exact=False)
        chosen.append(i)
        last = float(d[i])
        d = np.minimum(d, np.linalg.norm(x - x[i], axis=1))
