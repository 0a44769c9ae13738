"""The compiled kernels give what PyTorch gives, apply where nobody would miss an operation, and read what is theirs.

Without a compiled library these tests say so: most have nothing to show then, and the others run as they stand.
"""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import radnet
from radnet import fused
from radnet.activations import NAMES
from radnet.native import kernels, library
from radnet.rescaling import composed

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
import hatch_build  # noqa: E402

compiled = pytest.mark.skipif(library.LIBRARY is None, reason="no compiled kernels")
SMOOTH = ["sin", "gaussian", "tanh", "swish"]
compiler = pytest.mark.skipif(hatch_build.compiler() is None, reason="no C++ compiler")


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def reference(rho, v, dim):
    """The careful form, in float64."""
    shift = None if rho.shift is None else rho.shift.double()
    return composed(v.double(), rho.profile, rho.slope, shift, dim)[0]


@pytest.fixture
def calls(monkeypatch):
    """How often a kernel was called; every table of functions counts."""
    seen = []

    def counting(function):
        def call(*args):
            seen.append(function)
            return function(*args)

        return call

    for module, name in ((kernels, "_FORWARD"), (kernels, "_BACKWARD"), (fused, "_FORWARD"), (fused, "_BACKWARD")):
        monkeypatch.setattr(module, name, {d: counting(f) for d, f in getattr(module, name).items()})
    return seen


# --- rescaling


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [name for name, kind in NAMES.items() if kind._known is not None])
@pytest.mark.parametrize("shift", [None, 0.25, "trainable"])
def test_values_and_gradients_are_those_of_the_careful_form(kind, shift, dtype, calls):
    """Rows, columns and blocks, of sizes around those in which the kernels work; one row is 0."""
    eps = torch.finfo(dtype).eps
    for shape, dim in [((3, n), -1) for n in (1, 2, 15, 16, 17, 1023, 1025, 5000)] + [
        ((5, 3), 0), ((2, 3, 4), 1), ((7, 513), 0), ((1, 600), 0), ((2, 3, 2, 5), 1),
    ]:  # fmt: skip
        rho = NAMES[kind](shift=shift, dim=dim, dtype=dtype)
        v = (normal(*shape) * 1.7).to(dtype)
        v.select(0 if dim else 1, 0).zero_() if v.ndim == 2 and v.shape[dim] < 4 else None
        v.requires_grad_()
        gy = normal(*shape, seed=1).to(dtype)
        y = rho(v)
        wanted = [v, rho.shift] if shift == "trainable" else [v]
        if y is v:  # the identity
            continue
        found = torch.autograd.grad(y, wanted, gy)
        w = v.detach().double().requires_grad_()
        t = None if rho.shift is None else rho.shift.detach().double().requires_grad_(shift == "trainable")
        twin = composed(w, rho.profile, rho.slope, t, dim % v.ndim)[0]
        expected = torch.autograd.grad(twin, [w, t] if shift == "trainable" else [w], gy.double(), allow_unused=True)
        size = max(1.0, float(twin.detach().abs().max()))
        assert float((y.double() - twin).detach().abs().max()) <= 16 * eps * size, shape
        for a, b in zip(found, expected, strict=True):
            assert float((a.double() - b).abs().max()) <= 64 * eps * max(1.0, float(b.abs().max())) * shape[-1] ** 0.5
    if kind != "identity" or shift is not None:
        thin = 2 if kind in SMOOTH else 0  # three or four columns side by side
        assert len(calls) == 2 * (11 - thin)  # vectors of one entry are torch's


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [name for name in NAMES if name != "identity"])
@pytest.mark.parametrize(("rows", "blocks", "size"), [(1, 5, 3), (7, 20, 3), (3, 17, 2), (40, 3, 33), (2, 1, 6)])
def test_every_block_has_a_shift_of_its_own(rows, blocks, size, kind, dtype, calls):
    """Values without a gradient and with one, and gradients of inputs and shifts; block 0 of row 0 is 0."""
    rho = NAMES[kind](blocks=blocks, shift="per_block", dtype=dtype)
    with torch.no_grad():
        rho.shift.copy_(0.5 * normal(blocks, seed=2))
        rho.shift[0] = 0
    v = (1.7 * normal(rows, blocks * size)).to(dtype)
    v[0, :size] = 0
    with torch.no_grad():
        alone = rho(v)
    assert len(calls) == 1
    v.requires_grad_()
    y, gy = rho(v), normal(rows, blocks * size, seed=1).to(dtype)
    found = torch.autograd.grad(y, [v, rho.shift], gy)
    assert len(calls) == 3
    assert torch.equal(y, alone)
    w, t = v.detach().double().requires_grad_(), rho.shift.detach().double().requires_grad_()
    split = composed(w.unflatten(1, (blocks, size)), rho.profile, rho.slope, t.unsqueeze(-1), 2)[0]
    expected = split.flatten(1)
    eps = torch.finfo(dtype).eps
    assert float((y.double() - expected).detach().abs().max()) <= 16 * eps * float(v.detach().abs().max())
    for a, b in zip(found, torch.autograd.grad(expected, [w, t], gy.double()), strict=True):
        assert float((a.double() - b).abs().max()) <= 64 * eps * max(1.0, float(b.abs().max())) * rows


