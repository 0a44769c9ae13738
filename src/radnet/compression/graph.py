"""What every step of a program does to features: who writes and who reads each space, and which cannot change.

A sum or a radial activation unites the entries of its features, a block or a concatenation groups them, and a layer
maps the set of what can stand there. A step that is not known pins the features it touches, with a reason. The sets
themselves are computed only when a space asks for them. The steps may be those of several traces of one model: values
are told apart by what they are and not by their names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..rescaling import block_sizes
from .features import Entries, Feature, Features, Ingredient
from .memory import Step, Value
from .ranks import Columns
from .spans import AffineSet, Lazy, Names, Part, double, stacked, total

__all__ = ["Analysis", "Hulls", "Use", "double", "padded_with_zeros"]

Hulls = Mapping[tuple[str, int], AffineSet]  # by name and axis of an input: what can stand along that axis


@dataclass(eq=False)
class Use:
    """A module or parameter at one place: the features it reads and writes (None: not tracked)."""

    step: Step
    reads: Feature | None
    writes: Feature | None

    @property
    def owner(self) -> str:
        """The module or parameter, by its path in the model."""
        return self.step.path or self.step.name


class Analysis(Features):
    """The features of a program, step by step; see the top of the file."""

    def __init__(self, steps: Sequence[Step], parameters: Mapping[str, Tensor], hulls: Hulls) -> None:
        super().__init__()
        self.parameters, self.hulls = parameters, dict(hulls)
        self.features: dict[Value, Feature | None] = {}
        self.uses: list[Use] = []
        self.radial: list[tuple[Step, Feature, list[Entries], Feature]] = []
        self.in_place: set[Feature] = set()  # made where another value stood
        self.names = Names()
        self._given: set[Value] = set()  # the inputs of the model
        self._known: dict[tuple[Value, int], Lazy] = {}  # what can stand along an axis that has no basis of its own
        for step in steps:
            feature = self._take(step)
            if step.output is not None:
                self.features[step.output] = feature
            if step.in_place and feature is not None:
                self.in_place.add(feature)
        self._unite_calls()

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
                        self.pin(f, f"{path} is used in several places, and not all of them are followed")
                else:
                    for f in followed[1:]:
                        self._unite(followed[0].entries, f.entries)

    def _take(self, step: Step) -> Feature | None:
        handler = getattr(self, f"_{step.kind}", None)
        if handler is None:
            return self._unknown(step)
        found: Feature | None = handler(step)
        return found

    def _inputs(self, step: Step) -> list[Feature | None]:
        return [self.features.get(value) for value in step.inputs]

    def _unknown(self, step: Step) -> Feature | None:
        who = step.name if step.module is None else f"{step.name} ({type(step.module).__name__})"
        why = f"{who} {step.options.get('why', 'does not commute with a change of basis')}"
        for feature in self._inputs(step):
            self.pin(feature, why)
        return None

    def _input(self, step: Step) -> None:
        if step.output is not None:
            self._given.add(step.output)

    def _output(self, step: Step) -> None:
        for feature in self._inputs(step):
            self.pin(feature, "it is an output of the model")

    def _lazy(self, make: Callable[[], AffineSet], *needs: Lazy) -> Lazy:
        lazy = Lazy(make, needs)
        self.lazies.append(lazy)
        return lazy

    def _span_of(self, value: Value, feature: Feature | None, n: int, dim: int) -> Lazy:
        if feature is not None:
            return feature.lazy
        hull = self.hulls.get((value.name, dim)) if value in self._given else None
        if hull is not None and hull.n == n:
            return self._lazy(lambda: hull)
        return self._known.get((value, dim)) or self._anything(n, ("value", value, dim))

    def _anything(self, n: int, source: Hashable) -> Lazy:
        return self._lazy(lambda: AffineSet.everything(n, source))

    def _linear(self, step: Step) -> Feature | None:
        m: Any = step.module
        (value,), feature = step.inputs, self._inputs(step)[0]
        last = len(value.shape) - 1
        if feature is not None and feature.dim != last:
            self.pin(feature, f"{step.name} (Linear) mixes its positions")
            feature, span = None, self._anything(m.in_features, ("value", value, last))
        else:
            span = self._span_of(value, feature, m.in_features, last)
        W, b, inner = m.weight, m.bias, 1 if feature is None else feature.inner

        def image() -> AffineSet:
            read = span.get()  # each position of a flattened axis is a source of its own
            return (read if inner == 1 else read.renamed(("positions", inner), self.names)).mapped(W, b, inner)

        out = self._write(step, m.out_features, self._lazy(image, span), len(step.made.shape) - 1)
        self.uses.append(Use(step, feature, out))
        return out

    def _conv(self, step: Step) -> Feature | None:
        m: Any = step.module
        (value,), feature = step.inputs, self._inputs(step)[0]
        taps = m.weight.ndim - 2
        if len(value.shape) != taps + 2 or (feature is not None and (feature.dim != 1 or feature.inner != 1)):
            self.pin(feature, f"{step.name} reads another axis than the one that is followed")
            self.uses.append(Use(step, None, None))
            return None
        W, b, zeros = m.weight.flatten(2), m.bias, padded_with_zeros(m)
        span = self._span_of(value, feature, m.in_channels, 1)
        geometry = (m.kernel_size, m.stride, m.dilation, m.padding, m.padding_mode)

        def image() -> AffineSet:
            seen = [AffineSet(m.out_channels, None if b is None else double(b))]
            for k in range(W.shape[2]):
                tap = span.get().renamed(("tap", geometry, k), self.names)
                tap = tap.with_constant_as_direction(("edge", geometry, k, value)) if zeros else tap
                seen.append(tap.mapped(W[:, :, k], None))
            return total(seen)

        out = self._write(step, m.out_channels, self._lazy(image, span), 1)
        self.uses.append(Use(step, feature, out))
        return out

    def _write(self, step: Step, n: int, image: Lazy, dim: int) -> Feature:
        source = ("written by", step.name, len(self.all))
        limited = self._lazy(lambda: image.get().limited(source, self.lengths), image)
        return self._feature(self._new(n, step.name), dim, 1, limited)

    def _embedding(self, step: Step) -> Feature | None:
        m: Any = step.module
        return self._table(step, m.weight, len(step.made.shape) - 1, ("row of", step.name, len(self.all)))

    def _parameter(self, step: Step) -> Feature | None:
        p = self.parameters.get(step.name)
        if p is None or p.ndim == 0 or not p.is_floating_point():
            return None
        return self._table(step, p, p.ndim - 1, ("row of", step.name))

    def _table(self, step: Step, table: Tensor, dim: int, source: Hashable) -> Feature:
        """A tensor whose rows are all that can stand there."""
        step.options["tensor"] = table
        n = table.shape[-1]

        def image() -> AffineSet:
            rows = double(table).reshape(-1, n)
            c = rows[0].clone()
            return AffineSet(n, c, {source: (rows[1:] - c).mT} if len(rows) > 1 else {}).thinned(self.lengths)

        out = self._feature(self._new(n, step.name), dim, 1, self._lazy(image))
        self.uses.append(Use(step, None, out))
        return out

    def _same(self, step: Step) -> Feature | None:
        return self._inputs(step)[0]

    def _scale(self, step: Step) -> Feature | None:
        feature, factor = self._inputs(step)[0], step.options["factor"]
        if feature is None:
            return None
        if not np.isfinite(factor):
            return self._unknown(step)
        span = self._lazy(lambda: feature.span.scaled(factor), feature.lazy)
        return self._feature(feature.entries, feature.dim, feature.inner, span, [Ingredient(feature, factor)])

    def _add(self, step: Step) -> Feature | None:
        (a, b), (x, y), signs = self._inputs(step), step.inputs, step.options["signs"]
        ndim = len(step.made.shape)
        if a is None or b is None or not self._alike(a, x, b, y, ndim):
            other = "something that is not followed" if a is None or b is None else "something of another shape"
            for feature in (a, b):
                self.pin(feature, f"{step.name} adds {other}")
            return None
        self._unite(a.entries, b.entries)
        source, terms = ("sum", step.name, len(self.all)), list(zip((a, b), (x, y), signs, strict=True))

        def span() -> AffineSet:
            spread = (
                f.span if v.shape == step.made.shape else f.span.renamed(("spread", v.shape), self.names)
                for f, v, _ in terms
            )
            scaled = [one.scaled(sign) for one, (_, _, sign) in zip(spread, terms, strict=True)]
            return total(scaled).limited(source, self.lengths)

        dim = ndim - len(x.shape) + a.dim
        made_of = [Ingredient(a, signs[0]), Ingredient(b, signs[1])]
        return self._feature(a.entries, dim, a.inner, self._lazy(span, a.lazy, b.lazy), made_of)

    @staticmethod
    def _alike(a: Feature, x: Value, b: Feature, y: Value, ndim: int) -> bool:
        same_axis = ndim - len(x.shape) + a.dim == ndim - len(y.shape) + b.dim
        return same_axis and a.inner == b.inner and len(a.entries) == len(b.entries)

    def _cat(self, step: Step) -> Feature | None:
        features = self._inputs(step)
        dim = step.options["dim"] % len(step.made.shape)
        followed = [f for f in features if f is not None]
        if not followed or any(f.dim != dim or f.inner != 1 for f in followed):
            for f in followed:
                self.pin(f, f"{step.name} joins it along another axis")
            return None
        parts = [self._fixed(value, dim) if f is None else f for f, value in zip(features, step.inputs, strict=True)]
        starts = np.cumsum([0, *(len(f.entries) for f in parts)])
        made = [Ingredient(f, 1.0, int(start)) for f, start in zip(parts, starts, strict=False)]
        span = self._lazy(lambda: stacked(f.span for f in parts), *(f.lazy for f in parts))
        return self._feature(np.concatenate([f.entries for f in parts]), dim, 1, span, made)

    def _fixed(self, value: Value, dim: int) -> Feature:
        """A value that has no basis of its own as a part of something that has: a space that stays as it is."""
        n = value.shape[dim]
        feature = self._feature(self._new(n, value.name), dim, 1, self._span_of(value, None, n, dim))
        self.pin(feature, f"{value.name} is not followed")
        return feature

    def _norm(self, step: Step) -> None:
        """A norm layer that its neighbours could not take over: it pins, but what comes out is known."""
        feature, (value,), m = self._inputs(step)[0], step.inputs, step.module
        self._unknown(step)
        last = len(value.shape) - 1
        if feature is None or feature.dim != last or feature.inner != 1:
            return
        source = ("normed by", step.name, len(self.all))
        gain, bias = getattr(m, "weight", None), getattr(m, "bias", None)
        centred = isinstance(m, nn.LayerNorm)

        def normed() -> AffineSet:
            if not centred and gain is None and feature.span.is_full:
                return AffineSet.everything(feature.span.n, source)
            M, size = feature.span.at(slice(0, feature.span.n), constant=True)
            size = M.abs() if size is None else size
            if centred:
                M, size = M - M.mean(dim=0), size + size.mean(dim=0)
            if gain is not None:
                M, size = (double(g).unsqueeze(1) * A for g, A in ((gain, M), (gain.abs(), size)))
            c = double(bias) if centred and bias is not None else None
            return AffineSet(len(M), c, {source: Part(len(M), M, size=size)}).thinned(self.lengths)

        self._known[step.made, last] = self._lazy(normed, feature.lazy)

    def _flatten(self, step: Step) -> Feature | None:
        feature, (value,) = self._inputs(step)[0], step.inputs
        if feature is None:
            return None
        ndim = len(value.shape)
        start, end = step.options["start"] % ndim, step.options["end"] % ndim
        if feature.dim < start and step.options.get("given"):  # its length may be a number in the program
            return self._unknown(step)
        if feature.dim < start or feature.dim > end:
            shift = end - start if feature.dim > end else 0
            return self._moved(feature, feature.dim - shift, ("flattened", start, end, value.shape))
        if feature.dim != start or end != ndim - 1:
            return self._unknown(step)
        inner = feature.inner * int(np.prod(value.shape[start + 1 : end + 1]))
        return self._feature(feature.entries, start, inner, feature.lazy, [Ingredient(feature, 1.0)])

    def _moved(self, feature: Feature, dim: int, how: Hashable) -> Feature:
        """The same entries with their positions in another order, so that sources are others there."""
        span = self._lazy(lambda: feature.span.renamed(how, self.names), feature.lazy)
        return self._feature(feature.entries, dim, feature.inner, span, [Ingredient(feature, 1.0)])

    def _slice(self, step: Step) -> Feature | None:
        feature, (value,) = self._inputs(step)[0], step.inputs
        if feature is None:
            return None
        dims, dropped = ([d % len(value.shape) for d in step.options[key]] for key in ("dims", "dropped"))
        if feature.dim in (*dims, *dropped):
            return self._unknown(step)
        dim = feature.dim - sum(d < feature.dim for d in dropped)
        return self._moved(feature, dim, ("sliced", step.name, len(self.all)))

    def _size(self, step: Step) -> None:
        feature, (value,) = self._inputs(step)[0], step.inputs
        if feature is not None and any(d % len(value.shape) == feature.dim for d in step.options["dims"]):
            self.pin(feature, f"{step.name} asks for its length")

    def _permute(self, step: Step) -> Feature | None:
        feature, (value,) = self._inputs(step)[0], step.inputs
        order = [d % len(value.shape) for d in step.options["dims"]]
        return None if feature is None else self._moved(feature, order.index(feature.dim), ("permuted", *order))

    def _transpose(self, step: Step) -> Feature | None:
        feature, (value,) = self._inputs(step)[0], step.inputs
        if feature is None:
            return None
        a, b = (d % len(value.shape) for d in step.options["dims"])
        return self._moved(feature, {a: b, b: a}.get(feature.dim, feature.dim), ("transposed", a, b))

    def _pool(self, step: Step) -> Feature | None:
        feature = self._inputs(step)[0]
        if feature is None:
            return None
        if feature.dim != 1 or feature.inner != 1:
            return self._unknown(step)
        return self._mixed(step, feature, 1, step.options["zeros"])

    def _mean(self, step: Step) -> Feature | None:
        feature, (value,) = self._inputs(step)[0], step.inputs
        if feature is None:
            return None
        dims = [d % len(value.shape) for d in step.options["dims"]]
        if feature.dim in dims or feature.inner != 1:
            return self._unknown(step)
        shift = 0 if step.options["keepdim"] else sum(d < feature.dim for d in dims)
        return self._mixed(step, feature, feature.dim - shift, False)

    def _mixed(self, step: Step, feature: Feature, dim: int, zeros: bool) -> Feature:
        """A mixture of positions; with zeros among them the constant is not constant any more."""
        key: Hashable = ("mixed by", step.name, len(self.all))

        def span() -> AffineSet:
            mixed = feature.span.renamed(key, self.names)
            return mixed.with_constant_as_direction(key) if zeros else mixed

        out = self._feature(feature.entries, dim, 1, self._lazy(span, feature.lazy), [Ingredient(feature, 1.0)])
        out.uniform = not zeros
        return out

    def _radial(self, step: Step) -> Feature | None:
        m: Any = step.module
        feature, (value,) = self._inputs(step)[0], step.inputs
        if feature is None:
            return None
        if m.dim % len(value.shape) != feature.dim:
            return self._unknown(step)
        n = len(feature.entries)
        sizes = block_sizes(m.blocks, n * feature.inner) if m.blocks is not None else [n * feature.inner]
        if len(sizes) > 1 and feature.inner > 1:
            return self._unknown(step)
        bounds = np.cumsum([0, *sizes]) // feature.inner
        blocks = [feature.entries[a:b] for a, b in itertools.pairwise(bounds)]
        self.groups += blocks
        source = ("rescaled by", step.name, len(self.all))
        span = self._lazy(lambda: _rescaled(feature.span, bounds, source, self.lengths), feature.lazy)
        out = self._feature(feature.entries, feature.dim, feature.inner, span)
        self.radial.append((step, feature, blocks, out))
        return out


def _rescaled(span: AffineSet, bounds: Entries, source: Hashable, lengths: bool) -> AffineSet:
    """What comes out of a radial activation with blocks between the bounds: in each the span of what arrives."""
    if span.is_full and not lengths:
        return AffineSet.everything(span.n, source)
    pieces = []
    for k, (a, b) in enumerate(itertools.pairwise(bounds)):
        rows = slice(int(a), int(b))
        part = Part(rows.stop - rows.start)
        if lengths or not span.fills(rows):
            columns: Columns = span.at(rows, constant=True)
            part = Part(part.rows, columns.M, size=columns.size).thinned(lengths)
        pieces.append(AffineSet(part.rows, None, {(source, k): part}))
    if all(piece.is_full for piece in pieces) and not lengths:
        return AffineSet.everything(span.n, source)
    return stacked(pieces)


def padded_with_zeros(m: Any) -> bool:
    """Whether a convolution sees zeros beyond the edge."""
    if m.padding_mode != "zeros":
        return False
    if isinstance(m.padding, str):
        return bool(m.padding != "valid") and any(k > 1 for k in m.kernel_size)
    return any(p > 0 for p in m.padding)
