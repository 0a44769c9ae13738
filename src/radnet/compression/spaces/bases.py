"""A basis for every space: as small as what can ever stand in it.

A value v of a space is kept as ``y = U^T v``, and what is missing is a constant: ``v = U y + r`` with
``r = (I - U U^T) c``. Where a radial activation takes the norm, the constant belongs to U, so r = 0. Elsewhere the
reader adds ``W r`` from its own bias, or reads it off one more coordinate, the *mark*, which holds a known number all
along a residual stream: that is how the biases of a stream cost one dimension together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..reasons import Reason, Why
from .features import Feature, Pin, Space
from .follow import Analysis
from .layouts import Basis, Layout, Run, spaces_of
from .ranks import Columns, SpanBasis, beside, span_basis

if TYPE_CHECKING:
    from jaxtyping import Float

#: a mark that is less than this share of what was added up in it counts as 0: it would be divided by
LEAST_MARK = 1e-6


def range_growth(U: Float[Tensor, "n k"]) -> float:
    """How many times larger a coordinate of ``U^T v`` can be than the largest entry of v: the largest sum of ``|u_i|``.

    >>> range_growth(torch.eye(4, 2)), range_growth(torch.full((4, 1), 0.5))
    (1.0, 2.0)
    """
    return float(U.abs().sum(dim=0).max()) if U.numel() else 0.0


def lay_out(
    analysis: Analysis,
    shared: Set[Feature],
    tol: float | None,
    narrow: Callable[[Feature], bool] | None = None,
    pins: Sequence[Pin] = (),
) -> Layout:
    """Find spaces and bases.

    Parameters
    ----------
    analysis : Analysis
    shared : set of features
        Of parameters that serve in several places: their constants have to be in the basis, as at radial activations,
        and their spaces have no mark, since all places must change in the same way.
    tol : float, optional
        Singular values below this share of the largest count as 0.
    narrow : callable, optional
        Whether a feature is stored in float16, where a coordinate that is larger than every entry may overflow: its
        space changes only to a basis in which none is.
    pins : sequence of Pin
        What must stay as it is besides what the analysis pins.
    """
    if analysis.lengths != (tol is not None):
        raise ValueError("an analysis keeps the lengths of directions if there is a tolerance, and only then")
    layout = spaces_of(analysis, [*analysis.features.pins, *pins])
    layout.whole = frozenset(shared | {f for use in analysis.radial for f in (use.reads, use.makes)})
    finder = _Finder(analysis, layout, shared, tol, narrow)
    for index, members in enumerate(layout.members()):
        unpinned = layout.spaces[index].why is None
        layout.bases.append(finder.basis(layout.spaces[index], members) if unpinned else None)
        for _, run in members:
            run.basis = layout.bases[index]
    return layout


class _Finder:
    """Finds the bases of the spaces of one layout."""

    def __init__(
        self,
        analysis: Analysis,
        layout: Layout,
        shared: Set[Feature],
        tol: float | None,
        narrow: Callable[[Feature], bool] | None,
    ) -> None:
        self.layout, self.shared, self.tol, self.narrow = layout, shared, tol, narrow
        self.below, self.edges = layout.below(), at_edges(analysis)
        self.uses = analysis.uses
        self.read = {use.reads for use in analysis.uses}
        self.rescaled = {use.reads for use in analysis.radial}
        self.outputs = {use.makes for use in analysis.radial}
        self.owner = {use.writes: use.owner for use in analysis.uses if use.writes is not None}
        self.written: dict[str, list[Feature]] = {}
        for feature, owner in self.owner.items():
            self.written.setdefault(owner, []).append(feature)

    def basis(self, space: Space, members: list[tuple[Feature, Run]]) -> Basis | None:
        """The smallest basis of a space; None if it is as it is now."""
        narrow = self.narrow is not None and any(self.narrow(feature) for feature, _ in members)
        if self.tol is None and any(f.span.fills(run.rows) for f, run in members if self._adds_directions(f)):
            return None
        set_marks(self.layout, members, [] if narrow else self._markers(members))
        U, cut = self._smallest(members, space.width, narrow)
        if U is None:
            return None
        if narrow and (growth := range_growth(U)) > 1 + 1e-9:
            space.why = Why(Reason.FLOAT16, detail=f"{growth:.0f}")
            return None
        basis = Basis(U, False, cut)
        for feature, run in members:
            run.basis = basis
            if feature in self.read and run.mark and self.layout.rest(feature, run) is not None:
                basis.marked = True
        return basis if basis.width < space.width else None

    def _adds_directions(self, feature: Feature) -> bool:
        """Whether a feature can vary in directions that no other one of its space is known to have.

        A sum varies as its parts do, and what a radial activation reads lies in the span of what it writes.
        """
        if self.tol is not None:
            return True  # singular values count every column
        return feature not in self.rescaled and not (feature.made_of and feature.uniform)

    def _smallest(self, members: list[tuple[Feature, Run]], n: int, narrow: bool) -> SpanBasis:
        columns: list[Columns] = []
        ready: list[Tensor | None] = []
        for feature, run in members:
            directions = self._adds_directions(feature)
            needed = feature in self.layout.whole or (not run.mark and feature in self.edges)
            constant = needed and (self.tol is not None or feature not in self.rescaled) and feature.span.c is not None
            if directions:
                columns.append(feature.span.at(run.rows, constant=constant))
                ready.append(None if constant else feature.span.basis_at(run.rows))
            elif constant:
                columns.append(feature.span.constant_at(run.rows))
                ready.append(None)
        if self.tol is None:
            kept = _different(columns)
            columns, ready = [columns[k] for k in kept], [ready[k] for k in kept]
        found = beside(columns, n)
        U, cut = (ready[0], False) if len(ready) == 1 and self.tol is None else (None, False)
        if U is None:
            U, cut = span_basis(found, self.tol)
        if U is not None and narrow and range_growth(U) > 1 + 1e-9:
            used = (found.M != 0).any(dim=1)
            U = U if bool(used.all()) else torch.eye(n, dtype=torch.float64)[:, used]
        if U is not None and U.shape[1] == 0:
            U = torch.eye(n, 1, dtype=torch.float64)
        return SpanBasis(U, cut)

    def _markers(self, members: list[tuple[Feature, Run]]) -> list[Feature]:
        """What one layer or parameter writes, wherever it does, if it has a constant that may stand in a mark."""
        if any(feature in self.shared for feature, _ in members) or self._absorbed(members):
            return []
        for feature, _ in members:
            if feature.made_of or feature in self.outputs or feature.span.c is None:
                continue
            written = self.written[self.owner[feature]] if feature in self.owner else [feature]
            if not any(one in self.below for one in written):
                return [feature, *(one for one in written if one is not feature)]
        return []

    def _absorbed(self, members: list[tuple[Feature, Run]]) -> bool:
        """Whether nothing is added up in a space, and only linear layers read it, whose biases take the constant.

        So two linear layers in a row meet in no more dimensions than the first one reads.
        """
        found = [feature for feature, _ in members]
        readers = [use.step.module for use in self.uses if use.reads in found]
        simple = not any(feature.made_of or feature in self.outputs for feature in found)
        return simple and all(isinstance(m, nn.Linear) and m.bias is not None for m in readers)


def _different(columns: list[Columns]) -> list[int]:
    """Which of them have columns that are not the same as those of an earlier one, as in two traces of one model."""
    seen: dict[tuple[torch.Size, float], list[int]] = {}
    kept = []
    for k, (M, _) in enumerate(columns):
        alike = seen.setdefault((M.shape, float(M.sum())), [])
        if M.shape[1] and not any(torch.equal(M, columns[j].M) for j in alike):
            alike.append(k)
            kept.append(k)
    return kept


def set_marks(layout: Layout, members: list[tuple[Feature, Run]], markers: list[Feature]) -> None:
    """Follow the mark of a space from the writer that sets it through sums, multiples and concatenations, run by run.

    Every run of a concatenation has the mark of the part that stands there: parts are beside each other and not added
    up, though all of them may lie in one space.
    """
    c = markers[0].span.c if markers else None
    size = 1.0 if c is None else float(c.norm()) or 1.0
    for feature, run in members:
        run.mark = size if feature in markers else 0.0
        added = [(own.mark, factor) for own, factor in layout.made_of(feature, run)]
        if not feature.uniform or any(mark is None for mark, _ in added):
            run.mark = None
        elif added:
            terms = [factor * mark for mark, factor in added if mark is not None]
            run.mark = sum(terms) if abs(sum(terms)) > LEAST_MARK * sum(abs(t) for t in terms) else 0.0


def at_edges(analysis: Analysis) -> set[Feature]:
    """What is read by layers that see zeros beyond the edge: a constant ends there, unless a mark says where."""
    return {use.reads for use in analysis.uses if use.at_edges and use.reads is not None}
