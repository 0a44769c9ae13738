"""One contract, all members: every activation, and one made up here."""

import copy
import pickle

import pytest
import torch

import radnet
from radnet.activations import NAMES, named_activation
from radnet.testing import assert_commutes_with_rotations
from strategies import ACTIVATIONS

KINDS = sorted(ACTIVATIONS)


@pytest.fixture(params=KINDS)
def make(request):
    return ACTIVATIONS[request.param]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_it_commutes_with_rotations(make, dtype, generator):
    for shift in (None, 0.25):
        x = torch.randn(64, 5, generator=generator).to(dtype)
        assert_commutes_with_rotations(make(shift=shift, dtype=dtype), x, generator=generator)


def test_it_commutes_with_rotations_of_each_block_and_along_any_axis(make, generator):
    x = torch.randn(4, 8, 3, 2, generator=generator, dtype=torch.float64)
    assert_commutes_with_rotations(make(dim=1), x, dim=1, generator=generator)
    assert_commutes_with_rotations(make(dim=1, blocks=2), x, dim=1, blocks=[4, 4], generator=generator)
    assert_commutes_with_rotations(make(dim=1, blocks=(3, 5)), x, dim=1, blocks=[3, 5], generator=generator)


def test_blocks_do_not_commute_with_rotations_that_mix_them(generator):
    x = torch.randn(16, 8, generator=generator, dtype=torch.float64)
    with pytest.raises(AssertionError, match="does not commute with rotations: off by"):
        assert_commutes_with_rotations(radnet.Squash(blocks=2), x, generator=generator)


def test_it_commutes_with_inclusions(make, generator):
    v = torch.randn(32, 4, generator=generator, dtype=torch.float64)
    for shift in (None, -0.5):
        rho = make(shift=shift, dtype=torch.float64)
        included = torch.nn.functional.pad(v, (0, 3))
        torch.testing.assert_close(rho(included), torch.nn.functional.pad(rho(v), (0, 3)), rtol=1e-14, atol=1e-15)


def test_it_commutes_with_inclusions_along_the_channel_axis(make, generator):
    v = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    rho = make(dim=1)
    included = torch.cat([v, torch.zeros_like(v)], 1)
    torch.testing.assert_close(rho(included), torch.cat([rho(v), torch.zeros_like(v)], 1), rtol=1e-14, atol=1e-15)


