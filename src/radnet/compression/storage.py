"""Models of any class as files: their tensors, and how their layers differ from those of a freshly made model.

A file holds no code and no class, only names: whoever reads it brings a model of the same class, whose layers get the
sizes that the file announces. Everything is compared before anything is changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import __version__
from ..activations import RadialActivation
from ..checks import is_number, is_whole
from ..errors import InvalidType, InvalidValue
from ..reading import FLOATS, STORED, Header, Layout, check_initialised, pack, reading, some_of, unpack
from ..writing import write_atomically
from .guards import AxesGuard, Guard, ModeGuard, NeverRan, SizesGuard
from .judging.certificate import Measured, plain_data
from .kinds import KindsGuard
from .operations import resize
from .replacements import FoldedBatchNorm, RMSRescaling

FORMAT = 2
KEY = "radnet-model"
#: on a model: the shapes of what it was made from
_BEFORE = "_radnet_before"
_NOT_ONE = "a safetensors file, but not one written by radnet"
#: what may stand in a small model where the original had something else, and what it is made with
_REPLACEMENTS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Identity": (nn.Identity, ()),
    "FoldedBatchNorm": (FoldedBatchNorm, ("axes",)),
    "RMSRescaling": (RMSRescaling, ("n", "eps", "dim")),
}

_GUARDS: dict[str, type[Guard]] = {
    kind.__name__: kind for kind in (AxesGuard, SizesGuard, KindsGuard, ModeGuard, NeverRan)
}


class _Kept(NamedTuple):
    """A tensor of a model: where it stands, and whether it is trained, or part of the state_dict if it is not."""

    value: Tensor
    is_parameter: bool
    flag: bool


def _tensors(model: nn.Module) -> dict[str, _Kept]:
    """All parameters and buffers by name, shared ones under every name."""
    found: dict[str, _Kept] = {}
    for path, m in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        found |= {prefix + k: _Kept(p, True, p.requires_grad) for k, p in m._parameters.items() if p is not None}
        passing = m._non_persistent_buffers_set
        found |= {prefix + k: _Kept(b, False, k not in passing) for k, b in m._buffers.items() if b is not None}
    return found


def _class_name(module: nn.Module) -> str:
    replaced = next((name for name, (kind, _) in _REPLACEMENTS.items() if type(module) is kind), None)
    return replaced or f"{type(module).__module__}.{type(module).__qualname__}"


# --- writing


def save_model(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    original: nn.Module | None = None,
    certificate: Measured | None = None,
) -> None:
    """Write a model of any class, atomically: tensors, shapes, what was folded or added, guards, the certificate.

    Parameters
    ----------
    model : nn.Module
    path : str or path
    original : nn.Module, optional
        What it was made from: a model that is to take the file is compared with that.
    certificate : Certificate, or plain data, optional

    Raises
    ------
    InvalidValue
        If a parameter holds NaN or infinite values, or a tensor is of a kind that files do not hold.
    """
    _check_storable(model)
    kept = _tensors(model)
    names: dict[int, str] = {}  # of every tensor its first name
    ties = {name: names[id(k.value)] for name, k in kept.items() if names.setdefault(id(k.value), name) != name}
    own = {name: k for name, k in kept.items() if name not in ties}
    header = {
        "format": FORMAT,
        "radnet": __version__,
        "class": _class_name(model),
        "made_with": getattr(model, "made_with", None) if type(model).__module__.startswith("radnet.") else None,
        "tensors": {name: {"parameter": k.is_parameter, "flag": k.flag} for name, k in own.items()},
        "ties": ties,
        "modules": {p: _described(m) for p, m in model.named_modules(remove_duplicate=False)},
        "guards": list(_guards(model)),
        "before": _shapes(original) if original is not None else vars(model).get(_BEFORE) or _shapes(model),
        "certificate": plain_data(certificate),
    }
    write_atomically(path, pack({name: k.value for name, k in own.items()}, KEY, header))


def remember_shapes(small: nn.Module, original: nn.Module) -> None:
    """Have a small model know the shapes of what it was made from: a freshly made model has those."""
    vars(small)[_BEFORE] = _shapes(original)


def _shapes(model: nn.Module) -> dict[str, list[int]]:
    return {name: list(k.value.shape) for name, k in _tensors(model).items()}


def _check_storable(model: nn.Module) -> None:
    check_initialised(model)
    for path, m in model.named_modules():
        if type(m).get_extra_state is not nn.Module.get_extra_state:
            raise InvalidValue(
                f"{path or type(m).__name__} has a state besides its tensors (get_extra_state), which "
                "files do not hold; keep it in buffers"
            )
    for name, k in _tensors(model).items():
        x = k.value
        if x.layout != torch.strided or x.is_quantized or x.device.type == "meta" or x.dtype not in STORED:
            raise InvalidValue(f"{name} is sparse, quantised, {x.dtype} or on the meta device; files do not hold that")
        if k.is_parameter and x.is_floating_point() and not bool(x.detach().isfinite().all()):
            raise InvalidValue(f"{name} holds NaN or infinite values")


def _described(module: nn.Module) -> dict[str, object]:
    """The class of a module, and what it is made with where it may not be in a freshly made model."""
    name = _class_name(module)
    said: dict[str, object] = {"class": name}
    if name in _REPLACEMENTS:
        said |= {key: getattr(module, key) for key in _REPLACEMENTS[name][1]}
    elif isinstance(module, RadialActivation) and module.blocks is not None:
        said["blocks"] = module.blocks
    return said


def _guards(model: nn.Module) -> Iterator[dict[str, object]]:
    for path, m in model.named_modules():
        for hook in m._forward_pre_hooks.values():
            if isinstance(hook, Guard):
                yield {"at": path, "guard": type(hook).__name__, "refuses": hook.to_dict()}


# --- reading


def load_model_into(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Give the layers of a freshly made model the sizes that a file announces, and fill them; it is in eval mode then.

    Names, hooks and what is shared stay; norm layers that were folded go, biases that were added come. Nothing is
    changed unless everything fits.

    Raises
    ------
    InvalidValue
        If the file is damaged, or was made from a model of another class or another version of it: the message names
        the layer and both shapes.
    """
    if not isinstance(model, nn.Module):
        raise InvalidType(f"load_into needs a module, got {type(model).__name__}")
    check_initialised(model)
    with reading(path):
        header, state = unpack(path, KEY, FORMAT, _NOT_ONE, partial(_check_announced, path, model))
        for name, said in header["tensors"].items():
            if said["parameter"] and state[name].is_floating_point() and not bool(state[name].isfinite().all()):
                raise InvalidValue(f"{path}: {name} holds NaN or infinite values")
        guards = [(said["at"], _guard(path, model, said)) for said in header["guards"]]
        parts = _new_parts(model, header)
        values = _new_values(model, header, state)
    _install(model, header, parts, values)
    for where, guard in guards:
        guard.stand_before(model.get_submodule(where))
    vars(model)[_BEFORE] = header["before"]
    model.eval()


