"""Texts of the command line as arguments of `approximate`."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..approximation.domains import Ball, Box, Domain, Points
from ..approximation.targets import LocalBound
from ..arrays import read_rows
from ..errors import InvalidValue
from ..expressions import parse_formula, parse_function


def parse_f(text: str, formula_only: bool) -> Callable[[Tensor], Tensor]:
    """The function that a text stands for; with ``formula_only`` nothing is imported."""
    return (parse_formula if formula_only else parse_function)(text)


def parse_dtype(text: str) -> torch.dtype:
    """The dtype of a name."""
    names = {"float64": torch.float64, "float32": torch.float32}
    if text not in names:
        raise InvalidValue(f"--dtype {text}: expected float64 or float32")
    return names[text]


def input_rows(path: str | None, model: nn.Module) -> Tensor | None:
    """The rows of a file in the dtype of a model; None if no file is given."""
    if path is None:
        return None
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    x = torch.tensor(read_rows(path))
    places = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in model.modules())
    return x if places and not x.is_floating_point() else x.to(dtype)  # whole numbers are places in a table


def parse_domain(box: str | None, ball: str | None, points: str | None) -> Domain:
    """Exactly one of the three.

    >>> parse_domain("-3:3,0:1", None, None)
    Box([-3.0, 0.0], [3.0, 1.0])
    >>> parse_domain(None, "0,0:2", None)
    Ball([0.0, 0.0], 2.0)
    """
    given = [text for text in (box, ball, points) if text is not None]
    if len(given) != 1:
        raise InvalidValue("give exactly one of --box, --ball and --points")
    if box is not None:
        ends = [_numbers(part, ":", "--box") for part in box.split(",")]
        if any(len(pair) != 2 for pair in ends):
            raise InvalidValue(f"--box {box}: expected ranges such as -3:3,0:1")
        return Box([a for a, _ in ends], [b for _, b in ends])
    if ball is not None:
        centre, colon, radius = ball.rpartition(":")
        if not colon:
            raise InvalidValue(f"--ball {ball}: expected a centre and a radius such as 0,0:2")
        return Ball(_numbers(centre, ",", "--ball"), _numbers(radius, " ", "--ball")[0])
    return Points(read_rows(str(points)))


def parse_lipschitz(text: str | None, number_only: bool = False) -> float | LocalBound | None:
    """A number, or an importable function of boxes."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        if ":" in text and not number_only:
            return parse_function(text)
        raise InvalidValue(f"--lipschitz {text}: expected a number or MODULE:FUNCTION") from None


def parse_limit(text: str | None) -> tuple[list[list[float]], list[float]] | None:
    """A and b.

    >>> parse_limit("1,0/0,1;0,2")
    ([[1.0, 0.0], [0.0, 1.0]], [0.0, 2.0])
    """
    if text is None:
        return None
    A, semicolon, b = text.partition(";")
    if not semicolon:
        raise InvalidValue(f"--limit {text}: expected A;b such as 1,0/0,1;0,0")
    rows = [_numbers(row, ",", "--limit") for row in A.split("/")]
    if len({len(row) for row in rows}) != 1:
        raise InvalidValue(f"--limit {text}: the rows of A have different lengths")
    return rows, _numbers(b, ",", "--limit")


def _numbers(text: str, separator: str, option: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(separator)]
    except ValueError as error:
        raise InvalidValue(f"{option}: {text!r} is not made of numbers") from error
    if not all(map(math.isfinite, values)):
        raise InvalidValue(f"{option}: {text!r} is not finite")
    return values
