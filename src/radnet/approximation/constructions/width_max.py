r"""All hidden widths max(n, m), twice as many hidden layers, and the right function on a compact K (thm:UA-bd=n-app).

The first M layers send each ball to its centre c_i (``T_i p = a_i (p - c_i)``), the next M send each centre to a point
d_i near its value, one at a time (``U_i``), and the last reads ``s d_i + offset``. A step from c to d in U_i,

    U_i p = D_i Q_i (p - d_i),   D_i = diag(1/(2|c_i - d_i|), 1/s_i, ..., 1/s_i),

with Q_i orthogonal, its first row along c_i - d_i, has ``|U_i c_i| = 1/2``, and ``|U_i p| >= 2`` for every other
occupied p, all of which keep a distance of ``2 s_i`` from the line.

Differs: 1/2 along the line, where 1 is printed; d_i is the best of many candidates, since a single one leaves s_i too
small for arithmetic; only occupied states are avoided (d_1, ..., d_{i-1}, c_{i+1}, ..., c_M); values are scaled by s,
so that there is room between them; the rotation Q_i, which Step-ReLU does not see, keeps the rounding of a layer at u
|p| instead of that times the condition number of U_i; the budget is shared 4 to 1 between balls and d_i instead of
equally.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...errors import InvalidValue
from ..covers import Cover
from ..domains import Array
from .construction import Construction, Recipe, as_tensor
from .stacked import StackedNetwork

_TRIES = 256
_SPREADS = (0.5, 0.2, 0.1, 0.05) * 2
_SAFE = 2.0
_FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class _Moves:
    """The second half: where each centre goes, and how much room it has on the way."""

    d: Array
    clearance: Array  # s_i, half the distance of the line to the nearest occupied state
    step: float  # s: values are offset + step d
    offset: Array

    def safety(self, C: Array, u: float) -> float:
        """Smallest ratio of the room of a layer to four times the rounding up to there."""
        length = np.linalg.norm(C - self.d, axis=1)
        return float((np.minimum(self.clearance, length) / (4 * _running_rounding(C, self, u))).min())


@dataclass(frozen=True)
class Moved:
    """What becomes of a point in no ball: every line it is close to moves it."""

    entry: Array  # from x to p
    centres: Array
    d: Array
    clearance: Array
    exit: Array  # from p to the output
    offset: Array

    def __call__(self, x: Array) -> Array:
        """The output at each row."""
        p = x @ self.entry.T
        for c, d, s in zip(self.centres, self.d, self.clearance, strict=True):
            Q, D = _frame(c, d, s)
            p = np.where((np.linalg.norm((p - d) @ Q.T * D, axis=1) < 1)[:, None], d, p)
        return np.asarray(p @ self.exit.T + self.offset)

    def arrays(self) -> dict[str, Array]:
        """Everything."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def build(cover: Cover, values: Array, freedom: float, dtype: torch.dtype, rng: np.random.Generator) -> Construction:
    """The network with widths (n, max(n,m), ..., max(n,m), m); d_i may be off its value by `freedom`."""
    M, n = cover.grid.shape
    m = values.shape[1]
    d = max(n, m)
    C, a, scale = np.pad(cover.grid, ((0, 0), (0, d - n))), 2.0**cover.levels, cover.scale
    moves = _best_moves(C, values, freedom, rng)

    first = a[0] * scale * np.eye(d, n)
    hidden = np.zeros((2 * M - 1, d, d))
    biases = np.zeros((2 * M, d))
    biases[0] = -a[0] * C[0]
    hidden[: M - 1, range(d), range(d)] = (a[1:] / a[:-1])[:, None]
    biases[1:M] = a[1:, None] * (C[:-1] - C[1:])
    frames = [_frame(c, target, s) for c, target, s in zip(C, moves.d, moves.clearance, strict=True)]
    back, here = np.eye(d) / a[-1], C[-1]  # undo T_M
    for i, (Q, D) in enumerate(frames):
        hidden[M - 1 + i] = D[:, None] * (Q @ back)
        biases[M + i] = D * (Q @ (here - moves.d[i]))
        back, here = Q.T / D, moves.d[i]
    last = moves.step * back[:m]
    last_bias = moves.step * here[:m] + moves.offset

    def rounding(u: float) -> float:
        size = moves.step * float(np.linalg.norm(moves.d, axis=1).max()) + float(np.linalg.norm(moves.offset))
        return float(moves.step * _running_rounding(C, moves, u)[-1] + (d + 3) * u * 4 * np.sqrt(d) * size)

    return Construction(
        network=StackedNetwork(*(as_tensor(part, dtype) for part in (first, hidden, biases, last, last_bias))),
        outputs=moves.step * moves.d[:, :m] + moves.offset,
        outside=Moved(scale * np.eye(d, n), C, moves.d, moves.clearance, moves.step * np.eye(m, d), moves.offset),
        rounding=rounding,
        far=lambda u, size: math.inf,
        margin=lambda u: moves.safety(C, u),
    )


