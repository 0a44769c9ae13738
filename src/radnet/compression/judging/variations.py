"""Other inputs like the given ones: a function is the same everywhere, not only where one looks.

Other sizes of numbers, other numbers of rows, other lengths of every axis, one axis more. Whether a model accepts them
is for the model to say; other arguments are in `options`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor

from ...running import Call
from ...wording import counted

#: so many rows are judged at least, given and other ones together, if they have so few numbers
ENOUGH, CHEAP = 128, 2**15
#: and if a run on so many makes no more numbers than this, in all operations together
CHEAP_RUN = 2**20
#: what scaled rows are multiplied by, in turns with fresh normal rows and rows of zeros
SCALES = (1e3, 1e-3)
#: numbers of rows, and lengths of other axes, at which a model's Python may take another turn
LADDER = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025)
#: how many numbers the inputs may have there; how many one run may make, in all operations together; and if the model
#: names the length
LARGEST, LADDER_RUN, ASKED_RUN = 2**18, 2**21, 2**23


def may_be_many(call: Call, made_by_row: Callable[[], float]) -> bool:
    """Whether many rows like the given ones are cheap: their numbers, and those that a run makes of them."""
    few_numbers = ENOUGH * sum(x.numel() for x in call.tensors) <= CHEAP * call.rows
    return few_numbers and (call.rows >= ENOUGH or ENOUGH * made_by_row() <= CHEAP_RUN)


def other_inputs(call: Call, generator: torch.Generator, *, rows: int) -> Iterator[Call]:
    """So many scaled, fresh and zero rows; one row; every other axis longer; one axis more."""
    n = call.rows
    yield _mixed(call, rows, generator)
    if n > 1:
        yield dataclasses.replace(_mixed(call, 1, generator, first=1), what="one row")
    share = call.with_rows(torch.arange(max(1, min(n, n // 8))), "")
    for length in lengths_of(share):
        yield from with_lengths(share, length, length + 1)
    deeper = share.mapped(lambda x: _one_axis_more(x, share.rows))
    yield dataclasses.replace(deeper, what="one axis more")


def mixtures(call: Call, generator: torch.Generator) -> Iterator[Call]:
    """Affine mixtures of the rows of the given inputs, in another number, and in float64: rounded they are none."""
    n = call.rows
    weights = torch.randn(max(1, n // 2), n, generator=generator, device=generator.device, dtype=torch.float64)
    weights = weights / n**0.5
    weights += (1 - weights.sum(dim=1, keepdim=True)) / n

    def mix(x: Tensor) -> Tensor:
        if not x.is_floating_point() or not x.ndim or len(x) != n:
            return x
        rows: Tensor = weights.to(x.device) @ x.reshape(n, -1).double()
        return rows.reshape(-1, *x.shape[1:])

    yield dataclasses.replace(call.mapped(mix), what="affine mixtures of its rows")


def _mixed(call: Call, rows: int, generator: torch.Generator, first: int = 0) -> Call:
    """So many rows: the given ones scaled, fresh ones and zeros in turns; other kinds of numbers shuffled."""
    n = call.rows
    order = torch.randperm(n, generator=generator, device=generator.device).cpu()
    order = order[torch.arange(rows) % n]
    kinds = (torch.arange(rows) + first) % 4

    def change(x: Tensor) -> Tensor:
        if not x.ndim or len(x) != n:
            return x
        taken = x[order.to(x.device)]
        if not x.is_floating_point():
            return _recombined(taken, x, kinds, generator)
        fresh = torch.randn(taken.shape, generator=generator, device=generator.device).to(taken)
        shape = (-1, *[1] * (x.ndim - 1))
        kind = kinds.reshape(shape).to(x.device)
        scaled = taken * torch.where(kind == 0, SCALES[0], SCALES[1]).to(taken)
        return torch.where(kind == 1, fresh, torch.where(kind == 3, torch.zeros_like(taken), scaled))

    return dataclasses.replace(call.mapped(change), what=f"{counted(rows, 'row')}, scaled, fresh and zero")


def _recombined(taken: Tensor, x: Tensor, kinds: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of whole numbers; every second one is made of the entries of all rows, each where it stood."""
    if x.ndim < 2 or x.dtype == torch.bool:
        return taken
    pick = torch.randint(len(x), taken.shape, generator=generator, device=generator.device).to(x.device)
    mixed = (kinds % 2 == 1).reshape(-1, *[1] * (x.ndim - 1)).to(x.device)
    return torch.where(mixed, x.gather(0, pick), taken)


