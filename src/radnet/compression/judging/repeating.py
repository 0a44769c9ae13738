"""Whether what a model gives depends on what earlier calls left, on it or outside of it.

A mask or a table that forward makes at its first call and keeps is no matter; statistics of the first inputs are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ...measuring import ULPS, gap_by_rows
from ...modes import Argument
from ...running import Call, Precision, Ran, restored
from .variations import lengths_of, with_lengths, with_rows

#: how often the given call is repeated
REPEATS = 3
Same = Callable[[Tensor, Tensor], bool]


def changed_by_calls(model: nn.Module, precision: Precision, call: Call, fresh: Ran, same: Same) -> str | None:
    """After which calls a model gives something else than a fresh copy did, and what came of it; None if it does not.

    Parameters
    ----------
    model : nn.Module
        Not changed: copies of it run.
    precision : Precision
    call : Call
        The inputs at which it is looked at.
    fresh : Ran
        What a copy that was never called gave there.
    same : callable
        Whether two tensors are as equal as they have to be.
    """
    for earlier in _earlier(call):
        twin = precision.copy(model)
        with restored(twin):  # what is outside of it
            try:
                for other in earlier:
                    precision.run(twin, other, restore=False)
            except Exception as error:
                if earlier[0] is call:
                    return f" ({type(error).__name__}: {error})"
                continue  # it does not take such inputs
            try:
                found = precision.run(twin, call, restore=False)
            except Exception as error:
                return f" ({type(error).__name__}: {error})"
        if not _same(fresh, found, same):
            return ""
    return None


def _earlier(call: Call) -> Iterator[list[Call]]:
    yield [call] * REPEATS
    other = call.mapped(lambda x: x.flip(0) * 2 + 1 if x.is_floating_point() and x.ndim else x)
    yield [dataclasses.replace(other, what="other numbers")]
    for n in lengths_of(call):
        yield list(with_lengths(call, n, n + 1))[:1]
        if n > 1:
            yield list(with_lengths(call, n, n - 1))[:1]
    yield [with_rows(call, call.rows + 1)]


def _same(a: Ran, b: Ran, same: Same) -> bool:
    first, second = _outputs(a), _outputs(b)
    return first.keys() == second.keys() and all(_equal(x, second[name], same) for name, x in first.items())


def _outputs(ran: Ran) -> dict[str, Argument]:
    return {name: x for name, x in ran.found.items() if name.startswith("output")}


def _equal(x: Argument, y: Argument, same: Same) -> bool:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x.shape == y.shape and x.dtype == y.dtype and same(x, y)
    return type(x) is type(y) and (not isinstance(x, bool | int | float | str) or x == y or x != x)


def bit_for_bit(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors hold the same numbers, NaN where the other has one."""
    return torch.equal(_bits(x), _bits(y))


def but_for_rounding(x: Tensor, y: Tensor) -> bool:
    """Whether no row differs by more than 64 eps of its size, in the dtype that they have."""
    if not x.is_floating_point():
        return bit_for_bit(x, y)
    gap = gap_by_rows(x, y)
    return bool((gap.rows <= ULPS * torch.finfo(x.dtype).eps * gap.scale).all())


def _bits(x: Tensor) -> Tensor:
    """Numbers that are equal exactly if the given ones are, NaN to NaN."""
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return torch.where(x.isnan(), torch.zeros_like(x), x) if x.is_floating_point() else x