def _frame(c: Array, d: Array, s: float) -> tuple[Array, Array]:
    """Q_i and the diagonal of D_i; a reflection takes the line to the first axis."""
    w = (c - d) / np.linalg.norm(c - d)
    v = w.copy()
    v[0] += 1 if w[0] >= 0 else -1
    Q = np.eye(len(w)) - 2 * np.outer(v, v) / (v @ v)  # Q w = -+ e_1
    return Q, np.array([1 / (2 * float(np.linalg.norm(c - d))), *[1 / s] * (len(w) - 1)])


def _best_moves(C: Array, values: Array, freedom: float, rng: np.random.Generator) -> _Moves:
    """The safest in float32 of a few tries; two if these do, or if float32 is out of reach."""
    best: tuple[float, _Moves] | None = None
    for k, spread in enumerate(_SPREADS):
        moves = _choose(C, values, freedom, spread, rng)
        safety = moves.safety(C, _FLOAT32)
        if best is None or safety > best[0]:
            best = (safety, moves)
        if k >= 1 and (best[0] > _SAFE or best[0] < 0.1):
            break
    if best is None:
        raise AssertionError("there is at least one spread")
    return best[1]


def _choose(C: Array, values: Array, freedom: float, spread: float, rng: np.random.Generator) -> _Moves:
    """Each d_i the candidate whose line stays farthest from all occupied states.

    The step s makes the freedom of a d_i as large as the set of centres, times the spread: then almost any direction
    is open.
    """
    M, d = C.shape
    m = values.shape[1]
    middle = (C.min(0) + C.max(0)) / 2
    size = max(float(np.linalg.norm(C - middle, axis=1).max()), 1.0)
    step = freedom / (spread * size)
    offset = (values.min(0) + values.max(0)) / 2 - step * middle[:m]
    goal = np.tile(middle, (M, 1))
    goal[:, :m] = (values - offset) / step
    targets = np.empty_like(C)
    clearance = np.empty(M)
    for i in range(M):
        tries = np.tile(goal[i], (_TRIES, 1))
        v = rng.standard_normal((_TRIES, m))
        v *= rng.random((_TRIES, 1)) ** (1 / m) / np.linalg.norm(v, axis=1, keepdims=True)
        tries[:, :m] += 0.99 * freedom / step * v
        tries[:, m:] += 4 * spread * size * (2 * rng.random((_TRIES, d - m)) - 1)  # coordinates that nobody reads
        length = np.linalg.norm(tries - C[i], axis=1)
        w = (tries - C[i]) / np.maximum(length, 1e-300)[:, None]
        occupied = np.concatenate([targets[:i], C[i + 1 :]]) - C[i]
        if len(occupied):
            along = occupied @ w.T
            away = np.sqrt(np.maximum((occupied * occupied).sum(1)[:, None] - along * along, 0)).min(0)
        else:
            away = np.full(_TRIES, 2.0)
        away = np.where(length > min(0.25, 0.3 * spread * size), away, 0)
        best = int(away.argmax())
        targets[i], clearance[i] = tries[best], max(away[best] / 2, 1e-12)
    return _Moves(targets, clearance, step, offset)


def _running_rounding(C: Array, moves: _Moves, u: float) -> Array:
    """Bound on the distance of any state from where it should be, in front of each activation of the second half.

    A layer computes ``B z + b``; its rounding is at most ``(d+3) u (|B| |z| + |b|)``, weights included, and ``D_i^-1``
    takes it back to the units of p, in which errors are passed on unchanged.
    """
    M, d = C.shape
    errors = np.zeros(M)
    states = C.copy()
    Q0, D0, here = np.eye(d), np.ones(d), C[-1]
    for i in range(M):
        Q, D = _frame(C[i], moves.d[i], moves.clearance[i])
        z = (states - here) @ Q0.T * D0
        B = D[:, None] * (Q @ (Q0.T / D0))
        size = np.abs(z) @ np.abs(B).T + np.abs(D * (Q @ (here - moves.d[i])))
        errors[i] = (d + 3) * u * float(np.linalg.norm(size / D, axis=1).max())
        states[i] = moves.d[i]
        Q0, D0, here = Q, D, moves.d[i]
    return np.cumsum(errors)


def _refuse(n: int, m: int) -> None:
    if max(n, m) == 1:
        raise InvalidValue(
            'width="max" needs max(n, m) >= 2: networks of width 1 with Step-ReLU are monotone; use "max+1"'
        )


RECIPE = Recipe(
    width="max",
    hidden_width=max,
    build=lambda given: build(
        given.cover, given.values, given.freedom, given.dtype, np.random.default_rng(given.rng_seed)
    ),
    everywhere=False,
    layers=2,
    unit=1.0,
    separated=True,
    freedom=0.2,  # for the points d_i
    refuse=_refuse,
)
