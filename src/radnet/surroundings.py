"""What a model's forward can reach outside of the model, and fill: classes, globals, functions that remember results.

A cache that hangs on a class, in a module or on a function (``functools.lru_cache``) outlives every copy of a model.
While a copy runs in float64 it would be filled with float64 tensors, which the user's own model would find there later.
So `untouched` puts back what such containers held, and has the functions forget.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
import threading
import types
import weakref
from collections import UserDict, UserList
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice

from torch import nn

from .containers import CONTAINERS, FUNCTIONS, PLAIN, contents, holds_something, put_back
from .modes import Argument
from .threads import alone

#: containers with more entries than this are data, not caches; functions beyond so many are not read
_LARGEST, _MOST = 100_000, 2_000
#: containers and objects that are opened behind those that code names, nearest first: a library may hang there
_MOST_OPENED = 2_000
#: objects that hold whatever somebody puts there, though their classes are the standard library's
_HOLDERS = (types.SimpleNamespace, argparse.Namespace, UserDict, UserList, threading.local)
_LIBRARIES = frozenset({"torch", "radnet", "numpy", *sys.stdlib_module_names})
Namespace = dict[str, object]


# --- what code names


@dataclass
class _Reach:
    """What the code of a class, or of a function, leads to."""

    classes: list[type] = field(default_factory=list)  # whose attributes are put back
    names: list[tuple[Namespace, str]] = field(default_factory=list)  # globals that are values
    values: list[object] = field(default_factory=list)  # dictionaries in closures, and defaults of arguments
    cells: list[types.CellType] = field(default_factory=list)  # variables of functions around functions
    caches: list[Callable[[], object]] = field(default_factory=list)  # what has a function forget
    followed: list[tuple[Namespace, str, object]] = field(default_factory=list)  # globals that lead further

    @property
    def current(self) -> bool:
        """Whether the names that were followed still mean what they meant."""
        return all(namespace.get(name) is value for namespace, name, value in self.followed)


_reaches: weakref.WeakKeyDictionary[Argument, _Reach] = weakref.WeakKeyDictionary()


def _reach(root: Argument) -> _Reach:
    """What a class or a function leads to; looked up once, and again if a name means something else."""
    try:
        found = _reaches.get(root)
    except TypeError:  # it has no hash, or nothing can refer to it weakly
        return _Walk().of(root)
    if found is None or not found.current:
        found = _Walk().of(root)
        with suppress(TypeError):
            _reaches[root] = found
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
                with suppress(Exception):  # objects that do not let themselves be looked at are left alone
                    self._look(value)
        return self.found

    def _look(self, value: object) -> None:
        known = inspect.getattr_static(value, "cache_clear", None)  # which asks no object that answers to any name
        clear = None if known is None else getattr(value, "cache_clear", None)
        if callable(clear) and not isinstance(value, type):
            self.found.caches.append(clear)
            self.todo.append(getattr(value, "__wrapped__", None))
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            self.todo.append(value.__func__)
        elif isinstance(value, property):
            self.todo += [value.fget, value.fset]
        elif isinstance(value, functools.partial):
            given = [*value.args, *value.keywords.values()]
            self.found.values += [part for part in given if isinstance(part, CONTAINERS)]
            self.todo += [value.func, *given]
        elif isinstance(value, type) and _of_users(value):
            self.found.classes.append(value)
            self.todo += [*vars(value).values(), *value.__mro__[1:], type(value)]
        elif isinstance(value, types.FunctionType) and _of_users(value):
            self.found.values.append(vars(value))  # what stands on the function
            self.todo += [part for held in vars(value).values() if isinstance(held, Mapping) for part in held.values()]
            self._read(value)
        elif isinstance(value, (*CONTAINERS, tuple)):
            parts = value.values() if isinstance(value, Mapping) else value
            self.todo += [part for part in islice(parts, _MOST) if not isinstance(part, PLAIN)]
        elif not isinstance(value, (*PLAIN, *FUNCTIONS)) and _of_users(type(value)):
            self.found.values.append(value)
            self.todo += [type(value), *(part for part in vars(value).values() if not isinstance(part, PLAIN))]

    def _read(self, function: types.FunctionType) -> None:
        names = set(names_in(function.__code__))
        self._look_up(function.__globals__, names)
        for name in names & sys.modules.keys():  # imported where it is used
            if is_own(name):
                self._look_up(vars(sys.modules[name]), names)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        cells = list(cells_of(function))
        self.found.values += [value for value in defaults if isinstance(value, CONTAINERS)]
        self.found.values += [
            x for x in cells if _is_value(x) and not isinstance(x, list)
        ]  # a list notes what was called
        self.found.cells += [cell for cell in function.__closure__ or () if _holds_a_value(cell)]
        self.todo += [*defaults, *cells]

    def _look_up(self, namespace: Namespace, names: set[str]) -> None:
        for name in names & namespace.keys():
            value = namespace[name]
            with suppress(Exception):  # as in `of`
                self._note(namespace, name, value, names)

    def _note(self, namespace: Namespace, name: str, value: object, names: set[str]) -> None:
        if isinstance(value, types.ModuleType):
            if is_own(value.__name__) and id(value) not in self.seen:
                self.seen.add(id(value))
                self._look_up(vars(value), names)
                self.seen.discard(id(value))
        elif _is_value(value):
            self.found.names.append((namespace, name))
            self.todo.append(value)
        else:
            self.found.followed.append((namespace, name, value))
            self.todo.append(value)


def _is_value(value: object) -> bool:
    """Whether it is something that forward may put something else in the place of, or fill."""
    if issubclass(type(value), (*FUNCTIONS, type, nn.Module, types.ModuleType, staticmethod, classmethod, property)):
        return False
    return not callable(value) or (_of_users(type(value)) and not hasattr(type(value), "cache_clear"))


def _holds_a_value(cell: types.CellType) -> bool:
    try:
        return _is_value(cell.cell_contents)
    except Exception:  # it is empty still
        return False


def _of_users(value: type | types.FunctionType) -> bool:
    return is_own(str(value.__module__))


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function uses, and the functions inside it.

    Not those that no one writes: pytest's ``assert`` leads to all of pytest by a name that begins with an @.
    """
    yield from (name for name in code.co_names if not name.startswith("@"))
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
    shared = bool(caches) or any(_is_users(value) and holds_something(value) for value in _values(reaches))
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


