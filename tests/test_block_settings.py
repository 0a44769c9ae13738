"""A shift and a scale for each block, and the smooth profiles: formula, derivatives, range, compression, exports."""

import copy
import math
import pickle
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

import radnet
import reference
from radnet.activations import NAMES, RadialGaussian, RadialSin, RadialSwish, RadialTanh, named_activation
from radnet.models import BlockRadialMLP, CoordinateNet
from radnet.rescaling import rescale

SMOOTH = {"sin": RadialSin, "gaussian": RadialGaussian, "tanh": RadialTanh, "swish": RadialSwish}
SIZES = [(3, (3, 3, 3)), ((2, 3, 4), (2, 3, 4)), (9, (1,) * 9)]
T, S = np.array([0.3, -0.7, 1.1, 0.0, 2.0, -0.1, 0.4, 0.5, -1.5]), np.array([1, -2, 0.5, 3, 1, 0.1, 0, 2, -1.0])


def by_hand(name, v, sizes, t, s):
    """One row, block by block, in NumPy."""
    parts = np.split(v, np.cumsum(sizes)[:-1])
    return np.concatenate([s[k] * reference.rescale(reference.PROFILES[name], p, t[k]) for k, p in enumerate(parts)])


@pytest.mark.parametrize(("blocks", "sizes"), SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_each_block_has_its_shift_and_its_scale(name, blocks, sizes, generator):
    k = len(sizes)
    rho = named_activation(name, blocks=blocks, shift=T[:k], scale=tuple(S[:k]), dtype=torch.float64)
    v = torch.randn(6, 9, generator=generator, dtype=torch.float64)
    v[0] = 0
    expected = np.stack([by_hand(name, row, sizes, T, S) for row in v.numpy()])
    np.testing.assert_allclose(rho(v), expected, rtol=1e-13, atol=1e-13)
    channels = copy.deepcopy(rho)
    channels.dim = 1
    x = v.T.reshape(1, 9, 6)
    torch.testing.assert_close(channels(x), rho(v).T.reshape(1, 9, 6), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(rho.along(v.T, 0), rho(v).T, rtol=1e-13, atol=1e-13)
    twin = rescale(v, rho.profile, blocks=blocks, shift=torch.from_numpy(T[:k]))
    torch.testing.assert_close(twin * torch.from_numpy(np.repeat(S[:k], sizes)), rho(v), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("blocks", "sizes"), SIZES, ids=str)
@pytest.mark.parametrize("name", sorted({*NAMES} - {"step_relu", "shifted_relu"}))
def test_derivatives_of_every_block_are_right_to_second_order(name, blocks, sizes, generator):
    rho = named_activation(name, blocks=blocks, shift="per_block", scale="per_block", dtype=torch.float64)
    with torch.no_grad():
        rho.shift += torch.from_numpy(T[: len(sizes)])
        rho.scale += torch.from_numpy(S[: len(sizes)])
    v = torch.randn(2, 9, generator=generator, dtype=torch.float64, requires_grad=True)

    def at(v, shift, scale):
        return torch.func.functional_call(rho, {"shift": shift, "scale": scale}, (v,))

    assert torch.autograd.gradcheck(at, (v, rho.shift, rho.scale))
    assert torch.autograd.gradgradcheck(at, (v, rho.shift, rho.scale), atol=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_profiles_have_their_own_derivative_and_reach(name):
    rho = SMOOTH[name]()
    r = torch.linspace(-30, 30, 20001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(rho.profile(r).sum(), r)
    torch.testing.assert_close(rho.slope(r.detach()), slope, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rho.profile(r).detach(), [reference.PROFILES[name](x) for x in r.tolist()], rtol=1e-12)
    for t in (0.0, 0.4, -0.4):
        reach = SMOOTH[name](shift=t).reach()
        norms = r.detach()[r >= 0]
        h = rho.profile(norms - t)
        assert float((h.abs() - norms).max()) <= reach.growth + 1e-12
        assert float(h.abs().max()) <= reach.longest
        assert (reach.lipschitz is None) == (t != 0)
        if t == 0:
            assert float(slope.abs().max()) <= reach.lipschitz <= 1.001 * float(slope.abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_profiles_are_finite_over_the_whole_range(name, dtype, generator):
    """Values, gradients and, where norms are normal numbers, second derivatives; blocks with shifts and without."""
    info = torch.finfo(dtype)
    low, high = math.log2(info.tiny), math.log2(info.max)
    size = torch.exp2(torch.linspace(low, high - 2, 600, dtype=torch.float64)).unsqueeze(1)
    v = (torch.randn(600, 6, generator=generator, dtype=torch.float64).clamp(-1, 1) * size).to(dtype)
    v[::50] = 0
    for shift, scale in ((None, None), ((0.0, 0.5), None), ((-2.0, 0.0), (3.0, -1.0))):
        rho = SMOOTH[name](blocks=2, shift=shift, scale=scale)
        x = v.clone().requires_grad_()
        y = rho(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        assert bool(y.isfinite().all())
        wide = dtype in (torch.bfloat16, torch.float32, torch.float64)
        assert not wide or bool(g.isfinite().all())  # float16 ends where a gradient at a jump of 1/|v| does not
        if dtype == torch.float32 and shift is None:
            (h,) = torch.autograd.grad(g.sum(), x)
            normal = v.unflatten(1, (2, 3)).norm(dim=2).amin(dim=1) > 1e-36
            assert bool(h[normal].isfinite().all())


def test_settings_are_kept_copied_saved_and_shown(generator):
    given = nn.Parameter(torch.tensor([1.0, 2.0]))
    rho = RadialSin(blocks=2, shift=given, scale=torch.tensor([0.5, 3.0]))
    assert rho.shift is given
    assert [name for name, _ in rho.named_buffers()] == ["scale"]
    assert repr(rho) == 'RadialSin(shift="per_block", blocks=2, scale=(2 numbers))'
    assert repr(RadialSin(blocks=2, shift="per_block", scale="trainable")).endswith('blocks=2, scale="trainable")')
    v = torch.randn(4, 6, generator=generator)
    twin = RadialSin(blocks=2, shift="per_block", scale=(1.0, 1.0))
    twin.load_state_dict(rho.state_dict())
    for other in (copy.deepcopy(rho), pickle.loads(pickle.dumps(rho)), twin, rho.double().float()):
        assert torch.equal(other(v), rho(v))


BAD = {
    "without blocks": (lambda: RadialSin(shift="per_block"), ValueError, "there are no blocks; give blocks, or"),
    "a tensor without blocks": (lambda: RadialSin(shift=torch.zeros(2)), ValueError, "and there are no blocks; give"),
    "too few": (lambda: RadialSin(blocks=3, shift=(1.0, 2.0)), ValueError, r"shape \(2,\); expected one number"),
    "words": (lambda: RadialSin(blocks=3, scale="each"), ValueError, "scale='each': expected None, a number or"),
    "infinite": (lambda: RadialSin(blocks=2, shift=(1.0, math.inf)), ValueError, r"shift\[1\]=inf: expected a finite"),
    "no numbers": (lambda: RadialSin(blocks=2, scale=torch.ones(2).long()), TypeError, "tensor of torch.int64"),
    "not a number": (lambda: RadialSin(blocks=1, scale=torch.tensor([math.nan])), ValueError, "scale holds numbers"),
    "of another shape later": (lambda: _reshaped()(torch.ones(1, 4)), ValueError, r"shift has shape \(3,\)"),
    "functional": (lambda: rescale(torch.ones(4), abs, shift=torch.ones(3), blocks=2), ValueError, "number, or 2"),
    "in a RadNet": (lambda: radnet.RadNet((2, 3, 1), RadialSin(scale=2.0)), ValueError, "has a scale of its own"),
    "per block in a RadNet": (lambda: radnet.RadNet((2, 3, 1), "sin", shift="per_block"), ValueError, "no blocks"),
}  # fmt: skip


def _reshaped():
    rho = RadialSin(blocks=2, shift="per_block")
    rho.shift = nn.Parameter(torch.zeros(3))
    return rho


@pytest.mark.parametrize("name", BAD)
def test_settings_that_do_not_fit_are_refused(name):
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert isinstance(caught.value, radnet.RadNetError)


# --- compression


def random_blocks(seed):
    """Layers of equal or unequal blocks, with settings of their own, now and then in a residual stream."""
    rng = torch.Generator().manual_seed(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=rng))

    n, profiles = number(1, 4), sorted({*NAMES} - {"step_relu"})
    layers, width = [], n
    for _ in range(number(1, 3)):
        sizes = [number(1, 9) for _ in range(number(1, 5))]
        blocks = tuple(sizes) if number(0, 1) else len(sizes)
        total = sum(sizes) if isinstance(blocks, tuple) else len(sizes) * sizes[0]
        settings = []
        for _ in range(2):
            values = torch.randn(len(sizes), generator=rng, dtype=torch.float64)
            settings.append([None, float(values[0]), values, nn.Parameter(values)][number(0, 3)])
        name = profiles[number(0, len(profiles) - 1)]
        rho = named_activation(name, blocks=blocks, shift=settings[0], scale=settings[1])
        layers += [nn.Linear(width, total, dtype=torch.float64), rho]
        for p in layers[-2].parameters():
            nn.init.normal_(p, std=1 / math.sqrt(width), generator=rng)
        width = total
    head = nn.Linear(width, 2, dtype=torch.float64)
    nn.init.normal_(head.weight, generator=rng)
    return nn.Sequential(*layers, head).double(), torch.randn(24, n, generator=rng, dtype=torch.float64)


def test_random_networks_in_blocks_are_lossless(count, evidence):
    smaller, unequal, seen = 0, 0, 0
    for seed in range(count(60, 1000)):
        model, x = random_blocks(seed)
        dtype = (torch.float32, torch.float64)[seed % 2]
        model, x = model.to(dtype), x.to(dtype)
        c = radnet.compress(model, x)
        assert c.certificate.lossless, seed
        wide, small = model.double(), c.network.double()
        eps = 1e-9 if dtype == torch.float64 else 2e-3
        more = torch.randn(50, x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        with torch.no_grad():
            gap = (wide(more) - small(more)).abs().max() / wide(more).abs().max().clamp(min=1e-3)
        assert gap < eps or c.certificate.conditioning is not None, (seed, float(gap))
        smaller += sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in wide.parameters())
        unequal += any(isinstance(m, radnet.RadialActivation) and isinstance(m.blocks, tuple) for m in small)
        seen += 1
    evidence("networks in blocks with settings of their own", networks=seen, smaller=smaller, unequal=unequal)
    assert smaller > seen // 2
    assert unequal > seen // 4


@pytest.mark.parametrize("scale", [None, (0.5, -0.25), (30.0, 1.0)], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_a_tolerance_has_a_bound_with_scales_too(name, scale, generator):
    """Gradient ascent on the change of the outputs, among rows as long as the given ones."""
    model = nn.Sequential(nn.Linear(3, 12), SMOOTH[name](blocks=2, scale=scale), nn.Linear(12, 2)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.2, generator=generator)
        model[0].weight[:, 2] *= 1e-5
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    c = radnet.compress(model, x, tol=1e-3)
    longest, worst = float(x.norm(dim=1).max()), 0.0
    rows = x.clone().requires_grad_()
    for _ in range(40):
        change = (model(rows) - c.network(rows)).norm(dim=1)
        worst = max(worst, float(change.detach().max()))
        (g,) = torch.autograd.grad(change.sum(), rows)
        with torch.no_grad():
            rows += 0.3 * g / g.norm(dim=1, keepdim=True).clamp(min=1e-300)
            rows *= longest / rows.norm(dim=1, keepdim=True)
    assert 0 < worst <= c.bound.value < 100 * worst
    shifted = copy.deepcopy(model)
    shifted[1] = SMOOTH[name](blocks=2, shift=(0.0, 0.3), dtype=torch.float64)
    other = radnet.compress(shifted, x, tol=1e-3).bound  # it jumps at 0, so lengths alone say something
    assert "not Lipschitz" in other.why if name == "swish" else other.value > 1


def test_a_scale_lengthens_what_has_no_other_bound(generator):
    """A Step-ReLU has no Lipschitz constant and no longest value: what is known is that norms do not grow."""
    layers = nn.Linear(3, 3), radnet.StepReLU(), nn.Linear(3, 12), RadialTanh(), nn.Linear(12, 2)
    model = nn.Sequential(*layers).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.2, generator=generator)
        model[2].weight[:, 2] *= 1e-5
    x = 10 * torch.randn(300, 3, generator=generator, dtype=torch.float64)
    bounds = {}
    for scale in (None, 0.1, 50.0):
        model[1] = radnet.StepReLU(scale=scale, dtype=torch.float64)
        c = radnet.compress(model, x, tol=1e-3)
        bounds[scale] = c.bound.value
        assert 0 < float((model(x) - c.network(x)).detach().norm(dim=1).max()) <= c.bound.value
    assert 40 * bounds[None] < bounds[50.0] <= 50 * bounds[None]
    assert 0.09 * bounds[None] < bounds[0.1] < 0.2 * bounds[None]


def test_norms_are_near_the_jump_of_their_own_block():
    from radnet.compression.judging.jumps import near_jump

    r = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.5, 1.5]])
    expected = torch.tensor([[True, True], [False, False], [False, False]])
    assert torch.equal(near_jump(radnet.StepReLU(blocks=2, shift=(0.0, 1.0)), r), expected)
    channels = near_jump(radnet.StepReLU(blocks=2, shift=(0.0, 1.0), dim=1), r.reshape(3, 2, 1, 1))
    assert torch.equal(channels, expected.reshape(3, 2, 1, 1))


def test_a_scale_that_is_set_later_is_seen_by_the_kernels(generator):
    net = radnet.RadNet((3, 5, 2), "squash", generator=generator)
    x = torch.randn(4, 3, generator=generator)
    with torch.no_grad():
        before = net(x) - net.biases[1]
        net.activations[0].scale = nn.Parameter(torch.tensor(3.0))
        torch.testing.assert_close(net(x) - net.biases[1], 3 * before)


# --- elsewhere


def settled(blocks=(3, 2, 4)):
    net = nn.Sequential(
        nn.Linear(4, 9), RadialSin(blocks=blocks, shift=T[:3], scale=S[:3]), nn.Linear(9, 6),
        RadialGaussian(blocks=2, shift="per_block", scale="trainable"), nn.Linear(6, 2), RadialSwish(shift=0.2),
    )  # fmt: skip
    with torch.no_grad():
        net[3].shift += torch.tensor([0.4, -0.2])
        net[3].scale.fill_(1.7)
    return net.eval()


@pytest.mark.parametrize("blocks", [3, (3, 2, 4)], ids=str)
def test_they_compile_export_trace_and_map(blocks, generator, tmp_path):
    net, x = settled(blocks), torch.randn(5, 4, generator=generator)
    expected = net(x)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(net, backend="eager", fullgraph=True)(x), expected)
        torch.testing.assert_close(torch.export.export(net, (x,)).module()(x), expected)
        torch.testing.assert_close(torch.jit.trace(net, (x,))(x), expected)
        torch.testing.assert_close(torch.vmap(net)(x), expected)
    found = radnet.export_onnx(net, tmp_path / "net.onnx", x)
    assert found.gap < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("blocks", [3, (3, 2, 4)], ids=str)
def test_c_has_them_too(blocks, dtype, generator, tmp_path):
    from radnet.export import export_c

    net, x = settled(blocks).to(dtype), torch.randn(20, 4, generator=generator).to(dtype)
    x[0] = 0
    export_c(net, tmp_path / "net.h", name="net")
    kind = "float" if dtype == torch.float32 else "double"
    (tmp_path / "main.c").write_text(
        f'#include "net.h"\n#include <stdio.h>\nint main(void) {{ {kind} x[4], y[2];\n'
        "while (fread(x, sizeof x, 1, stdin)) { net(x, y); fwrite(y, sizeof y, 1, stdout); } return 0; }\n"
    )
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-std=c99"]
    subprocess.run(["gcc", *flags, "main.c", "-o", "main", "-lm"], cwd=tmp_path, check=True, timeout=60)
    out = subprocess.run([tmp_path / "main"], input=x.numpy().tobytes(), capture_output=True, check=True, timeout=60)
    y = torch.from_numpy(np.frombuffer(out.stdout, dtype=x.numpy().dtype).reshape(20, 2).copy())
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y, net(x).detach(), rtol=256 * eps, atol=256 * eps)


