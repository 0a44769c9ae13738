"""Whether two models are the same function: `judge` and `verify`, which give a `Certificate`.

Equality is a statement about functions, so it is judged in float64, row by row and output by output, on the given
inputs and on others like them (`judge` for a small model that still has its float64 weights, `verify` for weights that
have been rounded). What the dtype that ships does is measured beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InvalidType, InvalidValue
from ...measuring import as_rows, differences, nudged
from ...running import Precision, Ran, Shaken, as_float64, copied, run, with_same_parameters
from .certificate import Certificate
from .comparing import Judge, gaps_of, of_call
from .exploring import Explored, Explorer, Nudges, Tried, shapes_tried
from .given import as_call, check_inputs, check_mode, does_not_run, undisturbed
from .variations import redrawn


def _nudges(weights: Callable[[Tensor], Tensor], precision: Precision) -> Nudges:
    """Inputs and buffers of whole numbers (masks, positions, counts) are exact: forward may ask ``mask == 1``."""

    def given(value: Tensor) -> Tensor:
        if value.is_floating_point() and not bool((value == value.round()).all()):
            return weights(value)
        return as_float64(value) if precision.float64 else value.clone()

    return Nudges(weights, given)


def judge(
    original: nn.Module,
    small: nn.Module,
    inputs: Any,
    *,
    shipped: nn.Module | None = None,
    explored: Explored | None = None,
    as_stored: Ran | None = None,
    generator: torch.Generator | None = None,
) -> Certificate:
    """Whether a small model with float64 weights is the same function as the original, whatever dtype that has.

    Each row of each output is within ``max(64 eps scale(row), 10 D(x))`` in float64, on the given inputs and on those
    others that the original accepts; D is what one ulp of float64 in weights, inputs and the results of all operations
    does to the original. Rows on which that is more than 1e-10 of their size are not judged.

    Parameters
    ----------
    original, small : nn.Module
        Neither is changed.
    inputs : Tensor, or tuple with one entry for each argument
    shipped : nn.Module, optional
        The small model in the dtype that ships, for the figures beside the verdict; the small one itself by default.
    explored : Explored, optional
        What is already known of the original.
    as_stored : Ran, optional
        What the original gives in its own dtype, if that is known.
    generator : torch.Generator, optional
        For other inputs and for the perturbations behind D.
    """
    generator = generator if generator is not None else torch.Generator().manual_seed(0)
    call = as_call(inputs)
    explorer = Explorer(original, generator)
    if explored is not None:
        explorer.precision = explored.precision
    explored = explored if explored is not None else explorer.explore(call)
    float64 = explored.precision.float64

    def nudge(value: Tensor) -> Tensor:
        wide = as_float64(value) if float64 else value
        return nudged(wide, generator, in_place=wide is not value)  # a wide layer is there once, not twice

    twin = with_same_parameters(small) if float64 and _is_float64(small) else explored.precision.copy(small)
    nudges = _nudges(nudge, explored.precision)
    judging = Judge(original, twin, explored.precision, nudges, Shaken(generator))
    ours = with_same_parameters(small if shipped is None else shipped)
    certificate = _certificate(judging, explored, partial(_drawn_anew, explorer), ours, as_stored)
    explored.differ = judging.differ
    return certificate


def verify(
    a: nn.Module, b: nn.Module, inputs: Tensor | Sequence[Any], *, generator: torch.Generator | None = None
) -> Certificate:
    """Measure how equal two modules are on the given inputs; `radnet.verify` says more, and takes files too."""
    for name, model in (("first", a), ("second", b)):
        if not isinstance(model, nn.Module):
            raise InvalidType(f"verify needs two modules; the {name} is a {type(model).__name__}")
        check_mode(model, name)
    call = as_call(inputs)
    check_inputs(call)
    generator = generator if generator is not None else torch.Generator().manual_seed(0)
    with undisturbed():
        explorer = Explorer(a, generator)
        try:
            explored = explorer.explore(call, exact=False)
        except InvalidValue:
            raise
        except Exception as error:
            raise does_not_run(a, call, error) from error
        if not explored.given.ran.tensors:
            raise InvalidType(f"{type(a).__name__} gives no tensor; there is nothing to compare")

        def nudge(value: Tensor) -> Tensor:
            moved = nudged(value.detach(), generator)
            return as_float64(moved) if explored.precision.float64 else moved

        nudges = _nudges(nudge, explored.precision)
        explored.given = explorer.with_rounded_weights(explored.given, nudges)
        try:
            judging = Judge(a, explored.precision.copy(b), explored.precision, nudges)
            again = partial(_drawn_anew, explorer, nudges=nudges)
            return _certificate(judging, explored, again, copied(b, torch.clone))
        except InvalidValue:
            raise
        except Exception as error:
            raise InvalidValue(
                f"the second model does not run on the inputs of the first ({type(error).__name__}: {error})"
            ) from error


def _certificate(
    judging: Judge,
    explored: Explored,
    drawn_anew: Callable[[Tried], list[Tried]],
    shipped: nn.Module,
    as_stored: Ran | None = None,
) -> Certificate:
    """All that a judge finds; ``shipped`` is a copy of the small model as it is stored, the rest as in `judge`."""
    given = explored.given
    gaps, failed, broken, still_open, _ = judging.compare(given)
    at_jump = int((given.at_jump | still_open).sum())
    if 2 * int(still_open.sum()) > given.call.rows:
        judging.failures.append(
            f"rounding alone moves what the original gives on {int(still_open.sum())} of {given.call.rows} rows, so "
            "that float64 does not tell which function it is"
        )
    for tried in (*drawn_anew(given), *explored.others):
        try:
            _, bad, not_alike, *_ = judging.compare(tried)
        except Exception as error:  # it runs on these inputs, the other does not
            judging.failures.append(f"the other model fails at {tried.call.what} ({type(error).__name__}: {error})")
            judging.differ.append(tried)
            continue
        if tried.call.what == REDRAWN:
            failed[given.at_jump] |= bad
            broken[given.at_jump] |= not_alike
    F = as_stored if as_stored is not None else run(copied(judging.original, torch.clone), given.call)
    G = run(shipped, given.call)
    own = {name: x for name, x in F.tensors.items() if x.is_floating_point() or x.is_complex()}
    in_dtype = {name: gap for name, gap in gaps_of(F, G).items() if name in own}
    not_finite = torch.zeros(given.call.rows, dtype=torch.bool)
    for name, x in own.items():
        lost = (as_rows(x).isfinite() & ~as_rows(G.tensors[name]).isfinite()).any(dim=1)
        overflows = (as_rows(given.ran.tensors[name]).isfinite() & ~as_rows(x).isfinite()).any(dim=1)
        not_finite |= of_call(lost | overflows, given.call.rows)
        if bool(lost.any()):
            judging.failures.append(f"{name} is not finite in {_name(x.dtype)} where the original is")
    dtype = next((x.dtype for x in own.values()), torch.get_default_dtype())
    scale = _largest(as_rows(x).abs().where(as_rows(x).isfinite(), 0.0) for x in own.values())
    max_gap = _largest(gap.rows for gap in in_dtype.values())
    unit = torch.finfo(dtype).eps * scale if dtype.is_floating_point else 0.0
    floats = [name for name, x in given.ran.tensors.items() if x.is_floating_point() or x.is_complex()]
    return Certificate(
        rows=given.call.rows,
        dtype=_name(dtype),
        max_gap=max_gap,
        mean_gap=_mean((F.tensors[name], G.tensors[name]) for name in own),
        max_gap64=_largest(gap.rows for name, gap in gaps.items()),
        mean_gap64=_mean((given.ran.tensors[name], judging.last[name]) for name in floats),
        scale=scale,
        ulps=max_gap / unit if unit > 0 else (0.0 if max_gap == 0 else float("inf")),
        conditioning=judging.conditioning,
        rows_at_jump=at_jump,
        rows_ill_conditioned=judging.excused,
        rows_failed=int((failed | not_finite).sum()),
        rows_not_finite=int((broken | not_finite).sum()),
        rows_judged=judging.judged,
        rounding=_largest(
            (as_rows(x) - as_rows(given.ran.tensors[name])).abs().nan_to_num(nan=0.0, posinf=0.0)
            for name, x in own.items()
            if given.ran.tensors[name].shape == x.shape
        ),
        judged_in="float64" if explored.precision.float64 else _name(dtype),
        tried=tuple(shapes_tried(explored)),
        failures=tuple(judging.failures),
    )


REDRAWN = "rows drawn anew"


def _drawn_anew(explorer: Explorer, given: Tried, nudges: Nudges | None = None) -> list[Tried]:
    """Rows that came near a jump, a little elsewhere; as long as some of them are still there, again."""
    if not bool(given.at_jump.any()):
        return []
    index = given.at_jump.nonzero()[:, 0]
    for _ in range(4):
        call = redrawn(given.call, index, explorer.generator, REDRAWN)
        try:
            tried = explorer.recorded(call)
            if nudges is not None:
                tried = explorer.with_rounded_weights(tried, nudges)
        except Exception:
            return []
        if not bool(tried.at_jump.any()):
            break
    return [tried]


def _largest(tensors: Any) -> float:
    return max((float(x.max()) for x in tensors if x.numel()), default=0.0)


def _mean(pairs: Any) -> float:
    total, count = 0.0, 0
    for x, y in pairs:
        total += float(differences(as_rows(x), as_rows(y)).sum())
        count += x.numel() * (2 if x.is_complex() else 1)
    return total / count if count else 0.0


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_float64(model: nn.Module) -> bool:
    tensors = (*model.parameters(), *model.buffers())
    return all(x.dtype == torch.float64 for x in tensors if x.is_floating_point())