@pytest.mark.parametrize("kind", ["sin", "swish", "step_relu"])
def test_where_a_block_is_0_its_gradient_is_a_number_whatever_its_shift(kind):
    rho = NAMES[kind](blocks=2, shift="per_block")
    with torch.no_grad():
        rho.shift[0] = -torch.inf
    v = torch.tensor([[0.0, 0.0, 1.0, 2.0]] * 20, requires_grad=True)
    (gradient,) = torch.autograd.grad(rho(v).sum(), v)
    assert bool(gradient.isfinite().all())
    assert not bool(gradient[:, :2].any())


@compiled
def test_channels_in_blocks_have_shifts_of_their_own_too(calls):
    rho = radnet.activations.RadialSin(blocks=4, shift="per_block", dim=1, dtype=torch.float64)
    with torch.no_grad():
        rho.shift.copy_(normal(4, seed=2))
    v = normal(2, 12, 5, 3).requires_grad_()
    y = rho(v)
    assert len(calls) == 1
    twin = radnet.activations.RadialSin(blocks=4, shift=rho.shift.detach())
    expected = twin(v.movedim(1, -1).contiguous()).movedim(-1, 1)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-14)
    (found,), (wanted,) = (torch.autograd.grad(out.square().sum(), v) for out in (y, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", SMOOTH)
def test_smooth_profiles_are_exact_to_the_last_bits_at_every_norm(kind, dtype, calls):
    """Beside float64: an error of a few eps in h, and what an ulp of the norm does to it."""
    eps, largest = torch.finfo(dtype).eps, 46 if dtype == torch.float32 else 300
    exponents = torch.linspace(-largest, largest, 2000, dtype=torch.float64)
    near = torch.linspace(0, 40, 2001, dtype=torch.float64)[1:]
    turns = torch.pi / 2 * torch.arange(1, 1300, dtype=torch.float64)  # where next to nothing is left of sin or cos
    r = torch.cat([2**exponents, near, turns]).to(dtype)
    v = torch.stack([r, torch.zeros_like(r)], dim=1)
    rho = NAMES[kind](dtype=dtype)
    y, wide = rho(v)[:, 0].double(), r.double()
    assert len(calls) == 1
    h, slope = rho.profile(wide), rho.slope(wide)
    allowed = 8 * eps * (h.abs() + (wide * slope).abs()) + torch.finfo(dtype).tiny
    assert bool(((y - h).abs() <= allowed).all())
    v.requires_grad_()
    (gradient,) = torch.autograd.grad(rho(v)[:, 0].sum(), v)
    more = rho.slope(wide * (1 + eps)) - slope  # what an ulp of r does
    allowed = 8 * (eps * (1 + slope.abs()) + more.abs() + eps * (h / wide).abs())
    assert bool(((gradient[:, 0].double() - slope).abs() <= allowed).all())


@pytest.mark.parametrize("change", ["wrong", "beside rows", "dtype", "gaps", "one axis", "replaced"])
def test_shifts_that_are_not_what_was_made_go_the_long_way(change, calls):
    rho, v = radnet.activations.RadialSin(blocks=4, shift="per_block"), normal(6, 12, dtype=torch.float32)
    with torch.no_grad():
        rho.shift.copy_(normal(4))
        expected = rho(v)
        calls.clear()
        if change in ("wrong", "beside rows"):
            rho.shift = nn.Parameter(torch.ones(5) if change == "wrong" else torch.ones(4, 1))
            with pytest.raises(radnet.RadNetError, match="shift"):
                rho(v[:4])
            assert not calls
            return
        if change == "dtype":
            rho.double()
            expected = rho(v.double()).float()
            calls.clear()
        if change == "gaps":
            rho.shift.data = rho.shift.repeat_interleave(2)[::2]
        if change == "one axis":
            v, expected = v[0], expected[0]
        if change == "replaced":
            t = rho.shift.detach().clone()
            del rho.shift
            rho.shift = t
        torch.testing.assert_close(rho(v), expected)
    assert bool(calls) == (change in ("one axis", "replaced") and library.LIBRARY is not None)


@compiled
@pytest.mark.parametrize("blocks", [4, (3, 5, 4)])
def test_blocks_are_rescaled_each_by_its_own_norm(blocks, calls):
    rho, v = radnet.Squash(blocks=blocks, shift=0.1), normal(6, 12, dtype=torch.float32)
    sizes = [3] * 4 if blocks == 4 else blocks
    expected = torch.cat([reference(rho, part, 1) for part in v.split(sizes, 1)], 1)
    torch.testing.assert_close(rho(v).double(), expected, rtol=1e-6, atol=1e-7)
    assert bool(calls) == (blocks == 4)  # parts of a row do not lie one after the other


@pytest.mark.parametrize(
    "v",
    [
        normal(4, 6, dtype=torch.float32) * 1e30,
        normal(4, 6, dtype=torch.float32) * 1e-30,
        torch.full((2, 3), 1e-25),
        torch.tensor([[0.0, 0.0], [1e-30, 0.0], [3.0, 4.0]]),
        torch.tensor([[torch.inf, 1.0], [3.0, 4.0]]),
        torch.tensor([[torch.nan, 1.0], [3.0, 4.0]]),
        torch.full((3, 2), 5e-324, dtype=torch.float64),
    ],
    ids=["huge", "tiny", "squares underflow", "zero and tiny", "infinite", "not a number", "subnormal"],
)
@pytest.mark.parametrize("kind", ["squash", "step_relu", "sigmoid", *SMOOTH])
def test_extraordinary_norms_go_the_careful_way(kind, v, monkeypatch):
    rho, leaf = NAMES[kind](), v.clone().requires_grad_()
    y = rho(leaf)
    gradient = torch.autograd.grad(y.sum(), leaf)[0]
    with torch.no_grad():
        assert torch.equal(rho(v).nan_to_num(7), y.nan_to_num(7))
    monkeypatch.setattr(kernels, "_FORWARD", {})
    monkeypatch.setattr(kernels, "_BACKWARD", {})
    plain = rho(leaf)
    assert torch.equal(plain.nan_to_num(7), y.nan_to_num(7))
    assert torch.equal(torch.autograd.grad(plain.sum(), leaf)[0].nan_to_num(7), gradient.nan_to_num(7))


def strange():
    base = normal(6, 8, dtype=torch.float32)
    flat = normal(49, dtype=torch.float32)
    return {
        "transposed": base.T,
        "every second": base[:, ::2],
        "expanded": base[:1].expand(5, 8),
        "not aligned": flat[1:].view(6, 8),
        "no rows": base[:0],
        "no entries": base[:, :0],
        "negated": torch._neg_view(base),
        "half": base.half(),
        "bfloat16": base.bfloat16(),
        "channels last": normal(2, 3, 4, 5, dtype=torch.float32).to(memory_format=torch.channels_last),
        "parameter": nn.Parameter(base.clone()),
        "one number": base[0, 0].reshape(1, 1),
    }


@pytest.mark.parametrize("name", strange())
def test_however_a_tensor_lies_the_value_is_right_and_the_input_stays(name):
    v = strange()[name]
    before = v.detach().clone()
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            y = radnet.Squash()(v)
        eps = torch.finfo(v.dtype).eps
        torch.testing.assert_close(
            y.detach().double(), reference(radnet.Squash(), v.detach(), v.ndim - 1), rtol=8 * eps, atol=eps
        )
        assert y.shape == v.shape
        assert y.dtype == v.dtype
    assert torch.equal(v.detach(), before)


def test_a_profile_of_its_own_is_never_taken_for_a_known_one():
    class Steeper(radnet.Squash):
        def slope(self, r):
            return 2 * super().slope(r)

    class Longer(radnet.Squash):
        def profile(self, r):
            return 2 * super().profile(r)

    v = normal(4, 3, dtype=torch.float32).requires_grad_()
    plain = torch.autograd.grad(radnet.Squash()(v).sum(), v)[0]
    torch.testing.assert_close(Longer()(v), 2 * radnet.Squash()(v))
    torch.testing.assert_close(Steeper()(v), radnet.Squash()(v))
    assert not torch.allclose(torch.autograd.grad(Steeper()(v).sum(), v)[0], plain)

    class Beside:
        def profile(self, r):
            return 3 * r

        def slope(self, r):
            return torch.full_like(r, 3.0)

    class Mixed(Beside, radnet.activations.RadialSin):
        pass

    class Along(radnet.Squash):
        def along(self, v, dim):
            return 2 * super().along(v, dim)

    torch.testing.assert_close(Mixed()(v), 3 * v)
    torch.testing.assert_close(Mixed(blocks=3)(v), 3 * v)
    with torch.no_grad():
        torch.testing.assert_close(Along(shift=0.3)(v), 2 * radnet.Squash(shift=0.3)(v))
        torch.testing.assert_close(Along()(v), 2 * radnet.Squash()(v))
    own = radnet.Squash()
    own.profile = lambda r: 3 * r
    torch.testing.assert_close(own(v), 3 * v)
    moved = radnet.ShiftedReLU(0.5)
    moved.b = 0.25
    torch.testing.assert_close(moved(v), radnet.ShiftedReLU(0.25)(v))


# --- chains


def network(widths=(3, 6, 5, 2), *, dtype=torch.float32, shift=None, bias=True, activation="squash", seed=0):
    net = radnet.RadNet(
        widths, activation, shift=shift, bias=bias, dtype=dtype, generator=torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.add_(0.1 * normal(*p.shape, seed=k).to(dtype))
    return net


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rows", [1, 4, 5, 15, 16, 17, 100])
@pytest.mark.parametrize(("shift", "bias"), [(None, True), (0.2, False), ("trainable", True)])
@pytest.mark.parametrize("activation", NAMES)
def test_a_chain_is_its_layers_one_after_the_other(activation, shift, bias, rows, dtype, calls):
    """Against the layers in float64, away from jumps: value, and gradients of inputs and of every parameter."""
    net = network(dtype=dtype, shift=shift, bias=bias, activation=activation)
    x, gy = normal(rows, 3).to(dtype).requires_grad_(), normal(rows, 2, seed=1).to(dtype)
    y = net(x)
    found = torch.autograd.grad(y, [x, *net.parameters()], gy)
    assert len(calls) == 2  # once forward, once backward
    with torch.no_grad():
        assert torch.equal(net(x), y)
    wide, z = net.double(), x.detach().double().requires_grad_()
    _, *layers, expected = wide.partial(z)  # where a norm is near a shift, what comes out is small beside what went in
    eps, size = torch.finfo(dtype).eps, max(float(part.detach().abs().max()) for part in (*layers, expected))
    assert float((y - expected).detach().abs().max()) <= 64 * eps * size
    for a, b in zip(found, torch.autograd.grad(expected, [z, *wide.parameters()], gy.double()), strict=True):
        assert float((a - b).abs().max()) <= 512 * eps * float(b.abs().max())


@compiled
def test_a_chain_can_be_differentiated_again_and_in_batches():
    net, x = network(dtype=torch.float64, shift="trainable"), normal(4, 3).requires_grad_()
    names, values = zip(*net.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *values), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, (x, *values))
    y = net(x)
    gradient = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    assert torch.autograd.grad(gradient.square().sum(), net.weights[0])[0].abs().sum() > 0


@compiled
def test_gradients_go_where_they_are_wanted_alone(calls):
    net, x = network(), normal(7, 3, dtype=torch.float32)
    for p in net.parameters():
        p.requires_grad_(False)
    assert not net(x).requires_grad
    net.weights[1].requires_grad_()
    net(x).sum().backward()
    assert [p.grad is not None for p in net.parameters()] == [p is net.weights[1] for p in net.parameters()]
    assert len(calls) == 3
    with torch.inference_mode():
        assert net(x).is_inference()


@compiled
def test_a_weight_that_was_written_into_after_the_forward_pass_is_told():
    net, x = network(), normal(7, 3, dtype=torch.float32)
    y = net(x)
    with torch.no_grad():
        net.weights[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def hooked(net):
    net.layers[1].register_forward_hook(lambda m, args, out: 2 * out)


def hooked_backward(net):
    net.rescalings[0].register_full_backward_hook(lambda m, gi, go: tuple(2 * g for g in gi))


def replaced(net):
    net.layers[1] = nn.Sequential(net.layers[1], nn.Tanh())


def own_forward(net):
    net.rescalings[0].forward = lambda v: v * 3


def transposed(net):
    W = net.layers[0].weight
    W.data = W.data.T.contiguous().T


def other_type(net):
    torch.nn.utils.parametrize.register_parametrization(net.layers[0], "weight", nn.Identity())


def blocks(net):
    net.rescalings[0] = radnet.Squash(blocks=2)


@pytest.mark.parametrize("change", [hooked, hooked_backward, replaced, own_forward, transposed, other_type, blocks])
def test_a_chain_with_a_part_of_its_own_runs_layer_by_layer(change, calls):
    net, x = network((3, 6, 6, 2)), normal(20, 3, dtype=torch.float32)
    change(net)
    y, expected = net(x), x
    expected.requires_grad_()
    for layer, rho in zip(net.layers, net.rescalings, strict=True):
        expected = rho(layer(expected))
    assert torch.equal(y, expected)
    found, wanted = (torch.autograd.grad(out.sum(), net.layers[0].parameters()) for out in (y, expected))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert fused.links_of(net.layers, net.rescalings, x) is None


def test_profiles_that_are_replaced_in_their_class_are_seen(monkeypatch):
    v, rho = normal(4, 3, dtype=torch.float32), radnet.activations.RadialSin()
    monkeypatch.setattr(radnet.activations.RadialSin, "profile", lambda self, r: 3 * r)
    torch.testing.assert_close(rho(v), 3 * v)


def test_a_network_with_layers_of_its_own_runs_those():
    class Squashing(radnet.RadNet):
        rescalings = property(lambda net: [radnet.Squash() for _ in net._modules["rescalings"]])

    net, x = Squashing((4, 4, 4), "sigmoid"), normal(5, 4, dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(net(x), net.partial(x)[-1])
        torch.testing.assert_close(net(x), radnet.Squash()(net.layers[1](radnet.Squash()(net.layers[0](x)))))


@pytest.mark.parametrize("blocks", [-2, [2, 2], 2.0])
def test_blocks_that_are_none_read_no_memory(blocks, calls):
    rho = radnet.activations.RadialSin(blocks=2)
    rho.blocks = blocks
    with torch.no_grad(), contextlib.suppress(RuntimeError, TypeError, radnet.RadNetError):
        y = rho(torch.ones(2, 4))
        torch.testing.assert_close(y, radnet.activations.RadialSin(blocks=2)(torch.ones(2, 4)))
        assert blocks == [2, 2]


def test_layers_that_do_not_fit_together_are_refused_as_torch_refuses_them():
    net = network()
    net.layers[1] = nn.Linear(9, 5)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        net(normal(4, 3, dtype=torch.float32))


def test_a_weight_without_memory_is_not_read():
    net = network()
    net.layers[1].weight.untyped_storage().resize_(0)
    assert fused.forward(net.layers, net.rescalings, normal(4, 3, dtype=torch.float32)) is None


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 4, 3), (1, 1, 1, 3)])
def test_a_chain_takes_samples_of_any_shape(shape):
    net, x = network(), normal(*shape, dtype=torch.float32)
    assert net(x).shape == (*shape[:-1], 2)
    torch.testing.assert_close(net(x), net.partial(x)[-1])


# --- who looks on


def seen_by_mode(net, x):
    with FlopCounterMode(display=False) as counter:
        net(x)
    return counter.get_total_flops() > 0


def seen_by_trace(net, x):
    traced = torch.jit.trace(net, (x,), check_trace=False)
    return any("linear" in str(node.kind()) for node in traced.inlined_graph.nodes())


def seen_by_export(net, x):
    program = torch.export.export(net, (x,))
    return any("linear" in str(node.target) for node in program.graph.nodes)


def seen_by_vmap(net, x):
    return torch.allclose(torch.func.vmap(net)(x), net.partial(x)[-1], rtol=1e-5)


def seen_by_jvp(net, x):
    return torch.func.jvp(net, (x,), (torch.ones_like(x),))[1].abs().sum() > 0


def seen_by_forward_mode(net, x):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(net(dual)).tangent is not None


def seen_by_autocast(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net(x).dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "look",
    [seen_by_mode, seen_by_trace, seen_by_export, seen_by_vmap, seen_by_jvp, seen_by_forward_mode, seen_by_autocast],
)
def test_where_somebody_looks_on_nothing_is_hidden(look):
    with torch.no_grad():
        assert look(network(), normal(6, 3, dtype=torch.float32))


# --- processes and threads


@compiled
def test_eight_threads_and_a_fork_after_use_give_the_same(tmp_path):
    net, x = network((8, 64, 64, 4)), normal(4096, 8, dtype=torch.float32)
    expected, found = net(x).detach(), [None] * 8

    def run(k):
        with torch.no_grad():
            for _ in range(20):
                found[k] = net(x)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(y, expected) for y in found)
    child = multiprocessing.get_context("fork").Process(target=_in_a_child, args=(net, x, expected))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def _in_a_child(net, x, expected):
    with torch.no_grad():
        same = torch.equal(net(x), expected)
    os._exit(0 if same else 1)


