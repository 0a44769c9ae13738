"""Dataclasses as plain data and back: the one place where a job, a trial or a result meets JSON."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: what JSON can carry
Json: typing.TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

DataT = TypeVar("DataT", bound="DataclassInstance")


def as_plain(data: object) -> dict[str, Json]:
    """The fields of a dataclass, and of those inside it, as JSON has them: dicts, and lists for tuples.

    >>> from radnet.experiments.figure import Figure
    >>> as_plain(Figure(2.0, 0.5))
    {'mean': 2.0, 'std': 0.5}
    """
    if not dataclasses.is_dataclass(data) or isinstance(data, type):
        raise TypeError(f"a {type(data).__name__} is not a dataclass")
    return {field.name: _plain(getattr(data, field.name)) for field in dataclasses.fields(data)}


def from_plain(kind: type[DataT], data: object, **kinds: type) -> DataT:
    """A dataclass from what `as_plain` made of it; every field must be there and of its type.

    Parameters
    ----------
    kind : type
        Its fields, and those of dataclasses inside it, are of plain types, tuples, dicts, unions or dataclasses.
    data : object
        What JSON had.
    **kinds : type
        For fields that are declared as ``object``, whatever they are inside of: by name, what they are this time.

    Raises
    ------
    TypeError
        With the place, if the data does not fit.

    Examples
    --------
    >>> from radnet.experiments.figure import Figure
    >>> from_plain(Figure, {"mean": 2.0, "std": 0.5})
    Figure(mean=2.0, std=0.5)
    >>> from_plain(Figure, {"mean": "2", "std": 0.5})
    Traceback (most recent call last):
        ...
    TypeError: Figure.mean is '2', expected float
    """
    return _instance(kind, data, kind.__name__, kinds)


def _plain(value: object) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_plain(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is not plain data")


def _instance(kind: type[DataT], data: object, where: str, kinds: Mapping[str, type]) -> DataT:
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise TypeError(f"{where} is {short(data)}, expected {', '.join(names)}")
    types_of = {name: kinds[name] if hints[name] is object else hints[name] for name in names}
    return kind(**{name: _value(types_of[name], data[name], f"{where}.{name}", kinds) for name in names})


def _value(kind: object, data: object, where: str, kinds: Mapping[str, type]) -> object:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _instance(kind, data, where, kinds)
    if origin is types.UnionType:  # of plain types, or of one dataclass and None
        fitting = (one for one in inner if _fits(one, data))
        return _value(next(fitting, inner[0]), data, where, kinds)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(inner[0], part, f"{where}[{i}]", kinds) for i, part in enumerate(data))
    if origin is dict and isinstance(data, dict):
        return {key: _value(inner[1], part, f"{where}.{key}", kinds) for key, part in data.items()}
    if origin is None and _fits(kind, data):
        return data
    raise TypeError(f"{where} is {short(data)}, expected {getattr(kind, '__name__', kind)}")


def _fits(kind: object, data: object) -> bool:
    """Whether a value is of a plain type; a whole number is a float too, a bool is no number."""
    if isinstance(data, bool) and kind is not bool:
        return False
    return isinstance(kind, type) and isinstance(data, int | float if kind is float else kind)


def short(value: object) -> str:
    """A value in a message: as Python writes it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
