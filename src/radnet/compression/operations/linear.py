"""nn.Linear: ``W x + b`` along the last axis, at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..bounds.lengths import Size, Stretch
from ..bounds.sizes import Sizes, restricted
from ..program import Operation, Step
from ..reasons import Reason, Why
from ..spaces.coordinates import Change, changed_layer
from ..spaces.features import Feature
from ..spaces.follow import Analysis, Use
from ..spaces.layouts import Layout
from ..spaces.spans import AffineSet, Lazy, double

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Linear(Operation):
    """A linear layer: maps the span of what it reads, ``b + W c`` and ``W D``."""

    module: nn.Linear

    classes = (nn.Linear,)
    calls = ("linear",)
    layer_atens = {"aten.linear.default": (0, 1)}  # noqa: RUF012

    @classmethod
    def of_module(cls, module: nn.Linear) -> Linear:
        """Every linear layer is one."""
        return cls(module)

    def follow(self, step: Step, analysis: Analysis) -> Feature:
        """The image of what it reads; a feature along another axis than the last is mixed and stays."""
        m, (value,), feature = self.module, step.inputs, analysis.arriving(step)
        last = value.ndim - 1
        if feature is not None and feature.dim != last:
            analysis.pin(feature, Why(Reason.MIXES_POSITIONS, step.who))
            feature, span = None, analysis.anything(m.in_features, ("value", value, last))
        else:
            span = analysis.span_of(value, feature, m.in_features, last)
        inner = 1 if feature is None else feature.inner

        def image() -> AffineSet:
            read = span.get()  # each position of a flattened axis is a source of its own
            apart = read if inner == 1 else read.renamed(("positions", inner), analysis.names)
            return apart.mapped(m.weight, m.bias, inner)

        out = analysis.write(step, m.out_features, Lazy(image, (span,)), step.made.ndim - 1)
        analysis.uses.append(Use(step, feature, out))
        return out

    def size(self, step: Step, sizes: Sizes) -> Size:
        """``w - w' = U U^T W (u - u') + P W (u - c_u)``."""
        m, (value,) = self.module, step.inputs
        axis = value.ndim - 1
        u = sizes.read(value, axis)
        reads, writes = sizes.sides(step)
        span, W = sizes.span(reads, value, axis), double(m.weight)
        stretch = Stretch(W.unsqueeze(2))
        spread = u.spread if reads is not None else u.norm.plus(sizes.constant(span.c, value, u))
        error = stretch(u.error)
        rest = sizes.rest(W.reshape(len(W), span.n, -1), writes)
        if rest is not None:
            missing = restricted(rest, span, constant=False).flatten(1).unsqueeze(2)
            error = error.plus(Stretch(missing)(spread))
        b = sizes.constant(m.bias, value, u)
        return Size(stretch(u.norm).plus(b), stretch(spread), error, u.rows, axis, why=u.why)

    def change(self, use: Use, layout: Layout) -> Change:
        """``U_out^T W U_in``."""
        return changed_layer(use, layout, self.module.weight, self.module.bias)

    @classmethod
    def work(cls, weight: Float[Tensor, "out in"], output: Tensor) -> int:
        """As many as it reads, for every number it gives."""
        return output.numel() * weight[0].numel()

    def resize(self, module: nn.Linear) -> None:
        """The widths it shows."""
        module.out_features, module.in_features = module.weight.shape
