"""Models that keep what they have made: on themselves, on their class, in a module, in a function that remembers.

`compress` leaves such a cache as it was, and takes a model for a function if what it gives does not depend on one.
"""

import argparse
import collections
import contextlib
import copy
import functools
import threading
import types
import weakref

import pytest
import torch
from torch import nn

import radnet
from radnet import containers, surroundings
from trust_models import normal

X = normal(6, 6, 4)
TABLES = {}
LAZY = None


@functools.cache
def positions(n, width):
    return torch.sin(torch.arange(n, dtype=torch.float32)[:, None] * torch.arange(1, width + 1) / width)


def from_a_dictionary(n):
    if n not in TABLES:
        TABLES[n] = torch.linspace(0, 1, n)[:, None]
    return TABLES[n]


def from_a_global(n):
    global LAZY
    if LAZY is None or len(LAZY) < n:
        LAZY = torch.arange(float(n))[:, None]
    return LAZY[:n]


def from_a_default(n, made={}):  # noqa: B006
    if n not in made:
        made[n] = torch.linspace(0, 1, n)[:, None]
    return made[n]


class Base(nn.Module):
    table, made = {}, []

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.rho, self.mask = nn.Linear(4, 24), nn.Linear(24, 3), radnet.Squash(), None

    def forward(self, x):
        return self.b(self.rho(self.a(x))) * self.factor(x)


class Remembered(Base):
    def factor(self, x):
        return positions(x.shape[1], 3)


class OnTheClass(Base):
    def factor(self, x):
        n = x.shape[1]
        if n not in self.table:
            self.table[n] = torch.linspace(0, 1, n)[:, None]
            self.made.append(n)
        return self.table[n]


class InAModule(Base):
    def factor(self, x):
        return from_a_dictionary(x.shape[1])


class InAGlobal(Base):
    def factor(self, x):
        return from_a_global(x.shape[1])


class InADefault(Base):
    def factor(self, x):
        return from_a_default(x.shape[1])


class InAClosure(Base):
    def __init__(self):
        super().__init__()
        made = {}

        def factor(x):
            return made.setdefault(x.shape[1], torch.linspace(0, 1, x.shape[1])[:, None])

        self.factor = factor


@pytest.mark.parametrize("cls", [Remembered, OnTheClass, InAModule, InAGlobal, InADefault, InAClosure])
def test_a_cache_outside_of_the_model_is_as_it_was(cls):
    model = cls().eval()
    wanted = model(X)
    before = copy.copy(TABLES), copy.copy(Base.table), copy.copy(Base.made), LAZY
    assert radnet.compress(model, X).certificate.lossless
    assert before[0] == TABLES
    assert before[1] == Base.table
    assert before[2] == Base.made
    assert before[3] is LAZY
    assert torch.equal(model(X), wanted)
    for length in (5, 6, 7, 9, 13):
        assert model(normal(2, length, 4)).dtype == torch.float32


def test_a_function_of_another_meaning_is_looked_up_again(monkeypatch):
    model = Remembered().eval()
    assert radnet.compress(model, X).certificate.lossless

    @functools.cache
    def other(n, width):
        return torch.ones(n, width)

    monkeypatch.setitem(globals(), "positions", other)
    assert radnet.compress(model, X).certificate.lossless
    assert other.cache_info().currsize == 0


class Mask(Base):
    """Made at the first call and kept."""

    def forward(self, x):
        y, n = self.b(self.rho(self.a(x))), x.shape[1]
        if self.mask is None or len(self.mask) < n:
            self.mask = torch.ones(n, n).tril()
        return (self.mask[:n, :n].to(y.dtype) / n) @ y


class Statistics(Base):
    """Of the inputs of the first call."""

    def forward(self, x):
        if self.mask is None:
            self.mask = x.mean(0)
        return self.b(self.rho(self.a(x - self.mask)))


class StatisticsOnTheClass(Base):
    def forward(self, x):
        mean = self.table.setdefault("mean", x.mean((0, 1)))
        return self.b(self.rho(self.a(x - mean)))


class LongestSoFar(Base):
    """What it gives depends on the longest inputs there were."""

    def forward(self, x):
        if self.mask is None or len(self.mask) < x.shape[1]:
            self.mask = torch.linspace(0, 1, x.shape[1])[:, None]
        return self.b(self.rho(self.a(x))) * self.mask[: x.shape[1]]


class OtherLayersLater(Base):
    """The same function at every call, by other layers from the second one on."""

    def __init__(self):
        super().__init__()
        self.c = copy.deepcopy(self.b)

    def forward(self, x):
        last, self.mask = (self.b if self.mask is None else self.c), 1
        return last(self.rho(self.a(x)))


