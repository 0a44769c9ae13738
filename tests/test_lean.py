"""The lean form: the full one to 4 eps where norms are ordinary, 0 at 0, few operations, and never a NaN."""

import math

import pytest
import torch
from torch import nn

import radnet
from radnet import lean
from radnet.activations import RadialGaussian, RadialSin, RadialSwish
from radnet.compression.replacements import RMSRescaling
from radnet.native import kernels

ACTIVATIONS = {
    "step": radnet.StepReLU,
    "squash": radnet.Squash,
    "shifted": lambda **k: radnet.ShiftedReLU(0.5, **k),
    "sigmoid": radnet.RadialSigmoid,
    "tanh": lambda **k: radnet.Radial(torch.tanh, **k),
    "sin": RadialSin,
    "gaussian": RadialGaussian,
    "swish": RadialSwish,
}
SHIFTS = {"none": None, "fixed": 0.3, "negative": -0.7}


def leanly(rho, v, dim=-1):
    return lean.rescaled(v, rho.leanly, rho.shift, dim % v.ndim)


def vectors(dtype, low, high, generator, n=7):
    """Vectors whose norms run over powers of two."""
    v = torch.randn(400, n, generator=generator, dtype=torch.float64)
    exponents = torch.linspace(low, high, 400, dtype=torch.float64)
    return (v / v.norm(dim=1, keepdim=True) * 2.0 ** exponents.unsqueeze(1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", [*ACTIVATIONS, "rms"])
def test_it_is_the_full_form_to_4_eps_where_norms_are_ordinary(name, shift, dtype, generator, monkeypatch):
    monkeypatch.setattr(kernels, "_FORWARD", {})  # both in operations of PyTorch: next to zeros of h they round alike
    if name == "rms" and shift != "none":
        pytest.skip("has no shift")
    rho = RMSRescaling(9, 1e-6) if name == "rms" else ACTIVATIONS[name](shift=SHIFTS[shift])
    far = math.log2(lean.held_range(dtype)[1]) - 1
    v = torch.cat([vectors(dtype, -far, far, generator), vectors(dtype, -6, 6, generator)])
    y, expected = leanly(rho, v), rho(v)
    r = v.double().norm(dim=1, keepdim=True)
    t = SHIFTS[shift] or 0.0
    at_jump = torch.zeros_like(r, dtype=torch.bool)
    for jump in rho.jumps:
        at_jump |= (r - t - jump).abs() <= 8 * torch.finfo(dtype).eps * (r + 1)
    # next to where h vanishes, its argument is a difference, and rounding of the norm is all there is
    zero = {"shifted": 0.5 + t, "squash": t, "tanh": t}.get(name)
    size = expected.double().abs().amax(dim=1, keepdim=True)
    near = size + (r * 2 if zero is not None else 0) * ((r - (zero or 0)).abs() < 0.5 * (abs(zero or 0) + 1e-300))
    allowed = 4 * torch.finfo(dtype).eps * near + 4 * torch.finfo(dtype).tiny
    assert bool(((y - expected).abs() <= allowed)[~at_jump.squeeze(1)].all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", [*ACTIVATIONS, "rms"])
def test_it_is_0_at_0_and_finite_for_all_finite_vectors(name, shift, dtype):
    rho = RMSRescaling(9, 0.0) if name == "rms" else ACTIVATIONS[name](shift=SHIFTS[shift])
    info = torch.finfo(dtype)
    sizes = [0.0, info.smallest_normal, info.eps, 1.0, 1 / info.eps, info.max / 4, info.max]
    v = torch.tensor([[s, -s, 0.0] for s in sizes], dtype=dtype)
    y = leanly(rho, v)
    assert y.dtype == dtype
    assert bool((y[0] == 0).all())
    assert bool(y[:-2].isfinite().all())
    assert not bool(y.isnan().any())


def test_beyond_the_range_it_is_what_the_page_says():
    low, high = lean.held_range(torch.float32)
    v = torch.tensor([[low / 1024, 0.0], [high * 1024, 0.0]])
    squash, sigmoid = radnet.Squash(), radnet.RadialSigmoid()
    assert torch.equal(leanly(squash, v)[0], v[0] * low)  # h(r)/r = r there
    assert torch.allclose(leanly(sigmoid, v)[0], v[0] * 0.5 / low)  # shorter than the full form, whose length is 1/2
    assert torch.allclose(leanly(squash, v)[1], v[1] / high)
    assert torch.equal(leanly(radnet.StepReLU(), v), torch.stack([torch.zeros(2), v[1]]))


@pytest.mark.parametrize("strict", [False, True])
def test_programs_hold_the_lean_form_and_eager_code_the_full_one(strict, generator):
    rho, v = radnet.Squash(shift=0.3), torch.randn(5, 4, generator=generator)
    program = torch.export.export(rho, (v,), strict=strict)
    operations = [n for n in program.graph.nodes if n.op == "call_function"]
    assert len(operations) <= 9, operations
    assert torch.allclose(program.module()(v), rho(v), rtol=1e-6)
    tiny = torch.full((1, 4), 2.0**-60)
    assert torch.equal(rho(tiny), torch.func.vmap(rho)(tiny))  # nothing is being exported
    traced = torch.jit.trace(rho, (v,))
    kinds = {node.kind() for node in traced.inlined_graph.nodes()}
    assert {"aten::linalg_vector_norm", "aten::clamp"} <= kinds
    assert "prim::PythonOp" not in kinds


def test_a_profile_of_its_own_is_the_one_that_is_exported(generator):
    class Twice(radnet.Squash):
        def profile(self, r):
            return 2 * r

    v = torch.randn(3, 4, generator=generator)
    own = radnet.Squash()
    own.profile = lambda r: 3 * r
    for rho, factor in ((Twice(), 2), (own, 3)):
        assert torch.allclose(torch.export.export(rho, (v,)).module()(v), factor * v)


@pytest.mark.parametrize("kind", [radnet.Squash, radnet.StepReLU, radnet.RadialSigmoid])
def test_blocks_axes_and_numbers_alone(kind, generator):
    v = 3 * torch.randn(2, 6, 5, 5, generator=generator)
    for rho in (kind(dim=1), kind(dim=1, blocks=3), kind(dim=1, blocks=(2, 4)), kind(dim=-1, blocks=5)):
        assert torch.allclose(torch.export.export(rho, (v,)).module()(v), rho(v), rtol=1e-5, atol=1e-6)


class Norms(nn.Module):
    """Modules that `compress` puts in place of norm layers are lean too."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 48), nn.LayerNorm(48), nn.Linear(48, 48), nn.RMSNorm(48), nn.Linear(48, 2)
        )

    def forward(self, x):
        return self.layers(x)


def test_compressed_norm_layers_are_exported_without_hypot(generator):
    x = torch.randn(8, 3, generator=generator)
    small = radnet.compress(Norms().eval(), x).network
    program = torch.export.export(small, (x,))
    assert not any("hypot" in str(node.target) for node in program.graph.nodes)
    assert torch.allclose(program.module()(x), small(x), rtol=1e-5, atol=1e-6)
