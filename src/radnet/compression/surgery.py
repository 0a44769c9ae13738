"""Give the layers of a copy of the model their new sizes: the same modules, names, hooks, dtypes and devices.

With the basis of the space a layer reads and of the one it writes, ``W`` becomes ``U_out^T W U_in``; where the space it
reads has a mark, one more column reads the rest of the constant off it; where there is none, the bias does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .bases import Layout, Run
from .features import Feature
from .graph import Analysis, Use, double


@dataclass(eq=False)
class Change:
    """New tensors for one parameter owner: a module's weight and bias, or a parameter by itself."""

    use: Use
    weight: Tensor
    bias: Tensor | None


def changes(analysis: Analysis, layout: Layout) -> list[Change]:
    """What every use makes of its weights, in float64."""
    return [_change(use, layout) for use in analysis.uses if _touched(use, layout)]


def _touched(use: Use, layout: Layout) -> bool:
    features = [f for f in (use.reads, use.writes) if f is not None]
    return any(run.basis is not None for f in features for run in layout.runs[f])


def _change(use: Use, layout: Layout) -> Change:
    if use.step.kind in ("embedding", "parameter"):
        table = double(use.step.options["tensor"])
        rows = _write_rows(table.reshape(-1, table.shape[-1]).mT, use.writes, layout, marks=True).mT
        return Change(use, rows.reshape(*table.shape[:-1], -1), None)
    m: Any = use.step.module
    W, b = double(m.weight), None if m.bias is None else double(m.bias)
    shape = W.shape[2:]
    taps = shape.numel() if shape else (1 if use.reads is None else use.reads.inner)
    W = W.reshape(len(W), -1, taps)
    W, extra = _read_columns(W, use.reads, layout)
    if extra is not None:
        b = extra if b is None else b + extra
    W = _write_rows(W, use.writes, layout, marks=False)
    b = _bias(b, use.writes, layout)
    W = W.reshape(*W.shape[:2], *shape) if shape else W.flatten(1)
    return Change(use, W, b)


def _read_columns(W: Tensor, feature: Feature | None, layout: Layout) -> tuple[Tensor, Tensor | None]:
    """W in the coordinates of what it reads, and what goes to the bias."""
    if feature is None:
        return W, None
    pieces, extra = [], None
    for run in layout.runs[feature]:
        part = W[:, run.rows]
        if run.basis is None:
            pieces.append(part)
            continue
        rest, mark = layout.rest(feature, run), run.mark
        constant = None if rest is None else torch.einsum("oik,i->ok", part, rest)
        marked = any(piece is None for piece in run.parts())
        for piece in run.parts():
            if piece is not None:
                pieces.append(torch.einsum("oik,ij->ojk", part, piece))
            else:
                column = torch.zeros_like(part[:, 0]) if constant is None or not mark else constant / mark
                pieces.append(column.unsqueeze(1))
        if constant is not None and not (marked and mark):
            extra = constant.sum(dim=1) if extra is None else extra + constant.sum(dim=1)
    return torch.cat(pieces, dim=1), extra


def _write_rows(W: Tensor, feature: Feature | None, layout: Layout, *, marks: bool) -> Tensor:
    """U_out^T W.

    For tables (embeddings, bare parameters) the mark's row holds its value; for layers it is 0, the bias sets it.
    """
    if feature is None:
        return W
    pieces = []
    for run in layout.runs[feature]:
        part = W[run.rows]
        if run.basis is None:
            pieces.append(part)
            continue
        mark = run.mark or 0.0
        for piece in run.parts():
            if piece is None:
                pieces.append(torch.full_like(part[:1], mark if marks else 0.0))
            else:
                pieces.append(torch.einsum("i...,ij->j...", part, piece))
    return torch.cat(pieces)


def _bias(b: Tensor | None, feature: Feature | None, layout: Layout) -> Tensor | None:
    if feature is None:
        return b
    if b is None and not any(r.basis is not None and r.basis.marked and r.mark for r in layout.runs[feature]):
        return None
    n = len(feature.entries)
    b = torch.zeros(n, dtype=torch.float64) if b is None else b
    pieces = []
    for run in layout.runs[feature]:
        if run.basis is None:
            pieces.append(b[run.rows])
            continue
        for piece in run.parts():
            if piece is None:
                pieces.append(torch.tensor([run.mark or 0.0], dtype=torch.float64))
            else:
                pieces.append(piece.mT @ b[run.rows])
    return torch.cat(pieces)


def block_widths(blocks: list[Any], feature: Feature, runs: list[Run]) -> list[int]:
    """Sizes of the blocks of a radial activation afterwards."""
    sizes, start = [], 0
    for block in blocks:
        stop = start + len(block)
        sizes.append(sum(run.width for run in runs if start <= run.rows.start < stop))
        start = stop
    return sizes


def install(model: nn.Module, found: list[Change], analysis: Analysis, layout: Layout) -> None:
    """Put the new tensors into the model, which is a copy."""
    made: dict[int, tuple[Any, nn.Parameter]] = {}
    for change in found:
        step = change.use.step
        if step.kind == "parameter":
            owner, _, name = (step.path or "").rpartition(".")
            _put(model.get_submodule(owner), name, change.weight, made)
            continue
        m: Any = model.get_submodule(step.path or "")
        if change.bias is not None and m.bias is None:
            m.bias = nn.Parameter(change.bias.to(m.weight.device, m.weight.dtype), requires_grad=m.weight.requires_grad)
        elif change.bias is not None:
            _put(m, "bias", change.bias, made)
        _put(m, "weight", change.weight, made)
        if step.kind == "linear":
            m.out_features, m.in_features = m.weight.shape
        elif step.kind == "conv":
            m.out_channels, m.in_channels = m.weight.shape[:2]
        else:
            m.embedding_dim = m.weight.shape[1]
    for step, feature, blocks, _ in analysis.radial:
        rho: Any = model.get_submodule(step.path or "")
        if rho.blocks is not None:
            sizes = block_widths(blocks, feature, layout.runs[feature])
            rho.blocks = rho.blocks if isinstance(rho.blocks, int) and len(set(sizes)) == 1 else tuple(sizes)


def _put(module: nn.Module, name: str, value: Tensor, made: dict[int, tuple[Any, nn.Parameter]]) -> None:
    """Replace a parameter; one that was shared stays shared."""
    old = getattr(module, name)
    if id(old) not in made:
        made[id(old)] = (old, nn.Parameter(value.to(old.device, old.dtype), requires_grad=old.requires_grad))
    if old is not made[id(old)][1]:
        setattr(module, name, made[id(old)][1])