@compiled
def test_more_threads_than_one_give_the_same_bits_forward_and_the_same_gradient():
    net, x = network((8, 64, 64, 4)), normal(5000, 8, dtype=torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = net(x)
            found.append((y.detach(), *torch.autograd.grad(y.square().sum(), net.parameters())))
    finally:
        torch.set_num_threads(before)
    for one in found[1:]:
        assert torch.equal(found[0][0], one[0])
        for a, b in zip(found[0], one, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * float(b.abs().max()))


# --- the library


def test_the_environment_switches_the_kernels_off():
    code = "import radnet; from radnet.native import library, kernels; print(library.LIBRARY, len(kernels._FORWARD))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RADNET_NATIVE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["None", "0"]


@compiler
def test_a_library_of_another_version_is_left_alone_with_a_warning(tmp_path):
    source, made = tmp_path / "other.cpp", tmp_path / "_kernels.so"
    text = (ROOT / "src" / "radnet" / "native" / "kernels.cpp").read_text()
    source.write_text(text.replace("constexpr int ABI = 2;", "constexpr int ABI = 99;"))
    assert hatch_build.compiled(source, made, "-O0", f"-I{hatch_build.SOURCE.parent}")
    with pytest.warns(UserWarning, match=r"_kernels.so is not used \(it is of version 99, needed is 2\)"):
        assert library.load(made) is None


def test_a_file_that_is_no_library_is_left_alone_with_a_warning(tmp_path):
    path = tmp_path / "_kernels.so"
    path.write_text("no library at all")
    with pytest.warns(UserWarning, match="_kernels.so is not used"):
        assert library.load(path) is None


def test_without_a_compiler_nothing_is_built_and_nothing_old_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "nowhere"))
    old = tmp_path / "_kernels.so"
    old.write_text("old")
    assert not hatch_build.compiled(hatch_build.SOURCE, old)
    assert not old.exists()


