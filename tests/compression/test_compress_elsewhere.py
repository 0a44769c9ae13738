"""The same function elsewhere: other numbers of axes, other arguments, deep chains; and nobody else is disturbed."""

import copy
import enum
import functools
import io
import pickle
import threading
from collections import deque

import pytest
import torch
from torch import nn

import radnet
from radnet.modes import Unseen
from radnet.running import in_float64


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def wide(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(
        *(layer() if callable(layer) and not isinstance(layer, nn.Module) else layer for layer in layers)
    )
    return model.double().eval()


class MeanOfRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(4, 64), radnet.Squash(), nn.Linear(64, 2)

    def forward(self, x):
        h = self.a(x)
        return self.b(self.rho(h + h.mean(1, keepdim=True)))


# --- numbers of axes

PICTURES = {
    "conv2d": lambda: (nn.Conv2d(2, 40, 3), radnet.Squash(dim=1), nn.Conv2d(40, 2, 1)),
    "conv1d and a pool": lambda: (nn.Conv1d(2, 40, 3), radnet.Squash(dim=1), nn.AvgPool1d(2), nn.Conv1d(40, 2, 1)),
    "transposed": lambda: (nn.ConvTranspose1d(2, 40, 2), radnet.RadialSigmoid(dim=1), nn.Conv1d(40, 2, 1)),
    "mean of rows": lambda: (MeanOfRows(),),
}


@pytest.mark.parametrize(
    ("name", "given", "other"),
    [
        ("conv2d", (8, 2, 6, 6), (2, 6, 6)),
        ("conv1d and a pool", (8, 2, 11), (2, 11)),
        ("transposed", (8, 2, 7), (2, 7)),
        ("mean of rows", (8, 5, 4), (3, 4)),
    ],
)
def test_inputs_with_fewer_axes_are_the_same_or_refused(name, given, other):
    torch.manual_seed(0)
    model = nn.Sequential(*PICTURES[name]()).double().eval()
    c = radnet.compress(model, normal(*given))
    assert c.certificate.lossless
    assert sum(p.numel() for p in c.network.parameters()) < sum(p.numel() for p in model.parameters())
    assert c.certificate.limits
    assert "refuses what it is not known to be the same for: one axis" in c.report()
    model(normal(*other))  # the original takes them
    for network in (c.network, copy.deepcopy(c.network), pickle.loads(pickle.dumps(c.network))):
        with pytest.raises(
            radnet.RadNetError, match=rf"was compressed for inputs of {len(given)} axes and got {len(other)}"
        ):
            network(normal(*other))
    x = normal(*given, seed=1)
    assert torch.allclose(c.network(x), model(x), rtol=0, atol=1e-12)
    assert torch.export.export(c.network, (x,)).module()(x).shape == model(x).shape


def test_an_unbatched_example_does_not_speak_for_batches():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), radnet.Squash(dim=0), nn.Linear(32, 2)).double()
    c = radnet.compress(model, normal(4))
    with pytest.raises(radnet.RadNetError, match="compressed for inputs of 1 axes and got 2"):
        c.network(normal(5, 4))


def test_where_the_number_of_axes_does_not_matter_nothing_is_refused():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 2)).double()
    c = radnet.compress(model, normal(6, 4))
    assert (c.certificate.limits, len(c.network._forward_pre_hooks)) == ((), 0)
    for shape in ((4,), (3, 4), (2, 3, 4), (2, 2, 3, 4)):
        assert torch.allclose(c.network(normal(*shape)), model(normal(*shape)), rtol=0, atol=1e-12)


# --- arguments


class Kind(enum.Enum):
    A = 1
    B = 2


