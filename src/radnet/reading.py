"""Reading files that may be damaged or hostile: everything is checked before anything is built or changed.

Only regular files are opened, so nothing waits for a pipe. Text is JSON of limited size (`LARGEST_TEXT`; whoever reads
a file of text looks at its size first) and depth with ordinary numbers. Tensors come from safetensors, which holds no
code and no more than its own bytes; a file of format 2 carries a checksum of its header and its tensors, so that a
flipped bit is a reason to refuse. No tensor is read before the names, shapes and dtypes of all of them were compared
with what the header announces, since a file may be larger than memory. Every refusal is an `InvalidValue` that names
the file, of limited length.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .checks import check_path, is_whole
from .errors import LONGEST_MESSAGE, InvalidValue, MissingFile, NotEnoughMemory, RadNetError, printable

#: bytes of JSON, also of the header of a safetensors file, and how deep it may be nested
LARGEST_TEXT = 2**24
DEEPEST = 32
#: how the header of a file of format 2 begins; the checksum is that of the header with zeros in its place
_SEAL = '{"sha256": "'
_UNSEALED = 64 * "0"
#: what a file of ours holds, by the key of its header, and what reads it
KINDS = {
    "radnet": ("a network", "radnet.load(path)"),
    "radnet-model": ("a model of a class of its own", "radnet.load_into(model, path)"),
    "radnet-approximation": ("an approximation", "radnet.approximation.load(path)"),
    "radnet-checkpoint": ("a radnet checkpoint", "radnet.training.fit(..., checkpoint=path)"),
}
#: dtypes by the names that safetensors has for them; it has more, which nothing of ours has
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
STORED = frozenset(_DTYPES.values())
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_initialised(model: nn.Module) -> None:
    """Refuse a model with parameters that have no shape yet."""
    lazy = [name for name, p in model.named_parameters() if is_lazy(p)]
    if lazy:
        raise InvalidValue(f"{some_of(lazy)} is not initialised yet; run the model once first")


def regular_file(path: str | os.PathLike[str]) -> Path:
    """The path, if there is an ordinary file."""
    check_path(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise MissingFile(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:  # a name with a zero byte, a folder that may not be entered
        raise InvalidValue(f"{path}: cannot be opened ({error})") from error
    if not stat.S_ISREG(mode):
        raise InvalidValue(f"{path}: is no regular file; give the name of a file")
    return Path(path)


@contextmanager
def enough_memory(where: object) -> Iterator[None]:
    """While a file is read: memory that is not to be had is a refusal that names the file.

    >>> with enough_memory("large.npy"):
    ...     raise MemoryError
    Traceback (most recent call last):
        ...
    radnet.errors.NotEnoughMemory: large.npy: not enough memory to read it
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise NotEnoughMemory(f"{where}: not enough memory to read it") from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether there was no memory: torch has no error of its own for it on the CPU.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("sizes differ"))
    (True, False)
    """
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


@contextmanager
def reading(path: object) -> Iterator[None]:
    r"""While a file is read: `enough_memory`, and refusals that are printable and not as long as what they refuse.

    >>> with reading("a.safetensors"):
    ...     raise InvalidValue("a.safetensors: lacks x\x1b[8m")
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: a.safetensors: lacks x\x1b[8m
    """
    try:
        with enough_memory(path):
            yield
    except RadNetError as error:
        said = printable(str(error), LONGEST_MESSAGE)
        if said == str(error):
            raise
        raise type(error)(said) from error


def some_of(names: Iterable[str], most: int = 10) -> str:
    """Names in a message: the first of them, and how many more there are.

    >>> some_of(["b", "a"]), some_of(["c", "b", "a"], 2)
    ('a, b', 'a, b and 1 more')
    """
    ordered = sorted(names)
    more = f" and {len(ordered) - most:,} more" if len(ordered) > most else ""
    return ", ".join(printable(name, 60) for name in ordered[:most]) + more


def parse_json(text: str | bytes, where: str) -> Any:
    """JSON that somebody gives us: of limited size and depth, with finite numbers that fit into 64 bits.

    >>> parse_json('{"a": [1, 2.5]}', "the header")
    {'a': [1, 2.5]}
    >>> parse_json("[NaN]", "the header")
    Traceback (most recent call last):
        ...
    radnet.errors.InvalidValue: the header is damaged (NaN is no number)
    """
    if len(text) > LARGEST_TEXT:
        raise InvalidValue(f"{where} has {len(text):,} bytes of JSON; more than {LARGEST_TEXT:,} are not read")
    try:
        with enough_memory(where):
            value = json.loads(text, parse_constant=_no_constant)
        _check_plain(value, DEEPEST)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise InvalidValue(f"{where} is damaged ({error})") from error
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_plain(value: object, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("a number of more than 64 bits")
    for part in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _check_plain(part, depth - 1)


#: what JSON of ours says at its top; what the names stand for is checked where it is used
Header = dict[str, Any]


class Layout(NamedTuple):
    """What a file says of a tensor before it is read; a dtype that we do not know is None."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None


#: looks at the header and at what the file says of its tensors, and raises unless they belong together
Announced = Callable[[Header, Mapping[str, Layout]], None]
T = TypeVar("T")


class TensorFile(NamedTuple):
    """What a file of ours holds: its header and its tensors."""

    header: Header
    tensors: dict[str, Tensor]


def pack(tensors: Mapping[str, Tensor], key: str, header: Mapping[str, object]) -> bytes:
    """The bytes of a file: tensors, a JSON header under a key, and a checksum of both."""
    plain = _plain(tensors)
    return to_bytes(plain, metadata={key: seal(header, plain)})


def pack_plain(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file that holds tensors and nothing else."""
    return to_bytes(_plain(tensors))


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.detach().cpu().clone().contiguous() for name, x in tensors.items()}  # no two share memory


def seal(header: Mapping[str, object], tensors: Mapping[str, Tensor]) -> str:
    """A header as JSON that begins with the checksum of itself and of the tensors."""
    text = json.dumps({"sha256": _UNSEALED, **header}, allow_nan=False)
    return _sealed(text, checksum(text, tensors))


def sealed_with(text: str, tensors: Mapping[str, Tensor]) -> str:
    """A header with the checksum that it has to have beside these tensors."""
    return _sealed(text, checksum(_sealed(text, _UNSEALED), tensors))


def _sealed(text: str, seal: str) -> str:
    return text[: len(_SEAL)] + seal + text[len(_SEAL) + len(_UNSEALED) :]


def unpack(
    path: str | os.PathLike[str], key: str, newest: int, otherwise: str, announced: Announced | None = None
) -> TensorFile:
    """Header and tensors of a file of ours, formats 1 to ``newest``; ``otherwise``: what is said of any other file.

    ``announced`` is asked before a tensor is read.

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If it is damaged, of another kind or format, or its checksum is wrong.
    """
    with open_tensors(path) as file:
        metadata = file.metadata() or {}
        header = checked_header(path, metadata, key, newest, otherwise)
        if announced is not None:
            announced(header, layouts(file, path))
        tensors = read_tensors(file, path)
    text = header.pop(key)
    if header["format"] > 1 and text != sealed_with(text, tensors):
        raise InvalidValue(f"{path}: the checksum is wrong: the file was changed or damaged after it was written")
    header.pop("sha256", None)
    return TensorFile(header, tensors)


def checked_header(
    path: str | os.PathLike[str], metadata: Mapping[str, str], key: str, newest: int, otherwise: str
) -> Header:
    """The header under a key, of a format that is known; its text, which the seal is about, is in it under the key."""
    if key not in metadata:
        for what, reads in (KINDS[other] for other in KINDS if other in metadata):
            raise InvalidValue(f"{path}: not {KINDS[key][0]}, but {what}, which {reads} reads")
        raise InvalidValue(f"{path}: {otherwise}")
    header = parse_json(metadata[key], f"{path}: the header")
    if not isinstance(header, dict):
        raise InvalidValue(f"{path}: the header is damaged: it is a {type(header).__name__}")
    found = header.get("format")
    if not is_whole(found) or not 1 <= found <= newest:
        raise InvalidValue(f"{path}: file format {found!r}; this radnet reads formats 1 to {newest}")
    return {**header, key: metadata[key]}


def open_tensors(path: str | os.PathLike[str]) -> Any:
    """A safetensors file, opened for reading."""
    with open(regular_file(path), "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > LARGEST_TEXT:
        raise InvalidValue(f"{path}: not a safetensors file, or damaged (it announces a header of {size:,} bytes)")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidValue(f"{path}: not a safetensors file, or damaged ({error})") from error


def layouts(file: Any, path: str | os.PathLike[str]) -> dict[str, Layout]:
    """Shapes and dtypes of the tensors of an open file, none of which is read."""
    try:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: Layout(tuple(x.get_shape()), _DTYPES.get(x.get_dtype())) for name, x in parts.items()}
    except (SafetensorError, RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidValue(f"{path}: a tensor in the file cannot be read ({error})") from error


def read_tensors(file: Any, path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """All tensors of an open file, as copies: what safetensors gives lies in the file, and goes where that goes."""
    try:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidValue(f"{path}: a tensor in the file cannot be read ({error})") from error


def part_of(tensors: Mapping[str, T], name: str) -> dict[str, T]:
    """The tensors, or their layouts, whose names begin with a name and a dot, by the rest of their names.

    >>> sorted(part_of({"a.x": torch.zeros(1), "a.y.z": torch.zeros(1), "ab.x": torch.zeros(1)}, "a"))
    ['x', 'y.z']
    """
    return {key.removeprefix(f"{name}."): x for key, x in tensors.items() if key.startswith(f"{name}.")}


def checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a header and of names, dtypes, shapes and bytes of tensors."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        x = tensors[name].contiguous()
        digest.update(f"\0{name}\0{x.dtype}\0{tuple(x.shape)}\0".encode("utf-8", "surrogatepass"))
        if x.numel():
            flat = x.as_strided((x.numel(),), (1,))  # one entry alone may have any stride and be called contiguous
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_layout(found: Tensor | Layout, own: Tensor, what: str) -> None:
    """Whether a tensor can take the place of another, as far as its shape and its kind of numbers tell."""
    if tuple(found.shape) != tuple(own.shape):
        raise InvalidValue(f"{what} has shape {tuple(found.shape)}; the model needs {tuple(own.shape)}")
    if found.dtype != own.dtype and not (found.dtype in FLOATS and own.dtype in FLOATS):
        raise InvalidValue(f"{what} is {found.dtype}; the model needs {own.dtype}")


def check_fits(value: Tensor, own: Tensor, what: str) -> None:
    """Whether a tensor can take the place of another: the same shape and kind, and every number one of its dtype's.

    Numbers that are not finite are let through only where the other holds the same.
    """
    check_layout(value, own, what)
    if value.dtype not in FLOATS:
        return
    there = value.to(own.dtype)
    odd = ~there.isfinite()
    if bool(odd.any()) and not torch.equal(there[odd], own.detach().cpu()[odd]):
        beyond = value.isfinite() & odd
        problem = f"numbers beyond {own.dtype}" if bool(beyond.any()) else "NaN or infinite values"
        raise InvalidValue(f"{what} holds {problem}")
