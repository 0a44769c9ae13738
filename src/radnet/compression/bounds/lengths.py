"""Lengths of vectors and of rows, and how steps stretch them: the arithmetic of `bounds` (docs/bounds.md)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..spaces.spans import double

if TYPE_CHECKING:
    from jaxtyping import Float

ConvNd = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Lengths:
    """Bounds on the Euclidean norm of each vector along the feature axis, and of a whole row."""

    each: float
    row: float

    def times(self, each: float, row: float | None = None) -> Lengths:
        """Both stretched; nothing stays nothing, however far it is stretched."""
        return Lengths(product(self.each, each), product(self.row, each if row is None else row))

    def plus(self, other: Lengths) -> Lengths:
        """Of a sum."""
        return Lengths(self.each + other.each, self.row + other.row)

    def least(self, other: Lengths) -> Lengths:
        """What both say."""
        return Lengths(min(self.each, other.each), min(self.row, other.row))

    def tightened(self, positions: float) -> Lengths:
        """A vector is no longer than its row, a row no longer than the root of its positions times its vectors."""
        return Lengths(min(self.each, self.row), min(self.row, product(self.each, math.sqrt(positions))))


NONE = Lengths(0.0, 0.0)
ANY = Lengths(math.inf, math.inf)
LOST = -1


@dataclass(frozen=True)
class Size:
    """What is known of a value: lengths of v, of v less its constant, of its error; which axis is rows, which features.

    ``axis=None``: a vector is a whole row. ``rows=None``: the same for all rows, of which each sees all of it.
    ``rows=LOST``: what belongs to one row is not known. ``bare`` bounds v - U y, where that is known better than by the
    error and r. ``why`` says why the error has no bound.
    """

    norm: Lengths
    spread: Lengths
    error: Lengths
    rows: int | None = None
    axis: int | None = None
    bare: Lengths | None = None
    why: str = ""

    def mapped(self, f: Callable[[Lengths], Lengths], **axes: int | None) -> Size:
        """A linear map of positions, which stretches lengths by f and takes constants to constants; other axes."""
        size = dataclasses.replace(self, norm=f(self.norm), spread=f(self.spread), error=f(self.error), bare=None)
        return dataclasses.replace(size, **axes)  # type: ignore[arg-type]

    def scaled(self, factor: float) -> Size:
        """A multiple."""
        return self.mapped(lambda s: s.times(factor))

    def along(self, axis: int | None) -> Size:
        """Vectors along another axis: all that is known of them is that they are no longer than the row."""
        return self if axis == self.axis else self.mapped(lambda s: Lengths(s.row, s.row), axis=axis)

    def lost(self) -> Size:
        """Rows that are mixed: each vector is as long as before, and nothing is known of a row."""
        return self if self.rows is None else self.mapped(lambda s: s.times(1.0, math.inf), rows=LOST)


class Stretch:
    """How far ``sum over taps of A_k u_(p + k)`` stretches u, for A of shape (out, in, taps); one tap is a matrix.

    ``seen`` says through how many windows and taps a position is seen at most, ``once`` that it is seen at most once in
    a window and at most once through a tap.
    """

    def __init__(self, A: Float[Tensor, " out in taps"], seen: int = 1, *, once: bool = True) -> None:
        self.taps, self.seen, self.once = A.shape[2], seen, once
        self.whole = spectral_norm(A.flatten(1))
        self.apart = sum(spectral_norm(A[:, :, k]) for k in range(self.taps)) if self.taps > 1 else self.whole

    def __call__(self, u: Lengths) -> Lengths:
        """Lengths afterwards."""
        window = min(product(math.sqrt(self.taps), u.each), u.row if self.once else math.inf)
        each = min(product(self.whole, window), product(self.apart, u.each))
        row = product(self.whole * math.sqrt(self.seen), u.row)
        return Lengths(each, min(row, product(self.apart, u.row)) if self.once else row)


def repeated(size: Size, before: Sequence[int], after: Sequence[int]) -> Size:
    """Of a value that is broadcast: how often each entry appears in a vector, and in a row."""
    copies = [b // a if a else 1 for a, b in zip(before, after, strict=True)]
    each = 1 if size.axis is None else copies[size.axis]
    row = math.prod(k for d, k in enumerate(copies) if d != size.rows)
    return size.mapped(lambda s: s.times(math.sqrt(row if size.axis is None else each), math.sqrt(row)))


def positions(shape: Sequence[int], rows: int | None, axis: int | None) -> float:
    """How many vectors there are in a row; one if a row is a vector."""
    if rows == LOST:
        return math.inf
    return 1 if axis is None else math.prod(k for d, k in enumerate(shape) if d not in (rows, axis))


def times_seen(m: ConvNd, space: Sequence[int]) -> int:
    """The most windows and taps through which a convolution sees one position."""
    ones = torch.ones(1, 1, *m.kernel_size, dtype=torch.float64)

    def same(z: Tensor) -> Tensor:
        seen: Tensor = m._conv_forward(z, ones, None)
        return seen

    return round(float(gradient_of_sum(same, (1, 1, *space)).max()))


def gradient_of_sum(f: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Tensor:
    """For a linear map of positions: the sum of all weights with which each position is seen."""
    with torch.inference_mode(False), torch.enable_grad():
        z = torch.ones(*shape, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(f(z).sum(), z)[0]


def beyond_the_edge(m: ConvNd, space: Sequence[int], r: Float[Tensor, " in"]) -> Lengths:
    """What a convolution adds for r where there are zeros: the sum of ``W_k r`` over the taps beyond the edge."""
    W = double(m.weight)
    conv = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[len(space) - 1]
    ones = [1] * len(space)
    with torch.no_grad():
        everywhere = (W.flatten(2).sum(dim=2) @ r).reshape(1, -1, *ones)
        inside = conv(r.reshape(1, -1, *ones).expand(1, -1, *space), W, None, m.stride, m.padding, m.dilation)
        missing = everywhere - inside
    return Lengths(float(missing.norm(dim=1).max()), float(missing.norm()))


def product(a: float, b: float) -> float:
    """``a b``, and 0 if one of them is, whatever the other.

    >>> product(0.0, math.inf), product(2.0, 3.0)
    (0.0, 6.0)
    """
    return 0.0 if a == 0 or b == 0 else a * b


def spectral_norm(A: Float[Tensor, "out in"]) -> float:
    """The largest singular value, from the smaller of the two squares.

    >>> round(spectral_norm(torch.tensor([[3.0, 4.0, 0.0]])), 6)
    5.0
    """
    size = float(A.abs().max()) if A.numel() else 0.0
    if size == 0:
        return 0.0
    A = A / size
    square = A @ A.mT if len(A) <= A.shape[1] else A.mT @ A
    return size * math.sqrt(max(0.0, float(torch.linalg.eigvalsh(square)[-1])))
