"""What refuses, on a small model, calls for which nobody has looked whether it is the same function.

`AxesGuard` for inputs of another number of axes, where a difference was found; `SizesGuard` for sizes with which
forward is known to turn another way that nobody could run along; `ModeGuard` for training mode; `KindsGuard` for
arguments of another kind than in any call that was judged; `NeverRan` for layers that ran in none of them.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..errors import InvalidValue
from .judging.comparisons import Comparison

Kind = tuple[object, ...]
Kinds = frozenset[tuple[str, Kind]]


class Guard(ABC):
    """A forward pre-hook, with keywords, that refuses calls; it can be written to a file and made again from that."""

    @abstractmethod
    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look at a call, and raise if it is to be refused."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """What it refuses, as plain data."""

    @classmethod
    @abstractmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> Guard:
        """The guard that gave this data, for a module of the same kind; raises whatever data of another kind raise."""

    def stand_before(self, module: nn.Module) -> None:
        """Have it look at every call of a module."""
        module.register_forward_pre_hook(self, with_kwargs=True)


class AxesGuard(Guard):
    """Refuses inputs with another number of axes than a model was compressed for; a forward pre-hook with keywords.

    An unbatched picture is another function of many models: what were channels are rows then. Where `compress` finds
    that the small model is not the same there, it says so and leaves this on the small model.

    Parameters
    ----------
    names : sequence of str
        Of the parameters that forward takes by position, `parameters_of` the model.
    axes : mapping
        How many axes the tensors have that it was compressed for (`axes_of` its arguments), by where they stand.
    refused : set of int
        -1 if fewer axes are refused, 1 if more are.

    Examples
    --------
    >>> layer = nn.Identity()
    >>> AxesGuard(parameters_of(layer), {"input": 2}, frozenset({-1})).stand_before(layer)
    >>> layer(input=torch.ones(3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was compressed for inputs of 2 axes and got 1: there the original is ...
    """

    def __init__(self, names: Sequence[str], axes: Mapping[str, int], refused: frozenset[int]) -> None:
        self.names, self.refused = tuple(names), refused
        self.axes = {where: count for where, count in axes.items() if count}

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look at the tensors that stand where those stood."""
        for where, axes in axes_of(self.names, args, kwargs).items():
            given = self.axes.get(where, axes)
            if axes != given and (1 if axes > given else -1) in self.refused:
                raise InvalidValue(
                    f"{type(module).__name__} was compressed for inputs of {self.axes[where]} axes and got {axes}: "
                    "there the original is another function"
                )

    def to_dict(self) -> dict[str, object]:
        """Axes, and which are refused."""
        return {"axes": self.axes, "refused": sorted(self.refused)}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> AxesGuard:
        """Made again."""
        return cls(parameters_of(module), {str(k): int(n) for k, n in said["axes"].items()}, frozenset(said["refused"]))


class SizesGuard(Guard):
    """Refuses sizes with which forward turns another way than any that was followed or judged; a forward pre-hook.

    Parameters
    ----------
    names : sequence of str
        Of the parameters that forward takes by position, `parameters_of` the model.
    axes : mapping
        How many axes the tensors have whose sizes the comparisons are about, by where they stand.
    path : sequence of Comparison
        With sizes for which all of them come out so, the model is refused.

    Examples
    --------
    >>> layer = nn.Identity()
    >>> path = (Comparison("n[0]*n[1] > 20", True),)
    >>> guard = SizesGuard(parameters_of(layer), {"input": 2}, path)
    >>> guard.stand_before(layer)
    >>> guard.words
    'input.shape[0]*input.shape[1] > 20'
    >>> layer(torch.ones(8, 3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was not judged with such sizes (input.shape[0]*input.shape[1] > 20), ...
    """

    def __init__(self, names: Sequence[str], axes: Mapping[str, int], path: Sequence[Comparison]) -> None:
        self.names, self.path, self.counts = tuple(names), tuple(path), dict(axes)
        self.axes = [(where, axis) for where, ndim in axes.items() for axis in range(ndim)]

    @property
    def words(self) -> str:
        """What is refused."""
        code = " and ".join(c.code if c.outcome else f"not {c.code}" for c in self.path)
        for k, (where, axis) in reversed(list(enumerate(self.axes))):
            code = code.replace(f"n[{k}]", f"{where}.shape[{axis}]")
        return code

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look at the sizes, unless they belong to a program that is being traced."""
        if _is_traced(args, kwargs):
            return
        tensors = tensors_of(self.names, args, kwargs)
        if any(where not in tensors or axis >= tensors[where].ndim for where, axis in self.axes):
            return
        sizes = [tensors[where].shape[axis] for where, axis in self.axes]
        if all(comparison.holds(sizes) for comparison in self.path):
            raise InvalidValue(
                f"{type(module).__name__} was not judged with such sizes ({self.words}), for which its forward does "
                "something else; give compress example_inputs of such sizes"
            )

    def to_dict(self) -> dict[str, object]:
        """Axes, and the comparisons."""
        return {"axes": self.counts, "path": [list(comparison) for comparison in self.path]}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> SizesGuard:
        """Made again."""
        path = [Comparison(str(code), bool(outcome)) for code, outcome in said["path"]]
        for comparison in path:
            comparison.check()
        return cls(parameters_of(module), {str(k): int(n) for k, n in said["axes"].items()}, path)


def axes_of(names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, int]:
    """How many axes the tensors among arguments have, by where they stand."""
    return {where: x.ndim for where, x in tensors_of(names, args, kwargs).items()}


def tensors_of(names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Tensor]:
    """The tensors among arguments, by where they stand: the names of parameters, given by position or by name.

    >>> list(tensors_of(["x", "more"], (torch.ones(1), [torch.ones(1), 2]), {}))
    ['x', 'more[0]']
    """
    named = zip((*names, *map(str, range(len(args)))), args, strict=False)
    found: dict[str, Tensor] = {}
    todo: list[tuple[str, object]] = [*named, *kwargs.items()][::-1]
    while todo:
        where, value = todo.pop()
        if isinstance(value, Tensor):
            found[where] = value
        elif isinstance(value, dict):
            todo += [(f"{where}[{key}]", part) for key, part in value.items()][::-1]
        elif isinstance(value, list | tuple):
            todo += [(f"{where}[{key}]", part) for key, part in enumerate(value)][::-1]
    return found


def _is_traced(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    return torch.compiler.is_compiling() or any(isinstance(x, fx.Proxy) for x in (*args, *kwargs.values()))


def parameters_of(module: nn.Module) -> list[str]:
    """The names of the parameters that forward takes by position.

    >>> parameters_of(nn.Identity())
    ['input']
    """
    parameters = inspect.signature(module.forward).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


class ModeGuard(Guard):
    """Refuses to run in training mode a model that does something else there than in evaluation mode; a pre-hook.

    Examples
    --------
    >>> layer = nn.Identity().train()
    >>> ModeGuard().stand_before(layer)
    >>> layer(torch.ones(1, 2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was compressed in evaluation mode, and in training mode its forward does ...
    """

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look which mode it is."""
        if module.training:
            raise InvalidValue(
                f"{type(module).__name__} was compressed in evaluation mode, and in training mode its forward does "
                "something else; call eval(), or compress the original in training mode"
            )

    def to_dict(self) -> dict[str, object]:
        """Nothing."""
        return {}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> ModeGuard:
        """Made again."""
        return cls()


class NeverRan(Guard):
    """Refuses to run a layer that never ran while its model was compressed; a forward pre-hook of that layer.

    What arrives there is not known, so it may be kept in coordinates that the layer does not read.

    Parameters
    ----------
    path : str
        Of the layer in the model.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> NeverRan("heads.3").stand_before(layer)
    >>> layer(torch.ones(1, 2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: heads.3 (Linear) did not run with any call that compress tried, ...
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Refuse."""
        raise InvalidValue(
            f"{self.path} ({type(module).__name__}) did not run with any call that compress tried, so nothing is known "
            "of what arrives there; give compress example_inputs with which it runs"
        )

    def to_dict(self) -> dict[str, object]:
        """Which layer it is."""
        return {"layer": self.path}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> NeverRan:
        """Made again."""
        return cls(str(said["layer"]))


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

    Examples
    --------
    >>> layer = nn.Identity()
    >>> KindsGuard(layer, [((torch.ones(1, 3),), {})]).stand_before(layer)
    >>> layer([torch.ones(3)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was not judged with such arguments (input...
    """

    def __init__(self, module: nn.Module, judged: Iterable[tuple[Sequence[object], Mapping[str, object]]]) -> None:
        parameters = list(inspect.signature(module.forward).parameters.values())
        self.names = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.judged = frozenset(self._kinds(args, kwargs) for args, kwargs in judged)

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look what kind of arguments there are, unless they belong to a program that is being traced."""
        if _is_traced(args, kwargs):
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
        return {"judged": [sorted([where, list(kind)] for where, kind in kinds) for kinds in self.judged]}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> KindsGuard:
        """Made again."""
        guard = cls(module, [])
        guard.judged = frozenset(frozenset((str(where), tuple(kind)) for where, kind in k) for k in said["judged"])
        hash(guard.judged)
        return guard

    def knows(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Whether arguments of these kinds were judged."""
        return self._kinds(args, kwargs) in self.judged

    def _kinds(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Kinds:
        named = dict(zip((*self.names, *map(str, range(len(args)))), args, strict=False))
        given = {**self.defaults, **named, **kwargs}
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
            todo += [(f"{where}[{key!r}]", part) for key, part in value.items()]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield where, (type(value).__name__,)
            todo += [(f"{where}.{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value)]
        elif isinstance(value, list | tuple) and not all(isinstance(x, int | float) for x in value):
            yield where, (type(value).__name__,)
            todo += [(f"{where}[{key}]", part) for key, part in enumerate(value)]
        elif isinstance(value, Enum):
            yield where, (f"{type(value).__name__}.{value.name}",)
        elif isinstance(value, bool | str) or value is None:
            yield where, (value,)
        elif isinstance(value, int | float):
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
        return f"a tensor of {kind[1]}" + (f" with {kind[2]:+d} axes" if kind[2] else "")
    return " ".join(map(str, kind))


#: by their names in files
GUARDS: dict[str, type[Guard]] = {
    kind.__name__: kind for kind in (AxesGuard, SizesGuard, KindsGuard, ModeGuard, NeverRan)
}
