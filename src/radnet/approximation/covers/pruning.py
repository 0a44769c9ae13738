"""Removing balls that a cover can do without, with proof.

A ball is redundant if its part of K is covered by the others. In one dimension a sweep finds the fewest intervals. In
higher dimensions the box around a ball is cut into smaller boxes until each is outside the ball, outside K, or inside a
single other ball; where that does not succeed after a few cuts the ball stays.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..domains import Array, Box, Domain
from .trees import BallTree, Indices

_FEW_AXES, _FEW_BALLS = 5, 200
_CUTS = 5
_BOXES = 4096
_CANDIDATES = 1500


def prune(domain: Domain, centres: Array, radii: Array) -> Indices:
    """Indices of balls that still cover K, in their old order."""
    if len(centres) == 1:
        return np.zeros(1, np.int64)
    if domain.dimension == 1:
        return _fewest_intervals(domain, centres[:, 0], radii)
    if domain.dimension > _FEW_AXES and len(centres) > _FEW_BALLS:  # there almost all balls meet, and nothing is gained
        return np.arange(len(centres))
    return _prune_boxes(domain, centres, radii)


def _fewest_intervals(domain: Domain, c: Array, r: Array) -> Indices:
    """Of the intervals that reach the point covered so far, always the one that reaches farthest."""
    lower, upper = float(domain.lower[0]), float(domain.upper[0])
    order = np.argsort(c - r, kind="stable")
    start, end = (c - r)[order], (c + r)[order]
    kept: list[int] = []
    covered, i = lower, 0
    while covered < upper or not kept:
        best = -1
        while i < len(order) and start[i] <= covered:
            if best < 0 or end[i] > end[best]:
                best = i
            i += 1
        if best < 0 or (kept and end[best] <= covered):  # a gap no wider than a rounding error
            if i == len(order):
                break
            best, i = i, i + 1
        kept.append(int(order[best]))
        covered = max(covered, float(end[best]))
    return np.sort(np.array(kept, dtype=np.int64))


def _prune_boxes(domain: Domain, centres: Array, radii: Array) -> Indices:
    """Try balls that stick out of K or are crowded, the most crowded first."""
    point, ball, _ = BallTree(centres, radii).pairs(centres)
    crowd = np.bincount(point[ball != point], minlength=len(centres))
    inside = _distance_to_boundary(domain, centres) > radii
    score = crowd + np.where(inside, 0, 0.5)
    order = np.argsort(-score, kind="stable")
    candidates = order[score[order] > 0][:_CANDIDATES]
    point, ball, _ = BallTree(centres, radii + radii.max()).pairs(centres[candidates])
    neighbours = np.split(ball, np.cumsum(np.bincount(point, minlength=len(candidates))))
    alive = np.ones(len(centres), dtype=bool)
    for i, near in zip(candidates.tolist(), neighbours, strict=False):
        others = near[alive[near] & (near != i)]
        if len(others) and _covered_by(domain, centres[i], radii[i], centres[others], radii[others]):
            alive[i] = False
    return np.flatnonzero(alive)


def _covered_by(domain: Domain, c: Array, r: float, others: Array, radii: Array) -> bool:
    """Whether the part of K in the ball is covered by the other balls; False if that is not found out."""
    n = len(c)
    low, high = np.maximum(c - r, domain.lower), np.minimum(c + r, domain.upper)
    middle, half = ((low + high) / 2)[None], ((high - low) / 2)[None]
    for cut in range(_CUTS + 1):
        gap = np.maximum(np.abs(middle - c) - half, 0)
        meets = (gap * gap).sum(1) < r * r
        if not isinstance(domain, Box):
            meets &= domain.distance(middle) <= np.linalg.norm(half, axis=1)
        middle, half = middle[meets], half[meets]
        far = np.abs(middle[:, None] - others[None]) + half[:, None]
        done = ((far * far).sum(2) <= (radii * radii)[None] * (1 - 1e-12)).any(1)
        middle, half = middle[~done], half[~done]
        if not len(middle):
            return True
        if cut == _CUTS or len(middle) * 2**n > _BOXES:
            return False
        corners = np.array(list(itertools.product((-0.5, 0.5), repeat=n)))
        middle = (middle[:, None] + half[:, None] * corners[None]).reshape(-1, n)
        half = np.repeat(half / 2, 2**n, axis=0)
    return False


def _distance_to_boundary(domain: Domain, x: Array) -> Array:
    if isinstance(domain, Box):
        return np.asarray(np.minimum(x - domain.lower, domain.upper - x).min(1))
    return np.asarray(domain.radius - np.linalg.norm(x - domain.centre, axis=1))
