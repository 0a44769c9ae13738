"""How far a tolerance can move the outputs: lengths and errors followed from step to step (proofs in docs/bounds.md).

A value v of the original model has a counterpart in the small one: ``v' = U y + r``, where y is what the small model
computes, U the basis of the space and r the part of the constant that readers add again. Three lengths are followed for
every value: of v, of v less its constant c, and of the error v - v'. Each is bounded twice: for *each* vector along the
feature axis, and for a whole *row* (all that belongs to one row of the inputs). A layer ``w = W u + b`` whose basis
leaves something out, with P = I - U U^T, has

    w - w' = U U^T W (u - u') + P W (u - c_u),

and a radial activation with Lipschitz constant L multiplies the error, r included, by L. Where a step is not Lipschitz
(Step-ReLU) or not known, and what arrives there is not exact, there is no bound.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..rescaling import block_sizes
from .bases import Layout, Run
from .features import Feature
from .graph import Analysis, double, padded_with_zeros
from .lengths import (
    ANY,
    LOST,
    NONE,
    Lengths,
    Size,
    Stretch,
    beyond_the_edge,
    gradient_of_sum,
    positions,
    product,
    repeated,
    times_seen,
)
from .lipschitz import growth, lipschitz, longest, own_eps
from .program import Step, Value, rms_norm
from .ranks import span_basis
from .spans import AffineSet


@dataclass(frozen=True)
class Bound:
    """The most a row of the outputs can change, for inputs as long as the given ones; None with the reason why not.

    ``value`` bounds the Euclidean norm of the change of all floating-point outputs of one row taken together (all
    channels, all positions), for all inputs of the shape of the given ones none of whose rows is longer than the
    longest given row. The length of a row is the Euclidean norm of all its entries: of a whole picture, of a whole
    sequence. Several inputs are compared each with its own longest row. How many rows there are does not matter.
    Rounding comes on top of it.
    """

    value: float | None
    why: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"no bound: {self.why}"
        return f"outputs change by at most {self.value:.3g}, for inputs as long as the given ones"


def bound(analysis: Analysis, layout: Layout, steps: Sequence[Step], inputs: Sequence[Tensor]) -> Bound:
    """Follow lengths and errors through the program."""
    return _Follower(analysis, layout, inputs).run(steps)


class _Follower:
    def __init__(self, analysis: Analysis, layout: Layout, inputs: Sequence[Tensor]) -> None:
        self.analysis, self.layout = analysis, layout
        self.given = list(inputs)
        self.all_rows = next((len(x) for x in inputs if x.ndim), None)
        self.count: int | None = None  # of rows in the program, which may have been traced with fewer
        self.sizes: dict[Value, Size] = {}
        self.uses = {id(use.step): use for use in analysis.uses}
        self.steps: dict[str, Callable[[Step], Size]] = {
            "input": self._input,
            "linear": self._linear,
            "conv": self._conv,
            "embedding": self._table,
            "parameter": self._table,
            "radial": self._radial,
            "norm": self._norm,
            "add": self._add,
            "scale": self._scale,
            "cat": self._cat,
            "same": lambda step: self._size(step.inputs[0]),
            "flatten": self._flatten,
            "mean": self._mean,
            "pool": self._pool,
            "slice": self._slice,
            "permute": self._permute,
            "transpose": self._permute,
        }

    def run(self, steps: Sequence[Step]) -> Bound:
        """The bound for the first program among the steps, which is the one of the given inputs."""
        if not any(basis is not None and basis.cut for basis in self.layout.bases):
            return Bound(0.0)
        outputs: list[Size] = []
        for step in steps:
            if step.kind == "output":
                outputs = [self._size(value) for value in step.inputs if _has_parts(value.dtype)]
                break
            if step.output is not None:
                self.sizes[step.output] = self._settled(step, self._take(step))
        total = math.hypot(*(size.error.row for size in outputs))
        if math.isfinite(total):
            return Bound(total)
        return Bound(None, next(why for why in map(_reason, outputs) if why))

    def _take(self, step: Step) -> Size:
        known = step.kind in self.steps and (step.inputs or step.kind in ("input", "parameter"))
        return self.steps[step.kind](step) if known else self._unknown(step)

    def _size(self, value: Value) -> Size:
        return self.sizes[value] if value in self.sizes else self._anything(value)

    def _anything(self, value: Value, made_of: Sequence[Size] = ()) -> Size:
        """Exact, and of any length. Its rows lie along the first axis, if no other axis has as many entries."""
        if all(size.rows is None for size in made_of):
            return Size(ANY, ANY, NONE)
        clear = value.shape[:1] == (self.count,) and self.count not in value.shape[1:]
        return Size(ANY, ANY, NONE, 0 if clear else LOST)

    def _settled(self, step: Step, size: Size) -> Size:
        """With all that the constant and the number of positions say besides."""
        value, feature = step.made, self.analysis.features.get(step.made)
        if feature is None:
            size = dataclasses.replace(size, spread=size.norm)
        else:
            size = size.along(feature.dim)
            c = self._constant(feature.span.c, feature.inner, value, size)
            norm = size.norm.least(size.spread.plus(c))
            size = dataclasses.replace(size, norm=norm, spread=size.spread.least(norm.plus(c)))
        count = positions(value.shape, size.rows, size.axis)
        tight = {name: getattr(size, name).tightened(count) for name in ("norm", "spread", "error")}
        return dataclasses.replace(size, bare=None if size.bare is None else size.bare.tightened(count), **tight)

    @staticmethod
    def _constant(c: Tensor | None, inner: int, value: Value, size: Size) -> Lengths:
        """The lengths of a value that is c everywhere."""
        each = 0.0 if c is None else math.sqrt(inner) * float(c.norm())
        return Lengths(each, product(each, math.sqrt(positions(value.shape, size.rows, size.axis))))

    def _unread(self, value: Value, size: Size) -> Lengths:
        """The lengths of r, what of the constant is not in the basis."""
        feature = self.analysis.features.get(value)
        if feature is None:
            return NONE
        rests = [self.layout.rest(feature, run) for run in self.layout.runs[feature] if _cut(run)]
        found = [r for r in rests if r is not None]
        return self._constant(torch.cat(found) if found else None, feature.inner, value, size)

    def _read(self, value: Value, axis: int) -> Size:
        """A value that is read along an axis."""
        size = self._size(value)
        return (size.lost() if size.rows == axis else size).along(axis)

    def _unknown(self, step: Step) -> Size:
        sizes = [self._size(value) for value in step.inputs]
        size = self._anything(step.made, sizes)
        why = next((s.why for s in sizes if s.why), None)
        if why is None and any(s.error.row > 0 for s in sizes):
            why = f"{step.name} comes after directions were left out, and is not known to be Lipschitz"
        return size if why is None else dataclasses.replace(size, error=ANY, why=why)

    def _input(self, step: Step) -> Size:
        x = self.given.pop(0) if self.given else None
        shape = step.made.shape
        if x is not None and x.ndim and len(x) == self.all_rows and self.count is None:
            self.count = shape[0]
        by_row = x is not None and x.ndim > 0 and len(x) == self.all_rows and shape[0] == self.count
        if x is None or not x.is_floating_point():
            return Size(ANY, ANY, NONE, 0 if by_row else None)
        length = float(double(x).reshape(len(x) if x.ndim else 1, -1).norm(dim=1).max()) if x.numel() else 0.0
        if not by_row and x.ndim:
            length *= math.sqrt(len(x))
        found = Lengths(length, length)
        return Size(found, found, NONE, 0 if by_row else None)

    # --- layers and tables: what they write may not fit into the basis

    def _linear(self, step: Step) -> Size:
        (value,), m = step.inputs, _module(step)
        axis = len(value.shape) - 1
        u = self._read(value, axis)
        reads, writes = self._use(step)
        span, W = self._span(reads, value, axis), double(m.weight)
        stretch = Stretch(W.unsqueeze(2))
        spread = u.spread if reads is not None else u.norm.plus(self._constant(span.c, 1, value, u))
        error = stretch(u.error)
        rest = self._rest(W.reshape(len(W), span.n, -1), writes)
        if rest is not None:
            missing = _restricted(rest, span, constant=False).flatten(1).unsqueeze(2)
            error = error.plus(Stretch(missing)(spread))
        b = self._constant(None if m.bias is None else double(m.bias), 1, value, u)
        return Size(stretch(u.norm).plus(b), stretch(spread), error, u.rows, axis, why=u.why)

    def _conv(self, step: Step) -> Size:
        (value,), m = step.inputs, _module(step)
        batched = len(value.shape) == m.weight.ndim
        axis = 1 if batched else 0
        u = self._size(value)
        u = (u if batched and u.rows in (0, None) else u.lost()).along(axis)
        reads, writes = self._use(step)
        span = self._span(reads, value, axis)
        zeros = padded_with_zeros(m)
        spread = u.spread if reads is not None else u.norm.plus(self._constant(span.c, 1, value, u))
        spread = u.norm if zeros else spread  # at the edges the constant ends, so it is a direction like others
        W, space = double(m.weight).flatten(2), value.shape[axis + 1 :]
        seen, once = times_seen(m, space), m.padding_mode == "zeros"
        stretch = Stretch(W, seen, once=once)
        error = stretch(u.error)
        rest = self._rest(W, writes)
        if rest is not None:
            error = error.plus(Stretch(_restricted(rest, span, constant=zeros), seen, once=once)(spread))
        r = self._without_mark(reads) if zeros else None
        if r is not None:
            copies = value.shape[0] if batched and u.rows is None else math.inf if u.rows == LOST else 1
            error = error.plus(beyond_the_edge(m, space, r).times(1.0, math.sqrt(copies)))
        out = Size(stretch(u.norm), stretch(spread), error, u.rows, axis, why=u.why)
        b = self._constant(None if m.bias is None else double(m.bias), 1, step.made, out)
        return dataclasses.replace(out, norm=out.norm.plus(b))

    def _use(self, step: Step) -> tuple[Feature | None, Feature | None]:
        use = self.uses.get(id(step))
        return (None, None) if use is None else (use.reads, use.writes)

    def _span(self, reads: Feature | None, value: Value, axis: int) -> AffineSet:
        """What a layer reads."""
        if reads is not None:
            return reads.span
        return self.analysis._span_of(value, None, value.shape[axis], axis).get()

    def _rest(self, W: Tensor, writes: Feature | None) -> Tensor | None:
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

    def _without_mark(self, feature: Feature | None) -> Tensor | None:
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

    def _table(self, step: Step) -> Size:
        use = self.uses.get(id(step))
        if use is None or use.writes is None:
            return self._anything(step.made)
        index = self._size(step.inputs[0]).rows if step.kind == "embedding" else None
        table = _module(step).weight if step.kind == "embedding" else self.analysis.parameters[step.name]
        rows = double(table).reshape(-1, len(use.writes.entries)).mT
        c = use.writes.span.c
        less_c = rows if c is None else rows - c.unsqueeze(1)
        norm, spread, error, bare = (
            self._longest_row(x, step)
            for x in (rows, less_c, self._rest(less_c, use.writes), self._rest(rows, use.writes))
        )
        return Size(norm, spread, error, index, len(step.made.shape) - 1, bare)

    @staticmethod
    def _longest_row(columns: Tensor | None, step: Step) -> Lengths:
        """The lengths of rows of a table, which are columns here; of a parameter all of them are there."""
        if columns is None or not columns.numel():
            return NONE
        return Lengths(
            float(columns.norm(dim=0).max()), float(columns.norm()) if step.kind == "parameter" else math.inf
        )

    # --- activations and norm layers

    def _radial(self, step: Step) -> Size:
        (value,), rho = step.inputs, _module(step)
        axis = rho.dim % len(value.shape)
        u = self._read(value, axis)
        blocks = 1 if rho.blocks is None else len(block_sizes(rho.blocks, value.shape[axis]))
        most = math.sqrt(blocks) * longest(rho)
        L = lipschitz(rho, value.dtype)
        offset = math.sqrt(blocks) * growth(rho)
        norm = u.norm.plus(self._spread_out(offset, value, u))
        if L is not None:
            norm = norm.least(u.norm.times(L))
        error = u.error.plus(self._unread(value, u))
        error = error if u.bare is None else error.least(u.bare)
        return self._rescaled(step, u, norm, error, L, most)

    def _norm(self, step: Step) -> Size:
        """A norm layer that stays: centring does not stretch, then a rescaling, a gain and a shift."""
        (value,), m = step.inputs, _module(step)
        axis = len(value.shape) - 1
        u = self._read(value, axis)
        layer = isinstance(m, nn.LayerNorm)
        rms = None if layer else rms_norm(m)
        if not layer and rms is None:
            return self._unknown(step)
        gain = m.weight if rms is None else rms.gain
        eps = m.eps if rms is None else own_eps(rms.eps, value.dtype)
        g = 1.0 if gain is None else float(double(gain).abs().max())
        shift = getattr(m, "bias", None) if layer else None
        L = g / math.sqrt(eps) if eps > 0 else None
        size = self._rescaled(step, u, ANY, u.error, L, g * math.sqrt(value.shape[axis]))
        b = self._constant(None if shift is None else double(shift), 1, value, u)
        return dataclasses.replace(size, norm=size.norm.plus(b))

    def _rescaled(self, step: Step, u: Size, norm: Lengths, error: Lengths, L: float | None, most: float) -> Size:
        """After a rescaling with Lipschitz constant L and vectors no longer than ``most``."""
        (value,) = step.inputs
        norm = norm.least(self._spread_out(most, value, u))
        if error.row > 0:
            far = self._spread_out(2 * most, value, u)  # two vectors are no further apart than both are long
            error = far if L is None else error.times(L).least(far)
        why = u.why
        if L is None and math.isinf(error.row) and not why:
            why = (
                f"{step.name} ({type(step.module).__name__}) comes after directions were left out, and is not Lipschitz"
            )
        why = why if math.isinf(error.row) else ""
        return Size(norm, norm, error, u.rows, u.axis, why=why)

    @staticmethod
    def _spread_out(each: float, value: Value, size: Size) -> Lengths:
        """Every vector as long as this."""
        return Lengths(each, product(each, math.sqrt(positions(value.shape, size.rows, size.axis))))

    # --- sums and concatenations

    def _add(self, step: Step) -> Size:
        ndim = len(step.made.shape)
        parts = []
        for value, sign in zip(step.inputs, step.options["signs"], strict=True):
            size = self._size(value).scaled(abs(sign))
            lift = ndim - len(value.shape)
            axes = [d if d in (None, LOST) else d + lift for d in (size.rows, size.axis)]
            parts.append((dataclasses.replace(size, rows=axes[0], axis=axes[1]), (1,) * lift + value.shape))
        sizes = self._aligned([size for size, _ in parts])
        a, b = (repeated(size, shape, step.made.shape) for size, (_, shape) in zip(sizes, parts, strict=True))
        why = a.why or b.why
        return Size(a.norm.plus(b.norm), a.spread.plus(b.spread), a.error.plus(b.error), a.rows, a.axis, why=why)

    @staticmethod
    def _aligned(sizes: Sequence[Size]) -> list[Size]:
        """The same axes for all: rows and vectors along the axes that they agree on."""
        rows = {size.rows for size in sizes} - {None}
        if len(rows) > 1 or LOST in rows:
            sizes, rows = [size.lost() for size in sizes], {LOST}
        axes = {size.axis for size in sizes} - {None}
        axis = axes.pop() if len(axes) == 1 else None
        row = rows.pop() if rows else None
        return [dataclasses.replace(size.along(axis), rows=row) for size in sizes]

    def _cat(self, step: Step) -> Size:
        dim = step.options["dim"] % len(step.made.shape)
        sizes = [self._size(value) for value in step.inputs]
        if any(size.rows == dim for size in sizes):
            sizes = [size.lost() for size in sizes]
        sizes = self._aligned(sizes)
        axis = sizes[0].axis

        def joined(lengths: Sequence[Lengths]) -> Lengths:
            row = math.hypot(*(s.row for s in lengths))
            if axis is None:
                return Lengths(row, row)
            each = [s.each for s in lengths]
            return Lengths(math.hypot(*each) if axis == dim else max(each), row)

        followed = all(self.analysis.features.get(value) is not None for value in step.inputs)
        return Size(
            joined([s.norm for s in sizes]),
            joined([s.spread for s in sizes]) if followed else ANY,  # others have no constant of their own here
            joined([s.error for s in sizes]),
            sizes[0].rows,
            axis,
            why=next((s.why for s in sizes if s.why), ""),
        )

    def _scale(self, step: Step) -> Size:
        factor = abs(step.options["factor"])
        if not math.isfinite(factor):
            return self._unknown(step)
        return self._size(step.inputs[0]).scaled(factor)

    # --- positions

    def _flatten(self, step: Step) -> Size:
        (value,) = step.inputs
        size, ndim = self._size(value), len(value.shape)
        start, end = step.options["start"] % ndim, step.options["end"] % ndim
        if start == end:
            return size
        if size.rows is not None and start <= size.rows <= end:
            size = size.lost()
        rows, axis = (d if d is None or d < start else max(d - (end - start), start) for d in (size.rows, size.axis))
        if size.axis is None or axis != start or not start <= size.axis <= end:
            return dataclasses.replace(size, rows=rows, axis=axis)
        joined = math.prod(value.shape[start : end + 1]) / max(1, value.shape[size.axis])
        return size.mapped(lambda s: s.times(math.sqrt(joined), 1.0), rows=rows, axis=axis)

    def _mean(self, step: Step) -> Size:
        (value,) = step.inputs
        size = self._size(value)
        dims = {d % len(value.shape) for d in step.options["dims"]}
        within = [value.shape[d] for d in dims if d != size.rows]
        shrunk = math.prod(within) ** -0.5 if 0 not in within else 1.0
        if size.rows in dims:  # no mean of rows is longer than the longest of them
            size = dataclasses.replace(size, rows=None)
        size = size.along(None) if size.axis in dims else size
        rows, axis = size.rows, size.axis
        if not step.options["keepdim"]:
            rows, axis = (_less(d, dims) for d in (rows, axis))
        return size.mapped(lambda s: s.times(1.0 if axis is not None else shrunk, shrunk), rows=rows, axis=axis)

    def _pool(self, step: Step) -> Size:
        (value,) = step.inputs
        size = self._size(value)
        size = size if size.rows in (0, None) else size.lost()
        r = self._unread(value, size)
        size = size if size.axis == 1 and len(value.shape) > 2 else size.along(None)
        if step.module is None:  # its windows are not known: every position may see every other
            weight = float(math.prod(k for d, k in enumerate(step.made.shape) if d != size.rows))
        else:
            shape = (1, *value.shape[1:]) if size.rows == 0 else value.shape
            weight = float(gradient_of_sum(step.module, shape).max())
        root = math.sqrt(weight)
        out = size.mapped(lambda s: s.times(root if size.axis is None else 1.0, root))
        if step.options["zeros"]:  # the constant ends there, so r is not added again
            missing = self._spread_out(r.each if size.axis is not None else product(r.row, root), step.made, size)
            out = dataclasses.replace(out, spread=out.norm, error=out.error.plus(missing))
        return out

    def _slice(self, step: Step) -> Size:
        (value,) = step.inputs
        size, ndim = self._size(value), len(value.shape)
        dims, dropped = ({d % ndim for d in step.options[key]} for key in ("dims", "dropped"))
        if size.rows in dropped:  # one row is left
            size = dataclasses.replace(size, rows=None)
        size = size.lost() if size.rows in dims else size
        size = size.along(None) if size.axis in dropped else size
        rows, axis = (_less(d, dropped) for d in (size.rows, size.axis))
        return size.mapped(lambda s: s, rows=rows, axis=axis)

    def _permute(self, step: Step) -> Size:
        (value,) = step.inputs
        size, ndim = self._size(value), len(value.shape)
        dims = [d % ndim for d in step.options["dims"]]
        order = list(range(ndim))
        if step.kind == "permute":
            order = dims
        else:
            order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
        rows, axis = (d if d in (None, LOST) else order.index(d) for d in (size.rows, size.axis))
        return dataclasses.replace(size, rows=rows, axis=axis)


def _restricted(A: Tensor, span: AffineSet, *, constant: bool) -> Tensor:
    """A of shape (out, in, taps) on the directions of a set, with its constant or without, in an orthonormal basis."""
    U = None if span.is_full else span_basis(span.at(slice(0, span.n), constant=constant)).U
    return A if U is None else torch.einsum("oik,ij->ojk", A, U)


def _cut(run: Run) -> bool:
    """Whether a tolerance left out directions of a run."""
    return run.basis is not None and run.basis.cut


def _less(d: int | None, dropped: set[int]) -> int | None:
    """An axis after others are dropped."""
    return d if d is None or d == LOST else d - sum(k < d for k in dropped)


def _reason(size: Size) -> str:
    if math.isfinite(size.error.row):
        return ""
    if not size.why and math.isfinite(size.error.each):
        return "the rows of the inputs are mixed"
    return size.why or "hidden vectors can be of any length"


def _has_parts(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _module(step: Step) -> Any:
    return step.module
