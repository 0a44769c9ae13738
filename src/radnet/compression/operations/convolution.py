"""nn.Conv1d, 2d, 3d: a linear layer for every tap of the kernel, along axis 1."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..bounds.lengths import LOST, ConvNd, Size, Stretch, beyond_the_edge, times_seen
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


@dataclass(frozen=True, eq=False)
class Convolution(Operation):
    """A convolution: every tap sees the span at another position, and zero padding makes a constant a direction."""

    module: ConvNd

    classes = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    calls = ("conv1d", "conv2d", "conv3d", "pad")
    layer_atens = {  # noqa: RUF012
        f"aten.conv{n}d.{overload}": (0, 1) for n in (1, 2, 3) for overload in ("default", "padding")
    }

    @classmethod
    def of_module(cls, module: ConvNd) -> Operation:
        """One without groups."""
        return cls(module) if module.groups == 1 else Unknown(Cause(Reason.GROUPED), module)

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The sum over taps of the images of what they see; at the edges some see zeros."""
        m = self.module
        geometry = ("convolution", m.kernel_size, m.stride, m.dilation, m.padding, m.padding_mode)
        return follow_taps(step, analysis, m.weight, m.bias, geometry, zeros=padded_with_zeros(m))

    def size(self, step: Step, sizes: Sizes) -> Size:
        """As for a linear layer, with every position seen through several windows; r is missing beyond the edge."""
        m, (value,) = self.module, step.inputs
        batched = value.ndim == m.weight.ndim
        axis = 1 if batched else 0
        u = sizes.of(value)
        u = (u if batched and u.rows in (0, None) else u.lost()).along(axis)
        reads, writes = sizes.sides(step)
        span, zeros = sizes.span(reads, value, axis), padded_with_zeros(m)
        spread = u.spread if reads is not None else u.norm.plus(sizes.constant(span.c, value, u))
        spread = u.norm if zeros else spread  # at the edges the constant ends, so it is a direction like others
        W, space = double(m.weight).flatten(2), value.shape[axis + 1 :]
        seen, once = times_seen(m, space), m.padding_mode == "zeros"
        stretch = Stretch(W, seen, once=once)
        error = stretch(u.error)
        rest = sizes.rest(W, writes)
        if rest is not None:
            error = error.plus(Stretch(restricted(rest, span, constant=zeros), seen, once=once)(spread))
        r = sizes.without_mark(reads) if zeros else None
        if r is not None:
            copies = value.shape[0] if batched and u.rows is None else math.inf if u.rows == LOST else 1
            error = error.plus(beyond_the_edge(m, space, r).times(1.0, math.sqrt(copies)))
        out = Size(stretch(u.norm), stretch(spread), error, u.rows, axis, why=u.why)
        return dataclasses.replace(out, norm=out.norm.plus(sizes.constant(m.bias, step.made, out)))

    def change(self, use: Use, layout: Layout) -> Change:
        """``U_out^T W_k U_in`` for every tap k."""
        return changed_layer(use, layout, self.module.weight, self.module.bias)

    @classmethod
    def work(cls, weight: Float[Tensor, "out in *taps"], output: Tensor) -> int:
        """As many as a window has numbers, for every number it gives."""
        return output.numel() * weight[0].numel()

    def resize(self, module: ConvNd) -> None:
        """The channels it shows."""
        module.out_channels, module.in_channels = module.weight.shape[:2]


def padded_with_zeros(m: ConvNd) -> bool:
    """Whether a convolution sees zeros beyond the edge.

    >>> padded_with_zeros(nn.Conv1d(1, 1, 3, padding=1)), padded_with_zeros(nn.Conv1d(1, 1, 3))
    (True, False)
    """
    if m.padding_mode != "zeros":
        return False
    if isinstance(m.padding, str):
        return bool(m.padding != "valid") and any(k > 1 for k in m.kernel_size)
    return any(p > 0 for p in m.padding)
