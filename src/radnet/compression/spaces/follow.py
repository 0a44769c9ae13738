"""Follow the features of a program from step to step: who writes and reads each space, and which cannot change.

Every operation says what it does (`Operation.follow`), with what it finds here: a sum or a radial activation unites
the entries of its features, a block or a concatenation groups them, and a layer maps the set of what can stand there. A
step that is not known pins the features it touches, with a reason. The sets themselves are computed only when a space
asks for them. The steps may be those of several traces of one model: values are told apart by what they are and not by
their names.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ...errors import InvalidValue
from ..program import NOT_EQUIVARIANT, Step, Value
from ..reasons import Cause, Reason, Why
from .features import Entries, Feature, Features, Ingredient
from .spans import AffineSet, Lazy, Names

if TYPE_CHECKING:
    from jaxtyping import Float

Hulls = Mapping[tuple[str, int], AffineSet]  # by name and axis of an input: what can stand along that axis


@dataclass(frozen=True, eq=False)
class Use:
    """A layer or parameter at one place: the features it reads and writes (None: not tracked).

    ``at_edges`` says whether it sees zeros beyond the edge of what it reads, where a constant ends; ``table`` is the
    tensor of a parameter that stands by itself.
    """

    step: Step
    reads: Feature | None
    writes: Feature | None
    at_edges: bool = False
    table: Float[Tensor, "*rows n"] | None = None

    @property
    def owner(self) -> str:
        """The module or parameter, by its path in the model."""
        return self.step.path or self.step.name

    @property
    def bare(self) -> Float[Tensor, "*rows n"]:
        """The tensor of a parameter that stands by itself."""
        if self.table is None:
            raise ValueError(f"{self.owner} is no parameter by itself")
        return self.table


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A radial activation at one place: what it reads, block by block, and what it makes."""

    step: Step
    reads: Feature
    blocks: tuple[Entries, ...]
    makes: Feature


