"""How far a tolerance can move an output: the bound against the formulas written out in NumPy, and its reasons."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from radnet.compression import bases, graph, program
from radnet.compression.bounds import Bound, lipschitz
from radnet.compression.norms import RMSRescaling
from test_compress_any import decaying, normal

SQUASH = 3 * math.sqrt(3) / 8


def small(model, x, tol):
    return radnet.compress(model.double().eval(), x, tol=tol)


def norm(A):
    return np.linalg.norm(np.asarray(A.detach(), dtype=float), ord=2)


def left_out(columns, tol):
    """Projection onto what a basis with singular values above tol times the largest leaves out."""
    U, S, _ = np.linalg.svd(columns)
    U = U[:, : len(S)][:, tol * S[0] < S]
    return np.eye(len(columns)) - U @ U.T, U


def parts(layer):
    W = np.asarray(layer.weight.detach(), dtype=float)
    return W, np.zeros(len(W)) if layer.bias is None else np.asarray(layer.bias.detach(), dtype=float)


@pytest.mark.parametrize("tol", [0.3, 1e-2])
@pytest.mark.parametrize("bias", [True, False])
def test_the_bound_of_two_layers_is_the_formula(tol, bias):
    """``e_1 = |P W1| R + |P b1|`` before an activation with L, then ``|W2| L e_1``."""
    model = decaying((6, 30, 2), radnet.ShiftedReLU(0.3), 1)
    if not bias:
        model[0].bias = None
    x = normal(50, 6)
    c = small(model, x, tol)
    (W1, b1), (W2, _) = parts(model[0]), parts(model[2])
    P, U = left_out(np.column_stack([W1, b1]) if bias else W1, tol)
    assert c.spaces[0].after == U.shape[1] < 6
    R = float(x.norm(dim=1).max())
    error = norm(torch.from_numpy(P @ W1)) * R + np.linalg.norm(P @ b1)
    assert c.bound.value == pytest.approx(norm(torch.from_numpy(W2)) * error, rel=1e-9)


def test_the_bound_of_three_layers_follows_norms_and_errors():
    """The second layer meets vectors of length at most L (|W1| R + |b1|), and what its own basis leaves out."""
    tol, rho = 0.05, radnet.ShiftedReLU(0.1)
    model = decaying((5, 20, 20, 2), rho, 3)
    x = normal(50, 5)
    c = small(model, x, tol)
    (W1, b1), (W2, b2), (W3, _) = (parts(model[k]) for k in (0, 2, 4))
    P1, _ = left_out(np.column_stack([W1, b1]), tol)
    R = float(x.norm(dim=1).max())
    N = np.linalg.norm(W1, 2) * R + np.linalg.norm(b1)
    e = np.linalg.norm(P1 @ W1, 2) * R + np.linalg.norm(P1 @ b1)
    reach = np.linalg.svd(np.column_stack([W1, b1]))[0][:, :6]  # what the activation can give: all of span(b1, W1)
    U, S, _ = np.linalg.svd(np.column_stack([W2 @ thinned(np.column_stack([b1, W1])), b2]))
    P2 = np.eye(20) - U[:, : len(S)][:, tol * S[0] < S] @ U[:, : len(S)][:, tol * S[0] < S].T
    e = np.linalg.norm(W2, 2) * e + np.linalg.norm(P2 @ W2 @ reach, 2) * N + np.linalg.norm(P2 @ b2)
    assert [space.after < 6 for space in c.spaces[:2]] == [True, True]
    assert c.bound.value == pytest.approx(np.linalg.norm(W3, 2) * e, rel=1e-9)


def thinned(M):
    U, S, _ = np.linalg.svd(M, full_matrices=False)
    return U * S


def one_cut(rho=None):
    """A first layer in which a tolerance leaves something out, and an activation."""
    return decaying((6, 30, 2), rho or radnet.ShiftedReLU(0.3), 1)[:2]


class After(nn.Module):
    """The same, then something, then a layer."""

    def __init__(self, f, n=30, rho=None):
        super().__init__()
        self.first, self.f, self.last = one_cut(rho), f, nn.Linear(n, 2, bias=False)

    def forward(self, x):
        return self.last(self.f(self.first(x)))


def first_error(model, x, tol):
    W, b = parts(model.first[0])
    P, _ = left_out(np.column_stack([W, b]), tol)
    return np.linalg.norm(P @ W, 2) * float(x.norm(dim=-1).max()) + np.linalg.norm(P @ b)


@pytest.mark.parametrize(
    ("f", "factor", "n"),
    [
        (lambda h: -3 * h, 3, 30),
        (lambda h: h + h, 2, 30),
        (lambda h: h - 0.5 * h, 1.5, 30),
        (lambda h: torch.cat([h, 2 * h], dim=-1), math.sqrt(5), 60),
        (lambda h: h.transpose(0, 1), 1, 30),
        (lambda h: h.mean(1), 1, 30),
        (lambda h: h[:, 1:], 1, 30),
        (lambda h: h.permute(1, 0, 2), 1, 30),
        (nn.Dropout(), 1, 30),
    ],
)
def test_errors_go_through_sums_multiples_and_mixtures(f, factor, n):
    model, x, tol = After(f, n).double(), normal(8, 5, 6), 0.1
    c = small(model, x, tol)
    expected = np.linalg.norm(parts(model.last)[0], 2) * factor * first_error(model, x, tol)
    assert c.bound.value == pytest.approx(expected, rel=1e-9)


class Before(nn.Module):
    """An exact layer, something, then a layer in which a tolerance leaves something out."""

    def __init__(self, f, n):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.f, self.cut = nn.Linear(2, 7), f, decaying((n, 20, 2), radnet.ShiftedReLU(0.1), 5)

    def forward(self, x):
        return self.cut(self.f(self.a(x)))


class Plus(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = nn.Parameter(p)

    def forward(self, h):
        return h + self.p


P5 = normal(5, 7, seed=3)


@pytest.mark.parametrize(
    ("f", "longest", "n", "tol"),
    [
        (lambda h: h, lambda N: N, 7, 0.2),
        (lambda h: -3 * h, lambda N: 3 * N, 7, 0.2),
        (lambda h: h + 2 * h, lambda N: 3 * N, 7, 0.2),
        (lambda h: h - h.mean(1, keepdim=True), lambda N: 2 * N, 7, 0.4),
        (lambda h: torch.cat([h, 2 * h], dim=-1), lambda N: math.sqrt(5) * N, 14, 0.2),
        (Plus(P5[0]), lambda N: N + float(P5[0].norm()), 7, 0.2),
        (Plus(P5), lambda N: N + float(P5.norm(dim=1).max()), 7, 0.05),
    ],
)
def test_norms_go_through_sums_multiples_and_tables(f, longest, n, tol):
    """``e = |P W B| (N + |c|) + |P c_w|``: what is left out grows with how long a vector can be, N = |A| R + |b|."""
    model, x = Before(f, n).double(), normal(8, 5, 2)
    A, b = parts(model.a)
    U = second_basis(model, x, tol)
    values, lengths = [], []
    for scale in (1.0, 3.0):
        values.append(small(model, scale * x, tol).bound.value)
        lengths.append(longest(np.linalg.norm(A, 2) * float((scale * x).norm(dim=-1).max()) + np.linalg.norm(b)))
    W, last = parts(model.cut[0])[0], np.linalg.norm(parts(model.cut[2])[0], 2)
    rest = np.linalg.norm((W - U @ (U.T @ W)) @ reached(model, x), 2)
    assert rest > 1e-6
    assert (values[1] - values[0]) / (lengths[1] - lengths[0]) == pytest.approx(last * rest, rel=1e-6)


def second_basis(model, x, tol):
    """The basis of the second space; the first one leaves nothing out."""
    analysis = graph.Analysis(program.trace(model, (x,)), dict(model.named_parameters()), {})
    layout = bases.lay_out(analysis, set(), tol)
    cut = [basis for basis in layout.bases if basis is not None and basis.cut]
    assert len(cut) == 1
    return cut[0].U.numpy()


def reached(model, x):
    """Orthonormal directions of what arrives at the second layer, from many values of it."""
    rows = torch.cat([x + normal(*x.shape, seed=k) for k in range(10)])
    with torch.no_grad():
        h = model.f(model.a(rows)).flatten(0, -2).numpy()
    U, S, _ = np.linalg.svd((h - h.mean(0)).T, full_matrices=False)
    return U[:, 1e-9 * S[0] < S]


def test_a_pool_and_a_flattening_of_a_convolution_are_counted_by_their_taps():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 12, 3), radnet.ShiftedReLU(0.1, dim=1), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(36, 2)
    ).double()
    with torch.no_grad():
        model[0].weight *= (0.1 ** torch.arange(6.0)).reshape(1, 2, 3)
    x, tol = normal(20, 2, 8), 1e-3
    c = small(model, x, tol)
    W, b = parts(model[0])
    P, _ = left_out(np.column_stack([W.reshape(12, 6), b]), tol)
    R = float(x.norm(dim=1).max())
    e = np.linalg.norm(P @ W.reshape(12, 6), 2) * math.sqrt(3) * R + np.linalg.norm(P @ b)
    expected = np.linalg.norm(parts(model[4])[0], 2) * math.sqrt(3) * e
    assert e > 0
    assert c.bound.value == pytest.approx(expected, rel=1e-9)


def test_a_table_leaves_out_at_most_the_worst_of_its_rows():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rho, self.b = nn.Embedding(9, 16), radnet.ShiftedReLU(0.0), nn.Linear(16, 2)

        def forward(self, i):
            return self.b(self.rho(self.words(i)))

    torch.manual_seed(0)
    model = Words().double()
    with torch.no_grad():
        model.words.weight[1:] = model.words.weight[0] + model.words.weight[1:] * torch.tensor([1.0] * 3 + [1e-4] * 13)
    c = small(model, torch.arange(9).reshape(9, 1), 1e-2)
    table = np.asarray(model.words.weight.detach())
    assert c.spaces[0].after < 9
    U = np.asarray(c.network.words.weight.detach())  # rows in the new coordinates
    lost = np.sqrt(np.maximum((table**2).sum(1) - (U**2).sum(1), 0)).max()
    assert lost > 1e-6
    assert c.bound.value == pytest.approx(np.linalg.norm(parts(model.b)[0], 2) * lost, rel=1e-6)


def test_a_block_activation_is_no_longer_than_its_blocks_allow():
    """Squash has values below 1: two blocks reach at most sqrt(2), whatever comes in."""
    tol = 0.1
    model = decaying((6, 30, 40, 2), radnet.Squash(blocks=2), 1)
    x = 1e6 * normal(20, 6)
    far, near = small(model, x, tol).bound.value, small(model, x / 1e6, tol).bound.value
    assert near < far < 1.1e6 * near + 1
    pieces = decaying((6, 30, 40, 2), radnet.Squash(blocks=(10, 20)), 1)
    pieces[3] = radnet.Squash()
    assert math.isfinite(small(pieces, x, tol).bound.value)


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (radnet.Identity(), 1.0),
        (radnet.Identity(shift=0.5), None),
        (radnet.Squash(), SQUASH),
        (radnet.Squash(shift=0.5), None),
        (radnet.ShiftedReLU(0.5), 1.0),
        (radnet.ShiftedReLU(0.5, shift=-0.5), 1.0),
        (radnet.ShiftedReLU(0.5, shift=-0.6), None),
        (radnet.ShiftedReLU(0.0, shift=0.1), 1.0),
        (radnet.StepReLU(), None),
        (radnet.RadialSigmoid(), None),
        (RMSRescaling(7, 0.25), 2.0),
        (RMSRescaling(7, 0.0), None),
        (radnet.Radial(torch.tanh), None),
    ],
)
def test_lipschitz_constants_are_those_of_the_maps(rho, expected):
    found = lipschitz(rho)
    assert found == (None if expected is None else pytest.approx(expected))
    if expected is not None:  # and no two vectors say otherwise
        v = normal(4000, 3) * torch.logspace(-3, 1, 4000, dtype=torch.float64).unsqueeze(1)
        w = v + 1e-4 * normal(4000, 3, seed=1)
        slope = ((rho(v) - rho(w)).norm(dim=1) / (v - w).norm(dim=1)).max()
        assert slope <= expected * (1 + 1e-9)
        assert slope >= 0.95 * expected or isinstance(rho, RMSRescaling)


def test_bounds_and_missing_bounds_speak():
    assert str(Bound(0.12345)) == "outputs change by at most 0.123, for inputs as long as the given ones"
    assert str(Bound(None, "it jumps")) == "no bound: it jumps"
    x = normal(20, 6)
    assert small(After(nn.Identity(), rho=radnet.StepReLU()), x, 0.1).bound.why == (
        "first.1 (StepReLU) comes after directions were left out, and is not Lipschitz"
    )
    pinned = decaying((6, 30, 30, 2), radnet.ShiftedReLU(0.3), 0)
    pinned[3] = nn.Tanh()
    assert small(pinned, x, 0.1).bound.why == (
        "3 comes after directions were left out, and is not known to be Lipschitz"
    )
    unlimited = nn.Sequential(nn.Tanh(), decaying((6, 30, 2), radnet.ShiftedReLU(0.3), 1))
    assert small(unlimited, x, 0.1).bound.why == "hidden vectors can be of any length"
    exact = nn.Sequential(nn.Linear(6, 30), nn.Tanh(), nn.Linear(30, 2))
    assert small(exact, x, 1e-9).bound == Bound(0.0)


def test_several_inputs_and_outputs_are_taken_together():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = decaying((6, 30, 2), radnet.ShiftedReLU(0.3), 1), decaying((4, 20, 2), radnet.Squash(), 2)

        def forward(self, x, y):
            return self.a(x), self.b(y)

    x, y = normal(30, 6), 2 * normal(30, 4)
    both = radnet.compress(Two(), (x, y), tol=0.1).bound.value
    single = [small(Two().a, x, 0.1).bound.value, small(Two().b, y, 0.1).bound.value]
    assert both == pytest.approx(math.hypot(*single))
