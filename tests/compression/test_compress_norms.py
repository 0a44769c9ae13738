"""Norm layers inside models: what their neighbours take over, what is left, and when they stay as they are."""

import copy
import decimal

import pytest
import torch
from torch import nn

import radnet
from known_models import OtherRMSNorm, compressed, normal, widths
from radnet.compression import Reason
from radnet.compression.folding import fold
from radnet.compression.replacements import RMSRescaling
from radnet.compression.tracing.fx import trace


def folded(model, *inputs):
    """A copy after folding as far as it goes, and whether anything was folded; the function is the same."""
    model = model.double().eval()
    copied = copy.deepcopy(model)
    any_folded = False
    while fold(copied, trace(copied, inputs)).any:
        any_folded = True
    with torch.no_grad():
        assert torch.allclose(copied(*inputs), model(*inputs), rtol=1e-12, atol=1e-12)
    return copied, any_folded


def with_gain(norm):
    with torch.no_grad():
        for p in norm.parameters():
            p.copy_(torch.rand(p.shape, generator=torch.Generator().manual_seed(7)) + 0.5)
    return norm


class Net(nn.Module):
    """A writer, a norm, a reader; ``forward`` is given."""

    def __init__(self, forward, norm, bias=True, reads=16):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(3, 16, bias=bias), with_gain(norm), nn.Linear(reads, 2, bias=bias)
        self.c = nn.Linear(3, 16, bias=bias)
        self.how = forward

    def forward(self, x):
        return self.how(self, x)


def plain(self, x):
    return self.b(self.norm(self.a(x)))


NORMS = [lambda: nn.RMSNorm(16, eps=0.1), lambda: nn.LayerNorm(16, eps=0.1)]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6, 3), (4, 5, 3)])
def test_norms_between_linear_layers_become_rescalings(norm, bias, shape):
    small, done = folded(Net(plain, norm(), bias), normal(*shape))
    assert done
    assert isinstance(small.norm, RMSRescaling)
    assert (small.norm.n, small.norm.eps) == (16, 0.1)
    assert not small.norm.training
    wanted = bias or isinstance(norm(), nn.LayerNorm)  # the shift of a LayerNorm needs a bias to go to
    assert (small.b.bias is not None) == wanted


def test_folding_keeps_flags_and_dtypes():
    model = Net(plain, nn.LayerNorm(16, eps=0.1), bias=False)
    for p in model.parameters():
        p.requires_grad_(False)
    small, _ = folded(model, normal(6, 3))
    assert [p.requires_grad for p in small.parameters()] == [False] * len(list(small.parameters()))
    model = Net(plain, nn.LayerNorm(16, eps=0.1))
    model.b.bias.requires_grad_(False)
    model.a.weight.requires_grad_(False)
    small, _ = folded(model, normal(6, 3))
    flags = {name: p.requires_grad for name, p in small.named_parameters()}
    assert flags == {
        "a.weight": False, "a.bias": True, "b.weight": True, "b.bias": False, "c.weight": True, "c.bias": True,
    }  # fmt: skip
    single = Net(plain, nn.LayerNorm(16, eps=0.1, elementwise_affine=False)).float().eval()
    assert fold(single, trace(single, (torch.zeros(2, 3),))).any
    assert {p.dtype for p in single.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: self.b(self.norm(self.a(x))[:, 1:]),
        lambda self, x: self.b(self.norm(self.a(x))[:, 0]),
        lambda self, x: self.b(self.norm(self.a(x))[1:][:, 0]),
        lambda self, x: self.b(self.norm(self.a(x)).clone()),
        lambda self, x: self.b(self.norm(self.a(x) - 2 * self.c(x))),
        lambda self, x: self.b(self.norm(self.a(x).clone())),
        lambda self, x: self.b((h := self.norm((g := self.a(x))))[: h.size(0)]) * g.shape[1],
    ],
)
@pytest.mark.parametrize("norm", NORMS)
def test_parts_of_positions_and_sums_are_no_obstacle(forward, norm):
    small, done = folded(Net(forward, norm()), normal(4, 5, 3))
    assert done
    assert isinstance(small.norm, RMSRescaling)


