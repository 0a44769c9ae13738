"""Rescaling by the compiled kernels, for tensors that lie in memory as they expect and that nobody traces.

Each function gives None where it does not apply; the caller then goes the long way, in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .library import functions


class Norms(IntEnum):
    """How the norms of some vectors are; see `rescaling.ordinary_range`."""

    EXTRAORDINARY = 0
    ORDINARY = 1
    SOME_ZERO = 2  # ordinary but for vectors that are exactly 0


class Formula(NamedTuple):
    """A profile that the kernels know: its number in profiles.hpp, and the b of a shifted ReLU."""

    kind: int
    b: float = 0.0


class Rescaled(NamedTuple):
    """The value, the norms (if they were asked for), and how they are."""

    y: Tensor
    r: Tensor | None
    norms: Norms


IDENTITY, STEP_RELU, SQUASH, SHIFTED_RELU, SIGMOID, SIN, GAUSSIAN, TANH, SWISH = range(9)
NOTHING = -1  # a layer without a rescaling
#: below so many numbers a second thread costs more than it gives
ALONE = 2**16
#: fewer vectors side by side than this leave most of a register idle, which profiles from `SIN` on do not make up for
ABREAST = 8

_ORDINARY = (Tensor, nn.Parameter)
#: True inside torch.func.grad, vmap, jvp and friends
inside_transform: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_FORWARD, _BACKWARD = functions("forward"), functions("backward")


def is_compiled(v: Tensor) -> bool:
    """Whether v belongs to a program that is compiled or exported; torch's own flag is one for all threads."""
    return torch.compiler.is_compiling() and (torch.compiler.is_dynamo_compiling() or type(v) not in _ORDINARY)


def is_watched() -> bool:
    """Whether somebody sees every operation: a mode, torch.func, torch.jit.trace, forward derivatives.

    What the kernels do they would miss.
    """
    return bool(
        (torch._C._len_torch_dispatch_stack() and not all(map(_is_blind, _get_current_dispatch_mode_stack())))
        or torch._C._len_torch_function_stack()
        or torch._C._get_tracing_state()
        or forward_ad._current_level >= 0
        or inside_transform()
    )


def _is_blind(mode: object) -> bool:
    """Whether a mode cares for nothing but random numbers."""
    return getattr(mode, "blind", False) is True


def lies_plainly(x: Tensor) -> bool:
    """Whether the numbers of a tensor lie one after the other in this machine's memory, as they are."""
    return (
        type(x) in _ORDINARY
        and x.is_cpu
        and x.layout is torch.strided
        and not x.is_nested
        and x.is_contiguous()
        and not x.is_neg()
    )


def address(x: Tensor) -> int:
    """Where the numbers of a tensor begin; 0 if it has none (as gradients have not that are computed in batches)."""
    try:
        return x.data_ptr()
    except RuntimeError:
        return 0


def threads_for(numbers: int) -> int:
    """How many threads share so much work: as many as torch would take, or one."""
    return 1 if numbers < ALONE else torch.get_num_threads()


class _Shifts(NamedTuple):
    """One shift for all vectors, or where those of vectors in turns begin, and how many there are."""

    t: float = 0.0
    source: int | None = None
    blocks: int = 1


_NONE = _Shifts()


def _shifts(shift: Tensor | float | None, v: Tensor, dim: int) -> _Shifts | None:
    """Shifts as the kernels take them, if they are at hand: one for all, or one for each entry of the axis before."""
    if shift is None:
        return _NONE
    if not isinstance(shift, Tensor):
        return _Shifts(shift)
    if type(shift) not in _ORDINARY or not shift.is_cpu:
        return None
    if shift.numel() == 1:
        return None if shift.is_complex() else _Shifts(shift.item())
    beside_blocks = dim > 0 and shift.ndim == v.ndim - dim + 1 and shift.numel() == shift.shape[0] == v.shape[dim - 1]
    return _in_turns(shift, v.dtype) if beside_blocks else None


def _in_turns(shift: Tensor, dtype: torch.dtype) -> _Shifts | None:
    """A shift for each block, if they lie one after the other."""
    source = address(shift) if shift.dtype == dtype and lies_plainly(shift) else 0
    return _Shifts(0.0, source, shift.numel()) if source else None


