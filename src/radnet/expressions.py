"""Functions given as text: a formula in x1, x2, ..., or the name of a function to import.

A formula is parsed, and anything but arithmetic, known functions and numbers is refused, so that it can compute a value
and do nothing else (`parse_formula`). `MODULE:FUNCTION` is imported, like any code of the user's own (`parse_function`
takes both).
"""

from __future__ import annotations

import ast
import importlib
import math
import operator
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from .checks import is_number
from .errors import InvalidType, InvalidValue
from .threads import quietly

#: characters of a formula, and how deep it may be nested; a sum of n terms is nested n deep
LONGEST = 10_000
DEEPEST = 200

_NUMBER, _CONDITION = "number", "condition"
#: each function, and what its arguments are
_FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    **{
        name: (getattr(torch, name), (_NUMBER,))
        for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "abs", "tanh", "sign", "atan", "sinh", "cosh", "relu")
    },
    "max": (torch.maximum, (_NUMBER, _NUMBER)),
    "min": (torch.minimum, (_NUMBER, _NUMBER)),
    "clamp": (torch.clamp, (_NUMBER, _NUMBER, _NUMBER)),
    "where": (torch.where, (_CONDITION, _NUMBER, _NUMBER)),
}
_BINARY: dict[type, Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type, Callable[[Tensor, Tensor], Tensor]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


class Formula:
    """The function that a formula stands for: tensors (batch, n) to tensors (batch, m).

    Attributes
    ----------
    text : str
        The formula, one line of printable characters, which gives the same function again.

    Examples
    --------
    >>> import torch
    >>> f = Formula("sin(x1) + x2**2, 1")
    >>> f(torch.tensor([[0.0, 2.0]], dtype=torch.float64))
    tensor([[4., 1.]], dtype=torch.float64)
    """

    def __init__(self, text: str) -> None:
        self.text = text = _checked_text(text)
        tree = _parsed(text)
        self._parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        if not self._parts:
            raise InvalidValue(f"{_shown(text)} is not a formula (it is empty); for example exp(-x**2)")
        for part in self._parts:
            _check(part, text, DEEPEST)

    def __call__(self, x: Tensor) -> Tensor:
        """The values at the rows of x."""
        values = [_evaluate(part, x, self.text).to(x.dtype) for part in self._parts]
        return torch.stack([value.expand(len(x)) for value in values], dim=1)

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"


def parse_formula(text: str) -> Formula:
    """The function that a formula stands for; no code is imported or run, whatever the text is.

    A formula may use ``x1, x2, ...``, ``x`` (the first coordinate), ``r`` (the norm), numbers, ``+ - * / **``,
    comparisons, ``pi``, ``e`` and the usual functions; several outputs are separated by commas. It is one line of
    printable characters, without comments.
    """
    return Formula(text)


def parse_function(text: str) -> Callable[..., Tensor]:
    """The function that a text stands for: a formula, or MODULE:FUNCTION, which is imported and so runs code.

    Examples
    --------
    >>> import torch
    >>> parse_function("2 * x")(torch.tensor([[3.0]]))
    tensor([[6.]])
    >>> parse_function("math:hypot")
    <built-in function hypot>
    """
    module, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return imported_function(module, name)
    return parse_formula(text)


def imported_function(module: str, name: str) -> Callable[..., Tensor]:
    """The function of that name, from a module on the path or in the current folder."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the module does when it is imported
        raise InvalidValue(f"{module}:{name} cannot be imported ({type(error).__name__}: {error})") from error
    finally:
        sys.path.remove(folder)
    if not callable(found):
        raise InvalidValue(f"{module}:{name} is not a function")
    return found  # type: ignore[no-any-return]


def _shown(text: str) -> str:
    """The text in a message: not all of it, if it is long."""
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."


def _checked_text(text: object) -> str:
    """One line of printable characters without a comment: what is shown of a formula is what is computed."""
    if not isinstance(text, str):
        raise InvalidType(f"a formula is a text such as 'exp(-x**2)', got {type(text).__name__}")
    if len(text) > LONGEST:
        raise InvalidValue(
            f"a formula of {len(text):,} characters; at most {LONGEST:,} are read; write a function and give "
            "MODULE:FUNCTION"
        )
    text = text.strip()
    odd = next((c for c in text if not c.isprintable() or c == "#"), None)
    if odd is not None:
        what = "it has a comment" if odd == "#" else f"{odd!a} in it is a control character or a new line"
        raise InvalidValue(f"{_shown(text)} is not a formula ({what}); write it on one line, for example exp(-x**2)")
    return text


def _parsed(text: str) -> ast.expr:
    try:
        with quietly():  # Python warns of numbers that run into words
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidValue(
            f"{_shown(text)} is not a formula ({error}); for example exp(-x**2), or MODULE:FUNCTION"
        ) from error


def _check(node: ast.expr, text: str, depth: int) -> None:
    """Refuse what is not arithmetic, before anything is computed."""
    if depth == 0:
        raise InvalidValue(f"{_shown(text)} is nested more than {DEEPEST} deep; write a function, give MODULE:FUNCTION")
    if isinstance(node, ast.Call):
        _check_call(node, text)
        children: list[ast.expr] = node.args
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        children = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        children = [node.operand]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        children = [node.left, node.comparators[0]]
    elif _is_leaf(node):
        return
    else:
        raise InvalidValue(
            f"{_shown(text)}: {_said(node)} is not allowed in a formula; use x1, x2, ..., numbers, + - * /"
        )
    for child in children:
        _check(child, text, depth - 1)


def _check_call(node: ast.Call, text: str) -> None:
    if not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS) or node.keywords:
        known = ", ".join(sorted(_FUNCTIONS))
        raise InvalidValue(f"{_shown(text)}: {_said(node)} is not one of the functions {known}")
    kinds = _FUNCTIONS[node.func.id][1]
    problem = ""
    if len(node.args) != len(kinds):
        problem = f"{node.func.id} takes {len(kinds)}, got {len(node.args)}"
    elif kinds[0] == _CONDITION and not isinstance(node.args[0], ast.Compare):
        problem = f"the first argument of {node.func.id} is a comparison such as x > 0"
    if problem:
        raise InvalidValue(f"{_shown(text)}: {_said(node)}: wrong number or kind of arguments ({problem})")


def _said(node: ast.expr) -> str:
    """A part of the formula in a message, as it was written or nearly so."""
    try:
        part = ast.unparse(node)
    except (RecursionError, ValueError):
        return "a part of it"
    return part if len(part) <= 200 else f"{part[:200]}..."


def _is_leaf(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in (*_CONSTANTS, "x", "r") or _coordinate(node.id) is not None
    return isinstance(node, ast.Constant) and is_number(node.value) and _is_finite(node.value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _evaluate(node: ast.expr, x: Tensor, text: str) -> Tensor:
    """A number for each row or for all of them, or for a comparison whether it holds."""
    if isinstance(node, ast.Constant):
        return torch.tensor(float(node.value), dtype=x.dtype)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return _name(node.id, x, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function, kinds = _FUNCTIONS[node.func.id]
        values = (_evaluate(child, x, text) for child in node.args)
        return function(*(v if kind == _CONDITION else v.to(x.dtype) for v, kind in zip(values, kinds, strict=True)))
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, x, text).to(x.dtype)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Compare):
        return _COMPARE[type(node.ops[0])](*_both(node.left, node.comparators[0], x, text))
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](*_both(node.left, node.right, x, text))
    raise AssertionError(f"{ast.unparse(node)} was not checked")


def _both(left: ast.expr, right: ast.expr, x: Tensor, text: str) -> tuple[Tensor, Tensor]:
    return _evaluate(left, x, text).to(x.dtype), _evaluate(right, x, text).to(x.dtype)


def _name(name: str, x: Tensor, text: str) -> Tensor:
    if name in _CONSTANTS:
        return torch.tensor(_CONSTANTS[name], dtype=x.dtype)
    if name == "r":
        norms: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norms
    i = 1 if name == "x" else _coordinate(name)
    if i is None or i > x.shape[1]:
        raise InvalidValue(f"{_shown(text)}: there is no {name}; the domain has {x.shape[1]} coordinates")
    return x[:, i - 1]


def _coordinate(name: str) -> int | None:
    """i of xi."""
    digits = name.removeprefix("x")
    if not (name.startswith("x") and digits.isascii() and digits.isdecimal() and len(digits) < 7):
        return None
    return int(digits) or None