@compiler
def test_the_sanitizers_find_nothing(tmp_path, count):
    if count(1, 2) == 1:
        pytest.skip("at full counts only: the compiler takes its time")
    program = tmp_path / "check"
    build = [*hatch_build.compiler(), "-O0", "-g", "-std=c++17", "-pthread", "-Wno-psabi", "-fno-math-errno"]
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = ROOT / "tests" / "helpers" / "kernels_check.cpp"
    made = subprocess.run([*build, *flags, str(source), "-o", str(program), "-ldl"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no sanitizers here: {made.stderr[-200:]}")
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    counts = [int(word) for word in ran.stdout.split()]
    assert counts[0] == library.ABI
    assert min(counts[1:]) >= 150


# --- a loss in one pass


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 200])
@pytest.mark.parametrize("output", ["identity", "squash"])
def test_the_mean_square_error_and_its_gradients_come_from_one_pass(output, rows, dtype, calls):
    generator = torch.Generator().manual_seed(0)  # the gradient of a shift is a sum that may happen to cancel
    net = radnet.RadNet((3, 20, 30, 2), "sigmoid", output=output, shift="trainable", dtype=dtype, generator=generator)
    x, y = normal(rows, 3).to(dtype).requires_grad_(), normal(rows, 2, seed=1).to(dtype)
    loss = radnet.training.mse(net, x, y)
    found = torch.autograd.grad(3 * loss, [x, *net.parameters()])
    assert len(calls) == 1
    wide, z = net.double(), x.detach().double().requires_grad_()
    expected = nn.functional.mse_loss(wide.partial(z)[-1], y.double())
    eps = torch.finfo(dtype).eps
    assert float((loss - expected).detach().abs()) <= 64 * eps * float(expected.detach())
    for a, b in zip(found, torch.autograd.grad(3 * expected, [z, *wide.parameters()]), strict=True):
        assert float((a - b).abs().max()) <= 512 * eps * float(b.abs().max())


