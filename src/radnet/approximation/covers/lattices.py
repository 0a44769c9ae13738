"""Covers by balls of one radius whose centres form a lattice, for a function with one Lipschitz constant.

Two lattices are tried. The cubic one, fitted to the sides of the box, wins for few balls. A_n*, the projection of
Z^(n+1) along (1, ..., 1), is the thinnest covering lattice known for small n (hexagonal in the plane, body-centred in
space): far from the boundary it needs 23 % fewer balls than the cubic one in two dimensions and 46 % fewer in three.
Its centres outside K are moved to the nearest point of K, which keeps K covered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..domains import Array, Ball, Box, Domain
from .counts import TooManyBalls
from .cover import Balls
from .pruning import prune
from .trees import BallTree

_OFFSETS = 4
ENUMERATED = 40  # lattice points looked at, per ball allowed


def lattice_cover(domain: Domain, radius: float, max_balls: int, *, separated: bool = False) -> Balls:
    """Balls of the given radius that cover K, at most ``max_balls`` of them.

    Separated ones stay on their lattice, outside K or not, so that no ball contains the centre of another.
    """
    if radius >= domain.radius:
        return one_ball(domain, radius)
    box = Box(domain.lower.tolist(), domain.upper.tolist())
    counts = cubic_counts(box.sides, radius)
    if separated and domain.dimension == 1:
        radius = min(radius, float(box.sides[0]) / counts[0] / 2 * (1 + 1e-12))  # so that neighbours keep apart
    cubic = math.prod(counts)
    rough = cubic if domain.dimension == 1 else min(cubic, cells(domain, radius))
    if rough > max_balls:
        raise TooManyBalls(rough, exact=domain.dimension == 1)
    found = [cubic_lattice(box, counts)] if cubic <= 4 * max_balls else []
    if domain.dimension > 1:
        rng = np.random.default_rng(0)
        found += list(_thin_lattices(box, radius, rng, max_balls))
    if not found:  # the thin one needs less, but nobody can look through all of its points
        raise TooManyBalls(cubic, exact=False)
    found = [_meeting(domain, centres, radius, separated) for centres in found]
    if separated:  # cells of unequal sides may be too flat for that
        found = [centres for centres in found if least_distance(centres) > 1.05 * radius] or found
    found = sorted(found, key=len)[:2]
    if len(found[0]) > 1.3 * max_balls:
        raise TooManyBalls(len(found[0]), exact=False)
    centres = min((_pruned(domain, centres, radius) for centres in found), key=len)
    if len(centres) > max_balls:
        raise TooManyBalls(len(centres))
    return Balls(centres, np.zeros(len(centres), np.int64), radius, "lattice")


def one_ball(domain: Domain, radius: float) -> Balls:
    """All of K in a ball."""
    return Balls(domain.centre[None], np.zeros(1, np.int64), radius, "one ball")


def cubic_counts(sides: Array, radius: float) -> list[int]:
    """Into how many parts to cut each side so that every cell fits a ball: ``sum (side/count)^2 <= (2 radius)^2``."""
    n = len(sides)
    counts = [max(1, math.ceil(side * math.sqrt(n) / (2 * radius) * (1 - 1e-12))) for side in sides]
    for axis in np.argsort(sides)[::-1]:  # a short side may leave room for the others
        others = sum((s / k) ** 2 for i, (s, k) in enumerate(zip(sides, counts, strict=True)) if i != axis)
        room = 4 * radius * radius - others
        if room > 0:
            counts[axis] = min(counts[axis], max(1, math.ceil(sides[axis] / math.sqrt(room) * (1 + 1e-12))))
    return counts


def cubic_lattice(box: Box, counts: list[int]) -> Array:
    """Centres of the cells."""
    axes = [lo + side * (np.arange(k) + 0.5) / k for lo, side, k in zip(box.lower, box.sides, counts, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, box.dimension)


def _thin_lattices(box: Box, radius: float, rng: np.random.Generator, max_balls: int) -> Iterator[Array]:
    """`thin_lattice` with several offsets; none if there are too many points to look through."""
    for _ in range(_OFFSETS):
        centres = thin_lattice(box, radius, rng.random(box.dimension), max_balls)
        if centres is None:
            return
        yield centres


def thin_lattice(box: Box, radius: float, offset: Array, max_balls: int) -> Array | None:
    """The points of A_n*, of the given covering radius, that are within that radius of the box; None if they are many.

    Its Gram matrix is ``I - 1/(n+1)``, its covering radius ``sqrt(n (n+2) / (12 (n+1)))``.
    """
    n = box.dimension
    gram = np.eye(n) - 1 / (n + 1)
    basis = np.linalg.cholesky(gram) * (radius * (1 - 1e-12) / math.sqrt(n * (n + 2) / (12 * (n + 1))))
    # how far the box, with a margin of the radius, reaches along the basis: the corners need not be listed for that
    reach = np.ceil(np.abs(np.linalg.inv(basis.T)) @ (box.sides / 2 + radius)) + 1
    if not np.log(2 * reach + 1).sum() <= math.log(ENUMERATED * max_balls):
        return None
    first, last = -reach.astype(int), reach.astype(int)
    steps = [np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]
    index = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, n)
    return np.asarray(box.centre + (index + offset) @ basis)


def _meeting(domain: Domain, centres: Array, radius: float, separated: bool) -> Array:
    """The centres whose balls meet K, moved into K unless they have to keep apart."""
    centres = centres[domain.distance(centres) <= radius]
    return centres if separated else np.unique(domain.nearest(centres), axis=0)


def _pruned(domain: Domain, centres: Array, radius: float) -> Array:
    return centres[prune(domain, centres, np.full(len(centres), radius))]


def least_distance(centres: Array) -> float:
    """Between two of the points."""
    if len(centres) < 2:
        return math.inf
    longest = float(np.linalg.norm(centres.max(0) - centres.min(0)))
    guess = longest / len(centres) ** (1 / centres.shape[1])
    while True:
        point, other, d = BallTree(centres, np.full(len(centres), guess)).pairs(centres)
        if (point != other).any():
            return float(d[point != other].min())
        guess *= 2


def cells(domain: Domain, radius: float) -> float:
    """How many cells of A_n* have the volume of a box or a ball: about what any lattice needs at least."""
    n = domain.dimension
    step = radius / math.sqrt(n * (n + 2) / (12 * (n + 1)))
    if isinstance(domain, Ball):
        log = n / 2 * math.log(math.pi) - math.lgamma(n / 2 + 1) + n * math.log(domain.radius / step)
    else:
        log = float(np.log((domain.upper - domain.lower) / step).sum())
    log += 0.5 * math.log(n + 1)
    return math.exp(log) if log < 700 else math.inf
