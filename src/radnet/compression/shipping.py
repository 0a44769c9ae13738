"""A changed copy of a model in float64, back in the dtypes of the original."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..running import with_same_parameters

ModelT = TypeVar("ModelT", bound=nn.Module)


def as_shipped(wide: ModelT, model: nn.Module) -> ModelT:
    """A copy of a changed model whose numbers have the dtypes of the original's of the same name."""
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    dtypes = {name: value.dtype for name, value in tensors}
    out: ModelT = with_same_parameters(wide)
    originals = dict(model.named_modules(remove_duplicate=False))
    made: dict[int, Tensor] = {}  # what is shared stays shared
    for path, m in out.named_modules():
        if isinstance(m, torch.jit.ScriptModule):  # shows copies of itself
            for name, value in (*m.named_parameters(path, recurse=False), *m.named_buffers(path, recurse=False)):
                value.data = value.detach().to(dtypes.get(name, value.dtype))
            continue
        for name, value in vars(originals.get(path, m)).items():  # computed from parameters at every call, say
            if isinstance(value, Tensor) and isinstance(vars(m).get(name), Tensor):
                vars(m)[name] = vars(m)[name].to(value.dtype)
        prefix = f"{path}." if path else ""
        for store in (m._parameters, m._buffers):
            for name, value in store.items():
                if value is None:
                    continue
                dtype = dtypes.get(
                    prefix + name, dtypes.get(prefix + "weight", value.dtype)
                )  # a new bias: its weight's
                if id(value) not in made:
                    made[id(value)] = _converted(value, dtype if value.is_floating_point() else value.dtype)
                store[name] = made[id(value)]
    return out


def _converted(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in another dtype; a parameter is one again, of its own class."""
    if not isinstance(value, nn.Parameter):
        return value.detach().to(dtype, copy=True)
    if type(value) is nn.Parameter:
        return nn.Parameter(value.detach().to(dtype, copy=True), requires_grad=value.requires_grad)
    twin: Tensor = copy.deepcopy(value)
    twin.data = twin.data.to(dtype)
    return twin
