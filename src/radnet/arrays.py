"""Arrays in files that may be damaged or hostile: NumPy's .npy and .npz, text, and MNIST's IDX, plain or packed.

The size that a header announces is looked at before anything is read or inflated, so a small file never becomes large.
Nothing is unpickled. Every refusal is an `InvalidValue` that names the file.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from .errors import InvalidValue
from .reading import enough_memory, regular_file
from .threads import quietly

#: what a file may hold: numbers, whole or not
Numbers = npt.NDArray[np.number | np.bool_]

#: bytes of an array; MNIST in float64 has 376 million
LARGEST = 2**29
#: beyond so many bytes, nothing may grow more than so many times when it is inflated; MNIST grows five times
_SMALL, _GROWTH = 2**24, 100

_DAMAGED = (
    ValueError, TypeError, KeyError, OverflowError, SyntaxError, EOFError, OSError, RuntimeError,
    NotImplementedError, RecursionError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_npy(path: str | os.PathLike[str]) -> Numbers:
    """The array in an .npy file."""
    with open(regular_file(path), "rb") as file:
        try:
            with enough_memory(path):
                return _array(file, os.fstat(file.fileno()).st_size)
        except _DAMAGED as error:
            raise InvalidValue(f"{path}: not an .npy file, or damaged ({error})") from error


def read_npz(path: str | os.PathLike[str]) -> dict[str, Numbers]:
    """The arrays in an .npz file, by name."""
    regular_file(path)
    try:
        with enough_memory(path), zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            _check_growth(sum(info.file_size for info in members), os.path.getsize(path))
            found = {}
            for info in members:
                with archive.open(info) as file:
                    found[info.filename.removesuffix(".npy")] = _array(file, info.file_size)
            return found
    except _DAMAGED as error:
        raise InvalidValue(f"{path}: not an .npz file, or damaged ({error})") from error


def read_text(path: str | os.PathLike[str]) -> Numbers:
    """A matrix of numbers from a text file, separated by commas."""
    if regular_file(path).stat().st_size > LARGEST:
        raise InvalidValue(f"{path}: more than {LARGEST:,} bytes")
    try:
        with enough_memory(path), quietly():  # an empty file has no numbers, which is for the caller to say
            return np.loadtxt(path, delimiter=",", ndmin=2)
    except _DAMAGED as error:
        raise InvalidValue(f"{path}: not made of numbers ({error})") from error


def read_rows(path: str | os.PathLike[str]) -> Numbers:
    """Points, one a row, from an .npy file or from text."""
    return read_npy(path) if Path(path).suffix == ".npy" else read_text(path)


def read_idx(path: str | os.PathLike[str], magic: int) -> Numbers:
    """The bytes in a file of MNIST's own format: a magic number, the sizes, the bytes; packed if its name says .gz."""
    axes = magic & 0xFF
    try:
        with enough_memory(path), _opened(regular_file(path)) as file:
            header = struct.unpack(f">{1 + axes}I", file.read(4 * (1 + axes)))
            if header[0] != magic:
                raise ValueError(f"its magic number is {header[0]:#x}")
            count = math.prod(header[1:])
            if count == 0:
                raise ValueError(f"its header announces {header[1:]}, which is nothing")
            _check_growth(count, os.path.getsize(path))
            body = file.read(count + 1)
    except _DAMAGED as error:
        raise InvalidValue(f"{path}: not an IDX file, or damaged ({error})") from error
    if len(body) != count:
        raise InvalidValue(f"{path}: {'more' if len(body) > count else 'fewer'} bytes than its header announces")
    return np.frombuffer(body, dtype=np.uint8).reshape(header[1:])


def _check_growth(size: int, held: int) -> None:
    if size > LARGEST or (size > _SMALL and size > _GROWTH * held):
        raise ValueError(f"it announces {size:,} bytes and has {held:,}")


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _array(file: IO[bytes], size: int) -> Numbers:
    """An array in NumPy's format from a stream of known length."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format")
    shape, fortran, dtype = readers[version](file)
    count = math.prod(shape)
    if dtype.hasobject or dtype.kind not in "biuf":
        raise ValueError(f"it holds {dtype}; expected numbers")
    if any(n < 0 for n in shape) or count * dtype.itemsize > min(size, LARGEST):
        raise ValueError(f"its header announces an array of shape {shape}, which is more than it holds")
    body = file.read(count * dtype.itemsize)
    if len(body) != count * dtype.itemsize:
        raise ValueError("it is cut off")
    flat = np.frombuffer(body, dtype=dtype)
    if not dtype.isnative:
        flat = flat.astype(dtype.newbyteorder("="))
    if dtype.kind == "f" and dtype.itemsize > 8:  # long doubles, which torch does not have
        flat = flat.astype(np.float64)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
