"""Networks without biases in closed form: ``F(x) = W (mu(x) x)`` with one matrix and one number.

Paper: the remark after the feedforward function in "Radial neural networks". With P_i = W_i ... W_1 and mu_0 = 1,

    F_i(x) = mu_i(x) P_i x,     mu_i = mu_{i-1} g_i(r_i)/r_i,     r_i = |mu_{i-1}| |P_i x|,

and ``|P_i x| = |R_i x|`` for the QR decomposition P_i = Q_i R_i, so no product taller than n_0 is ever kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..activations import RadialActivation
from ..errors import InvalidType, InvalidValue
from ..linalg import signed_qr
from ..network import RadNet
from ..origin import as_shift, origin


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """``F(x) = W (mu(x) x)``; calling it evaluates F.

    Attributes
    ----------
    matrix : Tensor, shape (n_L, n_0)
        ``W = W_L ... W_1``, in float64.
    """

    matrix: Tensor
    factors: tuple[Tensor, ...]
    activations: tuple[RadialActivation, ...]

    def mu(self, x: Tensor) -> Tensor:
        """The scalar ``mu(x)``, shape (..., 1), in float64."""
        x = x.double()
        mu = torch.ones_like(x[..., :1])
        for R, rho in zip(self.factors, self.activations, strict=True):
            r = mu.abs() * torch.linalg.vector_norm(x @ R.mT, dim=-1, keepdim=True)
            mu = mu * _scale(rho, r)
        return mu

    def __call__(self, x: Tensor) -> Tensor:
        """``F(x)``, in float64."""
        return (self.mu(x) * x.double()) @ self.matrix.mT


def _scale(rho: RadialActivation, r: Tensor) -> Tensor:
    """``g(r)/r``, at the origin as `radnet.rescaling` has it."""
    t = as_shift(rho.shift, r.dtype, r.device)
    floor, slope0 = origin(rho.profile, rho.slope, t)
    at_origin = r <= floor
    safe = torch.where(at_origin, torch.ones_like(r), r)
    return torch.where(at_origin, slope0, rho.profile(safe - t) / safe)


def closed_form(net: RadNet) -> ClosedForm:
    """The closed form of a network without biases (none at all, or all of them zero).

    For insight and for networks that are much wider than their input; where the product of the weights cancels on an
    input, it is a few digits less accurate than the network.

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.RadNet((2, 50, 50, 3), activation="squash", bias=False, dtype=torch.float64)
    >>> form = closed_form(net)
    >>> form.matrix.shape
    torch.Size([3, 2])
    >>> x = torch.randn(5, 2, dtype=torch.float64)
    >>> torch.allclose(form(x), net(x))
    True
    """
    if not isinstance(net, RadNet):
        raise InvalidType(f"closed_form needs a RadNet, got {type(net).__name__}")
    net.check_initialised()
    for i, b in enumerate(net.biases, start=1):
        if b is not None and bool((b != 0).any()):
            raise InvalidValue(f"layer {i}: the bias is not zero; only networks without biases have a closed form")
    with torch.no_grad():
        P = torch.eye(net.widths[0], dtype=torch.float64, device=net.weights[0].device)
        factors = []
        for W in net.weights:
            P = W.detach().double() @ P
            factors.append(signed_qr(P).R)
    return ClosedForm(P, tuple(factors), net.activations)