def _is_thin(inner: int, formula: Formula) -> bool:
    """Whether vectors lie so that PyTorch is as fast."""
    return 1 < inner < ABREAST and formula.kind >= SIN


def value(
    v: Tensor, formula: Formula, dim: int, blocks: int | None = None, shift: Tensor | None = None
) -> Tensor | None:
    """``h(|v| - t) v/|v|`` along an axis, or in equal blocks of the last one, each with one shift or its own.

    Where nobody wants a gradient: the shortest way there is.
    """
    function = None if is_compiled(v) else _FORWARD.get(v.dtype)
    if function is None or not lies_plainly(v) or is_watched():
        return None
    source, shape = address(v), v.shape
    numbers = v.numel()
    n, (kind, b) = shape[dim], formula
    last = dim == len(shape) - 1
    if blocks is not None:
        if not last or n % blocks:  # the axis is split elsewhere, or refused
            return None
        n //= blocks
    if not source or not numbers or n == 1:  # numbers are torch's business
        return None
    each = blocks is not None and shift is not None and shift.ndim == 1
    t = _in_turns(shift, v.dtype) if each and shift is not None else _shifts(shift, v, 0)
    inner = 1 if last else math.prod(shape[dim + 1 :])
    if t is None or (each and t.blocks != blocks) or _is_thin(inner, formula):
        return None
    y = torch.empty_like(v)
    norms = function(
        source, y.data_ptr(), None, numbers // (n * inner), n, inner, kind, b, *t, threads_for(numbers)
    )  # fmt: skip
    return y if norms else None


def forward(v: Tensor, formula: Formula, shift: Tensor | float | None, dim: int, *, keep: bool) -> Rescaled | None:
    """``h(|v| - t) v/|v|`` along an axis; with ``keep`` the norms too. None if it is not for the kernels."""
    function = _FORWARD.get(v.dtype)
    if function is None or not lies_plainly(v) or is_watched():
        return None
    t, source, numbers = _shifts(shift, v, dim), address(v), v.numel()
    shape, n = v.shape, v.shape[dim]
    if t is None or not source or not numbers or n == 1:
        return None
    inner = 1 if dim == len(shape) - 1 else math.prod(shape[dim + 1 :])
    if _is_thin(inner, formula):
        return None
    y = torch.empty_like(v)
    r = v.new_empty((*shape[:dim], 1, *shape[dim + 1 :])) if keep else None
    norms = function(
        source, y.data_ptr(), None if r is None else r.data_ptr(), numbers // (n * inner), n, inner, *formula, *t,
        threads_for(numbers),
    )  # fmt: skip
    return Rescaled(y, r, Norms(norms)) if norms else None


def backward(
    v: Tensor, r: Tensor, formula: Formula, shift: Tensor | float | None, dim: int, gy: Tensor
) -> tuple[Tensor, Tensor] | None:
    """The gradient of v, and ``g' <gy, v>/r`` for each vector; the norms are ordinary, or 0 where v is."""
    function = _BACKWARD.get(v.dtype)
    if function is None or is_compiled(v) or not lies_plainly(v) or not lies_plainly(r) or is_watched():
        return None
    if gy.dtype != v.dtype or gy.shape != v.shape or r.dtype != v.dtype or r.numel() * v.shape[dim] != v.numel():
        return None  # something has become another thing since the forward pass
    gy = gy.contiguous()
    t, source, given, numbers = _shifts(shift, v, dim), address(v), address(gy), v.numel()
    n, inner = v.shape[dim], math.prod(v.shape[dim + 1 :])
    if t is None or not source or not given or not numbers or n == 1 or not lies_plainly(gy):
        return None
    if _is_thin(inner, formula):
        return None
    gv, along = torch.empty_like(v), torch.empty_like(r)
    function(
        source, r.data_ptr(), given, gv.data_ptr(), along.data_ptr(), numbers // (n * inner), n, inner, *formula, *t,
        threads_for(numbers),
    )  # fmt: skip
    return gv, along
