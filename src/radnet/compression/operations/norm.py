"""LayerNorm, RMSNorm, BatchNorm and norms written out by hand: how they are recognised.

Which of them the layers around take over is decided in `folding`. The others pin what they read; of a LayerNorm or an
RMSNorm it is known all the same what comes out.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..bounds.lengths import ANY, Size
from ..bounds.sizes import Sizes
from ..program import NOT_EQUIVARIANT, FunctionCall, Operation, Step, Unknown
from ..reasons import Cause, Reason
from ..replacements import own_eps
from ..rms_norms import rms_norm
from ..spaces.features import Feature
from ..spaces.follow import Analysis
from ..spaces.spans import AffineSet, Lazy, Part, double

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Norm(Operation):
    """LayerNorm over the last axis, or an RMSNorm of any library."""

    module: nn.Module

    classes = (nn.LayerNorm, nn.RMSNorm)
    calls = ("layer_norm", "rms_norm")
    several = True

    @classmethod
    def of_module(cls, module: nn.Module) -> Norm | None:
        """One over a single axis."""
        shape = getattr(module, "normalized_shape", None)
        return cls(module) if shape is None or len(shape) == 1 else None

    @property
    def gain(self) -> Float[Tensor, " n"] | None:
        """What the entries are multiplied by."""
        found = getattr(self.module, "weight", None)
        return found if isinstance(found, Tensor) else None

    @property
    def shift(self) -> Float[Tensor, " n"] | None:
        """What is added afterwards, by a LayerNorm."""
        found = getattr(self.module, "bias", None) if isinstance(self.module, nn.LayerNorm) else None
        return found if isinstance(found, Tensor) else None

    def follow(self, step: Step, analysis: Analysis) -> None:
        """Pin what arrives; what comes out lies in the span of it, centred for a LayerNorm, times the gain."""
        feature, (value,) = analysis.arriving(step), step.inputs
        analysis.unknown(step, analysis.kept.get(step.path or "", NOT_EQUIVARIANT))
        last = value.ndim - 1
        if feature is not None and feature.dim == last and feature.inner == 1:
            source = analysis.source("normed by", step)
            span = Lazy(lambda: self._normed(feature, source, analysis.lengths), (feature.lazy,))
            analysis.known(step.made, last, span)

    def _normed(self, feature: Feature, source: tuple[str, str, int], lengths: bool) -> AffineSet:
        centred, gain, shift = isinstance(self.module, nn.LayerNorm), self.gain, self.shift
        if not centred and gain is None and feature.span.is_full:
            return AffineSet.everything(feature.span.n, source)
        M, size = feature.span.at(slice(0, feature.span.n), constant=True)
        size = M.abs() if size is None else size
        if centred:
            M, size = M - M.mean(dim=0), size + size.mean(dim=0)
        if gain is not None:
            M, size = (double(g).unsqueeze(1) * A for g, A in ((gain, M), (gain.abs(), size)))
        c = None if shift is None else double(shift)
        return AffineSet(len(M), c, {source: Part(len(M), M, size=size)}).thinned(lengths)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Centring does not stretch, then a rescaling, a gain and a shift."""
        (value,), m = step.inputs, self.module
        axis = value.ndim - 1
        u = sizes.read(value, axis)
        rms = None if isinstance(m, nn.LayerNorm) else rms_norm(m)
        if rms is not None:
            gain, eps = rms.gain, own_eps(rms.eps, value.dtype)
        elif isinstance(m, nn.LayerNorm):
            gain, eps = m.weight, m.eps
        else:
            return sizes.unknown(step)
        g = 1.0 if gain is None else float(double(gain).abs().max())
        L = g / math.sqrt(eps) if eps > 0 else None
        size = sizes.rescaled(step, u, ANY, u.error, L, g * math.sqrt(value.shape[axis]))
        return dataclasses.replace(size, norm=size.norm.plus(sizes.constant(self.shift, value, u)))


@dataclass(frozen=True)
class BatchNorm(Operation):
    """BatchNorm in eval mode: the layer before takes it over (see `folding`), or it is not known."""

    classes = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    calls = ("batch_norm",)
    several = True

    def follow(self, step: Step, analysis: Analysis) -> None:
        """It is never a step itself."""
        analysis.unknown(step)


_SQUARES = (torch.square, "square", torch.pow, "pow", operator.pow)
_SUMS = ("mean", torch.mean, "sum", torch.sum)


@dataclass(frozen=True)
class NormByHand(Operation):
    """Functions that norms are written with. Nobody puts them together again, and the reason says so."""

    functions = (
        *_SQUARES, torch.linalg.vector_norm, torch.linalg.norm, torch.norm, "norm", nn.functional.normalize,
        nn.functional.rms_norm, nn.functional.layer_norm,
    )  # fmt: skip
    atens = (
        "aten.square.default", "aten.pow.Tensor_Scalar", "aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim",
        "aten.rms_norm.default", "aten.layer_norm.default",
    )  # fmt: skip

    @classmethod
    def of_function(cls, call: FunctionCall) -> Unknown | None:
        """An unknown operation with a reason of its own; squares only where they are summed up."""
        summed = any(user.target in _SUMS for user in call.node.users)
        return Unknown(Cause(Reason.NORM_BY_HAND)) if summed or call.target not in _SQUARES else None

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Unknown | None:
        """The same by torch.export."""
        summed = any(str(user.target).startswith(("aten.mean", "aten.sum")) for user in call.node.users)
        squares = call.aten in ("aten.square.default", "aten.pow.Tensor_Scalar")
        return Unknown(Cause(Reason.NORM_BY_HAND)) if summed or not squares else None

    def follow(self, step: Step, analysis: Analysis) -> None:
        """It is never a step itself."""
        analysis.unknown(step)
