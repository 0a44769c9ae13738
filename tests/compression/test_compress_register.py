"""Operations of the user's own: taught from outside the package, judged like all others, named if they lie."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import radnet
from radnet.compression import Operation, register, unregister
from radnet.compression.spaces.coordinates import Change, changed_layer
from radnet.compression.spaces.follow import Use
from radnet.compression.spaces.spans import Lazy


class TwoMaps(nn.Module):
    """``A x + B x``: a layer with two weights under names of its own."""

    def __init__(self, n, m):
        super().__init__()
        self.first = nn.Parameter(torch.randn(m, n) / n**0.5)
        self.second = nn.Parameter(torch.randn(m, n) / n**0.5)
        self.outputs = m

    def forward(self, x):
        return x @ self.first.mT + x @ self.second.mT


@dataclass(frozen=True, eq=False)
class TwoMapsOperation(Operation):
    """What there is to say of it."""

    module: TwoMaps

    classes = (TwoMaps,)
    parameters = ("first", "second")

    @classmethod
    def of_module(cls, module):
        return cls(module)

    def follow(self, step, analysis):
        feature, value, W = analysis.arriving(step), step.inputs[0], self.module.first + self.module.second
        span = analysis.span_of(value, feature, W.shape[1], value.ndim - 1)
        out = analysis.write(step, len(W), Lazy(lambda: span.get().mapped(W, None), (span,)), step.made.ndim - 1)
        analysis.uses.append(Use(step, feature, out))
        return out

    def change(self, use, layout):
        both = [changed_layer(use, layout, W, None).tensors["weight"] for W in (self.module.first, self.module.second)]
        return Change(use, dict(zip(self.parameters, both, strict=True)))

    def resize(self, module):
        module.outputs = len(module.first)


class WrongSpan(TwoMapsOperation):
    """Forgets the second map."""

    def follow(self, step, analysis):
        return TwoMapsOperation(copy.copy(Halved(self.module))).follow(step, analysis)


class Halved:
    """A layer as it is not: the second weight is 0."""

    def __init__(self, module):
        self.first, self.second = module.first, torch.zeros_like(module.second)


class WrongShape(TwoMapsOperation):
    """Changes one of its weights only."""

    def change(self, use, layout):
        return Change(use, {"first": super().change(use, layout).tensors["first"]})


class Silent(TwoMapsOperation):
    """Has nothing to say."""

    def follow(self, step, analysis):
        raise RuntimeError("I do not know")


@pytest.fixture
def registered():
    known = []

    def teach(operation):
        known.append(register(operation))

    yield teach
    for operation in known:
        unregister(operation)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 24), TwoMaps(24, 40), radnet.Squash(), nn.Linear(40, 2)).double().eval()


class Looped(nn.Module):
    """What torch.fx cannot follow: a branch on a class."""

    def __init__(self):
        super().__init__()
        self.net = model()

    def forward(self, x):
        return self.net(x) if isinstance(x, torch.Tensor) else x


def widths(c):
    return [space.after for space in c.spaces]


@pytest.mark.parametrize("make", [model, Looped])
def test_a_layer_is_taught_from_outside_the_package(make, registered):
    net, x = make(), torch.randn(20, 3, dtype=torch.float64)
    before = widths(radnet.compress(net, x))
    assert before[0] == 24
    registered(TwoMapsOperation)
    c = radnet.compress(net, x)
    assert widths(c) == [4, 4, 2]
    assert c.traced_by == ("torch.fx" if make is model else "torch.export")
    layer = (c.network if make is model else c.network.net)[1]
    assert (layer.first.shape, layer.second.shape, layer.outputs) == ((4, 4), (4, 4), 4)
    unregister(TwoMapsOperation)
    assert widths(radnet.compress(net, x)) == before


@pytest.mark.parametrize("operation", [WrongSpan, WrongShape])
def test_an_operation_that_lies_is_caught_and_named(operation, registered):
    registered(operation)
    with pytest.raises(radnet.RadNetError, match=rf"Without the registered operation {operation.__name__} \(at 1\)"):
        radnet.compress(model(), torch.randn(20, 3, dtype=torch.float64))


class OtherMaps(TwoMaps):
    """The same layer under another name."""


class WrongSpanOfOthers(WrongSpan):
    """Lies about them alone."""

    classes = (OtherMaps,)


class Branches(nn.Module):
    """Two branches, each with a layer of its own kind."""

    def __init__(self):
        super().__init__()
        self.a, self.b = model(), model()
        self.b[1] = OtherMaps(24, 40).double()

    def forward(self, x):
        return self.a(x) + self.b(x)


def test_only_the_operation_that_lies_is_named(registered):
    registered(TwoMapsOperation)
    registered(WrongSpanOfOthers)
    with pytest.raises(radnet.RadNetError, match=r"Without the registered operation WrongSpanOfOthers \(at b.1\)"):
        radnet.compress(Branches(), torch.randn(20, 3, dtype=torch.float64))


def test_an_operation_that_fails_is_named(registered):
    registered(Silent)
    with pytest.raises(radnet.RadNetError, match=r"1 \(TwoMaps\): the operation Silent does not say what it does"):
        radnet.compress(model(), torch.randn(20, 3, dtype=torch.float64))


def test_a_layer_that_was_tampered_with_is_not_taken_for_what_was_registered(registered):
    registered(TwoMapsOperation)
    net = model()
    net[1].register_forward_hook(lambda m, args, out: 2 * out)
    c = radnet.compress(net, torch.randn(20, 3, dtype=torch.float64))
    assert c.spaces[0].after == 24


def test_the_newest_registered_operation_comes_first(registered):
    registered(TwoMapsOperation)
    registered(Silent)
    with pytest.raises(radnet.RadNetError, match="the operation Silent"):
        radnet.compress(model(), torch.randn(20, 3, dtype=torch.float64))
    unregister(Silent)
    assert widths(radnet.compress(model(), torch.randn(20, 3, dtype=torch.float64))) == [4, 4, 2]


class NoWord(Operation):
    classes = (TwoMaps,)


class NoName(TwoMapsOperation):
    classes = ()


class NoClass(TwoMapsOperation):
    classes = (3,)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (3, "register needs a subclass of radnet.compression.Operation, got 3"),
        (TwoMaps, "register needs a subclass of radnet.compression.Operation"),
        (NoWord, "NoWord has no follow; an operation says what it does"),
        (NoName, "NoName: say what it is, in classes, functions or atens"),
        (NoClass, "NoClass: classes has 3, which is no class of modules"),
    ],
)
def test_what_is_no_operation_is_refused(operation, message):
    with pytest.raises(radnet.RadNetError, match=message):
        register(operation)
