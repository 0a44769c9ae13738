"""Algorithm 1, QR-compress: a chain of radial layers to its reduced widths, exactly.

Paper: alg:QR-mod-comp, alg:QR-mod-comp-merged, thm:mod-comp, thm:withshift, prop:qinva-in-int. Differs: a thin QR (the
columns of Q_i beyond n_red_i never enter the answer), float64 inside, the sign rule of `radnet.linalg`, networks
without biases, whose matrices A_i have no bias column, and layers that keep their width: any orthogonal Q_i will do
there (A_i = Q_i R_i with R_i = Q_i^T A_i), so it is the identity and R_i is A_i. Shifts pass through untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..linalg import QR, complete_basis, matmul64, pad, signed_qr, sparsest_first

if TYPE_CHECKING:
    from jaxtyping import Float


#: from this width on, a decomposition that cannot make a layer smaller is not made
WIDE = 512


class ReducedChain(NamedTuple):
    """What Algorithm 1 returns, in float64.

    ``weights`` and ``biases`` are W^red and b^red; ``bases[i-1]`` is ``Q_i inc_i``, the first n_red_i columns of Q_i,
    or None where the width stays and Q_i is the identity.
    """

    weights: list[Tensor]
    biases: list[Tensor | None]
    bases: list[Tensor | None]


def qr_compress(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> ReducedChain:
    """QR-compress, without the columns of Q that play no part.

    Parameters
    ----------
    weights : L tensors, shapes (n_i, n_{i-1})
    biases : L tensors of shape (n_i,), or L times None

    Returns
    -------
    ReducedChain
        Of the widths `radnet.reduced_widths` gives.

    References
    ----------
    alg:QR-mod-comp; the comments give its lines.

    Examples
    --------
    >>> chain = qr_compress([torch.ones(4, 1), torch.ones(1, 4)], [torch.zeros(4), torch.zeros(1)])
    >>> [tuple(W.shape) for W in chain.weights], [tuple(Q.shape) for Q in chain.bases]
    ([(2, 1), (1, 2)], [(4, 2)])
    >>> qr_compress([torch.ones(512, 900), torch.ones(1, 512)], [None, None]).bases
    [None]
    """
    layers = list(reduced_layers(weights, biases))
    return ReducedChain([W for W, _, _ in layers], [b for _, b, _ in layers], [Q for _, _, Q in layers[:-1]])


def reduced_layers(
    weights: Sequence[Tensor], biases: Sequence[Tensor | None]
) -> Iterator[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Algorithm 1 one layer at a time: W_i^red, b_i^red and ``Q_i inc_i``; None for a Q_i that is the identity.

    No layer and no basis is kept longer than it is needed; the last layer has no basis.
    """
    W, b = weights[0].detach().double(), _double(biases[0])  # l. 2: A_1 = [b_1 W_1]
    for i in range(1, len(weights)):  # l. 3
        if WIDE <= W.shape[0] <= W.shape[1] + (b is not None):  # the width stays, and Q = 1 is as good as any
            yield W, b, None
            W, b = weights[i].detach().double(), _double(biases[i])
            continue
        Q, R = _decomposed(_merge(b, W))  # l. 4: A_i = Q_i inc_i R_i
        b, W = _split(R, bias=b is not None)
        yield W, b, Q  # l. 5 to 7
        W, b = matmul64(weights[i].detach(), Q), _double(biases[i])  # l. 8: A_{i+1} = [b_{i+1} W_{i+1} Q_i inc_i]
        del Q
    yield W, b, None  # l. 9, 10


def _decomposed(A: Float[Tensor, "n m"]) -> QR:
    """``A = Q R``; R is triangular, or would be with the columns in the order of `sparsest_first`."""
    order = sparsest_first(A)
    if order is None:
        return signed_qr(A)
    Q, R = signed_qr(A[:, order])
    return QR(Q, R[:, torch.argsort(order)])


def _double(b: Tensor | None) -> Tensor | None:
    return None if b is None else b.detach().double()


def _merge(b: Tensor | None, W: Float[Tensor, "n m"]) -> Tensor:
    return W if b is None else torch.cat([b.unsqueeze(1), W], dim=1)


def _split(A: Float[Tensor, "n m"], bias: bool) -> tuple[Tensor | None, Tensor]:
    return (A[:, 0].clone(), A[:, 1:].clone()) if bias else (None, A)


def complete_bases(reduced: ReducedChain) -> tuple[Tensor, ...]:
    """The Q_i of Algorithm 1, n_i x n_i, each beginning with the basis that is already there."""
    hidden = reduced.weights[: len(reduced.bases)]
    return tuple(
        torch.eye(len(W), dtype=torch.float64, device=W.device) if Q is None else complete_basis(Q)
        for W, Q in zip(hidden, reduced.bases, strict=True)
    )


def transform(
    weights: Sequence[Tensor], reduced: ReducedChain, matrices: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """``T = Q^-1 . (W, b)`` in float64, with exact zeros where prop:qinva-in-int has them.

    The columns that read the first n_red_{i-1} entries of layer i - 1, and the bias, are ``inc_i R_i`` by construction,
    so they are copied and not computed:

        T_i = [ V_i  Q_i^-1 W_i Q_{i-1} beyond column n_red_{i-1} ]
              [ 0    (same)                                      ]
    """
    T: list[Tensor] = []
    for i, W in enumerate(weights):
        V = reduced.weights[i]
        T_i = pad(V, W.shape[0], W.shape[1])
        k = V.shape[1]
        if k < W.shape[1]:  # never in the first layer
            beyond = matmul64(W.detach(), matrices[i - 1][:, k:])
            T_i[:, k:] = matrices[i].mT @ beyond if i < len(matrices) else beyond
        T.append(T_i)
    return T, [
        None if c is None else pad(c.unsqueeze(1), len(W), 1)[:, 0] for W, c in zip(T, reduced.biases, strict=True)
    ]
