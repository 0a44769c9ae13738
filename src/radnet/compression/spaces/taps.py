"""Follow a sum over taps: what convolutions of every kind do to the set of what can stand along the channels."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from torch import Tensor

from ..program import Step
from ..reasons import Reason, Why
from .features import Feature
from .follow import Analysis, Use
from .spans import AffineSet, Lazy, double, total

if TYPE_CHECKING:
    from jaxtyping import Float


def follow_taps(
    step: Step,
    analysis: Analysis,
    W: Float[Tensor, "out in *taps"],
    b: Float[Tensor, " out"] | None,
    geometry: Hashable,
    *,
    zeros: bool,
) -> Feature | None:
    """The sum over taps of the images of what they see along axis 1, for any kind of convolution.

    Parameters
    ----------
    step, analysis
        As for `Operation.follow`.
    W : Tensor
        Of shape (out, in, taps...).
    b : Tensor, optional
        The bias.
    geometry : Hashable
        Where the taps lie: two convolutions of the same geometry see the same positions.
    zeros : bool
        Whether a tap sees nothing at some positions, so that the constant is a direction like others.
    """
    (value,), feature = step.inputs, analysis.arriving(step)
    if value.ndim != W.ndim or (feature is not None and (feature.dim != 1 or feature.inner != 1)):
        analysis.pin(feature, Why(Reason.OTHER_AXIS, step.name))
        analysis.uses.append(Use(step, None, None))
        return None
    span = analysis.span_of(value, feature, W.shape[1], 1)

    def image() -> AffineSet:
        seen = [AffineSet(len(W), None if b is None else double(b))]
        for k, tap in enumerate(W.flatten(2).unbind(2)):
            read = span.get().renamed(("tap", geometry, k), analysis.names)
            read = read.with_constant_as_direction(("edge", geometry, k, value)) if zeros else read
            seen.append(read.mapped(tap, None))
        return total(seen)

    out = analysis.write(step, len(W), Lazy(image, (span,)), 1)
    analysis.uses.append(Use(step, feature, out, at_edges=zeros))
    return out
