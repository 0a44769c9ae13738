"""Models worth compressing, each a few lines on the core.

Paper: "Conclusions and Discussion" names convolutional networks, and blocks that combine radial and pointwise
activations, as the next things to try. `radnet.compress` knows all of them.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .activations import PerBlock, RadialActivation, Shift, named_activation
from .block_weights import draw_chain, draw_stream, draw_waves
from .checks import check_number, check_size, is_whole
from .choosing import as_activation
from .errors import InvalidType, InvalidValue
from .initialization import draw_like_linear
from .widths import check_widths

#: of the norms in a residual stream, the same in every dtype
EPS = 1e-6
#: arguments as a file holds them
Said = dict[str, Any]


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
    """Linear layers whose activations rescale many small blocks, each by its own norm and with a shift of its own.

    Blocks of 1 are pointwise, one block is radial; blocks of 3 with the profile ``sin(r - t)`` fit more for
    the weights they take than one norm a layer does (docs/study.md sets them beside others). Weights are drawn so that
    the norms of blocks stay level with depth for inputs of variance 1.

    Parameters
    ----------
    in_features : int
        Or all widths at once, as in ``BlockRadialMLP((3, 24, 2), block=8)``: then with ``activation`` "squash", no
        shift, and the weights that ``nn.Linear`` draws, unless said otherwise.
    hidden : sequence of (blocks, size)
        How many blocks each hidden layer has, and how many entries a block.
    out_features : int
    block : int
        Entries of a block, where all widths are given at once; every hidden width is a multiple of it.
    profile : str
        A name as in `RadNet`; "sin" unless widths are given at once. ``activation`` is the same.
    shift : "auto", None, float, "trainable", "per_block" or sequence
        As in `RadialActivation`; "auto" is "per_block" unless widths are given at once.
    scale : None, float, "trainable", "per_block" or sequence
        As in `RadialActivation`.
    residual : bool
        Each hidden layer is added to a stream as wide as the first one, and reads it through an RMSNorm.
    generator : torch.Generator, optional
        For the weights.
    device, dtype
        Of the parameters.

    Examples
    --------
    >>> import torch, radnet
    >>> from radnet.models import BlockRadialMLP
    >>> net = BlockRadialMLP(8, [(40, 3), (20, 3)], 1)
    >>> net(torch.randn(5, 8)).shape
    torch.Size([5, 1])
    >>> c = radnet.compress(BlockRadialMLP(3, [(4, 16)], 2))
    >>> [space.after for space in c.spaces]
    [4, 4, 4, 4, 2]
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        hidden: Sequence[tuple[int, int]] | None = None,
        out_features: int | None = None,
        *,
        block: int | None = None,
        profile: str | None = None,
        activation: str | None = None,
        shift: PerBlock | Literal["auto"] = "auto",
        scale: PerBlock = None,
        residual: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if profile is not None and activation is not None:
            raise InvalidValue(f"BlockRadialMLP: profile={profile!r} and activation={activation!r}: give one of them")
        sizes = _sizes(in_features, hidden, out_features, block)
        n, layers, m = sizes.inputs, sizes.hidden, sizes.outputs
        name = profile or activation or ("sin" if sizes.widths is None else "squash")
        if isinstance(shift, str) and shift == "auto":
            shift = "per_block" if sizes.widths is None else None
        linear = functools.partial(nn.Linear if sizes.widths is not None else _undrawn, device=device, dtype=dtype)
        rescaling = functools.partial(named_activation, name, shift=shift, scale=scale, device=device, dtype=dtype)
        parts: list[nn.Module] = []
        width = n
        if residual and layers:
            width = math.prod(layers[0])
            parts.append(linear(n, width))
            for k, size in layers:
                norm = nn.RMSNorm(width, EPS, device=device, dtype=dtype)
                parts.append(ResidualBlock(norm, linear(width, k * size), rescaling(blocks=k), linear(k * size, width)))
        else:
            for k, size in layers:
                parts += [linear(width, k * size), rescaling(blocks=k)]
                width = k * size
        super().__init__(*parts, linear(width, m))
        if sizes.widths is None:
            self._draw(generator)
        elif generator is not None:
            with torch.no_grad():
                for layer in self.modules():
                    if isinstance(layer, nn.Linear):
                        draw_like_linear(layer.weight, layer.bias, generator)
        said = {**sizes.said(), "activation": name, "shift": shift}
        more = {"scale": scale, "residual": residual}
        self.made_with = _plain({**said, **({} if scale is None and not residual else more)})

    def _draw(self, generator: torch.Generator | None) -> None:
        """Level norms."""
        stream = [part for part in self if isinstance(part, ResidualBlock)]
        first, head = self[0], self[-1]
        if stream and isinstance(first, nn.Linear):
            draw_stream(first, [(part.up, part.rho, part.down) for part in stream], head, generator)  # type: ignore[arg-type]
        else:
            draw_chain(list(_fed(self)), head, generator)  # type: ignore[arg-type]

    @classmethod
    def of_header(cls, said: Said) -> BlockRadialMLP:
        """One with the arguments that a file holds."""
        said = dict(said)
        if "widths" in said:
            return cls(said.pop("widths"), **said)
        return cls(said.pop("in_features"), said.pop("hidden"), said.pop("out_features"), **said)


class ResidualBlock(nn.Module):
    """``x + down(rho(up(norm(x))))``."""

    def __init__(self, norm: nn.Module, up: nn.Linear, rho: RadialActivation, down: nn.Linear) -> None:
        super().__init__()
        self.norm, self.up, self.rho, self.down = norm, up, rho, down

    def forward(self, x: Tensor) -> Tensor:
        """A stream of the same width; x of shape (..., width)."""
        out: Tensor = x + self.down(self.rho(self.up(self.norm(x))))
        return out


