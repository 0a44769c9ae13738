"""Rescaling over the whole range of every dtype, beside 80-bit arithmetic straight from the definition."""

import itertools

import numpy as np
import pytest
import torch

import radnet

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LONG = np.longdouble  # 15 bits of exponent: no float64 number or its square leaves it


def sigmoid(x):
    return 1 / (1 + np.exp(np.minimum(-x, 11000)))


#: class of activations, profile, derivative
PROFILES = {
    "identity": (radnet.Identity, lambda r: r, np.ones_like),
    "step_relu": (radnet.StepReLU, lambda r: np.where(r >= 1, r, 0), lambda r: np.where(r >= 1, LONG(1), 0)),
    "squash": (radnet.Squash, lambda r: r**2 / (r**2 + 1), lambda r: 2 * r / (r**2 + 1) / (r**2 + 1)),
    "shifted_relu": (
        lambda **o: radnet.ShiftedReLU(0.25, **o),
        lambda r: np.maximum(r - LONG(0.25), 0),
        lambda r: np.where(r >= 0.25, LONG(1), 0),
    ),
    "sigmoid": (radnet.RadialSigmoid, sigmoid, lambda r: sigmoid(r) * sigmoid(-r)),
    "tanh": (lambda **o: radnet.Radial(torch.tanh, **o), np.tanh, lambda r: 1 - np.tanh(r) ** 2),
}
SHIFTS = (None, 0.25, -0.5)
SIZES = ((1, None), (2, None), (5, None), (6, 3), (7, (1, 4, 2)))


