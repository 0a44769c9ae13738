"""The public test helpers measure what they say, and certificates notice what is wrong."""

import math

import pytest
import torch

import radnet
from radnet.compression.judging.jumps import near_jump, norms_of
from radnet.testing import (
    assert_commutes_with_rotations,
    assert_same_function,
    conditioning,
    functional_gap,
    in_float64,
)


def test_functional_gap_measures_the_largest_and_mean_difference():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    gap = functional_gap(lambda x: 2 * x, lambda x: 2 * x + torch.tensor([0.0, 0.5]), x)
    assert (gap.max, gap.mean, gap.scale) == (0.5, 0.25, 8.0)
    assert gap.rows.tolist() == [0.5, 0.5]
    assert gap.eps == torch.finfo(torch.float64).eps
    assert gap.ulps == pytest.approx(0.5 / (8 * gap.eps))
    assert functional_gap(lambda x: 0 * x, lambda x: 0 * x, x).ulps == 0
    assert functional_gap(lambda x: 0 * x, lambda x: x, x).ulps == math.inf


def test_functional_gap_counts_what_is_not_finite():
    x = torch.ones(2, 1)
    nan, inf = (lambda x, c=c: torch.full_like(x, c) for c in (math.nan, math.inf))
    assert functional_gap(nan, nan, x).max == 0
    assert functional_gap(inf, inf, x).max == 0
    assert functional_gap(nan, inf, x).max == math.inf
    assert functional_gap(torch.sin, nan, x).max == math.inf
    assert functional_gap(torch.sin, torch.sin, x[:0]).max == 0


def test_functional_gap_refuses_functions_of_different_shape():
    with pytest.raises(ValueError, match=r"return shapes \(2, 1\) and \(2,\)"):
        functional_gap(lambda x: x, lambda x: x[:, 0], torch.ones(2, 1))


def test_conditioning_is_how_far_one_ulp_moves_the_function(generator):
    eps = torch.finfo(torch.float64).eps
    x = torch.full((3, 1), 1.5, dtype=torch.float64)
    D = conditioning(lambda x: 1000 * x, x, generator=generator)
    assert D.shape == (3,)
    assert torch.allclose(D, torch.tensor(1000 * eps, dtype=torch.float64), rtol=0.2)
    layer = torch.nn.Linear(1, 1, bias=False).double()  # weights move too
    with torch.no_grad():
        layer.weight.fill_(1.5)
    D = conditioning(layer, x, draws=32, generator=generator)
    assert torch.allclose(D, torch.tensor(2 * 1.5 * eps, dtype=torch.float64), rtol=0.2)
    assert float(conditioning(lambda x: torch.full_like(x, math.nan), x).max()) == 0
    assert layer.weight.item() == 1.5


def test_assert_same_function_accepts_rounding_and_nothing_else(generator):
    x = torch.randn(100, 4, generator=generator)
    f = torch.nn.Linear(4, 3)
    assert_same_function(f, f, x)
    eps = torch.finfo(torch.float32).eps
    scale = float(f(x).detach().abs().max())
    assert_same_function(f, lambda x: f(x) + 50 * eps * scale, x)
    with pytest.raises(AssertionError, match=r"100 of 100 rows differ by more than rounding; worst .* gap"):
        assert_same_function(f, lambda x: f(x) + 100 * eps * scale, x)
    one_row = torch.zeros(100, 1)
    one_row[7] = 1e-3
    with pytest.raises(AssertionError, match="1 of 100 rows .* worst 7"):
        assert_same_function(f, lambda x: f(x) + one_row, x)
    assert_same_function(f, lambda x: f(x) + one_row, x, ignore=one_row[:, 0] > 0)
    with pytest.raises(AssertionError, match="not the same function"):
        assert_same_function(f, lambda x: f(x) * math.nan, x)


def test_assert_same_function_accepts_what_no_computation_could_do_better(generator):
    x = 1 + 1e-12 * torch.randn(50, 1, generator=generator, dtype=torch.float64)
    assert_same_function(lambda x: 1e6 * (x - 1), lambda x: 1e6 * x - 1e6, x, generator=generator)


