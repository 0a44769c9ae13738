"""What containers and objects hold, and how it is put back: lists, dictionaries, attributes, slots.

Objects that do not let themselves be looked at are left alone.
"""

from __future__ import annotations

import functools
import math
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress

from torch import Tensor, nn

from .modes import Argument

#: how far into containers, and objects in them, containers are looked for
DEEPEST = 6
CONTAINERS = (list, dict, set, deque, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
#: what holds nothing that could be filled
PLAIN = (Tensor, nn.Module, int, float, complex, str, bytes, tuple, type, types.ModuleType, type(None))
FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, functools.partial,
)  # fmt: skip
Held = tuple[Argument, Argument]  # a container, and a copy of what is in it


def contents(
    values: Iterable[object], own: Callable[[object], bool] = lambda value: True, most: float = math.inf
) -> list[Held]:
    """The containers among these values and in objects there that are ``own``, with copies of what is in them.

    All of the values themselves; behind them so many at ``most``, nearest first.
    """
    found: list[Held] = []
    seen: set[int] = set()
    todo: deque[tuple[object, int]] = deque((value, DEEPEST) for value in values)
    while todo:
        value, depth = todo.popleft()
        inner: list[object] = []
        with suppress(Exception):  # objects that do not let themselves be looked at are left alone
            if id(value) in seen or not own(value):
                continue
            seen.add(id(value))
            for container in _containers_of(value):
                held = dict(container) if isinstance(container, Mapping) else container.copy()
                inner += [x for x in (held.values() if isinstance(held, dict) else held) if not isinstance(x, PLAIN)]
                found.append((container, held))
        near = inner if len(inner) <= most else inner[: int(most)]  # a list of thousands is no cache
        if depth:
            todo += [(part, depth - 1) for part in near]
            most -= len(near)
    return found


def holds_something(value: object) -> bool:
    """Whether there is something about a value that can be filled: it is a container, or an object that has attributes.

    >>> holds_something([]), holds_something(3.0)
    (True, False)
    """
    with suppress(Exception):  # objects that do not let themselves be looked at are left alone
        return next(_containers_of(value), None) is not None
    return False


def _containers_of(value: object) -> Iterator[Argument]:
    """What can be filled of a value: itself, what stands on it, what is in its slots."""
    if isinstance(value, CONTAINERS):
        yield value
    elif not isinstance(value, (*PLAIN, *FUNCTIONS)):
        with suppress(AttributeError):  # without asking an object that answers to any name
            local = isinstance(value, threading.local)
            yield vars(value) if local else object.__getattribute__(value, "__dict__")
        slots = Slots(value)
        if slots.names:
            yield slots


class Slots(MutableMapping[str, object]):
    """What is in the slots of an object, by name."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.names = [name for cls in type(value).__mro__ for name in _slots_of(cls)]

    def __getitem__(self, name: str) -> object:
        try:
            return object.__getattribute__(self.value, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        object.__setattr__(self.value, name, value)  # also of what is frozen

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self.value, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name in self)

    def __len__(self) -> int:
        return len(list(iter(self)))


def _slots_of(cls: type) -> list[str]:
    """The names of a class's slots, private ones as they are kept."""
    said = vars(cls).get("__slots__", ())
    names = [name for name in ([said] if isinstance(said, str) else said) if isinstance(name, str)]
    private = [name for name in names if name.startswith("__") and not name.endswith("__")]
    kept = {name: f"_{cls.__name__.lstrip('_')}{name}" for name in private}
    return [kept.get(name, name) for name in names if name not in ("__dict__", "__weakref__")]


def put_back(container: Argument, items: Argument) -> bool:
    """Have a container hold these again; whether it held others. One that holds them is not touched."""
    mapping = isinstance(container, Mapping)
    if isinstance(container, set):
        same = container == items
    elif mapping:
        same = _same_keys(container, items) and all(container[key] is x for key, x in items.items())
    else:
        same = len(container) == len(items) and all(x is y for x, y in zip(container, items, strict=True))
    if not same and mapping:
        for key in [key for key in container if key not in items]:  # another thread may read what stays
            del container[key]
        container.update(items)
    if not same and (not mapping or not _same_keys(container, items)):
        container.clear()
        container.update(items) if mapping or isinstance(container, set) else container.extend(items)
    return not same


def _same_keys(a: Mapping[Argument, object], b: Mapping[Argument, object]) -> bool:
    """Whether two dictionaries have the very same keys in the same order; tensors do not like to be compared."""
    return len(a) == len(b) and all(
        x is y or (type(x) is type(y) is not Tensor and x == y) for x, y in zip(a, b, strict=True)
    )
