"""What stands in a small model where its original had norm layers: `RMSRescaling` and `FoldedBatchNorm`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..activations import RadialActivation, Reach
from ..origin import accumulation_dtype


class FoldedBatchNorm(nn.Identity):
    """Gives its input back, where a BatchNorm1d was whose scale and shift the layer before has taken over.

    BatchNorm1d takes axis 1 for the channels, so with another number of axes it is another function, which is in the
    small model no more: there this raises.

    Parameters
    ----------
    axes : int
        How many the inputs have.

    Examples
    --------
    >>> FoldedBatchNorm(2)(torch.ones(1, 2))
    tensor([[1., 1.]])
    """

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The input, if it has as many axes as the BatchNorm1d was folded for."""
        torch._assert(input.ndim == self.axes, f"a BatchNorm1d was folded for inputs of {self.axes} axes alone")
        return input

    def extra_repr(self) -> str:
        """The number of axes."""
        return f"axes={self.axes}"


class RMSRescaling(RadialActivation, closed=True):
    """``v -> v / sqrt(|v|^2/n + eps)`` with an n of its own: an RMSNorm of n entries, kept in fewer.

    Parameters
    ----------
    n : int
        Entries of the original norm layer.
    eps : float, optional
        None takes the eps of the dtype in which norms are accumulated (float32 for the half precisions), whatever
        arrives, as `torch.nn.RMSNorm` does.
    dim : int
        The axis along which a vector lies.

    Examples
    --------
    >>> v = torch.randn(4, 8)
    >>> torch.allclose(RMSRescaling(8, 1e-6)(v), nn.RMSNorm(8, eps=1e-6)(v), atol=1e-6)
    True
    """

    def __init__(self, n: int, eps: float | None, *, dim: int = -1) -> None:
        super().__init__(dim=dim)
        self.n, self.eps = n, eps

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r / sqrt(r^2/n + eps)``, without squaring r."""
        q, p, _ = self._shares(r)
        return math.sqrt(self.n) * (q / (q * q + p * p).sqrt())

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``v / sqrt(r^2/n + eps)``."""
        return v / (r * r / self.n + own_eps(self.eps, r.dtype)).sqrt()

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = eps / (r^2/n + eps)^(3/2)``."""
        q, p, m = self._shares(r)
        square = q * q + p * p
        return math.sqrt(self.n) * (p / m) * p / (square * square.sqrt())

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup h' = h'(0) = 1/sqrt(eps)``, and h < sqrt(n)."""
        eps = own_eps(self.eps, dtype)
        return Reach(1 / math.sqrt(eps) if eps > 0 and self._shifts[1] == 0 else None, longest=math.sqrt(self.n))

    def _shares(self, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``r/m`` and ``s/m`` with ``s = sqrt(n eps)``, and m, the larger of r and s.

        ``r / sqrt(r^2/n + eps) = sqrt(n) r / sqrt(r^2 + s^2) = sqrt(n) q / sqrt(q^2 + p^2)``, where q and p are at most
        1 and one of them is 1: nothing overflows, and what underflows is less than rounding.
        """
        eps = torch.finfo(r.dtype).eps if self.eps is None else self.eps
        s = math.sqrt(self.n) * math.sqrt(eps)
        m = r.detach().abs().clamp(min=s)
        return r / m, s / m, m

    def extra_repr(self) -> str:
        """n and eps."""
        return f"n={self.n}, eps={self.eps}"


def own_eps(eps: float | None, dtype: torch.dtype) -> float:
    """An eps, or the one of the dtype in which norms are accumulated.

    >>> own_eps(None, torch.bfloat16) == torch.finfo(torch.float32).eps
    True
    """
    return torch.finfo(accumulation_dtype(dtype)).eps if eps is None else eps
