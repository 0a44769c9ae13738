"""Axes that are joined, exchanged, cut or asked for their length; the features along one of them stay what they are."""

from __future__ import annotations

import dataclasses
import math
import operator
from dataclasses import dataclass

import torch
from torch import nn

from ..bounds.lengths import LOST, Size
from ..bounds.sizes import Sizes, without
from ..program import FunctionCall, Operation, Step
from ..reasons import Reason, Why
from ..spaces.features import Feature, Ingredient
from ..spaces.follow import Analysis


@dataclass(frozen=True)
class Flatten(Operation):
    """Axes from start to end become one. Where sizes were given, features that are not flattened may be cut up."""

    start: int
    end: int
    given: bool = False  # by sizes, which may be numbers in the program

    classes = (nn.Flatten,)
    functions = (torch.flatten, "flatten", "view", "reshape", torch.reshape)
    atens = ("aten.flatten.using_ints", "aten.view.default", "aten.reshape.default")

    @classmethod
    def of_module(cls, module: nn.Flatten) -> Flatten:
        """As it was made."""
        return cls(module.start_dim, module.end_dim)

    @classmethod
    def of_function(cls, call: FunctionCall) -> Flatten | None:
        """A flattening, or a reshape that is one."""
        if call.target in (torch.flatten, "flatten"):
            return cls._between(call.argument(1, "start_dim", 0), call.argument(2, "end_dim", -1))
        return cls._reshaped(call)

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Flatten | None:
        """The same by torch.export."""
        if call.aten == "aten.flatten.using_ints":
            return cls._between(call.argument(1, "start_dim", 0), call.argument(2, "end_dim", -1))
        return cls._reshaped(call)

    @classmethod
    def _between(cls, start: object, end: object) -> Flatten | None:
        return cls(start, end) if isinstance(start, int) and isinstance(end, int) else None

    @classmethod
    def _reshaped(cls, call: FunctionCall) -> Flatten | None:
        """``x.view(len(x), -1)`` and the like are a flattening; where other sizes are given, features may be cut up."""
        given = call.args[1:]
        sizes = tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given
        x, y, start = call.tensor(call.args[0]), call.tensor(call.node), len(sizes) - 1
        if x is None or y is None or start < 0 or start >= x.ndim or sizes[-1] != -1:
            return None
        return cls(start, -1, given=True) if x.shape[:start] == y.shape[:start] else None

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """A feature axis that is flattened with positions behind it has each entry several times."""
        feature, (value,) = analysis.arriving(step), step.inputs
        if feature is None:
            return None
        ndim = value.ndim
        start, end = self.start % ndim, self.end % ndim
        if feature.dim < start and self.given:  # its length may be a number in the program
            return analysis.unknown(step)
        if feature.dim < start or feature.dim > end:
            shift = end - start if feature.dim > end else 0
            return analysis.moved(feature, feature.dim - shift, ("flattened", start, end, value.shape))
        if feature.dim != start or end != ndim - 1:
            return analysis.unknown(step)
        inner = feature.inner * math.prod(value.shape[start + 1 : end + 1])
        return analysis.features.feature(feature.entries, start, inner, feature.lazy, [Ingredient(feature, 1.0)])

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Rows are as long as before; a vector holds all positions that were joined."""
        (value,) = step.inputs
        size, ndim = sizes.of(value), value.ndim
        start, end = self.start % ndim, self.end % ndim
        if start == end:
            return size
        if size.rows is not None and start <= size.rows <= end:
            size = size.lost()
        rows, axis = (d if d is None or d < start else max(d - (end - start), start) for d in (size.rows, size.axis))
        if size.axis is None or axis != start or not start <= size.axis <= end:
            return dataclasses.replace(size, rows=rows, axis=axis)
        joined = math.prod(value.shape[start : end + 1]) / max(1, value.shape[size.axis])
        return size.mapped(lambda s: s.times(math.sqrt(joined), 1.0), rows=rows, axis=axis)


@dataclass(frozen=True)
class Permute(Operation):
    """Axes in another order: all of them, or two that are exchanged."""

    dims: tuple[int, ...]
    exchanged: bool = False

    functions = ("permute", torch.permute, "transpose", torch.transpose)
    atens = ("aten.permute.default", "aten.transpose.int")

    @classmethod
    def of_function(cls, call: FunctionCall) -> Permute | None:
        """``permute`` and ``transpose`` with axes that are numbers."""
        if call.target in ("transpose", torch.transpose):
            return cls._of((call.argument(1, "dim0"), call.argument(2, "dim1")), exchanged=True)
        return cls._of(call.args[1:] if len(call.args) > 2 else call.argument(1, "dims"))

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Permute | None:
        """The same by torch.export."""
        exchanged = call.aten == "aten.transpose.int"
        return cls._of(call.args[1:] if exchanged else call.args[1], exchanged=exchanged)

    @classmethod
    def _of(cls, dims: object, *, exchanged: bool = False) -> Permute | None:
        known = isinstance(dims, list | tuple) and all(isinstance(d, int) for d in dims)
        return cls(tuple(dims), exchanged) if known and isinstance(dims, list | tuple) else None

    def order(self, ndim: int) -> list[int]:
        """Which axis of the input every axis of the result is.

        >>> Permute((0, 2), exchanged=True).order(3), Permute((1, 2, 0)).order(3)
        ([2, 1, 0], [1, 2, 0])
        """
        dims = [d % ndim for d in self.dims]
        if not self.exchanged:
            return dims
        order = list(range(ndim))
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
        return order

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The features along another axis."""
        feature, (value,) = analysis.arriving(step), step.inputs
        if feature is None:
            return None
        order = self.order(value.ndim)
        return analysis.moved(feature, order.index(feature.dim), ("permuted", *order))

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Nothing is stretched."""
        (value,) = step.inputs
        size, order = sizes.of(value), self.order(value.ndim)
        rows, axis = (d if d in (None, LOST) else order.index(d) for d in (size.rows, size.axis))
        return dataclasses.replace(size, rows=rows, axis=axis)


@dataclass(frozen=True)
class Slice(Operation):
    """Whole axes, parts of axes (``dims``) and single places, where the axis goes (``dropped``)."""

    dims: tuple[int, ...]
    dropped: tuple[int, ...] = ()

    functions = (operator.getitem,)
    atens = ("aten.slice.Tensor", "aten.select.int")

    @classmethod
    def of_function(cls, call: FunctionCall) -> Slice | None:
        """``x[:, 0]`` and the like."""
        x = call.tensor(call.args[0])
        if x is None:
            return None
        index = call.args[1]
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > x.ndim or not all(
            isinstance(p, slice) or (isinstance(p, int) and not isinstance(p, bool)) for p in parts
        ):
            return None
        dims = tuple(d for d, part in enumerate(parts) if isinstance(part, slice) and part != slice(None))
        return cls(dims, tuple(d for d, part in enumerate(parts) if isinstance(part, int)))

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Slice:
        """The same by torch.export, one axis at a time."""
        return cls((), (call.args[1],)) if call.aten == "aten.select.int" else cls((call.argument(1, "dim", 0),))

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """A part of the positions; a part of the features stays."""
        feature, (value,) = analysis.arriving(step), step.inputs
        if feature is None:
            return None
        dims, dropped = ([d % value.ndim for d in some] for some in (self.dims, self.dropped))
        if feature.dim in (*dims, *dropped):
            return analysis.unknown(step)
        dim = feature.dim - sum(d < feature.dim for d in dropped)
        return analysis.moved(feature, dim, analysis.source("sliced", step))

    def size(self, step: Step, sizes: Sizes) -> Size:
        """No part is longer than the whole."""
        (value,) = step.inputs
        size = sizes.of(value)
        dims, dropped = ({d % value.ndim for d in some} for some in (self.dims, self.dropped))
        if size.rows in dropped:  # one row is left
            size = dataclasses.replace(size, rows=None)
        size = size.lost() if size.rows in dims else size
        size = size.along(None) if size.axis in dropped else size
        rows, axis = (without(d, dropped) for d in (size.rows, size.axis))
        return size.mapped(lambda s: s, rows=rows, axis=axis)

    def keeps_the_last_axis(self, ndim: int) -> bool:
        """Whether vectors along the last axis are whole."""
        return all(d % ndim != ndim - 1 for d in (*self.dims, *self.dropped))


@dataclass(frozen=True)
class SizeOf(Operation):
    """Asks for the lengths of axes: ``x.size(0)``, ``x.shape[0]``; ``x.device`` and the like ask for none."""

    dims: tuple[int, ...] = ()

    functions = (getattr, "size")

    @classmethod
    def of_function(cls, call: FunctionCall) -> SizeOf | None:
        """Of axes that are known; else it may ask for any."""
        if call.target is getattr and call.args[1] != "shape":
            return cls() if call.args[1] in ("device", "dtype", "ndim") else None
        dim = call.argument(1, "dim") if call.target == "size" else None
        if dim is not None:
            return cls((dim,)) if isinstance(dim, int) else None
        asked = [user.args[1] if user.target is operator.getitem else None for user in call.node.users]
        dims = tuple(d for d in asked if isinstance(d, int))
        return cls(dims) if len(dims) == len(asked) else None

    def follow(self, step: Step, analysis: Analysis) -> None:
        """A feature axis whose length is asked for stays."""
        feature, (value,) = analysis.arriving(step), step.inputs
        if feature is not None and any(d % value.ndim == feature.dim for d in self.dims):
            analysis.pin(feature, Why(Reason.LENGTH_ASKED, step.name))
