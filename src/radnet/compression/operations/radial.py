"""Radial activations, ``v -> h(|v|) v/|v|``, as a whole or in blocks: they commute with every rotation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from dataclasses import dataclass

from ...activations import RadialActivation
from ...rescaling import block_sizes
from ..bounds.lengths import Size, product
from ..bounds.sizes import Sizes
from ..program import Operation, Step
from ..spaces.features import Entries, Feature
from ..spaces.follow import Analysis, Rescaled, blocks_of, cumulated
from ..spaces.ranks import Columns, span_basis
from ..spaces.spans import AffineSet, Lazy, Part, stacked


@dataclass(frozen=True, eq=False)
class Radial(Operation):
    """A radial activation: the constant becomes one more direction of every block."""

    module: RadialActivation

    classes = (RadialActivation,)
    several = True

    @classmethod
    def of_module(cls, module: RadialActivation) -> Radial:
        """Every one, whatever its profile."""
        return cls(module)

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The span of what arrives, block by block; each block is a space of its own."""
        m, (value,), feature = self.module, step.inputs, analysis.arriving(step)
        if feature is None:
            return None
        if m.dim % value.ndim != feature.dim:
            return analysis.unknown(step)
        n = len(feature.entries)
        sizes = block_sizes(m.blocks, n * feature.inner) if m.blocks is not None else [n * feature.inner]
        if len(sizes) > 1 and feature.inner > 1:
            return analysis.unknown(step)
        bounds = cumulated(sizes) // feature.inner
        blocks = blocks_of(feature, bounds)
        analysis.features.groups += blocks
        source = analysis.source("rescaled by", step)
        span = Lazy(lambda: _rescaled(feature.span, bounds, source, analysis.lengths), (feature.lazy,))
        out = analysis.features.feature(feature.entries, feature.dim, feature.inner, span)
        analysis.radial.append(Rescaled(step, feature, blocks, out))
        return out

    def size(self, step: Step, sizes: Sizes) -> Size:
        """An error, r included, is multiplied by the Lipschitz constant; vectors are at most sup h long."""
        rho, (value,) = self.module, step.inputs
        axis = rho.dim % value.ndim
        u = sizes.read(value, axis)
        blocks = 1 if rho.blocks is None else len(block_sizes(rho.blocks, value.shape[axis]))
        L, longest, growth = rho.reach(value.dtype)
        norm = u.norm.plus(sizes.spread_out(math.sqrt(blocks) * growth, value, u))
        if rho.scale is not None:
            s = float(rho.scale.detach().abs().max())
            L, longest, norm = None if L is None else s * L, product(s, longest), norm.times(s)
        if L is not None:
            norm = norm.least(u.norm.times(L))
        error = u.error.plus(sizes.unread(value, u))
        error = error if u.bare is None else error.least(u.bare)
        return sizes.rescaled(step, u, norm, error, L, math.sqrt(blocks) * longest)


def _rescaled(span: AffineSet, bounds: Entries, source: Hashable, lengths: bool) -> AffineSet:
    """What comes out of a radial activation with blocks between the bounds: in each the span of what arrives.

    Unless lengths matter it is kept by an orthonormal basis, which is exact: in the coordinates that the small model
    will have there, nothing is left of how the directions were computed. So rounding does not pile up with the depth.
    """
    if span.is_full and not lengths:
        return AffineSet.everything(span.n, source)
    pieces = []
    for k, (a, b) in enumerate(itertools.pairwise(bounds)):
        rows = slice(int(a), int(b))
        part = Part(rows.stop - rows.start)
        if lengths:
            columns: Columns = span.at(rows, constant=True)
            part = Part(part.rows, columns.M, size=columns.size).thinned(lengths)
        elif not span.fills(rows):
            U = span_basis(span.at(rows, constant=True)).U
            part = part if U is None else Part(part.rows, U, basis=U)
        pieces.append(AffineSet(part.rows, None, {(source, k): part}))
    if all(piece.is_full for piece in pieces) and not lengths:
        return AffineSet.everything(span.n, source)
    return stacked(pieces)