class CoordinateNet(BlockRadialMLP):
    """From coordinates in [-1, 1] to what is there: images, signed distances, fields.

    A `BlockRadialMLP` whose first layer begins as waves: each of its blocks rescales ``v = W x + b`` to
    ``sin(|v| - t) v/|v|``, with W as large as the frequency says, and b and t anywhere in [-pi, pi].

    Parameters
    ----------
    in_features, out_features : int
    hidden : sequence of (blocks, size)
    frequency : float
        How many radians the argument of the sine runs through from the middle of the domain to its edge.
    **keywords
        As for `BlockRadialMLP`.

    Examples
    --------
    >>> import torch
    >>> from radnet.models import CoordinateNet
    >>> CoordinateNet(2, 3)(torch.zeros(7, 2)).shape
    torch.Size([7, 3])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden: Sequence[tuple[int, int]] = ((64, 3), (64, 3)),
        *,
        frequency: float = 30.0,
        generator: torch.Generator | None = None,
        **keywords: Any,
    ) -> None:
        if check_number("frequency", frequency) <= 0:
            raise InvalidValue(f"frequency={frequency!r}: expected a number above 0")
        check_size("CoordinateNet: in_features", _plain_int(in_features))
        if keywords.get("residual"):
            raise InvalidValue(
                "CoordinateNet: residual=True would leave only the directions of what the first layer gives"
            )
        super().__init__(in_features, hidden, out_features, generator=generator, **keywords)
        if self.made_with is not None:
            self.made_with["frequency"] = float(frequency)
        draw_waves(list(_fed(self)), frequency, generator)

    @classmethod
    def of_header(cls, said: Said) -> CoordinateNet:
        """One with the arguments that a file holds."""
        said = dict(said)
        return cls(said.pop("in_features"), said.pop("out_features"), said.pop("hidden"), **said)


def _undrawn(n: int, m: int, device: torch.device | str | None, dtype: torch.dtype | None) -> nn.Linear:
    """A linear layer whose weights are drawn later, so that torch's own random numbers are left alone."""
    layer = nn.Linear(n, m, device="meta", dtype=dtype)
    return layer.to_empty(device=torch.get_default_device() if device is None else device)


def _fed(net: nn.Sequential) -> Iterator[tuple[nn.Linear, RadialActivation]]:
    """The layers of a model in blocks that write what is rescaled, with the activations."""
    for a, b in itertools.pairwise(net):
        if isinstance(a, ResidualBlock):
            yield a.up, a.rho
        elif isinstance(a, nn.Linear) and isinstance(b, RadialActivation):
            yield a, b


class _Sizes(NamedTuple):
    """The sizes of a model in blocks: hidden layers as (blocks, size), and all widths if they were given so."""

    inputs: int
    hidden: list[tuple[int, int]]
    outputs: int
    widths: list[int] | None = None

    def said(self) -> Said:
        """As arguments."""
        if self.widths is not None:
            return {"widths": self.widths, "block": self.hidden[0][1] if self.hidden else 1}
        return {
            "in_features": self.inputs,
            "hidden": [list(layer) for layer in self.hidden],
            "out_features": self.outputs,
        }


def _sizes(n: object, hidden: object, m: object, block: object) -> _Sizes:
    """Sizes that were given one way or the other, once they are known to be some."""
    who = "BlockRadialMLP"
    if isinstance(n, Sequence) and not isinstance(n, str):
        if hidden is not None or m is not None:
            raise InvalidValue(f"{who}: give in_features, hidden and out_features, or all widths and block=")
        widths = tuple(_plain_int(k) for k in n)
        block = _plain_int(block)
        if len(widths) < 2 or not is_whole(block) or block < 1 or any(k % block for k in check_widths(widths)[1:-1]):
            raise InvalidValue(f"{who}: widths {widths} do not split into blocks of {block}")
        k = check_widths(widths)
        return _Sizes(k[0], [(width // block, block) for width in k[1:-1]], k[-1], list(k))
    if block is not None:
        raise InvalidValue(f"{who}: block={block!r} goes with all widths at once; hidden has the sizes of blocks")
    if isinstance(hidden, tuple) and len(hidden) == 2 and all(is_whole(_plain_int(k)) for k in hidden):
        hidden = [hidden]
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        raise InvalidType(f"{who}: hidden={hidden!r}: expected pairs (blocks, size), such as [(64, 3)]")
    layers = []
    for i, layer in enumerate(hidden, start=1):
        if not isinstance(layer, Sequence) or len(layer) != 2:
            raise InvalidValue(f"{who}: hidden layer {i} is {layer!r}: expected how many blocks, and their size")
        where = f"{who}: hidden layer {i}"
        blocks, size = _plain_int(layer[0]), _plain_int(layer[1])
        layers.append((check_size(f"{where}: blocks", blocks), check_size(f"{where}: size", size)))
    n, m = check_size(f"{who}: in_features", _plain_int(n)), check_size(f"{who}: out_features", _plain_int(m))
    return _Sizes(n, layers, m)


def _plain_int(value: object) -> object:
    """NumPy's whole numbers as Python's."""
    return int(value) if isinstance(value, np.integer) else value


def _plain(arguments: Said) -> Said | None:
    """Arguments that a file can hold, so that `radnet.load` makes the same model again; None if it cannot."""
    arguments = {name: x.tolist() if isinstance(x, np.ndarray | np.generic) else x for name, x in arguments.items()}
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return arguments


def _along(name: str, dim: int, shift: Shift) -> RadialActivation:
    """An activation by its name, along another axis."""
    rho = as_activation(name, "activation", shift, None, None)
    rho.dim = dim
    return rho
