"""All hidden widths max(n, m) + 1, and the right function on a compact K (thm:UA-n+1).

As in the construction of width n+m+1, but x and the values share their coordinates: a state is ``(x, 0)`` until x falls
into a ball and ``(V_j, 1)`` from then on, both padded with zeros, and
``T_i (p, theta) = (a_i (p - (1 - theta) c_i - theta V_i), (1 - theta)/2)``. Outside the balls the output is
proportional to x and means nothing.

Differs as there. Since x and V share coordinates, large values cost x precision; the cover takes that into account.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from ..covers import Cover
from ..targets import Limit
from .construction import STEP_HEIGHT, Construction, Recipe, Snapped, affine_rounding, as_tensor
from .stacked import StackedNetwork


def build(cover: Cover, snapped: Snapped, dtype: torch.dtype) -> Construction:
    """The network with widths (n, max(n,m)+1, ..., max(n,m)+1, m)."""
    N, n = cover.grid.shape
    m = snapped.V.shape[1]
    d = max(n, m)
    C, V = np.pad(cover.grid, ((0, 0), (0, d - n))), np.pad(snapped.V, ((0, 0), (0, d - m)))
    a, s, scale = 2.0**cover.levels, snapped.step, cover.scale

    first = a[0] * scale * np.eye(d + 1, n)
    biases = np.zeros((N, d + 1))
    biases[0, :d], biases[0, d] = -a[0] * C[0], STEP_HEIGHT
    hidden = np.zeros((N - 1, d + 1, d + 1))
    hidden[:, range(d), range(d)] = (a[1:] / a[:-1])[:, None]
    hidden[:, d, d] = 1
    hidden[:, :d, d] = a[1:, None] * ((C[:-1] - C[1:]) - (V[:-1] - V[1:])) / STEP_HEIGHT
    biases[1:, :d] = a[1:, None] * (V[:-1] - V[1:])

    # undo T_N: p/a + 2 theta C_N + (1 - 2 theta) V_N, of which s times the first m coordinates
    last = np.zeros((m, d + 1))
    last[:, :d] = s / a[-1] * np.eye(m, d)
    last[:, d] = s * (C[-1] - V[-1])[:m] / STEP_HEIGHT
    last_bias = s * V[-1, :m] + snapped.offset

    states = np.zeros((d + 1, N))
    states[:d] = a[-1] * (V - V[-1]).T

    return Construction(
        network=StackedNetwork(*(as_tensor(part, dtype) for part in (first, hidden, biases, last, last_bias))),
        outputs=snapped.values,
        outside=Limit(s * scale * np.eye(m, n), snapped.offset, given=False),
        rounding=lambda u: affine_rounding(u, last, last_bias, states),
        far=lambda u, size: math.inf,
        margin=lambda u: 2.0 if cover.pitch <= 2 else 0.0,
    )


RECIPE = Recipe(
    width="max+1",
    hidden_width=lambda n, m: max(n, m) + 1,
    build=lambda given: build(given.cover, given.snapped, given.dtype),
    everywhere=False,
    quanta=(2.0**-8, 2.0**-6, 2.0**-5, 2.0**-4),
    shared=True,
)