@pytest.mark.parametrize(
    ("forward", "norm", "reads"),
    [
        (lambda self, x: self.norm(self.a(x)), nn.RMSNorm(16), 16),  # nobody to take the gain
        (lambda self, x: self.b(self.norm(self.a(x))) + self.norm(self.a(x)).sum(), nn.RMSNorm(16), 16),
        (lambda self, x: self.b(torch.tanh(self.norm(self.a(x)))), nn.RMSNorm(16), 16),
        (lambda self, x: self.b(self.norm(self.a(x))[:, :, :8]), nn.RMSNorm(16), 8),
        (lambda self, x: self.b(self.norm(self.a(x))[:, :, ::2]), nn.LayerNorm(16), 8),
        (lambda self, x: self.b(self.norm(self.norm(self.a(x)))), nn.RMSNorm(16), 16),  # in two places
        (lambda self, x: self.b(self.norm(torch.tanh(self.a(x)))), nn.LayerNorm(16), 16),  # nobody to centre
        (lambda self, x: self.b(self.norm(self.a(x) + self.a(x))), nn.LayerNorm(16), 16),
        (lambda self, x: self.b(self.norm(self.a(x))) + self.a(x).sum(), nn.LayerNorm(16), 16),
        (lambda self, x: self.b(self.norm((h := self.a(x)) + h)), nn.LayerNorm(16), 16),
        (lambda self, x: self.b(self.norm(self.a(x) + 1)), nn.LayerNorm(16), 16),
        (lambda self, x: self.b(self.norm(self.a(x)) * 1.0), nn.RMSNorm(16), 16),
        (lambda self, x: self.b(self.norm(self.a(x).unflatten(-1, (2, 8))).flatten(-2)), nn.RMSNorm((2, 8)), 16),
        (lambda self, x: self.b(self.norm(self.a(x).unflatten(-1, (2, 8))).flatten(-2)), nn.LayerNorm((2, 8)), 16),
    ],
)
def test_norms_stay_where_a_neighbour_cannot_take_over(forward, norm, reads):
    model = Net(forward, norm, reads=reads).double()
    small, done = folded(model, normal(4, 5, 3))
    assert not done
    assert type(small.norm) is type(norm)


@pytest.mark.parametrize(("norm", "expected"), [(nn.RMSNorm(16), 5), (nn.LayerNorm(16), 5), (OtherRMSNorm(16, 0.1), 5)])
def test_a_norm_that_stays_pins_but_tells_what_comes_out(norm, expected):
    """Used in two places it cannot be folded; what it gives has four directions, and its reader adds a bias."""

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b, self.c = nn.Linear(3, 16), with_gain(norm), nn.Linear(16, 30), nn.Linear(30, 2)
            self.rho = radnet.Squash()

        def forward(self, x):
            h = self.a(x)
            return self.c(self.rho(self.b(self.norm(h)))) + self.c(self.rho(self.b(self.norm(-h))))

    model = Again()
    with torch.no_grad():
        model.a.weight[:, 2] = 0  # two directions and the constant
    c = compressed(model, normal(6, 3))
    assert c.spaces[0].after == 16
    assert c.spaces[0].why.startswith("norm (")
    assert c.spaces[1].after == expected - 1
    assert type(c.network.norm) is type(norm)


def test_a_norm_without_gain_needs_no_reader():
    small, done = folded(
        Net(lambda self, x: self.norm(self.a(x)), nn.RMSNorm(16, elementwise_affine=False)), normal(4, 3)
    )
    assert done
    assert isinstance(small.norm, RMSRescaling)
    small, done = folded(
        Net(lambda self, x: self.norm(self.a(x)), nn.LayerNorm(16, elementwise_affine=False)), normal(4, 3)
    )
    assert done
    small, done = folded(Net(plain, nn.LayerNorm(16, bias=False)), normal(4, 3))
    assert done


def test_norms_with_hooks_or_shared_parameters_stay():
    hooked = Net(plain, nn.RMSNorm(16))
    hooked.norm.register_forward_hook(lambda m, args, out: 2 * out)
    assert not folded(hooked, normal(4, 3))[1]
    early = Net(plain, nn.RMSNorm(16))
    early.norm.register_forward_pre_hook(lambda m, args: (2 * args[0],))
    assert not folded(early, normal(4, 3))[1]
    reader = Net(plain, nn.RMSNorm(16))
    reader.b.register_forward_hook(lambda m, args, out: 2 * out)
    assert not folded(reader, normal(4, 3))[1]
    tied = Net(lambda self, x: self.b(self.norm(self.a(x))) + self.other(torch.tanh(self.a(x))), nn.RMSNorm(16))
    tied.other = nn.Linear(16, 2)
    tied.other.weight = tied.b.weight
    assert not folded(tied, normal(4, 3))[1]
    bare = Net(lambda self, x: self.b(self.norm(self.a(x))) + self.b.weight.sum(), nn.RMSNorm(16))
    assert not folded(bare, normal(4, 3))[1]
    used = Net(lambda self, x: self.b(self.norm(self.a(x))) + self.norm.weight.sum(), nn.RMSNorm(16))
    assert not folded(used, normal(4, 3))[1]


