"""`KindsGuard`: refuses, on a small model, arguments of another kind than in any call that was judged."""

from __future__ import annotations

import dataclasses
import inspect
import numbers
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InvalidValue
from .guards import Guard, is_traced

Kind = tuple[object, ...]
Kinds = frozenset[tuple[str, Kind]]


class KindsGuard(Guard):
    """Refuses arguments of another kind than in any call for which a small model was judged; a forward pre-hook.

    None or a tensor, a list or a dictionary, a mask of truth values or of numbers, this word or that: each may be
    another way through forward, and there are too many to try all of them. The values of numbers and tensors are free.

    Parameters
    ----------
    module : nn.Module
        Whose forward it is.
    judged : iterable of (args, kwargs)
        The calls.
    unread : collection of str
        Parameters that forward does not look at: they may be anything.

    Examples
    --------
    >>> layer = nn.Identity()
    >>> KindsGuard(layer, [((torch.ones(1, 3),), {})]).stand_before(layer)
    >>> layer([torch.ones(3)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was not judged with such arguments (input...
    """

    def __init__(
        self,
        module: nn.Module,
        judged: Iterable[tuple[Sequence[object], Mapping[str, object]]],
        unread: Collection[str] = (),
    ) -> None:
        self.unread = frozenset(unread)
        parameters = list(inspect.signature(module.forward).parameters.values())
        self.known = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
        rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self.rest_unread = rest is not None and rest in self.unread
        self.names = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.judged = frozenset(self._kinds(args, kwargs) for args, kwargs in judged)

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look what kind of arguments there are, unless they belong to a program that is being traced."""
        if is_traced(args, kwargs):
            return
        if self.knows(args, kwargs):
            return
        kinds = self._kinds(args, kwargs)
        near = min(self.judged, key=lambda known: len(known ^ kinds))
        other = "; ".join(sorted(f"{where}: {_in_words(kind)}" for where, kind in kinds - near)) or "fewer arguments"
        raise InvalidValue(
            f"{type(module).__name__} was not judged with such arguments ({other}), so nothing is known of it there; "
            "give compress example_inputs of that kind"
        )

    def to_dict(self) -> dict[str, object]:
        """The kinds that were judged."""
        judged = [sorted(([where, list(kind)] for where, kind in kinds), key=repr) for kinds in self.judged]
        return {"judged": sorted(judged, key=repr), "unread": sorted(self.unread)}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> KindsGuard:
        """Made again."""
        guard = cls(module, [], [str(name) for name in said["unread"]])
        guard.judged = frozenset(frozenset((str(where), tuple(kind)) for where, kind in k) for k in said["judged"])
        if not guard.judged:
            raise ValueError("no kinds of arguments")
        return guard

    def knows(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Whether arguments of these kinds were judged."""
        return self._kinds(args, kwargs) in self.judged

    def _matters(self, name: str) -> bool:
        """Whether forward looks at an argument: by its own name, or among those that it takes by any name."""
        return name not in self.unread and (name in self.known or not self.rest_unread)

    def _kinds(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Kinds:
        named = dict(zip((*self.names, *map(str, range(len(args)))), args, strict=False))
        given = {name: x for name, x in {**self.defaults, **named, **kwargs}.items() if self._matters(name)}
        order = {name: k for k, name in enumerate(self.names)}
        return frozenset(_kinds_of(dict(sorted(given.items(), key=lambda item: order.get(item[0], len(order))))))


def _kinds_of(given: Mapping[str, object]) -> Iterator[tuple[str, Kind]]:
    """The kind of each argument, and of each part of one; axes are counted from those of the first tensor.

    A tensor without axes is a number.
    """
    todo = list(given.items())[::-1]
    first: int | None = None
    while todo:
        where, value = todo.pop()
        if isinstance(value, Tensor) and not value.ndim and first is not None and not value.is_complex():
            yield where, ("a number",)
        elif isinstance(value, Tensor):
            first = value.ndim if first is None else first
            yield where, ("tensor", _numbers(value.dtype), value.ndim - first)
        elif isinstance(value, Mapping):
            yield where, (type(value).__name__,)
            todo += [(f"{where}[{key!r}]", value[key]) for key in sorted(value, key=repr, reverse=True)]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield where, (type(value).__name__,)
            todo += [(f"{where}.{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value)[::-1]]
        elif isinstance(value, list | tuple) and value and all(isinstance(x, numbers.Real) for x in value):
            yield where, ("numbers",)  # torch.Size among them
        elif isinstance(value, list | tuple):
            yield where, (type(value).__name__,)
            todo += [(f"{where}[{key}]", part) for key, part in enumerate(value)][::-1]
        elif isinstance(value, Enum):
            yield where, (f"{type(value).__name__}.{value.name}",)
        elif isinstance(value, bool | str) or value is None:
            yield where, (value,)
        elif isinstance(value, numbers.Real):
            yield where, ("a number",)
        elif callable(value):
            yield where, ("callable", getattr(value, "__qualname__", type(value).__qualname__))
        else:
            yield where, (type(value).__name__,)


def _numbers(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "truth values"
    if dtype.is_complex:
        return "complex numbers"
    return "numbers with a point" if dtype.is_floating_point else "whole numbers"


def _in_words(kind: Kind) -> str:
    if kind[0] == "tensor":
        axes = int(str(kind[2]))
        other = f", of {abs(axes)} axes {'more' if axes > 0 else 'fewer'} than the first" if axes else ""
        return f"a tensor of {kind[1]}{other}"
    return " ".join(map(str, kind))
