"""What every step of a program does to features: who writes and who reads each space, and which cannot change.

A sum or a radial activation unites the entries of its features, a block or a concatenation groups them, and a layer
maps the set of what can stand there. A step that is not known pins the features it touches, with a reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..rescaling import block_sizes
from .features import Entries, Feature, Features
from .program import CHANGED, Step, Value
from .spans import AffineSet, stacked, thinned

Hulls = Mapping[tuple[str, int], AffineSet]  # what can stand along an axis of a value that has no basis of its own


@dataclass(eq=False)
class Use:
    """A module or parameter at one place: the features it reads and writes (None: not tracked)."""

    step: Step
    reads: Feature | None
    writes: Feature | None


class Analysis(Features):
    """The features of a program, step by step; see the top of the file."""

    def __init__(self, steps: Sequence[Step], parameters: Mapping[str, Tensor], hulls: Hulls) -> None:
        super().__init__()
        self.parameters, self.hulls = parameters, dict(hulls)
        self.features: dict[Value, Feature | None] = {}
        self.uses: list[Use] = []
        self.radial: list[tuple[Step, Feature, list[Entries], Feature]] = []
        for step in steps:
            feature = self._take(step)
            if step.output is not None:
                self.features[step.output] = feature
        self._unite_calls()

    def _unite_calls(self) -> None:
        """A module that is used in several places reads and writes the same coordinates everywhere."""
        by_path: dict[str, list[Use]] = {}
        for use in self.uses:
            by_path.setdefault(use.step.path or use.step.name, []).append(use)
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
        if not step.changed:
            return found
        self.pin(found, f"{step.name} {CHANGED}")
        return None

    def _inputs(self, step: Step) -> list[Feature | None]:
        return [self.features.get(value) for value in step.inputs]

    def _unknown(self, step: Step) -> Feature | None:
        who = step.name if step.module is None else f"{step.name} ({type(step.module).__name__})"
        why = f"{who} {step.options.get('why', 'does not commute with a change of basis')}"
        for feature in self._inputs(step):
            self.pin(feature, why)
        return None

    def _input(self, step: Step) -> None:
        return None

    def _output(self, step: Step) -> None:
        for feature in self._inputs(step):
            self.pin(feature, "it is an output of the model")

    def _span_of(self, value: Value, feature: Feature | None, n: int, dim: int) -> AffineSet:
        if feature is not None:
            return feature.span
        hull = self.hulls.get((value.name, dim))
        return AffineSet.everything(n, ("value", value.name, dim)) if hull is None else hull

    def _linear(self, step: Step) -> Feature | None:
        m: Any = step.module
        (value,), feature = step.inputs, self._inputs(step)[0]
        last = len(value.shape) - 1
        if feature is not None and feature.dim != last:
            self.pin(feature, f"{step.name} (Linear) mixes its positions")
            feature, span = None, AffineSet.everything(m.in_features, ("value", value.name, last))
        else:
            span = self._span_of(value, feature, m.in_features, last)
        W, b = double(m.weight), None if m.bias is None else double(m.bias)
        if feature is not None and feature.inner > 1:  # each position of the flattened axis is a source of its own
            parts = W.reshape(len(W), -1, feature.inner)
            pieces = [span.renamed((step.name, k)).mapped(parts[:, :, k], None) for k in range(feature.inner)]
            image = pieces[0]
            for piece in pieces[1:]:
                image = image.plus(piece)
            image = image if b is None else AffineSet(image.n, b if image.c is None else image.c + b, image.parts)
        else:
            image = span.mapped(W, b)
        out = self._write(step, image, len(step.made.shape) - 1)
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
        W = double(m.weight).flatten(2)
        b = None if m.bias is None else double(m.bias)
        span = self._span_of(value, feature, m.in_channels, 1)
        zeros = padded_with_zeros(m)
        image = AffineSet(m.out_channels, b)
        geometry = (m.kernel_size, m.stride, m.dilation, m.padding, m.padding_mode)
        for k in range(W.shape[2]):
            tap = span.renamed(("tap", geometry, k))
            tap = tap.with_constant_as_direction(("edge", geometry, k, value.name)) if zeros else tap
            image = image.plus(tap.mapped(W[:, :, k], None))
        out = self._write(step, image, 1)
        self.uses.append(Use(step, feature, out))
        return out

    def _write(self, step: Step, image: AffineSet, dim: int) -> Feature:
        image = image.limited(("written by", step.name, len(self.all)))
        return self._feature(self._new(image.n, step.name), dim, 1, image)

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
        rows = double(table).reshape(-1, table.shape[-1])
        c = rows[0].clone()
        image = _thin(AffineSet(rows.shape[1], c, {source: (rows - c).mT} if len(rows) > 1 else {}))
        out = self._feature(self._new(image.n, step.name), dim, 1, image)
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
        return self._feature(
            feature.entries, feature.dim, feature.inner, feature.span.scaled(factor), [(feature, factor)]
        )

    def _add(self, step: Step) -> Feature | None:
        (a, b), (x, y), signs = self._inputs(step), step.inputs, step.options["signs"]
        ndim = len(step.made.shape)
        if a is None or b is None or not self._alike(a, x, b, y, ndim):
            other = "something that is not followed" if a is None or b is None else "something of another shape"
            for feature in (a, b):
                self.pin(feature, f"{step.name} adds {other}")
            return None
        self._unite(a.entries, b.entries)
        spans = [
            f.span if v.shape == step.made.shape else f.span.renamed(("spread", v.shape)) for f, v in ((a, x), (b, y))
        ]
        span = spans[0].scaled(signs[0]).plus(spans[1].scaled(signs[1]))
        span = span.limited(("sum", step.name, len(self.all)))
        return self._feature(a.entries, ndim - len(x.shape) + a.dim, a.inner, span, [(a, signs[0]), (b, signs[1])])

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
        made = [(f, 1.0) for f in parts]
        return self._feature(np.concatenate([f.entries for f in parts]), dim, 1, stacked(f.span for f in parts), made)

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
        columns, c = feature.span.columns, None
        if isinstance(m, nn.LayerNorm):
            columns = columns - columns.mean(dim=0)
            c = None if m.bias is None else double(m.bias)
        gain: Any = getattr(m, "weight", None)
        if gain is not None:
            columns = double(gain).unsqueeze(1) * columns
        source = ("normed by", step.name, len(self.all))
        image = _thin(AffineSet(len(columns), c, {source: columns})).limited(source)
        self.hulls[step.made.name, last] = image

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
        return self._feature(feature.entries, start, inner, feature.span, [(feature, 1.0)])

    def _moved(self, feature: Feature, dim: int, how: Hashable) -> Feature:
        """The same entries with their positions in another order, so that sources are others there."""
        return self._feature(feature.entries, dim, feature.inner, feature.span.renamed(how), [(feature, 1.0)])

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
        span = feature.span.renamed(key)
        span = span.with_constant_as_direction(key) if zeros else span
        out = self._feature(feature.entries, dim, 1, span, [(feature, 1.0)])
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
        columns = feature.span.columns
        pieces = []
        for k, (a, b) in enumerate(itertools.pairwise(bounds)):
            piece = AffineSet(int(b - a), None, {("rescaled by", step.name, len(self.all), k): columns[a:b]})
            pieces.append(_thin(piece).limited(("rescaled by", step.name, len(self.all), k)))
        out = self._feature(feature.entries, feature.dim, feature.inner, stacked(pieces))
        self.radial.append((step, feature, blocks, out))
        return out


def double(x: Tensor) -> Tensor:
    """In float64 on the CPU, where the algebra is done."""
    return x.detach().to("cpu", torch.float64)


def padded_with_zeros(m: Any) -> bool:
    """Whether a convolution sees zeros beyond the edge."""
    if m.padding_mode != "zeros":
        return False
    if isinstance(m.padding, str):
        return bool(m.padding != "valid") and any(k > 1 for k in m.kernel_size)
    return any(p > 0 for p in m.padding)


def _thin(image: AffineSet) -> AffineSet:
    """Replace many columns of one source by as few as their rank."""
    parts = {s: thinned(M) if M.shape[1] > 1 else M for s, M in image.parts.items()}
    return AffineSet(image.n, image.c, parts)