def test_another_librarys_rms_norm_is_folded_like_torchs():
    model = Net(plain, OtherRMSNorm(16, 0.1))
    small, done = folded(model, normal(4, 3))
    assert done
    assert (small.norm.n, small.norm.eps) == (16, 0.1)


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_rms_norm_without_eps_takes_that_of_the_numbers_that_arrive(affine, dtype):
    """The eps of float32 at least: torch computes no shorter."""
    model, _ = folded(Net(plain, nn.RMSNorm(16, elementwise_affine=affine)), normal(4, 3))
    model = model.to(dtype)
    assert model.norm.eps is None
    for arrives in DTYPES:  # whatever the model was when it was folded
        for size in (1.0, 1e-3, 1e-4, 1e-6):
            v = (size * normal(5, 16)).to(arrives)
            expected = nn.functional.rms_norm(v, (16,))
            assert model.norm(v).dtype == arrives
            assert torch.allclose(model.norm(v), expected, rtol=4 * torch.finfo(arrives).eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gain", [True, False])
def test_without_eps_the_small_model_follows_the_original_to_double(dtype, gain):
    """Weights are rounded to the dtype once; the eps must not be."""
    torch.manual_seed(0)
    norm = nn.RMSNorm(64, elementwise_affine=gain)
    model = nn.Sequential(nn.Linear(3, 64, bias=False), norm, nn.Linear(64, 2)).to(dtype).eval()
    x = 1e-3 * normal(20, 3)
    small = radnet.compress(model, x.to(dtype)).network
    wide, small = copy.deepcopy(model).double(), copy.deepcopy(small).double()
    with torch.no_grad():
        gap = (wide(x) - small(x)).abs().max() / wide(x).abs().max()
        frozen = (wide(x) - model(x.to(dtype)).double()).abs().max() / wide(x).abs().max()
    assert gap <= 64 * torch.finfo(dtype).eps
    assert frozen > 0.01  # the eps of float32 would be seen here


def exact_rms(v, n, eps):
    """In 60 digits: ``v / sqrt(|v|^2/n + eps)``."""
    with decimal.localcontext(decimal.Context(prec=60, Emax=9999, Emin=-9999)):
        numbers = [decimal.Decimal(float(x)) for x in v]
        norm = (sum(x * x for x in numbers) / n + decimal.Decimal(eps)).sqrt()
        return [float(x / norm) for x in numbers]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [1e-6, 0.5, 1e-12, None])
@pytest.mark.parametrize("form", ["fast", "composed"])
def test_the_rescaling_is_right_from_subnormals_to_the_largest_number(dtype, eps, form):
    info = torch.finfo(dtype)
    rho = RMSRescaling(7, eps)
    tiny = info.smallest_normal
    for size in (tiny / 8, tiny, 1e-20, 1e-6, 0.1, 1.0, 1e4, 1e30, info.max / 8, info.max / 2):
        v = (torch.tensor([0.3, -0.5, 0.7], dtype=dtype) * size).to(dtype)
        found = rho(v) if form == "fast" else torch.func.vmap(rho)(v.unsqueeze(0))[0]
        expected = torch.tensor(exact_rms(v, 7, info.eps if eps is None else eps), dtype=torch.float64)
        near = (found.double() - expected).abs() <= 16 * info.eps * expected.abs() + tiny * info.eps
        assert bool(near.all()), size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("eps", [1e-6, 0.5, None, 0.0])
def test_gradients_of_the_rescaling_are_finite_everywhere(dtype, eps):
    info = torch.finfo(dtype)
    for size in (0.0, info.smallest_normal, 1e-3, 1.0, 1e3, info.max / 4):
        if size < 1e-3 and eps == 0:
            continue  # the gradient grows like 1/|v| without end
        for second in (False, True):
            v = (torch.tensor([0.3, -0.5, 0.7], dtype=torch.float64) * size).to(dtype).requires_grad_()
            (gradient,) = torch.autograd.grad(RMSRescaling(3, eps)(v).sum(), v, create_graph=second)
            assert bool(gradient.isfinite().all()), (size, second)
    v = normal(6, 5).requires_grad_()
    if eps:
        assert torch.autograd.gradcheck(RMSRescaling(5, eps), (v,))
        assert torch.autograd.gradgradcheck(RMSRescaling(5, eps), (v,))


