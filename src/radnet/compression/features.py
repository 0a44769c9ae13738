"""Feature axes as lists of entries, and the spaces they form.

The words that this part of the package uses:

entry
    One coordinate of a feature axis, as a number. Steps that identify coordinates (a sum, a radial activation) unite
    their numbers; the representative of united numbers is their *root*.
feature
    The feature axis of one tensor: its entries in their order, which axis of the tensor it is, and its *span*, the
    affine set of all vectors that can ever stand there.
space
    Entries that always appear together and in the same order; they change basis together or not at all. A residual
    stream with all that is added to it is one space, and so is one block of a block-radial activation.
run
    A stretch of a feature that lies in one space. Most features are one run; a concatenation has one for each part.
source
    Something that may take any value, independently of other sources: an input, the output of a nonlinear step, a
    neighbouring position seen by a convolution. Spans are sums over sources.
constant
    The part of a span that does not vary: what biases and parameters add up to.
mark
    One more coordinate of a space that holds a known number, so that a reader can take constants off it.
pin
    A reason why a space must stay as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .spans import AffineSet, Lazy

Entries = np.ndarray[Any, Any]


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
    why: str | None  # why it stays as it is; None if it need not
    roots: Entries


class Features:
    """All features of a program: which entries are one, which belong together, which must stay."""

    def __init__(self) -> None:
        self.count = 0  # of entries
        self.united: list[tuple[Entries, Entries]] = []
        self.groups: list[Entries] = []
        self.pins: list[tuple[Entries, str]] = []
        self.all: list[Feature] = []
        self.written: list[tuple[int, int, str]] = []  # entries from, to, and who writes them
        self.lazies: list[Lazy] = []
        self.lengths = False  # whether the lengths of columns matter

    def _new(self, n: int, writer: str) -> Entries:
        start = self.count
        self.count += n
        self.written.append((start, start + n, writer))
        return np.arange(start, start + n)

    def _unite(self, a: Entries, b: Entries) -> None:
        if len(a) != len(b):
            raise ValueError(f"{len(a)} entries cannot be united with {len(b)}")
        self.united.append((a, b))

    def roots(self) -> Entries:
        """The representative of every entry: the smallest number it is united with.

        >>> features = Features()
        >>> a, b, c = (features._new(2, name) for name in "abc")
        >>> features._unite(b, a), features._unite(b, c[::-1])
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

    def measure(self, lengths: bool) -> None:
        """Say whether lengths of columns matter; spans that were computed otherwise are forgotten."""
        if lengths != self.lengths:
            self.lengths = lengths
            for lazy in self.lazies:
                lazy.made = None

    def pin(self, feature: Feature | None, why: str) -> None:
        """These entries must stay as they are."""
        if feature is not None:
            self.pins.append((feature.entries, why))

    def _feature(
        self, entries: Entries, dim: int, inner: int, lazy: Lazy, made_of: Sequence[Ingredient] = ()
    ) -> Feature:
        self.groups.append(entries)
        self.lazies.append(lazy)
        made = Feature(entries, dim, inner, lazy, list(made_of))
        self.all.append(made)
        return made
