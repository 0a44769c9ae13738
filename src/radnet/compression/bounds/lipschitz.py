"""Lipschitz constants of radial activations, and how long what comes out of them can be (docs/bounds.md)."""

from __future__ import annotations

import math

import torch

from ...activations import Identity, RadialActivation, RadialSigmoid, ShiftedReLU, Squash, StepReLU
from ...rescaling import accumulation_dtype
from ..replacements import RMSRescaling


def lipschitz(rho: RadialActivation, dtype: torch.dtype = torch.float64) -> float | None:
    """A Lipschitz constant of ``v -> h(|v| - t) v/|v|``: sup h', if h(-t) = 0. None if we know none.

    ``dtype`` is that of v, which matters for an `RMSRescaling` that takes its eps from it.

    >>> lipschitz(ShiftedReLU(0.5)), lipschitz(StepReLU())
    (1.0, None)
    """
    t = _shift(rho)
    if type(rho) is Identity:
        return 1.0 if t == 0 else None
    if type(rho) is Squash:
        return 3 * math.sqrt(3) / 8 if t == 0 else None  # with a shift h(-t) is not 0
    if type(rho) is ShiftedReLU:
        return 1.0 if rho.b + t >= 0 else None
    if type(rho) is RMSRescaling:
        eps = own_eps(rho.eps, dtype)
        return 1 / math.sqrt(eps) if eps > 0 and t == 0 else None
    return None


def longest(rho: RadialActivation) -> float:
    """The supremum of ``|h|``, as far as we know.

    >>> longest(Squash(shift=2.0)), longest(StepReLU())
    (1.0, inf)
    """
    if type(rho) in (Squash, RadialSigmoid):
        return 1.0
    return math.sqrt(rho.n) if type(rho) is RMSRescaling else math.inf


def growth(rho: RadialActivation) -> float:
    """A number g with ``|h(r - t)| <= r + g`` for all norms r; infinite if we know none.

    >>> growth(StepReLU(shift=-2.0)), growth(ShiftedReLU(0.5))
    (2.0, 0.0)
    """
    t = _shift(rho)
    if type(rho) is Identity:
        return abs(t)
    if type(rho) is StepReLU:
        return max(0.0, -t)
    return max(0.0, -rho.b - t) if type(rho) is ShiftedReLU else math.inf


def _shift(rho: RadialActivation) -> float:
    return 0.0 if rho.shift is None else float(rho.shift.detach())


def own_eps(eps: float | None, dtype: torch.dtype) -> float:
    """An eps, or the one of the dtype in which norms are accumulated.

    >>> own_eps(None, torch.bfloat16) == torch.finfo(torch.float32).eps
    True
    """
    return torch.finfo(accumulation_dtype(dtype)).eps if eps is None else eps
