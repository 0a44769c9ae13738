"""What a model's forward can reach outside of the model, and fill: classes, globals, functions that remember results.

A cache that hangs on a class, in a module or on a function (``functools.lru_cache``) outlives every copy of a model.
While a copy runs in float64 it would be filled with float64 tensors, which the user's own model would find there later.
So `untouched` puts back what such containers held, and has the functions forget.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import threading
import types
import weakref
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from torch import Tensor, nn

from .modes import Argument
from .threads import alone

#: how far into containers, and objects in them, containers are looked for
DEEPEST = 6
#: containers with more entries than this are data, not caches; functions beyond so many are not read
_LARGEST, _MOST = 10_000, 2_000
#: containers and objects that are opened behind those that code names, nearest first: a library may hang there
_MOST_OPENED = 2_000
_CONTAINERS = (list, dict, set, deque, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
#: objects that hold whatever somebody puts there, though their classes are the standard library's
_HOLDERS = (types.SimpleNamespace, argparse.Namespace, UserDict, UserList, threading.local)
#: what holds nothing that could be filled
_PLAIN = (Tensor, nn.Module, int, float, complex, str, bytes, tuple, type, types.ModuleType, type(None))
_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, functools.partial,
)  # fmt: skip
_LIBRARIES = frozenset({"torch", "radnet", "numpy", *sys.stdlib_module_names})
Namespace = dict[str, object]
Held = tuple[Argument, Argument]  # a container, and a copy of what is in it


# --- containers


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
        if id(value) in seen or not own(value):
            continue
        seen.add(id(value))
        inner: list[object] = []
        for container in _containers_of(value):
            entries = container.values() if isinstance(container, Mapping) else container
            found.append((container, dict(container) if isinstance(container, Mapping) else container.copy()))
            inner += [part for part in entries if not isinstance(part, _PLAIN)]
        if depth and most > 0:
            todo += [(part, depth - 1) for part in inner]
            most -= len(inner)
    return found


def _containers_of(value: object) -> Iterator[Argument]:
    """What can be filled of a value: itself, what stands on it, what is in its slots."""
    if isinstance(value, _CONTAINERS):
        yield value
    elif not isinstance(value, (*_PLAIN, *_FUNCTIONS)):
        if hasattr(value, "__dict__"):
            yield vars(value)
        slots = Slots(value)
        if slots.names:
            yield slots


class Slots(MutableMapping[str, object]):
    """What is in the slots of an object, by name."""

    def __init__(self, value: object) -> None:
        self.value = value
        said = [vars(cls).get("__slots__", ()) for cls in type(value).__mro__]
        names = [name for slots in said for name in ([slots] if isinstance(slots, str) else slots)]
        self.names = [name for name in names if isinstance(name, str) and name not in ("__dict__", "__weakref__")]

    def __getitem__(self, name: str) -> object:
        try:
            return getattr(self.value, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        setattr(self.value, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.value, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if hasattr(self.value, name))

    def __len__(self) -> int:
        return len(list(iter(self)))


def put_back(container: Argument, items: Argument) -> bool:
    """Have a container hold these again; whether it held others. One that holds them is not touched."""
    mapping = isinstance(container, Mapping)
    if isinstance(container, set):
        same = container == items
    elif mapping:
        same = list(container) == list(items) and all(container[key] is x for key, x in items.items())
    else:
        same = len(container) == len(items) and all(x is y for x, y in zip(container, items, strict=True))
    if not same and mapping:
        for key in [key for key in container if key not in items]:  # another thread may read what stays
            del container[key]
        container.update(items)
    if not same and (not mapping or list(container) != list(items)):
        container.clear()
        container.update(items) if mapping or isinstance(container, set) else container.extend(items)
    return not same


# --- what code names


@dataclass
class _Reach:
    """What the code of a class, or of a function, leads to."""

    classes: list[type] = field(default_factory=list)  # whose attributes are put back
    names: list[tuple[Namespace, str]] = field(default_factory=list)  # globals that are values
    values: list[object] = field(default_factory=list)  # dictionaries in closures, and defaults of arguments
    caches: list[Callable[[], object]] = field(default_factory=list)  # what has a function forget
    followed: list[tuple[Namespace, str, object]] = field(default_factory=list)  # globals that lead further

    @property
    def current(self) -> bool:
        """Whether the names that were followed still mean what they meant."""
        return all(namespace.get(name) is value for namespace, name, value in self.followed)


_reaches: weakref.WeakKeyDictionary[Argument, _Reach] = weakref.WeakKeyDictionary()


def _reach(root: Argument) -> _Reach:
    """What a class or a function leads to; looked up once, and again if a name means something else."""
    found = _reaches.get(root)
    if found is None or not found.current:
        found = _reaches[root] = _Walk().of(root)
    return found


class _Walk:
    """Reads code, from name to name."""

    def __init__(self) -> None:
        self.found = _Reach()
        self.seen: set[int] = set()
        self.todo: list[object] = []

    def of(self, root: object) -> _Reach:
        self.todo.append(root)
        while self.todo and len(self.seen) < _MOST:
            value = self.todo.pop()
            if id(value) not in self.seen:
                self.seen.add(id(value))
                self._look(value)
        return self.found

    def _look(self, value: object) -> None:
        clear = getattr(value, "cache_clear", None)
        if callable(clear) and not isinstance(value, type):
            self.found.caches.append(clear)
            self.todo.append(getattr(value, "__wrapped__", None))
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            self.todo.append(value.__func__)
        elif isinstance(value, property):
            self.todo += [value.fget, value.fset]
        elif isinstance(value, functools.partial):
            self.todo += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, type) and _of_users(value):
            self.found.classes.append(value)
            self.todo += [*vars(value).values(), *value.__mro__[1:]]
        elif isinstance(value, types.FunctionType) and _of_users(value):
            self.found.values.append(vars(value))  # what stands on the function
            self._read(value)

    def _read(self, function: types.FunctionType) -> None:
        names = set(names_in(function.__code__))
        self._look_up(function.__globals__, names)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        cells = list(cells_of(function))
        self.found.values += [value for value in defaults if isinstance(value, _CONTAINERS)]
        self.found.values += [
            value for value in cells if _is_value(value) and not isinstance(value, list)
        ]  # it notes calls
        self.todo += [value for value in (*defaults, *cells) if not _is_value(value)]

    def _look_up(self, namespace: Namespace, names: set[str]) -> None:
        for name in names & namespace.keys():
            value = namespace[name]
            if isinstance(value, types.ModuleType):
                if is_own(value.__name__) and id(value) not in self.seen:
                    self.seen.add(id(value))
                    self._look_up(vars(value), names)
                    self.seen.discard(id(value))
            elif _is_value(value):
                self.found.names.append((namespace, name))
                if _of_users(type(value)):
                    self.todo.append(type(value))  # what its methods name
            else:
                self.found.followed.append((namespace, name, value))
                self.todo.append(value)


def _is_value(value: object) -> bool:
    """Whether it is something that forward may put something else in the place of, or fill."""
    if isinstance(value, (*_FUNCTIONS, type, nn.Module, types.ModuleType, staticmethod, classmethod, property)):
        return False
    return not callable(value) or (_of_users(type(value)) and not hasattr(value, "cache_clear"))


def _of_users(value: type | types.FunctionType) -> bool:
    return is_own(str(value.__module__))


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function uses, and the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def cells_of(function: types.FunctionType) -> Iterator[object]:
    """What a function closes over, but for cells that are empty still."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            yield cell.cell_contents


