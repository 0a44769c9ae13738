"""Networks as files: safetensors with a JSON header that says what is inside, written atomically, never unpickled.

Everything is checked before a network is built: the header against the tensors in the file, the shapes against the
widths, the numbers for being finite. A write goes to a temporary file beside the target and is renamed, so that a crash
leaves the old file or the new one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from .activations import NAMES, Radial, RadialActivation, ShiftedReLU, named_activation
from .checks import check_kind, is_number
from .errors import InvalidValue
from .network import RadNet
from .reading import (
    FLOATS,
    Header,
    Layout,
    TensorFile,
    check_fits,
    check_initialised,
    check_layout,
    layouts,
    open_tensors,
    pack,
    parse_json,
    read_tensors,
    reading,
    some_of,
    unpack,
)
from .shards import check_seal, is_index, metadata_of, opened, write_sharded
from .widths import check_widths
from .writing import write_atomically

FORMAT = 2  # 1 had no checksum
KEY = "radnet"
#: names that nobody's own activation may have; those that came later were in use, and files say which is meant
_RESERVED = frozenset(("step_relu", "squash", "shifted_relu", "sigmoid", "identity"))
_SHIFTED = next(name for name, kind in NAMES.items() if kind is ShiftedReLU)

_SHIFTS: dict[str, str | float | None] = {"none": None, "fixed": 0.0, "trainable": "trainable"}

ActivationSource = Callable[[Tensor], Tensor] | type[RadialActivation]


def save(
    net: RadNet,
    path: str | os.PathLike[str],
    *,
    certificate: Mapping[str, object] | None = None,
    before: Sequence[int] | None = None,
    columns: Mapping[str, object] | None = None,
) -> None:
    """Write a network to a file, atomically; see `radnet.save`.

    ``certificate`` is what was measured when it was compressed, ``before`` the widths of what was compressed, and
    ``columns`` which columns of a table it reads and gives (`radnet.training.learning`), as plain data; they are kept
    in the header.
    """
    check_kind(net, RadNet, "save needs a RadNet")
    _check_plain(net)
    state = {name: value.detach() for name, value in net.state_dict().items()}
    check_finite(state)
    header = {
        "format": FORMAT,
        "widths": net.widths,
        "bias": net.has_bias,
        "dtype": _dtype_name(net.weights[0].dtype),
        "activations": [describe(rho, i) for i, rho in enumerate(net.activations, start=1)],
        **({} if certificate is None else {"certificate": dict(certificate)}),
        **({} if before is None else {"before": list(before)}),
        **({} if columns is None else {"columns": dict(columns)}),
    }
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    if frozen:
        header["frozen"] = frozen
    if is_index(path):
        write_sharded(path, state, KEY, header)
    else:
        write_atomically(path, pack(state, KEY, header))


def _check_plain(net: RadNet) -> None:
    """Raise if a network has what a file does not hold and `load` could not give back: functions, computed weights."""
    for path, m in net.named_modules():
        own = sorted({"forward", "profile", "slope"} & vars(m).keys())
        if own:
            raise InvalidValue(
                f"{path or 'the network'} has a {own[0]} of its own, set on it and not in its class, which no file "
                "holds; make it a class, or a radnet.Radial with a name"
            )
    odd = [name for name in net.state_dict() if not re.match(r"layers\.\d+\.(weight|bias)$|rescalings\.", name)]
    if odd:
        raise InvalidValue(
            f"{some_of(odd)}: weights that are computed from others (parametrized, pruned) are not in the file of a "
            "network; make them plain first, for example by torch.nn.utils.parametrize.remove_parametrizations"
        )


def load(
    path: str | os.PathLike[str],
    activations: Mapping[str, ActivationSource] | None = None,
    *,
    device: torch.device | str = "cpu",
) -> RadNet:
    """Read a network from a file written by `save`; see `radnet.load`."""
    with reading(path):
        header, state = _read(path)
        check_finite(state)
        depth = len(header["widths"]) - 1
        rhos = [
            rebuild(entry, i, activations or {}, header["dtype"])
            for i, entry in enumerate(header["activations"], start=1)
        ]
        net = RadNet.from_parameters(
            [state[f"layers.{i}.weight"] for i in range(depth)],
            [state[f"layers.{i}.bias"] for i in range(depth)] if header["bias"] else None,
            rhos,
        )
        own = net.state_dict()
        _check_names(own, state, path)
        for name, value in own.items():  # torch's load_state_dict takes a time that grows with the square of the depth
            value.copy_(state[name])
        freeze(net, header, path)
        return net.to(device).eval()


def freeze(net: RadNet, header: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """The parameters that were not trained when a file was written are not trained now."""
    said, parameters = header.get("frozen", []), dict(net.named_parameters())
    if not isinstance(said, list) or not all(isinstance(name, str) and name in parameters for name in said):
        raise InvalidValue(f"{path}: the header is damaged: what it says is frozen are no parameters of the network")
    for name in said:
        parameters[name].requires_grad_(False)


def _read(path: str | os.PathLike[str]) -> TensorFile:
    """Header and tensors, from one file or from those that an index names."""
    if not is_index(path):
        return unpack(path, KEY, FORMAT, NOT_OURS, partial(check_announced, path))
    with opened(path, KEY, FORMAT, NOT_OURS) as stored:
        check_announced(path, stored.header, stored.layouts)
        tensors = {name: x.clone() for name, x in stored.tensors.items()}
        check_seal(path, stored._replace(tensors=tensors), KEY)
    return TensorFile(stored.header, tensors)


def load_into(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Copy the tensors of a file into a module that has them all; nothing is copied unless everything fits."""
    check_initialised(model)
    with reading(path):
        own = model.state_dict()
        if is_index(path):
            state = _read(path).tensors
            _check_filled(own, state, path)
        else:
            with open_tensors(path) as file:
                _check_filled(own, layouts(file, path), path)
                state = read_tensors(file, path)
        for name, value in own.items():
            check_fits(state[name], value, f"{path}: {name}")
        model.load_state_dict(state)


