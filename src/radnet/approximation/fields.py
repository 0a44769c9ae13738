"""What the header of a file says of an approximation, checked before a tensor is read or anything is built from it.

Every field of the certificate and of the cover has its kind and its sign, and the tensors in the file have the shapes
that follow from the number of balls, inputs, outputs and layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from ..checks import is_number, is_whole
from ..errors import InvalidValue
from ..reading import Header, Layout, part_of, some_of
from .certificate import DTYPES
from .constructions import RECIPES

Check = Callable[[object], bool]
Shape = tuple[int, ...]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return is_whole(value) and value >= 1


def _is_size(value: object) -> bool:
    return is_number(value) and math.isfinite(value) and value >= 0


def _is_positive(value: object) -> bool:
    return _is_size(value) and value != 0


def _is_size_or_none(value: object) -> bool:
    return value is None or _is_size(value)


def _are_sizes(value: object) -> bool:
    return isinstance(value, dict) and value.keys() <= DTYPES.keys() and all(map(_is_size, value.values()))


def _are_sizes_or_none(value: object) -> bool:
    return isinstance(value, dict) and value.keys() <= DTYPES.keys() and all(map(_is_size_or_none, value.values()))


_CERTIFICATE: dict[str, Check] = {
    **dict.fromkeys(("width", "rests_on", "scope", "cover"), _is_text),
    "dtype": lambda value: isinstance(value, str) and value in DTYPES,
    **dict.fromkeys(("balls", "hidden_layers", "parameters"), _is_count),
    "eps": _is_positive,
    **dict.fromkeys(("bound", "variation", "snapping", "rounding", "sphere_margin"), _is_size),
    "proven": _is_flag,
    "threshold_margin": _is_size_or_none,  # JSON has no infinity
    "bounds": _are_sizes_or_none,
    "reach": _are_sizes,
}
_COVER: dict[str, Check] = {
    **dict.fromkeys(("scale", "unit", "pitch"), _is_positive),
    "slack": _is_size,
    "bits": lambda value: is_whole(value) and value in (24, 53),  # of float32 and float64
    "kind": _is_text,
}
_KINDS = {"box": {"kind", "lo", "hi"}, "ball": {"kind", "centre", "radius"}, "points": {"kind"}}
_NETWORKS: dict[str, Callable[[int, int, int, int, int], dict[str, Shape]]] = {
    "growing": lambda N, n, m, w, layers: {
        "centres": (N, n), "factors": (N,), "columns": (N, m), "A": (m, n), "b": (m,), "scale": (),
    },
    "stacked": lambda N, n, m, w, layers: {
        "first": (w, n), "hidden": (layers - 1, w, w), "biases": (layers, w), "last": (m, w), "last_bias": (m,),
    },
}  # fmt: skip
_OUTSIDES: dict[str, Callable[[int, int, int], dict[str, Shape]]] = {
    "limit": lambda N, n, m: {"A": (m, n), "b": (m,)},
    "moved": lambda N, n, m: {
        "entry": (max(n, m), n), "centres": (N, max(n, m)), "d": (N, max(n, m)), "clearance": (N,),
        "exit": (m, max(n, m)), "offset": (m,),
    },
}  # fmt: skip


def check_announced(path: object, header: Header, found: Mapping[str, Layout]) -> None:
    """The header, and the tensors in the file against it, none of which was read yet."""
    _check_fields(path, "certificate", header.get("certificate"), _CERTIFICATE)
    _check_fields(path, "cover", header.get("cover"), _COVER)
    for name, known in (("network", _NETWORKS), ("outside", _OUTSIDES)):
        if not isinstance(header.get(name), str) or header[name] not in known:
            raise InvalidValue(
                f"{path}: the file does not hold what its header announces ({name} is {header.get(name)!r})"
            )
    formula, domain = header.get("formula"), header.get("domain")
    if formula is not None and not isinstance(formula, str):
        raise InvalidValue(f"{path}: the formula is a {type(formula).__name__}")
    kind = domain.get("kind") if isinstance(domain, dict) else None
    if domain is not None and (not isinstance(kind, str) or _KINDS.get(kind) != domain.keys()):
        raise InvalidValue(f"{path}: the file does not hold what its header announces (the domain is {domain!r})")
    expected = _shapes(path, header, found)
    for name, shape in expected.items():
        if found[name].shape != shape:
            fit = "the weights do not fit together: " if name.startswith("network.") else ""
            raise InvalidValue(f"{path}: {fit}{name} has shape {found[name].shape}; needs {shape}")
    for name, x in found.items():
        if not name.startswith("network.") and x.dtype != (torch.int64 if name == "cover.levels" else torch.float64):
            raise InvalidValue(f"{path}: {name} is {x.dtype}; needs float64, or int64 for levels")
    kinds = {x.dtype for x in part_of(found, "network").values()}
    if len(kinds) != 1 or not kinds <= {torch.float16, torch.bfloat16, *DTYPES.values()}:
        raise InvalidValue(f"{path}: the weights do not fit together: they are {some_of(map(str, kinds))}")


def _check_fields(path: object, what: str, data: object, checks: Mapping[str, Check]) -> None:
    if not isinstance(data, dict) or data.keys() != checks.keys():
        odd = some_of(data.keys() ^ checks.keys()) if isinstance(data, dict) else f"it is a {type(data).__name__}"
        raise InvalidValue(f"{path}: the file does not hold what its header announces (the {what}: {odd})")
    for name, is_fine in checks.items():
        if not is_fine(data[name]):
            raise InvalidValue(
                f"{path}: the {what} does not hold numbers where they belong, or texts: {name} is {data[name]!r}"
            )


def _shapes(path: object, header: Header, found: Mapping[str, Layout]) -> dict[str, Shape]:
    """The shape of every tensor, once the file is known to have them all and no others."""
    network, outside = _NETWORKS[header["network"]], _OUTSIDES[header["outside"]]
    names = {f"network.{name}" for name in network(1, 1, 1, 1, 1)} | {f"outside.{name}" for name in outside(1, 1, 1)}
    names |= {f"cover.{name}" for name in ("centres", "samples", "grid", "radii", "inner", "outer", "levels")}
    names |= {"outputs"} | ({"domain.x"} if (header.get("domain") or {}).get("kind") == "points" else set())
    if names != found.keys():
        odd = some_of(names ^ found.keys())
        raise InvalidValue(f"{path}: the file does not hold what its header announces ({odd})")
    flat = [name for name in ("cover.centres", "outputs", "domain.x") if name in names and len(found[name].shape) != 2]
    if flat or len(found["cover.radii"].shape) != 1 or 0 in found["outputs"].shape + found["cover.centres"].shape:
        raise InvalidValue(f"{path}: the tensors do not fit together ({some_of(flat or ['cover'])})")
    N, n, m = found["cover.radii"].shape[0], found["cover.centres"].shape[1], found["outputs"].shape[1]
    certificate = header["certificate"]
    recipe = RECIPES.get(certificate["width"])
    layers = N * recipe.layers if recipe is not None else 0
    biases = found["network.biases"].shape if header["network"] == "stacked" else (N, 1)
    if (certificate["balls"], certificate["hidden_layers"], biases[:1]) != (N, layers, (layers,)):
        raise InvalidValue(f"{path}: the certificate is that of another network")
    w = biases[1] if len(biases) == 2 else 0
    shapes = {f"network.{name}": shape for name, shape in network(N, n, m, w, layers).items()}
    shapes |= {f"outside.{name}": shape for name, shape in outside(N, n, m).items()}
    shapes |= {f"cover.{name}": (N, n) for name in ("centres", "samples", "grid")}
    shapes |= {f"cover.{name}": (N,) for name in ("radii", "inner", "outer", "levels")}
    if "domain.x" in names:
        shapes["domain.x"] = (found["domain.x"].shape[0], n)
    return {**shapes, "outputs": (N, m)}
