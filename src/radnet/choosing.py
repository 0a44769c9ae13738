"""An activation for a layer, from what somebody gives: a name, or a module, of which every layer has a copy."""

from __future__ import annotations

import copy

import torch

from .activations import RadialActivation, Shift, named_activation
from .errors import InvalidType, InvalidValue

ActivationLike = str | RadialActivation


def as_activation(
    given: object, where: str, shift: Shift, device: torch.device | str | None, dtype: torch.dtype | None
) -> RadialActivation:
    """An activation of its own for one layer: made from a name, or copied from a module."""
    if isinstance(given, str):
        return named_activation(given, shift=shift, device=device, dtype=dtype)
    if not isinstance(given, RadialActivation):
        hint = "wrap a profile in radnet.Radial(h)" if callable(given) else "give a name or a radnet activation"
        if isinstance(given, type) and issubclass(given, RadialActivation):
            raise InvalidType(f"{where}: activation is the class {given.__name__}; did you mean {given.__name__}()?")
        raise InvalidType(f"{where}: activation is a {type(given).__name__}, which is not radial; {hint}")
    if shift is not None:
        raise InvalidValue(f"{where}: shift={shift!r} goes with activations given by name; give it to the module")
    own = "blocks or an axis" if given.blocks is not None or given.dim != -1 else "a scale"
    if own != "a scale" or given.scale is not None:
        raise InvalidValue(
            f"{where}: {given} has {own} of its own; a RadNet rescales whole feature vectors by their norms. "
            "Use it in nn.Sequential or in a module of your own"
        )
    return copy.deepcopy(given).to(device=device, dtype=dtype)
