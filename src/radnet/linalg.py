"""The linear algebra underneath: a QR decomposition with a fixed sign rule, and what goes with it.

Paper: "The QR decomposition" (prop:QR-gen, prop:QR). Differs from the text in the sign rule: the diagonal of R is made
non-negative and a zero diagonal entry counts as positive, so that no column of Q is ever multiplied by 0 (a zero
bias or a dead input would otherwise destroy one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

#: rows converted to float64 at a time in `matmul64`: 512 rows of a layer 8192 wide are 32 MB
ROWS_AT_ONCE = 512


class QR(NamedTuple):
    """``A = Q R`` with orthonormal columns in Q and R upper triangular, its diagonal non-negative."""

    Q: Tensor
    R: Tensor


def signed_qr(A: Float[Tensor, "n m"]) -> QR:
    """Thin QR decomposition whose R has a non-negative diagonal.

    ``A = Q R`` with ``k = min(n, m)`` columns in Q. For an invertible square A this is the unique decomposition with
    a positive diagonal; a zero on the diagonal counts as positive.

    Parameters
    ----------
    A : Tensor, shape (n, m)
        float32 or float64; sizes of 0 are allowed.

    Returns
    -------
    QR
        Q of shape (n, k), R of shape (k, m).

    References
    ----------
    prop:QR-gen and remark 4 after prop:QR.

    Examples
    --------
    >>> Q, R = signed_qr(torch.tensor([[0.0, -2.0], [-3.0, 1.0]]))
    >>> R
    tensor([[ 3., -1.],
            [ 0.,  2.]])
    """
    Q, R = torch.linalg.qr(A, mode="reduced")
    s = signs(R.diagonal())
    return QR(Q * s, (R * s.unsqueeze(1)).triu())


def sparsest_first(A: Float[Tensor, "n m"]) -> Tensor | None:
    """The order of columns in which those with fewer entries come first; None if they are in it already.

    In a QR decomposition in that order a column that is 0 somewhere gives a vector of Q that is 0 there, so that what
    large numbers never met in A, they do not meet in Q either. Columns of zeros alone keep their places.

    >>> sparsest_first(torch.tensor([[1.0, 0.0], [1.0, 1.0]])), sparsest_first(torch.ones(2, 2))
    (tensor([1, 0]), None)
    """
    entries = (A != 0).sum(dim=0)
    entries = torch.where(entries == 0, len(A), entries)
    if entries.numel() == 0 or bool((entries == entries[0]).all()):
        return None
    order = torch.argsort(entries, stable=True)
    return None if bool((order == torch.arange(len(order), device=order.device)).all()) else order


def signs(diagonal: Tensor) -> Tensor:
    """-1 where the entry is negative, +1 elsewhere: the sign of 0 is +1."""
    return torch.where(diagonal < 0, -torch.ones_like(diagonal), torch.ones_like(diagonal))


def complete_basis(Q: Float[Tensor, "n k"]) -> Float[Tensor, "n n"]:
    """Orthogonal n x n matrix whose first k columns are the orthonormal columns given, to the last bit.

    Examples
    --------
    >>> B = complete_basis(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    >>> B[:, 0].tolist(), abs(B[0, 1].item())
    ([0.0, 1.0], 1.0)
    """
    n, k = Q.shape
    if k == n:
        return Q.clone()
    full = torch.linalg.qr(Q, mode="complete").Q
    return torch.cat([Q, full[:, k:]], dim=1)


def haar_orthogonal(n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n n"]:
    """Random orthogonal n x n matrix, uniform on O(n) (Haar), in float64.

    Q of the signed QR of a Gaussian matrix: the law of the Gaussian is invariant under O(n), and the sign rule makes
    the decomposition unique, so the law of Q is invariant too.
    """
    device = generator.device if generator is not None else None
    return signed_qr(torch.randn(n, n, generator=generator, dtype=torch.float64, device=device)).Q


def pad(A: Float[Tensor, "n m"], rows: int, columns: int) -> Tensor:
    """``A`` in the top left corner of a zero matrix of the given size (``inc_rows A inc_columns^T``)."""
    out = A.new_zeros(rows, columns)
    out[: A.shape[0], : A.shape[1]] = A
    return out


def matmul64(A: Float[Tensor, "n m"], B: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    """``A @ B`` in float64 without ever holding all of A in float64 (A is the wide matrix, B is float64)."""
    if A.dtype == torch.float64:
        return A @ B
    out = B.new_empty(A.shape[0], B.shape[1])
    for start in range(0, A.shape[0], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        torch.matmul(A[rows].double(), B, out=out[rows])
    return out


def orthogonality_ratio(Q: Float[Tensor, "n k"]) -> float:
    """LAPACK's test ratio ``||I - Q^T Q||_1 / (n eps)`` in the dtype of Q; below 10 means orthogonal to rounding."""
    n, k = Q.shape
    if n == 0 or k == 0:
        return 0.0
    defect = torch.eye(k, dtype=Q.dtype, device=Q.device) - Q.mT @ Q
    return float(torch.linalg.matrix_norm(defect, ord=1)) / (n * torch.finfo(Q.dtype).eps)


def factorization_ratio(A: Float[Tensor, "n m"], Q: Float[Tensor, "n k"], R: Float[Tensor, "k m"]) -> float:
    """LAPACK's test ratio ``||A - Q R||_1 / (n ||A||_1 eps)``; below 10 means equal to rounding."""
    n, m = A.shape
    if n == 0 or m == 0:
        return 0.0
    size = float(torch.linalg.matrix_norm(A, ord=1))
    error = float(torch.linalg.matrix_norm(A - Q @ R, ord=1))
    if size == 0.0:
        return 0.0 if error == 0.0 else float("inf")
    return error / size / (n * torch.finfo(A.dtype).eps)
