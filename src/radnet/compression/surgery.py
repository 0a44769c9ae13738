"""Give the layers of a copy of the model their new sizes: the same modules, names, hooks, dtypes and devices."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..activations import RadialActivation
from .spaces.coordinates import Change, block_widths
from .spaces.follow import Analysis, Use
from .spaces.layouts import Layout


def changes(analysis: Analysis, layout: Layout) -> list[Change]:
    """What every use makes of its parameters, in float64; each operation says how."""
    return [use.step.operation.change(use, layout) for use in analysis.uses if _touched(use, layout)]


def _touched(use: Use, layout: Layout) -> bool:
    features = [f for f in (use.reads, use.writes) if f is not None]
    return any(run.basis is not None for f in features for run in layout.runs[f])


def install(model: nn.Module, found: Sequence[Change], analysis: Analysis, layout: Layout) -> None:
    """Put the new tensors into the model, which is a copy."""
    made: dict[int, tuple[Tensor, nn.Parameter]] = {}
    for change in found:
        path, operation = change.use.step.path or "", change.use.step.operation
        for name, value in change.tensors.items():
            owner, _, own = f"{path}.{name}".rstrip(".").rpartition(".")
            _put(model.get_submodule(owner), own, value, made)
        if "" not in change.tensors:
            operation.resize(model.get_submodule(path))
    for use in analysis.radial:
        rho = model.get_submodule(use.step.path or "")
        if isinstance(rho, RadialActivation) and rho.blocks is not None:
            sizes = block_widths(use.blocks, layout.runs[use.reads])
            rho.blocks = rho.blocks if isinstance(rho.blocks, int) and len(set(sizes)) == 1 else tuple(sizes)


def _put(module: nn.Module, name: str, value: Tensor, made: dict[int, tuple[Tensor, nn.Parameter]]) -> None:
    """Replace a parameter, or add one where there was None; one that was shared stays shared.

    It lies in memory as one that was read from a file does: PyTorch's products have other bits for a transposed one.
    """
    old, value = getattr(module, name), value.contiguous()
    if old is None:
        like = next(p for p in module.parameters(recurse=False))
        setattr(module, name, nn.Parameter(value.to(like.device, like.dtype), requires_grad=like.requires_grad))
        return
    if id(old) not in made:
        made[id(old)] = (old, nn.Parameter(value.to(old.device, old.dtype), requires_grad=old.requires_grad))
    if old is not made[id(old)][1]:
        setattr(module, name, made[id(old)][1])
