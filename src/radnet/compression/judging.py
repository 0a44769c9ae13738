"""Whether two models are the same function: `judge` and `verify`, which give a `Certificate`.

Equality is a statement about functions, so it is judged in float64, row by row and output by output, on the given
inputs and on others like them (`judge` for a small model that still has its float64 weights, `verify` for weights that
have been rounded). What the dtype that ships does is measured beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InvalidType, InvalidValue
from ..measuring import AGREEMENT, DRAWS, TIMES_CONDITIONING, ULPS, Gap, as_rows, differences, gap_by_rows, nudged
from ..running import Precision, Ran, Shaken, as_float64, copied, run, with_same_parameters
from .certificate import Certificate
from .exploring import Explored, Explorer, Tried, shapes_tried
from .given import as_call, check_inputs, check_mode, does_not_run, undisturbed
from .variations import redrawn

Nudge = Callable[[Tensor], Tensor]  # a tensor of the original, one ulp off, in the precision of the judge


class _Judge:
    """Compares what two models give, call by call; the small one is a copy in the precision of the judge.

    Weights that were computed in float64 (``shaken``) are as good as what the original computes with its own: D is what
    rounding does to it, operation by operation. Weights that were rounded are as good as the original's own weights.
    """

    def __init__(
        self, original: nn.Module, small: nn.Module, precision: Precision, nudge: Nudge, shaken: Shaken | None = None
    ) -> None:
        self.original, self.small, self.precision, self.nudge = original, small, precision, nudge
        self.shaken = shaken if precision.float64 else None
        self.modes = precision.modes() if self.shaken is None else (*precision.modes(), self.shaken)
        self.eps = torch.finfo(torch.float64).eps if precision.float64 else shipped_eps(original)
        self.conditioning = 0.0
        self.judged = self.excused = 0
        self.failures: list[str] = []
        self.differ: list[Tried] = []  # the calls at which the two are not the same
        self.last: dict[str, Tensor] = {}

    def compare(self, tried: Tried) -> _Compared:
        """What a call of both models shows."""
        call, rows = tried.call, tried.call.rows
        other = self.precision.run(self.small, call)
        self.last = self.last or other.tensors  # of the given inputs, which come first
        gaps = _gaps(tried.ran, other)
        allowed = {name: ULPS * self.eps * gap.scale for name, gap in gaps.items()}
        beyond = {name: self._judged(gap, tried.at_jump) & ~(gap.rows <= allowed[name]) for name, gap in gaps.items()}
        open_rows = torch.zeros(rows, dtype=torch.bool)
        if any(bool(b.any()) for b in beyond.values()):
            beyond, allowed, open_rows = self._excuse(tried, gaps, beyond, allowed)
        self.judged += rows - int((tried.at_jump | open_rows).sum())
        failed, broken = torch.zeros(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.bool)
        if any(bool(bad.any()) for bad in beyond.values()):
            self.differ.append(tried)
        for name, bad in beyond.items():
            failed |= _of_call(bad, rows)
            broken |= _of_call(bad & gaps[name].rows.isinf(), rows)
            if bool(bad.any()):
                worst = int(torch.where(bad, gaps[name].rows, -1.0).argmax())
                self.failures.append(
                    f"{name} differs at {call.what}: row {worst} by {float(gaps[name].rows[worst]):.3g}, allowed "
                    f"{float(allowed[name][worst]):.3g}"
                )
        return _Compared(gaps, failed, broken, open_rows)

    @staticmethod
    def _judged(gap: Gap, at_jump: Tensor) -> Tensor:
        """Which rows of an output count; those that are not rows of the inputs count if no row is at a jump."""
        if len(gap.rows) == len(at_jump):
            return ~at_jump.to(gap.rows.device)
        return torch.full_like(gap.rows, not bool(at_jump.any()), dtype=torch.bool)

    def _excuse(
        self, tried: Tried, gaps: dict[str, Gap], beyond: dict[str, Tensor], allowed: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        """Take back what one ulp explains; draws are made only as long as a row needs one. And the open rows."""
        before = self._rows(beyond, tried)
        D = {name: torch.zeros_like(gap.rows) for name, gap in gaps.items()}
        still_open = {name: torch.zeros_like(bad) for name, bad in beyond.items()}
        for _ in range(DRAWS):
            moved = copied(self.original, self.nudge, self._nudged_unless_whole)
            near = run(moved, tried.call.mapped(self._nudged_unless_whole), self.modes)
            for name, change in _changes(tried.ran, near).items():
                if name in D and len(change) == len(D[name]):
                    D[name] = torch.maximum(D[name], change)
            for name, gap in gaps.items():
                most = self._most(gap)
                still_open[name] |= beyond[name] & (D[name] > most)
                allowed[name] = torch.maximum(allowed[name], self._excused(D[name], most))
                beyond[name] = beyond[name] & ~still_open[name] & ~(gap.rows <= allowed[name])
            if not any(bool(bad.any()) for bad in beyond.values()):
                break
        self.conditioning = max(self.conditioning, *(float(d.max()) if d.numel() else 0.0 for d in D.values()))
        open_rows = self._rows(still_open, tried)
        self.excused += int((before & ~self._rows(beyond, tried) & ~open_rows).sum())
        return beyond, allowed, open_rows

    def _most(self, gap: Gap) -> Tensor:
        """The largest D with which a row is judged: a share of its size, or rounding of the numbers that occur.

        Beyond, one ulp turns over a comparison or a direction, and float64 does not say what the function is there.
        """
        if self.shaken is None:
            return torch.full_like(gap.rows, torch.inf)
        return (AGREEMENT / TIMES_CONDITIONING * gap.scale).clamp(min=ULPS * self.eps * self.shaken.size)

    def _excused(self, D: Tensor, most: Tensor) -> Tensor:
        """What rows may differ by if D is what one ulp does.

        Where D moves the result of every operation, a row on which that happened to cancel takes the median row's D.
        """
        if self.shaken is not None and D.numel():
            D = torch.maximum(D, D.median())
        return TIMES_CONDITIONING * torch.minimum(D, most)

    @staticmethod
    def _rows(beyond: dict[str, Tensor], tried: Tried) -> Tensor:
        rows = torch.zeros(tried.call.rows, dtype=torch.bool)
        for bad in beyond.values():
            rows |= _of_call(bad, tried.call.rows)
        return rows

    def _nudged_unless_whole(self, value: Tensor) -> Tensor:
        """Inputs and buffers of whole numbers (masks, positions, counts) are exact: forward may ask ``mask == 1``."""
        if value.is_floating_point() and not bool((value == value.round()).all()):
            return self.nudge(value)
        return as_float64(value) if self.precision.float64 else value.clone()


class _Compared(NamedTuple):
    """What one call of both models shows."""

    gaps: dict[str, Gap]  # by outputs
    failed: Tensor  # rows that differ
    broken: Tensor  # rows whose numbers are not finite alike
    open: Tensor  # rows on which float64 does not say what the function is


def _of_call(bad: Tensor, rows: int) -> Tensor:
    """Bad rows of an output as rows of the inputs; all of them if the output has others."""
    bad = bad.cpu()
    return bad if len(bad) == rows else torch.full((rows,), bool(bad.any()))


def _gaps(a: Ran, b: Ran) -> dict[str, Gap]:
    """For everything that a call gives, how far it is from what the other gives."""
    missing = a.found.keys() ^ b.found.keys()
    if missing:
        raise InvalidValue(f"one model gives {sorted(missing)[0]} and the other does not; nothing to compare")
    found: dict[str, Gap] = {}
    for name, x in a.found.items():
        y = b.found[name]
        if isinstance(x, float) and isinstance(y, float):
            x, y = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            found[name] = _exactly(bool(type(x) is type(y) and (x is y or _equal(x, y))))
            continue
        if x.shape != y.shape:
            shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
            raise InvalidValue(f"the models return shapes {shapes} as {name}; nothing to compare")
        if x.is_floating_point() or x.is_complex():
            found[name] = gap_by_rows(x, y)
        else:
            different = (as_rows(x) != as_rows(y)).any(dim=1)
            rows = torch.where(different, torch.inf, 0.0).to(torch.float64)
            found[name] = Gap(rows, torch.zeros_like(rows))
    return found


def _equal(x: Any, y: Any) -> bool:
    if not isinstance(x, bool | int | str | bytes | torch.Size | torch.dtype | torch.device):
        return True  # an object without numbers that we could open
    return bool(x == y)


def _exactly(same: bool) -> Gap:
    return Gap(torch.tensor([0.0 if same else torch.inf], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))


def _changes(a: Ran, b: Ran) -> dict[str, Tensor]:
    """How far every row of every output moves; infinitely if it holds whole numbers and they change."""
    found: dict[str, Tensor] = {}
    for name, x in a.tensors.items():
        y = b.found.get(name)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            continue
        u, v = as_rows(x), as_rows(y)
        change = torch.where(u.isfinite() & v.isfinite(), (u - v).abs(), 0.0)
        largest = change.amax(dim=1) if change.shape[1] else change.new_zeros(len(change))
        whole = not (x.is_floating_point() or x.is_complex())
        found[name] = torch.where(largest > 0, torch.inf, 0.0).to(largest) if whole else largest
    return found


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
    judging = _Judge(original, twin, explored.precision, nudge, Shaken(generator))
    ours = with_same_parameters(small if shipped is None else shipped)
    certificate = _certificate(judging, explorer, explored, ours, as_stored)
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
        explorer.eps = shipped_eps(a)
        try:
            explored = explorer.explore(call, exact=False)
        except InvalidValue:
            raise
        except Exception as error:
            raise does_not_run(a, call, error) from error
        float64 = explored.precision.float64
        if not explored.given.ran.tensors:
            raise InvalidType(f"{type(a).__name__} gives no tensor; there is nothing to compare")

        def nudge(value: Tensor) -> Tensor:
            moved = nudged(value.detach(), generator)
            return as_float64(moved) if float64 else moved

        try:
            judging = _Judge(a, explored.precision.copy(b), explored.precision, nudge)
            return _certificate(judging, explorer, explored, copied(b, torch.clone))
        except InvalidValue:
            raise
        except Exception as error:
            raise InvalidValue(
                f"the second model does not run on the inputs of the first ({type(error).__name__}: {error})"
            ) from error


def _certificate(
    judging: _Judge, explorer: Explorer, explored: Explored, shipped: nn.Module, as_stored: Ran | None = None
) -> Certificate:
    """All that a judge finds; ``shipped`` is a copy of the small model as it is stored, the rest as in `judge`."""
    given = explored.given
    gaps, failed, broken, still_open = judging.compare(given)
    at_jump = int((given.at_jump | still_open).sum())
    if 2 * int(still_open.sum()) > given.call.rows:
        judging.failures.append(
            f"rounding alone moves what the original gives on {int(still_open.sum())} of {given.call.rows} rows, so "
            "that float64 does not tell which function it is"
        )
    for tried in (*_drawn_anew(explorer, given), *explored.others):
        try:
            _, bad, not_alike, _ = judging.compare(tried)
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
    in_dtype = {name: gap for name, gap in _gaps(F, G).items() if name in own}
    not_finite = torch.zeros(given.call.rows, dtype=torch.bool)
    for name, x in own.items():
        lost = (as_rows(x).isfinite() & ~as_rows(G.tensors[name]).isfinite()).any(dim=1)
        overflows = (as_rows(given.ran.tensors[name]).isfinite() & ~as_rows(x).isfinite()).any(dim=1)
        not_finite |= _of_call(lost | overflows, given.call.rows)
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


def _drawn_anew(explorer: Explorer, given: Tried) -> list[Tried]:
    """Rows that came near a jump, a little elsewhere; as long as some of them are still there, again."""
    if not bool(given.at_jump.any()):
        return []
    index = given.at_jump.nonzero()[:, 0]
    for _ in range(4):
        call = redrawn(given.call, index, explorer.generator, REDRAWN)
        try:
            tried = explorer.recorded(call)
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


def shipped_eps(model: nn.Module) -> float:
    """The eps of the shortest dtype among the parameters."""
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=torch.finfo(torch.float32).eps)
