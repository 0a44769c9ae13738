"""The orthogonal group acts on parameter space and leaves the function alone."""

import copy

import pytest
import torch
from hypothesis import given, settings

import radnet
from radnet.testing import assert_same_function
from strategies import networks


def test_the_action_leaves_the_function_unchanged(count, evidence):
    """prop:rnns-invariance."""
    tried = 0

    @settings(max_examples=count(60, 500))
    @given(networks())
    def check(net):
        nonlocal tried
        generator = torch.Generator().manual_seed(tried)
        before = copy.deepcopy(net.state_dict())
        moved = radnet.OrthogonalAction.random(net.widths, generator).apply(net)
        assert moved.widths == net.widths
        assert type(moved) is type(net)
        x = torch.randn(8, net.widths[0], generator=generator, dtype=torch.float64)
        certificate = radnet.verify(net, moved, x)
        assert certificate.lossless, str(certificate)
        if not certificate.rows_at_jump:
            assert_same_function(net, moved, x)
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        tried += 1

    check()
    evidence("F of Q.(W,b) is F of (W,b)", networks=tried)


def test_the_action_is_the_formula_of_the_paper(generator):
    net = radnet.RadNet((2, 4, 3, 1), "squash", init="linear", generator=generator, dtype=torch.float64)
    action = radnet.OrthogonalAction.random(net.widths, generator)
    Q1, Q2 = action.matrices
    (W1, W2, W3), (b1, b2, b3) = net.weights, net.biases
    moved = action.apply(net)
    expected = (Q1 @ W1, Q2 @ W2 @ torch.linalg.inv(Q1), W3 @ torch.linalg.inv(Q2))
    for got, W in zip(moved.weights, expected, strict=True):
        torch.testing.assert_close(got, W, rtol=1e-12, atol=1e-13)
    for got, b in zip(moved.biases, (Q1 @ b1, Q2 @ b2, b3), strict=True):
        torch.testing.assert_close(got, b, rtol=1e-12, atol=1e-13)
    merged = [  # eq:O-hidden-action-neur
        Q1 @ net.merged()[0],
        Q2 @ net.merged()[1] @ torch.block_diag(torch.ones(1, 1).double(), Q1.mT),
        net.merged()[2] @ torch.block_diag(torch.ones(1, 1).double(), Q2.mT),
    ]
    for got, A in zip(moved.merged(), merged, strict=True):
        torch.testing.assert_close(got, A, rtol=1e-12, atol=1e-13)


def test_it_is_a_group_action(generator):
    net = radnet.RadNet((3, 5, 4, 2), "sigmoid", init="linear", generator=generator, dtype=torch.float64)
    Q, P = (radnet.OrthogonalAction.random(net.widths, generator) for _ in range(2))

    def close(a, b):
        for A, B in zip(a.merged(), b.merged(), strict=True):
            torch.testing.assert_close(A, B, rtol=1e-12, atol=1e-13)

    close((Q @ P).apply(net), Q.apply(P.apply(net)))
    close(Q.inverse().apply(Q.apply(net)), net)
    close((Q @ Q.inverse()).apply(net), net)
    close(radnet.OrthogonalAction.identity(net.widths).apply(net), net)
    assert not torch.allclose((Q @ P).matrices[0], (P @ Q).matrices[0])


def test_actions_are_float64_and_networks_keep_their_dtype(generator):
    net = radnet.RadNet((2, 6, 1), dtype=torch.float32)
    action = radnet.OrthogonalAction.random(net.widths, generator)
    assert action.matrices[0].dtype == torch.float64
    assert action.apply(net).weights[0].dtype == torch.float32
    from_float32 = radnet.OrthogonalAction((2, 2, 1), (torch.eye(2),))
    assert from_float32.matrices[0].dtype == torch.float64


