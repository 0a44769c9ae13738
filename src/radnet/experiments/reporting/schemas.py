"""Whether data is what a JSON schema says: the part of the standard that ``results.schema.json`` uses."""

from __future__ import annotations

from typing import TypedDict

from ..plain import short

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip

#: the words of the standard that are understood
Schema = TypedDict(
    "Schema",
    {
        "$defs": dict[str, "Schema"],
        "$ref": str,
        "const": object,
        "type": str | list[str],
        "required": list[str],
        "properties": dict[str, "Schema"],
        "additionalProperties": "bool | Schema",
        "items": "Schema",
        "minItems": int,
        "minimum": float,
        "maximum": float,
    },
    total=False,
)


def check(data: object, schema: Schema, root: Schema | None = None, where: str = "it") -> None:
    """Raise `ValueError` with the place unless the data fits.

    >>> check({"a": 1}, {"type": "object", "properties": {"a": {"type": "string"}}})
    Traceback (most recent call last):
        ...
    ValueError: it.a is 1, expected string
    """
    root = schema if root is None else root
    if "$ref" in schema:
        return check(data, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "const" in schema and data != schema["const"]:
        raise ValueError(f"{where} is {short(data)}, expected {schema['const']!r}")
    wanted = schema.get("type", [])
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if kinds and not any(_is(data, kind) for kind in kinds):
        raise ValueError(f"{where} is {short(data)}, expected {' or '.join(kinds)}")
    if isinstance(data, dict):
        _check_object(data, schema, root, where)
    elif isinstance(data, list):
        if len(data) < schema.get("minItems", 0):
            raise ValueError(f"{where} has {len(data)} entries, expected {schema['minItems']} or more")
        for i, part in enumerate(data):
            check(part, schema.get("items", {}), root, f"{where}[{i}]")
    elif isinstance(data, int | float) and not isinstance(data, bool):
        low, high = schema.get("minimum", data), schema.get("maximum", data)
        if not low <= data <= high:
            raise ValueError(f"{where} is {short(data)}, expected {low} to {high}")
    return None


def _check_object(data: dict[str, object], schema: Schema, root: Schema, where: str) -> None:
    for key in schema.get("required", ()):
        if key not in data:
            raise ValueError(f"{where} has no {key}")
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    rest: Schema = {} if isinstance(more, bool) else more
    for key, value in data.items():
        if key not in known and more is False:
            raise ValueError(f"{where} has {short(key)}, which does not belong there")
        check(value, known.get(key, rest), root, f"{where}.{short(key)}".replace("'", ""))


def _is(data: object, kind: str) -> bool:
    return isinstance(data, _TYPES[kind]) and not (isinstance(data, bool) and kind in ("integer", "number"))