def is_own(module: object) -> bool:
    """Whether a module of this name is the user's own: not of PyTorch, of this package or of the standard library.

    >>> is_own("torch.nn"), is_own("models.mine"), is_own(None)
    (False, True, False)
    """
    return isinstance(module, str) and module.partition(".")[0] not in _LIBRARIES


# --- as it was


@contextmanager
def untouched(model: nn.Module) -> Iterator[Callable[[], bool]]:
    """Afterwards what forward can reach outside of the model holds what it held, and functions have forgotten.

    They forget before, too: what they remember may be of another dtype. The value says whether anything is another now.
    """
    reaches = [_reach(root) for root in _roots(model)]
    caches = {id(clear): clear for reach in reaches for clear in reach.caches}.values()
    shared = bool(caches or _Kept(reaches).contents)
    with alone() if shared else nullcontext():
        kept = _Kept(reaches)
        for clear in caches:
            clear()
        try:
            yield lambda: kept.differ() or any(_remembers(clear) for clear in caches)
        finally:
            for clear in caches:
                clear()
            kept.put_back()


def _roots(model: nn.Module) -> dict[Argument, None]:
    """The classes of the modules, and the functions that stand on them: hooks, and what takes the place of methods."""
    found: dict[Argument, None] = {}
    for m in model.modules():
        if _of_users(type(m)):
            found[type(m)] = None
        for value in (*vars(m).values(), *m._forward_hooks.values(), *m._forward_pre_hooks.values()):
            if isinstance(value, types.FunctionType) and _of_users(value):
                found[value] = None
    return found


def _remembers(clear: object) -> bool:
    info = getattr(getattr(clear, "__self__", None), "cache_info", None)
    return info is None or info().currsize > 0


class _Kept:
    """What is there before a run."""

    def __init__(self, reaches: list[_Reach]) -> None:
        classes = {cls: None for reach in reaches for cls in reach.classes}
        self.classes = [(cls, _values_on(cls)) for cls in classes]
        names = {(id(space), name): (space, name) for reach in reaches for space, name in reach.names}
        self.names = [(space, name, space[name]) for space, name in names.values() if name in space]
        values = [value for _, own in self.classes for value in own.values()]
        values += [value for _, _, value in self.names] + [value for reach in reaches for value in reach.values]
        self.contents = contents(values, _is_users, _MOST_OPENED)

    def differ(self) -> bool:
        """Whether anything is another."""
        return (
            any(_values_on(cls).keys() ^ own.keys() for cls, own in self.classes)
            or any(vars(cls)[name] is not value for cls, own in self.classes for name, value in own.items())
            or any(space.get(name) is not value for space, name, value in self.names)
            or any(len(container) != len(items) for container, items in self.contents)
        )

    def put_back(self) -> None:
        """Have everything as it was."""
        for cls, own in self.classes:
            for name in _values_on(cls).keys() - own.keys():
                delattr(cls, name)
            for name, value in own.items():
                if vars(cls).get(name) is not value:
                    setattr(cls, name, value)
        for space, name, value in self.names:
            if space.get(name) is not value:
                space[name] = value
        for container, items in self.contents:
            put_back(container, items)


def _values_on(cls: type) -> dict[str, object]:
    """The attributes of a class that are no methods."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not name.startswith("__") and _is_value(value) and not hasattr(value, "__get__")
    }


def _is_users(value: object) -> bool:
    """Whether it is opened: a container that is no data, or an object of a class that is no library's."""
    if isinstance(value, _CONTAINERS):
        return len(value) <= _LARGEST
    return isinstance(value, _HOLDERS) or _of_users(type(value))
