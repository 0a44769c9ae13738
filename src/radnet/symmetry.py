"""The orthogonal change of basis on parameter space: ``(W_i, b_i) -> (Q_i W_i Q_{i-1}^-1, Q_i b_i)``.

Paper: "Parameter space symmetries", eq:O-hidden-action-neur, prop:rnns-invariance. Q_0 and Q_L are identities, so an
action is a tuple of L - 1 orthogonal matrices, one for each hidden layer, in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import check_kind
from .errors import InvalidType, InvalidValue
from .linalg import haar_orthogonal, matmul64, orthogonality_ratio, signed_qr
from .network import NetworkT, RadNet
from .widths import check_widths

#: LAPACK's bound on the orthogonality ratio is 10; a given matrix may be a product of a few
MAX_ORTHOGONALITY_RATIO = 100.0


@dataclass(frozen=True, eq=False)
class OrthogonalAction:
    """An element Q of ``O(n_1) x ... x O(n_{L-1})``, acting on networks of the given widths.

    Parameters
    ----------
    widths : sequence of int, length L + 1
    matrices : sequence of L - 1 tensors, shape (n_i, n_i)
        Orthogonal; kept in float64.

    References
    ----------
    "Parameter space symmetries"; prop:rnns-invariance.

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.RadNet((2, 5, 4, 1), activation="squash", dtype=torch.float64)
    >>> Q = radnet.OrthogonalAction.random(net.widths)
    >>> x = torch.randn(10, 2, dtype=torch.float64)
    >>> torch.allclose(Q.apply(net)(x), net(x))
    True
    """

    widths: tuple[int, ...]
    matrices: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", check_widths(self.widths))
        hidden = self.widths[1:-1]
        if not isinstance(self.matrices, Iterable):
            raise InvalidType(f"expected {len(hidden)} matrices, got {type(self.matrices).__name__}")
        given = tuple(self.matrices)
        if len(given) != len(hidden):
            raise InvalidValue(f"got {len(given)} matrices; widths {self.widths} have {len(hidden)} hidden layers")
        kept = tuple(_checked(Q, n, i) for i, (Q, n) in enumerate(zip(given, hidden, strict=True), start=1))
        object.__setattr__(self, "matrices", kept)

    @classmethod
    def _trusted(cls, widths: tuple[int, ...], matrices: Iterable[Tensor]) -> OrthogonalAction:
        """An action made of others, which need not be checked again."""
        action = object.__new__(cls)
        object.__setattr__(action, "widths", widths)
        object.__setattr__(action, "matrices", tuple(matrices))
        return action

    @classmethod
    def random(cls, widths: Sequence[int], generator: torch.Generator | None = None) -> OrthogonalAction:
        """Uniformly random action (Haar on each factor).

        >>> Q = OrthogonalAction.random((1, 3, 1), torch.Generator().manual_seed(0))
        >>> Q.orthogonality_ratio() < 10
        True
        """
        n = check_widths(widths)
        return cls(n, tuple(haar_orthogonal(n_i, generator) for n_i in n[1:-1]))

    @classmethod
    def identity(cls, widths: Sequence[int]) -> OrthogonalAction:
        """The action that changes nothing."""
        n = check_widths(widths)
        return cls(n, tuple(torch.eye(n_i) for n_i in n[1:-1]))

    def orthogonality_ratio(self) -> float:
        """The worst LAPACK ratio ``||I - Q_i^T Q_i||_1 / (n_i eps)``; below 10 means orthogonal to rounding."""
        return max((orthogonality_ratio(Q) for Q in self.matrices), default=0.0)

    def apply(self, net: NetworkT) -> NetworkT:
        """``Q . (W, b)`` as a new network of the same class; computed in float64, returned in the network's dtype.

        Raises
        ------
        InvalidValue
            If the network has other widths.
        """
        check_kind(net, RadNet, "an orthogonal action needs a RadNet")
        net.check_initialised()
        if net.widths != self.widths:
            raise InvalidValue(f"this action is for widths {self.widths}, the network has widths {net.widths}")
        weights, biases = [], []
        for i, (W, b) in enumerate(zip(net.weights, net.biases, strict=True), start=1):
            Q, before = self._matrix(i, W.device), self._matrix(i - 1, W.device)
            W64 = W.detach().double() if before is None else matmul64(W.detach(), before.mT)  # W_i Q_{i-1}^-1
            weights.append(W64 if Q is None else Q @ W64)
            b64 = None if b is None else b.detach().double()
            biases.append(b64 if b64 is None or Q is None else Q @ b64)
        return net.with_parameters(weights, biases)

    def _matrix(self, i: int, device: torch.device) -> Tensor | None:
        """Q_i, or None for the identities Q_0 and Q_L."""
        return self.matrices[i - 1].to(device) if 0 < i < len(self.widths) - 1 else None

    def inverse(self) -> OrthogonalAction:
        """``Q^-1``, which is the transpose."""
        return self._trusted(self.widths, (Q.mT for Q in self.matrices))

    def __matmul__(self, other: OrthogonalAction) -> OrthogonalAction:
        """The composition: ``(Q @ P).apply(net)`` is ``Q.apply(P.apply(net))``."""
        if not isinstance(other, OrthogonalAction):
            return NotImplemented
        if other.widths != self.widths:
            raise InvalidValue(f"cannot compose actions for widths {self.widths} and {other.widths}")
        products = (Q @ P.to(Q.device) for Q, P in zip(self.matrices, other.matrices, strict=True))
        return self._trusted(self.widths, products)


def _checked(Q: Tensor, n: int, i: int) -> Tensor:
    """A copy of the matrix of layer i in float64, once it is known to be orthogonal."""
    if not isinstance(Q, Tensor) or not Q.is_floating_point():
        raise InvalidType(f"layer {i}: expected a real floating-point matrix")
    if Q.shape != (n, n):
        raise InvalidValue(f"layer {i}: matrix has shape {tuple(Q.shape)}; width {n} needs ({n}, {n})")
    ratio = orthogonality_ratio(Q.detach())
    if not ratio <= MAX_ORTHOGONALITY_RATIO:
        raise InvalidValue(
            f"layer {i}: matrix is not orthogonal, ||I - Q^T Q|| = {ratio:.3g} n eps; take Q of radnet.linalg.signed_qr"
        )
    if Q.dtype == torch.float64:
        return Q.detach().clone()
    return signed_qr(Q.detach().double()).Q  # orthogonal in float64 too: its R is the identity to rounding
