"""What an exported model gives beside what the model gives, row by row, in the dtype that is shipped.

Each row is within 64 eps of its size, or within 10 times what one unit in the last place of every weight and input does
to the model: the rule of `compress`, in the dtype of the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import InvalidValue, RadNetError
from ..measuring import DRAWS, TIMES_CONDITIONING, ULPS, as_rows, gap_by_rows, nudged
from ..running import Call, copied

Run = Callable[[Call], list[Tensor]]
#: how many times as large as the given ones inputs are tried too, and how many of their rows
SCALES, FEW_ROWS = {0.0: "zeros", 1e-3: "a thousandth of the inputs", 1e3: "a thousand times the inputs"}, 16


def outputs(model: nn.Module, call: Call) -> list[Tensor]:
    """All tensors among what a model gives."""
    with torch.no_grad():
        own = call.mapped(torch.clone)
        return [y for y in tree_leaves(model(*own.args, **own.kwargs)) if isinstance(y, Tensor)]


def first_outputs(model: nn.Module, call: Call) -> list[Tensor]:
    """What a model gives for the given inputs, of which nobody knows yet that it takes them."""
    try:
        found = outputs(model, call)
    except RadNetError:
        raise
    except Exception as error:
        raise InvalidValue(
            f"{type(model).__name__} does not take these inputs ({type(error).__name__}: {error})"
        ) from error
    if not found:
        raise InvalidValue(f"{type(model).__name__}: gives no tensor")
    return found


def compare(
    model: nn.Module, run: Run, call: Call, expected: list[Tensor], dynamic: bool, more_rows: Collection[int] = ()
) -> None:
    """Raise `InvalidValue` if what runs gives other numbers than the model, or other shapes.

    Compared are the given inputs, some of them at other scales, and where the number of rows is open, one row, one row
    more, and the numbers in ``more_rows``.
    """
    _compare(model, run, call, expected)
    for other in (
        *_scaled(call, dynamic),
        *(_with_rows(call, rows) for rows in (1, call.rows + 1, *more_rows) if dynamic),
    ):
        try:
            wanted = outputs(model, other)
        except Exception:  # noqa: S112  # the model itself does not take them
            continue
        _compare(model, run, other, wanted, finite=True)


def _scaled(call: Call, dynamic: bool) -> Iterator[Call]:
    """A few of the given rows at other scales, where a program may leave the range of its dtype before the model."""
    few = call.with_rows(torch.arange(min(call.rows, FEW_ROWS)), "") if dynamic else call
    if not any(x.is_floating_point() for x in call.tensors):
        return

    for scale, what in SCALES.items():

        def scaled(x: Tensor, scale: float = scale) -> Tensor:
            return x * scale if x.is_floating_point() else x

        yield dataclasses.replace(few.mapped(scaled), what=what)


def _with_rows(call: Call, rows: int) -> Call:
    return call.with_rows(torch.arange(rows) % call.rows, f"{rows} rows")


def _compare(model: nn.Module, run: Run, call: Call, wanted: list[Tensor], *, finite: bool = False) -> None:
    """One call; with ``finite`` only its rows in which the model gives finite numbers."""
    found = run(call)
    if [y.shape for y in found] != [y.shape for y in wanted]:
        shapes = [[tuple(y.shape) for y in ys] for ys in (found, wanted)]
        raise InvalidValue(
            f"{call.what}: the exported model gives shapes {shapes[0]}, the model {shapes[1]}; nothing was written"
        )
    for k, (y, F) in enumerate(zip(found, wanted, strict=True)):
        gap = gap_by_rows(F, y)
        eps = torch.finfo(F.dtype).eps if F.is_floating_point() or F.is_complex() else 0.0
        allowed = ULPS * eps * gap.scale
        judged = as_rows(F).isfinite().all(dim=1) if finite else torch.ones_like(allowed, dtype=torch.bool)
        if bool((judged & (gap.rows > allowed)).any()):
            allowed = torch.maximum(allowed, TIMES_CONDITIONING * _drift(model, call, k, F))
        beyond = judged & (gap.rows > allowed)
        if bool(beyond.any()):
            row = int(torch.where(beyond, gap.rows - allowed, -torch.inf).argmax())
            raise InvalidValue(
                f"{call.what}, row {row} of output {k}: the exported model differs by {float(gap.rows[row]):.3g}, "
                f"allowed {float(allowed[row]):.3g}; nothing was written"
            )


def _drift(model: nn.Module, call: Call, k: int, F: Tensor) -> Tensor:
    """How far one ulp, in every weight and input, moves each row of an output."""
    draws = torch.Generator().manual_seed(1)
    D = torch.zeros_like(gap_by_rows(F, F).rows)
    for _ in range(DRAWS):
        near = cast("nn.Module", copied(model, lambda x: nudged(x, draws)))
        moved = call.mapped(lambda x: nudged(x, draws) if x.is_floating_point() else x)
        try:
            there = outputs(near, moved)[k]
        except Exception:  # noqa: S112  # an ulp beyond what the model takes
            continue
        D = torch.maximum(D, gap_by_rows(F, there).rows)
    return D


def largest_gap(expected: list[Tensor], found: list[Tensor]) -> tuple[float, float]:
    """The largest difference of all outputs, and the largest output."""
    gaps = [float(gap_by_rows(F, y).rows.max()) for F, y in zip(expected, found, strict=True) if F.numel()]
    sizes = [float(F.abs().max()) for F in expected if F.is_floating_point() and F.numel()]
    return max(gaps, default=0.0), max(sizes, default=0.0)
