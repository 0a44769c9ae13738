"""How far a tolerance can move an output: the bound against the formulas written out in NumPy, and its reasons."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from known_models import decaying, normal
from radnet.compression.bounds.bound import Bound
from radnet.compression.bounds.lengths import Lengths, Stretch, beyond_the_edge, gradient_of_sum, times_seen
from radnet.compression.replacements import RMSRescaling
from radnet.compression.spaces.bases import lay_out
from radnet.compression.spaces.follow import Analysis
from radnet.compression.tracing.fx import trace

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
    """What the first layer leaves out of each vector, and of a whole row; a row of x may lie in one position."""
    W, b = parts(model.first[0])
    P, _ = left_out(np.column_stack([W, b]), tol)
    varying, constant = np.linalg.norm(P @ W, 2) * longest_row(x), np.linalg.norm(P @ b)
    return varying + constant, varying + math.sqrt(math.prod(x.shape[1:-1])) * constant


def longest_row(x):
    return float(x.flatten(1).norm(dim=1).max())


@pytest.mark.parametrize(
    ("f", "expected", "n"),
    [
        (lambda h: -3 * h, lambda each, row: 3 * row, 30),
        (lambda h: h + h, lambda each, row: 2 * row, 30),
        (lambda h: h - 0.5 * h, lambda each, row: 1.5 * row, 30),
        (lambda h: torch.cat([h, 2 * h], dim=-1), lambda each, row: math.sqrt(5) * row, 60),
        (lambda h: h.transpose(0, 1), lambda each, row: row, 30),
        (lambda h: h.mean(1), lambda each, row: row / math.sqrt(5), 30),
        (lambda h: h.mean(0), lambda each, row: row, 30),
        (lambda h: h[:, 1:], lambda each, row: min(row, 2 * each), 30),
        (lambda h: h[:, 3], lambda each, row: min(row, each), 30),
        (lambda h: h[1], lambda each, row: row, 30),
        (lambda h: h + h[:, :1], lambda each, row: row + math.sqrt(5) * min(row, each), 30),
        (lambda h: h - h.mean(1, keepdim=True), lambda each, row: 2 * row, 30),
        (lambda h: h.permute(1, 0, 2), lambda each, row: row, 30),
        (lambda h: h.permute(2, 1, 0).permute(2, 1, 0), lambda each, row: row, 30),
        (nn.Dropout(), lambda each, row: row, 30),
    ],
)
def test_errors_go_through_sums_multiples_and_mixtures(f, expected, n):
    model, x, tol = After(f, n).double(), normal(8, 5, 6), 0.1
    c = small(model, x, tol)
    expected = np.linalg.norm(parts(model.last)[0], 2) * expected(*first_error(model, x, tol))
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
    """``e = |P W B| |u - c| + |P c_w|``: what is left out grows with how far a vector can be from its constant."""
    model, x = Before(f, n).double(), normal(8, 5, 2)
    A, b = parts(model.a)
    U = second_basis(model, x, tol)
    values, lengths = [], []
    for scale in (1.0, 3.0):
        values.append(small(model, scale * x, tol).bound.value)
        lengths.append(longest(np.linalg.norm(A, 2) * scale * longest_row(x) + np.linalg.norm(b)))
    W, last = parts(model.cut[0])[0], np.linalg.norm(parts(model.cut[2])[0], 2)
    rest = np.linalg.norm((W - U @ (U.T @ W)) @ reached(model, x), 2)
    assert rest > 1e-6
    assert (values[1] - values[0]) / (lengths[1] - lengths[0]) == pytest.approx(last * rest, rel=1e-6)


def second_basis(model, x, tol):
    """The basis of the second space; the first one leaves nothing out."""
    analysis = Analysis(trace(model, (x,)), dict(model.named_parameters()), {}, lengths=True)
    layout = lay_out(analysis, set(), tol)
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


def test_a_pool_and_a_flattening_of_a_convolution_are_counted_by_their_positions():
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
    A, R, constant = np.einsum("ij,jkl->ikl", P, W), longest_row(x), np.linalg.norm(P @ b)
    whole, apart = np.linalg.norm(A.reshape(12, 6), 2), sum(np.linalg.norm(A[:, :, k], 2) for k in range(3))
    each = min(whole, apart) * R + constant
    row = min(math.sqrt(3) * whole, apart) * R + math.sqrt(6) * constant  # six positions, seen by three windows each
    row = min(row, math.sqrt(6) * each)
    row = min(math.sqrt(1 / 2) * row, math.sqrt(3) * each)  # three pairs
    assert row > 0
    assert c.bound.value == pytest.approx(np.linalg.norm(parts(model[4])[0], 2) * row, rel=1e-9)


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


class Other(radnet.Squash):
    """A subclass may have any profile."""

    def profile(self, r):
        return 7 * r**3


class OtherShifted(radnet.ShiftedReLU):
    def profile(self, r):
        return 7 * r**3


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
        (RMSRescaling(7, None), 2.0**26),
        (radnet.Radial(torch.tanh), None),
        (Other(), None),
        (OtherShifted(0.5), None),
    ],
)
def test_lipschitz_constants_are_those_of_the_maps(rho, expected):
    found = rho.reach().lipschitz
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


# --- what a bound is about


def worst(model, c, x, steps=60, starts=20):
    """Gradient ascent of the change of a whole row, over rows no longer than the longest of x."""
    R, one = longest_row(x), [-1] + [1] * (x.ndim - 1)
    v = torch.randn(starts, *x.shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = 0.0
    for k in range(steps):
        v = (v * (R / v.flatten(1).norm(dim=1)).clamp(max=1).reshape(one)).requires_grad_()
        change = (model(v) - c.network(v)).flatten(1).square().sum(dim=1)
        found = max(found, float(change.detach().max()))
        (g,) = torch.autograd.grad(change.sum(), v)
        v = (v + R * 0.9**k * g / g.flatten(1).norm(dim=1).clamp(min=1e-300).reshape(one)).detach()
    return math.sqrt(found)


def test_a_constant_that_ends_at_an_edge_is_counted():
    """Its direction is left out though nothing varies along it: only where the zeros begin it is seen."""
    a, b, head = nn.Conv2d(1, 4, 1), nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.Conv2d(6, 2, 1)
    with torch.no_grad():
        for p in (*a.parameters(), *b.parameters(), *head.parameters()):
            p.zero_()
        a.weight[1], a.bias[0] = 0.5, 1
        b.weight[0, 0, 1, 1], b.weight[1, 0, 0, 0], b.weight[2, 1, 1, 1] = 1, 0.05, 1
        head.weight[0, 1] = head.weight[1, 2] = 1
    model, x = nn.Sequential(a, b, head), normal(4, 1, 5, 5)
    c = small(model, x, 0.1)
    change = float((model(x) - c.network(x)).detach().flatten(1).norm(dim=1).max())
    assert change == pytest.approx(0.05 * 4)  # at 4 x 4 of 25 positions
    assert change <= c.bound.value <= 10 * change


def test_a_bound_is_about_whole_rows():
    a, head = nn.Conv2d(2, 6, 1, bias=False), nn.Conv2d(6, 1, 1, bias=False)
    with torch.no_grad():
        a.weight.zero_()
        head.weight.zero_()
        a.weight[0, 0], a.weight[1, 1], head.weight[0, 1] = 1, 0.05, 1
    x = torch.zeros(1, 2, 6, 6, dtype=torch.float64)
    x[:, 1] = 1
    for end in (nn.Flatten(), nn.Identity(), nn.Flatten(2)):
        model = nn.Sequential(a, head, end)
        c = small(model, x, 0.1)
        assert float((model(x) - c.network(x)).detach().norm()) == pytest.approx(0.3)
        assert c.bound.value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("kind", "constant", "loose"), [(nn.Conv1d, 2, 3), (nn.Conv1d, 0, 1.1), (nn.ConvTranspose1d, 0, 4)]
)
def test_a_constant_without_a_mark_is_added_beyond_the_edge_too(kind, constant, loose):
    """What a rescaling reads has no mark: a reader adds its rest by the bias, and so where there are only zeros."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho = nn.Conv1d(2, 12, 1), radnet.ShiftedReLU(0.1, dim=1)
            self.b, self.c = kind(12, 2, 3, padding=1), nn.Conv1d(12, 2, 1)
            with torch.no_grad():
                self.a.weight.zero_()
                self.a.weight[0, 0, 0], self.a.weight[1, 1, 0] = 1, 0.8
                self.a.bias.zero_()
                self.a.bias[0], self.a.bias[2] = constant, 0.05
                self.b.weight.zero_()
                weight = self.b.weight if kind is nn.Conv1d else self.b.weight.transpose(0, 1)
                weight[0, 2, 0] = weight[1, 2, 2] = 1

        def forward(self, x):
            h = self.a(x)
            return self.b(h) + 1e-6 * self.c(self.rho(h))

    model, x = Both().double(), normal(6, 2, 5)
    c = small(model, x, 0.1)
    assert c.spaces[0].after == 2
    found = worst(model, c, x)
    assert found > 0.04  # twice, at two edges
    assert found <= c.bound.value <= loose * found


