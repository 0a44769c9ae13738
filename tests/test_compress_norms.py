"""Norm layers inside models: what their neighbours take over, what is left, and when they stay as they are."""

import copy

import pytest
import torch
from torch import nn

import radnet
from radnet.compression.norms import RMSRescaling, fold
from radnet.compression.program import trace
from test_compress_any import compressed, normal, widths
from test_compress_operations import OtherRMSNorm


def folded(model, *inputs):
    """A copy after folding as far as it goes, and whether anything was folded; the function is the same."""
    model = model.double().eval()
    copied = copy.deepcopy(model)
    any_folded = False
    while fold(copied, trace(copied, inputs)):
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
    single = Net(plain, nn.RMSNorm(16, eps=0.1)).float().eval()
    fold(single, trace(single, (torch.zeros(2, 3),)))
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


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_rms_norm_without_eps_takes_that_of_the_numbers_that_arrive(affine, dtype):
    """The eps of float32 at least: torch computes no shorter."""
    model = Net(plain, nn.RMSNorm(16, elementwise_affine=affine)).to(dtype).eval()
    fold(model, trace(model, (normal(4, 3).to(dtype),)))
    assert model.norm.eps == torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    v = (1e-4 * normal(5, 16)).to(dtype)
    expected = nn.functional.rms_norm(v, (16,))
    assert torch.allclose(model.norm(v), expected, rtol=4 * torch.finfo(dtype).eps, atol=0)


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
    assert not fold(training, trace(copy.deepcopy(training), (x,)))


def test_the_rescaling_says_what_it_is():
    assert repr(RMSRescaling(8, 0.5)) == "RMSRescaling(n=8, eps=0.5)"
    v = normal(4, 6, 5)
    assert torch.allclose(RMSRescaling(6, 0.5, dim=1)(v), RMSRescaling(6, 0.5)(v.mT).mT)
    huge = torch.full((1, 4), 1e300, dtype=torch.float64)
    assert torch.allclose(RMSRescaling(4, 1e-6)(huge), torch.ones_like(huge))
