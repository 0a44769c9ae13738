"""The checks of arguments: what passes, and word for word what is said of what does not."""

import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from radnet import checks
from radnet.errors import InvalidType, InvalidValue


@pytest.mark.parametrize("value", [1, 7, 10**30])
def test_whole_numbers_are_ints(value):
    assert checks.is_whole(value)
    assert checks.is_number(value)
    for check in (checks.check_count, checks.check_positive, checks.check_size):
        assert check("what", value) == value


@pytest.mark.parametrize("value", [True, False, 2.0, "2", None, np.float64(2), torch.tensor(2)])
def test_nothing_else_is_a_whole_number(value):
    assert not checks.is_whole(value)


@pytest.mark.parametrize("value", [0, -1.5, np.float32(2), np.int64(3), Fraction(1, 2)])
def test_real_numbers_of_any_kind_are_numbers(value):
    assert checks.is_number(value)
    found = checks.check_number("b", value)
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize("value", [True, "1", None, 1j, [1.0], torch.tensor(1.0)])
def test_nothing_else_is_a_number(value):
    assert not checks.is_number(value)
    with pytest.raises(InvalidType, match="expected a number") as caught:
        checks.check_number("b", value)
    assert str(caught.value) == f"b={value!r}: expected a number, got {type(value).__name__}"


REFUSED = [
    (lambda: checks.check_number("b", float("inf")), InvalidValue, "b=inf: expected a finite number"),
    (lambda: checks.check_count("epochs", 0), InvalidValue, "epochs=0: at least 1 is needed"),
    (lambda: checks.check_count("epochs", True), InvalidValue, "epochs=True: at least 1 is needed"),
    (lambda: checks.check_count("epochs", 1.5), InvalidValue, "epochs=1.5: at least 1 is needed"),
    (lambda: checks.check_positive("points", 0), InvalidValue, "points=0: expected a positive whole number"),
    (lambda: checks.check_positive("points", "9"), InvalidValue, "points='9': expected a positive whole number"),
    (lambda: checks.check_size("count", 2.0), InvalidType, "count=2.0: expected a whole number"),
    (lambda: checks.check_size("count", 0), InvalidValue, "count=0: expected at least 1"),
    (lambda: checks.check_kind([], dict, "this needs a dict"), InvalidType, "this needs a dict, got list"),
    (lambda: checks.check_dim(True), InvalidType, "dim=True: expected an int, the axis along which a vector lies"),
    (
        lambda: checks.check_blocks((2, 2.0)),
        InvalidType,
        "blocks=(2, 2.0): expected an int (how many) or a sequence of ints (their sizes)",
    ),
    (
        lambda: checks.check_blocks("ab"),
        InvalidType,
        "blocks='ab': expected an int (how many) or a sequence of ints (their sizes)",
    ),
    (lambda: checks.check_blocks(()), InvalidValue, "blocks=(): every block needs at least one entry"),
    (lambda: checks.check_blocks((3, 0)), InvalidValue, "blocks=(3, 0): every block needs at least one entry"),
    (lambda: checks.check_shift(torch.ones(2)), InvalidValue, "shift has shape (2,); expected one number"),
    (lambda: checks.check_shift("t"), InvalidType, "shift='t': expected a number, got str"),
    (
        lambda: checks.check_input([1.0], -1),
        InvalidType,
        "radial rescaling needs a tensor, got list; use torch.as_tensor",
    ),
    (
        lambda: checks.check_input(torch.arange(3), -1),
        InvalidType,
        "radial rescaling needs a real floating-point tensor, got torch.int64; convert it, for example x.float()",
    ),
    (
        lambda: checks.check_input(torch.ones(3), 1),
        InvalidValue,
        "dim=1: the input of shape (3,) has no such axis",
    ),
    (
        lambda: checks.check_dtype(torch.int64, "a network"),
        InvalidType,
        "dtype=torch.int64: a network needs a real floating-point dtype",
    ),
    (
        lambda: checks.check_dtype("float32", "a network"),
        InvalidType,
        "dtype='float32': a network needs a real floating-point dtype",
    ),
    (
        lambda: checks.check_features([1.0], "RadNet", 1),
        InvalidType,
        "RadNet needs a tensor, got list; use torch.as_tensor",
    ),
    (
        lambda: checks.check_features(torch.arange(2), "RadNet", 2),
        InvalidType,
        "RadNet needs a floating-point input, got torch.int64; use x.to(torch.float64)",
    ),
    (
        lambda: checks.check_features(torch.arange(2), "RadNet", 2, torch.float32),
        InvalidType,
        "RadNet needs a floating-point input, got torch.int64; use x.to(torch.float32)",
    ),
    (
        lambda: checks.check_features(torch.ones(5, 3), "RadNet", 2),
        InvalidValue,
        "RadNet: input of shape (5, 3): the last dimension must be 2, the input width",
    ),
    (
        lambda: checks.check_features(torch.tensor(1.0), "RadNet", 1),
        InvalidValue,
        "RadNet: input of shape (): the last dimension must be 1, the input width",
    ),
    (
        lambda: checks.check_features(torch.ones(5, 2), "RadNet", 2, torch.float64),
        InvalidType,
        "RadNet: input is torch.float32, the parameters are torch.float64; use x.to(torch.float64)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_every_refusal_says_what_came_and_what_would_fit(call, kind, message):
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call()
    assert str(caught.value) == message


def test_what_fits_is_handed_back():
    assert checks.check_blocks(None) is None
    assert checks.check_blocks(3) == 3
    assert checks.check_blocks([3, 5]) == (3, 5)
    assert checks.check_dim(-2) == -2
    assert checks.check_shift(None) is None
    assert checks.check_shift(2) == 2.0
    assert checks.check_shift(torch.ones(1, 1)).shape == ()
    assert checks.check_input(torch.ones(2, 3, 4), -2) == 1
    checks.check_kind(True, int, "this needs an int")
    checks.check_dtype(None, "a network")
    checks.check_dtype(torch.float16, "a network")
    checks.check_features(torch.ones(2), "RadNet", 2, torch.float32)


def test_under_autocast_the_dtype_of_the_input_is_not_asked_for():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        checks.check_features(torch.ones(5, 2, dtype=torch.float64), "RadNet", 2, torch.float32)
