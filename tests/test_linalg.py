"""The QR decomposition with its sign rule, and what stands beside it."""

import math

import numpy as np
import pytest
import torch

import reference
from radnet import linalg

SIZES = (0, 1, 2, 3, 5, 10, 50)
EPS = torch.finfo(torch.float64).eps


def matrix(kind, n, m, generator, dtype):
    """LAPACK's eight types for testing QR: structure, conditioning, scale."""
    eps = torch.finfo(dtype).eps
    k = min(n, m)
    random = torch.randn(n, m, generator=generator, dtype=torch.float64)
    if kind == "diagonal":
        A = torch.zeros(n, m, dtype=torch.float64)
        A.diagonal().copy_(torch.rand(k, generator=generator, dtype=torch.float64))
    elif kind == "upper":
        A = random.triu()
    elif kind == "lower":
        A = random.tril()
    else:
        condition = {"cond sqrt(0.1/eps)": math.sqrt(0.1 / eps), "cond 0.1/eps": 0.1 / eps}.get(kind, 2.0)
        values = torch.logspace(0, -math.log10(condition), max(k, 1), dtype=torch.float64)[:k]
        U = torch.linalg.qr(torch.randn(n, k, generator=generator, dtype=torch.float64)).Q
        V = torch.linalg.qr(torch.randn(m, k, generator=generator, dtype=torch.float64)).Q
        A = U * values @ V.mT
    small, large = torch.finfo(dtype).tiny / eps, torch.finfo(dtype).max * eps
    return (A * {"near underflow": small, "near overflow": large}.get(kind, 1.0)).to(dtype)


KINDS = (
    "diagonal", "upper", "lower", "cond 2", "cond sqrt(0.1/eps)", "cond 0.1/eps", "near underflow", "near overflow",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_lapack_ratios_are_below_ten_on_the_eight_usual_types(dtype, generator, evidence):
    worst = {"factorization": 0.0, "orthogonality": 0.0}
    tried = 0
    for kind in KINDS:
        for n in SIZES:
            for m in SIZES:
                A = matrix(kind, n, m, generator, dtype)
                Q, R = linalg.signed_qr(A)
                assert Q.shape == (n, min(n, m))
                assert R.shape == (min(n, m), m)
                assert (R.diagonal() >= 0).all()
                assert torch.equal(R, R.triu())
                worst["factorization"] = max(worst["factorization"], linalg.factorization_ratio(A, Q, R))
                worst["orthogonality"] = max(worst["orthogonality"], linalg.orthogonality_ratio(Q))
                tried += 1
    evidence("LAPACK ratios", dtype=str(dtype), matrices=tried, **worst)
    assert max(worst.values()) < 10


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (50, 10)])
def test_lapack_ratios_are_below_ten_for_rank_deficient_matrices(shape, generator):
    n, m = shape
    A = torch.randn(n, 2, generator=generator, dtype=torch.float64) @ torch.randn(2, m, generator=generator).double()
    for damaged in (A, A.index_fill(1, torch.tensor([0]), 0.0), torch.zeros_like(A)):
        Q, R = linalg.signed_qr(damaged)
        assert linalg.factorization_ratio(damaged, Q, R) < 10
        assert linalg.orthogonality_ratio(Q) < 10
        assert (R.diagonal() >= 0).all()


def test_the_ratios_notice_a_wrong_factorization(generator):
    A = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    Q, R = linalg.signed_qr(A)
    assert linalg.factorization_ratio(A, Q, 1.001 * R) > 1e9
    assert linalg.factorization_ratio(torch.zeros_like(A), Q, R) == math.inf
    assert linalg.factorization_ratio(torch.zeros_like(A), Q, 0 * R) == 0
    assert linalg.orthogonality_ratio(1.001 * Q) > 1e9


def test_the_ratios_of_empty_matrices_are_zero_and_those_of_one_row_or_column_are_not():
    for n, m in ((0, 3), (3, 0), (0, 0)):
        Q, R = linalg.signed_qr(torch.zeros(n, m))
        assert linalg.factorization_ratio(torch.zeros(n, m), Q, R) == 0
        assert linalg.orthogonality_ratio(Q) == 0
    for n, m in ((1, 3), (3, 1), (1, 1)):
        A = torch.ones(n, m)
        Q, R = linalg.signed_qr(A)
        assert linalg.factorization_ratio(A, Q, 2 * R) > 1e5
        assert linalg.orthogonality_ratio(2 * Q) > 1e5