class Options(nn.Module):
    """Does something pointwise if an argument says so, which a change of basis does not survive."""

    def __init__(self, decide):
        super().__init__()
        self.a, self.rho, self.b, self.decide = nn.Linear(4, 48), radnet.Squash(), nn.Linear(48, 2), decide

    def finish(self, h, pointwise):
        return self.b(self.rho(h.abs() if pointwise else h))

    def forward(self, x, option=None, **flags):
        h = self.a(x)
        if self.decide == "word" and option == "some-thing else":
            return self.b(self.rho(h.abs()))
        if self.decide == "number" and option is not None and option > 17:
            return self.b(self.rho(h.abs()))
        return self.finish(h, {
            "flag": lambda: bool(flags.get("pointwise")),
            "enum": lambda: option is Kind.B,
            "truth": lambda: option is True,
            "left out": lambda: option is None,
        }.get(self.decide, lambda: False)())  # fmt: skip


@pytest.mark.parametrize(
    ("decide", "given", "other"),
    [
        ("truth", (False,), {"option": True}),
        ("truth", (None,), {"option": True}),
        ("enum", (Kind.A,), {"option": Kind.B}),
        ("word", ("plain",), {"option": "some-thing else"}),
        ("word", (None,), {"option": "some-thing else"}),
        ("number", (1,), {"option": 18}),
        ("number", (1.0,), {"option": 18.0}),
        ("flag", (), {"pointwise": True}),
        ("left out", (normal(20, 4),), {}),
    ],
)
def test_arguments_that_are_given_are_varied_as_well(decide, given, other):
    torch.manual_seed(0)
    model, x = Options(decide).double().eval(), normal(20, 4)
    c = radnet.compress(model, (x, *given))
    assert torch.allclose(c.network(x, *given), model(x, *given), rtol=0, atol=1e-12)
    assert torch.allclose(c.network(x, **other), model(x, **other), rtol=0, atol=1e-12)


class Talkative(Options):
    """Has many words, of which forward compares an argument with the last."""

    def words(self):
        return ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p")

    def forward(self, x, option="plain"):
        return self.finish(self.a(x), option == "another word")


def test_the_words_of_forward_come_before_those_of_other_methods():
    torch.manual_seed(0)
    model, x = Talkative("").double().eval(), normal(20, 4)
    c = radnet.compress(model, (x, "plain"))
    assert torch.allclose(c.network(x, "another word"), model(x, "another word"), rtol=0, atol=1e-12)


