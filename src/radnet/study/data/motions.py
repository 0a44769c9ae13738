"""Where a system is a moment later, or how it accelerates: from its state now."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dataset import Array, DataSet, Loaded, drawn

ROWS = 3000


def later(field: Callable[[Array], Array], state: Array, time: float, steps: int = 200) -> Array:
    """The state after a time, by Runge and Kutta's method of order 4.

    >>> float(later(lambda x: -x, np.array([1.0]), 1.0)[0]).__round__(9) == round(float(np.exp(-1)), 9)
    True
    """
    h = time / steps
    for _ in range(steps):
        a = field(state)
        b = field(state + h / 2 * a)
        c = field(state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + field(state + h * c))
    return state


def pendulum() -> Loaded:
    """Angle and velocity of a pendulum after a second."""
    x = drawn(ROWS, np.array([-np.pi, -4]), np.array([np.pi, 4]), 2, 11)
    return x, later(lambda s: np.stack([s[:, 1], -9.81 * np.sin(s[:, 0])], axis=1), x, 1.0)


def lorenz() -> Loaded:
    """Lorenz's system a quarter of a unit later."""
    x = drawn(ROWS, np.array([-15, -20, 5]), np.array([15, 20, 40]), 3, 12)

    def field(s: Array) -> Array:
        a, b, c = s.T
        return np.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], axis=1)

    return x, later(field, x, 0.25)


def van_der_pol() -> Loaded:
    """Van der Pol's oscillator after a unit of time, for dampings from 0 to 4."""
    x = drawn(ROWS, np.array([-3, -5, 0]), np.array([3, 5, 4]), 3, 13)
    mu = x[:, 2]

    def field(s: Array) -> Array:
        return np.stack([s[:, 1], mu * (1 - s[:, 0] ** 2) * s[:, 1] - s[:, 0]], axis=1)

    return x, later(field, x[:, :2], 1.0)


def double_pendulum() -> Loaded:
    """How the two angles of a double pendulum accelerate, masses and lengths 1."""
    x = drawn(ROWS, np.array([-np.pi, -np.pi, -3, -3]), np.array([np.pi, np.pi, 3, 3]), 4, 14)
    a, b, u, v = x.T
    g, d = 9.81, a - b
    below = 3 - np.cos(2 * d)
    first = -3 * g * np.sin(a) - g * np.sin(a - 2 * b) - 2 * np.sin(d) * (v**2 + u**2 * np.cos(d))
    second = 2 * np.sin(d) * (2 * u**2 + 2 * g * np.cos(a) + v**2 * np.cos(d))
    return x, np.stack([first / below, second / below], axis=1)


MOTIONS = (
    DataSet("pendulum", "motion", "a'' = -9.81 sin a, one second later", pendulum, 800, False),
    DataSet("lorenz", "motion", "Lorenz (10, 28, 8/3), 0.25 later", lorenz, 800, True),
    DataSet("van der pol", "motion", "x'' = mu (1 - x^2) x' - x, one unit later", van_der_pol, 800, True),
    DataSet("double pendulum", "motion", "accelerations of both angles", double_pendulum, 800, True),
)
