"""The profiles h of the paper, some smooth ones, and their derivatives, as plain functions of a tensor of numbers.

Paper: ex:radialact (Step-ReLU, squashing function, shifted ReLU), "Experiments" (radial sigmoid). A profile is applied
to norms, or to norms less a shift, so its argument may be negative.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def identity(r: Tensor) -> Tensor:
    """``h(r) = r``."""
    return r


def identity_slope(r: Tensor) -> Tensor:
    """``h'(r) = 1``."""
    return torch.ones_like(r)


def step_relu(r: Tensor) -> Tensor:
    """``h(r) = r`` if ``r >= 1``, else 0 (ex:radialact 1).

    >>> step_relu(torch.tensor([0.5, 1.0, 2.0]))
    tensor([0., 1., 2.])
    """
    return torch.where(r >= 1, r, torch.zeros_like(r))


def step_relu_slope(r: Tensor) -> Tensor:
    """``h'(r) = 1`` if ``r >= 1``, else 0; at the jump, the derivative from the right."""
    return (r >= 1).to(r.dtype)


#: half of the largest number with a square
_LARGEST = {
    dtype: math.sqrt(torch.finfo(dtype).max) / 2
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


def squash(r: Tensor) -> Tensor:
    """``h(r) = r^2 / (r^2 + 1)`` (ex:radialact 2), without overflow for large r.

    >>> squash(torch.tensor([0.0, 1.0, 1e30]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    largest = _LARGEST.get(r.dtype, math.inf)  # there h is 1 and its derivative 0 to the last bit
    q = r.clamp(-largest, largest).square()
    return q / (q + 1)


def squash_slope(r: Tensor) -> Tensor:
    """``h'(r) = 2r / (r^2 + 1)^2``; where the square overflows it is 0."""
    q = r.square() + 1
    return 2 * (r / q) / q


def shifted_relu(r: Tensor, b: float) -> Tensor:
    """``h(r) = max(0, r - b)`` (ex:radialact 3).

    >>> shifted_relu(torch.tensor([0.2, 2.0]), b=0.5)
    tensor([0.0000, 1.5000])
    """
    return torch.where(r >= b, r - b, torch.zeros_like(r))


def shifted_relu_slope(r: Tensor, b: float) -> Tensor:
    """``h'(r) = 1`` if ``r >= b``, else 0; at the kink, the derivative from the right (the one that counts at 0)."""
    return (r >= b).to(r.dtype)


def sigmoid(r: Tensor) -> Tensor:
    """``h(r) = 1 / (1 + e^-r)``: h(0) = 1/2, so the rescaling jumps at the origin.

    >>> sigmoid(torch.tensor([0.0]))
    tensor([0.5000])
    """
    return torch.sigmoid(r)


def sigmoid_slope(r: Tensor) -> Tensor:
    """``h'(r) = h(r) h(-r)``."""
    return torch.sigmoid(r) * torch.sigmoid(-r)


#: from here on exp(-r^2/2) is 0 in every dtype
_FAR = 64.0


def gaussian(r: Tensor) -> Tensor:
    """``h(r) = r exp(-r^2/2)``.

    >>> gaussian(torch.tensor([0.0, 1.0, 1e30]))
    tensor([0.0000, 0.6065, 0.0000])
    """
    return r * torch.exp(-0.5 * r.clamp(-_FAR, _FAR).square())


def gaussian_slope(r: Tensor) -> Tensor:
    """``h'(r) = (1 - r^2) exp(-r^2/2)``."""
    q = r.clamp(-_FAR, _FAR).square()
    return (1 - q) * torch.exp(-0.5 * q)


def tanh_slope(r: Tensor) -> Tensor:
    """``h'(r) = 1/cosh(r)^2``, 4 s(2r) s(-2r) with the sigmoid s: no difference of numbers near 1."""
    return 4 * torch.sigmoid(2 * r) * torch.sigmoid(-2 * r)


def swish_slope(r: Tensor) -> Tensor:
    """``h'(r) = s(r) (1 + r s(-r))`` with the sigmoid s."""
    s = torch.sigmoid(r)
    return s * (1 + r * torch.sigmoid(-r))