def vectors(dtype, rows, n, rng):
    """Rows from the smallest subnormal number to the largest one; entries of a row differ in size, some are 0."""
    info = torch.finfo(dtype)
    low, high = np.log2(float(info.smallest_normal) * info.eps), np.log2(float(info.max))
    exponents = rng.uniform(low, high, (rows, 1)) - rng.exponential(rng.choice([0.1, 8.0], (rows, 1)), (rows, n))
    v = np.exp2(np.minimum(exponents, high)) * rng.choice([-1, 1], (rows, n)) * (rng.random((rows, n)) > 0.1)
    v[: rows // 50] = float(info.max) * rng.choice([-1, 1], (rows // 50, n))
    return torch.from_numpy(np.clip(v, -float(info.max), float(info.max))).to(dtype).clamp(info.min, info.max)


def reference(v, gy, h, slope, shift, dtype):
    """Value and gradient of one block in 80 bits, with the rule of docs/decisions/0003 at the origin."""
    r = np.sqrt((v**2).sum(1, keepdims=True))
    t = LONG(0 if shift is None else shift)
    zero = h(-t * np.ones((1, 1), LONG))
    held = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    floor = 0 if zero == 0 else LONG(np.sqrt(torch.finfo(held).tiny))
    at_origin, safe = r <= floor, np.where(r <= floor, LONG(1), r)
    g, dg = h(safe - t), slope(safe - t)
    d, s = v / safe, g / safe
    at_zero = slope(-t * np.ones((1, 1), LONG)) if zero == 0 else LONG(0)
    y = np.where(at_origin, at_zero * v, s * v)
    grad = s * gy + (dg - s) * (d * gy).sum(1, keepdims=True) * d
    return y, np.where(at_origin, at_zero * gy, dg * gy if v.shape[1] == 1 else grad), r


def fast(rho, v, gy):
    """Value and gradient as in training."""
    v = v.clone().requires_grad_()
    y = rho(v)
    y.backward(gy)
    return y.detach(), v.grad


def composed(rho, v, gy):
    """Value and gradient as under transforms, in compiled and in exported programs."""
    y, pull = torch.func.vjp(rho, v)
    return y.detach(), pull(gy)[0].detach()


def _close(found, true, norm, shift, dtype):
    """Whether values are right to rounding.

    Anything is at a jump (norm 1, or so short that it counts as 0) and where the norm itself is beyond the dtype.
    """
    info, t = torch.finfo(dtype), abs(shift or 0) + 0.25
    held = torch.finfo(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
    size = np.abs(true).max(1, keepdims=True) + t * np.sign(np.abs(true).max(1, keepdims=True))
    at_jump = (np.abs(norm - (shift or 0) - 1) < 64 * info.eps) | (np.abs(norm / np.sqrt(held.tiny) - 1) < 0.01)
    at_jump |= norm > float(held.max) * (1 - 64 * info.eps)
    gap = np.abs(found.to(torch.float64).numpy().astype(LONG) - true)
    return at_jump | (gap <= 64 * info.eps * size + 64 * float(info.smallest_normal) * info.eps)


@pytest.mark.parametrize("form", [fast, composed])
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_are_right_and_nothing_is_infinite_that_the_dtype_could_hold(name, dtype, form, count, evidence):
    make, h, slope = PROFILES[name]
    rng = np.random.default_rng(0)
    rows, seen, largest = count(20, 280), 0, float(torch.finfo(dtype).max)
    bad = []
    for shift, (n, blocks) in itertools.product(SHIFTS, SIZES):
        v, gy = vectors(dtype, rows, n, rng), torch.from_numpy(rng.standard_normal((rows, n))).to(dtype)
        y, grad = form(make(shift=shift, blocks=blocks), v, gy)
        wide, wide_gy = (x.to(torch.float64).numpy().astype(LONG) for x in (v, gy))
        sizes = blocks if isinstance(blocks, tuple) else [n // (blocks or 1)] * (blocks or 1)
        ends = list(itertools.accumulate(sizes))
        for start, end in zip([0, *ends], ends, strict=False):
            true_y, true_grad, norm = reference(wide[:, start:end], wide_gy[:, start:end], h, slope, shift, dtype)
            near = 64 * torch.finfo(dtype).eps  # where the true one rounds to infinity
            for what, found, true in (("value", y, true_y), ("gradient", grad, true_grad)):
                held = np.abs(true) < largest * (1 - near)
                wrong = held & ~found[:, start:end].double().isfinite().numpy()
                if what == "value":
                    wrong |= held & ~_close(found[:, start:end], true, norm, shift, dtype)
                bad += [(what, shift, blocks, float(norm[i, 0]), float(true[i, j])) for i, j in np.argwhere(wrong)]
                seen += wrong.size
    evidence(f"{name} in {dtype} over its whole range, {form.__name__}", numbers=seen, not_finite=len(bad))
    assert bad == []


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_rule_at_the_origin_does_not_hang_on_the_default_dtype(dtype, default):
    held = torch.finfo(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for factor, value in ((0.5, 0.0), (2.0, 0.5)):
            v = torch.tensor([[factor * held.tiny**0.5, 0.0]], dtype=dtype)
            if float(v[0, 0]):  # float16 has no number as short as that
                assert radnet.RadialSigmoid()(v)[0, 0] == value
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("form", [fast, composed])
@pytest.mark.parametrize("name", sorted(set(PROFILES) - {"identity"}))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors_that_are_not_finite_are_lost_and_their_neighbours_are_not(name, dtype, form):
    """NaN spreads over its vector; an infinite vector has no direction: NaN where it is infinite, 0 elsewhere."""
    inf, nan = torch.inf, torch.nan
    v = torch.tensor([[inf, 1, 2], [nan, 1, 2], [nan, inf, 0], [inf, -inf, 2], [3, 4, 0]], dtype=dtype)
    y, grad = form(PROFILES[name][0](), v, torch.ones_like(v))
    infinite = v.isinf() & ~v.isnan().any(1, keepdim=True)
    assert y[:4].isnan().equal((v.isnan().any(1, keepdim=True) | infinite)[:4])
    assert bool((y[:4].nan_to_num(nan=0.0) == 0).all())
    assert not bool(grad[:4].isfinite().all(1).any())
    alone, alone_grad = form(PROFILES[name][0](), v[4:], torch.ones_like(v[4:]))
    rounding = {"rtol": 16 * torch.finfo(dtype).eps, "atol": 16 * torch.finfo(dtype).eps}  # other forms of one formula
    torch.testing.assert_close(y[4:], alone, **rounding)
    torch.testing.assert_close(grad[4:], alone_grad, **rounding)
    blocks = PROFILES[name][0](blocks=2)
    beside, _ = form(blocks, torch.tensor([[nan, 1, 3, 4]], dtype=dtype), torch.ones(1, 4, dtype=dtype))
    torch.testing.assert_close(beside[:, 2:], blocks(torch.tensor([[0, 0, 3, 4]], dtype=dtype))[:, 2:], **rounding)
