"""Compact sets K on which a function is approximated: a box, a ball, a finite sample.

Paper: "Universal Approximation", where K is any compact set. Differs: K is one of three shapes, so that covers of it
can be proven to cover. Boxes and balls are convex, and the nearest point of K is a contraction: a centre outside K can
be moved to its nearest point of K without leaving any point of K uncovered.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..errors import InvalidType, InvalidValue

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Domain(abc.ABC):
    """A compact subset of R^n: a bounding box, its nearest points, samples."""

    lower: Array
    upper: Array

    @property
    def dimension(self) -> int:
        """n."""
        return len(self.lower)

    @property
    def reach(self) -> float:
        """The largest absolute coordinate of a point of K."""
        return float(np.maximum(np.abs(self.lower), np.abs(self.upper)).max())

    @property
    @abc.abstractmethod
    def centre(self) -> Array:
        """A point of K, in the middle if there is one."""

    @property
    @abc.abstractmethod
    def radius(self) -> float:
        """All of K is within this distance of the centre."""

    @abc.abstractmethod
    def nearest(self, x: Array) -> Array:
        """The nearest points of K."""

    @abc.abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Random points of K."""

    @abc.abstractmethod
    def boundary(self, count: int, rng: np.random.Generator) -> Array:
        """Random points of the boundary of K, extreme ones first; empty for finite samples."""

    def distance(self, x: Array) -> Array:
        """Distance to K."""
        return np.asarray(np.linalg.norm(x - self.nearest(x), axis=-1))


class Box(Domain):
    """A closed box: all x with ``lo <= x <= hi`` in every coordinate.

    Parameters
    ----------
    lo, hi : number or sequence of numbers
        Numbers for n = 1.

    Examples
    --------
    >>> import radnet
    >>> radnet.Box(-1, 1)
    Box(-1.0, 1.0)
    >>> radnet.Box([0, 0], [1, 2]).dimension
    2
    """

    def __init__(self, lo: float | Sequence[float], hi: float | Sequence[float]) -> None:
        self.lower, self.upper = _vector(lo, "Box: lo"), _vector(hi, "Box: hi")
        if len(self.lower) != len(self.upper):
            raise InvalidValue(f"Box: lo has {len(self.lower)} coordinates and hi has {len(self.upper)}")
        if len(self.lower) == 0:
            raise InvalidValue("Box: lo and hi are empty; a domain has at least one coordinate")
        for i, (a, b) in enumerate(zip(self.lower.tolist(), self.upper.tolist(), strict=True)):
            if not (math.isfinite(a) and math.isfinite(b)):
                raise InvalidValue(f"Box: coordinate {i} runs from {a} to {b}; a domain must be bounded")
            if a >= b:
                what = "a single point" if a == b else "inverted"
                raise InvalidValue(f"Box: coordinate {i} runs from {a} to {b}, which is {what}; lo must be below hi")
            if not math.isfinite(b - a):
                raise InvalidValue(f"Box: coordinate {i} runs from {a} to {b}; its length is not a finite number")

    @property
    def sides(self) -> Array:
        """Lengths of the sides."""
        return self.upper - self.lower

    @property
    def centre(self) -> Array:
        """The middle."""
        return self.lower + self.sides / 2

    @property
    def radius(self) -> float:
        """Half the diagonal."""
        return float(np.linalg.norm(self.sides)) / 2

    def nearest(self, x: Array) -> Array:
        """Every coordinate clipped."""
        return np.clip(x, self.lower, self.upper)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Uniform points."""
        return self.nearest(self.lower + self.sides * rng.random((count, self.dimension)))

    def boundary(self, count: int, rng: np.random.Generator) -> Array:
        """Corners, then uniform points of random faces."""
        n = self.dimension
        bits = np.arange(2 ** min(n, 8))[:, None] >> np.arange(n) & 1
        corners = np.where(bits, self.upper, self.lower)
        x = self.sample(count, rng)
        axis, side = rng.integers(n, size=count), rng.integers(2, size=count)
        x[np.arange(count), axis] = np.where(side, self.upper[axis], self.lower[axis])
        return np.concatenate([corners, x])

    def __repr__(self) -> str:
        lo, hi = self.lower.tolist(), self.upper.tolist()
        return f"Box({lo[0]}, {hi[0]})" if len(lo) == 1 else f"Box({lo}, {hi})"


class Ball(Domain):
    """A closed ball.

    Parameters
    ----------
    centre : number or sequence of numbers
    radius : number

    Examples
    --------
    >>> import radnet
    >>> radnet.Ball([0, 0], 2)
    Ball([0.0, 0.0], 2.0)
    """

    def __init__(self, centre: float | Sequence[float], radius: float) -> None:
        self._centre = _vector(centre, "Ball: centre")
        self._radius = float(_vector(radius, "Ball: radius")[:1].sum())
        if len(self._centre) == 0:
            raise InvalidValue("Ball: centre is empty; a domain has at least one coordinate")
        if not np.isfinite(self._centre).all():
            raise InvalidValue(f"Ball: centre {self._centre.tolist()} is not finite")
        if not (math.isfinite(self._radius) and self._radius > 0):
            raise InvalidValue(f"Ball: radius {self._radius} must be a positive number")
        self.lower, self.upper = self._centre - self._radius, self._centre + self._radius

    @property
    def centre(self) -> Array:
        """The centre."""
        return self._centre.copy()

    @property
    def radius(self) -> float:
        """The radius."""
        return self._radius

    def nearest(self, x: Array) -> Array:
        """Pulled to the sphere from outside."""
        v = x - self._centre
        r = np.linalg.norm(v, axis=-1, keepdims=True)
        return np.where(r > self._radius, self._centre + v * (self._radius / np.maximum(r, self._radius)), x)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Uniform points: radius U^(1/n)."""
        v = _directions(count, self.dimension, rng) * rng.random((count, 1)) ** (1 / self.dimension)
        return self.nearest(self._centre + self._radius * v)

    def boundary(self, count: int, rng: np.random.Generator) -> Array:
        """Uniform points of the sphere, the ends of the axes first."""
        axes = np.concatenate([np.eye(self.dimension), -np.eye(self.dimension)])
        v = np.concatenate([axes, _directions(count, self.dimension, rng)])
        return self.nearest(self._centre + self._radius * v)

    def __repr__(self) -> str:
        c = self._centre.tolist()
        return f"Ball({c[0] if len(c) == 1 else c}, {self._radius})"


