"""Other sizes along every way that a model takes: loops that grow with them, and turns of its Python into other ways.

`vary_lengths` runs each way with other lengths, which shows the modules that are called as often as an axis is long.
`take_turns` asks `sizes` where forward turns, and tries it there; what cannot be tried is left to be refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torch import Tensor
from torch.utils._pytree import tree_flatten

from ...running import Call
from ..recording import loops
from .code import compares, lengths_in
from .comparisons import HIGHEST, Path, numbers_of, resized, sizes_of
from .explored import Explored
from .sizes import MOST_RUNS, Turn, Turns
from .variations import lengths_of, with_lengths, with_rows

if TYPE_CHECKING:
    from .exploring import Explorer

#: how many numbers a run may make with sizes at which the model's code is known to turn another way
TURN_RUN = 2**24
#: calls whose ways are not followed, but run with other lengths
MOST_OTHERS = 8
#: calls with different arguments along which turns are looked for
MOST_SEARCHED = 12


def vary_lengths(explorer: Explorer, found: Explored) -> None:
    """Run every way but the first, and calls that are judged alone, with other lengths: they may have loops too.

    What they give there is judged, and modules that are called another number of times are in a loop.
    """
    seen = list(zip(found.ways, found.logs[1:], strict=True))
    for tried in found.others:
        if len(seen) < len(found.ways) + MOST_OTHERS and tried.log not in (found.logs[0], *(log for _, log in seen)):
            seen.append((tried.call, tried.log))
    for call, log in seen:
        for other in _other_lengths(call) if not call.other_axes else ():
            try:
                there = explorer.recorded(other)
            except Exception:  # noqa: S112  # whatever a model says to inputs of another shape
                continue
            found.looped |= loops(log, there.log)
            found.others.append(there)


def _other_lengths(call: Call) -> Iterator[Call]:
    """One row more, and every other axis longer by one, together with those of its length and alone."""
    longer = [other for length in lengths_of(call) for other in with_lengths(call, length, length + 1)]
    for other in (with_rows(call, call.rows + 1), *longer):
        yield dataclasses.replace(other, what=f"{call.what}, {other.what}")


def take_turns(explorer: Explorer, found: Explored) -> None:
    """Try sizes at which the model's code turns another way; those that cannot be tried are to be refused.

    Calls with other arguments are searched for themselves, also where they take the same way with the given sizes; from
    those of other sizes alone the search goes on anyway.
    """
    left = MOST_RUNS
    named, comparing = lengths_in(explorer.model, HIGHEST), compares(explorer.model)
    searched: list[Call] = []
    for call in (found.base, *found.ways, *_representatives(found.alike)):
        known = any(_differ_in_sizes_alone(call, other) for other in searched)
        if call.other_axes or known or len(searched) >= MOST_SEARCHED or left <= 0:
            continue
        searched.append(call)
        each = sum(x.numel() for x in call.tensors) / max(1, explorer.made_by_row(call) * call.rows)
        turns = Turns(explorer.copy, call, explorer.precision, left, named, compares=comparing)
        for turn in turns.found():
            if not _knows(found, call, turn.path) and not _turned(explorer, found, call, turn, TURN_RUN * each):
                found.refused_sizes.append((call, turn.path))
        found.looped |= turns.looped
        left = turns.left
        if call is found.base:
            found.compared = turns.compared
    # a later search may have tried what an earlier one could not
    found.refused_sizes = [(call, path) for call, path in found.refused_sizes if not _knows(found, call, path)]


def _differ_in_sizes_alone(a: Call, b: Call) -> bool:
    """Whether two calls have the same arguments, but for the sizes of tensors and what is in them."""
    (xs, shape), (ys, other) = (tree_flatten((c.args, dict(c.kwargs), c.training)) for c in (a, b))
    return bool(shape == other) and all(
        isinstance(y, Tensor) and (x.ndim, x.dtype) == (y.ndim, y.dtype)
        if isinstance(x, Tensor)
        else type(x) is type(y) and x == y
        for x, y in zip(xs, ys, strict=True)
    )


def _representatives(calls: Sequence[Call]) -> list[Call]:
    """Of calls that differ in the values of numbers alone, the one with the largest; those with most tensors first.

    Loops are longest there, and branches the most.
    """
    best: dict[str, tuple[float, Call]] = {}
    for call in calls:
        leaves, shape = tree_flatten((call.args, dict(call.kwargs), call.training))
        numbers = [x for x in leaves if isinstance(x, int | float) and not isinstance(x, bool)]
        kinds = [
            f"{x.ndim} {x.dtype}" if isinstance(x, Tensor) else repr(x)
            for x in leaves
            if not any(x is n for n in numbers)
        ]
        key, size = f"{shape} {kinds}", float(sum(map(abs, numbers)))
        if key not in best or size > best[key][0]:
            best[key] = size, call
    ordered = sorted(best.values(), key=lambda item: (-len(item[1].tensors), -item[0]))
    return [call for _, call in ordered]


def _knows(found: Explored, call: Call, path: Path) -> bool:
    """Whether some call that was tried already went this way."""
    axes = [x.ndim for x in call.tensors]
    calls = (found.given.call, found.base, *found.ways, *(tried.call for tried in found.others))
    alike = (sizes_of(other) for other in calls if [x.ndim for x in other.tensors] == axes)
    return any(all(comparison.holds(sizes) for comparison in path) for sizes in alike)


def _turned(explorer: Explorer, found: Explored, call: Call, turn: Turn, most: float) -> bool:
    """Whether the model was tried with sizes of a turn, or says no to them; not, if they are too large to try."""
    small = [sizes for sizes in turn.examples if numbers_of(call, sizes) <= most]
    others = [other for other in (resized(call, sizes) for sizes in small) if other is not None]
    return any(explorer.attempt(found, other) for other in others) or (turn.sure and bool(others))