#: what torch keeps on every module; and what leads nowhere
_TORCHS = frozenset(vars(nn.Module()))
_NO_ROOTS = tuple(kind for kind in PLAIN if kind is not tuple)


def _roots(model: nn.Module) -> list[Argument]:
    """The classes of the modules, and what stands on them: hooks, functions, objects and containers of such."""
    found: dict[int, Argument] = {}
    for m in model.modules():
        if _of_users(type(m)):
            found[id(type(m))] = type(m)
        own = [value for name, value in vars(m).items() if name not in _TORCHS]
        for value in (*own, *m._forward_hooks.values(), *m._forward_pre_hooks.values()):
            if not isinstance(value, _NO_ROOTS):
                found[id(value)] = value
    return list(found.values())


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
        self.contents = contents(_values(reaches), _is_users, _MOST_OPENED)
        cells = {id(cell): cell for reach in reaches for cell in reach.cells}
        self.cells = [(cell, cell.cell_contents) for cell in cells.values() if _holds_a_value(cell)]

    def differ(self) -> bool:
        """Whether anything is another."""
        return (
            any(_values_on(cls).keys() ^ own.keys() for cls, own in self.classes)
            or any(vars(cls)[name] is not value for cls, own in self.classes for name, value in own.items())
            or any(space.get(name) is not value for space, name, value in self.names)
            or any(cell.cell_contents is not value for cell, value in self.cells)
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
        for cell, value in self.cells:
            if cell.cell_contents is not value:
                cell.cell_contents = value
        for container, items in self.contents:
            with suppress(Exception):  # what cannot be filled was not
                put_back(container, items)


def _values(reaches: list[_Reach]) -> Iterator[object]:
    """What stands on classes, under the global names and in closures that code leads to."""
    for reach in reaches:
        yield from (value for cls in reach.classes for value in _values_on(cls).values())
        yield from (space[name] for space, name in reach.names if name in space)
        yield from reach.values


def _values_on(cls: type) -> dict[str, object]:
    """The attributes of a class that are no methods."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not name.startswith("__") and _is_value(value) and not hasattr(type(value), "__get__")
    }


def _is_users(value: object) -> bool:
    """Whether it is opened: a container that is no data, or an object of a class that is no library's."""
    if isinstance(value, CONTAINERS):
        return len(value) <= _LARGEST
    return isinstance(value, _HOLDERS) or _of_users(type(value))
