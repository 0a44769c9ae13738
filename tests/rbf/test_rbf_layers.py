"""RBF networks with N centres are block-radial, and their blocks shrink."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from radnet.rbf import RBFLayer, RBFNetwork, as_blocks, compress_blocks, kernel_of
from radnet.rbf.kernels import KERNELS
from radnet.testing import ULPS, assert_same_function, gap_of
from strategies import assert_training_helps


def exponential(r):
    """A kernel with a kink at 0, made up for the tests."""
    return torch.exp(-r)


class Learned(nn.Module):
    """A kernel with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.5))

    def forward(self, r):
        return torch.exp(-self.rate * r.square())


PARTS = [{}, {"weights": False}, {"matrices": False}]
IN_NUMPY = {
    "gaussian": lambda r: np.exp(-(r**2)),
    "multiquadric": lambda r: np.sqrt(1 + r**2),
    "inverse_multiquadric": lambda r: 1 / np.sqrt(1 + r**2),
}


def layer_in_numpy(a, W, b, kernel, x):
    """The sum over i of (a_i + W_i (x + b_i)) lambda(|x + b_i|), for one x."""
    return sum((a[i] + W[i] @ (x + b[i])) * kernel(np.sqrt(np.sum((x + b[i]) ** 2))) for i in range(len(b)))


def name_of(kernel):
    return kernel if isinstance(kernel, str) else getattr(kernel, "__name__", type(kernel).__name__)


def numpy_of(*tensors):
    return [None if t is None else t.detach().numpy() for t in tensors]


