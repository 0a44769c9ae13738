"""Shapes are part of the signature: every annotated function is wrapped by jaxtyping and beartype, here only."""

import importlib
import inspect
import pkgutil
import sys
import types
import typing

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from torch import nn

import radnet
from known_models import normal
from radnet import linalg
from radnet.compression import bounds, chain, operations, spaces
from radnet.compression.bounds import lengths
from radnet.compression.spaces import bases, growing, layouts, ranks, spans
from radnet.compression.spaces.ranks import Columns
from radnet.compression.spaces.spans import AffineSet, Part

REFUSED = (jaxtyping.TypeCheckError, BeartypeCallHintViolation)


def checked(function, owner=None):
    """A copy of a function, or of a method of a class, with its annotations enforced."""
    module = sys.modules[(owner or function).__module__]
    names = {**vars(jaxtyping), **function.__globals__, **vars(module)}
    twin = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__, twin.__module__ = function.__kwdefaults__, module.__name__
    twin.__qualname__ = function.__name__ if owner is None else f"{owner.__name__}.{function.__name__}"
    twin.__annotations__ = typing.get_type_hints(function, globalns=names, include_extras=True)
    return jaxtyping.jaxtyped(typechecker=beartype)(twin)


def annotations(function):
    """What stands in the signature, as text."""
    return {name: getattr(a, "__forward_arg__", str(a)) for name, a in function.__annotations__.items()}


def states_shapes(function):
    return inspect.isfunction(function) and any("Float[" in a for a in annotations(function).values())


A, Q = torch.randn(5, 3, dtype=torch.float64), torch.linalg.qr(torch.randn(5, 3, dtype=torch.float64)).Q
R = torch.randn(3, 3, dtype=torch.float64)

CALLS = [
    (linalg.complete_basis, (Q,), (Q[0],)),
    (linalg.pad, (A, 6, 4), (A[0], 6, 4)),
    (linalg.matmul64, (A, R), (A, A)),
    (linalg.factorization_ratio, (A, Q, R), (A, Q, A)),
    (linalg.orthogonality_ratio, (Q,), (Q[0],)),
    (linalg.signed_qr, (A,), (A[0],)),
    (chain._split, (A, True), (A[0], True)),
    (ranks._qr, (A,), (A[0],)),
    (ranks.basis_of, (A,), (A[0],)),
    (ranks.mixed, (Columns(A, None), Q), (Columns(A, None), Q[0])),
    (spans._in_rows, (A, 7, slice(1, 6)), (A[0], 7, slice(1, 6))),
    (bases.range_growth, (Q,), (Q[0],)),
    (growing._extended, (Q[:, :1], R, Q), (Q[:, :1], A, Q)),
    (growing._needed, (Q, A), (Q, R)),
    (lengths.spectral_norm, (A,), (A[0],)),
    (lengths.beyond_the_edge, (nn.Conv1d(3, 2, 3, padding=1), (4,), A[0]), (nn.Conv1d(3, 2, 3), (4,), A)),
]

SET = AffineSet(3, A[0], {"x": R})
ALL = (0, slice(0, 5), None)  # a stretch of the first space that does not change
RUN = layouts.Run(*ALL)
METHODS = [
    (Columns, "__new__", (Columns, A, A.abs()), (Columns, A, R)),
    (Part, "__init__", (Part(5), 5, A, 0, 1.0, A.abs(), Q), (Part(5), 5, A, 0, 1.0, R)),
    (layouts.Run, "__init__", (RUN, *ALL, None, True, 0.0, A[0]), (RUN, *ALL, None, True, 0.0, A)),
    (AffineSet, "__init__", (AffineSet(3), 3, A[0], {}, A[0].abs()), (AffineSet(3), 3, A[0], {}, A[:, 0])),
    (AffineSet, "mapped", (SET, torch.cat([A, A], dim=1), A[:, 0], 2), (SET, A, A[:, 0], 2)),
    (AffineSet, "mapped", (SET, A, A[:, 0]), (SET, A, A[0])),
]


def refuses(strict, *args, **keywords):
    with pytest.raises(REFUSED, match=rf"parameters of {strict.__module__}\.{strict.__qualname__}\b"):
        strict(*args, **keywords)


@pytest.mark.parametrize(("function", "good", "bad"), CALLS, ids=lambda x: getattr(x, "__name__", ""))
def test_the_shapes_in_the_signature_are_true_and_enforced(function, good, bad):
    strict = checked(function)
    strict(*good)
    refuses(strict, *bad)