def _check_filled(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor | Layout], path: str | os.PathLike[str]
) -> None:
    """Whether the tensors of a file are those of a model, as far as names and shapes tell."""
    for problem, missing in (
        ("the file lacks", own.keys() - found.keys()),
        ("the model lacks", found.keys() - own.keys()),
    ):
        if missing:
            raise InvalidValue(f"{path}: {problem} {some_of(missing)}")
    for name, value in own.items():
        check_layout(found[name], value, f"{path}: {name}")


def header_of(path: str | os.PathLike[str], key: str) -> Header:
    """The JSON under a key of a file of ours, of which nothing has been checked but that it is JSON."""
    with reading(path):
        found = parse_json(metadata_of(path).get(key, "{}"), f"{path}: the header")
        return found if isinstance(found, dict) else {}


# --- activations


def describe(rho: RadialActivation, i: int) -> dict[str, object]:
    """What a header says of the activation of layer i; raises if it could not be made again from that."""
    shift = "none" if rho.shift is None else "trainable" if isinstance(rho.shift, nn.Parameter) else "fixed"
    entry: dict[str, object] = {"shift": shift}
    built_in = next((name for name, kind in NAMES.items() if type(rho) is kind), None)
    if built_in is not None:
        entry["name"] = built_in
        if isinstance(rho, ShiftedReLU):
            entry["b"] = rho.b
        return entry
    name = getattr(rho, "name", None)
    if not isinstance(name, str) or not name or name in _RESERVED:
        raise InvalidValue(
            f"layer {i}: {rho} cannot be saved without a name of its own; use radnet.Radial(h, name=...), or give the "
            "class an attribute name, and pass it to load(path, activations={name: ...})"
        )
    if any(p is not rho.shift for p in (*rho.parameters(), *rho.buffers())):
        raise InvalidValue(f"layer {i}: {rho} has parameters of its own besides the shift; only the shift can be saved")
    return {**entry, "name": name, "custom": True}


