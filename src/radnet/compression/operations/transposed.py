"""nn.ConvTranspose1d, 2d, 3d: every position gives its image, tap by tap, to several others."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..bounds.lengths import Lengths, Size, Stretch
from ..bounds.sizes import Sizes, restricted
from ..program import Operation, Step, Unknown
from ..reasons import Cause, Reason
from ..spaces.coordinates import Change, changed_layer
from ..spaces.features import Feature
from ..spaces.follow import Analysis, Use
from ..spaces.layouts import Layout
from ..spaces.spans import double
from ..spaces.taps import follow_taps

if TYPE_CHECKING:
    from jaxtyping import Float

ConvTransposeNd = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@dataclass(frozen=True, eq=False)
class TransposedConvolution(Operation):
    """A transposed convolution: which taps reach a position depends on the position, so a constant is a direction.

    Its weight has the shape (in, out, taps...).
    """

    module: ConvTransposeNd

    classes = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    calls = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    layer_atens = {  # noqa: RUF012
        "aten.conv_transpose1d.default": (0, 1),
        "aten.conv_transpose2d.input": (0, 1),
        "aten.conv_transpose3d.input": (0, 1),
    }

    @classmethod
    def of_module(cls, module: ConvTransposeNd) -> Operation:
        """One without groups."""
        return cls(module) if module.groups == 1 else Unknown(Cause(Reason.GROUPED), module)

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The sum over taps of the images of what they see, each with its constant or without."""
        m = self.module
        geometry = ("transposed", m.kernel_size, m.stride, m.dilation, m.padding, m.output_padding)
        return follow_taps(step, analysis, m.weight.transpose(0, 1), m.bias, geometry, zeros=True)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """As for a convolution: a position is seen once through each tap; r is missing where a tap does not reach."""
        m, (value,) = self.module, step.inputs
        u = sizes.of(value)
        u = (u if value.ndim == m.weight.ndim and u.rows in (0, None) else u.lost()).along(1)
        reads, writes = sizes.sides(step)
        W = double(m.weight).transpose(0, 1).flatten(2)
        taps, stretch = W.shape[2], Stretch(W, W.shape[2])
        error = stretch(u.error)
        rest = sizes.rest(W, writes)
        if rest is not None:
            span = sizes.span(reads, value, 1)
            error = error.plus(Stretch(restricted(rest, span, constant=True), taps)(u.norm))
        r = sizes.without_mark(reads)
        if r is not None:
            missing = sum(float((W[:, :, k] @ r).norm()) for k in range(taps))
            positions = math.inf if u.rows not in (0, None) else math.prod(step.made.shape) / m.out_channels
            error = error.plus(Lengths(missing, missing * math.sqrt(positions)))
        out = Size(stretch(u.norm), stretch(u.norm), error, u.rows, 1, why=u.why)
        return replace(out, norm=out.norm.plus(sizes.constant(m.bias, step.made, out)))

    def change(self, use: Use, layout: Layout) -> Change:
        """``U_out^T W_k^T U_in`` for every tap k."""
        change = changed_layer(use, layout, self.module.weight.transpose(0, 1), self.module.bias)
        return Change(use, {**change.tensors, "weight": change.tensors["weight"].transpose(0, 1).contiguous()})

    @classmethod
    def work(cls, weight: Float[Tensor, "in out *taps"], output: Tensor) -> int:
        """At most as many as it has taps and channels to read, for every number it gives."""
        return output.numel() * weight.shape[0] * weight[0, 0].numel()

    def resize(self, module: ConvTransposeNd) -> None:
        """The channels it shows."""
        module.in_channels, module.out_channels = module.weight.shape[:2]
