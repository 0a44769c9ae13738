"""The shift of a profile, and what a rescaling does at v = 0. See docs/decisions/0003-origin.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Profile = Callable[[Tensor], Tensor]


class Origin(NamedTuple):
    """What happens near v = 0: norms up to ``floor`` count as 0, and there the gradient is ``slope`` times I."""

    floor: Tensor
    slope: Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for the half precisions, the dtype itself otherwise."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def as_shift(shift: Tensor | float | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """t as a tensor of the accumulation dtype; no shift is t = 0."""
    if isinstance(shift, Tensor):
        return shift.to(dtype)
    return torch.full((), 0.0 if shift is None else shift, dtype=dtype, device=device)


def beside(numbers: Tensor, ndim: int, dim: int) -> Tensor:
    """One number, or one for each block, shaped to stand beside a tensor whose blocks lie along an axis.

    >>> beside(torch.zeros(3), ndim=4, dim=1).shape
    torch.Size([3, 1, 1])
    """
    return numbers.reshape(-1, *[1] * (ndim - 1 - dim % ndim)) if numbers.ndim else numbers


def less_shift(r: Tensor, shift: Tensor | float | None) -> Tensor:
    """``r - t``, and r itself without a shift."""
    return r if shift is None else r - shift


def origin(h: Profile, slope: Profile, t: Tensor) -> Origin:
    """The convention at v = 0 for ``g(r) = h(r - t)``, as tensors, so that nothing waits for a device.

    They are constants. `detach` says so rather than `torch.no_grad`, which torch.export takes out of a program again,
    in time quadratic in the number of activations.
    """
    smooth, slope_at_zero = h(-t) == 0, slope(-t).detach()
    zero = torch.zeros_like(slope_at_zero)  # a bare 0.0 would be float32, where sqrt(tiny) of float64 is 0
    floor = torch.where(smooth, zero, torch.full_like(zero, math.sqrt(torch.finfo(t.dtype).tiny)))
    return Origin(floor, torch.where(smooth & slope_at_zero.isfinite(), slope_at_zero, zero))
