"""What is read out of a model's code: words and numbers that its forward may compare arguments and lengths with.

All code is read that forward may run and that is the user's own: methods of the classes and of those they inherit from,
what decorators wrap, functions that are called by a global name. Code of PyTorch, of this package and of the standard
library is not.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from torch import Tensor, nn

from ...running import attributes
from ...surroundings import cells_of, is_own, names_in

#: words and numbers in the code of a model that are tried, and how long a word may be
MOST_CONSTANTS, LONGEST_WORD = 24, 40
#: keys and places of containers that are tried, and numbers on modules
MOST_KEYS, MOST_ATTRIBUTES = 32, 16
#: functions that are read, and how far one is followed into those that it names
MOST_FUNCTIONS, DEEPEST = 400, 4
#: the longest length that is tried because a number says so
LONGEST = 2**12
#: numbers beyond, such as infinity, are not tried
LARGEST = 2.0**62


class Constants(NamedTuple):
    """Words, the keys of containers first, and numbers: what arguments and lengths may be compared with."""

    words: list[str]
    numbers: list[float]
    places: int = 0  # in the longest list of modules or parameters


def constants_of(model: nn.Module) -> Constants:
    """The words and numbers that the code of a model names, and the keys of its containers."""
    words: dict[str, None] = {}
    numbers: dict[float, None] = {}
    for function in functions_of(model):
        for c in (*_in_code(function.__code__), *_in_globals(function)):
            if isinstance(c, str) and 0 < len(c) <= LONGEST_WORD and c != function.__doc__:
                words[c] = None
            elif isinstance(c, int | float) and not isinstance(c, bool) and abs(c) < LARGEST:
                numbers[c] = None
    for c in _on_modules(model):
        numbers.setdefault(c, None)
    telling = sorted(words, key=lambda word: " " in word)  # messages of errors last
    return Constants(
        list(dict.fromkeys([*_keys(model), *telling[:MOST_CONSTANTS]])), list(numbers)[:MOST_CONSTANTS], _places(model)
    )


def _on_modules(model: nn.Module) -> Iterator[float]:
    """The first numbers that stand on the user's own modules, and in what they hold."""
    own = [m for m in model.modules() if is_own(type(m).__module__)]
    held = (c for m in own for _, value in (*attributes(m), *_class_attributes(type(m))) for c in _flat(value))
    found = (k for k in held if isinstance(k, int | float) and not isinstance(k, bool) and abs(k) < LARGEST)
    yield from list(dict.fromkeys(found))[:MOST_ATTRIBUTES]


def lengths_in(model: nn.Module, most: int = LONGEST) -> list[int]:
    """Lengths that a forward may ask for: by whole numbers in its code, on its modules and in what they hold."""
    numbers = {int(k) for k in constants_of(model).numbers if k == int(k)}
    own = [m for m in model.modules() if is_own(type(m).__module__)]
    held = (value for m in own for _, value in (*attributes(m), *_class_attributes(type(m))))
    whole = (k for k in held if isinstance(k, int) and not isinstance(k, bool) and 0 < k <= most)
    numbers.update(list(dict.fromkeys(whole))[:MOST_ATTRIBUTES])
    return sorted({n for k in numbers if k > 1 for n in (k, k + 1, 2 * k) if n <= most})


def reads(model: nn.Module, name: str) -> bool:
    """Whether the forward of a model may look at an argument; yes, if that cannot be told.

    >>> class Model(nn.Module):
    ...     def forward(self, x, mask=None, scale=1.0):
    ...         return self.mask(x) * scale
    >>> [reads(Model(), name) for name in ("x", "mask", "scale")]
    [True, False, True]
    """
    if model._forward_hooks or model._forward_pre_hooks or type(model).__call__ is not nn.Module.__call__:
        return True
    inner = inspect.unwrap(model.forward)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, types.FunctionType) or any(f is not inner for f in _unfolded(model.forward)):
        return True
    if name not in inner.__code__.co_varnames + inner.__code__.co_cellvars or "locals" in inner.__code__.co_names:
        return True
    return any(
        i.argval == name or (isinstance(i.argval, tuple) and name in i.argval)
        for i in dis.get_instructions(inner)
        if i.opname not in ("STORE_FAST", "DELETE_FAST") and i.opcode not in (*dis.hasname, *dis.hasconst)
    )


