"""Spaces that grow along the way: earlier values of a residual stream have fewer coordinates than later ones.

The basis of a space is put in the order in which its directions first appear, so that every value needs only the first
few of its coordinates, and a shortcut becomes padding with zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .bases import Layout, Run, edge_needs_it
from .features import Feature
from .graph import Analysis


def grow(analysis: Analysis, layout: Layout, shared: set[Feature]) -> None:
    """Let the spaces of a layout grow, where nothing stands against it.

    A part of a concatenation cannot be padded, parameters that serve in several places need one width, and a constant
    that a convolution sees end at an edge has to be there from the start.
    """
    joined = {run.space for runs in layout.runs.values() if len(runs) > 1 for run in runs}
    for index, members in enumerate(layout.members()):
        if layout.bases[index] is None or index in joined:
            continue
        if not any(f in shared or edge_needs_it(analysis, layout, f, index) for f, _ in members):
            _grow(analysis, layout, index, members)


def _grow(analysis: Analysis, layout: Layout, index: int, members: list[tuple[Feature, Run]]) -> None:
    """Order the basis by when its directions first appear, so that every value needs only the first few."""
    basis = layout.bases[index]
    if basis is None:
        return
    below = layout.below()
    inputs = {out: feature for _, feature, _, out in analysis.radial}
    marked = [layout.marks[feature, index] for feature, _ in members]
    first = next((k for k, mark in enumerate(marked) if mark), len(members))
    Q = basis.U[:, :0]
    length: dict[Feature, int] = {}  # how many coordinates a value has, the mark among them once it is reached
    for k, (feature, run) in enumerate(members):
        if k == first:
            basis.mark_at = Q.shape[1]
        reached = basis.marked and k >= first
        wanted = [feature.span.directions[run.rows]]
        if feature.span.c is not None and feature in below:
            wanted.append(feature.span.c[run.rows].unsqueeze(1))
        Q = _extended(Q, basis.U.mT @ torch.cat(wanted, dim=1), basis.U)
        columns = _needed(Q, torch.cat(wanted, dim=1))
        own = columns + 1 if reached and columns > basis.mark_at else columns
        if reached and marked[k]:
            own = max(own, basis.mark_at + 1)
        parts = [length[part] for part, _ in feature.made_of if part in length]
        parts += [length[inputs[feature]]] if feature in inputs else []
        length[feature] = max([own, 1, *parts])
        run.has_mark = reached and length[feature] > basis.mark_at
        run.columns = length[feature] - int(run.has_mark)
    Q = _extended(Q, torch.eye(basis.U.shape[1], dtype=torch.float64), basis.U)
    basis.U = Q
    for feature, run in members:
        constant = torch.zeros(run.U.shape[1], dtype=torch.float64)
        if feature.made_of:
            for part, factor in feature.made_of:
                y = layout.constants[part, index]
                constant[: len(y)] += factor * y
        elif feature.span.c is not None:
            constant = run.U.mT @ feature.span.c[run.rows]
        layout.constants[feature, index] = constant


def _extended(Q: Tensor, coordinates: Tensor, U: Tensor) -> Tensor:
    """An orthonormal basis that begins with Q and has ``U coordinates`` in its span."""
    columns = U @ coordinates
    lengths = columns.norm(dim=0)
    columns = columns[:, lengths > 0] / lengths[lengths > 0]
    rest = columns - Q @ (Q.mT @ columns)
    rest = rest - Q @ (Q.mT @ rest)
    if rest.shape[1] == 0:
        return Q
    left, S, _ = torch.linalg.svd(rest, full_matrices=False)
    new = left[:, 1e-13 * max(rest.shape) ** 0.5 < S]
    new = new - Q @ (Q.mT @ new)
    return torch.cat([Q, torch.linalg.qr(new)[0]], dim=1)


def _needed(Q: Tensor, columns: Tensor) -> int:
    """How many of the first columns of Q it takes."""
    lengths = columns.norm(dim=0)
    columns = columns[:, lengths > 0] / lengths[lengths > 0]
    used = (Q.mT @ columns).abs().amax(dim=1) if columns.shape[1] else Q.new_zeros(Q.shape[1])
    found = (used > 1e-12).nonzero()
    return int(found[-1]) + 1 if len(found) else 0
