"""Feature axes as lists of entries, and the spaces they form.

A *space* is a set of entries of feature axes that always appear together. Every tensor's feature axis is a list of
entry numbers; steps that identify entries (a sum, a radial activation) unite their numbers, steps that need some
entries kept together (a block of a radial activation, a concatenation) group them. What nothing tells apart is one
space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .spans import AffineSet

Entries = np.ndarray[Any, Any]


@dataclass(eq=False)
class Feature:
    """The feature axis of a value: its entries, where it is, how often each is repeated, what may stand there."""

    entries: Entries
    dim: int
    inner: int
    span: AffineSet
    made_of: list[tuple[Feature, float]] = field(default_factory=list)  # for sums and the like: parts and factors
    uniform: bool = True  # whether the constant is the same at every position


@dataclass(eq=False)
class Space:
    """Entries that change basis together."""

    name: str
    width: int
    why: str | None  # why it is pinned; None if it is not
    roots: Entries


class Features:
    """All features of a program: which entries are one, which belong together, which must stay."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.groups: list[Entries] = []
        self.pins: list[tuple[Entries, str]] = []
        self.all: list[Feature] = []
        self.written: list[tuple[int, int, str]] = []  # entries from, to, and who writes them

    def _new(self, n: int, writer: str) -> Entries:
        start = len(self.parent)
        self.parent.extend(range(start, start + n))
        self.written.append((start, start + n, writer))
        return np.arange(start, start + n)

    def root(self, e: int) -> int:
        """Representative of an entry."""
        while self.parent[e] != e:
            self.parent[e] = self.parent[self.parent[e]]
            e = self.parent[e]
        return e

    def _unite(self, a: Entries, b: Entries) -> None:
        for x, y in zip(a, b, strict=True):
            rx, ry = self.root(int(x)), self.root(int(y))
            if rx != ry:
                self.parent[max(rx, ry)] = min(rx, ry)

    def pin(self, feature: Feature | None, why: str) -> None:
        """These entries must stay as they are."""
        if feature is not None:
            self.pins.append((feature.entries, why))

    def _feature(
        self, entries: Entries, dim: int, inner: int, span: AffineSet, made_of: Sequence[tuple[Feature, float]] = ()
    ) -> Feature:
        self.groups.append(entries)
        made = Feature(entries, dim, inner, span, list(made_of))
        self.all.append(made)
        return made
