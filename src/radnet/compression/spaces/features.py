"""Feature axes as lists of entries, and the spaces they form; see the words at the top of the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..reasons import Why
from .spans import AffineSet, Lazy

Entries = npt.NDArray[np.int64]


class Ingredient(NamedTuple):
    """A feature that another is made of: ``factor`` times it stands in the entries from ``start`` on."""

    feature: Feature
    factor: float
    start: int = 0


@dataclass(eq=False)
class Feature:
    """The feature axis of a value: its entries, where it is, how often each is repeated, what may stand there."""

    entries: Entries
    dim: int
    inner: int
    lazy: Lazy
    made_of: list[Ingredient] = field(default_factory=list)  # for sums, multiples, concatenations and the like
    uniform: bool = True  # whether the constant is the same at every position

    @property
    def span(self) -> AffineSet:
        """What may stand there; computed when it is first asked for."""
        return self.lazy.get()


@dataclass(eq=False)
class Space:
    """Entries that change basis together."""

    name: str
    width: int
    why: Why | None  # why it stays as it is; None if it need not
    roots: Entries


class Pin(NamedTuple):
    """Entries that must stay as they are."""

    entries: Entries
    why: Why


class Features:
    """All features of a program: which entries are one, which belong together, which must stay."""

    def __init__(self) -> None:
        self.count = 0  # of entries
        self.united: list[tuple[Entries, Entries]] = []
        self.groups: list[Entries] = []
        self.pins: list[Pin] = []
        self.all: list[Feature] = []
        self.written: list[tuple[int, int, str]] = []  # entries from, to, and who writes them

    def new(self, n: int, writer: str) -> Entries:
        """Entries that nobody has yet."""
        start = self.count
        self.count += n
        self.written.append((start, start + n, writer))
        return np.arange(start, start + n)

    def unite(self, a: Entries, b: Entries) -> None:
        """Let entries be one, each with the one at its place."""
        if len(a) != len(b):
            raise ValueError(f"{len(a)} entries cannot be united with {len(b)}")
        self.united.append((a, b))

    def roots(self) -> Entries:
        """The representative of every entry: the smallest number it is united with.

        >>> features = Features()
        >>> a, b, c = (features.new(2, name) for name in "abc")
        >>> features.unite(b, a), features.unite(b, c[::-1])
        (None, None)
        >>> features.roots().tolist()
        [0, 1, 0, 1, 1, 0]
        """
        root = np.arange(self.count)
        if not self.united:
            return root
        a, b = (np.concatenate(side) for side in zip(*self.united, strict=True))
        while True:
            x, y = root[a], root[b]
            apart = x != y
            if not apart.any():
                return root
            np.minimum.at(root, np.maximum(x, y)[apart], np.minimum(x, y)[apart])
            while (root != root[root]).any():
                root = root[root]

    def pin(self, feature: Feature | None, why: Why) -> None:
        """The entries of a feature must stay as they are."""
        if feature is not None:
            self.pins.append(Pin(feature.entries, why))

    def feature(
        self, entries: Entries, dim: int, inner: int, lazy: Lazy, made_of: Sequence[Ingredient] = ()
    ) -> Feature:
        """A feature of these entries."""
        self.groups.append(entries)
        made = Feature(entries, dim, inner, lazy, list(made_of))
        self.all.append(made)
        return made