GEOMETRIES = [
    (nn.Conv1d, {"kernel_size": 3}),
    (nn.Conv1d, {"kernel_size": 3, "padding": 1}),
    (nn.Conv1d, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (nn.Conv1d, {"kernel_size": 2, "stride": 3}),
    (nn.Conv1d, {"kernel_size": 3, "dilation": 2, "padding": "same"}),
    (nn.Conv1d, {"kernel_size": 3, "padding": 2, "padding_mode": "circular"}),
    (nn.Conv1d, {"kernel_size": 3, "padding": 2, "padding_mode": "reflect"}),
    (nn.Conv1d, {"kernel_size": 3, "padding": 2, "padding_mode": "replicate"}),
    (nn.Conv2d, {"kernel_size": (1, 3), "padding": (0, 1)}),
    (nn.Conv2d, {"kernel_size": 2, "stride": (1, 2)}),
]


@pytest.mark.parametrize(("kind", "keywords"), GEOMETRIES)
def test_convolutions_stretch_no_more_than_they_are_said_to(kind, keywords):
    torch.manual_seed(0)
    m = kind(2, 3, **keywords, bias=False).double()
    space = (5,) if kind is nn.Conv1d else (4, 5)
    n = 2 * math.prod(space)
    rows = torch.eye(n, dtype=torch.float64).reshape(n, 2, *space)
    with torch.no_grad():
        full = m(rows)
    A = m.weight.detach().flatten(2)
    stretch = Stretch(A, times_seen(m, space), once=m.padding_mode == "zeros")
    unit = stretch(Lengths(1.0, 1.0))
    assert float(torch.linalg.matrix_norm(full.reshape(n, -1), 2)) <= unit.row * (1 + 1e-12)
    at_each = full.movedim(1, -1).reshape(n, -1, 3)
    for p in range(at_each.shape[1]):  # an output position, over inputs that are of length 1 at every position
        by_position = at_each[:, p].reshape(2, -1, 3)
        longest_at_p = sum(float(torch.linalg.matrix_norm(by_position[:, q], 2)) for q in range(by_position.shape[1]))
        tight = float(torch.linalg.matrix_norm(at_each[:, p], 2))
        assert tight <= stretch(Lengths(1.0, 1.0)).each * (1 + 1e-12)
        assert tight <= stretch(Lengths(1.0, math.inf)).each * (1 + 1e-12) <= 3 * longest_at_p + 10
    ones = kind(1, 1, **keywords, bias=False).double()
    nn.init.ones_(ones.weight)
    k = math.prod(space)
    with torch.no_grad():
        seen = ones(torch.eye(k, dtype=torch.float64).reshape(k, 1, *space)).flatten(1).sum(dim=1).max()
    assert times_seen(m, space) == int(seen)


@pytest.mark.parametrize("keywords", [k for kind, k in GEOMETRIES if "padding_mode" not in k and kind is nn.Conv1d])
def test_what_is_added_beyond_the_edge_is_summed_over_the_taps_there(keywords):
    torch.manual_seed(0)
    m, r = nn.Conv1d(2, 3, **keywords, bias=False).double(), normal(2)
    with torch.no_grad():
        inside = m(r.reshape(1, 2, 1).expand(1, 2, 7))[0]
        missing = (m.weight.sum(dim=2) @ r).unsqueeze(1) - inside
    found = beyond_the_edge(m, (7,), r)
    assert found.each == pytest.approx(float(missing.norm(dim=0).max()))
    assert found.row == pytest.approx(float(missing.norm()))
    assert (found.row > 1e-12) == bool(keywords.get("padding"))


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool1d(2),
        nn.AvgPool1d(3, stride=1),
        nn.AvgPool1d(3, stride=1, padding=1),
        nn.AvgPool1d(3, stride=1, padding=1, count_include_pad=False),
        nn.AvgPool1d(3, stride=2, padding=1, ceil_mode=True),
        nn.AdaptiveAvgPool1d(3),
        nn.AdaptiveAvgPool1d(11),
    ],
)
def test_pools_stretch_a_row_by_the_root_of_how_much_a_position_weighs(pool):
    A = pool(torch.eye(7, dtype=torch.float64).unsqueeze(1))[:, 0]
    weight = float(gradient_of_sum(pool, (1, 1, 7)).max())
    assert weight == pytest.approx(float(A.sum(dim=1).max()))
    assert float(torch.linalg.matrix_norm(A, 2)) <= math.sqrt(weight) * (1 + 1e-12)
    assert float(A.sum(dim=0).max()) <= 1 + 1e-12


