"""Whether a module may be taken for what its class says: the one place that decides it.

A layer's class promises a formula. The promise is void if something else runs when the layer is called (hooks, a
forward of its own, also one set on the instance), if a parameter is not an ordinary one (parametrized, pruned, a tensor
subclass), or if the class itself was patched after this file was imported.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules import module as torch_module

from ..activations import Identity, RadialActivation
from ..network import RadNet
from ..threads import in_this_thread
from .folded import FoldedBatchNorm

#: what runs when a module is called, or stands between a name and its value
_CALLED = (
    "forward", "__call__", "_call_impl", "_wrapped_call_impl", "_conv_forward", "__getattr__", "__getattribute__",
)  # fmt: skip

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE_POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
KNOWN: tuple[type[nn.Module], ...] = (
    nn.Linear, nn.Embedding, nn.Identity, FoldedBatchNorm, nn.Flatten, nn.RMSNorm, nn.LayerNorm,
    *CONVOLUTIONS, *POOLS, *ADAPTIVE_POOLS, *DROPOUTS, *BATCH_NORMS,
)  # fmt: skip


def _definitions(cls: type) -> dict[str, Any]:
    return {name: in_this_thread(inspect.getattr_static(cls, name, None)) for name in _CALLED}


_CLASSES: tuple[type[nn.Module], ...] = (*KNOWN, RadialActivation, RadNet)
_AS_DEFINED = {cls: _definitions(cls) for cls in _CLASSES}


#: what the known layers call
_FUNCTIONS = (
    "linear", "conv1d", "conv2d", "conv3d", "embedding", "layer_norm", "rms_norm", "batch_norm", "dropout",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "pad",
)  # fmt: skip
_AS_IMPORTED = {name: getattr(F, name) for name in _FUNCTIONS}


def class_of(m: nn.Module, classes: Sequence[type[nn.Module]] = KNOWN) -> type[nn.Module] | None:
    """The class among ``classes`` that m may be taken for; None if there is none.

    >>> class_of(nn.Linear(2, 3)), class_of(nn.ReLU())
    (<class 'torch.nn.modules.linear.Linear'>, None)
    """
    return next((cls for cls in classes if isinstance(m, cls) and why_not(m, cls) is None), None)


def stands_for(m: nn.Module, cls: type[nn.Module]) -> bool:
    """Whether m may be taken for what ``cls`` says.

    >>> layer = nn.Linear(2, 3)
    >>> stands_for(layer, nn.Linear)
    True
    >>> _ = layer.register_forward_hook(lambda m, x, y: 2 * y)
    >>> stands_for(layer, nn.Linear)
    False
    """
    return isinstance(m, cls) and why_not(m, cls) is None


def why_not(m: nn.Module, cls: type[nn.Module]) -> str | None:
    """What keeps an instance of ``cls`` from being taken for one; None if nothing does."""
    if has_hooks(m):
        return "has hooks"
    if any(getattr(F, name) is not function for name, function in _AS_IMPORTED.items()):
        return "calls a function of torch.nn.functional that was replaced"
    if hasattr(m, "parametrizations"):
        return "is parametrized"
    if _runs_something_else(m, cls):
        return "has a forward of its own"
    for name, p in m._parameters.items():
        if p is not None and type(p) is not nn.Parameter:
            return f"has a {name} that is a {type(p).__name__}"
        if _hidden(m, name):
            return f"has a {name} that is computed"
    if any(name not in m._parameters for name in ("weight", "bias") if name in _own_parameters(cls)):
        return "has a weight or bias that is computed"
    return None


def has_hooks(m: nn.Module) -> bool:
    """Whether something runs before or after its forward, for this module or for all modules."""
    everywhere = torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks
    return bool(m._forward_hooks or m._forward_pre_hooks or everywhere)


def _runs_something_else(m: nn.Module, cls: type[nn.Module]) -> bool:
    found = _definitions(type(m))
    if issubclass(cls, RadialActivation) and found["forward"] is Identity.forward:
        found["forward"] = RadialActivation.forward  # Identity's is the same function, and quicker
    expected = _AS_DEFINED.get(cls) or _AS_DEFINED[RadialActivation if issubclass(cls, RadialActivation) else RadNet]
    if any(found[name] is not expected[name] for name in _CALLED):
        return True
    own: Any = cls
    return not _methods(own).isdisjoint(vars(m))


@functools.cache
def _methods(cls: Any) -> frozenset[str]:
    """The names of everything an instance of the class can be asked to do."""
    return frozenset(name for name in dir(cls) if callable(inspect.getattr_static(cls, name, None)))


def _hidden(m: nn.Module, name: str) -> bool:
    """Whether a property of the class, or an attribute of the instance, stands before a parameter."""
    return name in vars(m) or isinstance(inspect.getattr_static(type(m), name, None), property)


def _own_parameters(cls: type[nn.Module]) -> tuple[str, ...]:
    """The parameters without which a module of this class cannot run."""
    if issubclass(cls, nn.Linear | nn.modules.conv._ConvNd):
        return ("weight", "bias")
    return ("weight",) if issubclass(cls, nn.Embedding) else ()
