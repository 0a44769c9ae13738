"""Other inputs like the given ones: a function is the same everywhere, not only where one looks.

Other sizes of numbers, other numbers of rows, other lengths of every axis, one axis more, and arguments that are not
given. Whether a model accepts them is for the model to say.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..measuring import Call

#: what scaled rows are multiplied by, in turns with fresh normal rows and rows of zeros
SCALES = (1e3, 1e-3)
#: numbers of rows, and lengths of other axes, at which a model's Python may take another turn
LADDER = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025)


def other_inputs(call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Scaled, fresh and zero rows of another number; one row; every other axis longer; one axis more."""
    n = call.rows
    few = n // 2 if n >= 4 else n + 1
    yield _mixed(call, few, generator)
    if n > 1:
        yield dataclasses.replace(_mixed(call, 1, generator, first=1), what="one row")
    share = call.with_rows(torch.arange(max(1, min(n, n // 8))), "")
    lengths = sorted({k for x in share.tensors for k in x.shape[1:]})
    for length in lengths:
        yield with_length(share, length, length + 1)
    deeper = share.mapped(lambda x: _one_axis_more(x, share.rows))
    yield dataclasses.replace(deeper, what="one axis more")


def mixtures(call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Affine mixtures of the rows of the given inputs, in another number."""
    n = call.rows
    weights = torch.randn(max(1, n // 2), n, generator=generator, device=generator.device, dtype=torch.float64)
    weights = weights / n**0.5
    weights += (1 - weights.sum(dim=1, keepdim=True)) / n

    def mix(x: Tensor) -> Tensor:
        if not x.is_floating_point() or not x.ndim or len(x) != n:
            return x
        rows: Tensor = weights.to(x.device) @ x.reshape(n, -1).double()
        return rows.reshape(-1, *x.shape[1:]).to(x.dtype)

    yield dataclasses.replace(call.mapped(mix), what="affine mixtures of its rows")


def _mixed(call: Call, rows: int, generator: torch.Generator, first: int = 0) -> Call:
    """So many rows: the given ones scaled, fresh ones and zeros in turns; other kinds of numbers shuffled by rows."""
    n = call.rows
    order = torch.randperm(n, generator=generator, device=generator.device).cpu()
    order = order[torch.arange(rows) % n]
    kinds = (torch.arange(rows) + first) % 4

    def change(x: Tensor) -> Tensor:
        if not x.ndim or len(x) != n:
            return x
        taken = x[order.to(x.device)]
        if not x.is_floating_point():
            return taken
        fresh = torch.randn(taken.shape, generator=generator, device=generator.device).to(taken)
        shape = (-1, *[1] * (x.ndim - 1))
        kind = kinds.reshape(shape).to(x.device)
        scaled = taken * torch.where(kind == 0, SCALES[0], SCALES[1]).to(taken)
        return torch.where(kind == 1, fresh, torch.where(kind == 3, torch.zeros_like(taken), scaled))

    return dataclasses.replace(call.mapped(change), what=f"{rows} rows, scaled, fresh and zero")


def redrawn(call: Call, index: Tensor, generator: torch.Generator, what: str) -> Call:
    """The given rows, a tenth of their size elsewhere."""

    def move(x: Tensor) -> Tensor:
        if not x.is_floating_point() or not x.ndim:
            return x
        size = x.abs().mean().clamp(min=torch.finfo(x.dtype).tiny)
        return x + 0.1 * size * torch.randn(x.shape, generator=generator, device=generator.device).to(x)

    return dataclasses.replace(call.with_rows(index, what).mapped(move), what=what)


def with_length(call: Call, before: int, after: int) -> Call:
    """Every axis but the first that has the one length gets the other: cut, or filled with what is there."""

    def change(x: Tensor) -> Tensor:
        for axis in range(1, x.ndim):
            if x.shape[axis] == before:
                places = torch.arange(after, device=x.device) % max(before, 1)
                x = x.index_select(axis, places) if before else x
        return x

    return dataclasses.replace(call.mapped(change), what=f"length {after} in place of {before}")


def with_rows(call: Call, rows: int) -> Call:
    """So many rows, those that are there in turns."""
    return call.with_rows(torch.arange(rows) % call.rows, f"{rows} rows")


def _one_axis_more(x: Tensor, rows: int) -> Tensor:
    if not x.ndim or len(x) != rows:
        return x
    return x.unsqueeze(1).expand(rows, 2, *x.shape[1:]).clone()


def other_arguments(model: nn.Module, call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Calls with an argument that was left to its default: other numbers, the other truth value, a mask."""
    names = list(inspect.signature(model.forward).parameters.items())
    given = {name for name, _ in names[: len(call.args)]} | set(call.kwargs)
    for name, p in names:
        if name in given or p.default is p.empty or p.kind is p.VAR_KEYWORD:
            continue
        for value in _other_values(p.default, call, generator):
            shown = tuple(value.shape) if isinstance(value, Tensor) else value
            yield Call(call.args, {**call.kwargs, name: value}, f"{name}={shown}")


def _other_values(default: Any, call: Call, generator: torch.Generator) -> Iterator[Any]:
    if isinstance(default, bool):
        yield not default
    elif isinstance(default, int):
        yield from sorted({0, 1, 2, default - 1, default + 1} - {default, -1})
    elif default is None:
        x = next((x for x in call.tensors if x.ndim), None)
        if x is not None:
            for shape in dict.fromkeys(
                [(len(x),), (len(x), 1), (*x.shape[:-1], 1), tuple(x.shape[:-1]), tuple(x.shape)]
            ):
                drawn = torch.rand(shape, generator=generator, device=generator.device).to(x.device)
                yield drawn.to(x.dtype) if x.is_floating_point() else drawn
                yield drawn > 0.5
        yield from (True, 1)