def test_assert_commutes_with_rotations_finds_pointwise_activations(generator):
    x = torch.randn(10, 3, generator=generator)
    with pytest.raises(AssertionError, match="relu does not commute with rotations: off by .* at n = 3"):
        assert_commutes_with_rotations(torch.relu, x, generator=generator)
    assert_commutes_with_rotations(lambda v: 2 * v, x, generator=generator)
    with pytest.raises(TypeError, match=r"x is torch\.int64"):
        assert_commutes_with_rotations(torch.relu, x.long())


def test_in_float64_converts_for_the_call_only():
    net = radnet.RadNet((2, 3, 1), "sigmoid", shift=0.5)
    y = in_float64(net)(torch.ones(1, 2))
    assert y.dtype == torch.float64
    assert {p.dtype for p in net.state_dict().values()} == {torch.float32}


def test_a_certificate_says_what_was_measured(generator):
    net = radnet.RadNet((2, 30, 30, 3), "squash", init="linear", generator=generator)
    small = radnet.compress(net).network
    x = torch.randn(40, 2, generator=generator)
    certificate = radnet.verify(net, small, x)
    with torch.no_grad():
        difference = (net(x) - small(x)).abs().double()
        difference64 = (in_float64(net)(x) - in_float64(small)(x)).abs()
    assert certificate.rows == 40
    assert certificate.dtype == "float32"
    assert certificate.max_gap == float(difference.max())
    assert certificate.mean_gap == pytest.approx(float(difference.mean()))
    assert certificate.max_gap64 == float(difference64.max())
    assert certificate.mean_gap64 == pytest.approx(float(difference64.mean()))
    assert certificate.scale == float(net(x).detach().abs().max())
    assert certificate.conditioning > 0
    assert certificate.to_dict()["lossless"] is True
    assert str(certificate).startswith("lossless, on 40 inputs")


def test_a_certificate_notices_a_network_that_is_not_the_same(generator):
    net = radnet.RadNet((2, 30, 3), "squash", generator=generator)
    other = radnet.compress(net).network
    with torch.no_grad():
        other.weights[0].mul_(1 + 1e-3)
    certificate = radnet.verify(net, other, torch.randn(40, 2, generator=generator))
    assert not certificate.lossless
    assert certificate.rows_failed > 30
    assert str(certificate).startswith("NOT lossless")
    assert certificate.to_dict()["lossless"] is False


def test_a_certificate_excuses_ill_conditioned_rows_and_says_so():
    class Cancel(torch.nn.Module):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def forward(self, x):
            return 1e4 * (x - 1) + self.error

    x = torch.full((5, 1), 1 + 1e-6)
    certificate = radnet.verify(Cancel(0.0), Cancel(1e-3), x)
    assert certificate.lossless
    assert certificate.rows_ill_conditioned == 5
    assert "5 rows above 64 eps" in str(certificate)


def test_near_jump_looks_at_every_block_and_axis():
    def near(rho, v):
        return near_jump(rho, norms_of(rho, v), 64e-6).reshape(len(v), -1).any(dim=1).tolist()

    rows = torch.tensor([[1.0 + 60e-6, 0.0, 2.0, 0.0], [1.0 + 90e-6, 0.0, 2.0, 0.0], [2.0, 0.0, 0.0, 1.0]])
    assert near(radnet.StepReLU(), rows[:, :2]) == [True, False, False]
    assert near(radnet.StepReLU(blocks=2), rows) == [True, False, True]
    assert near(radnet.StepReLU(shift=1.0), 2 * rows[:, :2]) == [False, False, False]
    assert near(radnet.StepReLU(shift=1.0), rows[:, :2] + torch.tensor([1.0, 0.0])) == [True, False, False]
    assert near(radnet.StepReLU(dim=1), rows[:, :2].unsqueeze(-1)) == [True, False, False]
    assert not any(near(radnet.Squash(), rows))
    eps = torch.finfo(torch.float64).eps
    close = torch.tensor([1.0 + 60 * eps, 1.0 + 70 * eps], dtype=torch.float64)
    assert near_jump(radnet.StepReLU(), close).tolist() == [True, False]


def test_hooks_are_gone_after_a_verification():
    net = radnet.RadNet((2, 3, 1), "step_relu")
    radnet.verify(net, net, torch.randn(3, 2))
    assert not any(m._forward_pre_hooks for m in net.modules())


