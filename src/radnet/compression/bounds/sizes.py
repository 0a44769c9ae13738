"""The lengths and errors of the values of a program, found step by step: each operation says how it stretches them.

See the top of `bound` for what is followed, and docs/bounds.md for the proofs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..program import Step, Value
from ..spaces.features import Feature
from ..spaces.follow import Analysis
from ..spaces.layouts import Layout, Run
from ..spaces.ranks import span_basis
from ..spaces.spans import AffineSet, double
from .lengths import ANY, LOST, NONE, Lengths, Size, positions, product

if TYPE_CHECKING:
    from jaxtyping import Float


class Sides(NamedTuple):
    """The features that a layer reads and writes; None where they are not followed."""

    reads: Feature | None
    writes: Feature | None


class Sizes:
    """What is known of the values so far, and what operations need to go on from there."""

    def __init__(self, analysis: Analysis, layout: Layout, inputs: Sequence[Tensor]) -> None:
        self.analysis, self.layout = analysis, layout
        self._given = list(inputs)
        self._all_rows = next((len(x) for x in inputs if x.ndim), None)
        self._count: int | None = None  # of rows in the program, which may have been traced with fewer
        self._found: dict[Value, Size] = {}
        self._uses = {id(use.step): use for use in analysis.uses}

    def take(self, step: Step) -> None:
        """Find out what a step makes, if it makes something."""
        if step.output is not None:
            self._found[step.output] = self._settled(step, step.operation.size(step, self))

    def of(self, value: Value) -> Size:
        """What is known of a value."""
        return self._found[value] if value in self._found else self.anything(value)

    def anything(self, value: Value, made_of: Sequence[Size] = ()) -> Size:
        """Exact, and of any length. Its rows lie along the first axis, if no other axis has as many entries."""
        if all(size.rows is None for size in made_of):
            return Size(ANY, ANY, NONE)
        clear = value.shape[:1] == (self._count,) and self._count not in value.shape[1:]
        return Size(ANY, ANY, NONE, 0 if clear else LOST)

    def unknown(self, step: Step) -> Size:
        """Of what a step makes of which nothing is known: exact, if what arrives there is."""
        sizes = [self.of(value) for value in step.inputs]
        size = self.anything(step.made, sizes)
        why = next((s.why for s in sizes if s.why), None)
        if why is None and any(s.error.row > 0 for s in sizes):
            why = f"{step.name} comes after directions were left out, and is not known to be Lipschitz"
        return size if why is None else dataclasses.replace(size, error=ANY, why=why)

    def _settled(self, step: Step, size: Size) -> Size:
        """With all that the constant and the number of positions say besides."""
        value, feature = step.made, self.analysis.of.get(step.made)
        if feature is None:
            size = dataclasses.replace(size, spread=size.norm)
        else:
            size = size.along(feature.dim)
            c = self.constant(feature.span.c, value, size, feature.inner)
            norm = size.norm.least(size.spread.plus(c))
            size = dataclasses.replace(size, norm=norm, spread=size.spread.least(norm.plus(c)))
        count = positions(value.shape, size.rows, size.axis)
        tight = {name: getattr(size, name).tightened(count) for name in ("norm", "spread", "error")}
        return dataclasses.replace(size, bare=None if size.bare is None else size.bare.tightened(count), **tight)

    def input(self, value: Value) -> Size:
        """Of the next input of the model: as long as its longest row."""
        x = self._given.pop(0) if self._given else None
        shape = value.shape
        if x is not None and x.ndim and len(x) == self._all_rows and self._count is None:
            self._count = shape[0]
        by_row = x is not None and x.ndim > 0 and len(x) == self._all_rows and shape[0] == self._count
        if x is None or not x.is_floating_point():
            return Size(ANY, ANY, NONE, 0 if by_row else None)
        length = float(double(x).reshape(len(x) if x.ndim else 1, -1).norm(dim=1).max()) if x.numel() else 0.0
        if not by_row and x.ndim:
            length *= math.sqrt(len(x))
        found = Lengths(length, length)
        return Size(found, found, NONE, 0 if by_row else None)

    # --- lengths that operations ask for

    @staticmethod
    def constant(c: Float[Tensor, " n"] | None, value: Value, size: Size, inner: int = 1) -> Lengths:
        """The lengths of a value that is c everywhere, each of its entries ``inner`` times."""
        each = 0.0 if c is None else math.sqrt(inner) * float(double(c).norm())
        return Lengths(each, product(each, math.sqrt(positions(value.shape, size.rows, size.axis))))

    @staticmethod
    def spread_out(each: float, value: Value, size: Size) -> Lengths:
        """Every vector as long as this."""
        return Lengths(each, product(each, math.sqrt(positions(value.shape, size.rows, size.axis))))

    def read(self, value: Value, axis: int) -> Size:
        """A value that is read along an axis."""
        size = self.of(value)
        return (size.lost() if size.rows == axis else size).along(axis)

    def unread(self, value: Value, size: Size) -> Lengths:
        """The lengths of r, what of the constant is not in the basis."""
        feature = self.analysis.of.get(value)
        if feature is None:
            return NONE
        rests = [self.layout.rest(feature, run) for run in self.layout.runs[feature] if _cut(run)]
        found = [r for r in rests if r is not None]
        return self.constant(torch.cat(found) if found else None, value, size, feature.inner)

    # --- what layers read and write

    def sides(self, step: Step) -> Sides:
        """The features that a layer reads and writes."""
        use = self._uses.get(id(step))
        return Sides(None, None) if use is None else Sides(use.reads, use.writes)

    def span(self, reads: Feature | None, value: Value, axis: int) -> AffineSet:
        """What a layer reads."""
        return self.analysis.span_of(value, reads, value.shape[axis], axis).get()

    def rest(self, W: Float[Tensor, " out *others"], writes: Feature | None) -> Float[Tensor, " out *others"] | None:
        """``P W``: what of the columns of W does not fit into the bases that leave directions out."""
        if writes is None:
            return None
        rest, any_cut = torch.zeros_like(W), False
        for run in self.layout.runs[writes]:
            if _cut(run):
                part, U = W[run.rows], run.U
                rest[run.rows] = part - torch.einsum("ij,j...->i...", U, torch.einsum("ij,i...->j...", U, part))
                any_cut = True
        return rest if any_cut else None

    def without_mark(self, feature: Feature | None) -> Float[Tensor, " n"] | None:
        """The part of r that no mark carries: a reader adds it by its bias, beyond the edge too."""
        if feature is None:
            return None
        found = torch.zeros(len(feature.entries), dtype=torch.float64)
        for run in self.layout.runs[feature]:
            r = self.layout.rest(feature, run) if _cut(run) else None
            marked = run.basis is not None and run.mark and any(part is None for part in run.parts())
            if r is not None and not marked:
                found[run.rows] = r
        return found if bool(found.any()) else None

    # --- rescalings

    def rescaled(self, step: Step, u: Size, norm: Lengths, error: Lengths, L: float | None, most: float) -> Size:
        """After a rescaling with Lipschitz constant L and vectors no longer than ``most``."""
        (value,) = step.inputs
        norm = norm.least(self.spread_out(most, value, u))
        if error.row > 0:
            far = self.spread_out(2 * most, value, u)  # two vectors are no further apart than both are long
            error = far if L is None else error.times(L).least(far)
        why = u.why
        if L is None and math.isinf(error.row) and not why:
            why = f"{step.who} comes after directions were left out, and is not Lipschitz"
        why = why if math.isinf(error.row) else ""
        return Size(norm, norm, error, u.rows, u.axis, why=why)


def restricted(A: Float[Tensor, " out in taps"], span: AffineSet, *, constant: bool) -> Float[Tensor, "out k taps"]:
    """A of shape (out, in, taps) on the directions of a set, with its constant or without, in an orthonormal basis."""
    U = None if span.is_full else span_basis(span.at(slice(0, span.n), constant=constant)).U
    return A if U is None else torch.einsum("oik,ij->ojk", A, U)


def aligned(sizes: Sequence[Size]) -> list[Size]:
    """The same axes for all: rows and vectors along the axes that they agree on."""
    rows = {size.rows for size in sizes} - {None}
    if len(rows) > 1 or LOST in rows:
        sizes, rows = [size.lost() for size in sizes], {LOST}
    axes = {size.axis for size in sizes} - {None}
    axis = axes.pop() if len(axes) == 1 else None
    row = rows.pop() if rows else None
    return [dataclasses.replace(size.along(axis), rows=row) for size in sizes]


def without(d: int | None, dropped: set[int]) -> int | None:
    """An axis after others are dropped."""
    return d if d is None or d == LOST else d - sum(k < d for k in dropped)


def _cut(run: Run) -> bool:
    """Whether a tolerance left out directions of a run."""
    return run.basis is not None and run.basis.cut
