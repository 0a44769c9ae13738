"""Other values for arguments, given or left out: words and numbers of the code, truth values, masks, more inputs.

Which of them a model accepts is for the model to say. They come in turns, for each argument the most telling first.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import combinations, islice, zip_longest
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ...modes import Argument
from ...running import Call
from .code import Constants, constants_of, reads

#: widths that an input which is left out may have, and words under which one is tried
MOST_WIDTHS, MOST_WORDS = 12, 8
#: changes of two arguments that are tried
MOST_PAIRS = 24
#: what stands under a key if the code names none
_SOME_KEY = "key"
T = TypeVar("T")


class Change(NamedTuple):
    """Another value for one argument, and how a call gets it."""

    argument: str
    made_in: Callable[[Call], Call]
    what: str

    def __call__(self, call: Call) -> Call:
        """The call with it."""
        changed = self.made_in(call)
        return Call(changed.args, changed.kwargs, self.what)


class Outcome(NamedTuple):
    """What became of a call: whether the model accepts it, whether it does something else then, what it cost."""

    accepted: bool
    differs: bool
    cost: int


def vary(
    model: nn.Module, call: Call, generator: torch.Generator, allowance: int, attempt: Callable[[Call], Outcome]
) -> None:
    """Try other values of one argument each, in turns, and then of two, until that has cost what is allowed.

    A quarter of it is left for two: first those of which one alone was refused, or did something else.
    """
    changes: dict[str, list[tuple[Change, Outcome]]] = {}
    spent = 0
    for change in other_arguments(model, call, generator):
        outcome = attempt(change(call))
        changes.setdefault(change.argument, []).append((change, outcome))
        spent += outcome.cost
        if 4 * spent > 3 * allowance:
            break
    for first, second in islice(_pairs(list(changes.values())), MOST_PAIRS):
        if spent > allowance:
            break
        both = second(first(call))
        spent += attempt(dataclasses.replace(both, what=f"{first.what}, {second.what}")).cost


def _pairs(changes: list[list[tuple[Change, Outcome]]]) -> Iterator[tuple[Change, Change]]:
    """Changes of two arguments of which at least one is accepted alone, in turns for any two arguments."""

    def of_two(
        some: list[tuple[Change, Outcome]], others: list[tuple[Change, Outcome]]
    ) -> Iterator[tuple[Change, Change]]:
        found = []
        for i, (first, a) in enumerate(some):
            for k, (second, b) in enumerate(others):
                if a.accepted or b.accepted:
                    telling = sum(not o.accepted or o.differs for o in (a, b))
                    found.append((-telling, i + k, i, first, second))
        return ((first, second) for *_, first, second in sorted(found, key=lambda item: item[:3]))

    return in_turns(of_two(a, b) for a, b in combinations(changes, 2))


def other_arguments(model: nn.Module, call: Call, generator: torch.Generator) -> Iterator[Change]:
    """Changes of one argument each, in turns; arguments that forward does not look at stay."""
    values = _Values(model, call, generator)
    return in_turns(_changes(model, call, values))


def in_turns(parts: Iterable[Iterator[T]]) -> Iterator[T]:
    """The first of each, then the second of each, and so on.

    >>> list(in_turns([iter("abc"), iter("d"), iter("ef")]))
    ['a', 'd', 'e', 'b', 'f', 'c']
    """
    nothing = object()
    for turn in zip_longest(*parts, fillvalue=nothing):
        yield from (x for x in turn if x is not nothing)  # type: ignore[misc]


def _changes(model: nn.Module, call: Call, values: _Values) -> Iterator[Iterator[Change]]:
    """For each argument its changes."""
    names = list(inspect.signature(model.forward).parameters.items())
    positional = [name for name, p in names if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = {**dict(zip(positional, call.args, strict=False)), **call.kwargs}
    for name, p in names:
        if not reads(model, name):
            continue
        if p.kind is p.VAR_POSITIONAL:
            yield _more_inputs(call, name)
        elif p.kind is p.VAR_KEYWORD:
            yield _named_inputs(values, [word for word in values.constants.words if word not in given])
        elif isinstance(given.get(name), Tensor):
            if p.default is None or name not in positional[:1]:
                yield iter([_set(positional, name, None)])
        elif name in given or p.default is not p.empty:
            yield map(partial(_set, positional, name), values.instead_of(given.get(name, p.default)))


def _more_inputs(call: Call, name: str) -> Iterator[Change]:
    for more in (1, 2) if call.args else ():
        yield Change(
            name,
            lambda other, more=more: Call((*other.args, *[other.args[-1]] * more), other.kwargs),  # type: ignore[misc]
            f"{more} more inputs",
        )


def _named_inputs(values: _Values, words: list[str]) -> Iterator[Change]:
    """Arguments for ``**kwargs``: what the code names."""
    for value in (True, *values.call.args[:1], *values.inputs()):
        yield from (_set([], word, value) for word in words if word.isidentifier() or value is True)


def _set(positional: list[str], name: str, value: Argument) -> Change:
    """Another value for an argument, given by its place or by its name."""

    def changed(call: Call) -> Call:
        at = positional.index(name) if name in positional else len(call.args)
        if at < len(call.args):
            return Call((*call.args[:at], value, *call.args[at + 1 :]), call.kwargs)
        return Call(call.args, {**call.kwargs, name: value})

    return Change(name, changed, f"{name}={_shown(value)}")


def _shown(value: Argument) -> str:
    if isinstance(value, Tensor):
        return str(tuple(value.shape)) if value.dtype != torch.int64 else f"indices {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_shown(part) for part in value) + ")"
    return str(value)


class _Values:
    """Values that arguments of a model may have instead of those they have now."""

    def __init__(self, model: nn.Module, call: Call, generator: torch.Generator) -> None:
        self.call, self.generator = call, generator
        self.constants: Constants = constants_of(model)
        self.widths = sorted({k for p in model.parameters() for k in p.shape})[:MOST_WIDTHS]
        tables = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
        self.indices = min(tables, default=2)
        self.like = next((x for x in call.tensors if x.ndim), None)  # the input that others may look like

    def instead_of(self, now: object) -> Iterator[Argument]:
        """Other values, the most telling first."""
        numbers = self.constants.numbers
        if isinstance(now, bool):
            yield not now
        elif isinstance(now, Enum):
            yield from (member for member in type(now) if member is not now)
        elif isinstance(now, int):
            near = {int(k) + d for k in numbers if k == int(k) and abs(k) < 2**12 for d in (0, 1)}
            places = range(self.constants.places)
            yield from sorted({0, 1, 2, now - 1, now + 1, *range(3, 9), *places, *near} - {now, -1})
        elif isinstance(now, float):
            yield from dict.fromkeys((0.0, -now, 2 * now + 1, *map(float, numbers), *(2.0 * k for k in numbers)))
        elif isinstance(now, str):
            yield from (word for word in self.constants.words if word != now)
        elif isinstance(now, tuple | list) and not any(isinstance(x, Tensor) for x in now):
            places = range(max(3, self.constants.places))
            yield from (type(now)(other) for other in ((), (0, 1), *((k,) for k in places)) if list(other) != list(now))
        elif isinstance(now, dict):
            yield from self._other_dicts(now)
        elif now is None:
            yield from in_turns(
                [
                    iter((True, False, 1, 0.3)),
                    self.inputs(),
                    self._indices(),
                    self._masks(),
                    iter(self.constants.words),
                    self._several(),
                ]
            )

    def _other_dicts(self, now: dict[Argument, Argument]) -> Iterator[Argument]:
        """Each key left out, what is under it another, and keys added that the code names."""
        for left_out in now if len(now) > 1 else ():
            yield {key: value for key, value in now.items() if key != left_out}
        for key, value in now.items():
            if value is not None and not isinstance(value, Tensor | dict):
                yield from ({**now, key: other} for other in self.instead_of(value))
        words = [word for word in self.constants.words if word not in now][:MOST_WORDS]
        for value in (True, *self.inputs(), *self._indices()):
            yield from ({**now, word: value} for word in words)

    def inputs(self) -> Iterator[Tensor]:
        """Numbers for every row or position: as many as the input has, as many as a layer may want, one."""
        return (self._drawn(shape) for shape in self._shapes())

    def _shapes(self) -> list[tuple[int, ...]]:
        x = self.like
        if x is None:
            return []
        wide = [(*x.shape[:-1], k) for k in self.widths] if x.ndim > 1 else []
        if not x.is_floating_point():  # a number is itself a position
            wide = [(*x.shape, k) for k in self.widths] + wide
        rows = [(len(x), k) for k in self.widths]
        alike = [tuple(x.shape), tuple(x.shape[:-1]), (len(x),), (len(x), 1), (*x.shape[:-1], 1)]
        return list(dict.fromkeys([tuple(x.shape), *wide, *rows, *alike]))

    def _masks(self) -> Iterator[Tensor]:
        x = self.like
        if x is not None:
            shapes = [tuple(x.shape[:-1]), tuple(x.shape), (len(x),), (*x.shape[:-1], 1), (len(x), 1)]
            shapes += [(*x.shape[:-1], k) for k in self.widths]
            yield from (self._drawn(shape) > 0.5 for shape in dict.fromkeys(shapes))

    def _indices(self) -> Iterator[Tensor]:
        """Places in every table that the model has: one for each row, for each row and position, one for all."""
        x = self.like
        if x is None:
            return
        most, device = self.indices, self.generator.device
        if not x.is_floating_point() and x.dtype != torch.bool:
            yield torch.ones_like(x)  # a mask for such inputs
        for shape in dict.fromkeys([(len(x),), tuple(x.shape[:2]), tuple(x.shape), (len(x), 1), ()]):
            yield torch.randint(most, shape, generator=self.generator, device=device).to(x.device)

    def _several(self) -> Iterator[Argument]:
        """Two inputs, and inputs under words of the code: under each of them, and under all."""
        shapes = self._shapes()
        words = [word for word in self.constants.words if " " not in word][:MOST_WORDS]
        alone, all_of_them = words or [_SOME_KEY], words if len(words) > 1 else []
        for shape in shapes:
            yield self._drawn(shape), self._drawn(shape)
            yield [self._drawn(shape), self._drawn(shape)]
            yield from ({word: self._drawn(shape)} for word in alone)
            if all_of_them:
                yield {word: self._drawn(shape) for word in all_of_them}

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        x = self.like
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return drawn if x is None else drawn.to(x.device, x.dtype if x.is_floating_point() else None)