def test_the_mean_square_error_can_be_differentiated_again(calls):
    net, x, y = network(dtype=torch.float64), normal(5, 3).requires_grad_(), normal(5, 2, seed=1)
    seconds = []
    for loss in (radnet.training.mse(net, x, y), nn.functional.mse_loss(net.partial(x)[-1], y)):
        first = torch.autograd.grad(loss, x, create_graph=True)[0]
        seconds.append(torch.autograd.grad(first.square().sum(), [x, *net.parameters()]))
    for a, b in zip(*seconds, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("targets", [(7,), (7, 1), (1, 2), (7, 2)])
def test_targets_of_other_shapes_are_compared_as_torch_compares_them(targets):
    net, x, y = network(), normal(7, 3, dtype=torch.float32), normal(*targets, dtype=torch.float32)
    with contextlib.nullcontext() if targets == (7, 2) else pytest.warns(UserWarning, match="target size"):
        try:
            expected = nn.functional.mse_loss(net(x), y)
        except RuntimeError:
            with pytest.raises(RuntimeError, match="must match"):
                radnet.training.mse(net, x, y)
            return
        torch.testing.assert_close(radnet.training.mse(net, x, y), expected)


@compiled
def test_fit_takes_the_short_way_and_gets_to_the_same_place(calls, monkeypatch):
    x = torch.linspace(-3, 3, 60).unsqueeze(1)
    y, found = torch.exp(-x * x), []
    for loss in (nn.functional.mse_loss, nn.MSELoss(), lambda a, b: (a - b).square().mean()):
        net = radnet.RadNet((1, 5, 1), "sigmoid", generator=torch.Generator().manual_seed(0))
        before = len(calls)
        result = radnet.training.fit(
            net, (x, y), epochs=30, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=loss
        )
        found.append((len(calls) - before, result.losses[-1]))
    assert [many for many, _ in found] == [30, 30, 60]
    assert found[0][1] == found[1][1] == pytest.approx(found[2][1], rel=1e-4)


# --- what becomes of things between forward and backward, and when inputs depend on each other


def twice(net, x):
    return net(net(x)).square().sum()


def tied(net, x):
    net.layers[1].weight = net.layers[0].weight
    return net(x).square().sum()


def shared_shift(net, x):
    net.rescalings[0] = net.rescalings[1] = radnet.Squash(shift="trainable", dtype=x.dtype)
    return net(x).square().sum()


def shared_apart(net, x):
    """The same, by the activation alone."""
    rho = net.rescalings[0] = radnet.Squash(shift="trainable", dtype=x.dtype)
    return rho(rho(x) + net.weights[0].sum() - net.weights[0].detach().sum()).square().sum()


def loss_of_itself(net, x):
    return radnet.training.mse(net, net(x), x)


@pytest.mark.parametrize("run", [twice, tied, shared_shift, shared_apart, loss_of_itself])
def test_a_graph_of_the_gradient_counts_no_share_twice(run):
    found = []
    for again in (False, True):
        net = network((3, 3, 3, 3), dtype=torch.float64)
        value = run(net, normal(4, 3))
        found.append(torch.autograd.grad(value, list(net.parameters()), create_graph=again, allow_unused=True))
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b.detach())