#: what `torch.onnx.export` translates, of all that a linear layer and a rescaling are made of
KNOWN_TO_ONNX = {
    f"aten.{name}"
    for name in (
        "__and__.Tensor", "_assert_tensor_metadata.default", "abs.default", "add.Tensor", "amax.default",
        "clamp.default", "detach.default", "div.Tensor", "eq.Scalar", "full.default", "full_like.default", "gt.Scalar",
        "isfinite.default", "le.Tensor", "linalg_vector_norm.default", "linear.default", "lt.Scalar",
        "mul.Tensor", "neg.default",
        "ones_like.default", "reciprocal.default", "sqrt.default", "square.default", "sub.Tensor",
        "sum.dim_IntList", "to.dtype", "where.ScalarSelf", "where.self",
        "zeros_like.default",
    )
}  # fmt: skip


@pytest.mark.parametrize(
    "norm",
    [
        nn.RMSNorm(48, eps=1e-6),
        nn.RMSNorm(48),
        nn.RMSNorm(48, elementwise_affine=False),
        nn.LayerNorm(48),
        nn.LayerNorm(48, elementwise_affine=False),
        OtherRMSNorm(48, 0.1),
    ],
)
def test_compressed_norm_layers_export_with_operations_that_onnx_has(norm):
    model = nn.Sequential(nn.Linear(3, 48), copy.deepcopy(norm), nn.Linear(48, 2)).float().eval()
    x = normal(8, 3).float()
    small = radnet.compress(model, x).network
    assert isinstance(small[1], RMSRescaling)
    program = torch.export.export(small, (x,))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert names <= KNOWN_TO_ONNX
    assert torch.allclose(program.module()(x), small(x), rtol=1e-5)


def test_an_exported_rescaling_without_eps_takes_that_of_its_dtype():
    for dtype in (torch.float32, torch.float64):
        v = (1e-5 * normal(4, 6)).to(dtype)
        program = torch.export.export(RMSRescaling(6, None), (v,))
        assert torch.allclose(program.module()(v), nn.functional.rms_norm(v, (6,)), rtol=8 * torch.finfo(dtype).eps)


def test_several_readers_all_take_the_gain():
    class Readers(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.a, self.norm, self.b, self.c = nn.Linear(3, 16), with_gain(norm), nn.Linear(16, 2), nn.Linear(16, 2)

        def forward(self, x):
            h = self.norm(self.a(x))
            return self.b(h) - self.c(h)

    for norm in NORMS:
        assert widths(compressed(Readers(norm()), normal(6, 3))) == [4]


# --- BatchNorm


def batch_norm(kind, n=16, **keywords):
    norm = kind(n, **keywords)
    generator = torch.Generator().manual_seed(3)
    if norm.running_mean is not None:
        norm.running_mean.copy_(torch.randn(n, generator=generator))
        norm.running_var.copy_(torch.rand(n, generator=generator) + 0.5)
    return with_gain(norm)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_batch_norms_go_into_the_layer_before(affine, bias):
    for dims, (conv, norm) in enumerate(
        [(None, nn.BatchNorm1d), (nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d)]
    ):
        writer = nn.Linear(3, 16, bias=bias) if conv is None else conv(3, 16, 1, bias=bias)
        model = nn.Sequential(writer, batch_norm(norm, affine=affine, eps=0.2), radnet.Squash(dim=1))
        small, done = folded(model, normal(5, 3, *[4] * dims))
        assert done
        assert isinstance(small[1], nn.Identity)
        assert small[0].bias is not None


def test_batch_norms_stay_where_they_cannot_go():
    x = normal(5, 3)
    statistics = nn.Sequential(
        nn.Linear(3, 16), batch_norm(nn.BatchNorm1d, track_running_stats=False), nn.Linear(16, 2)
    )
    assert not folded(statistics, x)[1]
    assert not folded(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), batch_norm(nn.BatchNorm1d)), x)[1]
    positions = nn.Sequential(nn.Linear(3, 16), batch_norm(nn.BatchNorm1d, 5), nn.Linear(16, 2))
    assert not folded(positions, normal(4, 5, 3))[1]

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(3, 16), batch_norm(nn.BatchNorm1d), nn.Linear(16, 2)

        def forward(self, x):
            h = self.a(x)
            return self.b(self.norm(h)) + self.b(h)

    assert not folded(Twice(), x)[1]
    hooked = nn.Sequential(nn.Linear(3, 16), batch_norm(nn.BatchNorm1d), nn.Linear(16, 2))
    hooked[0].register_forward_hook(lambda m, args, out: 2 * out)
    assert not folded(hooked, x)[1]
    training = nn.Sequential(nn.Linear(3, 16), batch_norm(nn.BatchNorm1d)).double().train()
    assert not fold(training, trace(copy.deepcopy(training), (x,))).any


