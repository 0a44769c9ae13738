"""Radial networks are constrained multilayer RBF networks, and the other way round."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import radnet
import reference
from radnet.rbf import RBFLayer, RBFNetwork, from_rbf, kernel_of, to_rbf
from radnet.testing import TIMES_CONDITIONING, ULPS, conditioning, gap_of
from strategies import activations, assert_training_helps, networks


def rbfn_in_numpy(weights, biases, profiles, shifts, x):
    """F_l(x) = W_l rho_{l-1}(F_{l-1}(x) + b_{l-1}) for one x, as the appendix has it: [F_0(x), ..., F_L(x)]."""
    F = [x]
    for W, b, h, t in zip(weights, biases, profiles, shifts, strict=True):
        F.append(W @ reference.rescale(h, F[-1] + b, t))
    return F


def numpy_of(*tensors):
    return [None if t is None else t.detach().numpy() for t in tensors]


def inputs(n, rows=8, seed=3):
    return torch.randn(rows, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@st.composite
def rbf_networks(draw):
    """An RBFNetwork in float64 of 1 to 6 layers, with or without biases, any activations."""
    depth = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 24), min_size=depth + 1, max_size=depth + 1))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31 - 1)))
    rbfn = RBFNetwork(
        widths, [draw(activations()) for _ in range(depth)], bias=draw(st.booleans()),
        generator=generator, dtype=torch.float64,
    )  # fmt: skip
    with torch.no_grad():
        for b in rbfn.b:
            b.normal_(generator=generator)
    return rbfn


def within(f, x, a, b):
    """Row by row ``|a - b| <= max(64 eps max|F|, 10 D)``; and the gap in units of eps max|F|."""
    gap = gap_of(a, b)
    simple = gap.rows <= ULPS * gap.eps * gap.scale
    if simple.all():
        return True, gap.ulps
    D = conditioning(f, x, generator=torch.Generator().manual_seed(1))
    return bool((simple | (gap.rows <= TIMES_CONDITIONING * D)).all()), gap.ulps


def at_jump(net, x):
    return radnet.verify(net, copy.deepcopy(net), x).rows_at_jump


# --- the proposition


def test_every_radial_network_is_a_constrained_rbf_network(count, evidence):
    """First statement, and the way back: the argument unchanged, F_l = W_l G_{l-1} for l = 1, ..., L + 1."""
    seen = []

    @settings(max_examples=count(30, 100))
    @given(networks(max_depth=6, max_width=24))
    def check(net):
        before = copy.deepcopy(net.state_dict())
        rbfn = to_rbf(net)
        again = from_rbf(rbfn)
        n = net.widths
        assert rbfn.widths == (*n, n[-1])
        assert again.widths == (n[0], *n, n[-1])
        assert rbfn.has_bias == again.has_bias == net.has_bias
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        x = inputs(n[0])
        if at_jump(net, x):
            return
        with torch.no_grad():
            G, F = net.partial(x), rbfn.partial(x)
            for other in (rbfn(x), again(x)):
                ok, ulps = within(net, x, net(x), other)
                assert ok
                seen.append(ulps)
            W = [*net.weights, torch.eye(n[-1], dtype=torch.float64)]
            for i, W_i in enumerate(W):
                assert within(net, x, G[i] @ W_i.mT, F[i + 1])[0], i

    check()
    share = sum(ulps <= ULPS for ulps in seen) / len(seen)
    evidence(
        "radial network -> RBFN -> radial network",
        conversions=len(seen),
        share_within_64_eps=share,
        worst_eps=max(seen),
    )
    assert share >= 0.95


def test_every_constrained_rbf_network_is_a_radial_network(count, evidence):
    """Second statement, and the way back: F_l = W_l G_l for l = 1, ..., L."""
    seen = []

    @settings(max_examples=count(30, 100))
    @given(rbf_networks())
    def check(rbfn):
        before = copy.deepcopy(rbfn.state_dict())
        net = from_rbf(rbfn)
        again = to_rbf(net)
        n = rbfn.widths
        assert net.widths == (n[0], *n)
        assert again.widths == (n[0], *n, n[-1])
        assert all(torch.equal(before[name], value) for name, value in rbfn.state_dict().items())
        x = inputs(n[0])
        if at_jump(net, x):
            return
        with torch.no_grad():
            G, F = net.partial(x), rbfn.partial(x)
            for other in (net(x), again(x)):
                ok, ulps = within(rbfn, x, rbfn(x), other)
                assert ok
                seen.append(ulps)
            for i, W_i in enumerate(rbfn.weights, start=1):
                assert within(rbfn, x, F[i], G[i] @ W_i.mT)[0], i

    check()
    share = sum(ulps <= ULPS for ulps in seen) / len(seen)
    evidence("RBFN -> radial network -> RBFN", conversions=len(seen), share_within_64_eps=share, worst_eps=max(seen))
    assert share >= 0.95


@pytest.mark.parametrize("name", sorted(set(reference.PROFILES) - {"tanh"}))
@pytest.mark.parametrize("t", [None, 0.25])
def test_the_partial_functions_are_the_text_of_the_appendix(name, t, generator):
    rbfn = RBFNetwork((3, 5, 4, 2), name, shift=t, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for b in rbfn.b:
            b.normal_(generator=generator)
    x = inputs(3)
    h, shift = reference.PROFILES[name], 0.0 if t is None else t
    for row in range(len(x)):
        expected = rbfn_in_numpy(
            numpy_of(*rbfn.weights), numpy_of(*rbfn.biases), [h] * 3, [shift] * 3, x[row].numpy()
        )  # fmt: skip
        for F, E in zip(rbfn.partial(x[row]), expected, strict=True):
            np.testing.assert_allclose(F.detach().numpy(), E, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", sorted(set(reference.PROFILES) - {"tanh"}))
def test_the_converted_network_is_the_rbf_network_of_the_proof(name, generator):
    net = radnet.RadNet(
        (2, 5, 3), name, output=name, shift=0.2, init="linear", generator=generator, dtype=torch.float64
    )
    W, b = numpy_of(*net.weights), numpy_of(*net.biases)
    h, eye = reference.PROFILES[name], np.eye(3)
    rbfn = to_rbf(net)
    x = inputs(2)
    for row in range(len(x)):
        G = reference.partial_feedforward(W, b, [h, h], [0.2, 0.0], x[row].numpy())
        F = rbfn_in_numpy(
            [*W, eye], [np.zeros(2), *b], [reference.PROFILES["identity"], h, h], [0.0, 0.2, 0.0], x[row].numpy()
        )
        np.testing.assert_allclose(F[-1], G[-1], rtol=1e-12)
        np.testing.assert_allclose(rbfn(x[row]).detach().numpy(), G[-1], rtol=1e-12, atol=1e-14)


def test_errata_21_it_is_the_layer_after_the_last_that_equals_the_network(generator):
    """The proof concludes from l = L; F_L is W_L G_{L-1}, another function than G_L."""
    net = radnet.RadNet((2, 5, 3), "squash", output="squash", init="linear", generator=generator, dtype=torch.float64)
    x = inputs(2)
    with torch.no_grad():
        F, G = to_rbf(net).partial(x), net.partial(x)
    assert len(F) == len(G) + 1
    assert gap_of(F[-1], G[-1]).ulps <= ULPS
    assert gap_of(F[-2], G[-2] @ net.weights[-1].detach().mT).ulps <= ULPS
    assert gap_of(F[-2], G[-1]).max > 0.01


def test_errata_21_lambda_is_unbounded_at_0_when_the_profile_does_not_vanish_there():
    r = torch.tensor([1e-3, 1e-6, 1e-9], dtype=torch.float64)
    assert (torch.sigmoid(r) / r).tolist() == pytest.approx([5e2, 5e5, 5e8], rel=1e-2)
    with pytest.raises(ValueError, match="RadialSigmoid.*0.5 at norm 0, so lambda = h/r is unbounded"):
        kernel_of(radnet.RadialSigmoid())
    with pytest.raises(ValueError, match="at norm 0, so lambda"):
        kernel_of(radnet.Squash(shift=-0.5))
    with pytest.raises(ValueError, match="lambda is not finite at 0"):
        RBFLayer(2, 1, 3, lambda r: torch.sigmoid(r) / r)
    net = radnet.RadNet((2, 4, 1), "sigmoid", dtype=torch.float64)  # the conversions never form lambda
    assert radnet.testing.functional_gap(to_rbf(net), net, inputs(2)).ulps <= ULPS
    assert to_rbf(net)(torch.zeros(1, 2, dtype=torch.float64)).isfinite().all()


def test_conversions_keep_shifts_dtype_and_device_and_share_nothing():
    net = radnet.RadNet((2, 4, 4, 1), ["squash", radnet.StepReLU(shift=0.5)], dtype=torch.float32)
    net.rescalings[0] = radnet.Squash(shift="trainable")
    rbfn = to_rbf(net)
    assert [type(rho).__name__ for rho in rbfn.activations] == ["Identity", "Squash", "StepReLU", "Identity"]
    assert isinstance(rbfn.activations[1].shift, nn.Parameter)
    assert rbfn.activations[2].shift.item() == 0.5
    assert {p.dtype for p in rbfn.parameters()} == {torch.float32}
    for converted, source in ((rbfn, net), (from_rbf(rbfn), rbfn)):
        before = copy.deepcopy(source.state_dict())
        with torch.no_grad():
            for p in converted.parameters():
                p.add_(1.0)
        assert all(torch.equal(before[name], value) for name, value in source.state_dict().items())
    meta = to_rbf(radnet.RadNet((2, 3, 1), device="meta"))
    assert {p.device.type for p in meta.parameters()} == {"meta"}
    assert from_rbf(meta).weights[0].is_meta


# --- the constrained network as a module


def test_an_rbf_network_is_an_ordinary_module():
    rbfn = RBFNetwork((3, 8, 8, 2), "shifted_relu", shift="trainable", generator=torch.Generator().manual_seed(1))
    x = torch.randn(4, 5, 3)
    assert rbfn(x).shape == (4, 5, 2)
    assert torch.equal(rbfn(x[0, 0]), rbfn(x[0, :1])[0])
    assert torch.equal(rbfn.partial(x)[-1], rbfn(x))
    assert rbfn.parameter_count == 3 * 8 + 64 + 16 + 3 + 8 + 8 + 3
    assert "widths=(3, 8, 8, 2), parameters=126" in repr(rbfn)
    twin = RBFNetwork((3, 8, 8, 2), "shifted_relu", shift="trainable")
    assert not torch.equal(twin(x), rbfn(x))
    twin.load_state_dict(rbfn.state_dict())
    for same in (twin, copy.deepcopy(rbfn), pickle.loads(pickle.dumps(rbfn))):
        assert torch.equal(same(x), rbfn(x))
    double = copy.deepcopy(rbfn).to(torch.float64)
    torch.testing.assert_close(double(x.double()).float(), rbfn(x))
    again = RBFNetwork((3, 8, 8, 2), "shifted_relu", shift="trainable", generator=torch.Generator().manual_seed(1))
    assert all(torch.equal(p, q) for p, q in zip(rbfn.parameters(), again.parameters(), strict=True))
    again.reset_parameters()
    assert not torch.equal(again.weights[0], rbfn.weights[0])
    assert RBFNetwork((3, 2), bias=False).biases == (None,)
    given = RBFNetwork.from_parameters(rbfn.weights, rbfn.biases, rbfn.activations)
    assert torch.equal(given(x), rbfn(x))
    assert given.weights[0] is not rbfn.weights[0]


@pytest.mark.parametrize("name", ["step_relu", "squash", "shifted_relu", "sigmoid", "identity"])
def test_initial_norms_stay_level_with_depth(name):
    generator = torch.Generator().manual_seed(0)
    rbfn = RBFNetwork((16, *[64] * 30, 4), name, generator=generator, dtype=torch.float64)
    F = rbfn.partial(inputs(16, rows=64))
    norms = [float(F_l.detach().norm(dim=1).median()) for F_l in F[1:-1]]
    assert max(norms) / min(norms) < 4
    assert 0.3 < float(F[-1].detach().std()) < 3


def test_gradients_of_an_rbf_network_are_right():
    rbfn = RBFNetwork((2, 3, 2), ["squash", "sigmoid"], shift="trainable", dtype=torch.float64)
    names = [name for name, _ in rbfn.named_parameters()]
    x = inputs(2, rows=3)

    def f(*values):
        return torch.func.functional_call(rbfn, dict(zip(names, values, strict=True)), (x,))

    values = [p.detach().clone().requires_grad_() for p in rbfn.parameters()]
    assert len(values) == 6
    assert torch.autograd.gradcheck(f, values)


@pytest.mark.parametrize(
    ("make", "optimizer"),
    [
        (lambda g: RBFNetwork((2, 16, 16, 1), "shifted_relu", shift="trainable", generator=g), "SGD"),
        (lambda g: RBFNetwork((2, 16, 16, 1), "squash", generator=g), "Adam"),
    ],
)
def test_a_few_steps_of_training_reduce_the_loss(make, optimizer, generator):
    assert_training_helps(make(generator), optimizer, generator)


# --- bad inputs

EYE, ONE = torch.eye(2), torch.ones(2)
NET = RBFNetwork((2, 3, 1))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: to_rbf(nn.Linear(2, 1)), TypeError, "to_rbf needs a RadNet, got Linear"),
        (lambda: from_rbf(radnet.RadNet((2, 1))), TypeError, "from_rbf needs an RBFNetwork, got RadNet"),
        (lambda: from_rbf(RBFLayer(2, 1, 3)), TypeError, r"an RBFLayer is as_blocks\(layer\)"),
        (lambda: RBFNetwork((3,)), ValueError, "at least an input and an output width"),
        (lambda: RBFNetwork((3, 2, 1), ["squash"]), ValueError, "got 1 activations for 2 layers; give one for each"),
        (lambda: RBFNetwork((3, 2), "sqash"), ValueError, "did you mean 'squash'"),
        (lambda: RBFNetwork((3, 2), torch.tanh), TypeError, r"layer 1: activation is a .*, which is not radial"),
        (lambda: RBFNetwork((4, 2), radnet.Squash(blocks=2)), ValueError, "layer 1: .* has blocks"),
        (lambda: RBFNetwork((3, 2), dtype=torch.int64), TypeError, "an RBF network needs a real floating-point dtype"),
        (lambda: NET([1.0, 2.0]), TypeError, "RBFNetwork needs a tensor, got list"),
        (lambda: NET(torch.ones(2, dtype=torch.int64)), TypeError, "needs a floating-point input, got torch.int64"),
        (lambda: NET(torch.ones(4, 3)), ValueError, r"input of shape \(4, 3\): the last dimension must be 2"),
        (lambda: NET.partial(torch.tensor(1.0)), ValueError, r"input of shape \(\): the last dimension must be 2"),
        (lambda: NET(torch.ones(2).double()), TypeError, "input is torch.float64, the parameters are torch.float32"),
        (
            lambda: RBFNetwork.from_parameters([EYE], [ONE, ONE], ["squash"]),
            ValueError,
            "got 1 weights and 2 biases; give b_0, ..., b_0",
        ),
        (
            lambda: RBFNetwork.from_parameters([EYE, torch.ones(1, 2)], [ONE, torch.ones(1)], ["squash"] * 2),
            ValueError,
            r"layer 2: bias b_1 has shape \(1,\); needs \(2,\), since it is added to what the layer reads",
        ),
        (
            lambda: RBFNetwork.from_parameters([EYE], [ONE.double()], ["squash"]),
            TypeError,
            "layer 1: bias b_0 is torch.float64 on cpu, but the weight of layer 1 is torch.float32",
        ),
        (
            lambda: RBFNetwork.from_parameters([EYE, EYE], [ONE, ONE], "squash"),
            ValueError,
            "got 1 activations for 2 layers",
        ),
        (
            lambda: RBFNetwork.from_parameters([EYE, torch.eye(3)], None, ["squash"] * 2),
            ValueError,
            "layer 2: weight has 3 columns, but layer 1 has 2 outputs",
        ),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, kind, message):
    with pytest.raises(radnet.RadNetError, match=message) as caught:
        call()
    assert isinstance(caught.value, kind)
