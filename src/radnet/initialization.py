"""Initial weights that keep hidden norms stable with depth, for whatever profile the layers have.

Paper: "Conclusions" leaves the sensitivity to initialisation open. Ours, in three lines: a layer multiplies the norm by
gamma and then applies g(r) = h(r - t), so a norm p before the activation comes back to p if gamma = p/g(p), and a small
relative error is multiplied by the elasticity kappa(p) = p g'(p)/g(p). We take p where kappa <= 1 for all norms within
a factor 2, and where no such p exists (shifted ReLU: kappa = p/(p - b) > 1) let a bias of norm beta carry part of
p^2 = (gamma r)^2 + beta^2, which multiplies kappa by 1 - beta^2/p^2. See docs/decisions/0006-initialisation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .activations import RadialActivation
from .linalg import signed_qr
from .origin import accumulation_dtype, less_shift

#: above this the norm of a Gaussian matrix times a vector is within a few percent of its mean by itself
ORTHOGONAL_UP_TO = 512
#: what a relative error of the norm is multiplied by in one layer, where a bias has to hold it down
DAMPING = 0.95
_STEPS_PER_DOUBLING = 4


@dataclass(frozen=True)
class Balance:
    """A norm that a layer gives back: ``before`` the activation, ``after`` it, and the part that the bias carries."""

    before: float
    after: float
    bias: float = 0.0


def balance(activation: RadialActivation, bias: bool, dtype: torch.dtype, device: torch.device) -> Balance:
    """Find the norm at which a layer with this activation is stable.

    >>> from radnet.activations import StepReLU
    >>> balance(StepReLU(), True, torch.float32, torch.device("cpu"))
    Balance(before=2.0, after=2.0, bias=0.0)
    """
    exponents = torch.arange(-5 * _STEPS_PER_DOUBLING, 5 * _STEPS_PER_DOUBLING + 1) / _STEPS_PER_DOUBLING
    p = (2.0**exponents).to(accumulation_dtype(dtype)).to(device)
    with torch.no_grad():
        x = less_shift(p, None if activation.shift is None else activation.shift.to(p))
        g, dg = activation.profile(x).double().cpu(), activation.slope(x).double().cpu()
    norm = p.double().cpu()
    kappa = (norm * dg / g).abs()
    alive = (g > 0) & kappa.isfinite()
    holds = alive & (kappa <= 1 + 1e-6)
    # within a factor 2 either way: a window of 2 doublings, centred
    window = 2 * _STEPS_PER_DOUBLING + 1
    holds_around = holds.unfold(0, window, 1).all(dim=1)
    inner = slice(_STEPS_PER_DOUBLING, len(norm) - _STEPS_PER_DOUBLING)
    if holds_around.any():
        far_from_one = torch.where(holds_around, norm[inner].log2().abs(), math.inf)
        i = int(far_from_one.argmin()) + _STEPS_PER_DOUBLING
        return Balance(float(norm[i]), float(g[i]))
    alive_inside = alive[inner]
    if not alive_inside.any():  # a profile that gives nothing to hold on to: treat it as linear
        return Balance(1.0, 1.0)
    i = int(torch.where(alive_inside, kappa[inner], math.inf).argmin()) + _STEPS_PER_DOUBLING
    share = max(0.0, 1 - DAMPING / float(kappa[i])) if bias else 0.0
    return Balance(float(norm[i]), float(g[i]), float(norm[i]) * math.sqrt(share))


def draw_balanced(
    weight: Tensor, bias: Tensor | None, r: float, goal: Balance | None, generator: torch.Generator | None
) -> None:
    """Fill in a layer that takes inputs of norm r to the norm of the goal; without one, to outputs of unit variance."""
    n_out, n_in = weight.shape
    before = math.sqrt(n_out) if goal is None else math.sqrt(goal.before**2 - goal.bias**2)
    weight.copy_(before / r * norm_preserving(n_out, n_in, generator, weight.device))
    if bias is not None and goal is not None and goal.bias > 0:
        z = torch.randn(n_out, dtype=torch.float64, **_source(generator, weight.device))
        bias.copy_(z * (goal.bias / z.norm()))
    elif bias is not None:
        bias.zero_()


def draw_like_linear(weight: Tensor, bias: Tensor | None, generator: torch.Generator | None) -> None:
    """Fill in a layer as ``nn.Linear`` does: everything uniform on +- 1/sqrt(n_in)."""
    bound = 1 / math.sqrt(weight.shape[1])
    for parameter in (weight, bias):
        if parameter is not None:
            parameter.uniform_(-bound, bound, generator=generator)


def norm_preserving(n_out: int, n_in: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Random n_out x n_in matrix with ``E|W v|^2 = |v|^2`` for v of random direction, in float64.

    Orthonormal columns (or rows) up to `ORTHOGONAL_UP_TO`: every norm is kept, not just the mean. Gaussian above.
    """
    k, n = min(n_out, n_in), max(n_out, n_in)
    if k > ORTHOGONAL_UP_TO:
        return torch.randn(n_out, n_in, dtype=torch.float64, **_source(generator, device)) / math.sqrt(n_out)
    Q = signed_qr(torch.randn(n, k, dtype=torch.float64, **_source(generator, device))).Q
    return (Q if n_out >= n_in else Q.mT) * math.sqrt(n_in / k)


def _source(generator: torch.Generator | None, device: torch.device) -> dict[str, Any]:
    """Draw where the generator lives, else where the parameters live."""
    return {"generator": generator, "device": device if generator is None else generator.device}
