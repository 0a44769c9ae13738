"""Shapes are part of the signature: every annotated function is wrapped by jaxtyping and beartype, here only."""

import inspect
import types
import typing

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation

from radnet import linalg
from radnet.compression import chain


def checked(function):
    """A copy of the function with its annotations enforced."""
    names = {**vars(jaxtyping), **function.__globals__}
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    twin.__annotations__ = typing.get_type_hints(function, globalns=names, include_extras=True)
    return jaxtyping.jaxtyped(typechecker=beartype)(twin)


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
]


@pytest.mark.parametrize(("function", "good", "bad"), CALLS, ids=lambda x: getattr(x, "__name__", ""))
def test_the_shapes_in_the_signature_are_true_and_enforced(function, good, bad):
    strict = checked(function)
    strict(*good)
    refused = (jaxtyping.TypeCheckError, BeartypeCallHintViolation)
    with pytest.raises(refused, match=rf"parameters of {function.__module__}\.{function.__name__}\b"):
        strict(*bad)


def test_every_function_of_the_linear_algebra_states_its_shapes():
    stated = {
        name
        for name, f in vars(linalg).items()
        if inspect.isfunction(f) and any("Float[" in str(a) for a in f.__annotations__.values())
    }
    assert stated >= {f.__name__ for f, _, _ in CALLS if f.__module__ == "radnet.linalg"} | {"haar_orthogonal"}
