"""Which balls contain a point: a k-d tree that halves space until few balls reach into each part.

A leaf lists the balls whose bounding boxes meet its part of space, in order; the parts at the rim are unbounded, so
every point is in one. All points descend together, one array operation a level, and are then compared with the balls
of their leaves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..domains import Array

Indices = npt.NDArray[np.int64]
_LEAF = 8
_DEEPEST = 40
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
        low, high = centres - radii[:, None], centres + radii[:, None]
        axis, split, child, lists = [0], [np.inf], [0], [np.arange(len(centres))]
        level, self.depth = [0], 0
        for _ in range(_DEEPEST):
            following = []
            for node in level:
                balls = lists[node]
                cut = _cut(centres[balls], low[balls], high[balls])
                if cut is None:
                    continue
                axis[node], split[node], child[node] = cut[0], cut[1], len(axis)
                for part in cut[2:]:
                    following.append(len(axis))
                    axis.append(0)
                    split.append(np.inf)
                    child.append(len(axis) - 1)  # a leaf is its own child
                    lists.append(balls[part])
                lists[node] = balls[:0]
            if not following:
                break
            level, self.depth = following, self.depth + 1
        self.axis, self.split, self.child = np.array(axis), np.array(split), np.array(child)
        self.size = np.array([len(part) for part in lists])
        self.start = np.cumsum(self.size) - self.size
        self.balls = np.concatenate(lists)

    def _leaves(self, x: Array) -> Indices:
        node = np.zeros(len(x), dtype=np.int64)
        rows = np.arange(len(x))
        for _ in range(self.depth):
            node = self.child[node] + (x[rows, self.axis[node]] >= self.split[node])
        return node

    def _compared(self, x: Array) -> tuple[Indices, Indices, Array]:
        """All pairs of a point and a ball of its leaf, points in order, and their distances."""
        leaf = self._leaves(x)
        size = self.size[leaf]
        point = np.repeat(np.arange(len(x)), size)
        ball = self.balls[np.arange(len(point)) + np.repeat(self.start[leaf] - np.cumsum(size) + size, size)]
        square = np.zeros(len(point))
        with np.errstate(over="ignore"):  # a point so far out that its distance overflows is in no ball
            for k in range(x.shape[1]):
                v = x[point, k] - self.centres[ball, k]
                square += v * v
        return point, ball, np.sqrt(square)

    def pairs(self, x: Array) -> tuple[Indices, Indices, Array]:
        """All (point, ball) with ``|x - c| < r``, points in order, and the distances ``|x - c|``."""
        parts = []
        for i in range(0, max(len(x), 1), _POINTS_AT_ONCE):
            point, ball, d = self._compared(x[i : i + _POINTS_AT_ONCE])
            inside = d < self.radii[ball]
            parts.append((point[inside] + i, ball[inside], d[inside]))
        point, ball, d = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return point, ball, d

    def first(self, x: Array) -> Indices:
        """Index of the first ball that contains each point, -1 if there is none."""
        found = np.full(len(x), -1, dtype=np.int64)
        for i in range(0, len(x), _POINTS_AT_ONCE):
            point, ball, d = self._compared(x[i : i + _POINTS_AT_ONCE])
            inside = np.flatnonzero(d < self.radii[ball])[::-1]
            found[point[inside] + i] = ball[inside]  # of several, the last written is the first in the list
        return found


def nearest_sphere(x: Array, centres: Array, radii: Array, slack: float) -> Array:
    """Distance to the nearest sphere as far as it is below slack; infinite beyond."""
    point, ball, d = BallTree(centres, radii + slack).pairs(x)
    gap = np.full(len(x), np.inf)
    np.minimum.at(gap, point, np.abs(d - radii[ball]))
    return np.where(gap < slack, gap, np.inf)


def _cut(
    centres: Array, low: Array, high: Array
) -> tuple[int, float, npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None:
    """Axis, place and the two parts of a cut that separates the balls, or None if there is none worth making."""
    count = len(centres)
    if count <= _LEAF:
        return None
    for axis in np.argsort(centres.min(0) - centres.max(0)).tolist():
        place = float(np.median(centres[:, axis]))
        left, right = low[:, axis] < place, high[:, axis] >= place
        if max(int(left.sum()), int(right.sum())) <= 0.8 * count:
            return axis, place, left, right
    return None
