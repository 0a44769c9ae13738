"""Where the profile of a radial activation jumps, and which rows come near: there two runs need not agree."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...activations import RadialActivation
from ...measuring import ULPS
from ...origin import beside
from ...rescaling import block_sizes


class Norms(NamedTuple):
    """The norms that arrived at an activation."""

    rho: RadialActivation
    r: Tensor


def norms_of(rho: RadialActivation, v: Tensor) -> Tensor:
    """The norms of the vectors that an activation rescales, block by block."""
    sizes = block_sizes(rho.blocks or 1, v.shape[rho.dim])
    parts = [torch.linalg.vector_norm(part, dim=rho.dim, keepdim=True) for part in v.split(sizes, rho.dim)]
    return torch.cat(parts, dim=rho.dim)


def near_jump(rho: RadialActivation, r: Tensor, margin: Tensor | float = 0.0) -> Tensor:
    """Which norms are within 64 eps, and a margin, of a jump of the profile.

    >>> from radnet.activations import StepReLU
    >>> near_jump(StepReLU(), torch.tensor([1.0, 1.1, 1.2]), torch.tensor([0.0, 0.0, 0.3]))
    tensor([ True, False,  True])
    """
    shift = torch.zeros((), dtype=r.dtype) if rho.shift is None else rho.shift.detach()
    t = beside(shift.to(r), r.ndim, rho.dim)
    rounding = ULPS * torch.finfo(r.dtype).eps
    near = torch.zeros_like(r, dtype=torch.bool)
    for jump in rho.jumps:
        near |= (r - t - jump).abs() <= margin + rounding * torch.maximum((t + jump).abs(), t.abs()).clamp(min=1.0)
    return near


def rows_of(near: Tensor) -> Tensor:
    """Which rows have a norm near a jump, wherever in the row."""
    return near.reshape(len(near), -1).any(dim=1).cpu()