@pytest.mark.parametrize(("owner", "name", "good", "bad"), METHODS, ids=lambda x: getattr(x, "__name__", None))
def test_the_shapes_in_the_signatures_of_a_class_are_true_and_enforced(owner, name, good, bad):
    strict = checked(getattr(owner, name), owner)
    strict(*good)
    refuses(strict, *bad)


def test_every_function_of_the_linear_algebra_states_its_shapes():
    stated = {name for name, f in vars(linalg).items() if states_shapes(f)}
    assert stated >= {f.__name__ for f, _, _ in CALLS if f.__module__ == "radnet.linalg"} | {"haar_orthogonal"}


def annotated():
    """Every function of spaces, bounds and operations that states a shape, by its module or class and its name."""
    found = {}
    for folder in (spaces, bounds, operations):
        for file in pkgutil.iter_modules(folder.__path__):
            module = importlib.import_module(f"{folder.__name__}.{file.name}")
            own = {name: x for name, x in vars(module).items() if getattr(x, "__module__", None) == module.__name__}
            found |= {(module, name): x for name, x in own.items() if states_shapes(x)}
            for cls in (x for x in own.values() if isinstance(x, type)):
                for name, member in vars(cls).items():
                    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                    if states_shapes(function):
                        found[cls, name] = function
    return found


STATED = annotated()


@pytest.fixture
def calls(monkeypatch):
    """Puts the checked functions into their places; the first call of each, by its place and name.

    Where the shape of what is returned is stated, the first call that returned something.
    """
    first = {}

    def recorded(strict, where):
        returns = "Float[" in annotations(STATED[where]).get("return", "")

        def call(*args, **keywords):
            result = strict(*args, **keywords)
            if result is not None or not returns:
                first.setdefault(where, (strict, args, keywords))
            return result

        return call

    package = [module for name, module in sys.modules.items() if name.partition(".")[0] == "radnet"]
    for (place, name), function in STATED.items():
        if isinstance(place, type):
            member = inspect.getattr_static(place, name)
            kind = type(member) if isinstance(member, property | staticmethod | classmethod) else lambda f: f
            monkeypatch.setattr(place, name, kind(recorded(checked(function, place), (place, name))))
            continue
        call = recorded(checked(function), (place, name))
        for module in package:
            if vars(module).get(name) is function:
                monkeypatch.setattr(module, name, call)
    return first


class Many(nn.Module):
    """Words and pictures, and most of the operations that have tensors."""

    def __init__(self):
        super().__init__()
        self.table, self.token = nn.Embedding(3, 16), nn.Parameter(torch.randn(1, 16))
        self.up, self.down, self.rho = nn.Linear(16, 24), nn.Linear(24, 16), radnet.Squash()
        self.first, self.norm = nn.Linear(16, 8), nn.LayerNorm(8)
        self.read, self.last = nn.Linear(8, 12), nn.Linear(12, 2)
        self.see, self.paint = nn.Conv2d(1, 12, 3, padding=1), nn.ConvTranspose2d(12, 12, 2)
        self.again, self.channels = nn.Conv2d(12, 12, 3, padding=1), radnet.Squash(dim=1)
        self.flat = nn.Linear(12 * 25, 2)

    def forward(self, words, picture):
        x = self.table(words) + self.token
        x = x + self.down(self.rho(self.up(x)))
        x = self.norm(self.first(x))
        y = self.see(picture)
        y = self.channels(self.paint(self.channels(y + self.again(y))))
        return self.last(self.rho(self.read(x))), torch.tanh(x), self.flat(y.flatten(1))


def test_the_shapes_of_spaces_bounds_and_operations_are_true_in_a_compression_and_enforced(calls):
    torch.manual_seed(0)
    model, inputs = Many().double().eval(), (torch.tensor([[0, 1], [2, 0], [1, 1]]), normal(3, 1, 4, 4))
    exact, coarse = (radnet.compress(model, inputs, **how) for how in ({"rewrite": True}, {"tol": 0.3}))
    assert exact.certificate.lossless
    assert "multiply-adds" in exact.report()
    assert sum(space.after for space in coarse.spaces) < sum(space.after for space in exact.spaces)
    assert torch.equal(SET.columns, torch.cat([A[:1].mT, SET.directions], dim=1))
    by_hand = {(sys.modules[function.__module__], function.__name__) for function, _, _ in CALLS}
    assert set(STATED) - set(calls) <= by_hand
    assert len(calls) > 40
    for place, (strict, args, keywords) in calls.items():
        for name, text in annotations(STATED[place]).items():
            if name != "return" and text.startswith("Float["):
                call = inspect.signature(strict).bind(*args, **keywords)
                call.arguments[name] = torch.zeros((), dtype=torch.float64)
                refuses(strict, *call.args, **call.kwargs)