def test_lengths_of_profiles():
    assert [
        rho.reach().longest for rho in (radnet.Squash(shift=1.0), radnet.RadialSigmoid(), RMSRescaling(9, 0.0))
    ] == [
        1,
        1,
        3,
    ]
    assert [rho.reach().longest for rho in (radnet.Identity(), Other(), radnet.Radial(torch.tanh))] == [math.inf] * 3
    known = [radnet.Identity(shift=0.5), radnet.StepReLU(shift=-0.7), radnet.ShiftedReLU(0.5, shift=-0.8)]
    assert [rho.reach().growth for rho in known] == pytest.approx([0.5, 0.7, 0.3])
    v = normal(1000, 3) * torch.logspace(-3, 1, 1000, dtype=torch.float64).unsqueeze(1)
    for rho in known:
        assert bool((rho(v).norm(dim=1) <= v.norm(dim=1) + rho.reach().growth + 1e-12).all())
    assert Other().reach().growth == math.inf
    assert (rms := RMSRescaling(3, None)).reach(torch.float32) == rms.reach(torch.bfloat16)
    assert rms.reach(torch.float32).lipschitz == pytest.approx(2**11.5)


def test_an_activation_that_jumps_but_has_short_values_has_a_bound():
    """Two vectors of a radial sigmoid are no further apart than 2, whatever was left out before."""
    model = After(nn.Identity(), rho=radnet.RadialSigmoid()).double()
    x = normal(20, 6)
    assert small(model, x, 0.1).bound.value == pytest.approx(2 * np.linalg.norm(parts(model.last)[0], 2))
    blocks = After(nn.Identity(), rho=radnet.RadialSigmoid(blocks=2)).double()
    expected = 2 * math.sqrt(2) * np.linalg.norm(parts(blocks.last)[0], 2)
    assert small(blocks, x, 0.1).bound.value == pytest.approx(expected)


