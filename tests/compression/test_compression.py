"""Algorithm 1 and the theorem: the same function, exactly, with fewer weights."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import radnet
import reference
from radnet import linalg
from radnet.compression import Compression, chain
from radnet.testing import TIMES_CONDITIONING, ULPS, conditioning, gap_of
from strategies import networks


class Partial(torch.nn.Module):
    """F_i as a module, so that its conditioning can be measured."""

    def __init__(self, net, i):
        super().__init__()
        self.net, self.i = net, i

    def forward(self, x):
        return self.net.partial(x)[self.i]


def within_rounding(a, b, f, x):
    """Row by row, gap <= max(64 eps max|F|, 10 D); and whether 64 eps alone would have done."""
    gap = gap_of(a, b)
    simple = gap.rows <= ULPS * gap.eps * gap.scale
    if simple.all():
        return True, True
    D = conditioning(f, x, generator=torch.Generator().manual_seed(1))
    return bool((simple | (gap.rows <= TIMES_CONDITIONING * D)).all()), False


def inputs(net, rows=16, seed=5):
    return torch.randn(rows, net.widths[0], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_compression_preserves_the_function_of_any_radial_network(dtype, count, evidence):
    """thm:mod-comp and thm:withshift, with the awkward networks."""
    tried = count(50, 600)
    seen = []

    @settings(max_examples=tried)
    @given(networks())
    def check(net64):
        net = net64.to(dtype)
        before = copy.deepcopy(net.state_dict())
        c = radnet.compress(net, inputs(net).to(dtype))
        assert c.network.widths == radnet.reduced_widths(net.widths, net.has_bias)
        assert type(c.network) is type(net)
        assert c.network.weights[0].dtype == dtype
        assert c.certificate.lossless, str(c.certificate)
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        seen.append((c.certificate.ulps <= ULPS or c.certificate.rows_at_jump > 0, c.certificate.ulps))

    check()
    share = sum(ok for ok, _ in seen) / len(seen)
    median = float(np.median([ulps for _, ulps in seen]))
    evidence("lossless", dtype=str(dtype), networks=len(seen), share_within_64_eps=share, median_eps=median)
    assert len(seen) >= tried
    assert share >= 0.95


def test_every_partial_feedforward_function_is_the_reduced_one_rotated(count, evidence):
    """F_i = Q_i inc_i F_i^red, the induction in the proof of thm:mod-comp."""
    layers = []

    @settings(max_examples=count(36, 500))
    @given(networks())
    def check(net):
        c = radnet.compress(net)
        x = inputs(net)
        if c.certificate.rows_at_jump or radnet.verify(net, c.network, x).rows_at_jump:
            return
        with torch.no_grad():
            full, small = net.partial(x), c.network.partial(x)
        Q = [torch.eye(net.widths[0]).double(), *c.action.matrices, torch.eye(net.widths[-1]).double()]
        for i, (F, F_red, Q_i) in enumerate(zip(full, small, Q, strict=True)):
            ok, simple = within_rounding(F, F_red @ Q_i[:, : F_red.shape[1]].mT, Partial(net, i), x)
            assert ok, i
            layers.append(simple)

    check()
    evidence("F_i = Q_i inc_i F_i^red", layers=len(layers), share_within_64_eps=sum(layers) / len(layers))


def test_the_transformed_network_has_its_zeros_and_the_pieces_add_up(count, evidence):
    """prop:qinva-in-int; Q.T = (W, b); iota(V) + U = T."""
    worst = 0.0
    tried = 0

    @settings(max_examples=count(36, 500))
    @given(networks())
    def check(net):
        nonlocal worst, tried
        c = radnet.compress(net)
        n, n_red = net.widths, c.network.widths
        T, V, U = c.transformed(), c.network.merged(), c.remainder()
        assert T.widths == n
        for i, (T_i, V_i, U_i) in enumerate(zip(T.merged(), V, U, strict=True), start=1):
            assert torch.equal(T_i[: n_red[i], : 1 + n_red[i - 1]], V_i)
            assert not T_i[n_red[i] :, : 1 + n_red[i - 1]].any()  # exact zeros, bottom left
            if i < len(n) - 1 and net.has_bias:
                assert torch.equal(V_i, V_i.triu())  # R is upper triangular, its diagonal not negative
                assert (V_i.diagonal() >= 0).all()
            assert torch.equal(linalg.pad(V_i, *T_i.shape) + U_i, T_i)
            assert not U_i[: n_red[i], : 1 + n_red[i - 1]].any()
        back = c.action.apply(T)
        for A, B in zip(net.merged(), back.merged(), strict=True):
            scale = float(A.detach().norm())
            error = float((A - B).detach().norm())
            bound = 20 * max(n) * torch.finfo(A.dtype).eps * scale
            assert error <= bound
            worst = max(worst, error / bound if bound else 0.0)
        direct = c.action.inverse().apply(net)
        for A, B in zip(direct.merged(), T.merged(), strict=True):
            assert (A - B).detach().norm() <= 20 * max(n) * torch.finfo(A.dtype).eps * float(A.detach().norm())
        tried += 1

    check()
    evidence("Q.T = (W,b), iota(V) + U = T, exact zeros", networks=tried, worst_share_of_bound=worst)


def test_algorithm_1_gives_what_the_text_gives_in_numpy(generator):
    """Full rank: the decomposition is unique, so every number must agree."""
    net = radnet.RadNet((2, 9, 8, 12, 3), "sigmoid", init="linear", generator=generator, dtype=torch.float64)
    Q_np, W_np, b_np = reference.qr_compress(
        [W.detach().numpy() for W in net.weights], [b.detach().numpy() for b in net.biases]
    )
    c = radnet.compress(net)
    for W, b, W_i, b_i in zip(c.network.weights, c.network.biases, W_np, b_np, strict=True):
        np.testing.assert_allclose(W.detach(), W_i, atol=1e-13)
        np.testing.assert_allclose(b.detach(), b_i, atol=1e-13)
    for Q, Q_i, n_red in zip(c.action.matrices, Q_np, c.network.widths[1:-1], strict=True):
        np.testing.assert_allclose(Q[:, :n_red], Q_i[:, :n_red], atol=1e-13)


def test_the_merged_algorithm_is_the_same(generator):
    """alg:QR-mod-comp-merged on the matrices A_i."""
    net = radnet.RadNet((2, 6, 5, 1), "squash", init="linear", generator=generator, dtype=torch.float64)
    A = [A_i.detach() for A_i in net.merged()]
    V = []
    M = A[0]
    for i in range(len(A) - 1):
        Q, R = linalg.signed_qr(M)
        V.append(R)
        M = A[i + 1] @ torch.block_diag(torch.ones(1, 1, dtype=torch.float64), Q)
    V.append(M)
    for expected, got in zip(V, radnet.compress(net).network.merged(), strict=True):
        torch.testing.assert_close(got.detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("widths", "reduced", "before", "after"),
    [((1, 8, 16, 8, 1), (1, 2, 3, 4, 1), 305, 34), ((1, 4, 4, 1), (1, 2, 3, 1), 33, 17)],
)
def test_the_examples_of_the_paper_have_their_numbers(widths, reduced, before, after, evidence):
    net = radnet.RadNet(widths, "sigmoid")
    c = radnet.compress(net)
    assert (net.parameter_count, c.network.widths, c.network.parameter_count) == (before, reduced, after)
    assert c.certificate.lossless
    evidence("widths and parameters", widths=widths, reduced=reduced, before=before, after=after)


def test_networks_that_do_not_grow_keep_their_widths(generator):
    net = radnet.RadNet((9, 6, 4, 2), "squash", generator=generator)
    c = radnet.compress(net)
    assert c.network.widths == net.widths
    assert c.certificate.lossless


def test_shifts_and_flags_pass_through(generator):
    net = radnet.RadNet((1, 5, 6, 1), "sigmoid", shift="trainable", output=radnet.Squash(shift=0.5), init="linear")
    with torch.no_grad():
        net.activations[0].shift.fill_(-0.3)
    net.weights[1].requires_grad_(False)
    net.biases[0].requires_grad_(False)
    net.eval()
    small = radnet.compress(net).network
    assert small.activations[0].shift == net.activations[0].shift
    assert small.activations[0].shift is not net.activations[0].shift
    assert repr(small.activations[2]) == "Squash(shift=0.5)"
    assert [p.requires_grad for p in small.weights] == [True, False, True]
    assert [p.requires_grad for p in small.biases] == [False, True, True]
    assert not small.training
    assert not small.layers[0].training
    assert not small.rescalings[0].training


def test_a_subclass_comes_back_as_itself():
    class Mine(radnet.RadNet):
        def __init__(self, note):
            super().__init__((2, 9, 1))
            self.note = note

    small = radnet.compress(Mine("kept")).network
    assert type(small) is Mine
    assert small.note == "kept"
    assert small.widths == (2, 3, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_networks_are_compressed_in_float64_and_come_back_as_they_were(dtype, generator):
    net = radnet.RadNet((3, 20, 20, 2), "shifted_relu", generator=generator, dtype=dtype)
    c = radnet.compress(net)
    assert {p.dtype for p in c.network.parameters()} == {dtype}
    assert c.certificate.dtype == str(dtype).removeprefix("torch.")
    assert c.certificate.lossless


def test_the_small_network_trains_and_shares_nothing_with_the_large_one(generator):
    net = radnet.RadNet((2, 8, 1), "sigmoid", generator=generator)
    small = radnet.compress(net).network
    x = torch.randn(6, 2, generator=generator)
    kept = net(x).detach()
    small(x).sum().backward()
    with torch.no_grad():
        for p in small.parameters():
            assert p.grad is not None
            p.sub_(p.grad)
    assert torch.equal(net(x), kept)
    assert {p.data_ptr() for p in small.parameters()}.isdisjoint(p.data_ptr() for p in net.parameters())


def test_the_complete_matrices_are_made_only_on_request(monkeypatch, generator):
    calls = []
    monkeypatch.setattr(chain, "complete_basis", lambda Q: calls.append(Q.shape) or linalg.complete_basis(Q))
    c = radnet.compress(radnet.RadNet((1, 40, 1), generator=generator))
    c.report()
    assert calls == []
    assert c.action is c.action
    assert calls == [(40, 2)]
    assert [tuple(Q.shape) for Q in c._reduced.bases] == [(40, 2)]


def test_nothing_is_mixed_when_the_network_has_changed_since(generator):
    net = radnet.RadNet((1, 6, 1), generator=generator)
    c = radnet.compress(net)
    c.transformed()
    with torch.no_grad():
        net.weights[0].add_(1.0)
    with pytest.raises(radnet.RadNetError, match="has changed since it was compressed.*compress it again"):
        c.transformed()
    with pytest.raises(RuntimeError, match="has changed"):
        c.remainder()
    net.double()
    with pytest.raises(RuntimeError, match="has changed"):
        c.transformed()


def test_the_report_is_a_table_with_the_verdict(generator):
    c = radnet.compress(radnet.RadNet((3, 100, 200, 2), generator=generator))
    text = c.report(timing=True)
    assert "hidden 2             200         5" in text
    assert "parameters        21,002        53  (396.3 times fewer)" in text
    assert "bytes             84,008       212" in text
    assert text.count("times faster") == 2
    assert "batch 1 " in text
    assert "batch 256" in text
    assert "lossless, on 256 inputs" in text
    assert isinstance(c, Compression)


def test_the_same_call_gives_the_same_certificate_and_leaves_the_global_seed_alone():
    net = radnet.RadNet((3, 10, 2), generator=torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    assert radnet.compress(net).certificate == radnet.compress(net).certificate
    assert torch.equal(torch.get_rng_state(), before)
    other = radnet.compress(net, generator=torch.Generator().manual_seed(9)).certificate
    assert other != radnet.compress(net).certificate


def test_example_inputs_are_what_the_certificate_is_measured_on(generator):
    net = radnet.RadNet((3, 10, 2), generator=generator)
    assert radnet.compress(net, torch.randn(17, 3)).certificate.rows == 17
    assert radnet.compress(net, torch.randn(3)).certificate.rows == 1
    assert radnet.compress(net, torch.randn(4, 5, 3)).certificate.rows == 4
    assert radnet.compress(net).certificate.rows == 256


def _broken(what, value, shift=False):
    net = radnet.RadNet((2, 5, 4, 1), "sigmoid", shift="trainable" if shift else None)
    with torch.no_grad():
        {"W": net.weights[1], "b": net.biases[2], "t": net.activations[1].shift}[what].fill_(value)
    return net


def _lazy():
    net = radnet.RadNet((2, 5, 1))
    net.layers[0] = torch.nn.LazyLinear(5)
    return net


def _no_second_bias():
    net = radnet.RadNet((2, 5, 1))
    net.layers[1].bias = None
    return net


def _conv():
    net = radnet.RadNet((2, 5, 1))
    net.layers[1] = torch.nn.Bilinear(5, 5, 1)
    return net


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: _broken("W", float("nan")), ValueError, "layer 2: weight holds NaN or infinite values; nothing was"),
        (lambda: _broken("b", float("inf")), ValueError, "layer 3: bias holds NaN or infinite"),
        (lambda: _broken("t", float("nan"), shift=True), ValueError, "layer 2: shift holds NaN or infinite"),
        (_lazy, ValueError, "layer 1: weight is not initialised yet; run the network on a batch"),
        (lambda: radnet.RadNet((2, 5, 1), device="meta"), ValueError, "layers.0.weight is on the meta device"),
        (_no_second_bias, ValueError, "layer 2: biases must be there in all layers or in none"),
        (_conv, TypeError, "layer 2: is a Bilinear"),
        (lambda: "model.pt", TypeError, "compress needs an nn.Module, got str"),
    ],
)
def test_networks_that_cannot_be_compressed_are_refused_with_a_reason(make, kind, message):
    model = make()
    state = None if not isinstance(model, radnet.RadNet) else {k: id(v) for k, v in model.named_parameters()}
    with pytest.raises(kind, match=message) as caught:
        radnet.compress(model)
    assert isinstance(caught.value, radnet.RadNetError)
    assert state is None or state == {k: id(v) for k, v in model.named_parameters()}


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (torch.zeros(4, 3), ValueError, "the last dimension must be 2"),
        (torch.zeros(4, 2).long(), TypeError, "floating-point input, got torch.int64"),
        (torch.full((4, 2), float("nan")), ValueError, "the inputs hold NaN or infinite"),
        (torch.zeros(0, 2), ValueError, "at least one row"),
    ],
)
def test_example_inputs_that_do_not_fit_are_refused_with_a_reason(x, kind, message):
    with pytest.raises(kind, match=message):
        radnet.compress(radnet.RadNet((2, 5, 1)), x)


# --- where the printed algorithm fails (docs/errata.md)


def test_errata_14_a_sign_of_zero_for_a_zero_diagonal_is_not_lossless(generator):
    W = [torch.randn(4, 2, generator=generator).double(), torch.randn(1, 4, generator=generator).double()]
    b = [torch.zeros(4).double(), torch.zeros(1).double()]  # the first column of A_1 is zero
    net = radnet.RadNet.from_parameters(W, b, ["squash", "identity"])
    x = torch.randn(50, 2, generator=generator, dtype=torch.float64)

    Q, R = np.linalg.qr(np.column_stack([b[0], W[0]]), mode="complete")
    signs = np.sign(np.diagonal(R))  # as printed: sign(0) = 0 destroys a column of Q
    assert signs[0] == 0
    Q3, R3 = Q[:, :3] * signs, R[:3] * signs[:, None]
    printed = radnet.RadNet.from_parameters(
        [torch.tensor(R3[:, 1:]), W[1] @ torch.tensor(Q3)], [torch.tensor(R3[:, 0]), b[1]], ["squash", "identity"]
    )
    assert (printed(x) - net(x)).abs().max() > 1e-3
    assert radnet.compress(net, x).certificate.max_gap < 1e-14


def test_errata_14_r_of_a_complete_decomposition_has_too_many_rows(generator):
    """What is kept of its 7 rows are the first 3, and they are the reduced layer."""
    A, W = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((7, 3), (1, 7)))
    R = np.linalg.qr(A.numpy(), mode="complete")[1]
    reduced = chain.qr_compress([A[:, 1:], W], [A[:, 0], torch.zeros(1)])
    kept = np.column_stack([reduced.biases[0], reduced.weights[0]])
    assert R.shape == (7, 3)
    assert not R[3:].any()
    assert kept.shape == (3, 3)
    assert np.abs(kept - np.sign(np.diagonal(R))[:, None] * R[:3]).max() < 1e-14
    assert reduced.weights[1].shape == (1, 3)


def test_errata_15_only_rows_at_the_threshold_of_step_relu_may_flip(generator, count, evidence):
    net = radnet.RadNet((3, 40, 2), "step_relu", generator=generator)
    small = radnet.compress(net).network
    x = torch.randn(count(30_000, 200_000), 3, generator=generator)
    certificate = radnet.verify(net, small, x)
    assert certificate.lossless
    # on the sphere itself: scale each input so that the hidden norm is 1, by bisection in float64
    with torch.no_grad():
        direction = x[:2000].double()
        W, b = net.weights[0].double(), net.biases[0].double()
        low, high = torch.zeros(2000, 1).double(), torch.full((2000, 1), 1e3).double()
        for _ in range(80):
            middle = (low + high) / 2
            inside = (middle * direction @ W.mT + b).norm(dim=1, keepdim=True) < 1
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        on_sphere = (high * direction).float()
        flipped = ((net(on_sphere) - small(on_sphere)).abs().amax(dim=1) > 0.1).double().mean()
    on = radnet.verify(net, small, on_sphere)
    evidence("Step-ReLU rows that flip", generic=certificate.rows_failed, of=len(x), on_the_sphere=float(flipped))
    assert flipped > 0.01
    assert on.rows_at_jump > 1500
    assert on.lossless
    assert "rows at a jump of the profile, drawn anew" in str(on)


# --- what belongs to whom


def test_nothing_is_shared_in_float64_either(generator):
    for widths in ((2, 5, 4, 1), (3, 2)):
        net = radnet.RadNet(widths, "sigmoid", generator=generator, dtype=torch.float64)
        c = radnet.compress(net)
        action = radnet.OrthogonalAction.random(widths, generator)
        own = {p.untyped_storage().data_ptr() for p in net.parameters()}
        for other in (c.network, c.transformed(), action.apply(net), radnet.widen(net, widths)):
            assert own.isdisjoint(p.untyped_storage().data_ptr() for p in other.parameters())


def test_tied_layers_are_compressed_and_left_as_they_were(generator):
    net = radnet.RadNet((2, 9, 9, 9, 1), "squash", generator=generator)
    net.layers[2] = net.layers[1]
    before = net.weights[1].detach().clone()
    c = radnet.compress(net)
    assert c.certificate.lossless
    assert c.network.widths == (2, 3, 4, 5, 1)
    assert isinstance(net.weights[1], torch.nn.Parameter)
    assert torch.equal(net.weights[1], before)


def test_a_changed_shift_or_activation_makes_the_result_stale(generator):
    net = radnet.RadNet((2, 9, 9, 1), "squash", shift=0.5, generator=generator)
    c = radnet.compress(net)
    net.activations[0].shift.fill_(5.0)
    with pytest.raises(RuntimeError, match="has changed since"):
        c.transformed()
    c = radnet.compress(net)
    net.rescalings[0] = radnet.StepReLU()
    with pytest.raises(RuntimeError, match="has changed since"):
        c.transformed()


def test_a_copied_result_is_as_fresh_as_it_was(generator):
    net = radnet.RadNet((2, 9, 1), generator=generator)
    c = radnet.compress(net)
    for other in (copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert torch.equal(other.transformed().weights[0], c.transformed().weights[0])
    with torch.no_grad():
        net.weights[0].add_(1)
    with pytest.raises(RuntimeError, match="has changed since"):
        copy.deepcopy(c).transformed()


def test_compression_works_in_inference_mode():
    with torch.inference_mode():
        c = radnet.compress(radnet.RadNet((2, 9, 1)))
        assert c.certificate.lossless
        assert c.transformed().widths == (2, 9, 1)


def test_hooks_of_the_layers_stay_and_may_do_anything_so_that_their_layers_do_too(generator):
    net = radnet.RadNet((2, 9, 1), generator=generator)
    seen = []
    net.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    small = radnet.compress(net).network
    seen.clear()
    small(torch.ones(4, 2))
    assert seen == [(4, 9)]


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_layers_say_so_until_they_have_run(generator):
    net = radnet.RadNet((2, 9, 9, 1), "squash", generator=generator)
    net.layers[0] = torch.nn.LazyLinear(9)
    assert "not initialised" in repr(net)
    for call in (
        net.merged,
        lambda: net.parameter_count,
        lambda: radnet.widen(net, (2, 9, 9, 1)),
        lambda: radnet.OrthogonalAction.random((2, 9, 9, 1)).apply(net),
        lambda: radnet.compression.closed_form(net),
        lambda: radnet.compress(net),
    ):
        with pytest.raises(ValueError, match="layer 1: weight is not initialised yet; run the network on a batch"):
            call()
    with pytest.raises(ValueError, match="not initialised yet"):
        radnet.verify(net, net, torch.ones(2, 2))
    net(torch.randn(5, 2))
    assert radnet.compress(net).network.widths == (2, 3, 4, 1)


def test_a_network_whose_profile_takes_its_own_dtype_alone_is_judged_in_it():
    def insists(r):
        if r.dtype != torch.float32:
            raise TypeError("float32 it has to be")
        return torch.tanh(r)

    net = radnet.RadNet((2, 9, 9, 1), radnet.Radial(insists), generator=torch.Generator().manual_seed(3))
    c = radnet.compress(net, inputs(net).float())
    assert c.certificate.lossless
    assert (c.certificate.judged_in, c.network.widths) == ("float32", (2, 3, 4, 1))