def inputs(n, rows=8, seed=3):
    return torch.randn(rows, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_the_layer_is_the_sum_over_centres_that_the_appendix_defines(kernel, parts, generator):
    layer = RBFLayer(3, 2, 4, kernel, width=1.0, generator=generator, dtype=torch.float64, **parts)
    a, W, b = numpy_of(layer.weights, layer.matrices, layer.biases)
    a = np.zeros((4, 2)) if a is None else a
    W = np.zeros((4, 2, 3)) if W is None else W
    x = inputs(3).reshape(2, 4, 3)
    got = layer(x).detach()
    assert got.shape == (2, 4, 2)
    for index in np.ndindex(2, 4):
        expected = layer_in_numpy(a, W, b, IN_NUMPY[kernel], x[index].numpy())
        np.testing.assert_allclose(got[index].numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "rho",
    [radnet.Squash(), radnet.StepReLU(shift=0.5), radnet.ShiftedReLU(shift=-0.3), radnet.Radial(torch.tanh)],
    ids=str,
)
def test_one_centre_without_a_weight_is_the_constrained_case(rho, generator):
    """N = 1 and a_1 = 0: F(x) = W rho(x + b), at the centre too."""
    layer = RBFLayer(3, 2, 1, kernel_of(rho), weights=False, generator=generator, dtype=torch.float64)
    rbfn = RBFNetwork.from_parameters([layer.matrices[0]], [layer.biases[0]], [rho])
    x = torch.cat([3 * inputs(3), layer.centres])
    torch.testing.assert_close(layer(x), rbfn(x), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("kernel", [*sorted(KERNELS), exponential, kernel_of(radnet.Squash())], ids=name_of)
def test_a_layer_with_n_centres_is_a_block_radial_layer(kernel, parts, generator, evidence):
    layer = RBFLayer(3, 2, 7, kernel, generator=generator, dtype=torch.float64, **parts)
    before = copy.deepcopy(layer.state_dict())
    blocks = as_blocks(layer)
    size = 3 + (layer.weights is not None)
    assert [type(part).__name__ for part in blocks] == ["Linear", "Radial", "Linear"]
    assert (blocks[0].out_features, blocks[1].blocks, blocks[2].in_features) == (7 * size, 7, 7 * size)
    assert blocks[2].bias is None
    x = 2 * inputs(3, rows=200)
    gap = gap_of(layer(x).detach(), blocks(x).detach())
    evidence("as_blocks", kernel=name_of(kernel), parts=str(parts), eps_max_f=gap.ulps)
    assert gap.ulps <= ULPS
    at_centres = gap_of(layer(layer.centres).detach(), blocks(layer.centres).detach())
    assert at_centres.ulps <= ULPS if kernel in KERNELS else at_centres.max < 1e-6
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    with torch.no_grad():
        blocks[0].bias.add_(1.0)
    assert torch.equal(layer.biases, before["biases"])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_blocks_behind_a_linear_layer_shrink_to_one_more_than_its_inputs(parts, bias, count, evidence):
    """k + 1, with the weights a_i too: (A u + c + b_i, 1) is linear in (1, u)."""
    worst = 0.0
    tried = count(10, 50)
    for seed in range(tried):
        generator = torch.Generator().manual_seed(seed)
        k, n, m, N = (int(torch.randint(1, high, (), generator=generator)) for high in (6, 40, 4, 6))
        first = nn.Linear(k, n, bias=bias, dtype=torch.float64)
        layer = RBFLayer(n, m, N, sorted(KERNELS)[seed % 3], generator=generator, dtype=torch.float64, **parts)
        before = copy.deepcopy([first.state_dict(), layer.state_dict()])
        small = compress_blocks(first, layer)
        size = min(n + (layer.weights is not None), k + 1)
        assert (small[0].in_features, small[0].out_features) == (k, N * size)
        assert small[1].blocks == N
        assert (small[2].in_features, small[2].out_features) == (N * size, m)
        u = inputs(k, rows=32, seed=seed)
        big = nn.Sequential(first, layer)
        assert_same_function(big, small, u)
        assert_same_function(nn.Sequential(first, as_blocks(layer)), small, u)
        worst = max(worst, gap_of(big(u).detach(), small(u).detach()).ulps)
        for module, state in zip((first, layer), before, strict=True):
            assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    evidence("blocks of size k + 1", parts=str(parts), bias=bias, layers=tried, worst_eps_max_f=worst)


def test_with_full_rank_and_weights_no_block_smaller_than_k_plus_1_would_do(generator):
    first = nn.Linear(3, 20, dtype=torch.float64)
    layer = RBFLayer(20, 1, 4, generator=generator, dtype=torch.float64)
    u = inputs(3, rows=50)
    blocks = as_blocks(layer)[0](first(u)).detach().unflatten(-1, (4, 21))
    assert [int(torch.linalg.matrix_rank(blocks[:, i])) for i in range(4)] == [4] * 4


def test_small_dtypes_are_kept_and_computed_in_double(generator):
    first = nn.Linear(2, 60)
    layer = RBFLayer(60, 3, 5, generator=generator)
    small = compress_blocks(first, layer)
    assert {p.dtype for p in small.parameters()} == {torch.float32}
    assert_same_function(nn.Sequential(first, layer), small, torch.randn(32, 2, generator=generator))
    assert {p.dtype for p in as_blocks(layer).parameters()} == {torch.float32}
    half = RBFLayer(3, 2, 4, "multiquadric", dtype=torch.bfloat16, generator=generator)
    x = torch.randn(5, 3, generator=generator)
    assert half(x.bfloat16()).dtype == torch.bfloat16
    wide = copy.deepcopy(half).float()
    torch.testing.assert_close(half(x.bfloat16()).float(), wide(x.bfloat16().float()), rtol=0.05, atol=0.1)


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("kernel", [*sorted(KERNELS), Learned()], ids=name_of)
def test_gradients_of_a_layer_and_of_its_blocks_are_right(kernel, parts, generator):
    layer = RBFLayer(2, 2, 3, kernel, generator=generator, dtype=torch.float64, **parts)
    x = inputs(2, rows=4).requires_grad_()
    for module in (layer, as_blocks(layer)):
        names = [name for name, _ in module.named_parameters()]

        def f(x, *values, module=module, names=names):
            return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

        values = [p.detach().clone().requires_grad_() for p in module.parameters()]
        assert torch.autograd.gradcheck(f, (x, *values))
    (through_layer,) = torch.autograd.grad(layer(x).sum(), x)
    (through_blocks,) = torch.autograd.grad(as_blocks(layer)(x).sum(), x)
    torch.testing.assert_close(through_layer, through_blocks)


@pytest.mark.parametrize("kernel", [*sorted(KERNELS), exponential], ids=name_of)
def test_at_a_centre_and_far_away_everything_is_finite(kernel, generator):
    layer = RBFLayer(3, 2, 4, kernel, generator=generator)
    far = (
        1e15 if kernel == "multiquadric" else 1e25
    )  # the square of 1e25 overflows; r lambda(r) is what is representable
    for module in (layer, as_blocks(layer)):
        for x in (layer.centres, torch.full((1, 3), far), torch.full((1, 3), 1e-30)):
            x = x.clone().requires_grad_()
            y = module(x)
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            assert y.isfinite().all()
            assert g.isfinite().all()
            if x.abs().max() < 1e10:
                assert torch.autograd.grad(g.sum(), x)[0].isfinite().all()


def test_a_layer_is_an_ordinary_module(generator):
    kernel = Learned()
    layer = RBFLayer(3, 2, 5, kernel, generator=generator)
    assert layer.kernel.rate is not kernel.rate
    x = torch.randn(4, 3, generator=generator)
    assert len(list(layer.parameters())) == 4
    assert (layer.n_in, layer.n_out, layer.count, layer.width) == (3, 2, 5, 1.0)
    twin = RBFLayer(3, 2, 5, Learned())
    assert not torch.equal(twin(x), layer(x))
    twin.load_state_dict(layer.state_dict())
    for same in (twin, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(same(x), layer(x))
    assert not {id(p) for p in layer.parameters()} & {id(p) for p in as_blocks(layer).parameters()}
    for module in (layer, as_blocks(layer)):
        double = copy.deepcopy(module).to(torch.float64)
        torch.testing.assert_close(double(x.double()).float(), module(x))
    named = RBFLayer(3, 2, 5, "multiquadric", matrices=False)
    assert "3, 2, count=5, kernel=multiquadric, width=1.73205, matrices=False" in repr(named)
    assert RBFLayer(3, 2, 5, device="meta").centres.is_meta
    first, second = (RBFLayer(3, 2, 5, generator=torch.Generator().manual_seed(2)) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))


def test_centres_are_what_was_given_and_are_copied():
    given = torch.tensor([[1.0, 2.0], [3.0, -4.0]], dtype=torch.float64)
    layer = RBFLayer.from_centres(given, 1, weights=False)
    assert torch.equal(layer.centres, given)
    assert layer.biases.tolist() == [[-1.0, -2.0], [-3.0, 4.0]]
    assert layer.weights is None
    given.zero_()
    assert layer.centres[1, 0] == 3
    layer.centres.zero_()
    assert layer.centres[1, 0] == 3


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("n", [1, 10, 100])
def test_initial_outputs_have_about_unit_variance(kernel, n):
    layer = RBFLayer(n, 64, 200, kernel, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    std = float(layer(inputs(n, rows=200)).detach().std())
    assert 0.3 < std < 4


@pytest.mark.parametrize(
    ("make", "optimizer"),
    [
        (lambda g: RBFLayer(2, 1, 20, generator=g), "SGD"),
        (lambda g: RBFLayer(2, 1, 20, Learned(), matrices=False, generator=g), "Adam"),
        (lambda g: as_blocks(RBFLayer(2, 1, 20, generator=g)), "Adam"),
    ],
)
def test_a_few_steps_of_training_reduce_the_loss(make, optimizer, generator):
    assert_training_helps(make(generator), optimizer, generator)


def test_gaussians_on_a_grid_interpolate_what_they_are_given():
    """The classical use: only the a_i, solved for."""
    x = torch.linspace(-1, 1, 9, dtype=torch.float64).unsqueeze(1)
    layer = RBFLayer.from_centres(x, 1, width=0.3, matrices=False)
    with torch.no_grad():
        layer.weights.copy_(torch.linalg.solve(torch.exp(-(((x - x.mT) / 0.3) ** 2)), torch.sin(3 * x)))
        torch.testing.assert_close(layer(x), torch.sin(3 * x), rtol=1e-9, atol=1e-9)
        between = x[:-1] + 0.125
        assert float((layer(between) - torch.sin(3 * between)).abs().max()) < 0.05


NET = RBFNetwork((2, 3, 1))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: RBFLayer(2, 1, 0), ValueError, "count=0: expected at least 1"),
        (lambda: RBFLayer(2.0, 1, 3), TypeError, r"n_in=2.0: expected a whole number"),
        (lambda: RBFLayer(2, True, 3), TypeError, "n_out=True: expected a whole number"),
        (lambda: RBFLayer(2, 1, 3, "gausian"), ValueError, "unknown kernel 'gausian'; did you mean 'gaussian'?"),
        (lambda: RBFLayer(2, 1, 3, "qqq"), ValueError, "unknown kernel 'qqq'; known names: gaussian"),
        (lambda: RBFLayer(2, 1, 3, 1.0), TypeError, "kernel is float; expected a name or a function"),
        (lambda: RBFLayer(2, 1, 3, radnet.Squash()), TypeError, r"did you mean radnet.rbf.kernel_of\(activation\)"),
        (lambda: RBFLayer(2, 1, 3, radnet.Squash), TypeError, "kernel is Squash; expected a name or a function"),
        (lambda: RBFLayer(2, 1, 3, lambda r: 1.0), ValueError, "lambda must work elementwise"),
        (lambda: RBFLayer(2, 1, 3, lambda r: r.sum()), ValueError, "lambda must work elementwise"),
        (lambda: RBFLayer(2, 1, 3, lambda r: 1 / r), ValueError, "lambda is not finite at 0"),
        (lambda: RBFLayer(2, 1, 3, width=0), ValueError, "width=0: expected a number above 0"),
        (lambda: RBFLayer(2, 1, 3, width="1"), TypeError, "width='1': expected a number"),
        (lambda: RBFLayer(2, 1, 3, weights=False, matrices=False), ValueError, "nothing is left of the layer"),
        (lambda: RBFLayer(2, 1, 3, dtype=torch.complex64), TypeError, "an RBF layer needs a real floating-point"),
        (lambda: RBFLayer(2, 1, 3)(torch.ones(3)), ValueError, r"RBFLayer: input of shape \(3,\): the last dimension"),
        (lambda: RBFLayer.from_centres([[1.0]], 1), TypeError, "centres: expected a floating-point tensor.*got list"),
        (lambda: RBFLayer.from_centres(torch.ones(3), 1), ValueError, r"centres have shape \(3,\); needs \(N, n\)"),
        (lambda: kernel_of("squash"), TypeError, "kernel_of needs a radial activation, got str"),
        (lambda: as_blocks(NET), TypeError, "as_blocks needs an RBFLayer, got RBFNetwork"),
        (lambda: compress_blocks(NET, RBFLayer(2, 1, 3)), TypeError, "needs an nn.Linear in front, got RBFNetwork"),
        (lambda: compress_blocks(nn.Linear(2, 2), NET), TypeError, "compress_blocks needs an RBFLayer"),
        (
            lambda: compress_blocks(nn.Linear(2, 3), RBFLayer(2, 1, 3)),
            ValueError,
            "the linear layer in front has 3 outputs, but the RBF layer has 2 inputs",
        ),
        (
            lambda: compress_blocks(nn.Linear(2, 2).double(), RBFLayer(2, 1, 3)),
            TypeError,
            "in front is torch.float64 on cpu, the RBF layer torch.float32 on cpu",
        ),
        (lambda: compress_blocks(nn.LazyLinear(2), RBFLayer(2, 1, 3)), ValueError, "is not initialised yet"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, kind, message):
    with pytest.raises(radnet.RadNetError, match=message) as caught:
        call()
    assert isinstance(caught.value, kind)
