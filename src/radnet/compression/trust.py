"""Whether a module may be taken for what its class says: the one place that decides it.

A layer's class promises a formula; `operations` says which classes are known. The promise is void if something else
runs when the layer is called (hooks, a forward of its own, also one set on the instance), if a parameter is not an
ordinary one (parametrized, pruned, a tensor subclass), or if the class, or a function of torch's that it calls, was
patched after it was trusted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules import module as torch_module

from ..activations import Identity, RadialActivation
from ..network import RadNet
from ..threads import in_this_thread
from .reasons import Cause, Reason

#: what runs when a module is called, or stands between a name and its value
_CALLED = (
    "forward", "__call__", "_call_impl", "_wrapped_call_impl", "_conv_forward", "__getattr__", "__getattribute__",
)  # fmt: skip

#: by class: what runs when a layer of it is called, as it was when the class was first trusted
_AS_DEFINED: dict[type[nn.Module], dict[str, object]] = {}
#: what trusted layers call, as it was then
_AS_IMPORTED: dict[str, object] = {}


def _definitions(cls: type) -> dict[str, object]:
    return {name: in_this_thread(inspect.getattr_static(cls, name, None)) for name in _CALLED}


def trust(cls: type[nn.Module], calls: Sequence[str] = ()) -> None:
    """Let a class stand for what it is now; ``calls`` are the functions of torch.nn.functional that it calls."""
    _AS_DEFINED.setdefault(cls, _definitions(cls))
    for name in calls:
        _AS_IMPORTED.setdefault(name, getattr(F, name))


def distrust(cls: type[nn.Module]) -> None:
    """Take that back."""
    _AS_DEFINED.pop(cls, None)


def is_trusted(cls: type[nn.Module]) -> bool:
    """Whether a class stands for what it was."""
    return cls in _AS_DEFINED


for _cls in (RadialActivation, RadNet):
    trust(_cls)


def class_of(m: nn.Module, classes: Sequence[type[nn.Module]]) -> type[nn.Module] | None:
    """The class among ``classes`` that m may be taken for; None if there is none.

    >>> class_of(nn.Linear(2, 3), (nn.Linear,)), class_of(nn.ReLU(), (nn.Linear,))
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


def why_not(m: nn.Module, cls: type[nn.Module]) -> Cause | None:
    """What keeps an instance of ``cls`` from being taken for one; None if nothing does."""
    if has_hooks(m):
        return Cause(Reason.HOOKS)
    if any(getattr(F, name) is not function for name, function in _AS_IMPORTED.items()):
        return Cause(Reason.REPLACED)
    if hasattr(m, "parametrizations"):
        return Cause(Reason.PARAMETRIZED)
    if _runs_something_else(m, cls):
        return Cause(Reason.OWN_FORWARD)
    for name, p in m._parameters.items():
        if p is not None and type(p) is not nn.Parameter:
            return Cause(Reason.ODD_PARAMETER, f"{name} that is a {type(p).__name__}")
        if _hidden(m, name):
            return Cause(Reason.ODD_PARAMETER, f"{name} that is computed")
    if any(name not in m._parameters for name in ("weight", "bias") if name in _own_parameters(cls)):
        return Cause(Reason.ODD_PARAMETER, "weight or bias that is computed")
    return None


def runs_as(m: nn.Module, cls: type[nn.Module], *others: str) -> bool:
    """Whether what runs when m is called is what ``cls`` has, ``others`` of its methods too; for classes with parts.

    >>> runs_as(nn.Sequential(nn.ReLU()), nn.Sequential, "__iter__")
    True
    """
    names = (*_CALLED, *others)
    own, expected = ([inspect.getattr_static(c, name, None) for name in names] for c in (type(m), cls))
    same = all(x is y for x, y in zip(own, expected, strict=True))
    return isinstance(m, cls) and same and not has_hooks(m) and _methods(cls).isdisjoint(vars(m))  # type: ignore[arg-type]


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
    return not _methods(cls).isdisjoint(vars(m))  # type: ignore[arg-type]


@functools.cache
def _methods(cls: type) -> frozenset[str]:
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
