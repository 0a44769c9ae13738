"""Formulas as text: arithmetic is computed, everything else is refused in our words, at once, and nothing is run."""

import random
import sys
import time

import pytest
import torch

import radnet
from radnet.expressions import DEEPEST, LONGEST, parse_formula, parse_function

LEAVES = ("x", "x1", "x2", "x3", "x0", "r", "pi", "e", "0", "1", "2.5", "1e308", "1e-320", "-3", "9" * 30, "y", "True")
FUNCTIONS = (
    "sin", "cos", "tan", "exp", "log", "sqrt", "abs", "tanh", "sign", "atan", "sinh", "cosh", "relu", "max", "min",
    "clamp", "where", "open", "__import__", "eval",
)  # fmt: skip
INFIX = ("+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "//", "%", "@", "and", "if", "is", "in", ":=", ",", "|")
TOKENS = (
    *LEAVES, *FUNCTIONS, *INFIX, "(", ")", "[", "]", "{", "}", ":", ";", ".", "'", '"', "\\", "\n", "\t", "\0", "#",
    "lambda", "for", "await", "yield", "*", "...", "0x1p3", "1j", "1_0", "0b2", "1or", "x²", "x１", "é", "\ud800",
    "f'{x}'", "b''", "=", "->", "!", "?", "$", "`", "~", "not", "None", "x" + "1" * 30,
)  # fmt: skip
ATTACKS = (
    "", " ", "()", "(,)", "x,", "-" * 9000 + "x", "(" * 5000 + "x" + ")" * 5000, "+".join(["x"] * 4000),
    "x**" * 900 + "x", "sin(" * 150 + "x" + ")" * 150, "sin(" * 300 + "x" + ")" * 300, "9" * 4000, "9" * 5000, "1e999",
    "9**9**9**9", "x<" * 200 + "x", "x" * LONGEST, "x" * (LONGEST + 1), "[" * 300, "0" * 300, "1." + "0" * 3000,
    "where(x, 1, 2)", "where(1 > 0, 1, 2)", "where(x > 0, 1)", "max(x)", "sin()", "sin(x, x)", "sin(*x)", "sin(**x)",
    "clamp(x, x2, x1)", "x1 if x2 else x", "(x > 0) * x2 + (x <= 0)", "max(x > 0, x2 > 0)", "x[0]", "x.__class__",
    "(lambda: x)()", "print(x)", "x1:x2", "a:b:c", ":", "::", "x:",
)  # fmt: skip


def tree(rng, depth):
    """A random formula; most of them are arithmetic."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(LEAVES[:12] if rng.random() < 0.9 else LEAVES)
    kind = rng.random()
    if kind < 0.55:
        return (
            f"({tree(rng, depth - 1)} {rng.choice(INFIX[:9] if rng.random() < 0.95 else INFIX)} {tree(rng, depth - 1)})"
        )
    if kind < 0.65:
        return f"-{tree(rng, depth - 1)}"
    name = rng.choice(FUNCTIONS[:17] if rng.random() < 0.97 else FUNCTIONS)
    count = {"max": 2, "min": 2, "clamp": 3, "where": 3}.get(name, 1) if rng.random() < 0.95 else rng.randrange(5)
    arguments = [tree(rng, depth - 1) for _ in range(count)]
    if name == "where" and arguments and rng.random() < 0.9:
        arguments[0] = f"{tree(rng, 1)} > {tree(rng, 1)}"
    return f"{name}({', '.join(arguments)})"


def formula(rng):
    """Arithmetic, arithmetic with a few characters changed, or tokens in any order."""
    kind = rng.random()
    if kind < 0.2:
        return "".join(rng.choice(TOKENS) + rng.choice(("", " ")) for _ in range(rng.randrange(1, 30)))
    text = ", ".join(tree(rng, rng.randrange(1, 6)) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    if kind < 0.5:
        for _ in range(rng.randrange(1, 4)):
            i = rng.randrange(len(text) + 1)
            text = text[:i] + rng.choice(TOKENS) + text[i + rng.randrange(3) :]
    return text


def test_formulas_of_all_kinds_are_computed_or_refused_at_once(count, evidence):
    rng, number = random.Random(0), count(1500, 100_000)
    x = torch.linspace(-2, 2, 10, dtype=torch.float64).reshape(5, 2)
    modules, computed, refused, raw, slowest = set(sys.modules), 0, 0, [], 0.0
    for i in range(number):
        text = ATTACKS[i] if i < len(ATTACKS) else formula(rng)
        start = time.perf_counter()
        try:
            value = parse_formula(text)(x)
            computed += 1
            assert (value.dtype, len(value)) == (torch.float64, 5)
        except radnet.RadNetError:
            refused += 1
        except BaseException as error:
            raw.append((text[:200], repr(error)[:200]))
        slowest = max(slowest, time.perf_counter() - start)
    evidence("formulas", formulas=number, computed=computed, refused=refused, raw=len(raw), slowest_seconds=slowest)
    assert raw == []
    assert min(computed, refused) > number / 6
    assert set(sys.modules) == modules


def test_comparisons_count_as_numbers_outside_where():
    x = torch.tensor([[1.0, 2.0], [-1.0, 3.0]], dtype=torch.float64)
    assert parse_formula("(x1 > 0) * x2 - (x1 <= 0)")(x).ravel().tolist() == [2.0, -1.0]
    assert parse_formula("max(x1 > 0, 0.5)")(x).ravel().tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * (LONGEST + 1), "a formula of 10,001 characters; at most 10,000 are read"),
        ("+".join(["x"] * (DEEPEST + 1)), "is nested more than 200 deep"),
        ("where(x, 1, 2)", "the first argument of where is a comparison such as x > 0"),
        ("max(x)", r"max\(x\): wrong number or kind of arguments \(max takes 2, got 1\)"),
        ("1e999", "1e309 is not allowed in a formula"),
        ("x1111111", "x1111111 is not allowed in a formula"),
        ("()", "is not a formula"),
        ("", "is not a formula"),
    ],
)
def test_formulas_that_are_refused_say_why(text, message):
    with pytest.raises(radnet.RadNetError, match=message) as error:
        parse_formula(text)
    assert len(str(error.value)) < 700


def test_sums_as_deep_as_allowed_are_computed():
    assert parse_formula("+".join(["x"] * DEEPEST))(torch.ones(3, 1)).ravel().tolist() == [DEEPEST] * 3


def test_where_formulas_alone_are_wanted_nothing_is_imported(tmp_path, monkeypatch):
    (tmp_path / "lurking.py").write_text("raise SystemError('code of the current folder was run')\nf = abs\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(radnet.RadNetError, match="is not a formula"):
        parse_formula("lurking:f")
    assert "lurking" not in sys.modules
    with pytest.raises(radnet.RadNetError, match="code of the current folder was run"):
        parse_function("lurking:f")


@pytest.mark.parametrize(
    "odd", ["\n", "\r", "\t", "\x1b[2K", "\b", "\0", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800", " # y"]
)
def test_a_formula_is_one_line_of_printable_characters(odd):
    with pytest.raises(radnet.RadNetError, match="is not a formula") as refusal:
        parse_formula(f"x +{odd} 1")
    assert str(refusal.value).isprintable()
    assert parse_formula("  x + 1\n").text == "x + 1"


@pytest.mark.parametrize("parse", [parse_formula, parse_function])
@pytest.mark.parametrize("other", [None, 3, ["x"], b"x"])
def test_what_is_no_text_is_no_formula(parse, other):
    with pytest.raises(radnet.errors.InvalidType, match="a formula is a text such as"):
        parse(other)
