"""Spaces that grow along the way: earlier values of a residual stream have fewer coordinates than later ones.

The basis of a space is put in the order in which its directions first appear, so that every value needs only the first
few of its coordinates, and a shortcut becomes padding with zeros.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .bases import at_edges
from .features import Feature
from .follow import Analysis
from .layouts import Layout, Run
from .ranks import judged

if TYPE_CHECKING:
    from jaxtyping import Float

#: what sticks out of a basis by less than this share of its length is in its span
NEGLIGIBLE = 1e-13
#: a coordinate below this, of columns of length 1, is not in use
UNUSED = 1e-12


def grown(analysis: Analysis, layout: Layout, shared: Set[Feature]) -> Layout:
    """The layout with spaces that grow, where nothing stands against it; the given one is not changed.

    A part of a concatenation cannot be padded, nor can what is made in place, where something narrower stood;
    parameters that serve in several places need one width, and a constant that a convolution sees end at an edge has to
    be there from the start.
    """
    layout = layout.copied()
    edges = at_edges(analysis)
    joined = {run.space for runs in layout.runs.values() if len(runs) > 1 for run in runs}
    for index, members in enumerate(layout.members()):
        if layout.bases[index] is None or index in joined:
            continue
        fixed = shared | analysis.in_place
        if not any(f in fixed or (f in edges and not run.mark) for f, run in members):
            _grow(analysis, layout, index, members)
    return layout


def _grow(analysis: Analysis, layout: Layout, index: int, members: list[tuple[Feature, Run]]) -> None:
    """Order the basis by when its directions first appear, so that every value needs only the first few."""
    basis = layout.bases[index]
    if basis is None:
        return
    below = layout.below()
    inputs = {use.makes: use.reads for use in analysis.radial}
    marked = [run.mark for _, run in members]
    first = next((k for k, mark in enumerate(marked) if mark), len(members))
    Q = basis.U[:, :0]
    length: dict[Feature, int] = {}  # how many coordinates a value has, the mark among them once it is reached
    for k, (feature, run) in enumerate(members):
        if k == first:
            basis.mark_at = Q.shape[1]
        reached = basis.marked and k >= first
        wanted = judged(feature.span.at(run.rows, constant=feature in below))
        Q = _extended(Q, basis.U.mT @ wanted, basis.U)
        columns = _needed(Q, wanted)
        own = columns + 1 if reached and columns > basis.mark_at else columns
        if reached and marked[k]:
            own = max(own, basis.mark_at + 1)
        parts = [length[made.feature] for made in feature.made_of if made.feature in length]
        parts += [length[inputs[feature]]] if feature in inputs else []
        length[feature] = max([own, 1, *parts])
        run.has_mark = reached and length[feature] > basis.mark_at
        run.columns = length[feature] - int(run.has_mark)
    Q = _extended(Q, torch.eye(basis.U.shape[1], dtype=torch.float64), basis.U)
    basis.U = Q
    for feature, run in members:
        constant = torch.zeros(run.U.shape[1], dtype=torch.float64)
        for part, factor in layout.made_of(feature, run):
            if part.constant is not None:
                constant[: len(part.constant)] += factor * part.constant
        if not feature.made_of and feature.span.c is not None:
            constant = run.U.mT @ feature.span.c[run.rows]
        run.constant = constant


def _extended(
    Q: Float[Tensor, "n j"], coordinates: Float[Tensor, "k m"], U: Float[Tensor, "n k"]
) -> Float[Tensor, "n more"]:
    """An orthonormal basis that begins with Q and has ``U coordinates`` in its span."""
    columns = U @ coordinates
    lengths = columns.norm(dim=0)
    columns = columns[:, lengths > 0] / lengths[lengths > 0]
    rest = columns - Q @ (Q.mT @ columns)
    rest = rest - Q @ (Q.mT @ rest)
    if rest.shape[1] == 0:
        return Q
    left, S, _ = torch.linalg.svd(rest, full_matrices=False)
    new = left[:, NEGLIGIBLE * max(rest.shape) ** 0.5 < S]
    new = new - Q @ (Q.mT @ new)
    return torch.cat([Q, torch.linalg.qr(new)[0]], dim=1)


def _needed(Q: Float[Tensor, "n k"], columns: Float[Tensor, "n m"]) -> int:
    """How many of the first columns of Q it takes."""
    lengths = columns.norm(dim=0)
    columns = columns[:, lengths > 0] / lengths[lengths > 0]
    used = (Q.mT @ columns).abs().amax(dim=1) if columns.shape[1] else Q.new_zeros(Q.shape[1])
    found = (used > UNUSED).nonzero()
    return int(found[-1]) + 1 if len(found) else 0