class Points(Domain):
    """A finite sample as K: the guarantee is for these points alone.

    Parameters
    ----------
    x : array or tensor of shape (count, n), or (count,) for n = 1

    Examples
    --------
    >>> import radnet
    >>> radnet.Points([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    Points(3 points in R^2)
    """

    def __init__(self, x: Tensor | npt.ArrayLike) -> None:
        values = _array(x, "Points")
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2 or 0 in values.shape:
            raise InvalidValue(f"Points: shape {values.shape}; expected (count, n) with at least one point")
        if not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise InvalidValue(f"Points: point {row} is {values[row].tolist()}, which is not finite")
        self.x = np.unique(values, axis=0)
        self.lower, self.upper = self.x.min(0), self.x.max(0)

    @property
    def centre(self) -> Array:
        """The point nearest to the middle of the bounding box."""
        middle = (self.lower + self.upper) / 2
        return np.asarray(self.x[np.linalg.norm(self.x - middle, axis=1).argmin()])

    @property
    def radius(self) -> float:
        """Largest distance from the centre."""
        return float(np.linalg.norm(self.x - self.centre, axis=1).max())

    def nearest(self, x: Array) -> Array:
        """Nearest points of the sample, by comparing all."""
        return np.stack([self.x[np.linalg.norm(self.x - y, axis=1).argmin()] for y in np.atleast_2d(x)])

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """The points themselves, or as many of them as asked for."""
        return self.x if len(self.x) <= count else self.x[rng.choice(len(self.x), count, replace=False)]

    def boundary(self, count: int, rng: np.random.Generator) -> Array:
        """None: a finite set tells nothing about its surroundings."""
        return np.empty((0, self.dimension))

    def __repr__(self) -> str:
        return f"Points({len(self.x)} points in R^{self.dimension})"


def _directions(count: int, n: int, rng: np.random.Generator) -> Array:
    v = rng.standard_normal((count, n))
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True))


def _array(x: Tensor | npt.ArrayLike, where: str) -> Array:
    if isinstance(x, Tensor):
        x = x.detach().cpu().numpy()
    try:
        values = np.asarray(x)
        if values.dtype.kind not in "fiu":
            raise TypeError
        return values.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidType(f"{where}: {x!r} is not made of real numbers") from None


def _vector(x: Tensor | npt.ArrayLike, where: str) -> Array:
    values = np.atleast_1d(_array(x, where))
    if values.ndim != 1:
        raise InvalidValue(f"{where}: shape {values.shape}; expected a number or a sequence of numbers")
    return values