def test_gradients_of_a_loss_are_handed_out_once():
    net, x, y = network(), normal(40, 3, dtype=torch.float32), normal(40, 2, dtype=torch.float32, seed=1)
    loss, parameters = radnet.training.mse(net, x, y), list(net.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    expected = [g.clone() for g in first]
    for g in first:
        g.zero_()
    for g, e in zip(torch.autograd.grad(loss, parameters), expected, strict=True):
        torch.testing.assert_close(g, e)


def unregistered(net):
    layer = net.layers[0]
    W = layer.weight.detach().clone()
    del layer.weight
    layer.weight = 2 * W


def as_buffer(net):
    b = net.layers[1].bias.detach().clone()
    del net.layers[1].bias
    net.layers[1].register_buffer("bias", b + 1)


def shift_unregistered(net):
    t = net.rescalings[0].shift.detach() + 0.1
    del net.rescalings[0].shift
    net.rescalings[0].shift = t


@pytest.mark.parametrize("change", [unregistered, as_buffer, shift_unregistered])
def test_what_is_no_parameter_any_more_is_read_where_it_is(change):
    net, x = network(shift="trainable"), normal(20, 3, dtype=torch.float32)
    change(net)
    torch.testing.assert_close(net(x), net.partial(x)[-1])


def test_weights_that_lie_otherwise_when_the_gradient_is_taken_are_read_as_they_lie():
    net, x = network((3, 6, 6, 2)), normal(40, 3, dtype=torch.float32)
    expected = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    y = net(x)
    net.weights[1].data = net.weights[1].data.T.contiguous().T
    for a, b in zip(torch.autograd.grad(y.sum(), list(net.parameters())), expected, strict=True):
        torch.testing.assert_close(a, b)
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.mT.contiguous() if t.ndim == 2 else t, lambda t: t.mT if t.ndim == 2 else t
    )
    with hooks:
        y = net(x)
    for a, b in zip(torch.autograd.grad(y.sum(), list(net.parameters())), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_weight_that_shrank_before_the_gradient_is_taken_is_not_read_beyond_its_end():
    net, x = radnet.RadNet((31, 64, 1), "squash"), normal(64, 31, dtype=torch.float32)
    y = net(x)
    net.weights[0].data = torch.zeros(2, 2)
    with pytest.raises(RuntimeError, match="must match the size"):
        y.sum().backward()


@compiled
def test_sums_over_many_samples_do_not_lose_digits():
    net = network((2, 3, 4, 2))
    x, gy = torch.full((400_000, 2), 0.3), torch.full((400_000, 2), 0.1)
    found = torch.autograd.grad(net(x), list(net.parameters()), gy)
    wide = net.double()
    expected = torch.autograd.grad(wide(x[:1].double()), list(wide.parameters()), 4e5 * gy[:1].double())
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).abs().max()) <= 64 * torch.finfo(torch.float32).eps * float(b.abs().max())


