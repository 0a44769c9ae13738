"""What can ever stand in a tensor: an affine set ``c + sum over sources of M_s z_s``.

A *source* is something that may take any value, independently of the others: an input, the output of a nonlinear
step, a neighbouring position seen by a convolution. Keeping sources apart lets two paths from the same source add up
instead of counting twice; keeping the constant c apart lets biases along a residual stream merge into one direction.

The identity is never stored, and a set that is all of R^n is never decomposed. Where numbers were added up, the size of
what was added is kept beside the sum, so that a column that is only rounding can be told from a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .ranks import Columns, beside, clearly_independent, mixed, span_basis

if TYPE_CHECKING:
    from jaxtyping import Float


def double(x: Tensor) -> Tensor:
    """In float64 on the CPU, where the algebra is done."""
    return x.detach().to("cpu", torch.float64)


@dataclass(frozen=True, eq=False)
class Part:
    """The rows ``start : start + rows`` of a matrix M_s whose other rows are 0.

    Attributes
    ----------
    rows : int
    M : Tensor, shape (rows, width), optional
        None stands for ``factor`` times the identity. It may have the dtype of a weight: it is converted when needed.
    start : int
    factor : float
        Of the identity; 1 if M is given.
    size : Tensor, shape (rows, width), optional
        ``|W| |m|`` where M was computed as W m, so that M is known to a few eps of it; None where M is exact.
    basis : Tensor, shape (rows, k), optional
        Orthonormal basis of the columns, where one was computed on the way.
    """

    rows: int
    M: Float[Tensor, "rows width"] | None = None
    start: int = 0
    factor: float = 1.0
    size: Float[Tensor, "rows width"] | None = None
    basis: Float[Tensor, "rows k"] | None = None

    @property
    def stop(self) -> int:
        """The row after the last."""
        return self.start + self.rows

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self.rows if self.M is None else int(self.M.shape[1])

    def matrix(self) -> Float[Tensor, "rows width"]:
        """Its rows in float64."""
        return self.factor * torch.eye(self.rows, dtype=torch.float64) if self.M is None else double(self.M)

    def sizes(self) -> Float[Tensor, "rows width"]:
        """The size of what was added up in every entry."""
        return self.matrix().abs() if self.size is None else self.size

    def moved(self, by: int) -> Part:
        """The same rows further down."""
        return Part(self.rows, self.M, self.start + by, self.factor, self.size, self.basis)

    def scaled(self, factor: float) -> Part:
        """``factor`` times the matrix."""
        if self.M is None:
            return Part(self.rows, None, self.start, factor * self.factor)
        size = None if self.size is None else abs(factor) * self.size
        return Part(self.rows, factor * double(self.M), self.start, 1.0, size)

    def mapped(self, W: Float[Tensor, "out columns"], inner: int) -> Part:
        """``W M``; each of ``inner`` columns of W that stand side by side reads a copy of M of its own."""
        W = W[:, self.start * inner : self.stop * inner]
        if self.M is None:
            return Part(len(W), W if self.factor == 1.0 else self.factor * double(W))
        W = double(W)
        if inner == 1:
            return Part(len(W), W @ self.matrix(), size=W.abs() @ self.sizes())
        W = W.reshape(len(W), self.rows, inner)
        M, size = (torch.einsum("oik,ij->ojk", A, B) for A, B in ((W, self.matrix()), (W.abs(), self.sizes())))
        return Part(len(W), M.flatten(1), size=size.flatten(1))

    def plus(self, other: Part) -> Part | None:
        """The sum of two matrices of one source; None if it is 0."""
        if self.M is None and other.M is None and (self.start, self.rows) == (other.start, other.rows):
            factor = self.factor + other.factor
            return Part(self.rows, None, self.start, factor) if factor else None
        start, stop = min(self.start, other.start), max(self.stop, other.stop)
        M = torch.zeros(stop - start, self.width, dtype=torch.float64)
        size = torch.zeros_like(M)
        for part in (self, other):
            rows = slice(part.start - start, part.stop - start)
            M[rows] += part.matrix()
            size[rows] += part.sizes()
        return Part(stop - start, M, start, 1.0, size)

    def within(self, rows: slice) -> Columns:
        """Those of its columns that are not 0 for lack of rows, in the rows given."""
        start, stop = max(self.start, rows.start), min(self.stop, rows.stop)
        own = slice(start - self.start, stop - self.start)
        if self.M is None:
            block, size = self.factor * torch.eye(stop - start, dtype=torch.float64), None
        else:
            block, size = double(self.M[own]), None if self.size is None else self.size[own]
        height, inside = rows.stop - rows.start, slice(start - rows.start, stop - rows.start)
        if inside.stop - inside.start == height:
            return Columns(block, size)
        return Columns(_in_rows(block, height, inside), None if size is None else _in_rows(size, height, inside))

    def thinned(self, lengths: bool) -> Part:
        """As few columns as the rank, with the same span and the same lengths: ``T T^T = M M^T``.

        Unless lengths matter, all of R^rows becomes the identity.
        """
        if self.M is None or self.width < 2:
            return self
        columns = Columns(self.matrix(), self.size)
        found = span_basis(columns)
        if found.U is None and not lengths:
            return Part(self.rows, start=self.start)
        if found.U is not None and found.U.shape[1] == self.width:  # mixing would fill zeros with rounding
            return Part(self.rows, columns.M, self.start, 1.0, self.size, found.U)
        fewer = mixed(columns, found.U)
        return Part(self.rows, fewer.M, self.start, 1.0, fewer.size, found.U)


def _in_rows(block: Float[Tensor, "rows width"], height: int, rows: slice) -> Float[Tensor, "height width"]:
    if len(block) == height:
        return block
    out = block.new_zeros(height, block.shape[1])
    out[rows] = block
    return out


@dataclass(frozen=True, eq=False)
class AffineSet:
    """``c + sum M_s z_s`` in R^n, in float64; no c is c = 0."""

    n: int
    c: Float[Tensor, " n"] | None = None
    parts: Mapping[Hashable, Float[Tensor, "n width"] | Part] = field(default_factory=dict)
    c_size: Float[Tensor, " n"] | None = None  # of what was added up in c; None where nothing was

    @classmethod
    def everything(cls, n: int, source: Hashable) -> AffineSet:
        """All of R^n, without storing the identity.

        >>> AffineSet.everything(10**9, "x").is_full
        True
        """
        return cls(n, None, {source: Part(n)})

    @cached_property
    def pieces(self) -> dict[Hashable, Part]:
        """The parts, each as a `Part`."""
        return {s: M if isinstance(M, Part) else Part(len(M), M) for s, M in self.parts.items()}

    @property
    def is_full(self) -> bool:
        """Whether it is known to be all of R^n without looking at numbers."""
        return self.fills(slice(0, self.n))

    def fills(self, rows: slice) -> bool:
        """Whether anything may stand in these rows, known without looking at numbers."""
        return any(part.M is None for part in self._over(rows) if part.start <= rows.start and rows.stop <= part.stop)

    @cached_property
    def _where(self) -> tuple[list[Part], npt.NDArray[np.int64]]:
        parts = list(self.pieces.values())
        return parts, np.array([(p.start, p.stop) for p in parts], dtype=np.int64).reshape(-1, 2)

    def _over(self, rows: slice) -> list[Part]:
        """The parts that have one of these rows."""
        parts, ends = self._where
        return [parts[k] for k in np.flatnonzero((ends[:, 0] < rows.stop) & (ends[:, 1] > rows.start))]

    def at(self, rows: slice, *, constant: bool = False) -> Columns:
        """The directions in some rows, the constant before them if it is asked for and there is one."""
        columns = [part.within(rows) for part in self._over(rows)]
        return beside([self.constant_at(rows), *columns] if constant else columns, rows.stop - rows.start)

    def constant_at(self, rows: slice) -> Columns:
        """The constant in some rows as a column; none if there is no constant."""
        if self.c is None:
            return beside([], rows.stop - rows.start)
        return Columns(self.c[rows].unsqueeze(1), None if self.c_size is None else self.c_size[rows].unsqueeze(1))

    def basis_at(self, rows: slice) -> Float[Tensor, "rows k"] | None:
        """An orthonormal basis of the directions in some rows, if one is there already."""
        over = self._over(rows)
        if len(over) != 1 or (over[0].start, over[0].stop) != (rows.start, rows.stop):
            return None
        return over[0].basis

    @property
    def directions(self) -> Float[Tensor, "n m"]:
        """The matrices side by side."""
        return self.at(slice(0, self.n)).M

    @property
    def columns(self) -> Float[Tensor, "n m"]:
        """The constant, if there is one, and the directions."""
        return self.at(slice(0, self.n), constant=True).M

    def mapped(
        self, W: Float[Tensor, "out {self.n*inner}"], b: Float[Tensor, " out"] | None, inner: int = 1
    ) -> AffineSet:
        """The image under ``x -> W x + b``.

        Parameters
        ----------
        W : Tensor, shape (out, n * inner)
            Of any dtype; if nothing has to be computed with it, it is kept as it is.
        b : Tensor, shape (out,), optional
        inner : int
            How many positions stand side by side for each entry; each has sources of its own then, and the same c.
        """
        c, size = None if b is None else double(b), None
        if self.c is not None:
            sums = double(W).reshape(len(W), self.n, inner)
            c = sums.sum(dim=2) @ self.c + (0.0 if c is None else c)
            size = sums.abs().sum(dim=2) @ (self.c.abs() if self.c_size is None else self.c_size)
            size = size if b is None else size + double(b).abs()
        return AffineSet(len(W), c, {s: part.mapped(W, inner) for s, part in self.pieces.items()}, size)

    def scaled(self, factor: float) -> AffineSet:
        """``factor`` times the set."""
        if factor == 1.0:
            return self
        c = None if self.c is None else factor * self.c
        size = None if self.c_size is None else abs(factor) * self.c_size
        return AffineSet(self.n, c, {s: part.scaled(factor) for s, part in self.pieces.items()}, size)

    def plus(self, other: AffineSet) -> AffineSet:
        """Minkowski sum, except that a source both sets share is one variable: its matrices are added, not stacked."""
        return total([self, other])

    def renamed(self, by: Hashable, names: Names) -> AffineSet:
        """A copy whose sources are new variables: for a value from another position, which varies independently."""
        return AffineSet(self.n, self.c, {names(by, s): part for s, part in self.pieces.items()}, self.c_size)

    def with_constant_as_direction(self, source: Hashable) -> AffineSet:
        """Move c into the directions: zero padding makes it depend on position."""
        if self.c is None:
            return self
        size = None if self.c_size is None else self.c_size.unsqueeze(1)
        return AffineSet(self.n, None, {**self.pieces, source: Part(self.n, self.c.unsqueeze(1), size=size)})

    def limited(self, source: Hashable, lengths: bool) -> AffineSet:
        """At most n directions: if there are more, one source of their own for all of them.

        Parameters
        ----------
        source : Hashable
        lengths : bool
            Whether the lengths of columns matter (there is a tolerance). If not, all of R^n is stored as such.
        """
        if sum(part.width for part in self.pieces.values()) < self.n:
            return self
        if not lengths and (self.is_full or self._surely_full()):
            return AffineSet.everything(self.n, source)
        columns = self.at(slice(0, self.n))
        part = Part(self.n, columns.M, size=columns.size).thinned(lengths)
        return AffineSet(self.n, None, {source: part}) if part.M is None else self._with(source, part)

    def _with(self, source: Hashable, part: Part) -> AffineSet:
        return AffineSet(self.n, self.c, {source: part}, self.c_size)

    def thinned(self, lengths: bool) -> AffineSet:
        """As few columns for every source as their rank; all of R^n, unless lengths matter, as such."""
        parts = {s: part.thinned(lengths) for s, part in self.pieces.items()}
        thin = AffineSet(self.n, self.c, parts, self.c_size)
        return thin if thin.c is None or not thin.is_full else AffineSet(self.n, None, parts)

    def _surely_full(self) -> bool:
        """Whether n of its columns, spread evenly, are independent beyond doubt."""
        ends = np.cumsum([0, *(part.width for part in self.pieces.values())])
        wanted = np.arange(self.n) * int(ends[-1]) // max(self.n, 1)
        chosen = []
        for part, start, stop in zip(self.pieces.values(), ends[:-1], ends[1:], strict=True):
            own = torch.from_numpy(wanted[(start <= wanted) & (wanted < stop)] - start)
            if len(own) == 0:
                continue
            if part.M is None:
                M, size = part.matrix()[:, own], None
            else:
                M, size = double(part.M[:, own]), None if part.size is None else part.size[:, own]
            rows = slice(part.start, part.stop)
            chosen.append(Columns(*(None if A is None else _in_rows(A, self.n, rows) for A in (M, size))))  # type: ignore[arg-type]
        return clearly_independent(beside(chosen, self.n))


class Names:
    """Sources under new names, one object for each name and source, however long the history of a source is."""

    def __init__(self) -> None:
        self.known: dict[tuple[Hashable, Hashable], Hashable] = {}

    def __call__(self, by: Hashable, source: Hashable) -> Hashable:
        """The source for one that has been renamed."""
        return self.known.setdefault((by, source), _Source())


class _Source:
    """Hashed and compared by identity."""


class Lazy:
    """An affine set that is computed when it is first asked for, after those it is made of.

    What it needs is computed by a loop and not by recursion: programs may have thousands of steps.
    """

    def __init__(self, make: Callable[[], AffineSet], needs: Iterable[Lazy] = ()) -> None:
        self.make, self.needs = make, tuple(needs)
        self.made: AffineSet | None = None

    def get(self) -> AffineSet:
        """The set."""
        todo = [self]
        while todo:
            missing = [lazy for lazy in todo[-1].needs if lazy.made is None] if todo[-1].made is None else []
            if missing:
                todo += missing
                continue
            last = todo.pop()
            if last.made is None:
                last.made = last.make()
        if self.made is None:
            raise ValueError("a set is made of itself")
        return self.made


def total(sets: Sequence[AffineSet]) -> AffineSet:
    """The sum of several sets of one dimension; a source that several of them share is one variable."""
    parts: dict[Hashable, Part] = {}
    for one in sets:
        for s, part in one.pieces.items():
            old = parts.pop(s, None)
            both = part if old is None else old.plus(part)
            if both is not None:
                parts[s] = both
    constants = [one for one in sets if one.c is not None]
    if len(constants) < 2:
        c, size = (constants[0].c, constants[0].c_size) if constants else (None, None)
        return AffineSet(sets[0].n, c, parts, size)
    values = [(one.c, one.c_size) for one in constants if one.c is not None]
    c = torch.stack([value for value, _ in values]).sum(dim=0)
    size = torch.stack([value.abs() if own is None else own for value, own in values]).sum(dim=0)
    return AffineSet(sets[0].n, c, parts, size)


def stacked(sets: Iterable[AffineSet]) -> AffineSet:
    """The set of concatenated vectors."""
    sets = list(sets)
    starts = np.cumsum([0, *(s.n for s in sets)])
    n = int(starts[-1])
    c = size = None
    if any(s.c is not None for s in sets):
        c = torch.cat([torch.zeros(s.n, dtype=torch.float64) if s.c is None else s.c for s in sets])
        if any(s.c_size is not None for s in sets):
            of = [torch.zeros(s.n, dtype=torch.float64) if s.c is None else s.c.abs() for s in sets]
            size = torch.cat([own if s.c_size is None else s.c_size for s, own in zip(sets, of, strict=True)])
    parts: dict[Hashable, Part] = {}
    for s, start in zip(sets, starts, strict=False):
        for source, part in s.pieces.items():
            moved = part.moved(int(start))
            old = parts.pop(source, None)
            both = moved if old is None else old.plus(moved)
            if both is not None:
                parts[source] = both
    return AffineSet(n, c, parts, size)