class Analysis:
    """The features of a program, step by step; see the top of the file. Nothing is written to it once it is made.

    Parameters
    ----------
    steps : sequence of Step
        Of one program, or of several one after the other.
    parameters : mapping
        By name: tensors that stand in the program by themselves.
    hulls : mapping
        What is known of the inputs.
    lengths : bool
        Whether the lengths of directions matter, as they do with a tolerance.
    kept : mapping
        For norm layers that their neighbours could not take over, by path: why.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        parameters: Mapping[str, Tensor],
        hulls: Hulls,
        lengths: bool = False,
        kept: Mapping[str, Cause] | None = None,
    ) -> None:
        self.parameters, self.lengths = parameters, lengths
        self.kept: Mapping[str, Cause] = {} if kept is None else kept
        self.features = Features()
        self.of: dict[Value, Feature | None] = {}  # the feature of every value
        self.uses: list[Use] = []
        self.radial: list[Rescaled] = []
        self.in_place: set[Feature] = set()  # made where another value stood
        self.names = Names()
        self._hulls = dict(hulls)
        self._given: set[Value] = set()  # the inputs of the model
        self._known: dict[tuple[Value, int], Lazy] = {}  # what can stand along an axis that has no basis of its own
        for step in steps:
            feature = self._followed(step)
            if step.output is not None:
                self.of[step.output] = feature
            if step.in_place and feature is not None:
                self.in_place.add(feature)
        self._unite_calls()

    def _followed(self, step: Step) -> Feature | None:
        try:
            return step.operation.follow(step, self)
        except Exception as error:
            raise InvalidValue(
                f"{step.who}: the operation {type(step.operation).__name__} does not say what it does "
                f"({type(error).__name__}: {error})"
            ) from error

    def _unite_calls(self) -> None:
        """A module that is used in several places reads and writes the same coordinates everywhere."""
        by_path: dict[str, list[Use]] = {}
        for use in self.uses:
            by_path.setdefault(use.owner, []).append(use)
        for path, uses in by_path.items():
            for features in ([use.reads for use in uses], [use.writes for use in uses]):
                followed = [f for f in features if f is not None]
                if len(followed) < len(features) or len({f.inner for f in followed}) > 1:
                    for f in followed:
                        self.pin(f, Why(Reason.SEVERAL_PLACES, path))
                else:
                    for f in followed[1:]:
                        self.features.unite(followed[0].entries, f.entries)

    # --- for operations: what arrives

    def inputs(self, step: Step) -> list[Feature | None]:
        """The features of the values that a step reads."""
        return [self.of.get(value) for value in step.inputs]

    def arriving(self, step: Step) -> Feature | None:
        """The feature of the first of them."""
        return self.of.get(step.inputs[0]) if step.inputs else None

    def span_of(self, value: Value, feature: Feature | None, n: int, dim: int) -> Lazy:
        """What can stand along an axis of a value, of length n: of its feature, of an input, or anything."""
        if feature is not None:
            return feature.lazy
        hull = self._hulls.get((value.name, dim)) if value in self._given else None
        if hull is not None and hull.n == n:
            return Lazy(lambda: hull)
        return self._known.get((value, dim)) or self.anything(n, ("value", value, dim))

    def anything(self, n: int, source: Hashable) -> Lazy:
        """All of R^n."""
        return Lazy(lambda: AffineSet.everything(n, source))

    # --- for operations: what they make

    def given(self, value: Value) -> None:
        """Note an input of the model."""
        self._given.add(value)

    def known(self, value: Value, dim: int, span: Lazy) -> None:
        """Note what can stand along an axis of a value that is not followed."""
        self._known[value, dim] = span

    def pin(self, feature: Feature | None, why: Why) -> None:
        """What stands there must stay as it is."""
        self.features.pin(feature, why)

    def unknown(self, step: Step, cause: Cause = NOT_EQUIVARIANT) -> Feature | None:
        """Pin all that a step reads; what it makes is not followed, so this gives None."""
        for feature in self.inputs(step):
            self.pin(feature, Why(cause.reason, step.who, cause.detail))
        return None

    def source(self, what: str, step: Step) -> tuple[str, str, int]:
        """A source of a step's own."""
        return (what, step.name, len(self.features.all))

    def write(self, step: Step, n: int, image: Lazy, dim: int) -> Feature:
        """New entries that a layer writes."""
        source = self.source("written by", step)
        limited = Lazy(lambda: image.get().limited(source, self.lengths), (image,))
        return self.features.feature(self.features.new(n, step.name), dim, 1, limited)

    def fixed(self, value: Value, dim: int) -> Feature:
        """A value that has no basis of its own as a part of something that has: a space that stays as it is."""
        n = value.shape[dim]
        feature = self.features.feature(self.features.new(n, value.name), dim, 1, self.span_of(value, None, n, dim))
        self.pin(feature, Why(Reason.NOT_FOLLOWED, value.name))
        return feature

    def scaled(self, feature: Feature, factor: float) -> Feature:
        """A multiple."""
        span = Lazy(lambda: feature.span.scaled(factor), (feature.lazy,))
        return self.features.feature(feature.entries, feature.dim, feature.inner, span, [Ingredient(feature, factor)])

    def moved(self, feature: Feature, dim: int, how: Hashable) -> Feature:
        """The same entries with their positions in another order, so that sources are others there."""
        span = Lazy(lambda: feature.span.renamed(how, self.names), (feature.lazy,))
        return self.features.feature(feature.entries, dim, feature.inner, span, [Ingredient(feature, 1.0)])

    def mixed(self, step: Step, feature: Feature, dim: int, zeros: bool) -> Feature:
        """A mixture of positions; with zeros among them the constant is not constant any more."""
        key = self.source("mixed by", step)

        def span() -> AffineSet:
            mixed = feature.span.renamed(key, self.names)
            return mixed.with_constant_as_direction(key) if zeros else mixed

        lazy = Lazy(span, (feature.lazy,))
        out = self.features.feature(feature.entries, dim, 1, lazy, [Ingredient(feature, 1.0)])
        out.uniform = not zeros
        return out

    def roots(self) -> Entries:
        """The representative of every entry; see `Features.roots`."""
        return self.features.roots()


def blocks_of(feature: Feature, bounds: Entries) -> tuple[Entries, ...]:
    """The entries of a feature between the bounds."""
    return tuple(feature.entries[a:b] for a, b in itertools.pairwise(bounds))


def cumulated(sizes: Sequence[int]) -> Entries:
    """Where parts of these sizes begin and end, one after the other.

    >>> cumulated([2, 3]).tolist()
    [0, 2, 5]
    """
    return np.cumsum([0, *sizes])
