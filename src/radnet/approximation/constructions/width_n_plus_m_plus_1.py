"""All hidden widths n+m+1, and the right function on all of R^n (thm:UA-n+m+1).

A state is ``(x, y, theta)``: ``(x, 0, 0)`` until x falls into a ball, ``(0, V_j, 1)`` from then on. Layer i applies
``T_i (x, y, theta) = (a_i (x - (1 - theta) c_i), y - theta V_i, (1 - theta)/2)`` to what layer i-1 left, undoing
``T_{i-1}`` first; Step-ReLU then sends the ball to 0 and keeps the rest.

Differs: coordinates are scaled and h = 1/2 for every ball, with ``a_i = 2^level`` for its radius, so that radii of any
size work and everything but ``x - c_i`` is exact; the values are snapped (s is half their quantum, where the paper has
the smallest difference of two values, which rounding defeats); an offset in the values.
"""

from __future__ import annotations

import numpy as np
import torch

from ..covers import Cover
from ..targets import Limit
from .construction import STEP_HEIGHT, Construction, Recipe, Snapped, affine_rounding, as_tensor
from .stacked import StackedNetwork


def build(cover: Cover, snapped: Snapped, limit: Limit, dtype: torch.dtype) -> Construction:
    """The network with widths (n, n+m+1, ..., n+m+1, m)."""
    N, n = cover.grid.shape
    m = snapped.V.shape[1]
    width, x, y, theta = n + m + 1, slice(0, n), slice(n, n + m), n + m
    C, V, a = cover.grid, snapped.V, 2.0**cover.levels
    s, offset, scale = snapped.step, snapped.offset, cover.scale

    first = np.zeros((width, n))
    first[x] = a[0] * scale * np.eye(n)
    biases = np.zeros((N, width))
    biases[0, x], biases[0, theta] = -a[0] * C[0], STEP_HEIGHT
    hidden = np.zeros((N - 1, width, width))
    hidden[:, range(n), range(n)] = (a[1:] / a[:-1])[:, None]
    hidden[:, range(n, width), range(n, width)] = 1
    hidden[:, x, theta] = a[1:, None] * (C[:-1] - C[1:]) / STEP_HEIGHT
    hidden[:, y, theta] = -(V[:-1] - V[1:]) / STEP_HEIGHT
    biases[1:, y] = V[:-1] - V[1:]

    # undo T_N: X = x/a + 2 theta C_N, Y = y + (1 - 2 theta) V_N, Theta = 1 - 2 theta; then L(X) + s Y + Theta offset
    value = s * V[-1] + offset - limit.b
    last = np.zeros((m, width))
    last[:, x] = limit.A / (scale * a[-1])
    last[:, y] = s * np.eye(m)
    last[:, theta] = (limit.A @ C[-1] / scale - value) / STEP_HEIGHT
    last_bias = limit.b + value

    states = np.zeros((width, N))
    states[y] = (V - V[-1]).T

    def far(u: float, size: float) -> float:
        """N roundings of x of at most an ulp each, and the last layer."""
        A = float(np.linalg.norm(limit.A, 2))
        drift = (N + 1) * u * 2 * (size + 2 * float(np.abs(cover.centres).max())) * np.sqrt(n)
        constant = float(np.linalg.norm(limit.b) + 2 * np.linalg.norm(value) + np.linalg.norm(limit.A @ C[-1] / scale))
        return float(A * drift + (width + 3) * u * (A * size * np.sqrt(n) + 3 * constant))

    return Construction(
        network=StackedNetwork(*(as_tensor(part, dtype) for part in (first, hidden, biases, last, last_bias))),
        outputs=snapped.values,
        outside=limit,
        rounding=lambda u: affine_rounding(u, last, last_bias, states),
        far=far,
        margin=lambda u: 2.0 if float(np.abs(V).max(initial=0)) * 4 * u < 1 else 0.0,
    )


RECIPE = Recipe(
    width="n+m+1",
    hidden_width=lambda n, m: n + m + 1,
    build=lambda given: build(given.cover, given.snapped, given.limit, given.dtype),
    everywhere=True,
    quanta=(2.0**-8,),
)