def test_a_mask_that_is_made_at_the_first_call_is_no_matter():
    model = Mask().eval()
    small = radnet.compress(model, X)
    assert small.certificate.lossless
    assert small.network.a.out_features == 5
    assert model.mask is None
    for x in (X, normal(2, 9, 4), X):
        torch.testing.assert_close(small.network(x), model(x))


@pytest.mark.parametrize("cls", [Statistics, StatisticsOnTheClass, LongestSoFar])
def test_what_depends_on_earlier_calls_is_refused(cls):
    with pytest.raises(radnet.RadNetError, match=f"^{cls.__name__}: what its forward does depends on what earlier"):
        radnet.compress(cls().eval(), X)
    assert Base.table.keys() <= {6, 5, 7, 9, 13}


def test_layers_that_only_later_calls_use_are_judged_as_well():
    with pytest.raises(radnet.RadNetError, match="when it is called again"):
        radnet.compress(OtherLayersLater().eval(), X)


def test_verify_sees_a_second_model_that_is_another_function_later():
    class Later(Base):
        def forward(self, x):
            self.mask = 1 if self.mask is None else self.mask + 1
            return self.b(self.rho(self.a(x))) + (1.0 if self.mask > 3 else 0.0)

    class Always(Base):
        def forward(self, x):
            return self.b(self.rho(self.a(x)))

    assert radnet.verify(Always().eval(), Always().eval(), X).lossless
    with pytest.raises(radnet.RadNetError, match="Later: what its forward does depends on what earlier calls left"):
        radnet.verify(Always().eval(), Later().eval(), X)


class Library:
    """Stands for a package of somebody's: a cache near its top, and a great deal behind it."""

    def __init__(self):
        self.deep = [[types.SimpleNamespace(entries=list(range(100)), more={}) for _ in range(100)] for _ in range(40)]
        self.near = {}


LIBRARY = Library()


class Behind(Base):
    def factor(self, x):
        return LIBRARY.near.setdefault(x.shape[1], torch.linspace(0, 1, x.shape[1])[:, None])


def test_what_is_near_is_put_back_and_little_is_looked_at_behind_it():
    model = Behind().eval()
    wanted = model(X)
    before = dict(LIBRARY.near)
    assert radnet.compress(model, X).certificate.lossless
    assert LIBRARY.near.keys() == before.keys()
    assert all(LIBRARY.near[n] is before[n] for n in before)
    assert torch.equal(model(X), wanted)
    held = containers.contents([LIBRARY], most=surroundings._MOST_OPENED)
    assert any(container is LIBRARY.near for container, _ in held)
    assert len(held) < 2 * surroundings._MOST_OPENED < sum(1 + 2 * len(part) for part in LIBRARY.deep) * 10


def test_the_asserts_of_pytest_lead_nowhere():
    def checked(x):
        assert x.shape == X.shape
        return linspace({}, len(x))

    assert any(name.startswith("@") for name in checked.__code__.co_names)  # pytest has rewritten it
    names = set(surroundings.names_in(checked.__code__))
    assert names >= {"X", "linspace", "shape"}
    assert not any(name.startswith("@") for name in names)


def linspace(held, n):
    """The table for n that something holds, made if it is not there."""
    if n not in held:
        held[n] = torch.linspace(0, 1, n)[:, None]
    return held[n]


def on_itself(n):
    return linspace(vars(on_itself).setdefault("memo", {}), n)


class Helper:
    def __init__(self):
        self.tables = {}

    def __call__(self, n):
        return linspace(self.tables, n)


class Slotted:
    __slots__ = ("tables",)

    def __init__(self):
        self.tables = {}


class Key:
    """What a weak dictionary is asked with."""


HELPER, SLOTTED, KEY = Helper(), Slotted(), Key()
PLAIN, LOCAL, NAMES = types.SimpleNamespace(tables={}), threading.local(), argparse.Namespace(tables={})
LOCAL.tables = {}
USERS, WEAK = collections.UserDict(), weakref.WeakKeyDictionary({KEY: {}})
HOLDERS = {
    "a function": (on_itself, lambda: vars(on_itself).get("memo", {})),
    "a callable object": (HELPER, lambda: HELPER.tables),
    "slots": (lambda n: linspace(SLOTTED.tables, n), lambda: SLOTTED.tables),
    "a namespace": (lambda n: linspace(PLAIN.tables, n), lambda: PLAIN.tables),
    "options": (lambda n: linspace(NAMES.tables, n), lambda: NAMES.tables),
    "a thread": (lambda n: linspace(LOCAL.tables, n), lambda: LOCAL.tables),
    "a dictionary of its own class": (lambda n: linspace(USERS, n), lambda: USERS),
    "a weak dictionary": (lambda n: linspace(WEAK[KEY], n), lambda: WEAK[KEY]),
}