def test_the_rescaling_says_what_it_is():
    assert repr(RMSRescaling(8, 0.5)) == "RMSRescaling(n=8, eps=0.5)"
    v = normal(4, 6, 5)
    assert torch.allclose(RMSRescaling(6, 0.5, dim=1)(v), RMSRescaling(6, 0.5)(v.mT).mT)
    huge = torch.full((1, 4), 1e300, dtype=torch.float64)
    assert torch.allclose(RMSRescaling(4, 1e-6)(huge), torch.ones_like(huge))


# --- names, signs, depth


class Named(nn.Module):
    """A writer, a norm and a reader, any of which may have a second name."""

    def __init__(self, norm, alias, by_alias):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(3, 16), norm, nn.Linear(16, 2)
        self.other = nn.ModuleDict({"again": getattr(self, alias)})
        self.alias, self.by_alias = alias, by_alias

    def part(self, name):
        return self.other["again"] if self.by_alias and name == self.alias else getattr(self, name)

    def forward(self, x):
        return self.part("b")(self.part("norm")(self.part("a")(x)))


@pytest.mark.parametrize("by_alias", [True, False])
@pytest.mark.parametrize("alias", ["a", "norm", "b"])
@pytest.mark.parametrize(
    "norm",
    [
        lambda: batch_norm(nn.BatchNorm1d, affine=False),
        lambda: batch_norm(nn.BatchNorm1d),
        lambda: with_gain(nn.LayerNorm(16)),
        lambda: with_gain(nn.RMSNorm(16)),
        lambda: with_gain(OtherRMSNorm(16, 0.1)),
    ],
)
def test_a_module_with_two_names_is_folded_once_and_under_both(norm, alias, by_alias):
    small, done = folded(Named(norm(), alias, by_alias), normal(6, 3))
    assert done
    assert isinstance(small.norm, RMSRescaling | nn.Identity)
    assert small.other["again"] is getattr(small, alias)
    steps = trace(small, (normal(6, 3),))
    assert not fold(small, steps).any


def test_the_order_of_names_does_not_matter():
    """The name that is found first is not the one that is called."""

    class Aliased(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = batch_norm(nn.BatchNorm1d, affine=False)
            self.deep = nn.Sequential(nn.Linear(3, 16), self.norm, nn.Linear(16, 2))

        def forward(self, x):
            return self.deep(x)

    small, done = folded(Aliased(), normal(6, 3))
    assert done
    assert isinstance(small.deep[1], nn.Identity)
    assert small.norm is small.deep[1]


def signed(norm):
    with torch.no_grad():
        for p in norm.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel()).roll(3))
            p[2] = 0
    return norm


def without_gain(norm):
    norm.weight = None
    return signed(norm)


