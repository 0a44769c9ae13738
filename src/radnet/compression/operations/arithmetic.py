"""Sums of two tensors, and multiples by a number that stands in the program (one that was computed may change)."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx

from ..bounds.lengths import LOST, Size, repeated
from ..bounds.sizes import Sizes, aligned
from ..program import FunctionCall, Operation, Step, Value
from ..reasons import Reason, Why
from ..spaces.features import Feature, Ingredient
from ..spaces.follow import Analysis
from ..spaces.spans import AffineSet, Lazy, total

_ADD = (operator.add, operator.iadd, torch.add, "add", "add_")
_SUB = (operator.sub, operator.isub, torch.sub, "sub", "sub_")
_MUL = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_DIV = (operator.truediv, operator.itruediv, torch.div, torch.true_divide, "div", "div_")
_NEG = (operator.neg, torch.neg, "neg", torch.negative, "negative")
_ATEN_SIGNS = {"aten.add.Tensor": (1.0, 1.0), "aten.sub.Tensor": (1.0, -1.0)}
_ATEN_QUOTIENTS = ("aten.div.Tensor", "aten.true_divide.Tensor")


@dataclass(frozen=True)
class Add(Operation):
    """``s x + t y`` for signs s and t: what both are written in is one space."""

    signs: tuple[float, float]

    functions = (*_ADD, *_SUB)
    atens = ("aten.add.Tensor", "aten.sub.Tensor", "aten.add_.Tensor", "aten.sub_.Tensor")
    updates = True

    @classmethod
    def of_function(cls, call: FunctionCall) -> Add | None:
        """A sum or difference of two tensors without a factor."""
        if call.kwargs or len(call.node.args) != 2 or not all(call.tensor(a) is not None for a in call.node.args):
            return None
        return cls((1.0, 1.0 if call.target in _ADD else -1.0))

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Add | None:
        """The same by torch.export, also in place."""
        if call.node.kwargs or len(call.node.args) != 2 or not all(isinstance(a, fx.Node) for a in call.node.args):
            return None
        return cls(_ATEN_SIGNS[call.aten.replace("_.", ".")])

    def operands(self, call: FunctionCall, now: Mapping[fx.Node, Value]) -> tuple[Value, ...] | None:
        """Both, in their order, also if they are the same."""
        return in_order(call.args[:2], now)

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The sum of both spans; entries at the same place are one."""
        (a, b), (x, y), ndim = analysis.inputs(step), step.inputs, step.made.ndim
        if a is None or b is None or not _alike(a, x, b, y, ndim):
            reason = Reason.ADDS_UNFOLLOWED if a is None or b is None else Reason.OTHER_SHAPE
            for feature in (a, b):
                analysis.pin(feature, Why(reason, step.name))
            return None
        analysis.features.unite(a.entries, b.entries)
        source, terms = analysis.source("sum", step), list(zip((a, b), (x, y), self.signs, strict=True))

        def span() -> AffineSet:
            spread = (
                f.span if v.shape == step.made.shape else f.span.renamed(("spread", v.shape), analysis.names)
                for f, v, _ in terms
            )
            scaled = [one.scaled(sign) for one, (_, _, sign) in zip(spread, terms, strict=True)]
            return total(scaled).limited(source, analysis.lengths)

        made_of = [Ingredient(a, self.signs[0]), Ingredient(b, self.signs[1])]
        lazy = Lazy(span, (a.lazy, b.lazy))
        return analysis.features.feature(a.entries, ndim - x.ndim + a.dim, a.inner, lazy, made_of)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Lengths and errors add up; what is broadcast is there several times."""
        ndim, parts = step.made.ndim, []
        for value, sign in zip(step.inputs, self.signs, strict=True):
            size = sizes.of(value).scaled(abs(sign))
            lift = ndim - value.ndim
            rows, axis = (d if d in (None, LOST) else d + lift for d in (size.rows, size.axis))
            parts.append((dataclasses.replace(size, rows=rows, axis=axis), (1,) * lift + value.shape))
        both = aligned([size for size, _ in parts])
        a, b = (repeated(size, shape, step.made.shape) for size, (_, shape) in zip(both, parts, strict=True))
        why = a.why or b.why
        return Size(a.norm.plus(b.norm), a.spread.plus(b.spread), a.error.plus(b.error), a.rows, a.axis, why=why)


def _alike(a: Feature, x: Value, b: Feature, y: Value, ndim: int) -> bool:
    same_axis = ndim - x.ndim + a.dim == ndim - y.ndim + b.dim
    return same_axis and a.inner == b.inner and len(a.entries) == len(b.entries)


def in_order(operands: object, now: Mapping[fx.Node, Value]) -> tuple[Value, ...] | None:
    """The values of nodes in their order, twice if they are there twice; None if one of them is no value."""
    if not isinstance(operands, list | tuple) or not operands:
        return None
    found = [now.get(n) if isinstance(n, fx.Node) else None for n in operands]
    values = tuple(value for value in found if value is not None)
    return values if len(values) == len(found) else None


@dataclass(frozen=True)
class Scale(Operation):
    """A multiple by a number."""

    factor: float

    functions = (*_NEG, *_MUL, *_DIV)
    atens = tuple(
        f"aten.{name}{place}.{kind}"
        for name, kind in (("neg", "default"), ("mul", "Tensor"), ("div", "Tensor"), ("true_divide", "Tensor"))
        for place in ("", "_")
    )
    updates = True

    @classmethod
    def of_function(cls, call: FunctionCall) -> Scale | None:
        """``-x``, ``a x``, ``x a`` and ``x / a`` for a number a in the program."""
        if call.target in _NEG:
            return cls(-1.0)
        args = call.node.args
        if call.kwargs or len(args) != 2:
            return None
        tensors = [call.tensor(a) is not None for a in args]
        number = args[0] if tensors[1] else args[1]
        if sum(tensors) != 1 or isinstance(number, bool) or not isinstance(number, int | float):
            return None
        if call.target in _MUL:
            return cls(float(number))
        return cls(1 / float(number)) if tensors[0] and number else None

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Scale | None:
        """The same by torch.export, also in place."""
        name, args = call.aten.replace("_.", "."), call.node.args
        if name == "aten.neg.default":
            return cls(-1.0)
        if call.node.kwargs or len(args) != 2 or not isinstance(args[0], fx.Node):
            return None
        number = args[1]
        if not isinstance(number, int | float):
            return None
        if name == "aten.mul.Tensor":
            return cls(float(number))
        return cls(1 / float(number)) if name in _ATEN_QUOTIENTS and number else None

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The same entries, scaled."""
        feature = analysis.arriving(step)
        if feature is None:
            return None
        if not math.isfinite(self.factor):
            return analysis.unknown(step)
        return analysis.scaled(feature, self.factor)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Everything is scaled."""
        return sizes.of(step.inputs[0]).scaled(abs(self.factor)) if math.isfinite(self.factor) else sizes.unknown(step)
