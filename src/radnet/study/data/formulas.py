"""Functions of a few numbers: what engineers try surrogates on, Friedman's, and classes in the plane and in space.

The circuit, the piston, the wing, the borehole and the robot arm are as in S. Surjanovic and D. Bingham's Virtual
Library of Simulation Experiments; Friedman's three come with scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..dataset import Array, DataSet, Loaded, drawn

ROWS = 3000


def _friedman(number: int, noise: float) -> Loaded:
    from sklearn import datasets

    X, y = getattr(datasets, f"make_friedman{number}")(ROWS, noise=noise, random_state=number)
    return X, y


def _in_a_box(ranges: Sequence[tuple[float, float]], seed: int) -> Array:
    low, high = np.array(ranges).T
    return drawn(ROWS, low, high, len(ranges), seed)


def robot_arm() -> Loaded:
    """How far an arm of four parts reaches: angles of the joints, lengths of the parts."""
    x = _in_a_box([(0, 2 * np.pi)] * 4 + [(0, 1)] * 4, 1)
    angle, length = x[:, :4].cumsum(axis=1), x[:, 4:]
    return x, np.hypot((length * np.cos(angle)).sum(axis=1), (length * np.sin(angle)).sum(axis=1))


def steps() -> Loaded:
    """A function that is constant but for jumps."""
    x = drawn(ROWS, 0, 1, 4, 2)
    return x, np.floor(4 * x[:, 0]) + 2 * (x[:, 1] > x[:, 2]) - (x[:, 3] > 0.7)


def borehole() -> Loaded:
    """Water through a borehole, in cubic metres a year."""
    ranges = [(0.05, 0.15), (100, 50_000), (63_070, 115_600), (990, 1110), (63.1, 116), (700, 820), (1120, 1680)]
    x = _in_a_box([*ranges, (9855, 12_045)], 3)
    rw, r, Tu, Hu, Tl, Hl, L, Kw = x.T
    log = np.log(r / rw)
    return x, 2 * np.pi * Tu * (Hu - Hl) / (log * (1 + 2 * L * Tu / (log * rw**2 * Kw) + Tu / Tl))


def circuit() -> Loaded:
    """The voltage at the middle of a push-pull circuit without output transformer."""
    x = _in_a_box([(50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300)], 4)
    b1, b2, f, c1, c2, beta = x.T
    gain = beta * (c2 + 9)
    first = (12 * b2 / (b1 + b2) + 0.74) * gain / (gain + f)
    return x, first + 11.35 * f / (gain + f) + 0.74 * f * gain / ((gain + f) * c1)


def piston() -> Loaded:
    """How long a piston takes for a cycle, in seconds."""
    ranges = [(30, 60), (0.005, 0.02), (0.002, 0.01), (1000, 5000), (90_000, 110_000), (290, 296), (340, 360)]
    x = _in_a_box(ranges, 5)
    M, S, V0, k, P0, Ta, T0 = x.T
    A = P0 * S + 19.62 * M - k * V0 / S
    V = S / (2 * k) * (np.sqrt(A**2 + 4 * k * P0 * V0 / T0 * Ta) - A)
    return x, 2 * np.pi * np.sqrt(M / (k + S**2 * P0 * V0 / T0 * Ta / V**2))


def wing() -> Loaded:
    """What the wing of a light aircraft weighs, in pounds."""
    ranges = [(150, 200), (220, 300), (6, 10), (-10, 10), (16, 45), (0.5, 1), (0.08, 0.18), (2.5, 6), (1700, 2500)]
    x = _in_a_box([*ranges, (0.025, 0.08)], 6)
    area, fuel, aspect, sweep, q, taper, thick, load, weight, paint = x.T
    cos = np.cos(np.deg2rad(sweep))
    shape = (aspect / cos**2) ** 0.6 * q**0.006 * taper**0.04 * (100 * thick / cos) ** -0.3
    return x, 0.036 * area**0.758 * fuel**0.0035 * shape * (load * weight) ** 0.49 + area * paint


def checkerboard() -> Loaded:
    """Black or white on a board of 5 x 5."""
    x = drawn(ROWS, 0, 5, 2, 7)
    return x, np.floor(x).sum(axis=1).astype(np.int64) % 2


def spirals() -> Loaded:
    """Three arms of a spiral that turn once and a half."""
    rng = np.random.default_rng(8)
    arm, t = rng.integers(0, 3, ROWS), np.sqrt(rng.uniform(0.02, 1, ROWS))
    angle = 3 * np.pi * t + 2 * np.pi * arm / 3
    x = t[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.02, (ROWS, 2))
    return x, arm


def shells() -> Loaded:
    """Three shells around 0 in five dimensions: what a norm alone can tell."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(ROWS, 5))
    radius = rng.uniform(0, 3, ROWS)
    x *= (radius / np.linalg.norm(x, axis=1))[:, None]
    return x, radius.astype(np.int64)


def _formula(name: str, text: str, load: Callable[[], Loaded], aside: bool, classes: int | None = None) -> DataSet:
    return DataSet(name, "formula", text, load, 800, aside, classes)


FORMULAS = (
    _formula(
        "friedman 1", "10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + noise", partial(_friedman, 1, 1.0), False
    ),
    _formula("friedman 2", "sqrt(x1^2 + (x2 x3 - 1/(x2 x4))^2) + noise of 50", partial(_friedman, 2, 50.0), False),
    _formula("friedman 3", "atan((x2 x3 - 1/(x2 x4))/x1) + noise of 0.1", partial(_friedman, 3, 0.1), False),
    _formula("robot arm", "|sum_i l_i exp(i (a_1 + ... + a_i))|, four parts", robot_arm, False),
    _formula("steps", "floor(4 x1) + 2 [x2 > x3] - [x4 > 0.7]", steps, False),
    _formula("borehole", "2 pi Tu (Hu - Hl) / (ln(r/w) (1 + Tu/Tl) + 2 L Tu/(w^2 K)), eight inputs", borehole, True),
    _formula("circuit", "voltage at the middle of a push-pull circuit, six inputs", circuit, True),
    _formula("piston", "2 pi sqrt(M/(k + S^2 P0 V0 Ta/(T0 V^2))), seven inputs", piston, True),
    _formula("wing", "weight of the wing of a light aircraft, ten inputs", wing, True),
    _formula("checkerboard", "(floor(x) + floor(y)) mod 2 on [0, 5]^2", checkerboard, True, 2),
    _formula("spirals", "three arms, 3 pi t + 2 pi k/3", spirals, True, 3),
    _formula("shells", "floor(|x|) for |x| < 3 in five dimensions", shells, True, 3),
)
