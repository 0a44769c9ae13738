"""What is in a file, told from its header: nothing is built, no tensor is read, and nothing in it is run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping

from .errors import InvalidValue
from .files import FORMAT, KEY, NOT_OURS, check_announced
from .reading import KINDS, Header, Layout, layouts, open_tensors, parse_json, reading, some_of
from .shards import is_index, opened
from .widths import count_parameters, reduced_widths

Answer = dict[str, object]


def contents_of(path: str | os.PathLike[str]) -> Answer:
    """What a safetensors file holds, as plain data; of ours more than of others.

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If it is no safetensors file, or its header is damaged.
    """
    with reading(path):
        if is_index(path):
            return {"holds": "a network in several files", "read_by": KINDS[KEY][1], **_of_index(path)}
        with open_tensors(path) as file:
            metadata, found = file.metadata() or {}, layouts(file, path)
        key = next((key for key in KINDS if key in metadata), None)
        answer: Answer = {
            "holds": "tensors, of which no header of ours says more" if key is None else KINDS[key][0],
            "read_by": "radnet.load_into(model, path)" if key is None else KINDS[key][1],
            "bytes": os.path.getsize(path),
            "tensors": len(found),
            "numbers": sum(math.prod(x.shape) for x in found.values()),
            "dtypes": sorted({str(x.dtype).removeprefix("torch.") for x in found.values()}),
        }
        if key is None:
            return {**answer, "names": some_of(found, 20)}
        header = parse_json(metadata[key], f"{path}: the header")
        if not isinstance(header, dict):
            raise InvalidValue(f"{path}: the header is damaged: it is a {type(header).__name__}")
        try:
            return {**answer, "format": header.get("format"), **_TELLERS[key](path, header, found)}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidValue):
                raise
            raise InvalidValue(f"{path}: the header is damaged ({type(error).__name__}: {error})") from error


def _of_index(path: str | os.PathLike[str]) -> Answer:
    with opened(path, KEY, FORMAT, NOT_OURS) as stored:
        return _network(path, stored.header, stored.layouts)


def _network(path: str | os.PathLike[str], header: Header, found: Mapping[str, Layout]) -> Answer:
    check_announced(path, header, found)
    n, bias = tuple(header["widths"]), header["bias"]
    small = reduced_widths(n, bias)
    answer: Answer = {
        "widths": list(n),
        "bias": bias,
        "activations": [entry["name"] for entry in header["activations"]],
        "parameters": count_parameters(n, bias),
    }
    columns = header.get("columns")
    if isinstance(columns, dict):
        answer |= {"reads": columns.get("inputs"), "gives": columns.get("targets"), "classes": columns.get("classes")}
    if header.get("certificate") is not None:
        return {**answer, "compressed": True, "certificate": _verdict(header["certificate"])}
    after = count_parameters(small, bias)
    return {**answer, "compressed": small == n, "reduced_widths": list(small), "reduced_parameters": after}


def _model(path: str | os.PathLike[str], header: Header, found: Mapping[str, Layout]) -> Answer:
    before = sum(math.prod(shape) for shape in header["before"].values())
    after = sum(math.prod(x.shape) for x in found.values())
    changed = [name for name, x in found.items() if list(x.shape) != header["before"].get(name)]
    return {
        "class": str(header["class"]),
        "radnet": str(header["radnet"]),
        "compressed": header.get("certificate") is not None,
        "numbers_before": before,
        "numbers_after": after,
        "resized": some_of(changed, 20) if changed else None,
        "refuses": [str(said["guard"]) for said in header["guards"]] or None,
        "certificate": _verdict(header.get("certificate")),
    }


def _approximation(path: str | os.PathLike[str], header: Header, found: Mapping[str, Layout]) -> Answer:
    said = header["certificate"]
    names = ("width", "balls", "hidden_layers", "parameters", "eps", "bound", "scope", "rests_on", "dtype")
    return {**{name: said[name] for name in names}, "formula": header.get("formula")}


def _checkpoint(path: str | os.PathLike[str], header: Header, found: Mapping[str, Layout]) -> Answer:
    parameters = sum(math.prod(x.shape) for name, x in found.items() if name.startswith("model."))
    return {"epochs": header["epoch"], "parameters": parameters, "validated": "history.validation" in found}


def _verdict(said: object) -> str | None:
    """What the writer of a file recorded; nothing has been measured again."""
    if not isinstance(said, dict):
        return None
    verdict = "lossless" if said.get("lossless") is True else "NOT lossless"
    return (
        f"recorded: {verdict}, on {said.get('rows')} inputs, in {said.get('judged_in')}; radnet verify measures again"
    )


_TELLERS: dict[str, Callable[[str | os.PathLike[str], Header, Mapping[str, Layout]], Answer]] = {
    "radnet": _network,
    "radnet-model": _model,
    "radnet-approximation": _approximation,
    "radnet-checkpoint": _checkpoint,
}