@pytest.mark.parametrize(
    "norm",
    [
        signed(nn.RMSNorm(16, eps=0.1)),
        signed(nn.LayerNorm(16, eps=0.1)),
        signed(nn.LayerNorm(16, eps=0.1, bias=False)),
        signed(nn.LayerNorm(16, eps=0.1, elementwise_affine=False)),
        without_gain(nn.LayerNorm(16, eps=0.1)),
        signed(nn.LayerNorm(16, eps=0.0)),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_gains_of_any_sign_and_shifts_without_gain_are_taken_over(norm, bias):
    model = Net(plain, nn.Identity(), bias)
    model.norm = copy.deepcopy(norm)
    small, done = folded(model, normal(6, 3))
    assert done
    assert isinstance(small.norm, RMSRescaling)


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: self.b(h := self.norm(self.a(x))) - self.b(2 * h),  # one reader, twice
        lambda self, x: self.b(h := self.norm(self.a(x))) - self.b(h),
        lambda self, x: (h := self.norm(self.a(x))).sum() + self.b(h),
        lambda self, x: torch.cat([self.b(self.norm(h := self.a(x))), h], dim=-1),  # normed, and an output
        lambda self, x: torch.cat([self.b(h := self.norm(self.a(x))), h], dim=-1),
        lambda self, x: self.b(self.norm(self.a(x)) + self.norm(self.c(x))),
        lambda self, x: self.b(self.norm(self.a(x) - self.c(x) / 3)),
        lambda self, x: self.b(self.norm(-self.a(x))),
    ],
)
@pytest.mark.parametrize("norm", [nn.RMSNorm(16, eps=0.1), nn.LayerNorm(16, eps=0.1)])
def test_folding_never_changes_the_function(forward, norm):
    """Whether it can be folded or not: `folded` compares."""
    folded(Net(forward, copy.deepcopy(norm)), normal(6, 3))


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.RMSNorm(4)])
def test_many_layers_that_are_summed_before_a_norm_are_no_problem(norm):
    class Many(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 4) for _ in range(depth))
            self.norm, self.last = copy.deepcopy(norm), nn.Linear(4, 1)

        def forward(self, x):
            h = self.layers[0](x)
            for layer in self.layers[1:]:
                h = h + layer(x)
            return self.last(self.norm(h))

    small, done = folded(Many(1200), normal(3, 2))
    assert done
    assert isinstance(small.norm, RMSRescaling)


def test_many_readers_one_behind_the_other_are_no_problem():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(2, 4), with_gain(nn.RMSNorm(4)), nn.Linear(4, 1)

        def forward(self, x):
            h = self.norm(self.a(x))
            for _ in range(1200):
                h = h.clone()
            return self.b(h)

    assert folded(Deep(), normal(3, 2))[1]


def test_a_batch_norm_is_not_folded_where_inputs_of_another_number_of_axes_are_tried():
    """With one axis more BatchNorm1d takes positions for channels, if they are as many: another function."""
    model = (
        nn.Sequential(nn.Linear(5, 2), batch_norm(nn.BatchNorm1d, 2), radnet.Squash(), nn.Linear(2, 1)).double().eval()
    )
    c = radnet.compress(model, normal(16, 5))
    assert any("one axis more" in what for what in c.certificate.tried)
    for shape in ((7, 5), (7, 2, 5)):
        x = normal(*shape)
        assert torch.allclose(c.network(x), model(x), rtol=0, atol=1e-13)


def test_a_folded_batch_norm_says_that_it_was_folded_for_another_number_of_axes():
    model = nn.Sequential(nn.Linear(3, 16), batch_norm(nn.BatchNorm1d, 16), radnet.Squash(), nn.Linear(16, 1))
    small = radnet.compress(model.double().eval(), normal(8, 3)).network
    assert small[0].out_features == 4
    model(normal(8, 16, 3))
    with pytest.raises(AssertionError, match="a BatchNorm1d was folded for inputs of 2 axes alone"):
        small(normal(8, 16, 3))
    assert torch.fx.symbolic_trace(small[1])(normal(8, 3)).shape == (8, 3)
    assert torch.export.export(small, (normal(8, 3),)).module()(normal(8, 3)).shape == (8, 1)


