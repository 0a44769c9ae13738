"""Means over windows and over axes: mixtures of positions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.nn import functional as F  # noqa: N812

from ..bounds.lengths import Size, gradient_of_sum, product
from ..bounds.sizes import Sizes, without
from ..program import FunctionCall, Operation, Step, Value, values_in
from ..spaces.features import Feature
from ..spaces.follow import Analysis

_WINDOWS = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_ADAPTIVE = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
_WINDOW_LAYERS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_ADAPTIVE_LAYERS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


@dataclass(frozen=True)
class Pool(Operation):
    """Means over windows along the last axes; zeros beyond the edge may count as positions."""

    zeros: bool
    axes: int
    module: nn.Module | None = dataclasses.field(default=None, compare=False)

    classes = (*_WINDOW_LAYERS, *_ADAPTIVE_LAYERS)
    calls = tuple(f"{kind}avg_pool{n}d" for n in (1, 2, 3) for kind in ("", "adaptive_"))
    functions = (*_WINDOWS, *_ADAPTIVE)
    atens = tuple(f"aten.{kind}avg_pool{n}d.default" for n in (1, 2, 3) for kind in ("", "adaptive_", "_adaptive_"))

    @classmethod
    def of_module(cls, module: nn.AvgPool2d) -> Pool | None:
        """A pooling layer without a divisor of its own."""
        for layers in (_WINDOW_LAYERS, _ADAPTIVE_LAYERS):
            for axes, layer in enumerate(layers, start=1):
                if isinstance(module, layer) and layers is _ADAPTIVE_LAYERS:
                    return cls(False, axes, module)
                if isinstance(module, layer):
                    divisor = getattr(module, "divisor_override", None)
                    return cls._windows(axes, module.padding, module.count_include_pad, divisor, module)
        return None

    @classmethod
    def of_function(cls, call: FunctionCall) -> Pool | None:
        """The functions behind the layers."""
        if call.target in _ADAPTIVE:
            return cls(False, _ADAPTIVE.index(call.target) + 1)
        return cls._called(_WINDOWS.index(call.target) + 1, call)

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Pool | None:
        """The same by torch.export."""
        axes = int(call.aten[call.aten.index("pool") + 4])
        return cls(False, axes) if "adaptive" in call.aten else cls._called(axes, call)

    @classmethod
    def _called(cls, axes: int, call: FunctionCall) -> Pool | None:
        padding, counted = call.argument(3, "padding", 0), call.argument(5, "count_include_pad", True)
        return cls._windows(axes, padding, counted, call.argument(6, "divisor_override"))

    @classmethod
    def _windows(
        cls, axes: int, padding: object, counted: object, divisor: object, module: nn.Module | None = None
    ) -> Pool | None:
        """Means over windows of so many axes; with a divisor of its own it is not a mean."""
        padded = any(padding) if isinstance(padding, list | tuple) else bool(padding)
        return cls(padded and bool(counted), axes, module) if divisor is None else None

    def operands(self, call: FunctionCall, now: Mapping[fx.Node, Value]) -> tuple[Value, ...] | None:
        """One value with rows and channels before the axes: without rows, what would be channels are positions."""
        found = values_in(call.node, now)
        return found if len(found) == 1 and found[0].ndim == self.axes + 2 else None

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The same channels at other positions."""
        feature = analysis.arriving(step)
        if feature is None:
            return None
        if feature.dim != 1 or feature.inner != 1:
            return analysis.unknown(step)
        return analysis.mixed(step, feature, 1, self.zeros)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """No mean is longer than the longest of its vectors; a row grows with how often a position is seen."""
        (value,) = step.inputs
        size = sizes.of(value)
        size = size if size.rows in (0, None) else size.lost()
        r = sizes.unread(value, size)
        size = size if size.axis == 1 and value.ndim > 2 else size.along(None)
        if self.module is None:  # its windows are not known: every position may see every other
            weight = float(math.prod(k for d, k in enumerate(step.made.shape) if d != size.rows))
        else:
            shape = (1, *value.shape[1:]) if size.rows == 0 else value.shape
            weight = float(gradient_of_sum(self.module, shape).max())
        root = math.sqrt(weight)
        out = size.mapped(lambda s: s.times(root if size.axis is None else 1.0, root))
        if self.zeros:  # the constant ends there, so r is not added again
            missing = sizes.spread_out(r.each if size.axis is not None else product(r.row, root), step.made, size)
            out = dataclasses.replace(out, spread=out.norm, error=out.error.plus(missing))
        return out


@dataclass(frozen=True)
class Mean(Operation):
    """A mean over whole axes."""

    dims: tuple[int, ...]
    keepdim: bool

    functions = ("mean", torch.mean)
    atens = ("aten.mean.dim",)

    @classmethod
    def of_function(cls, call: FunctionCall) -> Mean | None:
        """Over axes that are numbers, in the same dtype."""
        if not set(call.kwargs) <= {"dim", "keepdim"}:
            return None
        return cls._over(call.argument(1, "dim"), call.argument(2, "keepdim", False))

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Mean | None:
        """The same by torch.export."""
        return None if call.kwargs else cls._over(call.args[1], call.argument(2, "keepdim", False))

    @classmethod
    def _over(cls, dim: object, keepdim: object) -> Mean | None:
        dims = tuple(dim) if isinstance(dim, list | tuple) else (dim,)
        return cls(dims, bool(keepdim)) if dims and all(isinstance(d, int) for d in dims) else None

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The same features, if it is not over them."""
        feature, (value,) = analysis.arriving(step), step.inputs
        if feature is None:
            return None
        dims = [d % value.ndim for d in self.dims]
        if feature.dim in dims or feature.inner != 1:
            return analysis.unknown(step)
        shift = 0 if self.keepdim else sum(d < feature.dim for d in dims)
        return analysis.mixed(step, feature, feature.dim - shift, False)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """A mean of k vectors is no longer than the root of k-th of their row."""
        (value,) = step.inputs
        size = sizes.of(value)
        dims = {d % value.ndim for d in self.dims}
        within = [value.shape[d] for d in dims if d != size.rows]
        shrunk = math.prod(within) ** -0.5 if 0 not in within else 1.0
        if size.rows in dims:  # no mean of rows is longer than the longest of them
            size = dataclasses.replace(size, rows=None)
        size = size.along(None) if size.axis in dims else size
        rows, axis = size.rows, size.axis
        if not self.keepdim:
            rows, axis = (without(d, dims) for d in (rows, axis))
        return size.mapped(lambda s: s.times(1.0 if axis is not None else shrunk, shrunk), rows=rows, axis=axis)
