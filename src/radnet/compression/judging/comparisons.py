"""Comparisons of the sizes of inputs that a model's code makes, and sizes with which they come out as one wants."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from types import CodeType
from typing import NamedTuple

import torch
from torch import Tensor

from ...running import Call

#: the largest size that is tried for an axis; up to which all are; and how many where there are several
HIGHEST, UP_TO, GRID = 2**24, 16_400, 16
#: the largest size that a comparison is tried with
LARGEST = 2**40
#: powers in a comparison, and axes of all tensors together
MOST_POWERS, MOST_AXES = 2, 1000

Sizes = tuple[int, ...]  # of all axes of all tensors of a call, in their order


class Comparison(NamedTuple):
    """A comparison of sizes that a model's code makes: as Python code over the sizes n[0], n[1], ..., and its outcome.

    >>> Comparison("n[0] * n[1] > 20", False).holds((4, 6))
    False
    """

    code: str
    outcome: bool

    def holds(self, n: Sequence[int]) -> bool:
        """Whether it comes out so with these sizes; no, if it cannot be made with them."""
        try:
            names = {"__builtins__": {}, "math": math, **_FUNCTIONS, "n": n}
            return bool(eval(_compiled(self.code), names)) == self.outcome  # noqa: S307
        except (ArithmeticError, IndexError, NameError, TypeError, ValueError):
            return False

    @property
    def plain(self) -> Comparison:
        """The same as Python writes it; raises a ValueError if it is no comparison of sizes."""
        return Comparison(_parsed(self.code), self.outcome)

    @property
    def otherwise(self) -> Comparison:
        """The other outcome."""
        return Comparison(self.code, not self.outcome)

    @property
    def about(self) -> list[int]:
        """The axes that it is about."""
        return sorted({int(k) for k in re.findall(r"n\[(\d+)\]", self.code)})


_FUNCTIONS = {"min": min, "max": max, "abs": abs, "round": round, "float": float, "int": int}
_MATHEMATICS = ("ceil", "floor", "trunc", "sqrt", "log2")
_SYNTAX = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Constant, ast.Name, ast.Load,
    ast.Subscript, ast.Attribute, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_LONGEST = 2_000


@functools.lru_cache(maxsize=1024)
def _parsed(code: str) -> str:
    """Arithmetic and comparisons of sizes, and nothing else, as Python writes them: the code may come from a file.

    >>> _parsed("open(n[0])")
    Traceback (most recent call last):
        ...
    ValueError: 'open(n[0])' is no comparison of sizes
    """
    if len(code) > _LONGEST:
        raise ValueError(f"a comparison of {len(code):,} characters")
    try:
        tree = ast.parse(code, mode="eval")
        powers = sum(isinstance(node, ast.Pow) for node in ast.walk(tree))
        if powers <= MOST_POWERS and all(isinstance(n, _SYNTAX) and _is_arithmetic(n) for n in ast.walk(tree)):
            plain = ast.unparse(tree)
            compile(plain, "<sizes>", "eval")
            return plain
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"{code[:100]!r} is no comparison of sizes") from error
    raise ValueError(f"{code[:100]!r} is no comparison of sizes")


@functools.lru_cache(maxsize=1024)
def _compiled(code: str) -> CodeType:
    return compile(_parsed(code), "<sizes>", "eval")


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("n", "math", *_FUNCTIONS)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "math" and node.attr in _MATHEMATICS
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Attribute) or (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS)
        return known and not node.keywords
    if isinstance(node, ast.Subscript):
        place = node.slice.value if isinstance(node.slice, ast.Constant) else None
        in_sizes = isinstance(node.value, ast.Name) and node.value.id == "n"
        return in_sizes and type(place) is int and 0 <= place < MOST_AXES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and abs(node.value) < LARGEST**2
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return isinstance(node.right, ast.Constant) and node.right.value in (0.5, 2, 3)
    return not isinstance(node, ast.LShift | ast.MatMult)


def conjunction(path: Sequence[Comparison]) -> Callable[[Sequence[int]], bool]:
    """Whether all of these come out so, as one function of the sizes that torch.compile can look into.

    >>> conjunction([Comparison("n[0] > 4", True), Comparison("n[1] > 4", False)])((5, 3))
    True
    """
    code = " and ".join(f"({_parsed(c.code)})" if c.outcome else f"not ({_parsed(c.code)})" for c in path) or "True"
    found: Callable[[Sequence[int]], bool] = eval(f"lambda n: bool({code})", {"math": math})  # noqa: S307
    return found


Path = tuple[Comparison, ...]


def sizes_of(call: Call) -> Sizes:
    """The sizes of all axes of all tensors of a call.

    >>> sizes_of(Call((torch.ones(2, 3), torch.ones(4))))
    (2, 3, 4)
    """
    return tuple(n for x in call.tensors for n in x.shape)


def numbers_of(call: Call, sizes: Sizes) -> int:
    """How many numbers the tensors of a call have with these sizes.

    >>> numbers_of(Call((torch.ones(2, 3), torch.ones(4))), (5, 2, 7))
    17
    """
    rest = iter(sizes)
    return sum(math.prod(next(rest) for _ in x.shape) for x in call.tensors)


def resized(call: Call, sizes: Sizes) -> Call | None:
    """The call with tensors of these sizes, entries repeated; None if there are none to repeat."""
    if any(x.numel() == 0 for x in call.tensors):
        return None
    rest = list(sizes)

    def change(x: Tensor) -> Tensor:
        for axis, before in enumerate(x.shape):
            after = rest.pop(0)
            if after != before:
                x = x.index_select(axis, torch.arange(after, device=x.device) % before)
        return x

    return dataclasses.replace(call.mapped(change), what=f"sizes {', '.join(map(str, sizes))}")


def solved(path: Path, near: Sizes) -> Sizes | None:
    """Sizes with which these comparisons come out so, small ones, most of them as they are; None if none is found.

    >>> solved((Comparison("n[0] * n[1] > 20", True),), (2, 3))
    (7, 3)
    >>> solved((Comparison("n[0] > 4", True), Comparison("n[1] > 4", True)), (2, 3))
    (5, 5)
    >>> solved((Comparison("n[0] % 7 == 3", True), Comparison("n[0] < 2", True)), (2, 3)) is None
    True
    """
    about = sorted({k for comparison in path for k in comparison.about})
    last = path[-1].about
    for some in [[k] for k in last] + ([about] if len(about) > 1 else []):
        for values in _candidates([near[k] for k in some]):
            sizes = list(near)
            for k, value in zip(some, values, strict=True):
                sizes[k] = value
            if all(comparison.holds(sizes) for comparison in reversed(path)):
                return _smallest(path, tuple(sizes), some)
    return None


def _candidates(now: list[int]) -> Iterator[tuple[int, ...]]:
    powers = [2**k for k in range(13, LARGEST.bit_length())]
    if len(now) == 1:
        yield from ((k,) for k in (*range(1, UP_TO), *powers))
        return
    few = sorted({1, 2, 3, 5, 8, 13, *(2**k + d for k in range(4, 13, 2) for d in (0, 1)), *powers[::4]})
    yield from sorted(product(*[[n, *few][: GRID + 1] for n in now[:3]]), key=sum) if len(now) <= 3 else ()
    yield from (tuple(k for _ in now) for k in (*few, *powers))


def _smallest(path: Path, sizes: Sizes, axes: list[int]) -> Sizes:
    """The sizes with each of these axes as short as halving makes it while the comparisons hold."""
    for k in axes:
        low = 0
        while sizes[k] - low > 1:
            middle = (sizes[k] + low) // 2
            shorter = (*sizes[:k], middle, *sizes[k + 1 :])
            if all(comparison.holds(shorter) for comparison in path):
                sizes = shorter
            else:
                low = middle
    return sizes


def together(sizes: Sizes, given: Sizes, axes: Sequence[int]) -> Iterator[Sizes]:
    """The sizes; and with sizes of other tensors changed along, where ``axes`` says at which axis each of them is.

    Those that were the same, at the same axis or anywhere; and those at the same axis, by as much.

    >>> list(together((9, 2, 5), (4, 2, 4), (0, 1, 0)))
    [(9, 2, 5)]
    >>> list(together((9, 2, 4), (4, 2, 4), (0, 1, 0)))
    [(9, 2, 4), (9, 2, 9), (9, 2, 9), (9, 2, 9)]
    """
    yield sizes
    changed = {k: n for k, n in enumerate(sizes) if n != given[k]}
    for same_axis in (True, False):
        along = list(sizes)
        for k, n in changed.items():
            for i, (before, axis) in enumerate(zip(given, axes, strict=True)):
                if before == given[k] and i not in changed and (axis == axes[k] or not same_axis):
                    along[i] = n
        if tuple(along) != sizes:
            yield tuple(along)
    more = {axes[k]: n - given[k] for k, n in changed.items()}
    along = [n + (0 if k in changed else more.get(axes[k], 0)) for k, n in enumerate(sizes)]
    if tuple(along) != sizes and min(along) > 0:
        yield tuple(along)
