"""A basis for every space: as small as what can ever stand in it.

A value v of a space is kept as ``y = U^T v``, and what is missing is a constant: ``v = U y + r`` with
``r = (I - U U^T) c``. Where a radial activation takes the norm, the constant belongs to U, so r = 0. Elsewhere the
reader adds ``W r`` from its own bias, or reads it off one more coordinate, the *mark*, which holds a known number all
along a residual stream: that is how the biases of a stream cost one dimension together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..reasons import Reason, Why
from .features import Entries, Feature, Pin, Space
from .follow import Analysis
from .ranks import Columns, SpanBasis, beside, span_basis

if TYPE_CHECKING:
    from jaxtyping import Float

#: what is left of a constant beside a basis is rounding, below this share of it
NOTHING = 1e-14
#: a mark that is less than this share of what was added up in it counts as 0: it would be divided by
LEAST_MARK = 1e-6


@dataclass(eq=False)
class Basis:
    """The new coordinates of a space: U, and whether a mark stands before them."""

    U: Float[Tensor, "n k"]
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
    columns: int | None = None  # number of leading columns of basis.U in use here; None means all (only `grow` sets it)
    has_mark: bool = True  # whether the mark is among the coordinates here (only `grow` sets it)
    mark: float | None = 0.0  # what the mark holds here; None if that depends on the position
    constant: Float[Tensor, " k"] | None = None  # coordinates that stand for the constant here (only `grow` sets it)

    @property
    def U(self) -> Float[Tensor, "n k"]:  # noqa: N802
        """The columns of the basis that are in use here."""
        if self.basis is None:
            raise ValueError("nothing changes here")
        return self.basis.U[:, : self.columns]

    @property
    def width(self) -> int:
        """Its length afterwards."""
        if self.basis is None:
            return int(self.rows.stop - self.rows.start)
        return sum(1 if part is None else int(part.shape[1]) for part in self.parts())

    def parts(self) -> list[Float[Tensor, "n _"] | None]:
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
    reason: Reason | None = None  # the reason behind `why`; None where the space is smaller


@dataclass(eq=False)
class Layout:
    """The spaces of an analysis, their bases, and how every feature is made of them."""

    spaces: list[Space]
    runs: dict[Feature, list[Run]]
    whole: frozenset[Feature] = frozenset()  # whose constants are in the basis
    bases: list[Basis | None] = field(default_factory=list)

    def copied(self) -> Layout:
        """The same spaces with bases and runs of their own."""
        bases = [None if basis is None else replace(basis) for basis in self.bases]
        runs = {
            feature: [replace(run, basis=None if run.basis is None else bases[run.space]) for run in own]
            for feature, own in self.runs.items()
        }
        return Layout(self.spaces, runs, self.whole, bases)

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
                todo += [part.feature for part in feature.made_of]
        return found

    def made_of(self, feature: Feature, run: Run) -> Iterator[tuple[Run, float]]:
        """The runs that are added up in a run of a sum, a multiple or a concatenation, and their factors."""
        for part, factor, start in feature.made_of:
            for own in self.runs[part] if start <= run.rows.start < start + len(part.entries) else ():
                if own.rows.start + start == run.rows.start:
                    yield own, factor

    def rest(self, feature: Feature, run: Run) -> Float[Tensor, " n"] | None:
        """``r``, what of the constant is not in the basis; None if nothing is."""
        if run.basis is None or feature.span.c is None:
            return None
        c = feature.span.c[run.rows]
        if run.constant is not None:
            r = c - run.U @ run.constant
        else:
            r = c - run.U @ (run.U.mT @ c)
            r = r - run.U @ (run.U.mT @ r)
        return None if float(r.norm()) <= NOTHING * float(c.norm()) else r


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
    layout = _spaces(analysis, [*analysis.features.pins, *pins])
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
        if any(feature in self.shared for feature, _ in members):
            return []
        for feature, _ in members:
            if feature.made_of or feature in self.outputs or feature.span.c is None:
                continue
            written = self.written[self.owner[feature]] if feature in self.owner else [feature]
            if not any(one in self.below for one in written):
                return [feature, *(one for one in written if one is not feature)]
        return []


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


def _spaces(analysis: Analysis, pins: Sequence[Pin]) -> Layout:
    roots = analysis.roots()
    pinned = np.full(analysis.features.count, -1)  # for a root, its first reason
    reasons = [why for _, why in pins]
    for k, (entries, _) in enumerate(pins):
        own = roots[entries]
        pinned[own[pinned[own] < 0]] = k
    reasons.append(Why(Reason.REORDERED))
    while True:
        spaces, place = _grouped(analysis, roots, pinned, reasons)
        runs: dict[Feature, list[Run]] = {}
        broken = False
        for feature in analysis.features.all:
            runs[feature] = list(_runs(roots[feature.entries], place))
            for run in runs[feature]:
                space = spaces[run.space]
                if space.why is None and not np.array_equal(roots[feature.entries[run.rows]], space.roots):
                    broken = True
                    pinned[space.roots] = len(reasons) - 1
        if not broken:
            return Layout(spaces, runs)


def _grouped(
    analysis: Analysis, roots: Entries, pinned: Entries, reasons: Sequence[Why]
) -> tuple[list[Space], tuple[Entries, Entries]]:
    """Roots that are in the same groups equally often form a space; for a root, its space and its place there."""
    store = analysis.features
    label, labels = np.zeros(store.count, dtype=np.int64), 1
    for entries in store.groups:
        own, times = np.unique(roots[entries], return_counts=True)
        _, new = np.unique(label[own] * (len(entries) + 1) + times, return_inverse=True)
        label[own] = labels + new.reshape(-1)
        labels += len(own)
    seen = np.concatenate([roots[entries] for entries in store.groups]) if store.groups else roots
    found, first = np.unique(seen, return_index=True)
    found = found[np.argsort(first)]  # in the order in which they appear
    _, at, which = np.unique(label[found], return_index=True, return_inverse=True)
    which = np.argsort(np.argsort(at))[which.reshape(-1)]  # spaces in the order in which they appear
    order = np.argsort(which, kind="stable")
    sizes = np.bincount(which) if len(which) else np.zeros(0, dtype=np.int64)
    ends = np.cumsum([0, *sizes])
    space_of, place = np.full(store.count, -1), np.full(store.count, -1)
    space_of[found] = which
    members = [found[order[a:b]] for a, b in itertools.pairwise(ends)]
    for own in members:
        place[own] = np.arange(len(own))
    writers: list[dict[str, None]] = [{} for _ in members]
    for start, stop, who in store.written:
        for k in _in_order(space_of[roots[start:stop]]):
            writers[k][who] = None
    spaces = []
    for own, names in zip(members, writers, strict=True):
        why = pinned[own][pinned[own] >= 0]
        spaces.append(Space(" + ".join(names), len(own), reasons[why[0]] if len(why) else None, own))
    return spaces, (space_of, place)


def _in_order(numbers: Entries) -> list[int]:
    """Every number once, in the order in which they appear."""
    found, first = np.unique(numbers, return_index=True)
    return [int(k) for k in found[np.argsort(first)]]


def _runs(roots: Entries, place: tuple[Entries, Entries]) -> Iterator[Run]:
    space, at = place[0][roots], place[1][roots]
    ends = np.flatnonzero((space[1:] != space[:-1]) | (at[1:] == 0)) + 1
    for a, b in zip([0, *ends], [*ends, len(roots)], strict=True):
        if b > a:
            yield Run(int(space[a]), slice(int(a), int(b)), None)


def reports(layout: Layout) -> Iterator[SpaceReport]:
    """What became of every space."""
    for space, basis, members in zip(layout.spaces, layout.bases, layout.members(), strict=True):
        why = space.why or (Why(Reason.FULL) if basis is None else None)
        along = sorted({run.width for _, run in members})
        after = space.width if basis is None else basis.width
        said, reason = ("", None) if why is None else (str(why), why.reason)
        yield SpaceReport(space.name, space.width, after, said, tuple(along), reason)
