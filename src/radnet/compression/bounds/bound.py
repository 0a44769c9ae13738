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

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..operations.ends import Output
from ..program import Step
from ..spaces.follow import Analysis
from ..spaces.layouts import Layout
from .lengths import Size
from .sizes import Sizes


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
    """Follow lengths and errors through the first of the programs, which is the one of the given inputs."""
    if not any(basis is not None and basis.cut for basis in layout.bases):
        return Bound(0.0)
    sizes, outputs = Sizes(analysis, layout, inputs), list[Size]()
    for step in steps:
        if isinstance(step.operation, Output):
            outputs = [sizes.of(value) for value in step.inputs if _has_parts(value.dtype)]
            break
        sizes.take(step)
    total = math.hypot(*(size.error.row for size in outputs))
    if math.isfinite(total):
        return Bound(total)
    return Bound(None, next(why for why in map(_reason, outputs) if why))


def _reason(size: Size) -> str:
    if math.isfinite(size.error.row):
        return ""
    if not size.why and math.isfinite(size.error.each):
        return "the rows of the inputs are mixed"
    return size.why or "hidden vectors can be of any length"


def _has_parts(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
