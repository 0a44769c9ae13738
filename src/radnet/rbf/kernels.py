"""Kernels lambda: three by name, those of radial activations, and any function that is finite at 0.

Paper: "Relation to radial basis function networks" (app:rbfns), where a rescaling is "determined by lambda". Differs:
lambda(r) = h(r)/r is unbounded at 0 unless h(0) = 0, so not every radial rescaling has a kernel.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..activations import RadialActivation
from ..checks import check_kind
from ..errors import InvalidType, InvalidValue
from ..origin import accumulation_dtype, as_shift, less_shift, origin

Kernel = Callable[[Tensor], Tensor]


def gaussian(r: Tensor) -> Tensor:
    """``lambda(r) = exp(-r^2)``."""
    return torch.exp(-r.square())


def multiquadric(r: Tensor) -> Tensor:
    """``lambda(r) = sqrt(1 + r^2)``, without overflow."""
    return torch.hypot(r, torch.ones_like(r))


def inverse_multiquadric(r: Tensor) -> Tensor:
    """``lambda(r) = 1/sqrt(1 + r^2)``, without overflow."""
    return 1 / multiquadric(r)


KERNELS: dict[str, Kernel] = {
    "gaussian": gaussian,
    "multiquadric": multiquadric,
    "inverse_multiquadric": inverse_multiquadric,
}


def kernel_of(activation: RadialActivation) -> nn.Module:
    """The kernel of a radial activation: ``lambda(r) = h(r - t)/r``, and its limit at 0.

    With it, one centre and no a_1, an `RBFLayer` is ``x -> W rho(x + b)``: what the paper calls constrained.

    Raises
    ------
    InvalidValue
        If ``h(-t) != 0`` (the radial sigmoid): then lambda is unbounded at 0 and no kernel. The rescaling itself is
        fine, and so are `RBFNetwork`, `to_rbf` and `from_rbf`, which never form lambda.

    Examples
    --------
    >>> import radnet
    >>> kernel_of(radnet.Radial(torch.tanh))(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.7616])
    """
    check_kind(activation, RadialActivation, "kernel_of needs a radial activation")
    return _Ratio(activation)


class _Ratio(nn.Module):
    """``r -> g(r)/r`` with g(r) = h(r - t), and g'(0) at 0."""

    def __init__(self, activation: RadialActivation) -> None:
        super().__init__()
        self.activation = copy.deepcopy(activation)
        with torch.no_grad():
            zero = torch.zeros(1) if activation.shift is None else torch.zeros_like(activation.shift)
            at_zero = float(activation.profile(less_shift(zero, activation.shift)))
        if at_zero != 0:
            raise InvalidValue(
                f"{activation}: its profile is {at_zero:g} at norm 0, so lambda = h/r is unbounded and no kernel; "
                "use the activation itself, for example in radnet.rbf.RBFNetwork"
            )

    def forward(self, r: Tensor) -> Tensor:
        rho = self.activation
        slope0 = origin(rho.profile, rho.slope, as_shift(rho.shift, r.dtype, r.device).detach()).slope
        safe = torch.where(r > 0, r, torch.ones_like(r))
        return torch.where(r > 0, rho.profile(less_shift(safe, rho.shift)) / safe, slope0)


def as_kernel(kernel: object, like: Tensor) -> Kernel:
    """lambda from a name or a callable, once it is known to work elementwise and to be finite at 0."""
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            near = difflib.get_close_matches(kernel.lower().replace("-", "_"), KERNELS, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidValue(f"unknown kernel {kernel!r}; {hint}known names: {', '.join(sorted(KERNELS))}")
        return KERNELS[kernel]
    if not callable(kernel) or isinstance(kernel, type | RadialActivation):
        hint = "; did you mean radnet.rbf.kernel_of(activation)?" if isinstance(kernel, RadialActivation) else ""
        what = kernel.__name__ if isinstance(kernel, type) else type(kernel).__name__
        raise InvalidType(f"kernel is {what}; expected a name or a function of a tensor of norms{hint}")
    found: Kernel = kernel
    if isinstance(kernel, nn.Module):
        found = copy.deepcopy(kernel).to(device=like.device, dtype=like.dtype)
    with torch.no_grad():
        value = found(torch.zeros(2, 1, dtype=accumulation_dtype(like.dtype), device=like.device))
    if not isinstance(value, Tensor) or value.shape != (2, 1) or not value.is_floating_point():
        raise InvalidValue("kernel: lambda must work elementwise and return floating point, for example torch.tanh")
    if not value.is_meta and not value.isfinite().all():
        raise InvalidValue(
            "kernel: lambda is not finite at 0; every centre would be a pole (lambda = h/r needs h(0) = 0)"
        )
    return found