def redrawn(call: Call, index: Tensor, generator: torch.Generator, what: str) -> Call:
    """The given rows, a tenth of their size elsewhere."""

    def move(x: Tensor) -> Tensor:
        if not x.is_floating_point() or not x.ndim:
            return x
        size = x.abs().where(x.isfinite(), 0.0).mean().clamp(min=torch.finfo(x.dtype).tiny)
        return x + 0.1 * size * torch.randn(x.shape, generator=generator, device=generator.device).to(x)

    return dataclasses.replace(call.with_rows(index, what).mapped(move), what=what)


def lengths_of(call: Call) -> list[int]:
    """The lengths of all axes but the first."""
    return sorted({k for x in call.tensors for k in x.shape[1:]})


def with_lengths(call: Call, before: int, after: int) -> Iterator[Call]:
    """All axes but the first that have the one length get the other, together and one by one."""
    places = [(k, axis) for k, x in enumerate(call.tensors) for axis in range(1, x.ndim) if x.shape[axis] == before]
    for chosen in [places, *([place] for place in places if len(places) > 1)]:
        count = iter(range(len(call.tensors)))

        def change(x: Tensor, chosen: list[tuple[int, int]] = chosen, count: Iterator[int] = count) -> Tensor:
            k = next(count)
            for axis in range(1, x.ndim):
                if (k, axis) in chosen:
                    x = x.index_select(axis, torch.arange(after, device=x.device) % before)
            return x

        where = "" if len(chosen) == len(places) else f", axis {chosen[0][1]}"
        yield dataclasses.replace(call.mapped(change), what=f"length {after} in place of {before}{where}")


def with_rows(call: Call, rows: int) -> Call:
    """So many rows, those that are there in turns."""
    return call.with_rows(torch.arange(rows) % call.rows, f"{rows} rows")


def ladder(base: Call, named: Collection[int], each: float, made: Callable[[], int]) -> Iterator[Call]:
    """Calls with other numbers of rows and other lengths, the short ones first: they show what a long one costs.

    Parameters
    ----------
    base : Call
    named : collection of int
        Lengths that the model names.
    each : float
        How many numbers a run of the base makes for each row.
    made
        How many the last run made; none, if the model refused it.
    """
    numbers = sum(x.numel() for x in base.tensors)
    for k in sorted({*LADDER, *named}):
        if k * numbers <= LARGEST * base.rows and k * each <= (ASKED_RUN if k in named else LADDER_RUN):
            yield with_rows(base, k)
    for n in lengths_of(base):
        longest, reached = n, each * base.rows
        for k in sorted({n - 1, 2 * n + 1, 3 * n, *LADDER, *named} - {-1, 0}) if n else ():
            few = numbers * (k / n) ** 2 <= LARGEST or (k in named and numbers * k <= LARGEST * n)
            if few and reached * max(1, k / longest) ** 2 <= (ASKED_RUN if k in named else LADDER_RUN):
                most = 0
                for call in with_lengths(base, n, k):
                    yield call
                    most = max(most, made())
                longest, reached = (k, most) if most and k > longest else (longest, reached)


def _one_axis_more(x: Tensor, rows: int) -> Tensor:
    if not x.ndim or len(x) != rows:
        return x
    return x.unsqueeze(1).expand(rows, 2, *x.shape[1:]).clone()


def unusual_inputs(call: Call) -> Iterator[Call]:
    """Inputs with which a model's Python may take another way: memory with gaps, one axis fewer, longer lists."""
    gaps = call.mapped(lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.ndim > 1 else x)
    yield dataclasses.replace(gaps, what="memory with gaps")
    rows = call.rows
    flat = call.mapped(lambda x: x[0] if x.ndim > 1 and len(x) == rows else x)
    yield dataclasses.replace(flat, what="one axis fewer", other_axes=-1)
    front = call.mapped(lambda x: torch.stack([x, x]) if x.ndim else x)
    yield dataclasses.replace(front, what="one axis in front", other_axes=1)
    for k, x in enumerate(call.args):
        if isinstance(x, list | tuple) and x:
            for other in ([*x, x[-1]], [*x, *x, x[0]], list(x[:-1])):
                args = (*call.args[:k], type(x)(other), *call.args[k + 1 :])
                yield Call(args, call.kwargs, f"a list of {len(other)}")
