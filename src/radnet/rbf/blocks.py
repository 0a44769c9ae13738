"""An `RBFLayer` as a block-radial layer, and the smaller blocks that do behind a linear layer.

Paper: "Relation to radial basis function networks", "Conclusions" (app:rbfns), which expects some compression for N > 1
and leaves it there. Ours, in three lines: with the weight a_i, block i is v_i = (x + b_i, 1), so that

    |x + b_i| = sqrt(|v_i|^2 - 1),    (a_i + W_i (x + b_i)) lambda(|x + b_i|) = [W_i a_i] h(|v_i|) v_i/|v_i|
    with h(r) = r lambda(sqrt(r^2 - 1));    without a_i, v_i = x + b_i and h(r) = r lambda(r).

Behind x = A u + c every v_i is linear in (1, u): with k numbers in u it lies in k + 1 dimensions, with or without a_i.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..activations import Radial
from ..checks import check_kind
from ..errors import InvalidType, InvalidValue
from ..linalg import signed_qr
from ..network import linear_around
from .kernels import Kernel
from .layer import RBFLayer


def as_blocks(layer: RBFLayer) -> nn.Sequential:
    """The same function as a linear layer, one radial activation with N blocks, and a linear layer.

    Block i is ``x + b_i`` with the profile ``r lambda(r)``; if there are weights a_i it is ``(x + b_i, 1)`` with the
    profile ``r lambda(sqrt(r^2 - 1))``. That root cancels near a centre: a kernel that is smooth in r^2, as the named
    ones are, does not notice; another is seen there to sqrt(eps) only.

    Returns
    -------
    nn.Sequential
        ``Linear(n, N k)``, ``Radial(h, blocks=N)``, ``Linear(N k, m)``, where k is n, or n + 1 with weights.

    Examples
    --------
    >>> layer = RBFLayer(2, 1, 5, dtype=torch.float64)
    >>> x = torch.randn(7, 2, dtype=torch.float64)
    >>> torch.allclose(as_blocks(layer)(x), layer(x))
    True
    """
    check_kind(layer, RBFLayer, "as_blocks needs an RBFLayer")
    eye = torch.eye(layer.n_in, dtype=torch.float64, device=layer.biases.device)
    pre, readers = _pre_activations(layer, eye, torch.zeros_like(eye[0])), _readers(layer)
    return _assemble(layer, list(pre), list(readers))


def compress_blocks(first: nn.Linear, layer: RBFLayer) -> nn.Sequential:
    """``layer(first(u))`` with smaller blocks: at most one entry more than u has, with or without weights a_i.

    Block i is linear in (1, u), ``M_i = [c + b_i  A]`` with the row (1, 0) below it if there are weights. With the thin
    QR decomposition ``M_i = U_i R_i`` the blocks ``R_i (1, u)`` have the same norms, and ``U_i`` goes into the readers.

    Parameters
    ----------
    first : nn.Linear
        ``u -> A u + c`` from k numbers to n.
    layer : RBFLayer
        On n numbers, of the same dtype and device.

    Returns
    -------
    nn.Sequential
        ``Linear(k, N q)``, ``Radial(h, blocks=N)``, ``Linear(N q, m)`` with ``q = min(n, k + 1)``; n + 1 with weights.

    References
    ----------
    app:rbfns, "Conclusions"; the decomposition is that of prop:QR.

    Examples
    --------
    >>> first, layer = nn.Linear(2, 50), RBFLayer(50, 1, 10)
    >>> compress_blocks(first, layer)[0].out_features, as_blocks(layer)[0].out_features
    (30, 510)
    """
    check_kind(first, nn.Linear, "compress_blocks needs an nn.Linear in front")
    check_kind(layer, RBFLayer, "compress_blocks needs an RBFLayer")
    if is_lazy(first.weight):
        raise InvalidValue("the linear layer in front is not initialised yet; run it on a batch first")
    if first.out_features != layer.n_in:
        raise InvalidValue(
            f"the linear layer in front has {first.out_features} outputs, but the RBF layer has {layer.n_in} inputs"
        )
    kinds = [f"{p.dtype} on {p.device}" for p in (first.weight, layer.biases)]
    if kinds[0] != kinds[1]:
        raise InvalidType(f"the linear layer in front is {kinds[0]}, the RBF layer {kinds[1]}; bring them together")
    A = first.weight.detach().double()
    c = torch.zeros_like(A[:, 0]) if first.bias is None else first.bias.detach().double()
    factors = [signed_qr(M) for M in _pre_activations(layer, A, c)]
    readers = [C @ U for C, (U, _) in zip(_readers(layer), factors, strict=True)]
    return _assemble(layer, [R for _, R in factors], readers)


def _pre_activations(layer: RBFLayer, A: Tensor, c: Tensor) -> Tensor:
    """``M_i = [c + b_i  A]``, and below it the row (1, 0) if there are weights; float64, (N, n or n + 1, k + 1)."""
    offsets = (c + layer.biases.detach().double()).unsqueeze(-1)
    M = torch.cat([offsets, A.expand(layer.count, -1, -1)], dim=-1)
    if layer.weights is None:
        return M
    last = torch.zeros_like(M[:, :1])
    last[..., 0] = 1
    return torch.cat([M, last], dim=1)


def _readers(layer: RBFLayer) -> Tensor:
    """``[W_i a_i]``, in float64, without the part that the layer does not have (a missing W_i with weights is 0)."""
    W = layer.biases.new_zeros(layer.count, layer.n_out, layer.n_in) if layer.matrices is None else layer.matrices
    parts = [W, *([] if layer.weights is None else [layer.weights.unsqueeze(-1)])]
    return torch.cat(parts, dim=-1).detach().double()


def _assemble(layer: RBFLayer, pre: list[Tensor], readers: list[Tensor]) -> nn.Sequential:
    M, C, like = torch.cat(pre), torch.cat(readers, dim=1), layer.biases
    profile = _BlockProfile(copy.deepcopy(layer.kernel), layer.width, lifted=layer.weights is not None)
    return nn.Sequential(
        linear_around(M[:, 1:].to(like, copy=True), M[:, 0].to(like, copy=True)),
        Radial(profile, blocks=layer.count),
        linear_around(C.to(like), None),
    )


class _BlockProfile(nn.Module):
    """``h(r) = r lambda(d / width)`` with d = r, or d = sqrt(r^2 - 1) for blocks with a 1 in them."""

    def __init__(self, kernel: Kernel, width: float, lifted: bool) -> None:
        super().__init__()
        self.kernel, self.width, self.lifted = kernel, width, lifted

    def forward(self, r: Tensor) -> Tensor:
        d = r
        if self.lifted:  # rounding may take r below 1; the double where keeps the derivative of the root finite
            safe = torch.where(r > 1, r, torch.full_like(r, 2.0))
            d = torch.where(r > 1, (safe - 1).sqrt() * (safe + 1).sqrt(), torch.zeros_like(r))
        return r * self.kernel(d / self.width)
