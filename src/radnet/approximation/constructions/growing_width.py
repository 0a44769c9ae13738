"""Hidden widths n+1, n+2, ..., n+N, and the right function on all of R^n (thm:UA-asymp-lin).

Every ball has a coordinate of its own: layer i moves the ball i to ``c_i + e_i`` and leaves everything else where it
is, and the last layer reads ``L(x) + sum_i (f(c_i) - L(c_i)) e_i``. Nothing has to be kept apart, so values are not
snapped.

Differs: coordinates are scaled and h = 1/2 for every ball; N *hidden* layers. The weights are N (n + m + 1) numbers,
not the N^3/3 of their dense form: of the coordinates e_1, ..., e_i at most one is not 0, and it is 1, so a state is x
and the number of the ball that took it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from ..covers import Cover
from ..domains import Array
from ..targets import Limit
from .construction import STEP_HEIGHT, Construction, Recipe, as_tensor
from .deep import DeepNetwork


class GrowingNetwork(DeepNetwork):
    """A radial network with Step-ReLU and hidden widths n+1, ..., n+N, in N (n+m+1) numbers.

    Parameters
    ----------
    centres : Tensor of shape (N, n)
        Of the balls, in scaled coordinates.
    factors : Tensor of shape (N,)
        A ball of factor a has radius sqrt(3)/(2 a) in scaled coordinates; powers of two.
    columns : Tensor of shape (N, m)
        What each ball adds to the limit: ``f(c_i) - L(c_i)``.
    A, b : Tensor of shape (m, n) and (m,)
        The limit in scaled coordinates.
    scale : Tensor of shape ()
        Scaled coordinates are ``scale x``.

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 1), 0.25, lipschitz=1, width="growing").network
    >>> net.widths, net(torch.zeros(5, 1, dtype=torch.float64)).shape
    ((1, 2, 3, 4, 1), torch.Size([5, 1]))
    """

    def __init__(self, centres: Tensor, factors: Tensor, columns: Tensor, A: Tensor, b: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.centres = nn.Parameter(centres, requires_grad=False)
        self.factors = nn.Parameter(factors, requires_grad=False)
        self.columns = nn.Parameter(columns, requires_grad=False)
        self.A = nn.Parameter(A, requires_grad=False)
        self.b = nn.Parameter(b, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """``(n, n+1, ..., n+N, m)``."""
        N, n = self.centres.shape
        return (n, *range(n + 1, n + N + 1), self.A.shape[0])

    def forward(self, x: Tensor) -> Tensor:
        """F(x); x of shape (..., n)."""
        z, owner = self._columns(x), None
        for z, owner in self._states(z):  # noqa: B007, B020
            pass
        return self._output(z, owner).reshape(*x.shape[:-1], self.A.shape[0])

    def partial(self, x: Tensor) -> list[Tensor]:
        """``[F_0(x), F_1(x), ..., F_L(x)]`` with all coordinates: of the order of N^2 numbers a point.

        Examples
        --------
        >>> import torch, radnet
        >>> net = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 1), 0.25, lipschitz=1, width="growing").network
        >>> [tuple(F.shape) for F in net.partial(torch.zeros(7, 1, dtype=torch.float64))]
        [(7, 1), (7, 2), (7, 3), (7, 4), (7, 1)]
        """
        z, n, lead = self._columns(x), self.widths[0], x.shape[:-1]
        states, owner = [x], None
        for i, (z, owner) in enumerate(self._states(z)):  # noqa: B020
            F = z.new_zeros(z.shape[1], n + i + 1)
            F[:, :n] = z.T
            earlier = (owner >= 0) & (owner < i)
            F[earlier.nonzero().squeeze(1), n + owner[earlier]] = 1
            F[owner != i, n + i] = STEP_HEIGHT
            states.append(F.reshape(*lead, n + i + 1))
        return [*states, self._output(z, owner).reshape(*lead, self.A.shape[0])]

    def _states(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """After each hidden layer: x in the coordinates of that layer, and the ball that took each point, or -1.

        The squared norm in front of the activation is ``|a (x - c)|^2 + h^2``, plus 1 if an earlier ball took the
        point.
        """
        owner = torch.full((x.shape[1],), -1, dtype=torch.int64, device=x.device)
        free = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
        a, C = self.factors.unbind(0), self.centres.unsqueeze(2).unbind(0)
        z = x
        for i in range(len(a)):
            move = a[i] * (C[i - 1] - C[i]) if i else -a[0] * C[0]
            z = (a[i] / a[i - 1] if i else a[0] * self.scale) * z + move
            taken = (z.square().sum(0) + STEP_HEIGHT**2 < 1) & free
            z = z.masked_fill(taken, 0)
            owner = owner.masked_fill(taken, i)
            free = free & ~taken
            yield z, owner

    def _output(self, z: Tensor, owner: Tensor | None) -> Tensor:
        if owner is None:
            raise AssertionError("a network has at least one ball")
        a = self.factors[-1]
        y = torch.addmm(self.A @ self.centres[-1] + self.b, z.T, (self.A / a).T)
        taken = owner >= 0
        return y + torch.where(taken.unsqueeze(1), self.columns[owner.clamp(min=0)], 0)

    def _dense_layers(self) -> list[tuple[Tensor, Tensor]]:
        N, n = self.centres.shape
        a, C = self.factors.detach(), self.centres.detach()
        layers = []
        for i in range(N):
            W, b = C.new_zeros(n + i + 1, n + i), C.new_zeros(n + i + 1)
            if i == 0:
                W[:n] = a[0] * self.scale.detach() * torch.eye(n).to(W)
                b[:n] = -a[0] * C[0]
            else:
                W[range(n), range(n)] = a[i] / a[i - 1]
                W[range(n, n + i - 1), range(n, n + i - 1)] = 1
                W[n + i - 1, n + i - 1] = -1 / STEP_HEIGHT
                b[:n], b[n + i - 1] = a[i] * (C[i - 1] - C[i]), 1
            b[n + i] = STEP_HEIGHT
            layers.append((W, b))
        A, columns = self.A.detach(), self.columns.detach()
        last = torch.cat([A / a[-1], columns[:-1].T, columns[-1:].T / -STEP_HEIGHT], dim=1)
        layers.append((last, A @ C[-1] + self.b.detach() + columns[-1]))
        return layers


def build(cover: Cover, values: Array, limit: Limit, dtype: torch.dtype) -> Construction:
    """The network with widths (n, n+1, ..., n+N, m)."""
    N, n = cover.grid.shape
    columns = values - limit(cover.centres)
    A = limit.A / cover.scale
    parts: list[Array] = [cover.grid, 2.0**cover.levels, columns, A, limit.b, np.array(cover.scale)]  # type: ignore[list-item]
    norm = float(np.linalg.norm(limit.A, 2))
    largest = float(np.abs(cover.centres).max())
    constants = float(np.linalg.norm(limit.b) + 2 * np.linalg.norm(columns, axis=1).max())

    def rounding(u: float) -> float:
        return float((n + 8) * u * (4 * norm * np.sqrt(n) * largest + constants))

    def far(u: float, size: float) -> float:
        drift = (N + 1) * u * 2 * (size + 2 * largest) * np.sqrt(n)
        return float(norm * drift + (n + 8) * u * (norm * np.sqrt(n) * (size + 2 * largest) + constants))

    return Construction(
        network=GrowingNetwork(*(as_tensor(part, dtype) for part in parts)),
        outputs=values,
        outside=limit,
        rounding=rounding,
        far=far,
        margin=lambda u: (1 + STEP_HEIGHT**2) ** 0.5,
    )


RECIPE = Recipe(
    width="growing",
    hidden_width=lambda n, m: n + 2,
    build=lambda given: build(given.cover, given.values, given.limit, given.dtype),
    everywhere=True,
)