@pytest.mark.parametrize(
    ("a", "b", "x", "kind", "message"),
    [
        (torch.sin, torch.nn.Tanh(), torch.ones(1, 1), TypeError, "the first is a builtin"),
        (torch.nn.Tanh(), None, torch.ones(1, 1), TypeError, "the second is a NoneType"),
        (torch.nn.Tanh(), torch.nn.Tanh(), torch.ones(0, 1), ValueError, "at least one row"),
        (torch.nn.Tanh(), torch.nn.Tanh(), [1.0], ValueError, "at least one row"),
        (torch.nn.Tanh(), torch.nn.Tanh(), torch.full((1, 1), math.inf), ValueError, "NaN or infinite"),
    ],
)
def test_verify_refuses_what_it_cannot_judge(a, b, x, kind, message):
    with pytest.raises(kind, match=message):
        radnet.verify(a, b, x)


def test_a_module_that_is_used_twice_is_left_as_it_was():
    rho = radnet.RadialSigmoid(shift="trainable")
    layer = torch.nn.Linear(3, 3)
    model = torch.nn.Sequential(layer, rho, layer, rho)
    before = {name: (id(p), p.detach().clone()) for name, p in model.named_parameters(remove_duplicate=False)}
    x = torch.randn(5, 3)
    assert radnet.verify(model, model, x).lossless
    conditioning(model, x)
    in_float64(model)(x)
    for name, p in model.named_parameters(remove_duplicate=False):
        assert isinstance(p, torch.nn.Parameter)
        assert (id(p), True) == (before[name][0], torch.equal(p, before[name][1]))


def test_conditioning_moves_a_shared_parameter_as_one(generator):
    class Difference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(1, 1, bias=False).double()
            self.b = torch.nn.Linear(1, 1, bias=False).double()
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.a(x) - self.b(x)

    assert float(conditioning(Difference(), torch.ones(3, 1).double(), generator=generator).max()) == 0


def test_verify_changes_no_statistics_and_refuses_models_without_a_function():
    x = torch.randn(8, 2)
    for module in (torch.nn.BatchNorm1d(2), torch.nn.Dropout()):
        model = torch.nn.Sequential(module)
        with pytest.raises(ValueError, match="the first model is in training mode and 0 is a"):
            radnet.verify(model, model, x)
        assert radnet.verify(model.eval(), model, x).lossless

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x

    counter = Counter()
    radnet.verify(counter, counter, x)
    assert counter.calls == 0


def test_verify_does_not_broadcast():
    with pytest.raises(ValueError, match=r"return shapes \(5, 1\) and \(5, 3\)"):
        radnet.verify(torch.nn.Linear(2, 1), torch.nn.Linear(2, 3), torch.randn(5, 2))


def test_what_is_not_finite_is_not_lossless():
    net = radnet.RadNet((2, 5, 1), "identity")
    with torch.no_grad():
        for W in net.weights:
            W.fill_(3e38)
    certificate = radnet.compress(net).certificate
    assert not certificate.lossless
    assert certificate.rows_not_finite == 256
    assert "256 rows where F itself is not finite" in str(certificate)
    with pytest.raises(ValueError, match="at least one row"):
        radnet.compress(radnet.RadNet((2, 5, 1)), torch.zeros(3, 0, 2))
    with pytest.raises(AssertionError, match="does not commute"):
        assert_commutes_with_rotations(lambda v: v * math.nan, torch.randn(2, 3))


def test_jumps_are_watched_when_the_activation_is_called_by_keyword():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = radnet.StepReLU()

        def forward(self, x):
            return self.act(v=x)

    certificate = radnet.verify(Model(), Model(), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    assert certificate.rows_at_jump == 1


def test_integers_are_refused():
    table = torch.nn.Embedding(3, 2)
    assert radnet.verify(table, table, torch.tensor([0, 1])).lossless  # looked up, not computed with
    with pytest.raises(TypeError, match="Linear does not run on the given inputs, which are torch.int64"):
        radnet.verify(torch.nn.Linear(3, 2), torch.nn.Linear(3, 2), torch.ones(1, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="return torch.int64; a gap needs floating point"):
        functional_gap(lambda x: x.long(), lambda x: x.long(), torch.ones(2, 1))
    with pytest.raises(TypeError, match="x is list"):
        assert_commutes_with_rotations(torch.relu, [1.0])
    assert_commutes_with_rotations(radnet.Squash(blocks=2), torch.randn(3, 4), blocks=2)
