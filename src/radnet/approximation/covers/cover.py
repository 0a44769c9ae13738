r"""Covers of K by balls (lem:def-N, lem:def-M), placed so that a network in floating point sees exactly these balls.

Every ball has three radii, ``inner < radius < outer``: the inner balls already cover K, the outer ones are where f has
to stay within its budget, and the threshold of the network lies at the radius. What arithmetic may move the threshold
by is less than the gap on either side.

That gap does not grow with the depth. The network works in coordinates ``X = scale x`` in which a ball of level k has
radius ``unit 2^-k``, and the centres there are multiples of one power of two, the pitch G. Let ``|X|``, ``|C|`` and
``|X - C|`` stay below ``2^E`` and let ``G = 2^(E-p)`` in a dtype of p bits. Then ``X - C_1`` is rounded to a multiple
of some ``g <= G``; going on from centre to centre adds a multiple of G, which is exact unless the sum is so large that
its last place exceeds g, and then g at least doubles. So all roundings together move X by at most ``G/2 + G/4 + ... <
G`` a coordinate, however many balls there are.

Differs from the paper: radii of any size; f has to vary by less than eps on the whole ball, not on its part in K,
where points outside K matter. In lem:def-M only later balls have to avoid earlier centres, and centres may lie outside
K: the value is then that of the nearest point of K, to which every point of K is at most as far as to the centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..domains import Array, Domain, Mask, Points
from .trees import BallTree, Indices, nearest_sphere


@dataclass(frozen=True, eq=False)
class Balls:
    """A cover before it is placed: ball i covers its share of K with radius ``inner 2^-level``.

    A centre outside K takes the value of its nearest point of K, to which all of K is no farther than to the centre.
    """

    centres: Array
    levels: Indices
    inner: float
    kind: str

    @property
    def radii(self) -> Array:
        """The covering radii."""
        return np.asarray(self.inner * 0.5**self.levels)

    def normalised(self) -> Balls:
        """The same balls, the largest at level 0."""
        least = int(self.levels.min())
        return Balls(self.centres, self.levels - least, self.inner * 0.5**least, self.kind)

    def take(self, index: Indices) -> Balls:
        """Some of the balls, in the given order."""
        return Balls(self.centres[index], self.levels[index], self.inner, self.kind)


@dataclass(frozen=True)
class Ruler:
    """How finely a network can place its balls: the arithmetic it has, and how large its numbers become.

    ``values`` is the largest entry of a value that shares coordinates with x, 0 if none does; ``bits`` the precision p.
    """

    bits: int
    unit: float
    terms: int
    reach: float
    values: float

    def pitch(self, scale: float, radius: float) -> float:
        """G in scaled coordinates."""
        largest = 2 * scale * (self.reach + 2 * radius) + 2 * self.values
        return float(2.0 ** (math.ceil(math.log2(largest)) - self.bits))

    def slack(self, n: int, radius: float) -> float:
        """What arithmetic may move a sphere of the largest radius by, in the coordinates of x.

        sqrt(n) G/2 for placing the centre, as much for scaling x, sqrt(n) G for the way (see above), some roundings of
        the norm, and f called at a float64 point.
        """
        constant, slope = self._slack(n)
        return constant + slope * radius

    def _slack(self, n: int) -> tuple[float, float]:
        """The two coefficients: ``2 sqrt(n) G`` with ``G <= 4 (reach + 2 r + values r/unit) 2^-p``, and roundings."""
        ulp, factor = 2.0**-self.bits, 8.1 * math.sqrt(n)
        constant = (factor * ulp + 2.0**-50) * self.reach
        return constant, factor * (2 + self.values / self.unit) * ulp + 4 * (self.terms + 4) * ulp

    def largest_radius(self, n: int, slack: float) -> float:
        """The largest radius for which arithmetic leaves spheres within that slack; the inverse of `slack`."""
        constant, slope = self._slack(n)
        return (slack - constant) / slope


@dataclass(frozen=True, eq=False)
class Cover:
    """Balls that cover K, where a network can place them.

    Attributes
    ----------
    centres, radii : arrays of shape (N, n) and (N,)
        The balls of the network: ``B_r(c) = {x : |x - c| < r}``.
    inner, outer : arrays of shape (N,)
        The balls of radius inner cover K already; f is controlled up to outer.
    samples : array of shape (N, n)
        Where f is evaluated: the points of K nearest to the centres.
    slack : float
        What arithmetic may move a sphere by.
    kind : str
        "one ball", "lattice", "subdivision", "greedy" or "farthest point".

    Examples
    --------
    >>> import radnet
    >>> a = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 1), 0.25, lipschitz=1)
    >>> a.cover.kind, len(a.cover), a.cover.centres.ravel().round(3).tolist()
    ('lattice', 3, [0.167, 0.5, 0.833])
    """

    centres: Array
    radii: Array
    inner: Array
    outer: Array
    samples: Array
    grid: Array
    levels: Indices
    scale: float
    unit: float
    pitch: float
    slack: float
    bits: int
    kind: str

    def __len__(self) -> int:
        return len(self.radii)

    @cached_property
    def tree(self) -> BallTree:
        """For finding the balls that contain a point."""
        return BallTree(self.centres, self.radii)

    @property
    def separation(self) -> float:
        """Smallest ``|c_i - c_j| / r_i`` over j < i: at least 1 if no ball contains an earlier centre.

        Pairs farther apart than four of the largest radii are not counted.
        """
        wide = 4 * float(self.radii.max())
        point, ball, d = BallTree(self.centres, np.full(len(self), wide)).pairs(self.centres)
        later = ball > point
        return float((d[later] / self.radii[ball[later]]).min(initial=math.inf))

    def near_a_sphere(self, x: Array) -> Mask:
        """Whether each point is so close to a sphere that arithmetic decides on which side it is."""
        return np.isfinite(nearest_sphere(x, self.centres, self.radii, self.slack))


def place(balls: Balls, domain: Domain, margin: float, ruler: Ruler) -> Cover | None:
    """The cover with its centres on the grid of the ruler, or None if arithmetic needs more room than margin gives it.

    Radii are ``inner (1 + margin)`` and ``inner (1 + 2 margin)``.
    """
    balls = balls.normalised()
    n, level = domain.dimension, int(balls.levels.max())
    largest = balls.inner * (1 + margin)
    if ruler.slack(n, largest) > margin * balls.inner * 0.5**level:
        return None
    scale = _round_down(ruler.unit / largest, ruler.bits)
    G = ruler.pitch(scale, largest)
    grid = np.round(balls.centres * scale / G) * G
    inner = balls.radii
    return Cover(
        centres=grid / scale,
        radii=np.asarray(ruler.unit / scale * 0.5**balls.levels, dtype=np.float64),
        inner=inner,
        outer=inner * (1 + 2 * margin),
        samples=domain.nearest(balls.centres) if not isinstance(domain, Points) else balls.centres,
        grid=grid,
        levels=balls.levels,
        scale=scale,
        unit=ruler.unit,
        pitch=G,
        slack=ruler.slack(n, largest),
        bits=ruler.bits,
        kind=balls.kind,
    )


def _round_down(x: float, bits: int) -> float:
    """The largest number of that many bits that is at most x."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(math.floor(math.ldexp(mantissa, bits)), exponent - bits)
