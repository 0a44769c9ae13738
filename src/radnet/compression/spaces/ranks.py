"""The rank of columns, decided at the level of rounding, and orthonormal bases of what they span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...linalg import signs, sparsest_first

if TYPE_CHECKING:
    from jaxtyping import Float

#: columns are mixed with others only if their lengths are within this ratio, so that short ones keep their digits
ALIKE = 1e3
#: directions that stick out of the others by less than this many eps are rounding
ROUNDING = 8.0
#: pivots above this share of the largest show that a matrix has full rank; others are looked at more closely
CLEAR = 1e-10
#: entries of a matrix that is decomposed by one thread
SMALL = 4096


class Columns(NamedTuple):
    """Columns in float64, and entry by entry the size of what was added up in them (None: nothing was)."""

    M: Float[Tensor, "n m"]
    size: Float[Tensor, "n m"] | None


def judged(columns: Columns) -> Float[Tensor, "n m"]:
    """Columns that are not 0, with lengths that say how much of them is more than rounding.

    An entry m in which numbers of size s were added up is known to a few eps s, so that m / s says what it is worth. A
    column gets the length ``max m / s`` over its entries: 1 if it is exact, however short it was, and a few eps if all
    of it is rounding; then directions at the level of rounding are the same few eps in all of them.
    """
    M, size = columns
    lengths = M.norm(dim=0)
    kept = lengths > 0
    if not bool(kept.all()):
        M, size, lengths = M[:, kept], None if size is None else size[:, kept], lengths[kept]
    if size is None or M.shape[1] == 0:
        unit: Tensor = M / lengths
        return unit
    worth = (M.abs() / torch.where(size > 0, size, 1.0)).amax(dim=0).clamp(max=1.0)
    rounding = worth <= ROUNDING * torch.finfo(M.dtype).eps * max(columns.M.shape) ** 0.5
    scaled: Tensor = M * (worth / lengths)
    return scaled[:, ~rounding] if bool(rounding.any()) else scaled


def clearly_independent(columns: Columns) -> bool:
    """Whether an LU factorisation shows that as many columns as rows are independent; if in doubt, no.

    >>> clearly_independent(Columns(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64), None))
    True
    >>> clearly_independent(Columns(torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64), None))
    False
    """
    M = judged(columns)
    if M.shape[1] != M.shape[0]:
        return False
    if M.numel() == 0:
        return True
    factors, _, _ = torch.linalg.lu_factor_ex(M)
    return _clear(factors.diagonal())


def _clear(pivots: Float[Tensor, " k"]) -> bool:
    sizes = pivots.abs()
    return bool(sizes.min() > CLEAR * sizes.max())


class SpanBasis(NamedTuple):
    """U with orthonormal columns, None for all of R^n; and whether a tolerance left out more than rounding."""

    U: Float[Tensor, "n k"] | None
    cut: bool


def span_basis(columns: Columns, tol: float | None = None) -> SpanBasis:
    """Orthonormal basis of the span of columns.

    Without ``tol`` only directions at the level of rounding are left out, of columns of length 1 (see `judged`); with
    it, those whose singular value is below ``tol`` times the largest. Entries that are always 0 are left out first, and
    what is left is the unit vectors if no direction of it is missing.
    """
    M = columns.M
    n = len(M)
    kept = judged(columns) if tol is None else M[:, M.norm(dim=0) > 0]
    if kept.shape[1] == 0:
        return SpanBasis(M.new_zeros(n, 0), False)
    rows = (kept != 0).any(dim=1)
    U, cut = _basis_of_rows(kept if bool(rows.all()) else kept[rows], tol)
    if bool(rows.all()):
        return SpanBasis(U, cut)
    at = rows.nonzero()[:, 0]
    whole = M.new_zeros(n, len(at) if U is None else U.shape[1])
    whole[at] = torch.eye(len(at), dtype=M.dtype) if U is None else U
    return SpanBasis(whole, cut)


def _basis_of_rows(kept: Float[Tensor, "n m"], tol: float | None) -> SpanBasis:
    n, m = kept.shape
    if tol is None and m >= n and clearly_independent(Columns(kept[:, torch.arange(n) * m // n], None)):
        return SpanBasis(None, False)
    Q = None
    if m < n:
        order = sparsest_first(kept) if tol is None else None
        Q, R = _qr(kept if order is None else kept[:, order])
    else:  # M^T = Q R, so that R^T has the singular values and the left singular vectors of M
        R = torch.linalg.qr(kept.mT, mode="r")[1].mT
    if tol is None and _clear(R.diagonal()):
        return SpanBasis(None if Q is None else Q * signs(R.diagonal()), False)
    left, S, _ = torch.linalg.svd(R)
    rounding = ROUNDING * torch.finfo(kept.dtype).eps * max(kept.shape) ** 0.5
    known = int((rounding * S[0] < S).sum())
    rank = known if tol is None else int((tol * S[0] < S).sum())
    if rank == n:
        return SpanBasis(None, False)
    U = left[:, :rank] if Q is None else Q @ left[:, :rank]
    U, R = _qr(U)  # orthonormal to the last bit
    return SpanBasis(U * signs(R.diagonal()), rank < known)


def _qr(A: Float[Tensor, "n m"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "k m"]]:
    """Thin QR; a small matrix takes longer to hand to several threads than to decompose."""
    if A.numel() > SMALL:
        found: tuple[Tensor, Tensor] = torch.linalg.qr(A)
        return found
    Q, R = np.linalg.qr(A.numpy())
    return torch.from_numpy(Q), torch.from_numpy(R)


def basis_of(columns: Float[Tensor, "n m"], tol: float | None = None) -> Float[Tensor, "n k"]:
    """Orthonormal basis of the span of the columns, each scaled to length 1 first; see `span_basis`.

    >>> basis_of(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64))
    tensor([[1.],
            [0.]], dtype=torch.float64)
    """
    U = span_basis(Columns(columns, None), tol).U
    return torch.eye(len(columns), dtype=columns.dtype) if U is None else U


def beside(columns: Sequence[Columns], n: int) -> Columns:
    """All columns in one matrix of n rows."""
    if len(columns) == 1:
        return columns[0]
    M = torch.cat([torch.zeros(n, 0, dtype=torch.float64), *(c.M for c in columns)], dim=1)
    if all(c.size is None for c in columns):
        return Columns(M, None)
    return Columns(M, torch.cat([c.M.abs() if c.size is None else c.size for c in columns], dim=1))


def mixed(columns: Columns, basis: Float[Tensor, "n k"] | None) -> Columns:
    """Fewer columns T with ``T T^T = M M^T``; columns of very different lengths are not mixed.

    With U a basis of some of them, ``M = U C`` and ``C = L Q`` with L square: T = U L. Every entry of T is a mixture of
    the entries in its row of M, so that it is known as well as the longest of these.
    """
    lengths = columns.M.norm(dim=0)
    kept = lengths > 0
    M = columns.M[:, kept]
    size = None if columns.size is None else columns.size[:, kept]
    if M.shape[1] == 0:
        return Columns(M, None)
    groups = _alike(lengths[kept])
    new: list[Columns] = []
    for own in groups:
        group = Columns(M[:, own], None if size is None else size[:, own])
        U = basis if len(groups) == 1 else span_basis(group).U
        if U is not None and U.shape[1] == group.M.shape[1]:
            new.append(group)
            continue
        coordinates = group.M if U is None else U.mT @ group.M
        L = torch.linalg.qr(coordinates.mT, mode="r")[1].mT
        T = L if U is None else U @ L
        row = (group.M if group.size is None else group.size).norm(dim=1, keepdim=True)
        new.append(Columns(T, row.expand_as(T)))
    return beside(new, len(M))


def _alike(lengths: Float[Tensor, " m"]) -> list[Tensor]:
    """Which lengths are within a ratio of `ALIKE` of the largest one, of the largest of the others, and so on.

    >>> [own.tolist() for own in _alike(torch.tensor([1.0, 1e-9, 5.0, 2e-9]))]
    [[2, 0], [3, 1]]
    """
    sizes, order = lengths.sort(descending=True)
    groups, start = [], 0
    while start < len(order):
        stop = start + int((sizes[start:] * ALIKE >= sizes[start]).sum())
        groups.append(order[start:stop])
        start = stop
    return groups