def _new_parts(model: nn.Module, header: Header) -> dict[str, nn.Module]:
    """What takes the place of norm layers that were folded, by path."""
    was = {path: _class_name(m) for path, m in model.named_modules(remove_duplicate=False)}
    changed = {path: said for path, said in header["modules"].items() if _last(was[path]) != _last(said["class"])}
    return {path: _replacement(said) for path, said in changed.items()}


def _new_values(model: nn.Module, header: Header, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the file on the device of the model."""
    devices = {name: k.value.device for name, k in _tensors(model).items() if not k.value.is_meta}
    device = next(iter(devices.values()), torch.device("cpu"))
    return {name: state[name].to(devices.get(name, device)) for name in header["tensors"]}


def _filled(m: nn.Module, own: str, value: Tensor, said: Header, taken: dict[int, str], name: str) -> Tensor:
    """The tensor that stands there with another value, so that who else holds it has it too; else a new one."""
    old = (m._parameters if said["parameter"] else m._buffers).get(own)
    if old is None or old.is_meta or taken.setdefault(id(old), name) != name:
        return nn.Parameter(value, requires_grad=said["flag"]) if said["parameter"] else value
    old.data = value
    old.grad = None
    if said["parameter"]:
        old.requires_grad_(said["flag"])
    return old


def _install(model: nn.Module, header: Header, parts: Mapping[str, nn.Module], values: Mapping[str, Tensor]) -> None:
    """Everything has been looked at, and is there: nothing here can fail."""
    for path, part in parts.items():
        owner, _, name = path.rpartition(".")
        model.get_submodule(owner)._modules[name] = part
    taken: dict[int, str] = {}  # by tensors of the model: what they hold now
    made: dict[str, Tensor] = {}
    for name in (*header["tensors"], *header["ties"]):
        owner, _, own = name.rpartition(".")
        m, first = model.get_submodule(owner), header["ties"].get(name, name)
        if first not in made:
            made[first] = _filled(m, own, values[first], header["tensors"][first], taken, first)
        (m._parameters if header["tensors"][first]["parameter"] else m._buffers)[own] = made[first]  # type: ignore[assignment]
    for path, said in header["modules"].items():
        m = model.get_submodule(path)
        resize(m)
        if isinstance(m, RadialActivation) and "blocks" in said:
            m.blocks = said["blocks"] if isinstance(said["blocks"], int) else tuple(said["blocks"])


def _replacement(said: Header) -> nn.Module:
    kind, keys = _REPLACEMENTS[said["class"]]
    return kind(**{key: said[key] for key in keys})


def _guard(path: str | os.PathLike[str], model: nn.Module, said: Header) -> Guard:
    try:
        return _GUARDS[said["guard"]].of_dict(model.get_submodule(said["at"]), said["refuses"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidValue(f"{path}: the header is damaged: what the model refuses is not told ({error})") from error


# --- checks


def _check_announced(
    path: str | os.PathLike[str], model: nn.Module, header: Header, found: Mapping[str, Layout]
) -> None:
    """The header against itself, the model, and the tensors in the file, none of which was read yet."""
    _check_header(path, header, found)
    own = _tensors(model)
    _check_before(path, model, header, own)
    replaced = _check_modules(path, model, header)
    names = {**header["tensors"], **header["ties"]}
    below = [
        p
        for p in (*names, *header["modules"], *(str(g["at"]) + "." for g in header["guards"]))
        if p.startswith(replaced)
    ]
    if replaced and below:
        raise InvalidValue(f"{path}: the header is damaged: {some_of(below)} belongs to what was replaced")
    for name in names.keys() - own.keys():
        _check_added(path, model, name, header, found)
    lost = {name for name in own.keys() - names.keys() if not name.startswith(replaced)}
    if lost:
        raise InvalidValue(f"{path}: the file lacks {some_of(lost)}")
    for name in names.keys() & own.keys():
        layout, value = found[header["ties"].get(name, name)], own[name].value
        fits = len(layout.shape) == value.ndim and all(
            0 < a <= b for a, b in zip(layout.shape, value.shape, strict=False)
        )
        if not fits and layout.shape != tuple(value.shape):
            raise InvalidValue(f"{path}: {name} has shape {layout.shape}, which a part of {tuple(value.shape)} has not")
        if layout.dtype != value.dtype and not (layout.dtype in FLOATS and value.dtype in FLOATS):
            raise InvalidValue(f"{path}: {name} is {layout.dtype}; the model has {value.dtype}")
        if header["tensors"][header["ties"].get(name, name)]["parameter"] != own[name].is_parameter:
            raise InvalidValue(f"{path}: {name} is a parameter in one and a buffer in the other")


def _check_header(path: str | os.PathLike[str], header: Header, found: Mapping[str, Layout]) -> None:
    kinds: dict[str, Callable[[Any], bool]] = {
        "class": lambda x: isinstance(x, str),
        "tensors": lambda x: isinstance(x, dict) and all(map(_is_flags, x.values())),
        "ties": lambda x: isinstance(x, dict) and all(isinstance(v, str) for v in x.values()),
        "modules": lambda x: isinstance(x, dict) and all(map(_is_described, x.values())),
        "guards": lambda x: (
            isinstance(x, list) and all(isinstance(v, dict) and {*v} == {"at", "guard", "refuses"} for v in x)
        ),
        "before": lambda x: x is None or (isinstance(x, dict) and all(map(_is_shape, x.values()))),
        "certificate": lambda x: x is None or isinstance(x, dict),
    }
    for key, fits in kinds.items():
        if key not in header or not fits(header[key]):
            raise InvalidValue(f"{path}: the header is damaged: {key} is not what it should be")
    if set(header["tensors"]) != set(found):
        odd = some_of(set(header["tensors"]) ^ set(found))
        raise InvalidValue(f"{path}: the tensors in the file are not those the header announces ({odd})")
    if not set(header["ties"].values()) <= set(found) or set(header["ties"]) & set(found):
        raise InvalidValue(f"{path}: the header is damaged: ties name tensors that are not there")
    unknown = [name for name, layout in found.items() if layout.dtype is None]
    if unknown:
        raise InvalidValue(f"{path}: {some_of(unknown)} has a dtype that is not known")


def _is_flags(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), bool) for key in ("parameter", "flag"))


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(is_whole(n) and n >= 0 for n in value)


def _is_described(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("class"), str):
        return False
    checks: dict[str, Callable[[Any], bool]] = {
        "axes": lambda x: is_whole(x) and x > 0,
        "n": lambda x: is_whole(x) and x > 0,
        "eps": lambda x: x is None or (is_number(x) and x >= 0),
        "dim": is_whole,
    }
    keys = _REPLACEMENTS.get(value["class"], (nn.Module, ()))[1]
    blocks = value.get("blocks")
    sizes = [blocks] if is_whole(blocks) else blocks if isinstance(blocks, list) else []
    plain = all(is_whole(k) and k > 0 for k in sizes) and (blocks is None or bool(sizes))
    return plain and all(key in value and checks[key](value[key]) for key in keys)


def _check_before(path: str | os.PathLike[str], model: nn.Module, header: Header, own: Mapping[str, _Kept]) -> None:
    """The model against the one that was compressed, where the file tells."""
    before = header["before"]
    if before is None:
        return
    for name in sorted(before.keys() & own.keys()):
        if tuple(before[name]) != tuple(own[name].value.shape):
            raise InvalidValue(
                f"{path}: it was made from a {header['class']} whose {name} has shape {tuple(before[name])}; that of "
                f"this {type(model).__name__} has shape {tuple(own[name].value.shape)}"
            )
    odd = before.keys() ^ own.keys()
    if odd:
        raise InvalidValue(
            f"{path}: it was made from a {header['class']} that has, or lacks, {some_of(odd)} beside this "
            f"{type(model).__name__}"
        )


def _check_modules(path: str | os.PathLike[str], model: nn.Module, header: Header) -> tuple[str, ...]:
    """The classes of the parts, but for the files they stand in; gives the prefixes of those that are replaced."""
    parts = dict(model.named_modules(remove_duplicate=False))
    own = {p: _class_name(m) for p, m in parts.items()}
    said = {p: entry["class"] for p, entry in header["modules"].items()}
    if _last(said.get("", own[""])) != _last(own[""]):
        raise InvalidValue(f"{path}: it holds a {said['']}, not a {own['']}")
    odd = own.keys() ^ said.keys()
    if odd:
        raise InvalidValue(f"{path}: {some_of(odd)} is there in one and not in the other")
    replaced = []
    for p, name in said.items():
        if _last(own[p]) == _last(name):
            continue
        if name not in _REPLACEMENTS or not p or list(parts[p].children()):
            raise InvalidValue(f"{path}: {p} is a {name}; in the model it is a {own[p]}")
        replaced.append(f"{p}.")
    return tuple(replaced)


def _last(name: str) -> str:
    """The name of a class without that of its file, in which it may move."""
    return name.rpartition(".")[2]


def _check_added(
    path: str | os.PathLike[str], model: nn.Module, name: str, header: Header, found: Mapping[str, Layout]
) -> None:
    """A bias that came where there was none: a number for every output of its layer."""
    owner, _, own = name.rpartition(".")
    try:
        m = model.get_submodule(owner)
    except AttributeError:
        m = nn.Module()
    if own not in m._parameters:
        raise InvalidValue(f"{path}: the model lacks {name}")
    first = header["ties"].get(name, name)
    weight = f"{owner}.weight" if owner else "weight"
    outputs = found.get(header["ties"].get(weight, weight), Layout((), None)).shape
    layout = found[first]
    if layout.dtype not in FLOATS or len(layout.shape) != 1 or layout.shape[0] not in outputs:
        raise InvalidValue(f"{path}: {name} has shape {layout.shape}, which is no bias of its layer")
