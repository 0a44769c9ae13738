"""Deep networks of one width with Step-ReLU, held in three tensors instead of thousands of modules.

The hidden layers of the constructions of bounded width are all alike, so their weights are stacked: one tensor of shape
(layers - 1, width, width) and one of shape (layers, width). Evaluation runs over (width, batch), where a layer is one
small matrix product, a sum of squares and a mask; where all weights but a diagonal and a column vanish, a few multiples
of one row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .deep import DeepNetwork

_COLUMNS_AT_ONCE = 16384  # a row stays below the size from which torch would start its threads


class StackedNetwork(DeepNetwork):
    """A radial network whose hidden layers have one width and Step-ReLU, evaluated without a module a layer.

    Parameters
    ----------
    first : Tensor of shape (width, n)
        Weight of the first layer.
    hidden : Tensor of shape (N - 1, width, width)
        Weights of the other hidden layers.
    biases : Tensor of shape (N, width)
        Biases of all hidden layers.
    last, last_bias : Tensor of shape (m, width) and (m,)

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 1), 0.25, lipschitz=1, width="max+1").network
    >>> net.widths, net(torch.zeros(5, 1, dtype=torch.float64)).shape
    ((1, 2, 2, 2, 1), torch.Size([5, 1]))
    """

    def __init__(self, first: Tensor, hidden: Tensor, biases: Tensor, last: Tensor, last_bias: Tensor) -> None:
        super().__init__()
        self.first = nn.Parameter(first, requires_grad=False)
        self.hidden = nn.Parameter(hidden, requires_grad=False)
        self.biases = nn.Parameter(biases, requires_grad=False)
        self.last = nn.Parameter(last, requires_grad=False)
        self.last_bias = nn.Parameter(last_bias, requires_grad=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """``(n, width, ..., width, m)``."""
        count, width = self.biases.shape
        return (self.first.shape[1], *[width] * count, self.last.shape[0])

    def forward(self, x: Tensor) -> Tensor:
        """F(x); x of shape (..., n)."""
        z = self._columns(x)
        tracked = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        if tracked:
            z = self._hidden_states(z)[-1]
            return self._output(z).reshape(*x.shape[:-1], self.last.shape[0])
        with torch.no_grad():
            size = max(1, math.ceil(z.shape[1] / max(1, round(z.shape[1] / _COLUMNS_AT_ONCE))))
            parts = [self._output(self._run(part)) for part in z.split(size, dim=1)]
            return torch.cat(parts).reshape(*x.shape[:-1], self.last.shape[0])

    def partial(self, x: Tensor) -> list[Tensor]:
        """``[F_0(x), F_1(x), ..., F_L(x)]``: one tensor for each layer, so mind the depth.

        Examples
        --------
        >>> import torch, radnet
        >>> net = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 1), 0.25, lipschitz=1, width="max+1").network
        >>> [tuple(F.shape) for F in net.partial(torch.zeros(7, 1, dtype=torch.float64))]
        [(7, 1), (7, 2), (7, 2), (7, 2), (7, 1)]
        """
        states = self._hidden_states(self._columns(x))
        lead = x.shape[:-1]
        last = self._output(states[-1]).reshape(*lead, self.last.shape[0])
        return [x, *(z.T.reshape(*lead, z.shape[0]) for z in states), last]

    def _hidden_states(self, z: Tensor) -> list[Tensor]:
        states = []
        for W, b in zip((self.first, *self.hidden.unbind(0)), self.biases.unbind(0), strict=True):
            z = torch.addmm(b.unsqueeze(1), W, z)
            z = z.masked_fill(z.square().sum(0) < 1, 0)
            states.append(z)
        return states

    def _run(self, x: Tensor) -> Tensor:
        """The last hidden state, without gradients."""
        return self._run_arrows(x) if self._has_arrows() else self._run_dense(x)

    def _has_arrows(self) -> bool:
        """Whether all hidden weights are a diagonal and a last column, as for widths n+m+1 and max+1."""
        rest = self.hidden.detach().clone()
        rest[:, :, -1] = 0
        rest.diagonal(dim1=1, dim2=2).zero_()
        return self.biases.shape[1] > 1 and not bool(rest.any())

    def _run_arrows(self, x: Tensor) -> Tensor:
        """Row by row and in place: a layer adds multiples of the last row, and most rows of it are not touched."""
        z = torch.addmm(self.biases[0].unsqueeze(1), self.first, x)
        *rows, theta = z.unbind(0)
        diagonals = self.hidden.diagonal(dim1=1, dim2=2).tolist()
        columns, biases = self.hidden[:, :, -1].tolist(), self.biases.tolist()
        keep = torch.empty_like(theta)
        for i in range(len(biases)):
            if i:
                for row, d, w, b in zip(rows, diagonals[i - 1], columns[i - 1], biases[i], strict=False):
                    if d != 1:
                        row.mul_(d)
                    if w != 0:
                        row.add_(theta, alpha=w)
                    if b != 0:
                        row.add_(b)
                if diagonals[i - 1][-1] != 1:
                    theta.mul_(diagonals[i - 1][-1])
                if biases[i][-1] != 0:
                    theta.add_(biases[i][-1])
            torch.mul(theta, theta, out=keep)
            for row in rows:
                keep.addcmul_(row, row)
            torch.ge(keep, 1, out=keep)  # 1 or 0, which also leaves NaN what it is
            theta.mul_(keep)
            for row in rows:
                row.mul_(keep)
        return z

    def _run_dense(self, x: Tensor) -> Tensor:
        """In buffers that are used again."""
        biases, weights = self.biases.unsqueeze(2).unbind(0), self.hidden.unbind(0)
        z = torch.addmm(biases[0], self.first, x)
        other, square, keep = torch.empty_like(z), torch.empty_like(z), z.new_empty(z.shape[1])
        for i in range(len(biases)):
            if i:
                torch.addmm(biases[i], weights[i - 1], z, out=other)
                z, other = other, z
            torch.mul(z, z, out=square)
            torch.sum(square, 0, out=keep)
            torch.ge(keep, 1, out=keep)
            z.mul_(keep)
        return z

    def _output(self, z: Tensor) -> Tensor:
        return torch.addmm(self.last_bias, z.T, self.last.T)

    def _dense_layers(self) -> list[tuple[Tensor, Tensor]]:
        weights = (self.first, *self.hidden.unbind(0), self.last)
        biases = (*self.biases.unbind(0), self.last_bias)
        return [(W.detach().clone(), b.detach().clone()) for W, b in zip(weights, biases, strict=True)]
