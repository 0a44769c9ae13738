"""The lean form of a rescaling: norm, profile, scale, and a guard at 0; what exported programs hold.

`rescaling.composed` is right over the whole range of a dtype, with its gradients, and takes forty operations. A program
that is shipped (torch.export, ONNX, TorchScript, AOTInductor) is run on ordinary numbers and not trained, so it gets
the few operations that are right there: with the norm held between the bounds of `held_range` (2^-48 and 2^48 in
float32, 2^-120 and 2^120 in float64) it is ``v h(r - t)/r``, for the profiles of the paper in at most seven operations.

Where norms are ordinary it is the full form to 4 eps, away from jumps. At 0 it is 0. Below the range it is
``v h(2^-48)/2^-48``, which is the full form again wherever ``h(-t) = 0``, and shorter than it elsewhere (the radial
sigmoid), or 0 where that is not finite; above it is ``v h(2^48)/2^48``. Finite vectors never give a NaN but where the
profile itself does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from .native.kernels import is_compiled
from .origin import Profile, accumulation_dtype, less_shift

#: ``(v, r, t) -> h(r - t) v/r`` for ordinary norms r, which have an axis of length 1 where the vectors of v lie
Lean = Callable[[Tensor, Tensor, Tensor | float | None], Tensor]

# torch.export (from 2.7 on it says so)
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


#: float32: 2^48, float64: 2^384; its square and the square of its inverse are well within the dtype
_LARGEST = {
    dtype: 2.0 ** (3 * math.frexp(torch.finfo(dtype).max)[1] // 8)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


def ordinary_range(dtype: torch.dtype) -> tuple[float, float]:
    """Norms between these two can be squared, inverted and divided by without a second thought.

    >>> ordinary_range(torch.float32) == (2.0**-48, 2.0**48)
    True
    """
    largest = _LARGEST[dtype]
    return 1 / largest, largest


_only_looked_at = ContextVar("only_looked_at", default=False)


@contextmanager
def only_looked_at() -> Iterator[None]:
    """While this lasts, programs that this thread exports are not shipped, and hold what eager code runs.

    `compress` compares what an exported program runs with what the model runs.

    >>> from radnet import Squash
    >>> with only_looked_at():
    ...     program = torch.export.export(Squash(), (torch.ones(2),))
    >>> any("abs" in str(node.target) for node in program.graph.nodes)
    True
    """
    before = _only_looked_at.set(True)
    try:
        yield
    finally:
        _only_looked_at.reset(before)


def held_range(dtype: torch.dtype) -> tuple[float, float]:
    """Between these two an exported program holds norms: the ordinary ones, as far as float32 has such numbers.

    ONNX keeps many constants of a graph in float32, also if it computes in float64.

    >>> held_range(torch.float64) == (2.0**-120, 2.0**120)
    True
    """
    largest = min(_LARGEST[dtype], 2.0**120)
    return 1 / largest, largest


def is_in_program(v: Tensor) -> bool:
    """Whether v belongs to a program that torch.export or torch.jit.trace is making."""
    return (_is_exporting() and is_compiled(v)) or torch._C._get_tracing_state() is not None


def is_exported(v: Tensor) -> bool:
    """Whether v belongs to a program that is being made to be shipped. (Nobody only looks by way of Dynamo.)"""
    return is_in_program(v) and (torch.compiler.is_dynamo_compiling() or not _only_looked_at.get())


def scaled_by(h: Profile, *, bounded: bool = False) -> Lean:
    """The lean form of any profile; one that is not ``bounded`` near 0 may have no finite factor there: it is 0 then.

    >>> scaled_by(torch.tanh)(torch.tensor([0.0, 2.0]), torch.tensor([2.0]), 1.0)
    tensor([0.0000, 0.7616])
    """

    def scaled(v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        factor = h(less_shift(r, t)) / r
        if bounded:
            return v * factor
        ordinary = (r > held_range(r.dtype)[0]) | (factor.abs() < torch.inf)
        return v * torch.where(ordinary, factor, torch.zeros_like(factor))

    return scaled


def rescaled(v: Tensor, lean: Lean, shift: Tensor | float | None, dim: int) -> Tensor:
    """The rescaling along an axis, its norms held within a range."""
    accumulated = accumulation_dtype(v.dtype)
    a = v if v.dtype == accumulated else v.to(accumulated)
    y = lean(a, norms(a, dim).clamp(*held_range(accumulated)), shift)
    return y if y.dtype == v.dtype else y.to(v.dtype)


def norms(v: Tensor, dim: int) -> Tensor:
    """The norm of each vector along an axis, which is kept; overflows and underflows as squares do."""
    if dim == v.ndim - 1:
        r: Tensor = torch.linalg.vector_norm(v, dim=dim, keepdim=True)
        return r
    return v.square().sum(dim, keepdim=True).sqrt()  # vector_norm is 40 times slower off the last axis
