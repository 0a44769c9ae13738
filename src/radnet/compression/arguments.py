"""Checks the model and the options of `compress`; draws `CERTIFICATE_ROWS` normal inputs where none are given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..activations import RadialActivation
from ..errors import InvalidType, InvalidValue
from ..modes import Argument
from ..network import RadNet
from ..running import Call
from .judging.given import as_call, check_inputs, check_mode
from .operations import known_module
from .trust import stands_for

#: rows of the certificate, where no inputs are given
CERTIFICATE_ROWS = 256


def check_options(tol: object, data: object, generator: object) -> None:
    """Refuse options of the wrong kind."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InvalidType(f"generator is a {type(generator).__name__}; expected a torch.Generator")
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 <= tol < 1):
        raise InvalidValue(f"tol={tol!r}: expected a number from 0 to 1, for example 1e-6")
    if data is not None and not isinstance(data, Tensor):
        raise InvalidType(f"data is a {type(data).__name__}; expected a tensor with a row for each input")
    if data is not None and data.is_floating_point() and data.device.type != "meta" and bool(data.isinf().any()):
        raise InvalidValue("data holds infinite values, which have no affine hull; give finite ones")


def is_chain(model: nn.Module) -> bool:
    """Whether a model is the paper's chain and nothing else, so that Algorithm 1 is all there is to do.

    In float16 it is not: there a coordinate may overflow that no entry did, which the general way looks after.
    """
    if not stands_for(model, RadNet):
        return False
    layers, rescalings = list(model.layers), list(model.rescalings)  # type: ignore[arg-type]
    linear = all(stands_for(layer, nn.Linear) and layer.weight.dtype != torch.float16 for layer in layers)
    radial = all(stands_for(rho, RadialActivation) and rho.blocks is None and rho.dim == -1 for rho in rescalings)
    return linear and radial and len(layers) == len(rescalings) and len({layer.bias is None for layer in layers}) == 1


def inputs_for(
    model: nn.Module,
    given: Argument,
    generator: torch.Generator,
    *,
    who: str = "compress",
    argument: str = "example_inputs",
) -> Call:
    """The call that is looked at: the given inputs, or normal rows for a model that begins with a linear layer."""
    if given is not None:
        if isinstance(model, RadNet) and isinstance(given, Tensor) and given.ndim == 1:
            given = given.unsqueeze(0)
        call = as_call(given)
        check_inputs(call)
        return call
    first = next((m for m in model.modules() if not list(m.children()) and list(m.parameters(recurse=False))), None)
    if not isinstance(first, nn.Linear):
        kind = "it has no layers" if first is None else f"its first layer is a {type(first).__name__}"
        raise InvalidValue(
            f"{type(model).__name__}: {who} has to run it once, and {kind}, which does not say how large inputs "
            f"are; give {argument}"
        )
    x = torch.randn(CERTIFICATE_ROWS, first.in_features, generator=generator, device=generator.device)
    return Call((x.to(first.weight),))


def check_model(model: object) -> None:
    """Say what is wrong with which layer, before anything is computed."""
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidType(f"{type(model).__name__} is TorchScript; compress the module it was made from")
    if not isinstance(model, nn.Module) or hasattr(model, "_orig_mod"):
        hint = "; give it model._orig_mod" if hasattr(model, "_orig_mod") else ""
        raise InvalidType(f"compress needs an nn.Module, got {type(model).__name__}{hint}")
    if isinstance(model, RadNet):
        _check_layers(model)
    check_mode(model, "")
    _check_tensors(model)


def _check_layers(model: RadNet) -> None:
    """A RadNet that is none any more says which of its layers is not one of its layers."""
    if len(model.layers) != len(model.rescalings):
        raise InvalidValue(f"{len(model.layers)} layers and {len(model.rescalings)} activations: a RadNet has as many")
    for i, layer in enumerate(model.layers, start=1):
        if not isinstance(layer, nn.Linear):
            raise InvalidType(f"layer {i}: is a {type(layer).__name__}; compress needs nn.Linear layers in a RadNet")
        if (layer.bias is None) == model.has_bias:
            raise InvalidValue(f"layer {i}: biases must be there in all layers or in none; use zeros")
    model.check_initialised()


def _check_tensors(model: nn.Module) -> None:
    """Refuse what has no ordinary numbers.

    Buffers of the user's own are whatever they are: a mask of -inf, an empty placeholder, complex factors.
    """
    tensors = (*model.named_parameters(), *model.named_buffers())
    devices = {p.device: name for name, p in tensors}
    if len(devices) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise InvalidValue(f"the model is on several devices ({where}); move it to one, then compress")
    for name, p in tensors:
        if p.device.type == "meta":
            raise InvalidValue(f"{name} is on the meta device and has no values; load weights, then compress")
        if p.is_quantized:
            raise InvalidValue(f"{name} is sparse or quantised; compress needs ordinary tensors")
    for name, p in (*model.named_parameters(), *_statistics(model)):
        where = _layer_of(model, name)
        if p.is_complex():
            raise InvalidValue(f"{name} is complex; radial activations rescale by norms of real entries")
        if p.layout != torch.strided:
            raise InvalidValue(f"{name} is sparse or quantised; compress needs ordinary tensors")
        if p.numel() == 0:
            raise InvalidValue(f"{name} has shape {tuple(p.shape)}: a layer of width 0 has nothing to compress")
        if p.is_floating_point() and p.element_size() == 1:
            raise InvalidValue(
                f"{name} is {p.dtype}, in which nothing can be computed; convert it to float16 or longer"
            )
        if p.is_floating_point() and not bool(p.detach().isfinite().all()):
            raise InvalidValue(f"{where} holds NaN or infinite values; nothing was compressed")


def _statistics(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers of layers that are known, with which bases are computed."""
    for path, m in model.named_modules():
        if known_module(m):
            yield from m.named_buffers(path, recurse=False)


def _layer_of(model: nn.Module, name: str) -> str:
    """A parameter's name; in a RadNet the layer as the paper counts them."""
    parts = name.split(".")
    if isinstance(model, RadNet) and len(parts) == 3 and parts[1].isdigit():
        return f"layer {int(parts[1]) + 1}: {parts[2]}"
    return name
