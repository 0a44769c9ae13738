"""Functions given as text: a formula in x1, x2, ..., or the name of a function to import.

A formula is parsed, and anything but arithmetic, known functions and numbers is refused, so that it can compute a value
and do nothing else. `MODULE:FUNCTION` is imported, like any code of the user's own.
"""

from __future__ import annotations

import ast
import importlib
import math
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidValue

_ONE = {
    name: getattr(torch, name) for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "abs", "tanh", "sign", "atan")
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_ONE,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "relu": lambda a: torch.clamp(a, min=0),
    "max": lambda a, b: torch.maximum(*_both(a, b)),
    "min": lambda a, b: torch.minimum(*_both(a, b)),
    "clamp": lambda a, lo, hi: torch.clamp(a, lo, hi),
    "where": lambda condition, a, b: torch.where(condition, a, b),
}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


def parse_function(text: str) -> Callable[..., Any]:
    """The function that a text stands for.

    A formula may use ``x1, x2, ...``, ``x`` (the first coordinate), ``r`` (the norm), numbers, ``+ - * / **``,
    comparisons, ``pi``, ``e`` and the usual functions; several outputs are separated by commas.

    Examples
    --------
    >>> import torch
    >>> f = parse_function("sin(x1) + x2**2, 1")
    >>> f(torch.tensor([[0.0, 2.0]], dtype=torch.float64))
    tensor([[4., 1.]], dtype=torch.float64)
    """
    module, _, name = text.partition(":")
    if name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return imported_function(module, name)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise InvalidValue(
            f"{text!r} is not a formula ({error}); for example exp(-x**2), or MODULE:FUNCTION"
        ) from error
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]

    def f(x: Tensor) -> Tensor:
        values = [torch.as_tensor(_evaluate(part, x, text), dtype=x.dtype) for part in parts]
        return torch.stack([value.expand(len(x)) for value in values], dim=1)

    for part in parts:
        _check(part, text)
    return f


def imported_function(module: str, name: str) -> Callable[..., Any]:
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


def _check(node: ast.expr, text: str) -> None:
    """Refuse what is not arithmetic, before anything is computed."""
    if isinstance(node, ast.Call):
        if not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS) or node.keywords:
            known = ", ".join(sorted(_FUNCTIONS))
            raise InvalidValue(f"{text!r}: {ast.unparse(node)} is not one of the functions {known}")
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
            f"{text!r}: {ast.unparse(node)} is not allowed in a formula; use x1, x2, ..., numbers, + - * /"
        )
    for child in children:
        _check(child, text)


def _is_leaf(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in (*_CONSTANTS, "x", "r") or _coordinate(node.id) is not None
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _evaluate(node: ast.expr, x: Tensor, text: str) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _name(node.id, x, text)
    if isinstance(node, ast.Call):
        arguments = [_evaluate(child, x, text) for child in node.args]
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        first = torch.as_tensor(arguments[0], dtype=None if name == "where" else x.dtype) if arguments else None
        try:
            return _FUNCTIONS[name](first, *arguments[1:])
        except TypeError as error:
            raise InvalidValue(f"{text!r}: {ast.unparse(node)}: wrong number or kind of arguments ({error})") from error
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, x, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Compare):
        left, right = _evaluate(node.left, x, text), _evaluate(node.comparators[0], x, text)
        return _COMPARE[type(node.ops[0])](left, right)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, x, text), _evaluate(node.right, x, text)
        return _BINARY[type(node.op)](torch.as_tensor(left, dtype=x.dtype), right)
    raise AssertionError(f"{ast.unparse(node)} was not checked")


def _name(name: str, x: Tensor, text: str) -> Any:
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name == "r":
        return x.norm(dim=1)
    i = 1 if name == "x" else _coordinate(name)
    if i is None or i > x.shape[1]:
        raise InvalidValue(f"{text!r}: there is no {name}; the domain has {x.shape[1]} coordinates")
    return x[:, i - 1]


def _coordinate(name: str) -> int | None:
    digits = name.removeprefix("x")
    return int(digits) if name.startswith("x") and digits.isdigit() and int(digits) > 0 else None


def _both(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a = torch.as_tensor(a)
    return a, torch.as_tensor(b, dtype=a.dtype)
