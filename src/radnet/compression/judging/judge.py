"""Whether two models are the same function: `judge` and `verify`, which give a `Certificate`.

Equality is a statement about functions, so it is judged in float64, row by row and output by output, on the given
inputs and on others like them (`judge` for a small model that still has its float64 weights, `verify` for weights that
have been rounded). What the dtype that ships does is measured beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...errors import InvalidType, InvalidValue
from ...measuring import as_rows, differences, nudged
from ...modes import Argument, Shaken
from ...running import Call, Precision, Ran, as_float64, copied, run, with_same_parameters
from .certificate import Certificate
from .comparing import Judge, gaps_of, of_call
from .explored import Explored, Tried, shapes_tried
from .exploring import Explorer, Nudges
from .given import as_call, check_inputs, check_mode, does_not_run, undisturbed
from .repeating import but_for_rounding, changed_by_calls
from .variations import redrawn


def _nudges(weights: Callable[[Tensor], Tensor], precision: Precision) -> Nudges:
    """Inputs and buffers of whole numbers (masks, positions, counts) are exact: forward may ask ``mask == 1``."""

    def given(value: Tensor) -> Tensor:
        dense = value.is_floating_point() and value.layout == torch.strided
        if dense and not bool((value == value.round()).all()):
            return weights(value)
        return as_float64(value) if precision.float64 else value.clone()

    return Nudges(weights, given)


def judge(
    original: nn.Module,
    small: nn.Module,
    inputs: Argument,
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
    explorer = Explorer(original, generator, None if explored is None else explored.precision)
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
    explored.differ, explored.refused_axes = judging.differ, frozenset(judging.refused_axes)
    return certificate


def verify(
    a: nn.Module, b: nn.Module, inputs: Tensor | Sequence[Argument], *, generator: torch.Generator | None = None
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
            Explorer(b, generator, explored.precision).check_function(explored.base)
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
    found = judging.compare(given)
    failed, broken = found.failed.clone(), found.broken.clone()
    if 2 * int(found.open.sum()) > given.call.rows:
        judging.failures.append(
            f"rounding alone moves what the original gives on {int(found.open.sum())} of {given.call.rows} rows, so "
            "that float64 does not tell which function it is"
        )
    for tried in (*drawn_anew(given), *explored.others):
        _judge_another(judging, tried, given.at_jump, failed, broken)
    unseen = sorted(found.gaps.keys() - judging.seen) if judging.judged else []
    judging.failures += [f"{name} was never judged: a row was at a jump of an activation each time" for name in unseen]
    F = as_stored if as_stored is not None else run(copied(judging.original, torch.clone), given.call)
    G = run(shipped, given.call)
    if given.ran.keeps or G.keeps:
        judging.failures += _changed_by_calls(judging, given)
    own = _in_own_dtype(judging, F, G, given)
    floats = [name for name, x in given.ran.tensors.items() if x.is_floating_point() or x.is_complex()]
    unit = torch.finfo(own.dtype).eps * own.scale if own.dtype.is_floating_point else 0.0
    return Certificate(
        rows=given.call.rows,
        dtype=_name(own.dtype),
        max_gap=own.max_gap,
        mean_gap=own.mean_gap,
        max_gap64=_largest(gap.rows for gap in found.gaps.values()),
        mean_gap64=_mean((given.ran.tensors[name], judging.last[name]) for name in floats),
        scale=own.scale,
        ulps=own.max_gap / unit if unit > 0 else (0.0 if own.max_gap == 0 else float("inf")),
        conditioning=judging.conditioning,
        rows_at_jump=int((given.at_jump | found.open).sum()),
        rows_ill_conditioned=judging.excused,
        rows_failed=int((failed | own.not_finite).sum()),
        rows_not_finite=int((broken | own.not_finite).sum()),
        rows_judged=judging.judged,
        rounding=own.rounding,
        judged_in="float64" if explored.precision.float64 else _name(own.dtype),
        tried=tuple(shapes_tried(explored)),
        failures=tuple(judging.failures),
        limits=tuple(judging.limits),
    )


def _changed_by_calls(judging: Judge, given: Tried) -> list[str]:
    """What is wrong if the other model depends on earlier calls: the original does not."""
    fresh = judging.precision.run(judging.small, given.call)
    why = changed_by_calls(judging.small, judging.precision, given.call, fresh, but_for_rounding)
    return [] if why is None else [f"the other model gives something else when it is called again{why}"]


def _judge_another(judging: Judge, tried: Tried, at_jump: Tensor, failed: Tensor, broken: Tensor) -> None:
    """Compare another call; rows that were drawn anew count for those in whose place they are."""
    noted = len(judging.failures), len(judging.differ)
    try:
        found = judging.compare(tried)
    except Exception as error:  # it runs on these inputs, the other does not
        judging.failures.append(f"the other model fails at {tried.call.what} ({type(error).__name__}: {error})")
        judging.differ.append(tried)
        found = None
    if tried.call.other_axes and len(judging.failures) > noted[0]:  # the small model will refuse such inputs
        del judging.failures[noted[0] :], judging.differ[noted[1] :]
        judging.limits.append(tried.call.what)
        judging.refused_axes.add(tried.call.other_axes)
    if found is None:
        return
    if tried.call.what == REDRAWN:
        failed[at_jump] |= found.failed
        broken[at_jump] |= found.broken


class _OwnDtype(NamedTuple):
    """What the dtype that ships does, beside the verdict."""

    dtype: torch.dtype
    scale: float
    max_gap: float
    mean_gap: float
    rounding: float  # of the original itself
    not_finite: Tensor  # rows


def _in_own_dtype(judging: Judge, F: Ran, G: Ran, given: Tried) -> _OwnDtype:
    """Both models as they are stored; numbers that only the small one cannot hold are a failure."""
    own = {name: x for name, x in F.tensors.items() if x.is_floating_point() or x.is_complex()}
    gaps = {name: gap for name, gap in gaps_of(F, G).items() if name in own}
    not_finite = torch.zeros(given.call.rows, dtype=torch.bool)
    for name, x in own.items():
        lost = (as_rows(x).isfinite() & ~as_rows(G.tensors[name]).isfinite()).any(dim=1)
        overflows = (as_rows(given.ran.tensors[name]).isfinite() & ~as_rows(x).isfinite()).any(dim=1)
        not_finite |= of_call(lost | overflows, given.call.rows)
        if bool(lost.any()):
            judging.failures.append(f"{name} is not finite in {_name(x.dtype)} where the original is")
    rounding = _largest(
        (as_rows(x) - as_rows(given.ran.tensors[name])).abs().nan_to_num(nan=0.0, posinf=0.0)
        for name, x in own.items()
        if given.ran.tensors[name].shape == x.shape
    )
    return _OwnDtype(
        next((x.dtype for x in own.values()), torch.get_default_dtype()),
        _largest(as_rows(x).abs().where(as_rows(x).isfinite(), 0.0) for x in own.values()),
        _largest(gap.rows for gap in gaps.values()),
        _mean((F.tensors[name], G.tensors[name]) for name in own),
        rounding,
        not_finite,
    )


REDRAWN = "rows drawn anew"


def _drawn_anew(explorer: Explorer, given: Tried, nudges: Nudges | None = None) -> list[Tried]:
    """Rows that came near a jump, a little elsewhere; as long as some of them are still there, again."""
    if not bool(given.at_jump.any()):
        return []
    away = (~given.at_jump).nonzero()[:, 0]
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
    return [tried, *_without_jumps(explorer, given.call, away)]


def _without_jumps(explorer: Explorer, call: Call, away: Tensor) -> list[Tried]:
    """The rows that are away from all jumps alone: there outputs can be judged that have other rows."""
    try:
        return [explorer.recorded(call.with_rows(away, "the rows away from jumps"))] if len(away) else []
    except Exception:
        return []


def _largest(tensors: Iterable[Tensor]) -> float:
    return max((float(x.max()) for x in tensors if x.numel()), default=0.0)


def _mean(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
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
