"""Which balls contain a point: a k-d tree over the centres, searched for all points at once.

The tree is a complete binary tree over the centres sorted by median splits; a node stores the bounding box of its
centres and its largest radius. A search carries an array of (point, node) pairs down the levels and drops the pairs
whose box is farther from the point than that radius, so that the work is a few array operations a level.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .domains import Array

Indices = npt.NDArray[np.int64]
_LEAF = 8
_POINTS_AT_ONCE = 65536


class BallTree:
    """A k-d tree over balls given by centres and radii.

    >>> import numpy as np
    >>> tree = BallTree(np.array([[0.0], [1.0]]), np.array([0.75, 0.75]))
    >>> tree.first(np.array([[0.5], [1.5], [9.0]])).tolist()
    [0, 1, -1]
    """

    def __init__(self, centres: Array, radii: Array) -> None:
        self.centres, self.radii = centres, radii
        count = len(centres)
        self.depth = max(0, int(np.ceil(np.log2(max(count, 1) / _LEAF))))
        order = np.arange(count)
        self.bounds = [np.array([0, count])]  # of the nodes of each level, as positions in `order`
        for _ in range(self.depth):
            old = self.bounds[-1]
            new = np.empty(2 * len(old) - 1, dtype=np.int64)
            new[::2] = old
            new[1::2] = (old[:-1] + old[1:]) // 2
            for a, b, middle in zip(old[:-1], old[1:], new[1::2], strict=True):
                part = centres[order[a:b]]
                axis = int((part.max(0) - part.min(0)).argmax()) if b > a else 0
                order[a:b] = order[a:b][np.argpartition(part[:, axis], middle - a)] if b - a > 1 else order[a:b]
            self.bounds.append(new)
        self.order = order
        self.boxes = [self._boxes(bounds) for bounds in self.bounds]

    def _boxes(self, bounds: Indices) -> tuple[Array, Array, Array]:
        """Lower and upper corner, largest radius, for each node of a level; no node is empty."""
        starts = bounds[:-1]
        c, r = self.centres[self.order], self.radii[self.order]
        return np.minimum.reduceat(c, starts), np.maximum.reduceat(c, starts), np.maximum.reduceat(r, starts)

    def pairs(self, x: Array, slack: float = 0.0) -> tuple[Indices, Indices, Array]:
        """All (point, ball) with ``|x - c| < r + slack``, and the distances ``|x - c|``."""
        with np.errstate(over="ignore"):  # a point so far out that its distance overflows is in no ball
            parts = [self._pairs(x[i : i + _POINTS_AT_ONCE], slack) for i in range(0, len(x), _POINTS_AT_ONCE)]
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        points = [p + i * _POINTS_AT_ONCE for i, (p, _, _) in enumerate(parts)]
        return np.concatenate(points), np.concatenate([b for _, b, _ in parts]), np.concatenate([d for *_, d in parts])

    def _pairs(self, x: Array, slack: float) -> tuple[Indices, Indices, Array]:
        point = np.arange(len(x))
        node = np.zeros(len(x), dtype=np.int64)
        for level in range(self.depth + 1):
            lower, upper, radius = self.boxes[level]
            y, reach = x[point], radius[node] + slack
            gap = np.maximum(np.maximum(lower[node] - y, y - upper[node]), 0.0)
            near = (gap * gap).sum(1) <= reach * reach * (1 + 1e-12)
            point, node = point[near], node[near]
            if level < self.depth:
                point = np.repeat(point, 2)
                node = np.repeat(2 * node, 2)
                node[1::2] += 1
        start, end = self.bounds[-1][node], self.bounds[-1][node + 1]
        size = end - start
        point = np.repeat(point, size)
        ball = self.order[np.arange(size.sum()) + np.repeat(start - np.cumsum(size) + size, size)]
        v = x[point] - self.centres[ball]
        d = np.sqrt((v * v).sum(1))
        inside = d < self.radii[ball] + slack
        return point[inside], ball[inside], d[inside]

    def first(self, x: Array) -> Indices:
        """Index of the first ball that contains each point, -1 if there is none."""
        point, ball, _ = self.pairs(x)
        found = np.full(len(x), len(self.centres), dtype=np.int64)
        np.minimum.at(found, point, ball)
        found[found == len(self.centres)] = -1
        return found

    def nearest_sphere(self, x: Array, slack: float) -> Array:
        """Distance to the nearest sphere, as far as it is below slack; infinite beyond."""
        point, ball, d = self.pairs(x, slack)
        gap = np.full(len(x), np.inf)
        np.minimum.at(gap, point, np.abs(d - self.radii[ball]))
        return np.where(gap < slack, gap, np.inf)
