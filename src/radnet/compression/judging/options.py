"""Other values for arguments, given or left out: words and numbers of the code, truth values, masks, more inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum

import torch
from torch import Tensor, nn

from ...modes import Argument
from ...running import Call
from .code import Constants, constants_of


def other_arguments(model: nn.Module, call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Calls with other arguments, given or left out: numbers, words, the other truth value, masks, more inputs."""
    names = list(inspect.signature(model.forward).parameters.items())
    positional = [name for name, p in names if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = {**dict(zip(positional, call.args, strict=False)), **call.kwargs}
    constants = constants_of(model)
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
