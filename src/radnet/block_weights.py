"""Initial weights of networks in blocks: norms of blocks that stay level with depth, or waves in all phases.

A layer that keeps norms shares |x|^2 evenly among its rows, so each of k blocks of it gets ``|x|/sqrt(k)``: what
`initialization` does for one norm a layer is done for k of them with all norms times sqrt(k).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .initialization import balance, norm_preserving
from .radial import RadialActivation

#: variance of what a network in blocks gives before it is trained, for inputs of variance 1
OUTPUT_VARIANCE = 0.1
Fed = tuple[nn.Linear, RadialActivation]


@torch.no_grad()
def draw_chain(hidden: Sequence[Fed], head: nn.Linear, generator: torch.Generator | None) -> None:
    """Level norms in a chain whose inputs have variance 1, and small outputs."""
    if head.weight.is_meta:
        return
    r = math.sqrt((hidden[0][0] if hidden else head).in_features)
    for layer, rho in hidden:
        before, after = _norms(layer, rho)
        _draw(layer, before / r, generator, bias=True)
        r = after
    _draw(head, math.sqrt(OUTPUT_VARIANCE * head.out_features) / r, generator)


@torch.no_grad()
def draw_stream(
    stem: nn.Linear,
    hidden: Sequence[tuple[nn.Linear, RadialActivation, nn.Linear]],
    head: nn.Linear,
    generator: torch.Generator | None,
) -> None:
    """A residual stream of variance 1 at first, to which all blocks together add as much again."""
    if head.weight.is_meta:
        return
    width = math.sqrt(stem.out_features)
    _draw(stem, width / math.sqrt(stem.in_features), generator, bias=True)  # without one, x and 2 x would be the same
    for up, rho, down in hidden:
        before, after = _norms(up, rho)
        _draw(up, before / width, generator, bias=True)
        _draw(down, width / math.sqrt(len(hidden)) / after, generator)
    _draw(head, math.sqrt(OUTPUT_VARIANCE * head.out_features / 2) / width, generator)


@torch.no_grad()
def draw_waves(hidden: Sequence[Fed], frequency: float, generator: torch.Generator | None) -> None:
    """The first layer as fast as the frequency says for x in [-1, 1]^n, and all blocks in phases of their own."""
    if not hidden or hidden[0][0].weight.is_meta:
        return
    layer, rho = hidden[0]
    size = layer.out_features // _count(rho)
    layer.weight.copy_(frequency / math.sqrt(size) * _uniform(tuple(layer.weight.shape), layer.weight, generator))
    layer.bias.copy_(math.pi * _uniform(tuple(layer.bias.shape), layer.weight, generator))
    for _, rho in hidden:
        if isinstance(rho.shift, nn.Parameter):
            rho.shift.copy_(math.pi * _uniform(tuple(rho.shift.shape), rho.shift, generator))


def _draw(layer: nn.Linear, gain: float, generator: torch.Generator | None, *, bias: bool = False) -> None:
    """Weights that multiply norms by the gain; biases as ``nn.Linear`` has them, or 0."""
    n_out, n_in = layer.weight.shape
    layer.weight.copy_(gain * norm_preserving(n_out, n_in, generator, layer.weight.device))
    if bias:
        layer.bias.copy_(_uniform((n_out,), layer.weight, generator) / math.sqrt(n_in))
    else:
        layer.bias.zero_()


def _norms(layer: nn.Linear, rho: RadialActivation) -> tuple[float, float]:
    """The norm of all blocks together before and after an activation, at which every block is stable."""
    one = copy.deepcopy(rho)
    one.blocks = None
    if one.shift is not None:
        one.shift = nn.Parameter(one.shift.detach().mean(), requires_grad=False)
    goal = balance(one, True, layer.weight.dtype, layer.weight.device)
    root = math.sqrt(_count(rho))
    scale = 1.0 if rho.scale is None else float(rho.scale.detach().abs().mean())
    return root * goal.before, root * goal.after * (scale or 1.0)


def _count(rho: RadialActivation) -> int:
    return 1 if rho.blocks is None else rho.blocks if isinstance(rho.blocks, int) else len(rho.blocks)


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform on [-1, 1], drawn where the generator lives."""
    device = like.device if generator is None else generator.device
    return 2 * torch.rand(shape, generator=generator, device=device, dtype=torch.float64) - 1