# --- models


@pytest.mark.parametrize("residual", [False, True])
def test_norms_of_blocks_stay_level_with_depth(residual, generator):
    net = BlockRadialMLP(10, [(50, 3)] * 6, 2, residual=residual, generator=generator)
    x, norms = torch.randn(500, 10, generator=generator), []
    for m in net.modules():
        if isinstance(m, RadialSin):
            m.register_forward_pre_hook(lambda m, v: norms.append(v[0].unflatten(1, (50, 3)).norm(dim=2).mean()))
    y = net(x)
    assert 0.7 < min(norms) <= max(norms) < 1.3
    assert 0.1 < float(y.detach().std()) < 0.6
    assert all(
        isinstance(m.shift, nn.Parameter) and m.shift.shape == (50,) for m in net.modules() if hasattr(m, "shift")
    )


@pytest.mark.parametrize("sizes", [(3, [(4, 3)], 1), ((3, 12, 1),)], ids=str)
@pytest.mark.parametrize("residual", [False, True])
def test_the_same_generator_draws_the_same_weights(sizes, residual):
    options = {"block": None if len(sizes) == 3 else 3, "residual": residual}
    first, again = (BlockRadialMLP(*sizes, generator=torch.Generator().manual_seed(3), **options) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_a_residual_stream_tells_more_than_directions_and_is_exported_in_float64(tmp_path, generator):
    """A norm layer after a stem without a bias sees the direction of x alone, which jumps at 0."""
    net = BlockRadialMLP(1, [(8, 3), (8, 3)], 1, residual=True, generator=generator, dtype=torch.float64).eval()
    x = torch.linspace(-1, 1, 201, dtype=torch.float64).unsqueeze(1)
    y = net(x).detach()
    assert float((y[1:] - y[:-1]).abs().max()) < 0.2 * float(y.max() - y.min())
    rows = torch.cat([torch.randn(8, 2, generator=generator), torch.zeros(1, 2)]).double()
    plane = BlockRadialMLP(2, [(4, 3)], 1, residual=True, generator=generator, dtype=torch.float64).eval()
    assert radnet.export_onnx(plane, tmp_path / "net.onnx", rows).gap < 1e-12


def test_a_coordinate_net_begins_as_waves_in_all_phases(generator):
    net = CoordinateNet(2, 1, [(200, 3), (200, 3)], frequency=20.0, generator=generator)
    W, b = net[0].weight.detach().unflatten(0, (200, 3)), net[0].bias.detach()
    assert 9 < float(W.square().sum(dim=1).mean().sqrt()) < 14  # 20/sqrt(3), as uniform numbers are spread
    for phases in (b, net[1].shift.detach(), net[3].shift.detach()):
        assert 1.6 < float(phases.std()) < 2.0
        assert float(phases.abs().max()) <= math.pi


@pytest.mark.parametrize(
    "make",
    [
        lambda: BlockRadialMLP(3, [(4, 8), (2, 40)], 2, scale="per_block"),
        lambda: BlockRadialMLP(3, [(4, 8)], 2, residual=True),
        lambda: BlockRadialMLP((3, 24, 2), block=8, activation="tanh"),
        lambda: CoordinateNet(2, 3, [(4, 8), (2, 40)], frequency=5.0),
        lambda: CoordinateNet(2, 3, [(2, 8)], frequency=np.float32(3)),
        lambda: BlockRadialMLP(np.int64(3), [(np.int64(4), 8)], 2, shift=np.arange(4.0)),
    ],
)
def test_they_are_read_from_their_files(make, tmp_path, generator):
    net = make().eval()
    for what in (net, radnet.compress(net).network):
        radnet.save(what, tmp_path / "net.safetensors")
        again = radnet.load(tmp_path / "net.safetensors")
        x = torch.randn(5, net[0].in_features, generator=generator)
        assert type(again) is type(net)
        assert torch.equal(again(x), what(x))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: BlockRadialMLP(3, None, 1), TypeError, "expected pairs"),
        (lambda: BlockRadialMLP(3, [4, 4], 1), ValueError, "hidden layer 1 is 4: expected how many blocks"),
        (lambda: BlockRadialMLP(3, [(4, 0)], 1), ValueError, "hidden layer 1: size=0"),
        (lambda: BlockRadialMLP(3, [(4, 3)], 0), ValueError, "out_features=0"),
        (lambda: BlockRadialMLP(3, [(4, 3)], 1, block=3), ValueError, "block=3 goes with all widths"),
        (lambda: BlockRadialMLP((3, 6, 1), [(2, 3)], 1, block=3), ValueError, "or all widths and block="),
        (lambda: BlockRadialMLP(3, [(2, 3)], 1, profile="sin", activation="sin"), ValueError, "give one of them"),
        (lambda: BlockRadialMLP(3, [(2, 3)], 1, profile="sine"), ValueError, "did you mean 'sin'"),
        (lambda: CoordinateNet(2, 1, frequency=0), ValueError, "expected a number above 0"),
        (lambda: CoordinateNet((2, 3), 1), TypeError, "in_features"),
        (lambda: CoordinateNet(2, 1, residual=True), ValueError, "residual=True would leave only the directions"),
        (
            lambda: BlockRadialMLP(3, [(4, 3)], 1, profile=RadialSin()),
            TypeError,
            "a name of an activation was expected",
        ),
    ],
)
def test_models_say_what_they_need(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
