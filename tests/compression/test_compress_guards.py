"""What compress was not shown: followed and judged if it can be found out, refused by the small model if not."""

import copy
import decimal
import functools
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import radnet


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def same(model, network, *args, **kwargs):
    with torch.no_grad():
        a, b = model(*args, **kwargs), network(*args, **kwargs)
    return torch.allclose(a, b, rtol=0, atol=1e-10 * float(a.abs().max()))


def widths(c):
    return [space.after for space in c.spaces]


class Wide(nn.Module):
    """4 -> 32 -> 32 -> 3, of which a forward may use what it likes."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 3)
        self.rho = radnet.Squash()
        self.double()


# --- another number of axes


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 32, 3, padding=1), radnet.Squash(dim=1), nn.Conv2d(32, 3, 1)).double()

    def forward(self, image):
        return self.net(image)


class InADict(Pictures):
    def forward(self, batch):
        return self.net(batch["image"])


class Scaled(Pictures):
    def forward(self, factor, image):
        return self.net(image) * factor


IMAGES, IMAGE = normal(6, 2, 5, 5), normal(2, 5, 5)
TWO = torch.tensor(2.0, dtype=torch.float64)


@pytest.mark.parametrize(
    ("model", "given", "args", "kwargs"),
    [
        (Pictures, (IMAGES,), (IMAGE,), {}),
        (Pictures, (IMAGES,), (), {"image": IMAGE}),
        (InADict, ({"image": IMAGES},), ({"image": IMAGE},), {}),
        (InADict, ({"image": IMAGES},), (), {"batch": {"image": IMAGE}}),
        (Scaled, (TWO, IMAGES), (TWO, IMAGE), {}),
        (Scaled, (TWO, IMAGES), (TWO,), {"image": IMAGE}),
    ],
)
def test_another_number_of_axes_is_refused_however_it_is_passed(model, given, args, kwargs):
    torch.manual_seed(0)
    net = model()
    c = radnet.compress(net, given)
    assert widths(c)[0] < 32
    net(*args, **kwargs)  # the original takes it
    for network in (c.network, pickle.loads(pickle.dumps(copy.deepcopy(c.network)))):
        assert same(net, network, *given)
        with pytest.raises(radnet.RadNetError, match="was compressed for inputs of 4 axes and got 3"):
            network(*args, **kwargs)


def test_only_that_number_of_axes_is_refused_which_is_another_function():
    class Centred(Wide):
        def forward(self, x):
            h = self.rho(self.a(x))
            return self.c(h - h.mean(1, keepdim=True)).amax(-2)

    torch.manual_seed(0)
    model = Centred()
    c = radnet.compress(model, normal(6, 5, 4))
    assert c.certificate.limits == ("one axis fewer", "calls of b, which never ran")
    assert same(model, c.network, normal(6, 2, 5, 4))
    with pytest.raises(radnet.RadNetError, match="was compressed for inputs of 3 axes and got 2"):
        c.network(normal(5, 4))


# --- layers that never ran


def test_a_layer_that_never_ran_is_refused_and_told_not_run_on_other_coordinates():
    class Auxiliary(Wide):
        def forward(self, x):
            h = self.rho(self.a(x))
            return self.c(self.b(h)) if self.secret == 271 else self.c(h)

    torch.manual_seed(0)
    model = Auxiliary()
    model.secret = 0
    c = radnet.compress(model, normal(6, 4))
    assert widths(c)[0] == 5
    assert c.certificate.limits == ("calls of b, which never ran",)
    assert "calls of b, which never ran" in c.report()
    c.network.secret = 271
    with pytest.raises(radnet.RadNetError, match=r"b \(Linear\) did not run with any call that compress tried"):
        c.network(normal(6, 4))


def test_a_layer_that_never_ran_is_free_where_nothing_shrank():
    class Unused(Wide):
        def forward(self, x):
            return self.c(torch.relu(self.a(x)))

    torch.manual_seed(0)
    c = radnet.compress(Unused(), normal(6, 4))
    assert c.certificate.limits == ()
    c.network.b(normal(1, 32))


# --- training and evaluation


class Switch(Wide):
    def forward(self, x):
        h = self.a(x)
        return self.c(self.rho(h)) if self.training else self.c(torch.relu(h))


def test_a_model_given_in_training_mode_is_the_same_function_in_evaluation_mode_too():
    torch.manual_seed(0)
    model = Switch()
    c = radnet.compress(model, normal(6, 4))
    assert "evaluation mode" in c.certificate.tried
    assert model.training
    assert c.network.training
    assert same(model, c.network, normal(6, 4))
    assert same(model.eval(), c.network.eval(), normal(6, 4))
    plain = nn.Sequential(nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 3)).double()
    assert widths(radnet.compress(plain, normal(6, 4))) == [5, 3]


# --- hooks on blocks


@pytest.mark.parametrize("pre", [False, True])
def test_what_a_hook_of_a_block_sees_stays_as_it_is(pre):
    seen = []
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(n, 32), radnet.Squash()) for n in (4, 32)]
    model = nn.Sequential(*blocks, nn.Linear(32, 3)).double()
    if pre:
        model[1].register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    else:
        model[0].register_forward_hook(lambda m, args, out: seen.append(out))
    c = radnet.compress(model, normal(6, 4))
    assert widths(c)[0] == 32
    seen.clear()
    x = normal(6, 4, seed=1)
    assert same(model, c.network, x)
    assert torch.allclose(seen[0], seen[1], rtol=0, atol=1e-12)


# --- loops


def test_a_longer_loop_is_judged_where_its_length_does_not_explain_what_ran():
    class Loop(Wide):
        def __init__(self):
            super().__init__()
            self.read, self.out, self.rho2 = nn.Linear(4, 32).double(), nn.Linear(32, 3).double(), radnet.Squash()

        def forward(self, x):
            z = self.rho(self.a(x))
            if x.shape[1] > self.b.weight.shape[0] - 12:  # 20
                z = torch.relu(z)  # which runs elsewhere too
            h = x.new_zeros(x.shape[0], 32)
            for t in range(x.shape[1]):
                h = self.rho2(self.b(h) + self.read(x[:, t]))
            return torch.relu(self.c(z).sum(1) + self.out(h))

    torch.manual_seed(0)
    model = Loop()
    c = radnet.compress(model, normal(4, 5, 4))
    for length in (5, 9, 33, 40):
        assert same(model, c.network, normal(4, length, 4)), length


def test_many_heads_are_followed_at_once():
    class Heads(Wide):
        def __init__(self, n):
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(32, 3).double() for _ in range(n))

        def forward(self, x, task: int = 0):
            return self.heads[task](self.rho(self.a(x)))

    torch.manual_seed(0)
    model = Heads(7)
    c = radnet.compress(model, normal(6, 4))
    assert widths(c)[0] == 5
    for task in range(7):
        assert same(model, c.network, normal(6, 4), task=task)


# --- outputs that cannot be opened


class Two(Wide):
    def __init__(self, factor, make):
        super().__init__()
        self.factor, self.make = factor, make

    def forward(self, x):
        h = self.rho(self.a(x))
        return self.c(h), self.make(self.factor * h)


class Field:
    def __init__(self, h):
        self.h = h

    def __call__(self, z):
        return self.h @ z


def module(h):
    m = nn.Module()
    m.w = h
    return m


def pair(make):
    torch.manual_seed(0)
    one, seven = Two(1, make), Two(7, make)
    seven.load_state_dict(one.state_dict())
    return one, seven


@pytest.mark.parametrize(
    "make", [lambda h: functools.partial(torch.matmul, h), lambda h: lambda z: h @ z, Field, module]
)
def test_outputs_that_may_hide_tensors_are_refused(make):
    for other in pair(make):
        with pytest.raises(radnet.RadNetError, match=r"output\[1\] is a \w+, which cannot be opened"):
            radnet.verify(pair(make)[0], other, normal(6, 4))


@pytest.mark.parametrize(
    "make",
    [
        lambda h: decimal.Decimal(round(float(h.sum()), 3)),
        lambda h: np.float32(h.sum().item()),
        lambda h: slice(0, int(100 * h.abs().sum())),
        lambda h: f"{float(h.sum()):.3f}",
    ],
)
def test_other_outputs_are_compared(make):
    one, seven = pair(make)
    assert radnet.verify(one, one, normal(6, 4)).lossless
    assert not radnet.verify(one, seven, normal(6, 4)).lossless


def test_the_second_model_of_verify_has_to_be_a_function_too():
    class Later(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.calls = model, 0

        def forward(self, x):
            self.calls += 1
            return self.model(x) + (self.calls > 3)

    class Noisy(Later):
        def forward(self, x):
            return self.model(x) + 1e-9 * torch.randn(())

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 3))
    x = normal(6, 4, dtype=torch.float32)
    with pytest.raises(radnet.RadNetError, match="Later: what its forward does depends on what earlier calls left"):
        radnet.verify(model, Later(model), x)
    with pytest.raises(radnet.RadNetError, match="Noisy: its forward draws random numbers"):
        radnet.verify(model, Noisy(model), x)


# --- data


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fewer_rows_of_data_than_features_are_a_smaller_space(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), radnet.Squash(), nn.Linear(128, 3)).to(dtype)
    data = normal(20, 64, dtype=dtype)
    c = radnet.compress(model, data=data)
    assert widths(c) == [20, 3]
    assert c.certificate.lossless
