"""Weights in new coordinates.

With the basis of the space a layer reads and of the one it writes, ``W`` becomes ``U_out^T W U_in``; where the space it
reads has a mark, one more column reads the rest of the constant off it; where there is none, the bias does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .features import Entries, Feature
from .follow import Use
from .layouts import Layout, Run
from .spans import double

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Change:
    """New tensors for one layer, by the names of its parameters, or for a parameter by itself (""); in float64."""

    use: Use
    tensors: Mapping[str, Tensor]


def changed_layer(
    use: Use, layout: Layout, W: Float[Tensor, "out in *taps"], b: Float[Tensor, " out"] | None
) -> Change:
    """The change of a layer with the weight (out, in, taps...) and the bias (out).

    A layer that reads a flattened axis has a column for each position of every entry, side by side.
    """
    W, b = double(W), None if b is None else double(b)
    shape = W.shape[2:]
    taps = shape.numel() if shape else (1 if use.reads is None else use.reads.inner)
    W, extra = read_columns(W.reshape(len(W), -1, taps), use.reads, layout)
    if extra is not None:
        b = extra if b is None else b + extra
    W = write_rows(W, use.writes, layout)
    b = new_bias(b, use.writes, layout)
    weight = W.reshape(*W.shape[:2], *shape) if shape else W.flatten(1)
    return Change(use, {"weight": weight} if b is None else {"weight": weight, "bias": b})


def changed_table(use: Use, layout: Layout, table: Float[Tensor, "*rows n"], name: str) -> Change:
    """The change of a tensor whose rows, along its last axis, are what can stand there."""
    columns = double(table).reshape(-1, table.shape[-1]).mT
    rows = write_rows(columns, use.writes, layout, marks=True).mT
    return Change(use, {name: rows.reshape(*table.shape[:-1], -1)})


def read_columns(
    W: Float[Tensor, " out in taps"], feature: Feature | None, layout: Layout
) -> tuple[Float[Tensor, "out k taps"], Float[Tensor, " out"] | None]:
    """W, of shape (out, in, taps), in the coordinates of what it reads, and what goes to the bias."""
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


def write_rows(
    W: Float[Tensor, " out *others"], feature: Feature | None, layout: Layout, *, marks: bool = False
) -> Float[Tensor, " k *others"]:
    """``U_out^T W``, for W of shape (out, ...).

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


def new_bias(b: Float[Tensor, " out"] | None, feature: Feature | None, layout: Layout) -> Float[Tensor, " k"] | None:
    """A bias, of shape (out,), in the coordinates of what it writes; the mark is set by it."""
    if feature is None:
        return b
    if b is None and not any(r.basis is not None and r.basis.marked and r.mark for r in layout.runs[feature]):
        return None
    b = torch.zeros(len(feature.entries), dtype=torch.float64) if b is None else b
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


def block_widths(blocks: Sequence[Entries], runs: Sequence[Run]) -> list[int]:
    """Sizes of the blocks of a radial activation afterwards, from the runs of what it reads."""
    sizes, start = [], 0
    for block in blocks:
        stop = start + len(block)
        sizes.append(sum(run.width for run in runs if start <= run.rows.start < stop))
        start = stop
    return sizes