def test_the_axis_is_only_a_matter_of_layout(make, generator):
    v = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    for blocks in (None, 3, (1, 5)):
        last = make(blocks=blocks)(v.movedim(1, -1)).movedim(-1, 1)
        torch.testing.assert_close(make(dim=1, blocks=blocks)(v), last, rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(make(dim=-2, blocks=blocks)(v), last, rtol=1e-13, atol=1e-15)


def test_the_shift_is_a_buffer_a_parameter_or_nothing(make):
    assert make().shift is None
    assert not make().state_dict()
    fixed = make(shift=0.25)
    assert fixed.shift == 0.25
    assert "shift" in dict(fixed.named_buffers())
    trainable = make(shift="trainable")
    assert isinstance(trainable.shift, torch.nn.Parameter)
    assert trainable.shift == 0
    assert trainable.double().shift.dtype == torch.float64


def test_it_copies_pickles_and_saves(make, generator):
    rho = make(shift="trainable", blocks=(2, 3))
    with torch.no_grad():
        rho.shift.fill_(0.4)
    x = torch.randn(6, 5, generator=generator)
    twin = make(shift="trainable", blocks=(2, 3))
    twin.load_state_dict(rho.state_dict())
    for other in (copy.deepcopy(rho), pickle.loads(pickle.dumps(rho)), twin):
        assert torch.equal(other(x), rho(x))
    assert copy.deepcopy(rho).shift is not rho.shift


def test_repr_says_what_differs_from_the_default():
    assert repr(radnet.StepReLU()) == "StepReLU()"
    assert repr(radnet.Squash(shift=0.5, dim=1)) == "Squash(shift=0.5, dim=1)"
    assert repr(radnet.ShiftedReLU(2, blocks=(3, 5))) == "ShiftedReLU(b=2, blocks=(3, 5))"
    assert repr(radnet.RadialSigmoid(shift="trainable")) == 'RadialSigmoid(shift="trainable")'
    assert repr(radnet.Radial(torch.tanh)) == "Radial(h=tanh)"
    assert "Tanh" in repr(radnet.Radial(torch.nn.Tanh()))


def test_names_make_the_activations_of_the_paper_and_four_smooth_ones():
    assert {name: type(named_activation(name)).__name__ for name in NAMES} == {
        "step_relu": "StepReLU",
        "squash": "Squash",
        "shifted_relu": "ShiftedReLU",
        "sigmoid": "RadialSigmoid",
        "identity": "Identity",
        "sin": "RadialSin",
        "gaussian": "RadialGaussian",
        "tanh": "RadialTanh",
        "swish": "RadialSwish",
    }
    assert named_activation("shifted_relu").b == 0.5


def test_only_step_relu_has_a_jump():
    assert radnet.StepReLU().jumps == (1.0,)
    assert all(NAMES[name].jumps == () for name in NAMES if name != "step_relu")


def test_the_abstract_activation_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        radnet.RadialActivation()


def test_bad_arguments_are_refused_with_a_reason():
    cases = [
        (lambda: named_activation("stepp-relu"), ValueError, "did you mean 'step_relu'"),
        (lambda: named_activation("zzz"), ValueError, r"unknown activation 'zzz'; known names: identity"),
        (lambda: radnet.Radial(3), TypeError, "h must be callable, got int"),
        (lambda: radnet.Radial(lambda r: 1.0)(torch.ones(3)), ValueError, "returned float; it must work elementwise"),
        (
            lambda: radnet.Radial(lambda r: r.sum())(torch.ones(2, 3)),
            ValueError,
            r"norms of shape .* and returned \(\)",
        ),
        (lambda: radnet.Squash(shift="learned"), ValueError, "shift='learned': expected None, a number or"),
        (lambda: radnet.Squash(shift=float("nan")), ValueError, "shift=nan: expected a finite number"),
        (lambda: radnet.Squash(shift=[1]), TypeError, "expected a number, got list"),
        (lambda: radnet.ShiftedReLU("x"), TypeError, "b='x': expected a number"),
        (lambda: radnet.ShiftedReLU(True), TypeError, "b=True: expected a number"),
        (lambda: radnet.Squash(dim=0.5), TypeError, "dim=0.5: expected an int"),
        (lambda: radnet.Squash(blocks=0), ValueError, "blocks=0: every block needs"),
        (lambda: radnet.Squash(blocks=()), ValueError, r"blocks=\(\): every block needs"),
        (lambda: radnet.Squash(blocks=(2, -1)), ValueError, "every block needs at least one"),
        (lambda: radnet.Squash(blocks=2.5), TypeError, "blocks=2.5: expected an int"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert isinstance(caught.value, radnet.RadNetError)


def test_a_new_profile_does_not_inherit_an_old_slope(generator):
    class Tanh(radnet.Squash):
        def profile(self, r):
            return torch.tanh(r)

    class Squared(radnet.ShiftedReLU):
        def profile(self, r):
            return super().profile(r) ** 2

    v = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    for rho in (Tanh(), Squared(0.1)):
        assert torch.autograd.gradcheck(rho, (v,))


def test_parameters_of_a_profile_are_trained_even_if_it_brings_its_slope(generator):
    class Scaled(radnet.RadialActivation):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor(2.0))

        def profile(self, r):
            return self.a * torch.tanh(r)

        def slope(self, r):
            return self.a * (1 - torch.tanh(r) ** 2)

    rho = Scaled()
    v = torch.randn(4, 3, generator=generator, requires_grad=True)
    rho(v).sum().backward()
    (expected,) = torch.autograd.grad((rho.a * radnet.Radial(torch.tanh)(v)).sum(), rho.a)
    torch.testing.assert_close(rho.a.grad, expected)


def test_a_module_without_values_can_be_shown():
    assert repr(radnet.Squash(shift=0.5, device="meta")) == "Squash(shift=?)"