def names_of(model: nn.Module) -> set[str]:
    """The names that the user's own code uses: of globals, attributes, methods."""
    return {name for function in functions_of(model) for name in names_in(function.__code__)}


def asking_for(model: nn.Module, name: str) -> list[str]:
    """The paths of those of the user's own modules whose methods name something."""
    found: dict[type, bool] = {}
    for cls in {cls for m in model.modules() for cls in type(m).__mro__ if is_own(cls.__module__)}:
        functions = [f for part in vars(cls).values() for f in _unfolded(part)]
        found[cls] = any(name in names_in(f.__code__) for f in functions)
    return [path for path, m in model.named_modules() if any(found.get(cls) for cls in type(m).__mro__)]


def asks_for_sizes(model: nn.Module) -> bool:
    """Whether the user's own code may look at the sizes of tensors.

    >>> asks_for_sizes(nn.Linear(2, 1))
    False
    """
    return not _MEASURING.isdisjoint(names_of(model))


def compares(model: nn.Module) -> bool:
    """Whether the user's own code compares anything: more than what is what (``x is None``).

    What is compared in an assert leads nowhere else, unless somebody catches the error.

    >>> compares(nn.Linear(2, 1))
    False
    """
    codes = [c for function in functions_of(model) for c in _codes(function.__code__)]
    runs = [[i for i in dis.get_instructions(code) if i.opname not in _NOTHING] for code in codes]
    catches = any(i.opname == "PUSH_EXC_INFO" for run in runs for i in run)
    return any(
        i.opname in ("COMPARE_OP", "CONTAINS_OP") and (catches or not _asserted(run[k + 1 : k + 3]))
        for run in runs
        for k, i in enumerate(run)
    )


#: instructions that do nothing, or make a truth value of what is one
_NOTHING = ("CACHE", "TO_BOOL", "NOT_TAKEN")


def _asserted(following: list[dis.Instruction]) -> bool:
    """Whether a comparison is all of an assert, from the two instructions behind it."""
    jump, error = [f"{i.opname} {i.argrepr}" for i in following] if len(following) == 2 else ["", ""]
    return "JUMP" in jump and "IF_TRUE" in jump and ("ASSERTION_ERROR" in error or "AssertionError" in error)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of those inside it."""
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _codes(c)


#: what code names that looks at sizes
_MEASURING = frozenset({"shape", "size", "numel", "len", "nelement", "nbytes", "stride", "__len__"})
#: what code names that asks what kind of thing an argument is
_ASKING = frozenset(
    [
        "isinstance",
        "issubclass",
        "type",
        "dtype",
        "is_floating_point",
        "is_complex",
        "callable",
        "hasattr",
        "getattr",
        "is_tensor",
        "is_dataclass",
        "ndim",
        "dim",
    ]
)


def asks_for_kinds(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether what a forward does may depend on the kind of its arguments: always, unless there is one tensor alone.

    >>> import torch
    >>> asks_for_kinds(nn.Linear(2, 1), (torch.ones(1, 2),), {})
    False
    """
    parameters = list(inspect.signature(model.forward).parameters.values())
    one = len(parameters) == len(args) == 1 and not kwargs and parameters[0].kind is not parameters[0].VAR_POSITIONAL
    if not one or not isinstance(args[0], Tensor):
        return True
    return not _ASKING.isdisjoint(names_of(model))


def functions_of(model: nn.Module) -> Iterator[types.FunctionType]:
    """The functions that a forward may run and that are the user's own, the most telling first."""
    seen: set[int] = set()
    todo = [(part, DEEPEST) for part in _methods(model)]
    while todo and len(seen) < MOST_FUNCTIONS:
        found, depth = todo.pop(0)
        for function in _unfolded(found):
            if id(function.__code__) in seen:
                continue
            seen.add(id(function.__code__))
            yield function
            if depth:
                todo += [(named, depth - 1) for named in _named(function) if callable(named)]


