"""Models worth compressing, each a few lines on the core.

Paper: "Conclusions and Discussion" names convolutional networks, and blocks that combine radial and pointwise
activations, as the next things to try. `radnet.compress` knows all of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .activations import RadialActivation, Shift
from .choosing import as_activation
from .errors import InvalidValue


class RadialConv2d(nn.Sequential):
    """A convolution and a radial activation over its channels.

    Parameters
    ----------
    in_channels, out_channels, kernel_size
        Of the convolution; further keywords (stride, padding, ...) go to it too.
    activation : str or RadialActivation
        A name as in `RadNet`; it is applied along the channels.

    Examples
    --------
    >>> import torch, radnet
    >>> from radnet.models import RadialConv2d
    >>> net = nn.Sequential(RadialConv2d(1, 64, 3), RadialConv2d(64, 128, 3), nn.Flatten(), nn.Linear(128 * 16, 10))
    >>> small = radnet.compress(net, torch.randn(4, 1, 8, 8)).network
    >>> small[0][0].out_channels, small[1][0].out_channels
    (10, 91)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        activation: str = "squash",
        *,
        shift: Shift = None,
        **keywords: Any,
    ) -> None:
        super().__init__(nn.Conv2d(in_channels, out_channels, kernel_size, **keywords), _along(activation, 1, shift))
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "kernel_size": kernel_size}
        self.made_with = _plain({**sizes, "activation": activation, "shift": shift, **keywords})


class ResidualRadialMLP(nn.Module):
    """A residual stream, ``x <- x + W2 rho(W1 x + b1) + b2`` so many times, between two linear layers.

    Parameters
    ----------
    in_features, out_features : int
    width : int
        Of the stream.
    hidden : int
        Of each block.
    depth : int
        How many blocks.
    activation : str
        A name as in `RadNet`.

    Examples
    --------
    >>> import radnet
    >>> from radnet.models import ResidualRadialMLP
    >>> c = radnet.compress(ResidualRadialMLP(3, 2, width=64, hidden=256, depth=3))
    >>> [space.after for space in c.spaces]
    [32, 4, 8, 16, 2]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        width: int,
        hidden: int,
        depth: int,
        activation: str = "squash",
        shift: Shift = None,
    ) -> None:
        super().__init__()
        if min(in_features, out_features, width, hidden) < 1 or depth < 0:
            raise InvalidValue("ResidualRadialMLP: sizes must be at least 1, and depth at least 0")
        self.stem = nn.Linear(in_features, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), _along(activation, -1, shift), nn.Linear(hidden, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, out_features)
        sizes = {"in_features": in_features, "out_features": out_features, "width": width, "hidden": hidden}
        self.made_with = _plain({**sizes, "depth": depth, "activation": activation, "shift": shift})

    def forward(self, x: Tensor) -> Tensor:
        """The output; x of shape (..., in_features)."""
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.head(x)
        return out


class BlockRadialMLP(nn.Sequential):
    """Linear layers whose activations rescale blocks of a few entries each: 1 is pointwise, the whole width is radial.

    Parameters
    ----------
    widths : sequence of int
    block : int
        Entries of a block; every hidden width is a multiple of it.
    activation : str
        A name as in `RadNet`.

    Examples
    --------
    >>> import radnet
    >>> from radnet.models import BlockRadialMLP
    >>> c = radnet.compress(BlockRadialMLP((3, 24, 2), block=8))
    >>> [space.after for space in c.spaces]
    [4, 4, 4, 2]
    """

    def __init__(self, widths: Sequence[int], *, block: int, activation: str = "squash", shift: Shift = None) -> None:
        modules: list[nn.Module] = []
        for n, m in itertools.pairwise(widths):
            modules += [nn.Linear(n, m), _along(activation, -1, shift, m, block)]
        if len(widths) < 2 or block < 1 or any(n % block for n in widths[1:-1]):
            raise InvalidValue(f"BlockRadialMLP: widths {tuple(widths)} do not split into blocks of {block}")
        super().__init__(*modules[:-1])
        self.made_with = _plain({"widths": list(widths), "block": block, "activation": activation, "shift": shift})


def _plain(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments that a file can hold, so that `radnet.load` makes the same model again; None if it cannot."""
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return arguments


def _along(name: str, dim: int, shift: Shift, width: int = 1, block: int = 0) -> RadialActivation:
    """An activation by its name, along another axis or in blocks."""
    rho = as_activation(name, "activation", shift, None, None)
    rho.dim = dim
    if block:
        rho.blocks = max(width // block, 1)
    return rho
