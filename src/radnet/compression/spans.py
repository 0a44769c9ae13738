"""What can ever stand in a tensor: an affine set ``c + sum over sources of M_s z_s``.

A *source* is something that may take any value, independently of the others: an input, the output of a nonlinear
step, a neighbouring position seen by a convolution. Keeping sources apart lets two paths from the same source add up
instead of counting twice; keeping the constant c apart lets biases along a residual stream merge into one direction.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: directions that stick out of the others by less than this many eps are rounding
ROUNDING = 8.0


@dataclass(frozen=True)
class AffineSet:
    """``c + sum M_s z_s`` in R^n, in float64; no c is c = 0."""

    n: int
    c: Tensor | None = None
    parts: dict[Hashable, Tensor] = field(default_factory=dict)
    full: bool = False

    @property
    def is_full(self) -> bool:
        """Whether it is known to be all of R^n without looking at numbers."""
        return self.full

    @classmethod
    def everything(cls, n: int, source: Hashable) -> AffineSet:
        """All of R^n."""
        return cls(n, None, {source: torch.eye(n, dtype=torch.float64)}, full=True)

    @property
    def directions(self) -> Tensor:
        """The matrices side by side."""
        return torch.cat([torch.zeros(self.n, 0, dtype=torch.float64), *self.parts.values()], dim=1)

    @property
    def columns(self) -> Tensor:
        """The constant, if there is one, and the directions."""
        return self.directions if self.c is None else torch.cat([self.c.unsqueeze(1), self.directions], dim=1)

    def mapped(self, W: Tensor, b: Tensor | None) -> AffineSet:
        """The image under ``x -> W x + b``."""
        c = None if self.c is None else W @ self.c
        if b is not None:
            c = b if c is None else c + b
        return AffineSet(len(W), c, {s: W @ M for s, M in self.parts.items()})

    def scaled(self, factor: float) -> AffineSet:
        """``factor`` times the set."""
        c = None if self.c is None else factor * self.c
        return AffineSet(self.n, c, {s: factor * M for s, M in self.parts.items()})

    def plus(self, other: AffineSet) -> AffineSet:
        """Sums of corresponding members: a source that both have moves both."""
        c = other.c if self.c is None else self.c if other.c is None else self.c + other.c
        parts = dict(self.parts)
        for s, M in other.parts.items():
            parts[s] = parts[s] + M if s in parts else M
        return AffineSet(self.n, c, parts)

    def renamed(self, by: Hashable) -> AffineSet:
        """The same set with sources of its own: another position, another mixture of positions."""
        return AffineSet(self.n, self.c, {(by, s): M for s, M in self.parts.items()}, self.full)

    def with_constant_as_direction(self, source: Hashable) -> AffineSet:
        """Where the constant is not constant any more."""
        if self.c is None:
            return self
        return AffineSet(self.n, None, {**self.parts, source: self.c.unsqueeze(1)})

    def limited(self, source: Hashable) -> AffineSet:
        """At most n directions: if there are more, a source of its own for all of them."""
        if sum(M.shape[1] for M in self.parts.values()) < self.n:
            return self
        return AffineSet(self.n, self.c, {source: thinned(self.directions)})


def stacked(sets: Iterable[AffineSet]) -> AffineSet:
    """The set of concatenated vectors."""
    sets = list(sets)
    n = sum(s.n for s in sets)
    c = None
    if any(s.c is not None for s in sets):
        c = torch.cat([torch.zeros(s.n, dtype=torch.float64) if s.c is None else s.c for s in sets])
    parts: dict[Hashable, Tensor] = {}
    start = 0
    for s in sets:
        for source, M in s.parts.items():
            if source not in parts:
                parts[source] = torch.zeros(n, M.shape[1], dtype=torch.float64)
            parts[source][start : start + s.n] = M
        start += s.n
    return AffineSet(n, c, parts)


def thinned(M: Tensor) -> Tensor:
    """As few columns as the rank, with the same span and the same lengths: ``T T^T = M M^T``.

    >>> thinned(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)).abs()
    tensor([[5.],
            [0.]], dtype=torch.float64)
    """
    U = basis_of(M)
    if U.shape[1] == M.shape[1]:
        return M  # mixing columns would fill their zeros with rounding
    R: Tensor = torch.linalg.qr((U.mT @ M).mT)[1]
    return U @ R.mT


def basis_of(columns: Tensor, tol: float | None = None) -> Tensor:
    """Orthonormal basis of the span of the columns, each scaled to length 1 first.

    Without ``tol`` only directions at the level of rounding are left out; with it, those whose singular value is below
    ``tol`` times the largest.

    >>> basis_of(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)).shape
    torch.Size([2, 1])
    """
    n = len(columns)
    lengths = columns.norm(dim=0)
    kept = columns[:, lengths > 0]
    if tol is None:
        kept = kept / lengths[lengths > 0]
    if kept.shape[1] == 0:
        return columns.new_zeros(n, 0)
    if kept.shape[1] < n:
        Q, R = torch.linalg.qr(kept)
        left, S, _ = torch.linalg.svd(R)
        left = Q @ left
    else:
        left, S, _ = torch.linalg.svd(kept, full_matrices=False)
    eps = torch.finfo(columns.dtype).eps
    smallest = ROUNDING * eps * max(kept.shape) ** 0.5 if tol is None else tol
    rank = int((smallest * S[0] < S).sum())
    U: Tensor = left[:, :rank]
    Q, R = torch.linalg.qr(U)  # orthonormal to the last bit
    basis: Tensor = Q * torch.where(R.diagonal() < 0, -1.0, 1.0)
    return basis
