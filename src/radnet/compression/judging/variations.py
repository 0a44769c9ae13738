"""Other inputs like the given ones: a function is the same everywhere, not only where one looks.

Other sizes of numbers, other numbers of rows, other lengths of every axis, one axis more, and arguments that are not
given. Whether a model accepts them is for the model to say.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...modes import Argument
from ...running import Call

#: words and numbers in the code of a model that are tried, and how long a word may be
MOST_CONSTANTS, LONGEST_WORD = 12, 40
#: so many rows are judged at least, given and other ones together, if they have so few numbers
ENOUGH, CHEAP = 128, 2**15
#: what scaled rows are multiplied by, in turns with fresh normal rows and rows of zeros
SCALES = (1e3, 1e-3)
#: numbers of rows, and lengths of other axes, at which a model's Python may take another turn
LADDER = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025)


def other_inputs(call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Scaled, fresh and zero rows of another number; one row; every other axis longer; one axis more."""
    n = call.rows
    few = n // 2 if n >= 4 else n + 1
    if ENOUGH * sum(x.numel() for x in call.tensors) <= CHEAP * n:
        few = max(few, ENOUGH - n)
    yield _mixed(call, few, generator)
    if n > 1:
        yield dataclasses.replace(_mixed(call, 1, generator, first=1), what="one row")
    share = call.with_rows(torch.arange(max(1, min(n, n // 8))), "")
    for length in lengths_of(share):
        yield from with_lengths(share, length, length + 1)
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
    """So many rows: the given ones scaled, fresh ones and zeros in turns; other kinds of numbers shuffled."""
    n = call.rows
    order = torch.randperm(n, generator=generator, device=generator.device).cpu()
    order = order[torch.arange(rows) % n]
    kinds = (torch.arange(rows) + first) % 4

    def change(x: Tensor) -> Tensor:
        if not x.ndim or len(x) != n:
            return x
        taken = x[order.to(x.device)]
        if not x.is_floating_point():
            return _recombined(taken, x, kinds, generator)
        fresh = torch.randn(taken.shape, generator=generator, device=generator.device).to(taken)
        shape = (-1, *[1] * (x.ndim - 1))
        kind = kinds.reshape(shape).to(x.device)
        scaled = taken * torch.where(kind == 0, SCALES[0], SCALES[1]).to(taken)
        return torch.where(kind == 1, fresh, torch.where(kind == 3, torch.zeros_like(taken), scaled))

    return dataclasses.replace(call.mapped(change), what=f"{rows} rows, scaled, fresh and zero")


def _recombined(taken: Tensor, x: Tensor, kinds: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of whole numbers; every second one is made of the entries of all rows, each where it stood."""
    if x.ndim < 2 or x.dtype == torch.bool:
        return taken
    pick = torch.randint(len(x), taken.shape, generator=generator, device=generator.device).to(x.device)
    mixed = (kinds % 2 == 1).reshape(-1, *[1] * (x.ndim - 1)).to(x.device)
    return torch.where(mixed, x.gather(0, pick), taken)


def redrawn(call: Call, index: Tensor, generator: torch.Generator, what: str) -> Call:
    """The given rows, a tenth of their size elsewhere."""

    def move(x: Tensor) -> Tensor:
        if not x.is_floating_point() or not x.ndim:
            return x
        size = x.abs().where(x.isfinite(), 0.0).mean().clamp(min=torch.finfo(x.dtype).tiny)
        return x + 0.1 * size * torch.randn(x.shape, generator=generator, device=generator.device).to(x)

    return dataclasses.replace(call.with_rows(index, what).mapped(move), what=what)


def lengths_of(call: Call) -> list[int]:
    """The lengths of all axes but the first."""
    return sorted({k for x in call.tensors for k in x.shape[1:]})


def with_lengths(call: Call, before: int, after: int) -> Iterator[Call]:
    """All axes but the first that have the one length get the other, together and one by one."""
    places = [(k, axis) for k, x in enumerate(call.tensors) for axis in range(1, x.ndim) if x.shape[axis] == before]
    for chosen in [places, *([place] for place in places if len(places) > 1)]:
        count = iter(range(len(call.tensors)))

        def change(x: Tensor, chosen: list[tuple[int, int]] = chosen, count: Iterator[int] = count) -> Tensor:
            k = next(count)
            for axis in range(1, x.ndim):
                if (k, axis) in chosen:
                    x = x.index_select(axis, torch.arange(after, device=x.device) % before)
            return x

        where = "" if len(chosen) == len(places) else f", axis {chosen[0][1]}"
        yield dataclasses.replace(call.mapped(change), what=f"length {after} in place of {before}{where}")


def with_rows(call: Call, rows: int) -> Call:
    """So many rows, those that are there in turns."""
    return call.with_rows(torch.arange(rows) % call.rows, f"{rows} rows")


def _one_axis_more(x: Tensor, rows: int) -> Tensor:
    if not x.ndim or len(x) != rows:
        return x
    return x.unsqueeze(1).expand(rows, 2, *x.shape[1:]).clone()


def unusual_inputs(call: Call) -> Iterator[Call]:
    """Inputs with which a model's Python may take another way: memory with gaps, one axis fewer, longer lists."""
    gaps = call.mapped(lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.ndim > 1 else x)
    yield dataclasses.replace(gaps, what="memory with gaps")
    rows = call.rows
    flat = call.mapped(lambda x: x[0] if x.ndim > 1 and len(x) == rows else x)
    yield dataclasses.replace(flat, what="one axis fewer", other_axes=True)
    front = call.mapped(lambda x: torch.stack([x, x]) if x.ndim else x)
    yield dataclasses.replace(front, what="one axis in front", other_axes=True)
    for k, x in enumerate(call.args):
        if isinstance(x, list | tuple) and x:
            for other in ([*x, x[-1]], [*x, *x, x[0]], list(x[:-1])):
                args = (*call.args[:k], type(x)(other), *call.args[k + 1 :])
                yield Call(args, call.kwargs, f"a list of {len(other)}")


def other_arguments(model: nn.Module, call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Calls with other arguments, given or left out: numbers, words, the other truth value, masks, more inputs."""
    names = list(inspect.signature(model.forward).parameters.items())
    positional = [name for name, p in names if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = {**dict(zip(positional, call.args, strict=False)), **call.kwargs}
    constants = _constants(model)
    for name, p in names:
        if p.kind is p.VAR_POSITIONAL and call.args:
            for more in (1, 2):
                yield Call((*call.args, *[call.args[-1]] * more), call.kwargs, f"{more} more inputs")
        elif p.kind is p.VAR_KEYWORD:
            for word in constants.words:
                for value in (True, call.args[0]) if call.args else (True,):
                    said = "" if isinstance(value, Tensor) else str(value)
                    yield Call(call.args, {**call.kwargs, word: value}, f"{word}={said}")
        elif (name in given and not isinstance(given[name], Tensor)) or (
            name not in given and p.default is not p.empty
        ):
            now = given.get(name, p.default)
            for value in _other_values(now, call, generator, constants, _widths(model)):
                shown = tuple(value.shape) if isinstance(value, Tensor) else value
                yield _with_argument(call, positional, name, value, f"{name}={shown}")
        elif isinstance(given.get(name), Tensor) and p.default is None:
            yield _with_argument(call, positional, name, None, f"{name}=None")


def _with_argument(call: Call, positional: list[str], name: str, value: Argument, what: str) -> Call:
    """The call with another value for one of its arguments, given by its place or by its name."""
    at = positional.index(name) if name in positional else len(call.args)
    if at < len(call.args):
        return Call((*call.args[:at], value, *call.args[at + 1 :]), call.kwargs, what)
    return Call(call.args, {**call.kwargs, name: value}, what)


class Constants(NamedTuple):
    """Words and numbers in the code of a model's own methods: what arguments and lengths may be compared with."""

    words: list[str]
    numbers: list[float]


def _constants(model: nn.Module) -> Constants:
    words: dict[str, None] = {}
    numbers: dict[float, None] = {}
    for cls in {type(m): None for m in model.modules() if not type(m).__module__.startswith(("torch.", "radnet."))}:
        for name, method in sorted(vars(cls).items(), key=lambda item: item[0] != "forward"):  # the most telling first
            for c in () if name == "__init__" else _in_code(getattr(method, "__code__", None)):
                if isinstance(c, str) and 0 < len(c) <= LONGEST_WORD and c != method.__doc__:
                    words[c] = None
                elif isinstance(c, int | float) and not isinstance(c, bool):
                    numbers[c] = None
    return Constants(list(words)[:MOST_CONSTANTS], list(numbers)[:MOST_CONSTANTS])


def _in_code(code: object) -> Iterator[object]:
    """The constants of a function, of those inside it, and in its tuples and sets."""
    todo = [code]
    while todo:
        c = todo.pop()
        if isinstance(c, types.CodeType):
            todo += c.co_consts
        elif isinstance(c, tuple | frozenset):
            todo += c
        else:
            yield c


def numbers_in_code(model: nn.Module) -> list[int]:
    """Whole numbers in a model's own code: lengths that its forward may compare with."""
    return sorted({int(k) for k in _constants(model).numbers if k == int(k) and 1 < k <= 2**12})


def _widths(model: nn.Module) -> list[int]:
    """The lengths of the axes of parameters, the shortest first: what an input may be as long as."""
    return sorted({k for p in model.parameters() for k in p.shape})[:12]


def _other_values(
    now: object, call: Call, generator: torch.Generator, constants: Constants, widths: list[int]
) -> Iterator[Argument]:
    """Values that an argument may have instead of the one it has now."""
    if isinstance(now, bool):
        yield not now
    elif isinstance(now, Enum):
        yield from (member for member in type(now) if member is not now)
    elif isinstance(now, int):
        near = {k + d for k in constants.numbers if k == int(k) and abs(k) < 2**12 for d in (0, 1)}
        yield from sorted({0, 1, 2, now - 1, now + 1, *range(3, 9), *map(int, near)} - {now, -1})
    elif isinstance(now, float):
        yield from dict.fromkeys(
            (0.0, -now, 2 * now + 1, *(float(k) for k in constants.numbers), *(2.0 * k for k in constants.numbers))
        )
    elif isinstance(now, str):
        yield from (word for word in constants.words if word != now)
    elif isinstance(now, tuple) and not any(isinstance(x, Tensor) for x in now):
        yield from ((), (0,), (1,), (0, 1))
    elif now is None:
        x = next((x for x in call.tensors if x.ndim), None)
        if x is not None:
            shapes = [(len(x),), (len(x), 1), (*x.shape[:-1], 1), tuple(x.shape[:-1]), tuple(x.shape)]
            shapes += [(*x.shape[:-1], k) for k in widths]
            for shape in dict.fromkeys(shapes):
                drawn = torch.rand(shape, generator=generator, device=generator.device).to(x.device)
                yield drawn.to(x.dtype) if x.is_floating_point() else drawn
                yield drawn > 0.5
        yield from (True, 1, 0.3, *constants.words)