class Ways(nn.Module):
    """Five functions; only the last looks at normed vectors entry by entry, so that the gain has to stay."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 24), nn.RMSNorm(24), nn.Linear(24, 2)
        nn.init.normal_(self.norm.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, x, sine=None, cosine=None, tangent=None, positive=None):
        for word, f in ((sine, torch.sin), (cosine, torch.cos), (tangent, torch.tanh)):
            if word is not None:
                x = f(x)
        h = self.norm(self.a(x))
        return self.b(h.abs() if positive is not None else h)


def test_a_norm_that_was_folded_is_there_again_when_another_way_is_followed():
    """More ways than are followed from the start: the last is found when the small model differs there."""
    model, x = Ways().double().eval(), normal(20, 4)
    c = radnet.compress(model, x)
    assert c.network.norm.weight.shape == (24,)
    for way in ({}, {"sine": x}, {"cosine": x}, {"tangent": x}, {"positive": x}):
        assert torch.allclose(c.network(x, **way), model(x, **way), rtol=0, atol=1e-13)


def test_an_unbatched_picture_is_not_taken_for_a_batch():
    """BatchNorm1d takes (C, H, W) for C rows with H channels, which are not those of the convolution before."""
    model = nn.Sequential(nn.Conv2d(3, 16, 1), batch_norm(nn.BatchNorm1d, 5))
    assert not folded(model, normal(3, 5, 4))[1]


def test_statistics_that_are_read_elsewhere_stay():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm = nn.Linear(3, 16), batch_norm(nn.BatchNorm1d)

        def forward(self, x):
            return self.norm(self.a(x)) + self.norm.running_mean

    assert not folded(Reads(), normal(4, 3))[1]


def test_subclasses_and_patched_layers_are_not_folded():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    writer = Net(plain, nn.LayerNorm(16))
    writer.a = Doubled(3, 16)
    assert not folded(writer, normal(4, 3))[1]
    patched = Net(plain, nn.RMSNorm(16))
    patched.b.forward = lambda x: torch.tanh(x)[..., :2]
    assert not folded(patched, normal(4, 3))[1]
    inherits = Net(plain, nn.RMSNorm(16))
    inherits.b = type("Plain", (nn.Linear,), {})(16, 2)
    assert folded(inherits, normal(4, 3))[1]


# --- why a norm stays


class ByHand(nn.Module):
    """A norm between two layers that is written out, or a function."""

    def __init__(self, norm):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(3, 16), nn.Linear(16, 2), norm

    def forward(self, x):
        return self.b(self.norm(self.a(x)))


BY_HAND = {
    "root mean square": lambda v: v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6),
    "squares": lambda v: v / (v.square().sum(-1, keepdim=True) + 1.0).sqrt(),
    "norm": lambda v: v / (1 + v.norm(dim=-1, keepdim=True)),
    "vector_norm": lambda v: v / (1 + torch.linalg.vector_norm(v, dim=-1, keepdim=True)),
    "normalize": lambda v: nn.functional.normalize(v, dim=-1),
    "rms_norm": lambda v: nn.functional.rms_norm(v, (16,)),
    "layer_norm": lambda v: nn.functional.layer_norm(v, (16,)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_norm_that_is_written_out_is_named_as_such(name):
    c = radnet.compress(ByHand(BY_HAND[name]).double().eval(), normal(12, 3))
    assert (c.spaces[0].after, c.spaces[0].reason) == (16, Reason.NORM_BY_HAND)
    assert "use nn.RMSNorm or radnet.Radial" in c.spaces[0].why


def test_a_square_that_nobody_sums_up_is_no_norm():
    c = radnet.compress(ByHand(torch.square).double().eval(), normal(12, 3))
    assert c.spaces[0].reason is Reason.NOT_EQUIVARIANT


class Shared(nn.Module):
    """One norm layer in two places."""

    def __init__(self, norm):
        super().__init__()
        self.a, self.b, self.c, self.norm = nn.Linear(3, 16), nn.Linear(16, 16), nn.Linear(16, 2), norm

    def forward(self, x):
        return self.c(self.norm(self.b(self.norm(self.a(x)))))


class ReadOtherwise(nn.Module):
    """What the norm gives is read by something that is not linear."""

    def __init__(self, norm):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(3, 16), nn.Linear(16, 2), norm

    def forward(self, x):
        return self.b(torch.tanh(self.norm(self.a(x))))


class WrittenOtherwise(nn.Module):
    """What the norm reads is not written by linear layers alone."""

    def __init__(self, norm):
        super().__init__()
        self.a, self.rho, self.b, self.norm = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2), norm

    def forward(self, x):
        return self.b(self.norm(self.rho(self.a(x))))


@pytest.mark.parametrize(
    ("make", "norm", "reason"),
    [
        (Shared, nn.RMSNorm, Reason.NORM_SHARED),
        (Shared, nn.LayerNorm, Reason.NORM_SHARED),
        (ReadOtherwise, nn.RMSNorm, Reason.NORM_GAIN),
        (ReadOtherwise, nn.LayerNorm, Reason.NORM_GAIN),
        (WrittenOtherwise, nn.LayerNorm, Reason.NORM_WRITERS),
    ],
)
def test_a_norm_layer_that_stays_says_why(make, norm, reason):
    torch.manual_seed(0)
    c = radnet.compress(make(with_gain(norm(16))).double().eval(), normal(12, 3))
    assert reason in {space.reason for space in c.spaces}