def _check_entry(entry: object, i: int) -> bool:
    """What the header says of an activation; whether it has a shift."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InvalidValue(f"layer {i}: the header does not say which activation it has")
    kind = entry.get("shift", "none")
    if not isinstance(kind, str) or kind not in _SHIFTS:
        raise InvalidValue(f"layer {i}: unknown kind of shift {kind!r} in the header")
    return _SHIFTS[kind] is not None


def rebuild(entry: Header, i: int, given: Mapping[str, ActivationSource], dtype: str) -> RadialActivation:
    """The activation of layer i that a header describes; ``given`` has those that are not built in."""
    name, shift = entry["name"], _SHIFTS[entry.get("shift", "none")]
    keywords: Header = {"shift": shift, "dtype": dtype_of(dtype)}
    if not entry.get("custom"):
        if "b" in entry and (name != _SHIFTED or not is_number(entry["b"])):
            raise InvalidValue(f"layer {i}: {name!r} with b = {entry['b']!r} in the header; the file is damaged")
        return named_activation(name, **keywords, **({"b": entry["b"]} if "b" in entry else {}))
    if name not in given:
        raise InvalidValue(
            f"layer {i}: activation {name!r} is not built in; pass load(path, activations={{{name!r}: h}})"
        )
    source = given[name]
    if isinstance(source, type):
        rebuilt: RadialActivation = source(**keywords)
        return rebuilt
    return Radial(source, name=name, **keywords)


# --- checks


NOT_OURS = "a safetensors file, but not one written by radnet; try load_into(model, path)"


def _check_header(header: Header, path: str | os.PathLike[str]) -> None:
    for key, kind in (("widths", list), ("bias", bool), ("dtype", str), ("activations", list)):
        if not isinstance(header.get(key), kind):
            raise InvalidValue(f"{path}: the header is damaged: {key} is {header.get(key)!r}")
    if len(header["activations"]) != len(header["widths"]) - 1:
        raise InvalidValue(f"{path}: {len(header['widths'])} widths, but {len(header['activations'])} activations")


def check_announced(path: str | os.PathLike[str], header: Header, found: Mapping[str, Layout]) -> None:
    """The header, and the tensors in the file against it, none of which was read yet."""
    _check_header(header, path)
    widths = check_widths(header["widths"])
    shifted = [_check_entry(entry, i) for i, entry in enumerate(header["activations"], start=1)]
    _check_shapes(found, _expected_shapes(widths, header["bias"], shifted), header["dtype"], path)


def _expected_shapes(widths: tuple[int, ...], bias: bool, shifted: list[bool]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for i, has_shift in enumerate(shifted):
        shapes[f"layers.{i}.weight"] = (widths[i + 1], widths[i])
        if bias:
            shapes[f"layers.{i}.bias"] = (widths[i + 1],)
        if has_shift:
            shapes[f"rescalings.{i}.shift"] = ()
    return shapes


def _check_shapes(
    state: Mapping[str, Layout], expected: dict[str, tuple[int, ...]], dtype: str, path: str | os.PathLike[str]
) -> None:
    _check_names(expected, state, path)
    needed = dtype_of(dtype)
    for name, shape in expected.items():
        if state[name].shape != shape:
            layer = int(name.split(".")[1]) + 1
            raise InvalidValue(f"{path}: layer {layer}: {name} has shape {state[name].shape}; needs {shape}")
        if state[name].dtype != needed:
            raise InvalidValue(f"{path}: {name} is stored as {_dtype_name(state[name].dtype)}, the header says {dtype}")


def _check_names(expected: Collection[str], found: Collection[str], path: str | os.PathLike[str]) -> None:
    if set(found) != set(expected):
        odd = some_of(set(found) ^ set(expected))
        raise InvalidValue(f"{path}: the tensors in the file are not those the header announces ({odd})")


def check_finite(state: Mapping[str, Tensor]) -> None:
    """Raise, naming the tensor, if a number is NaN or infinite."""
    for name, value in state.items():
        if (value.is_floating_point() or value.is_complex()) and value.dtype not in FLOATS:
            raise InvalidValue(f"{name} is {value.dtype}; expected float16, bfloat16, float32 or float64")
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InvalidValue(f"{name} holds NaN or infinite values")


def _dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The dtype that a header names."""
    for dtype in FLOATS:
        if _dtype_name(dtype) == name:
            return dtype
    raise InvalidValue(f"the header names an unknown dtype {name!r}")
