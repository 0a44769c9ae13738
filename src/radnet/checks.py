"""What somebody gives us: is it a number, a count, an axis, a tensor that fits, and if not, what is it instead.

Each check raises `InvalidType` where the kind of thing is wrong and `InvalidValue` where only its value is; the message
says which argument it was, what came, and what would fit.
"""

from __future__ import annotations

import math
import numbers
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from .errors import InvalidType, InvalidValue

# --- numbers


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an int; True and False are not meant as numbers.

    >>> is_whole(3), is_whole(True), is_whole(3.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a real number, NumPy's included; True and False are not meant as numbers.

    >>> is_number(3), is_number(2.5), is_number(True), is_number("3")
    (True, True, False, False)
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_number(what: str, value: object) -> float:
    """A finite number as a float."""
    if not is_number(value):
        raise InvalidType(f"{what}={value!r}: expected a number, got {type(value).__name__}")
    if not math.isfinite(value):
        raise InvalidValue(f"{what}={value!r}: expected a finite number")
    return float(value)


def check_count(what: str, value: object) -> int:
    """How often something is done: epochs, trials, threads.

    >>> check_count("epochs", 0)
    Traceback (most recent call last):
    radnet.errors.InvalidValue: epochs=0: at least 1 is needed
    """
    if not is_whole(value) or value < 1:
        raise InvalidValue(f"{what}={value!r}: at least 1 is needed")
    return value


def check_positive(what: str, value: object) -> int:
    """How many of something there are or may be: balls, points."""
    if not is_whole(value) or value < 1:
        raise InvalidValue(f"{what}={value!r}: expected a positive whole number")
    return value


def check_size(what: str, value: object) -> int:
    """A size of a layer: another kind of thing is a wrong type, a number below 1 a wrong value."""
    if not is_whole(value):
        raise InvalidType(f"{what}={value!r}: expected a whole number")
    if value < 1:
        raise InvalidValue(f"{what}={value}: expected at least 1")
    return value


# --- things


def check_kind(value: object, kind: type, needs: str) -> None:
    """Whether it is of a class; ``needs`` is the first half of what is said if not.

    >>> check_kind(3, str, "greet needs a name")
    Traceback (most recent call last):
    radnet.errors.InvalidType: greet needs a name, got int
    """
    if not isinstance(value, kind):
        raise InvalidType(f"{needs}, got {type(value).__name__}")


# --- tensors that belong together


def check_path(path: object) -> None:
    """Whether it is the name of a file.

    >>> check_path("net.safetensors")
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f"a path was expected, got a {type(path).__name__}; give the name of a file")
    text = os.fspath(path)
    if not text or (isinstance(text, str) and "\0" in text):
        raise InvalidValue(f"{text!r} is no name of a file; give one")


def check_parameters(
    weights: Sequence[Tensor], biases: Sequence[Tensor | None] | None
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Copies of the parameters as tensors, once they are known to fit together; else the layer that does not."""
    W = as_tensors(weights, "weights")
    if not W:
        raise InvalidValue("no weights: a network needs at least one layer")
    b: list[Tensor | None] = [None] * len(W) if biases is None else [_tensor_or_none(b_i) for b_i in biases]
    if len(b) != len(W):
        raise InvalidValue(f"got {len(W)} weights and {len(b)} biases; give one bias for each layer, or None for none")
    if len({b_i is None for b_i in b}) > 1:
        missing = next(i for i, b_i in enumerate(b, start=1) if b_i is None)
        raise InvalidValue(f"layer {missing}: has no bias, but other layers have; give zeros, or None for all layers")
    for i, (W_i, b_i) in enumerate(zip(W, b, strict=True), start=1):
        for what, tensor in (("weight", W_i), ("bias", b_i)):
            if tensor is not None and not tensor.is_floating_point():
                raise InvalidType(f"layer {i}: {what} is {tensor.dtype}; a radial network needs real floating point")
            if tensor is not None and (tensor.dtype, tensor.device) != (W[0].dtype, W[0].device):
                raise InvalidType(
                    f"layer {i}: {what} is {tensor.dtype} on {tensor.device}, "
                    f"but the weight of layer 1 is {W[0].dtype} on {W[0].device}"
                )
        if W_i.ndim != 2 or 0 in W_i.shape:
            raise InvalidValue(f"layer {i}: weight has shape {tuple(W_i.shape)}; needs a matrix (n_out, n_in)")
        if i > 1 and W_i.shape[1] != W[i - 2].shape[0]:
            raise InvalidValue(
                f"layer {i}: weight has {W_i.shape[1]} columns, but layer {i - 1} has {W[i - 2].shape[0]} outputs; "
                "is the bias column included?"
            )
        if b_i is not None and b_i.shape != (W_i.shape[0],):
            raise InvalidValue(f"layer {i}: bias has shape {tuple(b_i.shape)}; needs ({W_i.shape[0]},)")
    return [W_i.detach().clone() for W_i in W], [None if b_i is None else b_i.detach().clone() for b_i in b]


def as_tensors(given: Iterable[object], what: str) -> list[Tensor]:
    """What was given, as a list of tensors."""
    try:
        return [torch.as_tensor(part) for part in given]
    except (TypeError, ValueError) as error:
        raise InvalidType(f"{what}: expected one tensor for each layer ({error})") from None


def _tensor_or_none(b: object) -> Tensor | None:
    return None if b is None else as_tensors([b], "biases")[0]


def check_dtype(dtype: object, what: str) -> None:
    """None, or a real floating-point dtype."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InvalidType(f"dtype={dtype!r}: {what} needs a real floating-point dtype")


def check_features(x: object, who: str, n: int, dtype: torch.dtype | None = None) -> None:
    """Whether x is a floating-point tensor with n features in its last axis, of the given dtype if there is one."""
    if not isinstance(x, Tensor):
        raise InvalidType(f"{who} needs a tensor, got {type(x).__name__}; use torch.as_tensor")
    if not x.is_floating_point():
        raise InvalidType(f"{who} needs a floating-point input, got {x.dtype}; use x.to({dtype or torch.float64})")
    if x.ndim == 0 or as_number(x.shape[-1]) != as_number(n):
        raise InvalidValue(f"{who}: input of shape {tuple(x.shape)}: the last dimension must be {n}, the input width")
    if dtype is not None and x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise InvalidType(f"{who}: input is {x.dtype}, the parameters are {dtype}; use x.to({dtype})")


# --- what torch.jit.trace makes of sizes


def is_traced() -> bool:
    """Whether torch.jit.trace looks on; sizes are tensors then, and whoever compares them is warned."""
    return torch._C._get_tracing_state() is not None


def as_number(size: int) -> int:
    """A size as the number it is.

    >>> as_number(torch.ones(3).shape[0])
    3
    """
    if not is_traced():
        return size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return int(size)


# --- how a vector lies in a tensor


def check_blocks(blocks: object) -> int | tuple[int, ...] | None:
    """What ``blocks=`` may be: None, how many, or their sizes."""
    if blocks is None:
        return None
    sizes = (blocks,) if isinstance(blocks, int) else tuple(blocks) if isinstance(blocks, list | tuple) else None
    if sizes is None or not all(is_whole(k) for k in sizes):
        raise InvalidType(f"blocks={blocks!r}: expected an int (how many) or a sequence of ints (their sizes)")
    if not sizes or min(sizes) < 1:
        raise InvalidValue(f"blocks={blocks!r}: every block needs at least one entry")
    return blocks if isinstance(blocks, int) else sizes


def check_dim(dim: object) -> int:
    """What ``dim=`` may be: an int."""
    if not is_whole(dim):
        raise InvalidType(f"dim={dim!r}: expected an int, the axis along which a vector lies")
    return dim


def check_shift(shift: object, blocks: int | Sequence[int] | None = None, name: str = "shift") -> Tensor | float | None:
    """What ``shift=`` may be: None, a finite number, or a tensor with one number in all or one for each block.

    >>> check_shift(torch.zeros(3), blocks=(2, 2, 5))
    tensor([0., 0., 0.])
    """
    if not isinstance(shift, Tensor):
        return None if shift is None else check_number(name, shift)
    count = as_number(shift.numel())
    if count == 1:
        return shift.reshape(()) if shift.ndim else shift
    blocks_there = 1 if blocks is None else blocks if isinstance(blocks, int) else len(blocks)
    if shift.ndim != 1 or count != blocks_there:
        more = "" if blocks is None else f", or {blocks_there}, one for each block"
        raise InvalidValue(f"{name} has shape {tuple(shift.shape)}; expected one number{more}")
    return shift


def check_input(v: Tensor, dim: int) -> int:
    """The axis as a non-negative number, once v is known to be something that can be rescaled."""
    if not isinstance(v, Tensor):
        raise InvalidType(f"radial rescaling needs a tensor, got {type(v).__name__}; use torch.as_tensor")
    if not v.is_floating_point():
        raise InvalidType(
            f"radial rescaling needs a real floating-point tensor, got {v.dtype}; convert it, for example x.float()"
        )
    if not -v.ndim <= check_dim(dim) < v.ndim:
        raise InvalidValue(f"dim={dim}: the input of shape {tuple(v.shape)} has no such axis")
    return dim % v.ndim
