"""Concatenation of tensors along an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx

from ..bounds.lengths import ANY, Lengths, Size
from ..bounds.sizes import Sizes, aligned
from ..program import FunctionCall, Operation, Step, Value
from ..reasons import Reason, Why
from ..spaces.features import Feature, Ingredient
from ..spaces.follow import Analysis, cumulated
from ..spaces.spans import Lazy, stacked
from .arithmetic import in_order


@dataclass(frozen=True)
class Concatenate(Operation):
    """Features side by side, each part a space of its own."""

    dim: int

    functions = (torch.cat, torch.concat)
    atens = ("aten.cat.default", "aten.concat.default")

    @classmethod
    def of_function(cls, call: FunctionCall) -> Concatenate | None:
        """Along an axis that stands in the program."""
        dim = call.argument(1, "dim", 0)
        return cls(dim) if set(call.kwargs) <= {"tensors", "dim"} and isinstance(dim, int) else None

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Concatenate | None:
        """The same by torch.export."""
        dim = call.argument(1, "dim", 0)
        return cls(dim) if isinstance(dim, int) else None

    def operands(self, call: FunctionCall, now: Mapping[fx.Node, Value]) -> tuple[Value, ...] | None:
        """All parts in their order, but for ``torch.empty(0)``, which PyTorch leaves out whatever the others are."""
        parts = in_order(call.argument(0, "tensors"), now)
        most = max((part.ndim for part in parts or ()), default=0)
        return parts and tuple(part for part in parts if part.ndim == most or part.shape != (0,))

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The entries of all parts; what is not followed becomes a part that stays."""
        features, dim = analysis.inputs(step), self.dim % step.made.ndim
        followed = [f for f in features if f is not None]
        if not followed or any(f.dim != dim or f.inner != 1 for f in followed):
            for f in followed:
                analysis.pin(f, Why(Reason.JOINED, step.name))
            return None
        parts = [analysis.fixed(value, dim) if f is None else f for f, value in zip(features, step.inputs, strict=True)]
        starts = cumulated([len(f.entries) for f in parts])
        made_of = [Ingredient(f, 1.0, int(start)) for f, start in zip(parts, starts, strict=False)]
        span = Lazy(lambda: stacked(f.span for f in parts), [f.lazy for f in parts])
        return analysis.features.feature(np.concatenate([f.entries for f in parts]), dim, 1, span, made_of)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Squares of lengths add up."""
        dim = self.dim % step.made.ndim
        parts = [sizes.of(value) for value in step.inputs]
        if any(size.rows == dim for size in parts):
            parts = [size.lost() for size in parts]
        parts = aligned(parts)
        axis = parts[0].axis

        def joined(lengths: Sequence[Lengths]) -> Lengths:
            row = math.hypot(*(s.row for s in lengths))
            if axis is None:
                return Lengths(row, row)
            each = [s.each for s in lengths]
            return Lengths(math.hypot(*each) if axis == dim else max(each), row)

        followed = all(sizes.analysis.of.get(value) is not None for value in step.inputs)
        return Size(
            joined([s.norm for s in parts]),
            joined([s.spread for s in parts]) if followed else ANY,  # others have no constant of their own here
            joined([s.error for s in parts]),
            parts[0].rows,
            axis,
            why=next((s.why for s in parts if s.why), ""),
        )
