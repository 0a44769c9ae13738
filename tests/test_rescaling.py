"""The kernel: values against the text in NumPy, gradients, the origin, the ends of the range, what is saved."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import radnet
import reference
from radnet import profiles, rescaling
from radnet.origin import Origin, accumulation_dtype, origin
from radnet.rescaling import (
    backward,
    block_sizes,
    composed,
    forward,
    is_ordinary,
    ordinary_but_for_zeros,
    ordinary_range,
    rescale,
    slope_of,
)
from strategies import ACTIVATIONS

KINDS = sorted(ACTIVATIONS)
BUILT_IN = ["identity", "step_relu", "squash", "shifted_relu", "sigmoid"]
SHIFTS = [None, 0.25, -0.5]
CHECKS = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
CHECKS2 = {"check_batched_grad": True, "check_fwd_over_rev": True, "check_rev_over_rev": True}


def activation(kind, shift=None, dtype=torch.float64, **keywords):
    return ACTIVATIONS[kind](shift=shift, dtype=dtype, **keywords)


def kernel(rho):
    """The rescaling itself, also where the module has a shortcut (Identity)."""
    return lambda v: rescale(v, rho.profile, slope=rho.slope, shift=rho.shift, dim=rho.dim)


def generic_points(generator, shape=(4, 3)):
    """Points whose norms keep away from 0 and from the jump and the kink of the profiles, shifted or not."""
    v = torch.randn(shape, generator=generator, dtype=torch.float64)
    norms = torch.tensor([0.4, 0.68, 1.63, 2.9], dtype=torch.float64)
    r = norms[torch.arange(v[..., 0].numel()) % 4].reshape(v[..., :1].shape)
    return v / v.norm(dim=-1, keepdim=True) * r


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", sorted(reference.PROFILES))
def test_the_value_is_the_text_of_the_paper(kind, shift, generator):
    v = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    v[0] = 0
    expected = [reference.rescale(reference.PROFILES[kind], row, shift or 0.0) for row in v.numpy()]
    np.testing.assert_allclose(activation(kind, shift)(v), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("shift", [*SHIFTS, "trainable"])
@pytest.mark.parametrize("kind", KINDS)
def test_first_and_second_derivatives_are_right_at_generic_points(kind, shift, generator):
    rho = activation(kind, shift)
    v = generic_points(generator).requires_grad_()
    inputs = (v,)
    if shift == "trainable":
        t = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        inputs = (v, t)

    def f(v, t=rho.shift):
        return rescale(v, rho.profile, slope=rho.slope, shift=t)

    assert gradcheck(f, inputs, **CHECKS)
    assert gradgradcheck(f, inputs, **CHECKS2)
    assert gradcheck(rho, (v,), **CHECKS)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_at_the_origin_are_right_where_the_profile_vanishes_and_zero_elsewhere(kind, shift, generator):
    rho = activation(kind, shift)
    with torch.no_grad():
        vanishes = float(rho.profile(torch.tensor(-(shift or 0.0), dtype=torch.float64))) == 0
    zero = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(rho(zero), torch.zeros_like(zero))
    if vanishes:
        assert gradcheck(kernel(rho), (zero,), **CHECKS)
        assert gradgradcheck(kernel(rho), (zero,), **CHECKS2)
    else:
        (gradient,) = torch.autograd.grad(rho(zero), zero, torch.ones_like(zero), create_graph=True)
        assert torch.equal(gradient, torch.zeros_like(gradient))
        (second,) = torch.autograd.grad(gradient.sum(), zero, allow_unused=True, materialize_grads=True)
        assert torch.equal(second, torch.zeros_like(second))


def test_the_gradient_at_the_origin_is_the_slope_of_the_profile():
    for h, slope in ((torch.tanh, 1.0), (lambda r: 3 * r, 3.0), (lambda r: torch.exp(r) - 1, 1.0), (torch.sqrt, 0.0)):
        v = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(rescale(v, h)[0, 0], v)
        assert gradient.tolist() == [[slope, 0.0]]


def test_a_trainable_shift_gets_no_gradient_from_rows_at_the_origin():
    rho = radnet.RadialSigmoid(shift="trainable", dtype=torch.float64)
    rho(torch.zeros(3, 2, dtype=torch.float64)).sum().backward()
    assert rho.shift.grad == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_and_the_composed_form_are_the_same_function(kind, generator):
    rho = activation(kind, 0.25)
    v = torch.randn(64, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    gy = torch.randn(64, 5, generator=generator, dtype=torch.float64)
    fast = kernel(rho)(v)
    slow, r = composed(v, rho.profile, rho.slope, rho.shift, 1)
    torch.testing.assert_close(fast, slow, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(r, v.norm(dim=1, keepdim=True), rtol=1e-14, atol=0)
    a, b = torch.autograd.grad(fast, v, gy)[0], torch.autograd.grad(slow, v, gy)[0]
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_exactly_zero_leave_the_others_to_the_last_bit(kind, generator):
    v = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    rho, others = activation(kind, shift=0.25), torch.arange(40) % 3 > 0
    alone = kernel(rho)(v[others])
    v[~others] = 0
    y = kernel(rho)(v)
    assert torch.equal(y[others], alone)
    assert torch.equal(y[~others], torch.zeros_like(y[~others]))


def test_a_norm_that_is_zero_by_underflow_is_no_zero_row():
    v = torch.tensor([[3.0, 4.0], [1e-30, 0.0], [0.0, 0.0]])
    assert torch.equal(kernel(radnet.ShiftedReLU(0.0))(v), v)
    r = torch.linalg.vector_norm(v, dim=1, keepdim=True)
    assert r[1] == 0
    assert ordinary_but_for_zeros(v, r) is None
    assert torch.equal(ordinary_but_for_zeros(v[::2], r[::2]), torch.tensor([[5.0], [1.0]]))
    assert ordinary_but_for_zeros(v[:1], r[:1]) is None


def test_where_no_gradient_is_wanted_none_is_prepared(generator, monkeypatch):
    v = torch.randn(4, 3, generator=generator)
    networks = radnet.Squash(), radnet.Radial(profiles.squash)
    expected = [rho(v.clone().requires_grad_()).detach() for rho in networks]
    monkeypatch.setattr(rescaling._Rescale, "apply", None)
    for rho, value in zip(networks, expected, strict=True):
        assert torch.equal(rho(v), value)
        with torch.no_grad():
            assert torch.equal(rho(v.clone().requires_grad_()), value)


def test_a_profile_of_ones_own_is_tried_out_and_a_formula_is_not(generator):
    class Doubled(radnet.Squash):
        def profile(self, r):
            calls.append(len(r))
            return 2 * super().profile(r)

    calls = []
    v = torch.randn(4, 3, generator=generator)
    assert torch.allclose(Doubled()(v), 2 * radnet.Squash()(v), rtol=1e-6)
    assert calls == [1, 4]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("kind", ["squash", "sigmoid"])
def test_rows_at_the_origin_do_not_disturb_the_others(kind, dim, generator):
    rho = activation(kind)
    v = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
    alone = v.clone().requires_grad_()
    mixed = torch.cat([v, torch.zeros_like(v)], dim=(dim + 1) % 3).requires_grad_()
    gy = torch.randn(v.shape, generator=generator, dtype=torch.float64)
    a = rescale(alone, rho.profile, slope=rho.slope, dim=dim)
    b = rescale(mixed, rho.profile, slope=rho.slope, dim=dim)
    ga = torch.autograd.grad(a, alone, gy)[0]
    gb = torch.autograd.grad(b, mixed, torch.cat([gy, gy], dim=(dim + 1) % 3))[0]
    first = v.shape[(dim + 1) % 3]
    torch.testing.assert_close(b.narrow((dim + 1) % 3, 0, first), a, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(gb.narrow((dim + 1) % 3, 0, first), ga, rtol=1e-12, atol=1e-13)
    assert torch.equal(b.narrow((dim + 1) % 3, first, first), torch.zeros_like(v))


@pytest.mark.parametrize("shift", [None, 0.25])
@pytest.mark.parametrize("kind", BUILT_IN)
def test_no_finite_float32_input_gives_a_value_or_gradient_that_is_not_finite(kind, shift, generator, count, evidence):
    rho = activation(kind, shift, dtype=torch.float32)
    exponents = np.linspace(-40, 38, count(79, 157))
    worst = 0.0
    for exponent in exponents:
        for n in (1, 7, 300):
            v = torch.randn(3, n, generator=generator).double()
            v = (v / v.norm(dim=1, keepdim=True) * 10.0**exponent).float()
            v[2] = 0
            for form in (kernel(rho), lambda v: composed(v, rho.profile, rho.slope, rho.shift, 1)[0]):
                x = v.clone().requires_grad_()
                y = form(x)
                gy = torch.randn(y.shape, generator=generator)
                gradient = torch.autograd.grad(y, x, gy)[0]
                assert y.isfinite().all(), (exponent, n)
                assert gradient.isfinite().all(), (exponent, n)
                worst = max(worst, float(gradient.abs().max()))
    evidence("finite over 1e-40..1e38 and at 0", activation=repr(rho), norms=len(exponents), largest_gradient=worst)


@pytest.mark.parametrize("exponent", [-40, -30, -19, -15, -14, 14, 15, 19, 30, 37.5])
@pytest.mark.parametrize("kind", BUILT_IN)
def test_far_from_one_the_float32_value_and_gradient_are_those_of_float64(kind, exponent, generator):
    rho, exact = activation(kind, dtype=torch.float32), activation(kind)
    v = torch.randn(4, 6, generator=generator)
    v = (v.double() / v.double().norm(dim=1, keepdim=True) * 10.0**exponent).float()
    gy = torch.randn(4, 6, generator=generator)
    x, x64 = v.clone().requires_grad_(), v.double().requires_grad_()
    y, y64 = kernel(rho)(x), kernel(exact)(x64)
    g, g64 = torch.autograd.grad(y, x, gy)[0], torch.autograd.grad(y64, x64, gy.double())[0]
    if kind == "sigmoid" and exponent < -18.96:  # below sqrt(tiny) it counts as 0 in float32
        assert not y.any()
        assert not g.any()
        return
    # at 1e-40 a float32 number has 16 bits left
    torch.testing.assert_close(y.double(), y64, rtol=1e-5 if exponent > -38 else 1e-3, atol=1e-44)
    torch.testing.assert_close(
        g.double(), g64, rtol=1e-4 if exponent > -38 else 1e-2, atol=1e-29 + 1e-5 * float(g64.abs().max())
    )


@pytest.mark.parametrize("exponent", [-310, -300, -160, 150, 160, 300, 307])
def test_norms_do_not_overflow_or_underflow_in_float64(exponent):
    v = torch.tensor([[3.0, 4.0]], dtype=torch.float64) * 10.0**exponent / 5
    torch.testing.assert_close(radnet.Identity(shift=0.0, dtype=torch.float64)(v), v, rtol=1e-13, atol=0)
    if exponent > 0:
        torch.testing.assert_close(radnet.Squash()(v), torch.tensor([[0.6, 0.8]], dtype=torch.float64))


def test_step_relu_and_identity_return_long_vectors_to_the_last_bit(generator):
    for scale in (1e-20, 1.0, 1e20):
        v = torch.randn(100, 7, generator=generator) * scale
        assert torch.equal(kernel(radnet.Identity())(v), v)
        assert radnet.Identity()(v) is v
        kept = v.norm(dim=1).double() >= 1
        assert torch.equal(radnet.StepReLU()(v), torch.where(kept[:, None], v, 0.0))


def test_nan_stays_in_its_row():
    v = torch.tensor([[float("nan"), 1.0], [3.0, 4.0]])
    y = radnet.Squash()(v)
    assert y[0].isnan().all()
    assert y[1].isfinite().all()


def test_only_profiles_that_do_not_vanish_at_zero_have_a_floor():
    t = torch.zeros((), dtype=torch.float32)
    tiny = math.sqrt(torch.finfo(torch.float32).tiny)
    assert origin(profiles.sigmoid, profiles.sigmoid_slope, t) == Origin(torch.tensor(tiny), torch.tensor(0.0))
    assert origin(profiles.identity, profiles.identity_slope, t) == Origin(torch.tensor(0.0), torch.tensor(1.0))
    assert origin(profiles.identity, profiles.identity_slope, t + 0.5).floor == torch.tensor(tiny)
    v = torch.tensor([[1e-30, 0.0]])
    assert torch.equal(radnet.Identity()(v), v)
    assert torch.equal(radnet.Radial(torch.tanh)(v), v)
    assert not radnet.RadialSigmoid()(v).any()


def test_the_ordinary_range_is_where_squares_are_safe():
    assert ordinary_range(torch.float32) == (2.0**-48, 2.0**48)
    assert ordinary_range(torch.float64) == (2.0**-384, 2.0**384)
    r = torch.tensor([1.0, 2.0])
    assert is_ordinary(r)
    assert is_ordinary(torch.tensor([2.0**-48, 2.0**48]))
    assert is_ordinary(torch.tensor([2.0**-384, 2.0**384], dtype=torch.float64))
    assert not is_ordinary(torch.tensor([1.0, 0.0]))
    assert not is_ordinary(torch.tensor([1.0, 2.0**49]))
    assert not is_ordinary(torch.tensor([2.0**-49, 1.0]))
    assert not is_ordinary(torch.tensor([1.0, float("nan")]))
    assert not is_ordinary(torch.empty(0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_backward_pass_keeps_the_input_and_one_number_a_row(kind, evidence):
    rho = activation(kind, "trainable", dtype=torch.float32)
    rows, n = 128, 64
    v = torch.randn(rows, n, requires_grad=True)
    saved = {}

    def keep(x):
        saved[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        kernel(rho)(v)
    assert sum(saved.values()) <= rows * n + rows + 1  # and the shift
    evidence("saved for backward", activation=kind, numbers=sum(saved.values()), input=rows * n, rows=rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precisions_accumulate_in_float32(dtype):
    assert accumulation_dtype(dtype) == torch.float32
    assert accumulation_dtype(torch.float64) == torch.float64
    n = 5000
    v = torch.full((1, n), 8.0, dtype=dtype)  # 8^2 * 5000 = 320,000 overflows float16
    y = radnet.Squash()(v)
    assert y.dtype == dtype
    exact = 1 / math.sqrt(n)
    assert abs(float(y[0, 0]) - exact) < 2 * torch.finfo(dtype).eps * exact
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    gradient = torch.autograd.grad(radnet.ShiftedReLU()(x).float().square().sum(), x)[0]
    x64 = x.detach().double().requires_grad_()
    exact = torch.autograd.grad(radnet.ShiftedReLU()(x64).square().sum(), x64)[0]
    assert gradient.dtype == dtype
    torch.testing.assert_close(
        gradient.double(), exact, rtol=0, atol=4 * torch.finfo(dtype).eps * float(exact.abs().max())
    )


def test_forward_and_backward_follow_the_two_formulas(generator):
    h, slope, t = profiles.squash, profiles.squash_slope, torch.tensor(0.3, dtype=torch.float64)
    v = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    gy = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    y, r, ordinary = forward(v, t, h, slope, 1)
    assert ordinary
    grad_v, along = backward(v, r, t, h, slope, 1, True, gy)
    r_np = np.linalg.norm(v.numpy(), axis=1)
    x = r_np - 0.3
    g, dg, d = x**2 / (x**2 + 1), 2 * x / (x**2 + 1) ** 2, v.numpy() / r_np[:, None]
    a = (gy.numpy() * d).sum(1)
    s = g / r_np
    np.testing.assert_allclose(y, s[:, None] * v.numpy(), rtol=1e-13)
    np.testing.assert_allclose(grad_v, s[:, None] * gy.numpy() + ((dg - s) * a)[:, None] * d, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(along[:, 0], dg * a, rtol=1e-12, atol=1e-14)
    again, along_again = backward(v, r, t, h, slope, 1, False, gy)
    torch.testing.assert_close(again, grad_v, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(along_again, along, rtol=1e-12, atol=1e-13)


def test_the_gradient_of_a_shift_is_summed_over_all_rows(generator):
    v = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    for shape in ((), (1,)):
        t = torch.full(shape, 0.2, dtype=torch.float64, requires_grad=True)
        (fast,) = torch.autograd.grad(rescale(v, torch.sin, shift=t).sum(), t)
        (slow,) = torch.autograd.grad(composed(v, torch.sin, torch.cos, t, 2)[0].sum(), t)
        assert fast.shape == shape
        torch.testing.assert_close(fast, slow)


def test_a_profile_with_parameters_of_its_own_is_trained(generator):
    h = torch.nn.Sequential(torch.nn.Linear(1, 4, dtype=torch.float64), torch.nn.Tanh(), torch.nn.Linear(4, 1).double())
    rho = radnet.Radial(lambda r: h(r.unsqueeze(-1)).squeeze(-1))
    v = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    rho(v).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in h.parameters())
    a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a, v: rescale(v, lambda r: torch.tanh(a * r)), (a, v.requires_grad_()))


def test_slope_of_finds_the_derivative_of_any_profile():
    r = torch.linspace(0.1, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(slope_of(torch.sin)(r), torch.cos(r))
    torch.testing.assert_close(slope_of(lambda r: torch.full_like(r, 2.0))(r), torch.zeros_like(r))
    with torch.no_grad():
        torch.testing.assert_close(slope_of(torch.exp)(r), torch.exp(r))


@pytest.mark.parametrize("kind", BUILT_IN)
def test_the_slopes_of_the_profiles_are_their_derivatives(kind):
    rho = activation(kind)
    r = torch.cat([torch.linspace(-3, 3, 40, dtype=torch.float64), torch.tensor([1e5, 1e12], dtype=torch.float64)])
    torch.testing.assert_close(rho.slope(r), slope_of(rho.profile)(r), rtol=1e-12, atol=1e-15)


def test_profiles_take_the_values_the_paper_prints():
    r = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    assert profiles.step_relu(r).tolist() == [0, 0, 1, 2]
    assert profiles.step_relu_slope(r).tolist() == [0, 0, 1, 1]
    assert profiles.squash(r).tolist() == [0, 0.2, 0.5, 0.8]
    torch.testing.assert_close(profiles.squash_slope(r), torch.tensor([0, 0.64, 0.5, 0.16], dtype=torch.float64))
    assert profiles.shifted_relu(r, 0.5).tolist() == [0, 0, 0.5, 1.5]
    assert profiles.shifted_relu_slope(r, 0.5).tolist() == [0, 1, 1, 1]
    assert profiles.sigmoid(r)[0] == 0.5
    assert profiles.sigmoid_slope(r)[0] == 0.25
    assert profiles.identity_slope(r).tolist() == [1, 1, 1, 1]
    assert profiles.squash(torch.tensor([1e38])).item() == 1
    assert profiles.squash_slope(torch.tensor([1e38])).item() < 1e-26


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_empty_batches_and_empty_vectors_pass_through(shape):
    v = torch.empty(shape, requires_grad=True)
    y = radnet.RadialSigmoid()(v)
    assert y.shape == shape
    y.sum().backward()


def test_blocks_are_rescaled_by_their_own_norms(generator):
    v = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    by_hand = torch.cat([rescale(part, torch.tanh) for part in v.split([3, 5], 1)], 1)
    torch.testing.assert_close(rescale(v, torch.tanh, blocks=(3, 5)), by_hand)
    halves = torch.cat([rescale(part, torch.tanh) for part in v.split(4, 1)], 1)
    torch.testing.assert_close(rescale(v, torch.tanh, blocks=2), halves)
    torch.testing.assert_close(rescale(v, torch.tanh, blocks=(4, 4)), halves)
    torch.testing.assert_close(rescale(v.T, torch.tanh, blocks=2, dim=0), halves.T)
    assert block_sizes(4, 8) == [2, 2, 2, 2]


def test_bad_input_to_the_kernel_is_refused_with_a_reason():
    cases = [
        (lambda: rescale([1.0], torch.tanh), TypeError, "needs a tensor, got list"),
        (lambda: rescale(torch.arange(3), torch.tanh), TypeError, r"got torch.int64; convert it"),
        (lambda: rescale(torch.ones(2, dtype=torch.complex64), torch.tanh), TypeError, "got torch.complex64"),
        (
            lambda: rescale(torch.ones(2), torch.tanh, dim=1),
            ValueError,
            r"dim=1: the input of shape \(2,\) has no such",
        ),
        (lambda: rescale(torch.tensor(1.0), torch.tanh), ValueError, "has no such axis"),
        (lambda: rescale(torch.ones(7), torch.tanh, blocks=2), ValueError, "7 entries does not split into 2 equal"),
        (lambda: rescale(torch.ones(7), torch.tanh, blocks=(3, 3)), ValueError, "add up to 6, but the axis has 7"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert isinstance(caught.value, radnet.RadNetError)


@pytest.mark.parametrize("kind", [*BUILT_IN, "tanh"])
def test_second_derivatives_are_finite_for_all_normal_norms(kind, generator, count):
    rho = activation(kind, dtype=torch.float32)
    for exponent in np.linspace(-37, 38, count(76, 301)):
        for n in (1, 2, 50):
            v = torch.randn(1, n, generator=generator).double()
            v = (v / v.norm() * 10.0**exponent).float().requires_grad_()
            w = torch.randn(1, n, generator=generator)
            (first,) = torch.autograd.grad((kernel(rho)(v) * w).sum(), v, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), v, allow_unused=True, materialize_grads=True)
            assert first.isfinite().all()
            assert second.isfinite().all(), (exponent, n)


@pytest.mark.parametrize("r", [1e-10, 1e-6, 0.3, 3.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_single_number_has_the_derivative_of_the_profile(r, sign):
    """n = 1: the rescaling is the odd continuation of h, and nothing may cancel."""
    rho = radnet.RadialSigmoid(shift="trainable")
    s = 1 / (1 + math.exp(-r))
    for form in (rho, lambda v: composed(v, rho.profile, rho.slope, rho.shift, 1)[0]):
        v = torch.tensor([[sign * r]], requires_grad=True)
        y = form(v)
        gradient, gradient_t = torch.autograd.grad(y.sum(), (v, rho.shift))
        assert float(y.detach()) == pytest.approx(sign * s, rel=1e-6)
        assert float(gradient) == pytest.approx(s * (1 - s), rel=1e-6)
        assert float(gradient_t) == pytest.approx(-sign * s * (1 - s), rel=1e-6)
    shifted = radnet.Squash(shift=0.2, dtype=torch.float64)
    for dtype in (torch.float64, torch.float16):
        v = torch.tensor([[sign * (r + 0.5)]], dtype=dtype, requires_grad=True)
        x = r + 0.3
        (gradient,) = torch.autograd.grad(3 * shifted.to(dtype)(v).sum(), v)
        assert gradient.dtype == dtype
        assert float(gradient) == pytest.approx(
            3 * 2 * x / (x * x + 1) ** 2, rel=1e-9 if dtype == torch.float64 else 1e-2
        )
    zero = torch.zeros(2, 1, requires_grad=True)
    (at_zero,) = torch.autograd.grad(radnet.Radial(torch.tanh)(zero).sum(), zero)
    assert at_zero.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("r", [1e6, 1e12, 1e30])
def test_the_slope_of_squash_vanishes_for_long_vectors(r):
    exact = 2 / r**3
    assert float(profiles.squash_slope(torch.tensor(r, dtype=torch.float64))) == pytest.approx(exact, rel=1e-10)
    assert float(slope_of(profiles.squash)(torch.tensor(r, dtype=torch.float64))) == pytest.approx(exact, rel=1e-10)
    assert float(profiles.squash_slope(torch.tensor(r))) <= 1.01 * exact


def test_the_functional_twin_checks_what_the_modules_check():
    v = torch.randn(2, 3)
    cases = [
        ({"blocks": 0}, ValueError, "every block needs"),
        ({"blocks": (5, -2)}, ValueError, "every block needs"),
        ({"blocks": 2.0}, TypeError, "blocks=2.0: expected an int"),
        ({"blocks": True}, TypeError, "blocks=True"),
        ({"dim": "a"}, TypeError, "dim='a': expected an int"),
        ({"shift": "trainable"}, TypeError, "shift='trainable': expected a number"),
        ({"shift": float("nan")}, ValueError, "shift=nan: expected a finite number"),
        ({"shift": torch.tensor([1.0, 2.0])}, ValueError, r"shift has shape \(2,\); expected one number"),
    ]
    for keywords, kind, message in cases:
        with pytest.raises(kind, match=message):
            rescale(v, torch.tanh, **keywords)
    with pytest.raises(TypeError, match="the profile h must be callable, got int"):
        rescale(v, 3)
    assert rescale(v, torch.tanh, shift=torch.zeros(1, 1, 1)).shape == (2, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 5])
def test_the_composed_form_accumulates_half_precisions_in_float32(dtype, n):
    """Squares of 300 overflow float16; the value and the norm must still be those of float32, rounded once."""
    v = torch.full((2, n), 300.0, dtype=dtype)
    y, r = composed(v, torch.tanh, lambda r: 1 - torch.tanh(r) ** 2, None, 1)
    assert (y.dtype, r.dtype) == (dtype, torch.float32)
    assert torch.allclose(r, torch.full((2, 1), 300.0 * math.sqrt(n)), rtol=1e-6)
    assert torch.equal(y, torch.full((2, n), 1 / math.sqrt(n)).to(dtype))


@pytest.mark.parametrize(("blocks", "sizes"), [(2, (3, 3)), ((2, 4), (2, 4))])
@pytest.mark.parametrize("shift", [0.25, "trainable"])
def test_every_block_is_shifted_and_has_the_slope_that_was_given(blocks, sizes, shift, generator):
    """One shift for all blocks, and its gradient is the sum of theirs."""
    rho = radnet.Squash(shift=shift, blocks=blocks, dtype=torch.float64)
    with torch.no_grad():
        rho.shift.fill_(0.25)
    v = torch.randn(5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    one = radnet.Squash(shift=shift, dtype=torch.float64)
    with torch.no_grad():
        one.shift.fill_(0.25)
    apart = torch.cat([one(part) for part in v.split(sizes, 1)], 1)
    torch.testing.assert_close(rho(v), apart, rtol=8 * torch.finfo(v.dtype).eps, atol=0)
    assert not torch.allclose(rho(v), radnet.Squash(blocks=blocks, dtype=torch.float64)(v))
    leaves = (v, rho.shift) if shift == "trainable" else (v,)
    others = (v, one.shift) if shift == "trainable" else (v,)
    for a, b in zip(
        torch.autograd.grad(rho(v).square().sum(), leaves),
        torch.autograd.grad(apart.square().sum(), others),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("blocks", [None, 2, (2, 4)])
def test_the_functional_twin_uses_the_slope_it_is_given(blocks, generator):
    """A wrong slope has to show in the gradient; without one autograd differentiates h."""
    v = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    given = []

    def slope(r):
        given.append(r)
        return 1 - torch.tanh(r) ** 2

    (gradient,) = torch.autograd.grad(radnet.rescaling.rescale(v, torch.tanh, slope=slope, blocks=blocks).sum(), v)
    (plain,) = torch.autograd.grad(radnet.rescaling.rescale(v, torch.tanh, blocks=blocks).sum(), v)
    assert given
    assert torch.allclose(gradient, plain, atol=1e-12)
