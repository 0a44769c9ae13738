"""RadNet: the feedforward function, its parameters both ways, initial weights, widening, bad input."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import radnet
import reference
from radnet.compression import closed_form
from radnet.testing import TIMES_CONDITIONING, ULPS, assert_same_function, conditioning, gap_of
from strategies import networks

NAMES = ["step_relu", "squash", "shifted_relu", "sigmoid", "identity"]


def test_partial_feedforward_functions_are_the_text_of_the_paper(generator):
    names = ["sigmoid", "step_relu", "squash", "shifted_relu"]
    net = radnet.RadNet((3, 5, 4, 6, 2), names[:3], output=names[3], generator=generator, dtype=torch.float64)
    shifts = [0.0] * 4
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    F = net.partial(x)
    weights = [W.detach().numpy() for W in net.weights]
    biases = [b.detach().numpy() for b in net.biases]
    for j in range(20):
        expected = reference.partial_feedforward(
            weights, biases, [reference.PROFILES[name] for name in names], shifts, x[j].numpy()
        )
        for F_i, expected_i in zip(F, expected, strict=True):
            np.testing.assert_allclose(F_i[j].detach(), expected_i, rtol=1e-12, atol=1e-13)
    assert torch.equal(F[0], x)
    torch.testing.assert_close(F[-1], net(x), rtol=1e-12, atol=1e-13)


def test_shifts_enter_as_the_appendix_says(generator):
    net = radnet.RadNet((2, 4, 1), "sigmoid", shift=0.7, init="linear", generator=generator, dtype=torch.float64)
    x = torch.randn(2, generator=generator, dtype=torch.float64)
    parameters = [[p.detach().numpy() for p in ps] for ps in (net.weights, net.biases)]
    sigmoid, identity = reference.PROFILES["sigmoid"], reference.PROFILES["identity"]
    t = float(net.activations[0].shift)
    expected = reference.partial_feedforward(*parameters, [sigmoid, identity], [t, 0.0], x.numpy())[-1]
    np.testing.assert_allclose(net(x).detach(), expected, rtol=1e-13)


def test_merged_parameters_give_the_same_feedforward_function(generator):
    net = radnet.RadNet((2, 5, 3, 1), "squash", init="linear", generator=generator, dtype=torch.float64)
    x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    F = x
    for A, rho in zip(net.merged(), net.activations, strict=True):  # F_i = rho_i . A_i . ext . F_{i-1}
        F = rho(torch.cat([torch.ones(7, 1, dtype=torch.float64), F], 1) @ A.mT)
    torch.testing.assert_close(F, net(x))
    again = radnet.RadNet.from_merged(net.merged(), net.activations)
    assert torch.equal(again(x), net(x))
    assert all(torch.equal(a, b) for a, b in zip(again.merged(), net.merged(), strict=True))


def test_merged_parameters_carry_gradients():
    net = radnet.RadNet((2, 3, 1))
    sum(A.sum() for A in net.merged()).backward()
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in net.parameters())


def test_without_biases_the_bias_column_is_zero():
    net = radnet.RadNet((2, 3, 1), bias=False)
    assert net.biases == (None, None)
    assert not net.has_bias
    assert [tuple(A.shape) for A in net.merged()] == [(3, 3), (1, 4)]
    assert all(not A[:, 0].any() for A in net.merged())


def test_parameters_are_counted_with_shifts():
    assert radnet.RadNet((1, 8, 16, 8, 1)).parameter_count == 305
    assert radnet.RadNet((1, 8, 16, 8, 1), shift="trainable").parameter_count == 308
    assert radnet.RadNet((1, 8, 16, 8, 1), shift=0.5).parameter_count == 305
    assert "widths=(1, 8, 1), parameters=25" in repr(radnet.RadNet((1, 8, 1)))


def test_any_leading_batch_shape_is_welcome(generator):
    net = radnet.RadNet((3, 4, 2), "squash")
    x = torch.randn(2, 5, 3, generator=generator)
    assert net(x).shape == (2, 5, 2)
    torch.testing.assert_close(net(x)[1, 2], net(x[1, 2]))
    assert net(x[:0]).shape == (0, 5, 2)
    assert [F.shape for F in net.partial(x[0, 0])] == [(3,), (4,), (2,)]


def test_each_layer_has_an_activation_and_a_shift_of_its_own():
    given_rho = radnet.Squash(shift="trainable")
    net = radnet.RadNet((1, 2, 3, 1), given_rho)
    first, second, last = net.activations
    assert first.shift is not second.shift
    assert first.shift is not given_rho.shift
    assert isinstance(last, radnet.Identity)
    mixed = radnet.RadNet((1, 2, 3, 1), ["step_relu", radnet.Radial(torch.tanh)], output="sigmoid", shift=None)
    assert [type(rho).__name__ for rho in mixed.activations] == ["StepReLU", "Radial", "RadialSigmoid"]
    shifted = radnet.RadNet((1, 2, 3, 1), "squash", shift=0.25)
    assert [rho.shift is not None for rho in shifted.activations] == [True, True, False]


def test_one_layer_is_a_network_too(generator):
    net = radnet.RadNet((3, 2), output="step_relu")
    x = torch.randn(4, 3, generator=generator)
    torch.testing.assert_close(net(x), radnet.StepReLU()(x @ net.weights[0].mT + net.biases[0]))


def test_from_parameters_copies_what_it_is_given():
    W, b = torch.eye(2), torch.zeros(2)
    net = radnet.RadNet.from_parameters([W], [b], ["identity"])
    W[0, 0] = 5
    assert net.weights[0][0, 0] == 1
    from_arrays = radnet.RadNet.from_parameters([np.eye(2)], None, ["squash"])
    assert from_arrays.weights[0].dtype == torch.float64
    assert from_arrays.biases == (None,)


@pytest.mark.parametrize("name", [*NAMES, "tanh"])
def test_initial_norms_stay_within_a_factor_two_over_32_layers(name, evidence, count):
    rho = radnet.Radial(torch.tanh) if name == "tanh" else name
    worst = 1.0
    for seed in range(count(2, 10)):
        for width, n_0 in ((16, 3), (64, 1), (64, 16), (64, 200)):
            generator = torch.Generator().manual_seed(seed)
            net = radnet.RadNet((n_0, *[width] * 32, 1), rho, generator=generator)
            x = torch.randn(512, n_0, generator=generator)
            with torch.no_grad():
                norms = [float(F.norm(dim=1).mean()) for F in net.partial(x)]
            worst = max(worst, norms[32] / norms[1], norms[1] / norms[32])
    evidence("hidden norms, layer 32 against layer 1", activation=name, worst_factor=worst)
    assert worst < 2


def test_the_linear_initialisation_is_that_of_nn_linear():
    torch.manual_seed(3)
    net = radnet.RadNet((5, 7, 2), init="linear")
    torch.manual_seed(3)
    layers = [torch.nn.Linear(5, 7), torch.nn.Linear(7, 2)]
    for layer, W, b in zip(layers, net.weights, net.biases, strict=True):
        torch.testing.assert_close(layer.weight, W)
        torch.testing.assert_close(layer.bias, b)


@pytest.mark.parametrize("init", ["stable", "linear"])
def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_one_alone(init):
    before = torch.get_rng_state()
    a, b = (radnet.RadNet((3, 600, 9, 2), init=init, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("fill", [0.0, 0.5])
def test_widen_is_the_same_function(fill, count):
    @settings(max_examples=count(25, 200))
    @given(networks(max_depth=5, max_width=12), st.data())
    def check(net, data):
        n = net.widths
        wide = (n[0], *(n_i + data.draw(st.integers(0, 6)) for n_i in n[1:-1]), n[-1])
        generator = torch.Generator().manual_seed(0)
        wider = radnet.widen(net, wide, fill=fill, generator=generator)
        assert wider.widths == wide
        assert type(wider) is type(net)
        x = torch.randn(16, n[0], generator=generator, dtype=torch.float64)
        assert_same_function(net, wider, x)
        for i, (A, wide_A) in enumerate(zip(net.merged(), wider.merged(), strict=True)):
            assert torch.equal(wide_A[: n[i + 1], : n[i] + 1], A)
            assert not wide_A[n[i + 1] :, : n[i] + 1].any()
            free = wide_A[:, n[i] + 1 :]
            assert bool((free != 0).all()) if fill else not free.any()

    check()


def test_widen_draws_the_free_columns_with_the_given_standard_deviation(generator):
    wider = radnet.widen(radnet.RadNet((2, 3, 3, 1)), (2, 300, 300, 1), fill=0.5, generator=generator)
    free = wider.weights[1][:, 3:]
    assert abs(float(free.detach().std()) - 0.5) < 0.01


def test_networks_without_biases_have_a_closed_form(count):
    @settings(max_examples=count(25, 200))
    @given(networks(max_depth=5, max_width=12))
    def check(net):
        if net.has_bias:
            with torch.no_grad():
                for b in net.biases:
                    b.zero_()
        x = torch.randn(16, net.widths[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        form = closed_form(net)
        assert form.matrix.shape == (net.widths[-1], net.widths[0])
        assert form.mu(x).shape == (16, 1)
        torch.testing.assert_close(form(x), (form.mu(x) * x) @ form.matrix.mT)
        with torch.no_grad():
            gap = gap_of(net(x), form(x))
            # the product W_L ... W_1 is rounded by itself: where its entries cancel, so do digits
            before_cancelling = (form.mu(x).abs() * (x.abs() @ form.matrix.abs().mT)).amax(dim=1)
        allowed = ULPS * gap.eps * before_cancelling.clamp(min=gap.scale)
        D = conditioning(net, x, generator=torch.Generator().manual_seed(1))
        assert (gap.rows <= torch.maximum(allowed, TIMES_CONDITIONING * D)).all()

    check()


@pytest.mark.parametrize("shift", [None, 0.3])
def test_the_closed_form_of_a_deep_network_is_its_function(shift, generator):
    names = ["sigmoid", "squash", "shifted_relu", "identity"]
    net = radnet.RadNet((3, 5, 4, 6, 7, 2), names, shift=shift, bias=False, init="linear", generator=generator)
    net = net.double()
    x = 3 * torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        states = net.partial(x)
        form = closed_form(net)
        assert torch.allclose(form(x), net(x), rtol=1e-10, atol=1e-14)
        product = net.weights[0]
        for W in net.weights[1:]:
            product = W @ product
        assert torch.allclose(form.matrix, product, rtol=1e-12, atol=1e-14)
        last = net.weights[3] @ net.weights[2] @ net.weights[1] @ net.weights[0]
        assert torch.allclose(form.mu(x) * (x @ last.mT), states[4], rtol=1e-10, atol=1e-14)  # identity at the end
    assert torch.equal(form(torch.zeros(1, 3)), torch.zeros(1, 2, dtype=torch.float64))


def test_a_bias_takes_the_closed_form_away():
    net = radnet.RadNet((2, 3, 3, 1), "squash")
    with torch.no_grad():
        net.biases[1][0] = 1.0
    with pytest.raises(ValueError, match="layer 2: the bias is not zero"):
        closed_form(net)
    with pytest.raises(TypeError, match="closed_form needs a RadNet, got Linear"):
        closed_form(torch.nn.Linear(2, 1))


def _w(*shape):
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: radnet.RadNet((2, 3, 1), "sigmod"), ValueError, "unknown activation 'sigmod'; did you mean 'sigmoid'"),
        (
            lambda: radnet.RadNet((2, 3, 1), torch.nn.ReLU()),
            TypeError,
            "layer 1: activation is a ReLU, which is not radial",
        ),
        (lambda: radnet.RadNet((2, 3, 1), 5), TypeError, "give a name or a radnet activation"),
        (lambda: radnet.RadNet((2, 3, 1), ["squash", "squash"]), ValueError, "got 2 activations for 1 hidden layers"),
        (lambda: radnet.RadNet((2, 3, 1), radnet.Squash(blocks=3)), ValueError, "has blocks or an axis of its own"),
        (
            lambda: radnet.RadNet((2, 3, 1), output=radnet.Squash(dim=1)),
            ValueError,
            "output layer 2: .* axis of its own",
        ),
        (lambda: radnet.RadNet((2, 3, 1), radnet.Squash(), shift=0.5), ValueError, "give it to the module"),
        (lambda: radnet.RadNet((2, 3, 1), init="xavier"), ValueError, "init='xavier': expected one of stable, linear"),
        (lambda: radnet.RadNet((2, 3, 1), dtype=torch.int32), TypeError, "needs a real floating-point dtype"),
        (lambda: radnet.RadNet((2, 3, 1), dtype=torch.complex64), TypeError, "needs a real floating-point dtype"),
        (
            lambda: radnet.RadNet((2, 3, 1))(torch.zeros(4, 3)),
            ValueError,
            r"shape \(4, 3\): the last dimension must be 2",
        ),
        (lambda: radnet.RadNet((2, 3, 1))(torch.tensor(1.0)), ValueError, r"input of shape \(\)"),
        (
            lambda: radnet.RadNet((2, 3, 1))(torch.zeros(4, 2).long()),
            TypeError,
            "floating-point input, got torch.int64",
        ),
        (lambda: radnet.RadNet((2, 3, 1))(torch.zeros(4, 2).cfloat()), TypeError, "got torch.complex64"),
        (
            lambda: radnet.RadNet((2, 3, 1))(torch.zeros(4, 2).double()),
            TypeError,
            r"input is torch.float64, the parameters",
        ),
        (lambda: radnet.RadNet((2, 3, 1)).partial([1, 2]), TypeError, "RadNet needs a tensor, got list"),
        (lambda: radnet.RadNet.from_parameters([], [], []), ValueError, "no weights"),
        (
            lambda: radnet.RadNet.from_parameters([_w(6, 1), _w(2, 7)], None, ["squash", "identity"]),
            ValueError,
            r"layer 2: weight has 7 columns, but layer 1 has 6 outputs; is the bias column included\?",
        ),
        (
            lambda: radnet.RadNet.from_parameters([_w(6)], None, ["squash"]),
            ValueError,
            r"layer 1: weight has shape \(6,\)",
        ),
        (lambda: radnet.RadNet.from_parameters([_w(0, 2)], None, ["squash"]), ValueError, r"layer 1: weight has shape"),
        (
            lambda: radnet.RadNet.from_parameters([_w(3, 2)], [_w(2)], ["squash"]),
            ValueError,
            r"layer 1: bias has shape \(2,\); needs \(3,\)",
        ),
        (
            lambda: radnet.RadNet.from_parameters([_w(3, 2)], [_w(3), _w(3)], ["squash"]),
            ValueError,
            "got 1 weights and 2 biases",
        ),
        (
            lambda: radnet.RadNet.from_parameters([_w(3, 2), _w(1, 3)], [_w(3), None], ["squash", "identity"]),
            ValueError,
            "layer 2: has no bias, but other layers have",
        ),
        (
            lambda: radnet.RadNet.from_parameters([_w(3, 2)], None, ["squash", "squash"]),
            ValueError,
            "got 2 activations for 1 layers",
        ),
        (lambda: radnet.RadNet.from_parameters([_w(3, 2)], None, "squash"), ValueError, "give one for each"),
        (
            lambda: radnet.RadNet.from_parameters([_w(3, 2).long()], None, ["squash"]),
            TypeError,
            "layer 1: weight is torch.int64",
        ),
        (
            lambda: radnet.RadNet.from_parameters([_w(3, 2), _w(1, 3).double()], None, ["squash", "squash"]),
            TypeError,
            "layer 2: weight is torch.float64 on cpu, but the weight of layer 1 is torch.float32",
        ),
        (
            lambda: radnet.RadNet.from_merged([_w(3, 1)], ["squash"]),
            ValueError,
            r"layer 1: merged matrix \[b W\] has shape",
        ),
        (lambda: radnet.widen(radnet.RadNet((2, 3, 1)), (2, 2, 1)), ValueError, "cannot widen a network of widths"),
        (lambda: radnet.widen(radnet.RadNet((2, 3, 1)), (3, 3, 1)), ValueError, "its input 2 and output 1"),
        (lambda: radnet.widen(radnet.RadNet((2, 3, 1)), (2, 3, 3, 1)), ValueError, "keep its depth"),
        (lambda: radnet.widen(radnet.RadNet((2, 3, 1)), (2, 3, 1), fill=-1), ValueError, "fill=-1"),
        (lambda: radnet.widen(radnet.RadNet((2, 3, 1)), (2, 3, 1), fill="a"), TypeError, "fill='a': expected a number"),
        (lambda: radnet.RadNet((2, 1), dtype="float32"), TypeError, "dtype='float32': a radial network needs"),
        (lambda: radnet.RadNet((2, 3, 1), radnet.Squash), TypeError, r"the class Squash; did you mean Squash\(\)"),
        (lambda: radnet.RadNet.from_parameters(None, None, ["squash"]), TypeError, "weights: expected one tensor for"),
        (
            lambda: radnet.RadNet.from_parameters([[[1.0], [1.0, 2.0]]], None, ["squash"]),
            TypeError,
            "weights: expected",
        ),
        (lambda: radnet.RadNet.from_parameters([_w(1, 1)], None, None), TypeError, "activations is a NoneType"),
        (lambda: radnet.RadNet.from_merged(None, ["squash"]), TypeError, "merged matrices: expected one tensor"),
        (lambda: radnet.compress(radnet.RadNet((2, 3, 1)), generator=3), TypeError, "generator is a int"),
        (lambda: radnet.Radial(lambda r: r > 1)(torch.ones(3)), ValueError, "returned torch.bool"),
        (lambda: radnet.widen(torch.nn.Linear(2, 3), (2, 3)), TypeError, "widen needs a RadNet, got Linear"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert isinstance(caught.value, radnet.RadNetError)
