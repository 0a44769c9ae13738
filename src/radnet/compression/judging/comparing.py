"""What a call of two models shows: how far everything they give is apart, row by row, and what rounding excuses."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sized
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...errors import InvalidValue
from ...measuring import AGREEMENT, DRAWS, TIMES_CONDITIONING, ULPS, Gap, as_rows, gap_by_rows
from ...modes import Shaken
from ...running import Precision, Ran, copied, run
from .explored import Tried
from .exploring import Nudges

#: where every row is at a jump, this share of them has to agree, and none may be off by more than so many times the
#: largest number that is there
MOST, FAR = 0.75, 4.0
#: rows at a jump tell something only if this share of their size is more than they may differ by
LOOSE = 0.25
#: columns so many times as large as the median one are judged apart
HUGE = 1e6
#: so many times the draws are made as long as every row that is beyond what is allowed is so by less than this factor
MORE_DRAWS, NEARLY = 4, 1.5


class Judge:
    """Compares what two models give, call by call; the small one is a copy in the precision of the judge.

    Weights that were computed in float64 (``shaken``) are as good as what the original computes with its own: D is what
    rounding does to it, operation by operation. Weights that were rounded are as good as the original's own weights.
    """

    def __init__(
        self, original: nn.Module, small: nn.Module, precision: Precision, nudges: Nudges, shaken: Shaken | None = None
    ) -> None:
        self.original, self.small, self.precision, self.nudges = original, small, precision, nudges
        self.shaken = shaken if precision.float64 else None
        # the last one sees an operation first: what shaking does itself is not lengthened
        self.modes = precision.modes() if self.shaken is None else (self.shaken, *precision.modes())
        self.eps = torch.finfo(torch.float64).eps if precision.float64 else shipped_eps(original)
        self.conditioning = 0.0
        self.judged = self.excused = 0
        self.failures: list[str] = []
        self.differ: list[Tried] = []  # the calls at which the two are not the same
        self.seen: set[str] = set()  # outputs that were judged somewhere
        self.limits: list[str] = []  # calls with another number of axes at which they are not
        self.refused_axes: set[int] = set()  # -1 if one of them has fewer, 1 if one has more
        self.last: dict[str, Tensor] = {}

    def compare(self, tried: Tried) -> Compared:
        """What a call of both models shows.

        Where the weights are rounded and every row is at a jump, the rows that agree all the same tell, if they are the
        most; the others need not, and those tell nothing that one ulp moves by a large part of their size.
        """
        if self.shaken is not None or not bool(tried.at_jump.all()):
            return self._compare(tried)
        noted = len(self.failures), len(self.differ), self.judged
        found = self._compare(tried._replace(at_jump=torch.zeros_like(tried.at_jump)))
        sizes = [float(gap.scale.max()) for gap in found.gaps.values() if gap.scale.numel()]
        far = [bool((gap.rows > FAR * max(sizes)).any()) for gap in found.gaps.values()] if sizes else []
        if not any(far):  # nothing that a jump does is larger than what is there
            del self.failures[noted[0] :], self.differ[noted[1] :]
        agree = int((~found.failed & ~found.loose).sum())
        self.judged = noted[2] + (agree if agree >= MOST * tried.call.rows else 0)
        return found._replace(failed=found.failed if any(far) else found.broken)

    def _compare(self, tried: Tried) -> Compared:
        call, rows = tried.call, tried.call.rows
        other = self.precision.run(self.small, call)
        self.last = self.last or other.tensors  # of the given inputs, which come first
        gaps = gaps_of(tried.ran, other, by_size=True)
        allowed = {name: ULPS * self.eps * gap.scale for name, gap in gaps.items()}
        judged = {name: self._judged(gap, tried.at_jump) for name, gap in gaps.items()}
        self.seen |= {
            name for name, rows_judged in judged.items() if bool(rows_judged.any()) or not rows_judged.numel()
        }
        beyond = {name: judged[name] & ~(gap.rows <= allowed[name]) for name, gap in gaps.items()}
        open_rows = torch.zeros(rows, dtype=torch.bool)
        if any(bool(b.any()) for b in beyond.values()):
            beyond, allowed, open_rows = self._excuse(tried, gaps, beyond, allowed)
        self.judged += rows - int((tried.at_jump | open_rows | _says_nothing(tried.ran, rows)).sum())
        failed, broken = torch.zeros(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.bool)
        if any(bool(bad.any()) for bad in beyond.values()):
            self.differ.append(tried)
        for name, bad in beyond.items():
            failed |= of_call(bad, rows)
            broken |= of_call(bad & gaps[name].rows.isinf(), rows)
            if bool(bad.any()):
                worst = int(torch.where(bad, gaps[name].rows, -1.0).argmax())
                self.failures.append(
                    f"{name} differs at {call.what}: row {worst} by {float(gaps[name].rows[worst]):.3g}, allowed "
                    f"{float(allowed[name][worst]):.3g}"
                )
        loose = {name: allowed[name] > LOOSE * gap.scale for name, gap in gaps.items()}
        return Compared(gaps, failed, broken, open_rows, self._rows(loose, tried))

    @staticmethod
    def _judged(gap: Gap, at_jump: Tensor) -> Tensor:
        """Which rows of an output count; those that are not rows of the inputs count if no row is at a jump."""
        if len(gap.rows) == len(at_jump):
            return ~at_jump.to(gap.rows.device)
        return torch.full_like(gap.rows, not bool(at_jump.any()), dtype=torch.bool)

    def _excuse(
        self, tried: Tried, gaps: dict[str, Gap], beyond: dict[str, Tensor], allowed: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        """Take back what one ulp explains; draws are made only as long as a row needs one. And the open rows.

        D is the most that was seen, so where a row is beyond what is allowed by little, more draws are made.
        """
        before = self._rows(beyond, tried)
        D = {name: torch.zeros_like(gap.rows) for name, gap in gaps.items()}
        still_open = {name: torch.zeros_like(bad) for name, bad in beyond.items()}
        for draw in range(MORE_DRAWS * DRAWS):
            if draw >= DRAWS and any(
                bool((bad & (gaps[k].rows > NEARLY * allowed[k])).any()) for k, bad in beyond.items()
            ):
                break
            moved = copied(self.original, self.nudges.weights, self.nudges.given)
            near = run(moved, tried.call.mapped(self.nudges.given), self.modes)
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
            rows |= of_call(bad, tried.call.rows)
        return rows


def _says_nothing(ran: Ran, rows: int) -> Tensor:
    """The rows for which a model gives no finite number at all."""
    found = [as_rows(x).isfinite().any(dim=1).cpu() for x in ran.tensors.values() if x.is_floating_point()]
    silent = torch.full((rows,), bool(found))
    for finite in found:
        silent &= ~finite if len(finite) == rows else torch.full((rows,), not bool(finite.any()))
    return silent


class Compared(NamedTuple):
    """What one call of both models shows."""

    gaps: dict[str, Gap]  # by outputs
    failed: Tensor  # rows that differ
    broken: Tensor  # rows whose numbers are not finite alike
    open: Tensor  # rows on which float64 does not say what the function is
    loose: Tensor  # rows that may differ by more than a quarter of their size


def of_call(bad: Tensor, rows: int) -> Tensor:
    """Bad rows of an output as rows of the inputs; all of them if the output has others."""
    bad = bad.cpu()
    return bad if len(bad) == rows else torch.full((rows,), bool(bad.any()))


def gaps_of(a: Ran, b: Ran, *, by_size: bool = False) -> dict[str, Gap]:
    """For everything that a call gives, how far it is from what the other gives; with ``by_size`` see `parts_of`."""
    missing = a.found.keys() ^ b.found.keys()
    if missing:
        raise InvalidValue(f"one model gives {sorted(missing)[0]} and the other does not; nothing to compare")
    found: dict[str, Gap] = {}
    for name, x in a.found.items():
        y = b.found[name]
        if all(isinstance(z, numbers.Real) and not isinstance(z, int) for z in (x, y)):  # NumPy's too
            x, y = (torch.tensor(float(z), dtype=torch.float64) for z in (x, y))
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            found[name] = _exactly(type(x) is type(y) and (x is y or _equal(name, x, y)))
            continue
        if x.shape != y.shape:
            shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
            raise InvalidValue(f"the models return shapes {shapes} as {name}; nothing to compare")
        if x.is_floating_point() or x.is_complex():
            other = as_rows(y)
            for part, columns in parts_of(name, x).items() if by_size else [(name, slice(None))]:
                found[part] = gap_by_rows(as_rows(x)[:, columns], other[:, columns])
        else:
            different = (as_rows(x) != as_rows(y)).any(dim=1)
            rows = torch.where(different, torch.inf, 0.0).to(torch.float64)
            found[name] = Gap(rows, torch.zeros_like(rows))
    return found


def parts_of(name: str, x: Tensor) -> dict[str, slice | Tensor]:
    """The columns of an output; those apart that are so large that what stands beside them would be their rounding.

    >>> {part: str(columns) for part, columns in parts_of("output", torch.tensor([[1.0, 2.0], [3.0, 1e12]])).items()}
    {'output': 'tensor([ True, False])', 'output, its largest entries': 'tensor([False,  True])'}
    """
    rows = as_rows(x)
    if rows.shape[1] < 2 or not len(rows):
        return {name: slice(None)}
    sizes = torch.where(rows.isfinite(), rows.abs(), 0.0).amax(dim=0)
    huge = sizes > HUGE * sizes.median()
    if not bool(huge.any()) or not float(sizes.median()):
        return {name: slice(None)}
    return {name: ~huge, f"{name}, its largest entries": huge}


_PLAIN = (bool, int, float, str, bytes, torch.Size, torch.dtype, torch.device)


def _equal(name: str, x: object, y: object) -> bool:
    """Whether two things that are no tensors are equal; those that cannot tell, or may hide tensors, are refused."""
    tells = type(x).__eq__ is not object.__eq__ and not callable(x)
    if not isinstance(x, _PLAIN) and (not tells or isinstance(x, Iterable | Sized)):
        raise InvalidValue(
            f"{name} is a {type(x).__name__}, which cannot be opened; return lists, tuples or dictionaries"
        )
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
        changes = torch.where(u.isfinite() & v.isfinite(), (u - v).abs(), 0.0)
        whole = not (x.is_floating_point() or x.is_complex())
        for part, columns in parts_of(name, x).items() if not whole else [(name, slice(None))]:
            change = changes[:, columns]
            largest = change.amax(dim=1) if change.shape[1] else change.new_zeros(len(change))
            found[part] = torch.where(largest > 0, torch.inf, 0.0).to(largest) if whole else largest
    return found


def shipped_eps(model: nn.Module) -> float:
    """The eps of the shortest dtype among the parameters."""
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=torch.finfo(torch.float32).eps)
