"""A basis for every space: as small as what can ever stand in it.

A value v of a space is kept as ``y = U^T v``, and what is missing is a constant: ``v = U y + r`` with
``r = (I - U U^T) c``. Where a radial activation takes the norm, the constant belongs to U, so r = 0. Elsewhere the
reader adds ``W r`` from its own bias, or reads it off one more coordinate, the *mark*, which holds a known number all
along a residual stream: that is how the biases of a stream cost one dimension together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .features import Feature, Space
from .graph import Analysis, padded_with_zeros
from .spans import basis_of


@dataclass(eq=False)
class Basis:
    """The new coordinates of a space: U, and whether a mark stands before them."""

    U: Tensor
    marked: bool
    cut: bool = False  # whether a tolerance left out directions that are more than rounding
    mark_at: int = 0  # how many coordinates stand before the mark

    @property
    def width(self) -> int:
        """How many coordinates there are."""
        return int(self.U.shape[1]) + int(self.marked)


@dataclass(eq=False)
class Run:
    """A stretch of a feature axis that lies in one space; ``basis`` is None where nothing changes."""

    space: int
    rows: slice
    basis: Basis | None
    columns: int | None = None  # how many of the basis, where a space grows along the way
    has_mark: bool = True  # and whether it has got as far as the mark

    @property
    def U(self) -> Tensor:  # noqa: N802
        """The basis, as far as it goes here."""
        if self.basis is None:
            raise ValueError("nothing changes here")
        return self.basis.U[:, : self.columns]

    @property
    def width(self) -> int:
        """Its length afterwards."""
        if self.basis is None:
            return int(self.rows.stop - self.rows.start)
        return sum(1 if part is None else int(part.shape[1]) for part in self.parts())

    def parts(self) -> list[Tensor | None]:
        """The coordinates in their order: pieces of the basis, and None for the mark."""
        U, basis = self.U, self.basis
        if basis is None or not basis.marked or (self.columns is not None and not self.has_mark):
            return [U]
        return [U[:, : basis.mark_at], None, U[:, basis.mark_at :]]


@dataclass(frozen=True)
class SpaceReport:
    """One space: who writes it, its width before and after, and why it is not smaller."""

    space: str
    before: int
    after: int
    why: str
    along: tuple[int, ...] = ()  # the widths it has along the way, where it grows


@dataclass(eq=False)
class Layout:
    """The spaces of an analysis, their bases, and how every feature is made of them."""

    spaces: list[Space]
    runs: dict[Feature, list[Run]]
    whole: set[Feature] = field(default_factory=set)  # whose constants are in the basis
    bases: list[Basis | None] = field(default_factory=list)
    marks: dict[tuple[Feature, int], float | None] = field(default_factory=dict)
    constants: dict[tuple[Feature, int], Tensor] = field(default_factory=dict)  # of y, where a space grows

    def members(self) -> list[list[tuple[Feature, Run]]]:
        """For each space the features that have a part in it, in the order of the program."""
        found: list[list[tuple[Feature, Run]]] = [[] for _ in self.spaces]
        for feature, runs in self.runs.items():
            for run in runs:
                found[run.space].append((feature, run))
        return found

    def below(self) -> set[Feature]:
        """The features whose constants are in the basis, and all that these are sums of."""
        found: set[Feature] = set()
        todo = list(self.whole)
        while todo:
            feature = todo.pop()
            if feature not in found:
                found.add(feature)
                todo += [part for part, _ in feature.made_of]
        return found

    def rest(self, feature: Feature, run: Run) -> Tensor | None:
        """``r``, what of the constant is not in the basis; None if nothing is."""
        c = feature.span.c
        if c is None or run.basis is None:
            return None
        c = c[run.rows]
        if (feature, run.space) in self.constants:
            r = c - run.U @ self.constants[feature, run.space]
        else:
            r = c - run.U @ (run.U.mT @ c)
            r = r - run.U @ (run.U.mT @ r)
        return None if float(r.norm()) <= 1e-14 * float(c.norm()) else r


def lay_out(analysis: Analysis, shared: set[Feature], tol: float | None) -> Layout:
    """Find spaces and bases.

    Parameters
    ----------
    analysis : Analysis
    shared : set of features
        Of parameters that serve in several places: their constants have to be in the basis, as at radial activations,
        and their spaces have no mark, since all places must change in the same way.
    tol : float, optional
        Singular values below this share of the largest count as 0.
    """
    layout = _spaces(analysis)
    layout.whole = shared | {f for _, a, _, b in analysis.radial for f in (a, b)}
    members = layout.members()
    for index, space in enumerate(layout.spaces):
        layout.bases.append(None)
        if space.why is None:
            layout.bases[index] = _basis(analysis, layout, index, members[index], shared, tol)
    for runs in layout.runs.values():
        for run in runs:
            run.basis = layout.bases[run.space]
    return layout


def _basis(
    analysis: Analysis,
    layout: Layout,
    index: int,
    members: list[tuple[Feature, Run]],
    shared: set[Feature],
    tol: float | None,
) -> Basis | None:
    whole, below = layout.whole, layout.below()
    outputs = {out for _, _, _, out in analysis.radial}
    marker = None
    if not any(feature in shared for feature, _ in members):
        written = (f for f, _ in members if not f.made_of and f not in outputs and f not in below)
        marker = next((f for f in written if f.span.c is not None), None)
    _set_marks(layout, index, members, marker)
    columns = []
    for feature, run in members:
        columns.append(feature.span.directions[run.rows])
        if feature.span.c is not None and (feature in whole or edge_needs_it(analysis, layout, feature, index)):
            columns.append(feature.span.c[run.rows].unsqueeze(1))
    n = layout.spaces[index].width
    U = basis_of(torch.cat(columns, dim=1), tol)
    if U.shape[1] == 0:
        U = torch.eye(n, 1, dtype=torch.float64)
    cut = tol is not None and U.shape[1] < basis_of(torch.cat(columns, dim=1)).shape[1]
    basis = Basis(U, False, cut)
    read = {use.reads for use in analysis.uses}
    for feature, run in members:
        run.basis = basis
        if feature in read and layout.marks[feature, index] and layout.rest(feature, run) is not None:
            basis.marked = True
    return basis if basis.width < n else None


def _set_marks(layout: Layout, index: int, members: list[tuple[Feature, Run]], marker: Feature | None) -> None:
    """Follow the mark from the one writer that sets it through sums and multiples."""
    size = 1.0 if marker is None or marker.span.c is None else float(marker.span.c.norm()) or 1.0
    for feature, _ in members:
        mark: float | None = size if feature is marker else 0.0
        for part, factor in feature.made_of:
            if (part, index) in layout.marks and mark is not None:
                below = layout.marks[part, index]
                mark = None if below is None else mark + factor * below
        layout.marks[feature, index] = mark if feature.uniform else None


def edge_needs_it(analysis: Analysis, layout: Layout, feature: Feature, index: int) -> bool:
    """Whether a convolution that sees zeros beyond the edge reads it, with no mark to tell where the edge is."""
    if layout.marks[feature, index]:
        return False
    return any(
        use.reads is feature and use.step.kind == "conv" and padded_with_zeros(use.step.module) for use in analysis.uses
    )


def _spaces(analysis: Analysis) -> Layout:
    pinned: dict[int, str] = {}
    for entries, why in analysis.pins:
        for e in entries:
            pinned.setdefault(analysis.root(int(e)), why)
    while True:
        spaces, place = _grouped(analysis, pinned)
        runs: dict[Feature, list[Run]] = {}
        broken = False
        for feature in analysis.all:
            runs[feature] = list(_runs(analysis, feature, place))
            for run in runs[feature]:
                space = spaces[run.space]
                roots = [analysis.root(int(e)) for e in feature.entries[run.rows]]
                if space.why is None and roots != list(space.roots):
                    broken = True
                    for root in space.roots:
                        pinned[int(root)] = "its entries are taken apart or put in another order"
        if not broken:
            return Layout(spaces, runs)


def _grouped(analysis: Analysis, pinned: dict[int, str]) -> tuple[list[Space], dict[int, tuple[int, int]]]:
    """Roots that belong to the same groups form a space; ``place`` gives for a root its space and its place there."""
    signature: dict[int, list[int]] = {}
    for k, entries in enumerate(analysis.groups):
        for e in entries:
            signature.setdefault(analysis.root(int(e)), []).append(k)
    together: dict[tuple[int, ...], list[int]] = {}
    for root, groups in signature.items():
        together.setdefault(tuple(groups), []).append(root)
    place = {root: (k, at) for k, roots in enumerate(together.values()) for at, root in enumerate(roots)}
    writers: list[list[str]] = [[] for _ in together]
    for start, stop, who in analysis.written:
        for k in dict.fromkeys(place[analysis.root(e)][0] for e in range(start, stop)):
            if who not in writers[k]:
                writers[k].append(who)
    spaces = []
    for k, roots in enumerate(together.values()):
        why = next((pinned[root] for root in roots if root in pinned), None)
        spaces.append(Space(" + ".join(writers[k]), len(roots), why, np.array(roots)))
    return spaces, place


def _runs(analysis: Analysis, feature: Feature, place: dict[int, tuple[int, int]]) -> Iterator[Run]:
    start, current = 0, None
    for k, e in enumerate(feature.entries):
        space, at = place[analysis.root(int(e))]
        if current is not None and (space != current or at == 0):
            yield Run(current, slice(start, k), None)
            start = k
        current = space
    if current is not None:
        yield Run(current, slice(start, len(feature.entries)), None)


def reports(layout: Layout) -> Iterator[SpaceReport]:
    """What became of every space."""
    for index, (space, basis) in enumerate(zip(layout.spaces, layout.bases, strict=True)):
        why = space.why or ("every direction of it is used" if basis is None else "")
        along = sorted({run.width for runs in layout.runs.values() for run in runs if run.space == index})
        after = space.width if basis is None else basis.width
        yield SpaceReport(space.name, space.width, after, why, tuple(along))
