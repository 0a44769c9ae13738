"""nn.Embedding, and parameters that forward reads by themselves: all they ever give is one of their own rows."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..bounds.lengths import NONE, Lengths, Size
from ..bounds.sizes import Sizes
from ..program import Operation, Step
from ..spaces.coordinates import Change, changed_table
from ..spaces.features import Feature
from ..spaces.follow import Analysis, Use
from ..spaces.layouts import Layout
from ..spaces.spans import AffineSet, Lazy, double

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Embedding(Operation):
    """A row of a table for each index."""

    module: nn.Embedding

    classes = (nn.Embedding,)
    calls = ("embedding",)
    parameters = ("weight",)
    layer_atens = {"aten.embedding.default": (1, 0)}  # noqa: RUF012

    @classmethod
    def of_module(cls, module: nn.Embedding) -> Embedding | None:
        """One that does not rescale its rows while it is used."""
        return cls(module) if module.max_norm is None and not module.sparse else None

    def follow(self, step: Step, analysis: Analysis) -> Feature:
        """The affine hull of the rows."""
        return _follow(step, analysis, self.module.weight, step.made.ndim - 1, analysis.source("row of", step))

    def size(self, step: Step, sizes: Sizes) -> Size:
        """Each vector is no longer than the longest row; nothing is known of how many there are."""
        return _size(step, sizes, self.module.weight, whole=False)

    def change(self, use: Use, layout: Layout) -> Change:
        """``T U``."""
        return changed_table(use, layout, self.module.weight, "weight")

    def resize(self, module: nn.Embedding) -> None:
        """The width it shows."""
        module.embedding_dim = module.weight.shape[1]


@dataclass(frozen=True)
class Parameter(Operation):
    """A parameter or buffer that stands in the program by itself: a token, a position, a bias of the user's own."""

    parameters = ("",)

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The affine hull of its rows along the last axis."""
        p = analysis.parameters.get(step.name)
        if p is None or p.ndim == 0 or not p.is_floating_point():
            return None
        return _follow(step, analysis, p, p.ndim - 1, ("row of", step.name))

    def size(self, step: Step, sizes: Sizes) -> Size:
        """All its rows are there."""
        p = sizes.analysis.parameters.get(step.name)
        return sizes.anything(step.made) if p is None else _size(step, sizes, p, whole=True)

    def change(self, use: Use, layout: Layout) -> Change:
        """``T U``."""
        return changed_table(use, layout, use.bare, "")


def _follow(step: Step, analysis: Analysis, table: Float[Tensor, "*rows n"], dim: int, source: Hashable) -> Feature:
    n, store = table.shape[-1], analysis.features

    def image() -> AffineSet:
        rows = double(table).reshape(-1, n)
        c = rows[0].clone()
        return AffineSet(n, c, {source: (rows[1:] - c).mT} if len(rows) > 1 else {}).thinned(analysis.lengths)

    out = store.feature(store.new(n, step.name), dim, 1, Lazy(image))
    analysis.uses.append(Use(step, None, out, table=table))
    return out


def _size(step: Step, sizes: Sizes, table: Tensor, *, whole: bool) -> Size:
    writes = sizes.sides(step).writes
    if writes is None:
        return sizes.anything(step.made)
    index = None if whole else sizes.of(step.inputs[0]).rows
    rows = double(table).reshape(-1, len(writes.entries)).mT
    c = writes.span.c
    less_c = rows if c is None else rows - c.unsqueeze(1)

    def longest(columns: Float[Tensor, "n rows"] | None) -> Lengths:
        """The lengths of rows of the table, which are columns here; of a parameter all of them are there."""
        if columns is None or not columns.numel():
            return NONE
        return Lengths(float(columns.norm(dim=0).max()), float(columns.norm()) if whole else math.inf)

    error, bare = longest(sizes.rest(less_c, writes)), longest(sizes.rest(rows, writes))
    return Size(longest(rows), longest(less_c), error, index, step.made.ndim - 1, bare)