class Chooses(nn.Module):
    """4 -> 48 -> 2, which compresses to 5; what it does in between is for the classes below to say."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(4, 48), radnet.Squash(), nn.Linear(48, 2)


class Word(Chooses):
    def forward(self, x, output="logits"):
        h = self.rho(self.a(x))
        return self.b(torch.relu(h)) if output == "positive" else self.b(h)


class Inherits(Word):
    pass


def keeps_nothing(function):
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


class Decorated(Chooses):
    forward = torch.no_grad()(Word.forward)


class DecoratedTwice(Chooses):
    @functools.wraps(Word.forward)
    def forward(self, x, output="logits"):
        return keeps_nothing(torch.no_grad()(Word.forward))(self, x, output)


def positive_if(h, output):
    return positive_too(h, output)


def positive_too(h, output):
    return torch.relu(h) if output in ("positive",) else h


class Helper(Chooses):
    def forward(self, x, output="logits"):
        return self.b(positive_if(self.rho(self.a(x)), output))


class Static(Chooses):
    @staticmethod
    def pick(h, output):
        return torch.relu(h) if output == "positive" else h

    @property
    def plain(self):
        return lambda output: output != "abs" + "olute"

    @classmethod
    def picks(cls, h, output):
        return cls.pick(h, output)

    def forward(self, x, output="logits"):
        h = self.picks(self.rho(self.a(x)), output)
        return self.b(h if self.plain(output) else h.abs())


INFINITE, HUGE, UNKNOWN = float("inf"), 10**400, float("nan")
POSITIVE, CHOICES = "positive", {"positive": torch.relu, "absolute": torch.abs}


class Global(Chooses):
    def forward(self, x, output="logits", most=1.0, count=2):
        h = self.rho(self.a(x)) * float(most not in (INFINITE, UNKNOWN) and count != HUGE)
        return self.b(torch.relu(h)) if output == POSITIVE else self.b(h)


class Table(Chooses):
    def forward(self, x, output="logits"):
        h = self.rho(self.a(x))
        return self.b(CHOICES[output](h) if output in CHOICES else h)


class Callable:
    def __call__(self, h, output):
        return torch.relu(h) if output == "positive" else h


class Object(Chooses):
    def __init__(self):
        super().__init__()
        self.pick = Callable()

    def forward(self, x, output="logits"):
        return self.b(self.pick(self.rho(self.a(x)), output))


def is_kept(model, given, *args, **kwargs):
    """Whether the small model is the original, at the given and at the other arguments."""
    model = model.double().eval()
    c = radnet.compress(model, given)
    pairs = [(c.network(*given), model(*given)), (c.network(*args, **kwargs), model(*args, **kwargs))]
    return all(torch.allclose(small, large, rtol=0, atol=1e-12) for small, large in pairs)


@pytest.mark.parametrize(
    "cls", [Word, Inherits, Decorated, DecoratedTwice, Helper, Static, Global, Table, Object], ids=lambda c: c.__name__
)
def test_words_are_read_from_all_code_that_forward_may_run(cls):
    torch.manual_seed(0)
    x = normal(20, 4)
    for word in ("positive", "absolute"):
        assert is_kept(cls(), (x,), x, output=word)


class Adds(Chooses):
    """Adds to what it computes what an argument that is left out stands for."""

    def __init__(self, more):
        super().__init__()
        self.more, self.table, self.i = more, nn.Embedding(10, 48), nn.Linear(4, 48)

    def forward(self, x, extra=None):
        h = self.a(x)
        return self.b(self.rho(h if extra is None else h + self.more(self, extra)))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.t, self.rho, self.b = nn.Embedding(12, 48), nn.Embedding(2, 48), radnet.Squash(), nn.Linear(48, 2)

    def forward(self, x, extra=None):
        h = self.e(x)
        return self.b(self.rho(h if extra is None else h + self.t(extra)))


LABELS = torch.arange(20) % 10


@pytest.mark.parametrize(
    ("more", "extra"),
    [
        (lambda self, y: self.table(y), LABELS),
        (lambda self, y: self.table(y), torch.tensor(7)),
        (lambda self, y: nn.functional.one_hot(y, 48).double(), LABELS),
        (lambda self, y: (lambda u, v: self.i(u) + self.i(v))(*y), (normal(20, 4), normal(20, 4, seed=1))),
        (lambda self, y: sum(self.i(v) for v in y.values()), {"u": normal(20, 4)}),
        (lambda self, y: self.i(y["u"]), {"u": normal(20, 4)}),
    ],
    ids=["labels", "one label", "one hot", "pair", "dict", "key"],
)
def test_an_argument_that_is_left_out_may_be_indices_a_pair_or_a_dictionary(more, extra):
    torch.manual_seed(0)
    x = normal(20, 4)
    assert is_kept(Adds(more), (x,), x, extra=extra)


def test_indices_that_are_left_out_may_be_one_for_each_position():
    torch.manual_seed(0)
    ids = torch.arange(30).reshape(6, 5) % 12
    assert is_kept(Tokens(), (ids,), ids, extra=torch.ones_like(ids))


class Routes(Chooses):
    """Takes one of several ways, by its name or its place."""

    def __init__(self, acts, then="radial"):
        super().__init__()
        self.acts, self.then = acts, then

    def forward(self, x, act=None):
        h = self.rho(self.a(x))
        return self.b(self.acts[self.then if act is None else act](h))


class Words(Routes):
    def forward(self, x, act="radial"):
        return super().forward(x, act)


class Places(Routes):
    def forward(self, x, act=0):
        return super().forward(x, act)


class Modalities(Chooses):
    def __init__(self):
        super().__init__()
        self.adapters = nn.ModuleDict({"t": nn.Linear(1, 48), "u": nn.Linear(3, 48)})

    def forward(self, x, **modalities):
        h = self.a(x)
        for name, v in modalities.items():
            h = h + self.adapters[name](v)
        return self.b(self.rho(h))


class Batch(Chooses):
    def __init__(self):
        super().__init__()
        self.cond = nn.Linear(5, 48)

    def forward(self, batch):
        h = self.a(batch["x"])
        if "cond" in batch:
            h = h + self.cond(batch["cond"])
        return self.b(self.rho(h.abs() if batch.get("mode") == "positive" else h))


X = normal(20, 4)
NAMED = {"radial": nn.Identity(), "pointwise": nn.ReLU()}


@pytest.mark.parametrize(
    ("make", "given", "args", "kwargs"),
    [
        (lambda: Words(nn.ModuleDict(NAMED)), (X,), (X, "pointwise"), {}),
        (lambda: Words(nn.ModuleDict(NAMED)), (X, "radial"), (X, "pointwise"), {}),
        (lambda: Routes(nn.ModuleDict(NAMED)), (X,), (X, "pointwise"), {}),
        (lambda: Words({"radial": torch.neg, "pointwise": torch.relu}), (X,), (X, "pointwise"), {}),
        (lambda: Places(nn.ModuleList([*[nn.Identity()] * 12, nn.ReLU()])), (X,), (X, 12), {}),
        (lambda: Places([*[torch.neg] * 12, torch.relu]), (X,), (X, 12), {}),
        (Modalities, (X,), (X,), {"u": normal(20, 3)}),
        (Batch, ({"x": X},), ({"x": X, "cond": normal(20, 5)},), {}),
        (Batch, ({"x": X, "cond": normal(20, 5)},), ({"x": X},), {}),
        (Batch, ({"x": X, "mode": "plain"},), ({"x": X, "mode": "positive"},), {}),
    ],
)
def test_the_names_and_places_by_which_a_model_routes_are_tried(make, given, args, kwargs):
    torch.manual_seed(0)
    assert is_kept(make(), given, *args, **kwargs)


class Film(Chooses):
    def __init__(self):
        super().__init__()
        self.g = nn.Linear(6, 48)

    def forward(self, x, cond=None, film=False):
        h = self.a(x)
        return self.b(self.rho(h * self.g(cond) if film else h))


class Flags(Chooses):
    def forward(self, x, hidden=False, positive=False):
        h = self.rho(self.a(x))
        return self.b(torch.relu(h) if hidden and positive else h)


class WordAndFlag(Chooses):
    def forward(self, x, output="logits", raw=False):
        h = self.rho(self.a(x))
        return self.b(h.abs() if raw and output == "positive" else h)


@pytest.mark.parametrize(
    ("cls", "other"),
    [
        (Film, {"cond": normal(20, 6), "film": True}),
        (Flags, {"hidden": True, "positive": True}),
        (WordAndFlag, {"output": "positive", "raw": True}),
    ],
)
def test_two_arguments_are_varied_together(cls, other):
    torch.manual_seed(0)
    assert is_kept(cls(), (X,), X, **other)


SEEN = io.StringIO()  # the rows of every run; a container would be put back after each


class Unread(Chooses):
    def forward(self, x, a=None, b=None, c=None, scale=1.0, steps=3, mode="x"):
        if type(x) is torch.Tensor:
            SEEN.write(f"{len(x)} ")
        return self.b(self.rho(self.a(x))) * scale


class Plain(Chooses):
    def forward(self, x, scale=1.0):
        if type(x) is torch.Tensor:
            SEEN.write(f"{len(x)} ")
        return self.b(self.rho(self.a(x))) * scale


class Much(Chooses):
    """A thousand positions for each row, and arguments that it reads."""

    def forward(self, x, a=None, b=None, c=None):
        if type(x) is torch.Tensor:
            SEEN.write(f"{len(x)} ")
        h = self.a(x)[:, None].expand(-1, 1000, -1)
        return self.b(self.rho(h + sum(float(v is True) for v in (a, b, c))))


def rows_seen(cls, x):
    torch.manual_seed(0)
    SEEN.seek(0)
    SEEN.truncate()
    assert radnet.compress(cls().double().eval(), x).certificate.lossless
    return [int(rows) for rows in SEEN.getvalue().split()]


def test_arguments_that_forward_does_not_read_cost_nothing():
    assert len(rows_seen(Unread, X)) < len(rows_seen(Plain, X)) + 10


def test_a_row_that_is_dear_stays_alone_and_its_arguments_are_varied_within_bounds():
    assert max(rows_seen(Plain, X[:1])) >= 127
    seen = rows_seen(Much, X[:1])
    assert max(seen) <= 9
    assert sum(seen) < 200


class Rows(nn.Module):
    """Another function for one number of rows."""

    def __init__(self, number, above):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(4, 48), radnet.Squash(), nn.Linear(48, 2)
        self.rows = (lambda n: n > 1300) if above else (lambda n: n == 77)

    def forward(self, x):
        h = self.a(x)
        if (x.shape[0] > 1300) if self.rows(10**6) else (len(x) == 77):
            h = h.abs()
        return self.b(self.rho(h))


@pytest.mark.parametrize(("above", "rows"), [(True, 1301), (False, 77)])
def test_numbers_in_the_code_of_a_model_are_tried_as_numbers_of_rows(above, rows):
    torch.manual_seed(0)
    model = Rows(rows, above).double().eval()
    c = radnet.compress(model, normal(10, 4))
    assert torch.allclose(c.network(normal(rows, 4)), model(normal(rows, 4)), rtol=0, atol=1e-12)


WINDOW = 2000


class Config:
    def __init__(self, patch):
        self.patch = patch


class Lengths(Chooses):
    """Another function for some lengths, by a number that is not in the code of its forward."""

    window = 300

    def __init__(self, asks):
        super().__init__()
        self.asks, self.patch, self.config = asks, 16, Config(44)

    def forward(self, x):
        h = self.rho(self.a(x))
        return self.b(torch.relu(h) if self.asks(self, x.shape[1]) else h)


@pytest.mark.parametrize(
    ("asks", "lengths"),
    [
        (lambda self, n: n % self.patch == 0, (16, 32)),
        (lambda self, n: n == self.config.patch, (44,)),
        (lambda self, n: n == 2 * self.patch, (32,)),
        (lambda self, n: n == self.window + 1, (301,)),
        (lambda self, n: n > WINDOW, (2001,)),
    ],
    ids=["attribute", "config", "twice", "class", "global"],
)
def test_numbers_on_modules_and_among_globals_are_tried_as_lengths(asks, lengths):
    torch.manual_seed(0)
    for n in lengths:
        assert is_kept(Lengths(asks), (normal(6, 7, 4),), normal(2, n, 4))


# --- depth


@pytest.mark.parametrize("depth", [20, 60])
def test_a_deep_chain_has_the_widths_of_the_paper_whoever_builds_it(depth):
    net = radnet.RadNet((4, *[32] * depth, 2), "squash", generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in net.layers:
            layer.bias.normal_(std=0.3)
    parts = [part for pair in zip(net.layers, net.rescalings, strict=True) for part in pair]
    c = radnet.compress(nn.Sequential(*parts), torch.randn(32, 4))
    assert [space.after for space in c.spaces] == list(radnet.reduced_widths(net.widths)[1:])


# --- verify


class Embedded(nn.Module):
    """Tokens of given norms through Step-ReLU, the output one for each position of a sequence, or one number."""

    def __init__(self, norms, finish, off=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.rho, self.head = nn.Embedding(len(norms), 4), radnet.StepReLU(), nn.Linear(4, 3)
        self.finish, self.off = finish, off
        with torch.no_grad():
            self.table.weight.copy_(nn.functional.normalize(torch.randn(len(norms), 4)) * torch.tensor(norms)[:, None])

    def forward(self, tokens):
        return self.finish(self.head(self.rho(self.table(tokens))) + self.off)


@pytest.mark.parametrize(
    "finish", [lambda y: y.transpose(0, 1), lambda y: y.mean()], ids=["sequence first", "a number"]
)
def test_outputs_that_have_other_rows_are_judged_though_a_row_is_at_a_jump(finish):
    norms = [1.0, *[2.0 + 0.1 * k for k in range(9)]]
    a, b = Embedded(norms, finish), Embedded(norms, finish, off=100.0)
    tokens = torch.arange(10).repeat(3).reshape(10, 3)
    assert radnet.verify(a, copy.deepcopy(a), tokens).lossless
    assert not radnet.verify(a, b, tokens).lossless


def test_where_every_row_is_at_a_jump_most_have_to_agree_and_none_may_be_far_off():
    norms = [1 + 2e-7] * 10
    a = Embedded(norms, lambda y: y)
    tokens = torch.arange(100).reshape(100, 1) % 10
    assert radnet.verify(a, copy.deepcopy(a), tokens).lossless
    for wrong, share, passes in ((0.3, 0.2, True), (1e6, 0.1, False), (30.0, 0.1, False), (0.3, 0.4, False)):
        finish = lambda y, wrong=wrong, share=share: y + wrong * (torch.arange(len(y)) < share * len(y))[:, None, None]  # noqa: E731
        assert radnet.verify(a, Embedded(norms, finish), tokens).lossless is passes


def at_a_jump(rows):
    """Rows of norms from 2 to 3, but for the first, which is at the jump of Step-ReLU."""
    norms = torch.cat([torch.ones(1), torch.linspace(2, 3, rows - 1)]).double()
    return nn.functional.normalize(normal(rows, 4)) * norms[:, None]


class Averaged(nn.Module):
    """A number for all rows together; where rows are long, it may be off; it may insist on ten rows."""

    def __init__(self, off=0.0, ten_rows=False):
        super().__init__()
        self.rho, self.off, self.ten_rows = radnet.StepReLU(), off, ten_rows
        self.head = nn.Linear(4, 3, dtype=torch.float64)
        nn.init.ones_(self.head.weight)

    def forward(self, x):
        if self.ten_rows and len(x) != 10:
            raise ValueError("ten rows are needed")
        y = self.head(self.rho(x))
        return y, (y + self.off * (x.norm(dim=1, keepdim=True) > 1.8)).mean()


def test_rows_away_from_jumps_are_judged_together_too():
    x = at_a_jump(10)
    a = Averaged()
    b = Averaged(off=1e-3)
    b.head = a.head
    assert radnet.verify(a, copy.deepcopy(a), x).lossless
    found = radnet.verify(a, b, x)
    assert not found.lossless
    assert "output[1] differs at the rows away from jumps" in found.failures[0]


def test_an_output_that_was_never_judged_is_no_equal_one():
    x = at_a_jump(10)
    a = Averaged(ten_rows=True)
    found = radnet.verify(a, copy.deepcopy(a), x)
    assert not found.lossless
    assert found.failures == ("output[1] was never judged: a row was at a jump of an activation each time",)
    x[0] *= 2
    assert radnet.verify(a, copy.deepcopy(a), x).lossless


def test_an_output_without_rows_has_nothing_to_be_judged():
    a = Gives(lambda y: y[:0], 1.0)
    assert radnet.verify(a, copy.deepcopy(a), torch.randn(6, 3)).lossless


def test_while_weights_are_not_rounded_no_row_at_a_jump_is_judged():
    model = Embedded([1.0] * 4, lambda y: y).double()
    with torch.no_grad():
        model.table.weight.copy_(torch.eye(4))
    with pytest.raises(radnet.RadNetError, match="every input lies at a jump of an activation"):
        radnet.compress(model, torch.arange(12).reshape(12, 1) % 4)


class Holder:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Gives(nn.Module):
    def __init__(self, put, factor):
        super().__init__()
        self.layer, self.put, self.factor = nn.Linear(3, 3), put, factor
        nn.init.ones_(self.layer.weight)

    def forward(self, x):
        return x, self.put(self.factor * self.layer(x))


@pytest.mark.parametrize(
    "put", [lambda y: deque([y]), Holder, lambda y: Holder([y]), lambda y: complex(float(y.sum()), 1.0)]
)
def test_outputs_are_compared_wherever_they_are_held(put):
    x = torch.randn(6, 3)
    a, b = (copy.deepcopy(Gives(put, factor)) for factor in (1.0, -2.0))
    b.layer = a.layer
    assert radnet.verify(a, copy.deepcopy(a), x).lossless
    assert not radnet.verify(a, b, x).lossless


@pytest.mark.parametrize("put", [lambda y: iter([y]), lambda y: [[[[[[[[y]]]]]]]]])
def test_outputs_that_cannot_be_opened_are_said_to_be_so(put):
    a = Gives(put, 1.0)
    with pytest.raises(radnet.RadNetError, match="which cannot be opened; return lists, tuples or dictionaries"):
        radnet.verify(a, copy.deepcopy(a), torch.randn(6, 3))


# --- nobody else is disturbed


class InPlace(nn.Module):
    """Normalises its input in place; if told, it takes no other dtype than its own."""

    def __init__(self, insists):
        super().__init__()
        self.a, self.rho, self.b, self.insists = nn.Linear(3, 24), radnet.Squash(), nn.Linear(24, 2), insists

    def forward(self, x):
        if self.insists and self.a.weight.dtype != torch.float32:
            raise TypeError("float32 it has to be")
        return self.b(self.rho(self.a(x.sub_(0.5).div_(0.25))))


@pytest.mark.parametrize(("dtype", "insists"), [(torch.float32, False), (torch.float64, False), (torch.float32, True)])
def test_a_model_that_normalises_its_input_in_place_gets_copies(dtype, insists):
    model, x = InPlace(insists).to(dtype).eval(), normal(4, 3).to(dtype)
    c = radnet.compress(model, x)
    assert c.certificate.judged_in == ("float32" if insists else "float64")
    assert c.network.a.out_features == 4
    if not insists:
        in_float64(model)(x)
    assert torch.equal(x, normal(4, 3).to(dtype))


def test_random_numbers_that_another_thread_draws_are_its_own():
    model, x = wide(nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 2)), normal(16, 4)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            radnet.compress(model, x)
            radnet.verify(model, model, x)

    before = torch.get_rng_state()
    thread = threading.Thread(target=work)
    try:
        torch.manual_seed(5)
        alone = torch.cat([torch.rand(1) for _ in range(400)])
        torch.manual_seed(5)
        thread.start()
        beside = torch.cat([torch.rand(1) for _ in range(400) if not stop.wait(0.005)])
    finally:
        stop.set()
        thread.join()
        torch.set_rng_state(before)
    assert torch.equal(alone, beside)


def test_a_model_that_draws_is_refused_and_changes_no_generator():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[1].forward = lambda x: nn.functional.dropout(x, 0.5, True)
    before = torch.get_rng_state()
    with pytest.raises(radnet.RadNetError, match="its forward draws random numbers"):
        radnet.compress(model.eval(), torch.ones(4, 4))
    assert torch.equal(torch.get_rng_state(), before)


def test_who_draws_from_a_generator_of_its_own_leaves_that_of_all_alone(monkeypatch):
    wound = []
    monkeypatch.setattr(torch, "set_rng_state", wound.append)
    with Unseen():
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(0))
        assert wound == []
        torch.rand(3)
    assert len(wound) == 2  # to ours, and back
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(0)))
