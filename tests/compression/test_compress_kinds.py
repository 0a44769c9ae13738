"""Arguments of other kinds than were judged are refused, and what forward leaves in arguments is an output."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from known_models import normal


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.rho, self.c = nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 3)

    def hidden(self, x):
        return self.rho(self.a(x))


class Mask(Base):
    def forward(self, x, mask):
        h = self.hidden(x)
        if mask is None:
            return self.c(h.relu())
        return self.c(h * mask) if mask.dtype == torch.bool or mask.ndim == x.ndim else self.c(h.relu() * mask[:, None])


class Either(Base):
    def forward(self, x):
        if isinstance(x, list):
            return self.c(self.hidden(x[0]).relu())
        return self.c(self.hidden(x))


class Flags(Base):
    def forward(self, x, a=False, b=False, c=False):
        h = self.hidden(x)
        return self.c(h.relu() if a and b and c else h)


@dataclasses.dataclass
class Options:
    positive: bool = False


class Configured(Base):
    def forward(self, x, options=Options()):  # noqa: B008
        h = self.hidden(x)
        return self.c(h.relu() if options.positive else h)


class Many(Base):
    def forward(self, *xs):
        h = self.hidden(xs[0])
        return self.c(h + self.hidden(xs[1])) if len(xs) > 1 else self.c(h.relu())


X = normal(20, 4).float()
MASK = torch.arange(20).unsqueeze(1) % 2 == 0


@pytest.mark.parametrize(
    ("model", "given", "later"),
    [
        (Either, (X,), ([X],)),
        (Flags, (X,), (X, True, True, True)),
        (Configured, (X,), (X, Options(True))),
        (Many, (X, X), (X,)),
        (Mask, (X, MASK), (X, MASK[:, 0].float())),
    ],
    ids=["another container", "three flags", "a field", "fewer inputs", "another dtype and axis"],
)
def test_a_call_of_a_kind_that_was_not_judged_is_refused(model, given, later):
    """Where the original runs; what was judged is the same."""
    original = model().eval()
    c = radnet.compress(original, given)
    torch.testing.assert_close(c.network(*given), original(*given), rtol=1e-4, atol=1e-5)
    original(*later)
    try:
        found = c.network(*later)
    except radnet.errors.InvalidValue as error:
        assert "not judged with such arguments" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found, original(*later), rtol=1e-4, atol=1e-5)
    assert c.network.a.out_features < 32 or model is Mask  # there None is tried, which takes a ReLU


@pytest.mark.parametrize("given", [(X, MASK), (X, None)], ids=["a tensor", "None"])
def test_none_instead_of_a_tensor_is_tried(given):
    original = Mask().eval()
    c = radnet.compress(original, given)
    torch.testing.assert_close(c.network(*given), original(*given), rtol=1e-4, atol=1e-5)
    for mask in (MASK, None):
        try:
            found = c.network(X, mask)
        except radnet.errors.InvalidValue:
            continue
        torch.testing.assert_close(found, original(X, mask), rtol=1e-4, atol=1e-5)


def test_values_of_numbers_are_free_and_places_and_names_mean_the_same():
    class Scaled(Base):
        def forward(self, x, scale=1.0):
            return self.c(self.hidden(x)) * scale

    c = radnet.compress(Scaled().eval(), (X,))
    assert c.network.a.out_features == 5
    for call in ((X, 3.0), (X, 7)):
        torch.testing.assert_close(c.network(*call), call[1] * c.network(x=X), rtol=1e-4, atol=1e-5)


class Taps(Base):
    def forward(self, x, taps=None):
        h = self.hidden(x)
        if taps is not None:
            taps["h"] = h
        return self.c(h)


@pytest.mark.parametrize("given", [(X,), (X, {})], ids=["left out", "given"])
def test_what_forward_leaves_in_a_dictionary_of_the_caller_is_an_output(given):
    original, found, expected = Taps().eval(), {}, {}
    c = radnet.compress(original, given)
    original(X, expected)
    try:
        c.network(X, found)
    except radnet.errors.InvalidValue as error:
        assert "not judged" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found["h"], expected["h"])


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["python", "numpy"])
def test_a_forward_that_draws_outside_of_torch_is_refused_however_seldom_it_matters(draw):
    class Drops(Base):
        def forward(self, x):
            h = self.hidden(x)
            return self.c(h.relu() if draw() < 1e-9 else h)

    with pytest.raises(radnet.errors.InvalidValue, match="draws random numbers"):
        radnet.compress(Drops().eval(), X)


def test_a_guarded_model_can_be_copied_compiled_and_exported():
    import copy

    c = radnet.compress(Flags().eval(), (X,))
    expected = c.network(X)
    assert torch.equal(copy.deepcopy(c.network)(X), expected)
    program = torch.export.export(c.network, (X,)).module()
    torch.testing.assert_close(program(X), expected)
    assert radnet.compress(c.network, (X,)).network.a.out_features == c.network.a.out_features


# --- modes


class Returns(Base):
    def forward(self, x):
        h = self.hidden(x)
        return (self.c(h), h.abs().mean()) if self.training else self.c(h)


class Rectifies(Base):
    def forward(self, x):
        h = self.hidden(x)
        return self.c(h.relu() if self.training else h)


class Adds(Base):
    def forward(self, x):
        h = self.hidden(x)
        return self.c(h) + (h.sum(-1, keepdim=True) if self.training else 0)


@pytest.mark.parametrize("model", [Returns, Rectifies, Adds])
def test_a_small_model_refuses_training_mode_where_forward_does_something_else_there(model):
    original = model().eval()
    c = radnet.compress(original, X)
    assert (c.network.a.out_features, c.certificate.limits) == (5, ("training mode",))
    torch.testing.assert_close(c.network(X), original(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(radnet.errors.InvalidValue, match="in training mode its forward does something else"):
        c.network.train()(X)
    torch.testing.assert_close(c.network.eval()(X), original(X), rtol=1e-4, atol=1e-5)


class Drops(Base):
    def forward(self, x):
        return self.c(nn.functional.dropout(self.hidden(x), 0.5, self.training))


class DropsPaths(Base):
    def forward(self, x):
        h = self.hidden(x)
        if self.training:
            h = h / 0.5 * h.new_empty(len(h), 1).bernoulli_(0.5)
        return self.c(h)


class Layered(Base):
    def __init__(self):
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.2), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.c(self.drop(self.hidden(self.norm(x))))


@pytest.mark.parametrize("model", [Base, Drops, DropsPaths, Layered])
def test_a_small_model_that_only_drops_at_random_can_be_trained(model):
    class Plain(model):
        def forward(self, x):
            return super().forward(x) if model is not Base else self.c(self.hidden(x))

    c = radnet.compress(Plain().eval(), X)
    assert (c.network.a.out_features, c.certificate.limits) == (5, ())
    c.network.train()(X).sum().backward()


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (lambda x: torch.is_inference_mode_enabled(), "in inference mode"),
        (lambda x: x.is_inference(), "in inference mode"),
        (lambda x: torch.is_autocast_enabled("cpu"), "under autocast"),
        (lambda x: torch.is_grad_enabled(), "with gradients"),
    ],
)
def test_a_forward_that_does_something_else_under_a_setting_of_pytorch_is_refused(asks, said):
    class Asks(Base):
        def forward(self, x):
            h = self.hidden(x)
            return self.c(h.relu() if asks(x) else h)

    with pytest.raises(radnet.errors.InvalidValue, match=f"{said} its forward does something else"):
        radnet.compress(Asks().eval(), X)


def test_a_forward_that_asks_for_a_setting_and_does_the_same_is_not_refused():
    class Asks(Base):
        def forward(self, x):
            h = self.hidden(x)
            return self.c(h.float() if torch.is_autocast_enabled("cpu") else h)

    assert radnet.compress(Asks().eval(), X).network.a.out_features == 5


# --- ways that cannot be followed


class Tempered(Base):
    def forward(self, x, temperature=None):
        y = self.c(self.hidden(x))
        return y / temperature if temperature is not None and bool(temperature > 0.5) else y


class StopsEarly(Base):
    def forward(self, x, limit=None):
        h = self.hidden(x)
        if limit is not None and float(h.detach().norm()) > float(limit.sum()):
            h = h.relu()
        return self.c(h)


@pytest.mark.parametrize(("model", "later"), [(Tempered, X[:, 0] ** 2), (StopsEarly, torch.zeros(20, 4))])
def test_a_way_that_cannot_be_traced_is_refused_alone(model, later):
    """Nobody asked for it: the model is compressed for what was given."""
    original = model().eval()
    c = radnet.compress(original, X)
    assert c.network.a.out_features == 5
    torch.testing.assert_close(c.network(X), original(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(radnet.errors.InvalidValue, match="was not judged with such arguments"):
        c.network(X, later)


class Chosen(Base):
    def forward(self, x, layers=(1,)):
        h = self.hidden(x)
        return self.c(h.relu() if 0 in layers else h)


@pytest.mark.parametrize("given", [(X,), (X, [1]), (X, (2,))])
def test_places_in_a_list_are_varied(given):
    original = Chosen().eval()
    c = radnet.compress(original, given)
    for layers in ((0,), [0], [1], (0, 1)):
        try:
            found = c.network(X, layers)
        except radnet.errors.InvalidValue:
            continue
        torch.testing.assert_close(found, original(X, layers), rtol=1e-4, atol=1e-5)


# --- what is kept, and what is joined


class Slot:
    __slots__ = ("h",)


class Inherits(Slot):
    pass


@pytest.mark.parametrize("keeper", [set, Slot, Inherits])
def test_what_is_kept_in_sets_and_slots_is_an_output(keeper):
    class Keeps(Base):
        def __init__(self):
            super().__init__()
            self.keep = keeper()

        def forward(self, x):
            h = self.hidden(x)
            if keeper is set:
                self.keep.clear()
                self.keep.add(h)
            else:
                self.keep.h = h
            return self.c(h)

    original = Keeps().eval()
    small = radnet.compress(original, X).network
    original(X)
    small(X)
    kept = [next(iter(m.keep)) if keeper is set else m.keep.h for m in (original, small)]
    torch.testing.assert_close(*kept)


def test_an_empty_tensor_that_pytorch_leaves_out_of_a_concatenation_is_left_out():
    class Joins(Base):
        def forward(self, x):
            return self.c(torch.cat([torch.empty(0), self.hidden(x)], 1))

    original = Joins().eval()
    c = radnet.compress(original, X)
    assert c.network.a.out_features == 5
    torch.testing.assert_close(c.network(X), original(X), rtol=1e-4, atol=1e-5)


# --- numbers that say nothing, numbers that hide others


def test_models_that_give_nothing_but_nan_are_not_judged():
    class Nothing(Base):
        def forward(self, x):
            return self.c(self.hidden(x)) * torch.nan

    with pytest.raises(radnet.errors.InvalidValue, match="gives nothing but NaN and infinite values"):
        radnet.compress(Nothing().eval(), X)
    a, b = Nothing().eval(), Nothing().eval()
    found = radnet.verify(a, b, X)
    assert not found.lossless
    assert "gives no finite number" in str(found)


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.c, self.factor = nn.Linear(4, 4), factor
        nn.init.eye_(self.c.weight)
        nn.init.ones_(self.c.bias)

    def forward(self, x):
        y = self.c(x)
        return torch.cat([1e12 * y[:, :1], y[:, 1:] * self.factor], 1)


@pytest.mark.parametrize(("factor", "lossless"), [(1.0, True), (1 + 1e-4, False)])
def test_a_huge_entry_does_not_hide_what_stands_beside_it(factor, lossless):
    from radnet.compression.judging.judge import judge

    assert judge(Scaled(1.0).double(), Scaled(factor).double(), X.double()).lossless is lossless
    assert radnet.verify(Scaled(1.0).double(), Scaled(factor).double(), X.double()).lossless is lossless


def test_guards_look_at_compiled_calls_too():
    class Word(Base):
        def forward(self, x, how=None):
            h = self.hidden(x)
            return self.c(h.relu() if isinstance(how, str) else h)

    small = radnet.compress(Word().eval(), X).network
    compiled = torch.compile(small, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), small(X))
    with pytest.raises(Exception, match="was not judged with such arguments"):
        torch.compile(small, backend="eager")(X, "word")


# --- the same operations, other operands: what a fresh attack found


class Leak(Base):
    """The first entries of what is hidden where `turns` says so, of the input otherwise."""

    def forward(self, x, y=None):
        h = self.hidden(x)
        return self.c(h) + (h if self.turns(x, y) else x)[..., :1]


class WhileTraining(Leak):
    def turns(self, x, y):
        return self.training


class WithTargets(Leak):
    def turns(self, x, y):
        if self.training and y is None:
            raise ValueError("targets needed")
        return self.training


class Target:
    """What nobody thinks of giving."""


class WithOwnTargets(Leak):
    def turns(self, x, y):
        if self.training and not isinstance(y, Target):
            raise ValueError("targets needed")
        return self.training


class OnlyWithTargets(Leak):
    def turns(self, x, y):
        return self.training and y is not None


class Inner(nn.Module):
    def forward(self, h, x):
        return (h if self.training else x)[..., :1]


class OnlyAPart(Base):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, y=None):
        h = self.hidden(x)
        return self.c(h) + self.inner(h, x)


@pytest.mark.parametrize("model", [WhileTraining, WithTargets, WithOwnTargets, OnlyWithTargets, OnlyAPart])
def test_training_mode_is_refused_whatever_it_does_there(model):
    original = model().eval()
    c = radnet.compress(original, X)
    assert (c.network.a.out_features, c.certificate.limits) == (5, ("training mode",))
    small = c.network
    (small.inner if model is OnlyAPart else small).train()
    with pytest.raises(radnet.errors.InvalidValue, match="in training mode its forward does something else"):
        small(X, X)


def test_a_model_given_in_training_mode_is_followed_in_evaluation_mode_at_other_sizes_too():
    class Longer(Leak):
        def turns(self, x, y):
            return not self.training and x.shape[0] > 600

    original = Longer().train()
    small = radnet.compress(original, X).network
    x = normal(601, 4).float()
    try:
        found = small.eval()(x)
    except radnet.errors.InvalidValue:
        return
    torch.testing.assert_close(found, original.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (lambda x: torch.is_grad_enabled(), "with gradients"),
        (lambda x: x.requires_grad, "with gradients"),
        (lambda x: torch.is_inference_mode_enabled(), "in inference mode"),
        (lambda x: torch.is_autocast_enabled("cpu"), "under autocast"),
    ],
)
@pytest.mark.parametrize("optional", [False, True])
def test_settings_are_judged_by_what_comes_out_along_every_way(asks, said, optional):
    class Asks(Leak):
        def turns(self, x, y):
            return asks(x) and (y is not None or not optional)

    with pytest.raises(radnet.errors.InvalidValue, match=f"{said} its forward does something else"):
        radnet.compress(Asks().eval(), X)


class AfterSteps(Base):
    def __init__(self):
        super().__init__()
        self.warmup, self.limits = 1000, {"low": 1.5, "high": 80.0}

    def forward(self, x, step=5, sigma=1.0):
        h = self.hidden(x)
        return self.c(h) + (h if step > self.warmup or sigma > self.limits["high"] else x)[..., :1]


class AtMilestones(Base):
    milestones = frozenset({700, 2000})

    def forward(self, x, step=5):
        h = self.hidden(x)
        return self.c(h) + (h if step in self.milestones else x)[..., :1]


@pytest.mark.parametrize(
    ("model", "call"), [(AfterSteps, (X, 1001)), (AfterSteps, (X, 5, 90.0)), (AtMilestones, (X, 700))]
)
def test_numbers_are_compared_with_those_on_modules(model, call):
    original = model().eval()
    small = radnet.compress(original, X).network
    torch.testing.assert_close(small(*call), original(*call), rtol=1e-4, atol=1e-5)


def test_axes_that_forward_counts_are_refused_where_nobody_looked():
    class Counts(Base):
        def forward(self, x):
            h = self.hidden(x)
            return self.c(h.relu() if x.dim() == 5 else h)

    small = radnet.compress(Counts().eval(), X).network
    with pytest.raises(radnet.errors.InvalidValue, match="was compressed for inputs of 2 axes and got 5"):
        small(normal(2, 2, 2, 2, 4).float())


def test_numbers_of_numpy_and_sequences_of_numbers_are_of_one_kind():
    class Sized(Base):
        def forward(self, x, k=2, size=(1, 2)):
            return self.c(self.hidden(x)) * k + size[0]

    original = Sized().eval()
    small = radnet.compress(original, X).network
    assert small.a.out_features == 5
    for call in ((X, np.int64(3)), (X, 2, [3, 4]), (X, 2, torch.Size([3, 4])), (X, 2.5)):
        torch.testing.assert_close(small(*call), original(*call), rtol=1e-4, atol=1e-5)


def test_arguments_that_forward_does_not_look_at_may_be_anything():
    class Ignores(Base):
        def forward(self, x, use_cache=None, **kwargs):
            return self.c(self.hidden(x))

    original = Ignores().eval()
    small = radnet.compress(original, X).network
    assert torch.equal(small(X, use_cache="yes", step=3, other=[X]), small(X))


def test_the_order_of_keys_says_nothing():
    class Batch(Base):
        def forward(self, batch):
            return self.c(self.hidden(batch["x"])) * batch["m"].unsqueeze(-1)

    small = radnet.compress(Batch().eval(), ({"x": X, "m": torch.ones(20)},)).network
    assert torch.equal(small({"m": torch.ones(20), "x": X}), small({"x": X, "m": torch.ones(20)}))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple = ()


class Answer:
    def __init__(self, y):
        self.y = y


@pytest.mark.parametrize("give", [Output, Answer, lambda y: {"y": Answer(y)}, lambda y: [y, None, Output(y, (y, 3))]])
def test_outputs_of_any_class_are_followed_where_torch_export_has_to(give):
    class Gives(Base):
        def forward(self, x):
            if x.dim() == 1:
                x = x.unsqueeze(0)
            return give(self.c(self.hidden(x)))

    c = radnet.compress(Gives().eval(), X)
    assert (c.network.a.out_features, c.traced_by) == (5, "torch.export")


class Siamese(Base):
    def forward(self, x, y=None):
        return self.c(self.hidden(x)) if y is None else self.c(self.hidden(x)) - self.c(self.hidden(y))


class Folded(Base):
    def forward(self, xs):
        h = torch.zeros(len(xs[0]), 4)
        for x in xs:
            h = (h + self.hidden(x)[:, :4]).relu()
        return self.c(self.hidden(h))


class Chunked(Base):
    def forward(self, x):
        return torch.cat([self.c(self.hidden(part)) for part in x.split(4)])


@pytest.mark.parametrize("given", [(normal(9, 4).float(),), (normal(9, 4).float(), normal(9, 4).float())])
def test_a_model_for_one_tensor_or_two_shrinks_and_is_the_same_for_both(given):
    original = Siamese().eval()
    c = radnet.compress(original, given)
    assert c.network.a.out_features == 5
    x, y = normal(7, 4).float(), normal(7, 4).float()
    for args in ((x,), (x, y), (x, None)):
        torch.testing.assert_close(c.network(*args), original(*args), rtol=1e-5, atol=1e-6)


def test_another_number_of_tensors_in_a_list_is_the_same_or_refused():
    original = Folded().eval()
    c = radnet.compress(original, ([normal(9, 4).float() for _ in range(2)],))
    for count in (1, 2, 3, 5):
        xs = [normal(7, 4).float() for _ in range(count)]
        try:
            found = c.network(xs)
        except radnet.RadNetError:
            assert count != 2
        else:
            torch.testing.assert_close(found, original(xs), rtol=1e-5, atol=1e-6)


def test_the_report_says_which_layers_stay_because_of_a_loop():
    c = radnet.compress(Chunked().eval(), normal(9, 4).float())
    loops = [s for s in c.spaces if s.reason is radnet.compression.Reason.LOOP]
    assert [(s.space, s.before, s.after) for s in loops] == [("a", 32, 32), ("c", 3, 3)]
    assert "a is called in a loop whose length depends on the inputs" in c.report()


class Recurrent(Base):
    """Its layers are called in a loop that only some calls enter."""

    def __init__(self):
        super().__init__()
        self.r = nn.Linear(32, 32)

    def step(self, h, x):
        return self.rho(self.r(h) + self.a(x))


class Context(Recurrent):
    def forward(self, x, context=None):
        h = self.hidden(x.mean(1))
        for c in () if context is None else context.unbind(1):
            h = self.step(h, c)
        return self.c(h)


class State(Recurrent):
    def forward(self, x, state=None):
        if state is not None:
            return self.c(self.step(state, x[:, 0]))
        h = self.hidden(x[:, 0])
        for t in range(1, x.shape[1]):
            h = self.step(h, x[:, t])
        return self.c(h)


class Goal(Recurrent):
    def forward(self, x, goal=None, steps=1):
        h = self.hidden(x.mean(1))
        for _ in range(steps if goal is not None else 0):
            h = self.step(h, goal.mean(1))
        return self.c(h)


class Flagged(Recurrent):
    def forward(self, x, recurrent=False):
        h = self.hidden(x[:, 0])
        for t in range(1, x.shape[1] if recurrent else 1):
            h = self.step(h, x[:, t])
        return self.c(h)


def pictures(*shape):
    return normal(*shape, 4).float()


LOOPS = {
    Context: ((pictures(5, 2),), [{"context": pictures(7, n)} for n in (1, 2, 3, 8, 15)]),
    State: ((pictures(5, 2), normal(5, 32).float()), [{"state": None}]),
    Goal: ((pictures(5, 2),), [{"goal": pictures(7, 2), "steps": n} for n in (1, 2, 5, 7, 12)]),
    Flagged: ((pictures(5, 2),), [{"recurrent": True}]),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_along_another_way_is_a_loop(kind):
    original = kind().eval()
    given, options = LOOPS[kind]
    c = radnet.compress(original, given)
    for keywords in options:
        for length in (2, 3, 5, 9):
            x = pictures(7, length)
            try:
                found = c.network(x, **keywords)
            except radnet.RadNetError:
                continue
            torch.testing.assert_close(found, original(x, **keywords), rtol=1e-4, atol=1e-5)
    x = pictures(7, 3)
    found = [c.network(x, **keywords) for keywords in options]  # these are accepted
    assert len(found) == len(options)
