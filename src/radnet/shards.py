"""Tensors in one safetensors file or in several with an index, looked at one by one, without reading all of them.

An index, ``name.safetensors.index.json``, says which tensor is in which file beside it, the way the Hugging Face tools
write large models; ours has the header of the network among its metadata, sealed like that of a single file. A tensor
that is looked at lies in the mapped file: nothing of it is in memory but the pages that were touched last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from torch import Tensor

from .errors import InvalidValue
from .reading import (
    KINDS,
    LARGEST_TEXT,
    Header,
    Layout,
    checked_header,
    checksum,
    layouts,
    open_tensors,
    pack_plain,
    parse_json,
    regular_file,
    seal,
    sealed_with,
    some_of,
)
from .writing import write_atomically

INDEX = ".index.json"
#: bytes of a file, where there are several
SHARD_BYTES = 2**31


class Stored(NamedTuple):
    """An open file, or several: the header, what is said of each tensor, and the tensors where they lie."""

    header: Header
    layouts: Mapping[str, Layout]
    tensors: Mapping[str, Tensor]


class _Mapped(Mapping[str, Tensor]):
    """Tensors by name, each from the file it is in, when it is asked for."""

    def __init__(self, path: str | os.PathLike[str], files: Mapping[str, Any]) -> None:
        self.path, self.files = path, files

    def __getitem__(self, name: str) -> Tensor:
        try:
            tensor: Tensor = self.files[name].get_tensor(name)
        except (SafetensorError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise InvalidValue(f"{self.path}: a tensor in the file cannot be read ({error})") from error
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a name is that of an index."""
    return str(path).endswith(INDEX)


def metadata_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """What a file, or an index, says of itself; nothing has been checked of it."""
    if is_index(path):
        return _index(path)[0]
    with open_tensors(path) as file:
        return file.metadata() or {}


def key_of(path: str | os.PathLike[str]) -> str | None:
    """Under which key of `reading.KINDS` a file has its header; None if it is not one of ours."""
    metadata = metadata_of(path)
    return next((key for key in KINDS if key in metadata), None)


@contextmanager
def opened(path: str | os.PathLike[str], key: str, newest: int, otherwise: str) -> Iterator[Stored]:
    """A file of ours, or the files that an index of ours names, as long as this lasts; no tensor is read.

    Raises
    ------
    MissingFile
        If there is no such file, or one that the index names is not there.
    InvalidValue
        If a file is damaged, of another kind or format, or does not hold what the index says.
    """
    with ExitStack() as stack:
        if is_index(path):
            metadata, places = _index(path)
            folder = Path(path).parent
            parts = {name: stack.enter_context(open_tensors(folder / name)) for name in sorted(set(places.values()))}
            found: dict[str, Layout] = {}
            for name, part in parts.items():
                here = {tensor for tensor, place in places.items() if place == name}
                held = layouts(part, folder / name)
                if held.keys() != here:
                    raise InvalidValue(f"{folder / name}: the index says otherwise of {some_of(held.keys() ^ here)}")
                found |= held
            files = {tensor: parts[place] for tensor, place in places.items()}
        else:
            file = stack.enter_context(open_tensors(path))
            metadata, found = file.metadata() or {}, layouts(file, path)
            files = dict.fromkeys(found, file)
        header = checked_header(path, metadata, key, newest, otherwise)
        yield Stored(header, found, _Mapped(path, files))


def check_seal(path: str | os.PathLike[str], stored: Stored, key: str) -> None:
    """Compare the checksum with the header and all tensors, one after the other; files of format 1 have none."""
    text = stored.header[key]
    if stored.header["format"] > 1 and text != sealed_with(text, stored.tensors):
        raise InvalidValue(f"{path}: the checksum is wrong: the file was changed or damaged after it was written")


def _index(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The metadata of an index, and the name of the file in which each tensor is: beside the index, nowhere else."""
    if regular_file(path).stat().st_size > LARGEST_TEXT:
        raise InvalidValue(f"{path}: an index of more than {LARGEST_TEXT:,} bytes is not read")
    said = parse_json(Path(path).read_bytes(), f"{path}: the index")
    metadata, places = (said.get(k) if isinstance(said, dict) else None for k in ("metadata", "weight_map"))
    if not isinstance(metadata, dict) or not isinstance(places, dict):
        raise InvalidValue(f"{path}: the index is damaged: it has no metadata, or no weight_map")
    for name, place in places.items():
        if not isinstance(place, str) or Path(place).name != place or not place.endswith(".safetensors"):
            raise InvalidValue(f"{path}: the index is damaged: {some_of([name])} is in no file beside it")
    return {k: v for k, v in metadata.items() if isinstance(v, str)}, places


def write_sharded(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], key: str, header: Mapping[str, object]
) -> None:
    """Write tensors into several files and an index, which comes last and names files that no other index names.

    So at every moment the index that is there and its files belong together. The files of the index that was there
    before are removed.
    """
    folder, stem = Path(path).parent, Path(path).name.removesuffix(INDEX).removesuffix(".safetensors")
    text = seal(header, tensors)
    mark = checksum(text, {})[:12]
    groups: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, x in tensors.items():
        own = x.numel() * x.element_size()
        if groups[-1] and size + own > SHARD_BYTES:
            groups.append({})
            size = 0
        groups[-1][name] = x
        size += own
    before = _named_before(path)
    shards = [f"{stem}-{mark}-{k:05}-of-{len(groups):05}.safetensors" for k in range(1, len(groups) + 1)]
    places = {name: shard for shard, group in zip(shards, groups, strict=True) for name in group}
    total = sum(x.numel() * x.element_size() for x in tensors.values())
    index = {"metadata": {"total_size": total, key: text}, "weight_map": places}
    try:
        for shard, group in zip(shards, groups, strict=True):
            write_atomically(folder / shard, pack_plain(group))
        write_atomically(path, (json.dumps(index, indent=1) + "\n").encode())
    except BaseException:
        if not _may_name(path, mark):
            _remove(folder, set(shards) - before)
        raise
    _remove(folder, before - set(shards))


def _remove(folder: Path, names: set[str]) -> None:
    for name in names:
        with suppress(OSError):
            (folder / name).unlink()


def _may_name(path: str | os.PathLike[str], mark: str) -> bool:
    """Whether the index that is there names files with this mark, as far as can be told."""
    try:
        return mark in Path(path).read_text()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _named_before(path: str | os.PathLike[str]) -> set[str]:
    """The files of the index that is there, as far as it is one of ours."""
    try:
        metadata, places = _index(path)
    except (InvalidValue, OSError):
        return set()
    ours = Path(path).name.removesuffix(INDEX).removesuffix(".safetensors") + "-"
    return {place for place in places.values() if place.startswith(ours)} if "radnet" in metadata else set()
