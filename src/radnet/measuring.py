"""How far two batches of values are apart, row by row, and numbers moved by one unit in the last place."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .linalg import ROWS_AT_ONCE

#: a gap of this many eps, relative to the size of its row, is rounding and needs no further excuse
ULPS = 64
#: beyond that, a gap of this many times D(x) is: no computation with these numbers could do better
TIMES_CONDITIONING = 10
#: but never more than this share of the size of its row, where functions are judged in float64: beyond, nothing is said
AGREEMENT = 1e-9
#: perturbations over which D is the maximum
DRAWS = 8


def nudged(value: Tensor, generator: torch.Generator | None, *, in_place: bool = False) -> Tensor:
    """Every entry one ulp up or down; the signs are products of one sign a row and one a column, which is cheap.

    Infinities stay, and sparse tensors.
    """
    if not value.is_floating_point() or value.numel() == 0 or value.layout != torch.strided:
        return value if in_place else value.clone()
    rows = value.reshape(value.shape[0], -1) if value.ndim > 1 else value.reshape(1, -1)
    up_or_down = torch.inf * _random_signs(rows.shape[1], rows, generator)
    flips = _random_signs(rows.shape[0], rows, generator).unsqueeze(1)
    out = rows if in_place else torch.empty_like(rows)
    for start in range(0, len(rows), ROWS_AT_ONCE):  # the signs of a wide matrix are never held all at once
        part = slice(start, start + ROWS_AT_ONCE)
        moved = torch.nextafter(rows[part], flips[part] * up_or_down)
        out[part] = torch.where(rows[part].isinf(), rows[part], moved)
    return out.reshape(value.shape)


def _random_signs(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else like.device
    return (2 * torch.randint(0, 2, (n,), generator=generator, device=device) - 1).to(like)


class Gap(NamedTuple):
    """How far two tensors are apart, a number a row of the first axis (one row if there is no axis)."""

    rows: Tensor  # the largest difference of a row; infinite where NaN and infinity do not stand in the same places
    scale: Tensor  # the size of a row: its largest entry among those that differ; that of the median row if it is 0


def gap_by_rows(a: Tensor, b: Tensor) -> Gap:
    """The differences of two tensors of one shape, by rows, in float64.

    Entries with equal bits do not count for the size of a row: a mask of -1e9 must not hide what stands beside it.

    >>> gap_by_rows(torch.tensor([[1.0, -1e9]]), torch.tensor([[1.5, -1e9]]))
    Gap(rows=tensor([0.5000], dtype=torch.float64), scale=tensor([1.], dtype=torch.float64))
    """
    a, b = as_rows(a), as_rows(b)
    if a.shape[1] == 0:
        return Gap(a.new_zeros(len(a)), a.new_zeros(len(a)))
    difference = differences(a, b)
    same = difference == 0
    size = torch.where(same | ~a.isfinite(), 0.0, a.abs())
    scale = size.amax(dim=1)
    if not bool((scale == 0).any()):
        return Gap(difference.amax(dim=1), scale)
    masked = same.all(dim=0) | ~a.isfinite()  # what is the same in all rows says nothing about the size of others
    others = torch.where(masked, 0.0, a.abs()).amax(dim=1)
    middle = others[others > 0].median() if bool((others > 0).any()) else scale.new_zeros(())
    return Gap(difference.amax(dim=1), torch.where(scale > 0, scale, middle))


def differences(a: Tensor, b: Tensor) -> Tensor:
    """``|a - b|``, entry by entry: 0 where both are NaN or the same infinity, infinite where only one is.

    >>> differences(torch.tensor([1.0, torch.nan, torch.inf]), torch.tensor([1.5, torch.nan, 0.0]))
    tensor([0.5000, 0.0000,    inf])
    """
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf)


def as_rows(values: Tensor) -> Tensor:
    """A matrix in float64 with a row for every entry of the first axis; complex numbers as pairs."""
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    rows = values.reshape(-1, 1) if values.ndim < 2 else values.flatten(1)
    return rows.to(torch.float64)
