"""Checks the inputs and the mode for `compress` and `verify`, and makes a `Call` of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ...errors import InvalidType, InvalidValue, RadNetError
from ...modes import Argument
from ...running import Call


@contextmanager
def undisturbed() -> Iterator[None]:
    """Settings that would get in the way do not hold meanwhile. (Random numbers: see `radnet.modes.Mode`.)"""
    elsewhere = torch.get_default_device().type != "cpu"
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # its tensors can neither be versioned nor written into
        if elsewhere:
            stack.enter_context(torch.device("cpu"))
        yield


def does_not_run(model: nn.Module, call: Call, error: Exception) -> RadNetError:
    """What is said of a model that raises."""
    if isinstance(error, NotImplementedError) and "HigherOrderOperator" in str(error):
        return InvalidValue(
            f"{type(model).__name__}: its forward hands functions to PyTorch (torch.cond and the like), where nobody "
            "sees what they do; write if and for, or torch.where. Nothing was changed"
        )
    dtypes = ", ".join(dict.fromkeys(str(x.dtype) for x in call.tensors))
    wrong_kind = isinstance(error, TypeError) or not any(x.is_floating_point() for x in call.tensors)
    return (InvalidType if wrong_kind else InvalidValue)(
        f"{type(model).__name__} does not run on the given inputs, which are {dtypes} ({type(error).__name__}: "
        f"{error}); give inputs of the shape and dtype it takes, as a tensor or as a tuple with one entry for each "
        "argument"
    )


def as_call(given: Argument) -> Call:
    """The arguments of a model from what somebody gives: a tensor, or one entry for each argument."""
    if isinstance(given, Call):
        return given
    if isinstance(given, Tensor):
        return Call((given.detach(),))
    if isinstance(given, list | tuple):
        return Call(tuple(given)).mapped(Tensor.detach)
    raise InvalidType(
        f"the inputs are a {type(given).__name__}; give a tensor, or a tuple with one entry for each argument of "
        "forward (torch.as_tensor makes a tensor of an array)"
    )


def check_inputs(call: Call) -> None:
    """Refuse inputs on which nothing can be measured."""
    if not call.tensors:
        raise InvalidValue("there is no tensor among the inputs; give a tensor of inputs with at least one row")
    for x in call.tensors:
        if x.is_nested:
            raise InvalidValue("an input is a nested tensor; give ordinary tensors")
        if x.device.type == "meta" or x.layout != torch.strided or x.is_quantized:
            raise InvalidValue("an input is sparse, quantised or on the meta device; give ordinary tensors")
        if x.is_floating_point() and x.element_size() == 1:
            raise InvalidType(f"an input is {x.dtype}, in which nothing can be computed; give float16 or longer")
    numbers = [x for x in call.tensors if x.is_floating_point() or x.is_complex()]
    nothing_finite = any(x.numel() for x in numbers) and not any(bool(x.isfinite().any()) for x in numbers)
    if nothing_finite or any(bool(x.isnan().any()) for x in numbers):  # infinities beside finite ones are a mask
        raise InvalidValue("the inputs hold NaN or infinite values; a certificate needs finite ones")
    if all(x.ndim == 0 for x in call.tensors) or any(x.numel() == 0 for x in call.tensors[:1]):
        raise InvalidValue("a tensor of inputs with at least one row is needed")


def check_mode(model: nn.Module, name: str) -> None:
    """A model that draws random numbers or updates statistics has no function to compare."""
    for part, module in model.named_modules():
        if module.training and isinstance(module, nn.modules.dropout._DropoutNd | nn.modules.batchnorm._BatchNorm):
            raise InvalidValue(
                f"the {name + ' ' if name else ''}model is in training mode and {part or 'it'} is a "
                f"{type(module).__name__}; call eval()"
            )
    if any(is_lazy(p) for p in model.parameters()):
        raise InvalidValue(
            f"the {name + ' ' if name else ''}model has parameters that are not initialised yet; run it once first"
        )