@pytest.mark.parametrize("where", HOLDERS)
def test_whatever_holds_a_cache_is_as_it_was(where):
    table, held = HOLDERS[where]

    class Model(Base):
        def factor(self, x):
            return table(x.shape[1])

    model = Model().eval()
    model(X)
    before = dict(held())
    assert before
    assert radnet.compress(model, X).certificate.lossless
    assert {n: id(x) for n, x in held().items()} == {n: id(x) for n, x in before.items()}
    assert model(normal(2, 9, 4)).dtype == torch.float32


def test_large_tables_do_not_hide_a_cache_beside_them():
    class Model(Base):
        vocabulary = {f"token {k}": k for k in range(9_000)}  # noqa: RUF012
        words = {k: f"token {k}" for k in range(9_000)}  # noqa: RUF012
        merges = [(k, k + 1) for k in range(9_000)]  # noqa: RUF012
        tables = {}  # noqa: RUF012

        def factor(self, x):
            return linspace(self.tables, x.shape[1])

    model = Model().eval()
    assert radnet.compress(model, X).certificate.lossless
    assert Model.tables == {}
    assert model(X).dtype == torch.float32


def remembering():
    memo = None

    def get(n):
        nonlocal memo
        if memo is None or len(memo) < n:
            memo = torch.linspace(0, 1, n)[:, None]
        return memo[:n]

    return get


class Private:
    __slots__ = ("__tables",)

    def __init__(self):
        self.__tables = {}

    def get(self, n):
        return linspace(self.__tables, n)


class Meta(type):
    tables = {}  # noqa: RUF012


class Made(metaclass=Meta):
    @classmethod
    def get(cls, n):
        return linspace(type(cls).tables, n)


OPERATIONS, IN_OPERATIONS, PARTIAL = {}, {}, {}
OPERATIONS["table"] = lambda n: linspace(IN_OPERATIONS, n)
REMEMBERING, PRIVATE = remembering(), Private()


def kept(held, n):
    return linspace(held, n)


@pytest.mark.parametrize(
    "table",
    [
        lambda n: OPERATIONS["table"](n),
        lambda n: PRIVATE.get(n),
        lambda n: Made.get(n),
        functools.partial(kept, PARTIAL),
        functools.lru_cache(None)(lambda n: torch.linspace(0, 1, n)[:, None]),
    ],
    ids=["a table of functions", "private slots", "a metaclass", "a partial function", "a cache on the model"],
)
def test_whatever_leads_to_a_cache_is_followed(table):
    class Model(Base):
        def __init__(self):
            super().__init__()
            self.table = table

        def factor(self, x):
            return self.table(x.shape[1])

    model = Model().eval()
    assert radnet.compress(model, X).certificate.lossless
    for n in (6, 3, 9, 17, 64):
        out = model(normal(2, n, 4))
        assert (type(out), out.dtype) == (torch.Tensor, torch.float32)


def test_a_variable_around_a_function_is_as_it_was():
    class Model(Base):
        def factor(self, x):
            return REMEMBERING(x.shape[1])

    model = Model().eval()
    with contextlib.suppress(radnet.RadNetError):  # it depends on earlier calls, as far as anybody can tell
        radnet.compress(model, X)
    for n in (6, 3, 9, 17):
        out = model(normal(2, n, 4))
        assert (type(out), out.dtype) == (torch.Tensor, torch.float32)


class Guarded:
    """Does not let itself be looked at."""

    __slots__ = ("n",)

    def __init__(self):
        self.n = 2

    def __getattr__(self, name):
        raise RuntimeError(name)


class Frozen:
    __slots__ = ("n",)

    def __init__(self):
        object.__setattr__(self, "n", 2)

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Loud(dict):
    n = 2

    def __iter__(self):
        raise RuntimeError("no")


BY_TENSORS = {torch.ones(2): 1, torch.ones(2): 2}


@pytest.mark.parametrize("kind", [Guarded, Frozen, Loud])
def test_objects_that_do_not_let_themselves_be_looked_at_are_no_reason_to_refuse(kind):
    odd = kind()

    class Model(Base):
        def factor(self, x):
            return odd.n * len(BY_TENSORS)

    assert radnet.compress(Model().eval(), X).certificate.lossless
