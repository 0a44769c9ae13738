"""The spaces of a program, and how every feature axis is made of them.

Entries that are in the same groups equally often form a space; a feature axis is a row of runs, each in one space. What
becomes of a space is its `Basis`, which `bases` finds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..reasons import Reason, Why
from .features import Entries, Feature, Pin, Space
from .follow import Analysis

if TYPE_CHECKING:
    from jaxtyping import Float

#: what is left of a constant beside a basis is rounding, below this share of it
NOTHING = 1e-14


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


def spaces_of(analysis: Analysis, pins: Sequence[Pin]) -> Layout:
    """The spaces of an analysis, with no bases yet; one whose entries stand in another order somewhere stays."""
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