def test_random_actions_are_orthogonal_and_repeatable():
    a, b = (radnet.OrthogonalAction.random((1, 7, 30, 1), torch.Generator().manual_seed(2)) for _ in range(2))
    assert a.orthogonality_ratio() < 10
    assert all(torch.equal(p, q) for p, q in zip(a.matrices, b.matrices, strict=True))
    assert radnet.OrthogonalAction.random((3, 2)).matrices == ()
    assert radnet.OrthogonalAction.random((3, 2)).orthogonality_ratio() == 0


def test_the_orthogonality_ratio_is_that_of_the_worst_matrix():
    nearly = torch.eye(3, dtype=torch.float64) * (1 + 1e-15)
    action = radnet.OrthogonalAction((1, 3, 3, 1), (torch.eye(3).double(), nearly))
    assert 1 < action.orthogonality_ratio() < 10


def test_networks_without_biases_are_moved_too(generator):
    net = radnet.RadNet((2, 4, 1), "squash", bias=False, generator=generator, dtype=torch.float64)
    moved = radnet.OrthogonalAction.random(net.widths, generator).apply(net)
    assert moved.biases == (None, None)
    x = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(moved(x), net(x))


EYE = torch.eye(3)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: radnet.OrthogonalAction.random((1, 4, 1)).apply(radnet.RadNet((1, 5, 1))),
            ValueError,
            r"this action is for widths \(1, 4, 1\), the network has widths \(1, 5, 1\)",
        ),
        (lambda: radnet.OrthogonalAction.random((1, 4, 1)).apply(torch.nn.Linear(1, 1)), TypeError, "got Linear"),
        (lambda: radnet.OrthogonalAction((1, 3, 1), (2 * EYE,)), ValueError, "layer 1: matrix is not orthogonal"),
        (lambda: radnet.OrthogonalAction((1, 3, 1), (EYE * float("nan"),)), ValueError, "is not orthogonal"),
        (
            lambda: radnet.OrthogonalAction((1, 3, 1), ()),
            ValueError,
            r"got 0 matrices; widths \(1, 3, 1\) have 1 hidden",
        ),
        (
            lambda: radnet.OrthogonalAction((1, 4, 1), (EYE,)),
            ValueError,
            r"layer 1: matrix has shape \(3, 3\); width 4",
        ),
        (
            lambda: radnet.OrthogonalAction((1, 3, 1), (EYE.long(),)),
            TypeError,
            "layer 1: expected a real floating-point",
        ),
        (
            lambda: radnet.OrthogonalAction.random((1, 3, 1)) @ radnet.OrthogonalAction.random((1, 4, 1)),
            ValueError,
            r"cannot compose actions for widths \(1, 3, 1\) and \(1, 4, 1\)",
        ),
        (lambda: radnet.OrthogonalAction.random((1, 3, 1)) @ EYE, TypeError, "unsupported operand"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_float32_matrices_are_taken_and_can_be_inverted_and_composed(generator):
    Q = torch.linalg.qr(torch.randn(50, 50, generator=generator)).Q
    action = radnet.OrthogonalAction((1, 50, 1), (Q,))
    assert action.orthogonality_ratio() < 10
    torch.testing.assert_close(action.matrices[0].float(), Q, rtol=0, atol=1e-5)
    assert (action @ action.inverse()).orthogonality_ratio() < 100
    product = action
    for _ in range(500):
        product = product @ action
    assert product.orthogonality_ratio() < 1e4


def test_an_action_keeps_its_own_matrices():
    M = torch.eye(3, dtype=torch.float64)
    action = radnet.OrthogonalAction((1, 3, 1), (M,))
    M.mul_(0)
    assert torch.equal(action.matrices[0], torch.eye(3, dtype=torch.float64))
    assert len(radnet.OrthogonalAction((1, 3, 1), (Q for Q in [torch.eye(3)])).matrices) == 1
    with pytest.raises(TypeError, match="expected 1 matrices, got NoneType"):
        radnet.OrthogonalAction((1, 3, 1), None)