def test_the_ratios_are_those_of_lapack():
    A = torch.tensor([[3.0, 0.0], [4.0, 5.0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    # ||A - I A'||_1 / (n ||A||_1 eps): largest column sums 0.5 and 7
    assert linalg.factorization_ratio(A, eye, A + torch.tensor([[0.0, 0.25], [0.0, 0.25]])) == pytest.approx(
        0.5 / (2 * 7 * EPS)
    )
    # ||I - Q^T Q||_1 / (n eps) for Q = 2 I
    assert linalg.orthogonality_ratio(2 * eye) == pytest.approx(3 / (2 * EPS))
    tall = torch.zeros(4, 2, dtype=torch.float64)
    assert linalg.orthogonality_ratio(tall) == pytest.approx(1 / (4 * EPS))


def test_signed_qr_is_the_unique_one_of_numpy_with_signs_fixed(generator):
    A = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    Q, R = linalg.signed_qr(A)
    Q_np, R_np = reference.qr_decomp(A.numpy())
    np.testing.assert_allclose(Q, Q_np[:, :4], atol=20 * EPS)
    np.testing.assert_allclose(R, R_np[:4], atol=20 * EPS * 7)


def test_a_zero_on_the_diagonal_counts_as_positive():
    A = torch.tensor([[0.0, 1.0], [0.0, 2.0]], dtype=torch.float64)  # a zero bias: the first column vanishes
    Q, R = linalg.signed_qr(A)
    assert R[0, 0] == 0
    torch.testing.assert_close(Q.mT @ Q, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(Q @ R, A)
    assert linalg.signs(torch.tensor([0.0, -0.0, -1.0, 2.0])).tolist() == [1, 1, -1, 1]


def test_complete_basis_keeps_the_given_columns_to_the_last_bit(generator):
    for n, k in ((5, 0), (5, 2), (5, 5), (1, 1)):
        Q = linalg.signed_qr(torch.randn(n, k, generator=generator, dtype=torch.float64)).Q
        B = linalg.complete_basis(Q)
        assert B.shape == (n, n)
        assert torch.equal(B[:, :k], Q)
        assert linalg.orthogonality_ratio(B) < 10
        assert B.data_ptr() != Q.data_ptr()


def test_haar_orthogonal_is_uniform_on_the_orthogonal_group(generator):
    n, draws = 3, 4000
    Q = torch.stack([linalg.haar_orthogonal(n, generator) for _ in range(draws)])
    assert Q.dtype == torch.float64
    sigma = 1 / math.sqrt(draws)
    assert Q.mean(0).abs().max() < 5 * sigma  # E Q = 0
    assert ((Q**2).mean(0) - 1 / n).abs().max() < 5 * sigma  # E Q_ij^2 = 1/n
    assert ((Q**4).mean(0) - 3 / (n * (n + 2))).abs().max() < 5 * sigma  # E Q_ij^4 = 3/(n(n+2))
    assert abs((torch.linalg.det(Q) > 0).double().mean() - 0.5) < 5 * sigma  # both components alike
    trace = Q.diagonal(dim1=1, dim2=2).sum(1)
    assert abs((trace**2).mean() - 1) < 10 * sigma  # E tr(Q)^2 = 1, where a QR without the sign rule fails
    assert not torch.equal(linalg.haar_orthogonal(n, generator), linalg.haar_orthogonal(n, generator))


def test_haar_orthogonal_gives_the_same_bits_for_the_same_seed():
    a, b = (linalg.haar_orthogonal(4, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(a, b)


def test_pad_puts_a_matrix_into_the_top_left_corner():
    A = torch.arange(1.0, 5.0).reshape(2, 2)
    assert linalg.pad(A, 3, 4).tolist() == [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 0, 0]]
    assert linalg.pad(A.double(), 2, 2).dtype == torch.float64


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
def test_matmul64_is_the_product_in_float64_whatever_the_chunks(rows, monkeypatch, generator):
    monkeypatch.setattr(linalg, "ROWS_AT_ONCE", 4)
    A = torch.randn(rows, 6, generator=generator)
    B = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    product = linalg.matmul64(A, B)
    assert product.dtype == torch.float64
    np.testing.assert_allclose(product, A.double().numpy() @ B.numpy(), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(linalg.matmul64(A.double(), B), product)
