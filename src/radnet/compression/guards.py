"""What refuses, on a small model, calls for which nobody has looked whether it is the same function.

`AxesGuard` for inputs of another number of axes, where a difference was found; `SizesGuard` for sizes with which
forward is known to turn another way that nobody could run along; `ModeGuard` for training mode;
`NeverRan` for layers that ran in no call that was judged. For arguments of another kind see `kinds`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

from ..errors import InvalidValue
from .judging.comparisons import MOST_AXES, Comparison, conjunction

#: characters of what is refused, in words
LONGEST = 200


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
    counted : bool
        Whether forward asks how many axes there are: then only one more or one fewer were tried, and no others are let
        through.

    Examples
    --------
    >>> import torch
    >>> layer = nn.Identity()
    >>> AxesGuard(parameters_of(layer), {"input": 2}, frozenset({-1})).stand_before(layer)
    >>> layer(input=torch.ones(3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was compressed for inputs of 2 axes and got 1: there the original is ...
    """

    def __init__(
        self, names: Sequence[str], axes: Mapping[str, int], refused: frozenset[int], *, counted: bool = False
    ) -> None:
        self.names, self.refused, self.counted = tuple(names), refused, counted
        self.axes = {where: count for where, count in axes.items() if count}

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look at the tensors that stand where those stood."""
        for where, axes in axes_of(self.names, args, kwargs).items():
            given = self.axes.get(where, axes)
            if axes != given and (
                (1 if axes > given else -1) in self.refused or (self.counted and abs(axes - given) > 1)
            ):
                raise InvalidValue(
                    f"{type(module).__name__} was compressed for inputs of {self.axes[where]} axes and got {axes}: "
                    "there the original is another function"
                )

    def to_dict(self) -> dict[str, object]:
        """Axes, and which are refused."""
        return {"axes": self.axes, "refused": sorted(self.refused), "counted": self.counted}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> AxesGuard:
        """Made again."""
        axes, refused = {str(k): int(n) for k, n in said["axes"].items()}, frozenset(map(int, said["refused"]))
        return cls(parameters_of(module), axes, refused, counted=bool(said["counted"]))


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
    >>> import torch
    >>> layer = nn.Identity()
    >>> path = (Comparison("n[0]*n[1] > 20", True),)
    >>> guard = SizesGuard(parameters_of(layer), {"input": 2}, path)
    >>> guard.stand_before(layer)
    >>> guard.words
    'input.shape[0] * input.shape[1] > 20'
    >>> layer(torch.ones(8, 3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was not judged with such sizes (input.shape[0] * input.shape[1] > 20), ...
    """

    def __init__(self, names: Sequence[str], axes: Mapping[str, int], path: Sequence[Comparison]) -> None:
        self.names, self.path, self.counts = tuple(names), tuple(c.plain for c in path), dict(axes)
        self.holds = conjunction(self.path)
        self.axes = [(where, axis) for where, ndim in axes.items() for axis in range(ndim)]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "holds"}  # a function, made anew

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self.holds = conjunction(self.path)

    @property
    def words(self) -> str:
        """What is refused."""
        code = " and ".join(c.code if c.outcome else f"not {c.code}" for c in self.path)
        for k, (where, axis) in reversed(list(enumerate(self.axes))):
            code = code.replace(f"n[{k}]", f"{where}.shape[{axis}]")
        return code if len(code) <= LONGEST else f"... {code[-LONGEST:]}"

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look at the sizes, unless they belong to a program that is being traced; torch.compile looks at them too."""
        if is_traced(args, kwargs):
            return
        tensors = tensors_of(self.names, args, kwargs)
        about = {k for comparison in self.path for k in comparison.about}
        there = [where in tensors and axis < tensors[where].ndim for where, axis in self.axes]
        if not all(there[k] for k in about):
            return
        sizes = [
            tensors[where].shape[axis] if known else 0 for (where, axis), known in zip(self.axes, there, strict=True)
        ]
        try:
            refused = self.holds(sizes)
        except ArithmeticError:  # a length of 0 that something is divided by
            refused = False
        if refused:
            raise InvalidValue(
                f"{type(module).__name__} was not judged with such sizes ({self.words}), for which its forward may do "
                "something else; give compress example_inputs of such sizes"
            )

    def to_dict(self) -> dict[str, object]:
        """Axes, and the comparisons."""
        return {"axes": self.counts, "path": [list(comparison) for comparison in self.path]}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> SizesGuard:
        """Made again."""
        path = [Comparison(str(code), bool(outcome)).plain for code, outcome in said["path"]]
        axes = {str(k): int(n) for k, n in said["axes"].items()}
        if any(not 0 <= n <= MOST_AXES for n in axes.values()) or sum(axes.values()) > MOST_AXES:
            raise ValueError("tensors of too many axes")
        if any(k >= sum(axes.values()) for comparison in path for k in comparison.about):
            raise ValueError("a comparison of sizes that are not there")
        return cls(parameters_of(module), axes, path)


def axes_of(names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, int]:
    """How many axes the tensors among arguments have, by where they stand."""
    return {where: x.ndim for where, x in tensors_of(names, args, kwargs).items()}


def tensors_of(names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Tensor]:
    """The tensors among arguments, by where they stand: the names of parameters, given by position or by name.

    >>> import torch
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


def is_traced(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether torch.fx traces a call: its arguments have neither kinds nor sizes."""
    return any(isinstance(x, fx.Proxy) for x in (*args, *kwargs.values()))


def parameters_of(module: nn.Module) -> list[str]:
    """The names of the parameters that forward takes by position.

    >>> parameters_of(nn.Identity())
    ['input']
    """
    parameters = inspect.signature(module.forward).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


class ModeGuard(Guard):
    """Refuses to run in training mode a model that does something else there than in evaluation mode; a pre-hook.

    Parameters
    ----------
    layers : sequence of str
        The parts, by their paths, whose code asks which mode they are in.

    Examples
    --------
    >>> import torch
    >>> layer = nn.Identity().train()
    >>> ModeGuard([""]).stand_before(layer)
    >>> layer(torch.ones(1, 2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: Identity was compressed in evaluation mode, and in training mode its forward does ...
    """

    def __init__(self, layers: Sequence[str]) -> None:
        self.layers = tuple(layers)

    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Look which mode it is."""
        if any(module.get_submodule(path).training for path in self.layers):
            raise InvalidValue(
                f"{type(module).__name__} was compressed in evaluation mode, and in training mode its forward does "
                "something else; call eval(), or compress the original in training mode"
            )

    def to_dict(self) -> dict[str, object]:
        """Which layers."""
        return {"layers": list(self.layers)}

    @classmethod
    def of_dict(cls, module: nn.Module, said: Mapping[str, Any]) -> ModeGuard:
        """Made again."""
        for path in said["layers"]:
            module.get_submodule(path)
        return cls(said["layers"])


class NeverRan(Guard):
    """Refuses to run a layer that never ran while its model was compressed; a forward pre-hook of that layer.

    What arrives there is not known, so it may be kept in coordinates that the layer does not read.

    Parameters
    ----------
    path : str
        Of the layer in the model.

    Examples
    --------
    >>> import torch
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
