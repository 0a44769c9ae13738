"""Weights, biases, dtypes and inputs that somebody gives us: do they fit, and if not, what does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidType, InvalidValue


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


def as_tensors(given: Any, what: str) -> list[Tensor]:
    """What was given, as a list of tensors."""
    try:
        return [torch.as_tensor(part) for part in given]
    except (TypeError, ValueError) as error:
        raise InvalidType(f"{what}: expected one tensor for each layer ({error})") from None


def _tensor_or_none(b: Any) -> Tensor | None:
    return None if b is None else as_tensors([b], "biases")[0]


def check_dtype(dtype: Any, what: str) -> None:
    """None, or a real floating-point dtype."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InvalidType(f"dtype={dtype!r}: {what} needs a real floating-point dtype")


def check_features(x: Any, who: str, n: int, dtype: torch.dtype | None = None) -> None:
    """Whether x is a floating-point tensor with n features in its last axis, of the given dtype if there is one."""
    if not isinstance(x, Tensor):
        raise InvalidType(f"{who} needs a tensor, got {type(x).__name__}; use torch.as_tensor")
    if not x.is_floating_point():
        raise InvalidType(f"{who} needs a floating-point input, got {x.dtype}; use x.to({dtype or torch.float64})")
    if x.ndim == 0 or x.shape[-1] != n:
        raise InvalidValue(f"{who}: input of shape {tuple(x.shape)}: the last dimension must be {n}, the input width")
    if dtype is not None and x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise InvalidType(f"{who}: input is {x.dtype}, the parameters are {dtype}; use x.to({dtype})")