def _methods(model: nn.Module) -> Iterator[object]:
    """The methods of a model's modules and of objects on them; first forward, last what is called once to make them."""
    parts: list[tuple[int, object]] = []
    classes: dict[type, None] = {}
    for m in model.modules():
        classes.update(dict.fromkeys(cls for cls in type(m).__mro__ if is_own(cls.__module__)))
        for name, value in vars(m).items():
            if inspect.isroutine(value) or isinstance(value, functools.partial):
                parts.append((int(name != "forward"), value))
            elif is_own(type(value).__module__):
                classes.update(dict.fromkeys(cls for cls in type(value).__mro__ if is_own(cls.__module__)))
    for cls in classes:
        parts += [(int(name != "forward"), part) for name, part in vars(cls).items() if name != "__init__"]
    yield from (part for _, part in sorted(parts, key=lambda item: item[0]))


def _unfolded(found: object) -> Iterator[types.FunctionType]:
    """The user's own functions in what may be wrapped in a method, a property or a decorator."""
    todo = [found]
    seen: set[int] = set()
    while todo and len(seen) < MOST_FUNCTIONS:
        f = todo.pop()
        if id(f) in seen:
            continue
        seen.add(id(f))
        inner = [_part(f, name) for name in ("__func__", "fget", "func", "__wrapped__")]
        if issubclass(type(f), types.FunctionType):
            f = cast("types.FunctionType", f)
            todo += [cell for cell in cells_of(f) if isinstance(cell, types.FunctionType | functools.partial)]
            if is_own(f.__globals__.get("__name__")):
                yield f
        elif isinstance(f, type) and is_own(f.__module__) and not issubclass(f, nn.Module):
            todo += [part for name, part in vars(f).items() if name != "__init__"]
        if not isinstance(f, type):
            todo += [part for part in inner if callable(part)]


def _part(value: object, name: str) -> object:
    """An attribute; None if it has none, or does not let itself be asked."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _named(function: types.FunctionType) -> Iterator[object]:
    """What the code of a function names: globals, attributes of the user's own modules and classes among them."""
    names = dict.fromkeys(names_in(function.__code__))
    for value in (*(function.__globals__[name] for name in names if name in function.__globals__), *cells_of(function)):
        yield value
        with suppress(Exception):  # objects that do not let themselves be looked at are left alone
            own = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if is_own(own) and not isinstance(value, types.FunctionType | nn.Module):
                held = getattr(value, "__dict__", {})
                yield from [held[name] for name in names if name in held]


def _in_globals(function: types.FunctionType) -> Iterator[object]:
    """Constants among what the code of a function names, and in its defaults."""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    for value in (*_named(function), *defaults):
        yield from _flat(value)


def _flat(value: object) -> Iterator[object]:
    """A constant, or those in a small container, keys of dictionaries among them."""
    found: list[object] = []
    with suppress(Exception):  # objects that do not let themselves be looked at are left alone
        if isinstance(value, str | int | float):
            found = [value]
        elif isinstance(value, dict):
            found = [c for pair in list(value.items())[:MOST_KEYS] for c in pair]
        elif isinstance(value, tuple | list | set | frozenset) and len(value) <= MOST_KEYS:
            found = list(value)
    yield from (c for c in found if issubclass(type(c), str | int | float))


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


def _keys(model: nn.Module) -> list[str]:
    """The words under which modules, parameters and what is in dictionaries are kept."""
    found: dict[str, None] = {}
    for m in model.modules():
        held: list[Iterable[object]] = [m.keys()] if isinstance(m, nn.ModuleDict | nn.ParameterDict) else []
        if is_own(type(m).__module__):
            held += [value.keys() for name, value in vars(m).items() if isinstance(value, dict) and name[:1] != "_"]
        found.update(dict.fromkeys(key for keys in held for key in keys if isinstance(key, str)))
    return list(found)[:MOST_KEYS]


def _places(model: nn.Module) -> int:
    lists = [len(m) for m in model.modules() if isinstance(m, nn.ModuleList | nn.ParameterList | nn.Sequential)]
    held = [
        len(value)
        for m in model.modules()
        if is_own(type(m).__module__)
        for value in vars(m).values()
        if isinstance(value, list | tuple)
    ]
    return min(max([*lists, *held], default=0), MOST_KEYS)


def _class_attributes(cls: type) -> Iterator[tuple[str, object]]:
    for base in cls.__mro__:
        if is_own(base.__module__):
            yield from vars(base).items()