@compiled
@pytest.mark.parametrize("rows", [3, 1003, 2115, 4099])
def test_what_a_sample_gives_does_not_depend_on_how_threads_share(rows):
    net, x, before = network((8, 64, 64, 4)), normal(rows, 8, dtype=torch.float32), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                found.append(net(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_gradient_is_taken_at_the_weights_that_gave_the_value():
    net, x = network(), normal(40, 3, dtype=torch.float32)
    expected = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    y = net(x)
    for p in net.parameters():
        p.data = torch.zeros_like(p)
    for a, b in zip(torch.autograd.grad(y.sum(), list(net.parameters())), expected, strict=True):
        torch.testing.assert_close(a, b)


@compiled
def test_value_and_gradient_lie_on_the_same_side_of_a_jump():
    v = normal(4000, 6)
    v = (v / v.norm(dim=1, keepdim=True)).float()
    net = radnet.RadNet.from_parameters([torch.eye(6), torch.ones(1, 6)], None, ["step_relu", "identity"])
    for x in v.split(3):
        x = x.clone().requires_grad_()
        y = net(x)
        (g,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(y[:, 0] != 0, (g != 0).any(1))


def test_gradients_are_tensors_of_their_own():
    net, x = network(), normal(40, 3, dtype=torch.float32)
    found = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    assert len({g.untyped_storage().data_ptr() for g in found}) == len(found)


@compiled
@pytest.mark.parametrize("n", [1, 2, 3, 7, 31, 32, 33])
def test_short_rows_are_rescaled_as_long_ones_are(n, calls):
    v = (normal(50, n) * 2).float().requires_grad_()
    rho, gy = radnet.Squash(shift=0.3), normal(50, n, seed=1).float()
    y = rho(v)
    (g,) = torch.autograd.grad(y, v, gy)
    w = v.detach().double().requires_grad_()
    twin = reference(rho, w, 1)
    torch.testing.assert_close(y.double(), twin, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(g.double(), torch.autograd.grad(twin, w, gy.double())[0], rtol=1e-4, atol=1e-5)
    assert len(calls) == (0 if n == 1 else 2)