class Later(nn.Module):
    """A layer that a tolerance cuts, another, and something that pins what that one writes."""

    def __init__(self, f):
        super().__init__()
        self.first, self.mid, self.f, self.last = (
            one_cut(),
            nn.Linear(30, 8, bias=False),
            f,
            nn.Linear(8, 2, bias=False),
        )

    def forward(self, x):
        return self.last(self.f(self.mid(self.first(x))))


class Difference(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, h):
        return self.norm(h) - self.norm(2 * h)


def test_norm_layers_that_stay_are_lipschitz():
    """Called twice they are not folded: a gain g, an eps and n entries give g/sqrt(eps), and at most g sqrt(n)."""
    x = normal(20, 6)
    for norm in (nn.RMSNorm(8, eps=0.25), nn.LayerNorm(8, eps=0.25), nn.LayerNorm(8, eps=0.25, bias=False)):
        nn.init.constant_(norm.weight, -2.0)
        model = Later(Difference(norm)).double()
        error = np.linalg.norm(parts(model.mid)[0], 2) * first_error(model, x, 0.1)[0]
        apart = min(4 * error, 4 * math.sqrt(8)) + min(8 * error, 4 * math.sqrt(8))
        expected = np.linalg.norm(parts(model.last)[0], 2) * apart
        assert small(model, x, 0.1).bound.value == pytest.approx(expected)
    jumps = Later(Difference(nn.RMSNorm(8, eps=0.0))).double()
    expected = 4 * math.sqrt(8) * np.linalg.norm(parts(jumps.last)[0], 2)
    assert small(jumps, x, 0.1).bound.value == pytest.approx(expected)


def test_the_number_of_rows_does_not_matter():
    model, x = After(lambda h: h.mean(1)).double(), normal(40, 5, 6)
    longest_first = x[x.flatten(1).norm(dim=1).argsort(descending=True)]
    values = [small(model, longest_first[:k], 0.1).bound.value for k in (1, 2, 5, 40)]
    assert values == pytest.approx([values[0]] * 4)


@pytest.mark.parametrize(
    "f",
    [
        lambda h: h.flatten(0, 1),
        lambda h: h[1:],
        lambda h: torch.cat([h, h], dim=0),
        lambda h: h + h.transpose(0, 1),
    ],
)
def test_models_that_mix_rows_have_no_bound(f):
    assert small(Later(f).double(), normal(3, 3, 6), 0.1).bound == Bound(None, "the rows of the inputs are mixed")


def test_outputs_that_are_not_numbers_do_not_count():
    class Classes(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = After(nn.Identity())

        def forward(self, x):
            y = self.net(x)
            return y, y.argmax(dim=-1)

    model, x = Classes().double(), normal(20, 6)
    assert small(model, x, 0.1).bound.value == pytest.approx(small(model.net, x, 0.1).bound.value)


def test_subsets_of_the_data_are_about_their_constant():
    """Data in a plane away from 0: what a layer leaves out is measured from the plane's own point."""
    model = decaying((6, 30, 2), radnet.ShiftedReLU(0.3), 1)
    data = normal(200, 2) @ normal(2, 6, seed=1) + normal(6, seed=2)
    c = radnet.compress(model, data, data=data, tol=0.2)
    change = float((model(data) - c.network(data)).detach().norm(dim=1).max())
    assert 0 < change <= c.bound.value
