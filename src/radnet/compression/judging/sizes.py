"""At which sizes of its inputs a model's Python turns another way, found out without computing anything.

A copy of the model runs on fake tensors, which have sizes and no numbers: a million rows cost as much as one. A size is
a symbol there, and every comparison of sizes that the user's own code makes is noted. Then sizes are looked for with
which a comparison comes out the other way, and so on, until all ways are known:

    if T > 700: ...              noted: (T > 700) is False at T = 6; T = 701 runs along the other way
    if B > 40 and T > 40: ...    noted: (B > 40) is False; at B = 41: (T > 40) is False; B = T = 41 runs along the other

A size that the code turns into a plain number (``len(x)``, ``range(T)``) is lost to this; for such a one, sizes up to
`comparisons.HIGHEST` are tried, and between two that take different ways the smallest that takes the other one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice, product
from typing import NamedTuple

from torch import Tensor, nn

from ...modes import Mode
from ...running import Call, Precision, copied, run
from ...threads import silently
from ..recording import Log, Recorder, essence, grown_by, loops, proportional
from ..tracing.fx import whole_modules
from ..tracing.opaque import as_one_operation
from .comparisons import HIGHEST, Comparison, Path, Sizes, sizes_of, solved, together
from .fakes import Cap, FewZeros, Refused, TooLong, Unknown, World, raised_by_user

#: how many operations a run may have more than the first one; and all runs together that look behind long loops
MORE_OPERATIONS, LONG_LOOPS = 500, 3_000
#: ways that are looked for, and how many runs that may take
MOST_WAYS, MOST_RUNS = 32, 250
#: sizes that are plain numbers are tried in steps of so many doublings; and turns that are looked for along one axis
STRIDE, MOST_TURNS = 2, 4
#: pairs of sizes that the code names, which are tried where two axes are plain numbers
MOST_CORNERS = 36


class Turn(NamedTuple):
    """Sizes for which a model's Python takes another way than with those it was given."""

    path: Path  # the comparisons that lead there
    examples: tuple[Sizes, ...]  # such sizes; none if none were found, or looked at
    sure: bool  # whether the model takes them, as far as tensors without numbers tell


class Turns:
    """Looks for the sizes at which a model's Python turns another way than with the sizes of a call.

    Parameters
    ----------
    model : nn.Module
        A copy of the model, in that precision; it runs.
    call : Call
    precision : Precision
    runs : int
        How many runs on fake tensors it may take, the same on every machine; ``left`` is what is left of them.
    named : collection of int
        Sizes that the model's code names.
    compares : bool
        Whether that code compares anything; if not, no size that it names can be a turn behind a long loop.
    """

    def __init__(
        self,
        model: nn.Module,
        call: Call,
        precision: Precision,
        runs: int = MOST_RUNS,
        named: Collection[int] = (),
        *,
        compares: bool = True,
    ) -> None:
        self.named, self.compares = named, compares
        self.looped: set[str] = set()  # modules that are called more often with larger sizes
        self.copy, self.call, self.precision = model, call, precision
        self.given = sizes_of(call)
        self.axes = [axis for x in call.tensors for axis in range(x.ndim)]
        self._free: dict[int, bool] = {}  # whether the model accepts that this size alone, or its like, is another
        with silently():
            self.world = World()
        self.left = runs
        self.compared: Path = ()  # what forward compares with the sizes of the call
        self.lost: set[int] = set()  # axes whose sizes the code has turned into numbers
        self._step: Counter[str] = Counter()  # how a log grows with a loop
        self._logs: dict[Sizes, Log] = {}
        self._more, self._patience = sys.maxsize, LONG_LOOPS  # the first run may take what it takes

    def found(self) -> list[Turn]:
        """The turns; none if the model does not run on fake tensors, where something asks for numbers."""
        whole = whole_modules(self.copy)
        with silently():
            for twin in (copied(self.copy, self.world.parameter, Tensor.clone), self.copy):
                self.copy, self.whole = twin, {path: twin.get_submodule(path) for path in whole}
                with suppress(Exception):  # whatever a model says to tensors, or to parameters, without numbers
                    self.first = self._log(self.given)
                    break
            else:
                return []
            self._more = MORE_OPERATIONS
            self.compared = self._first_path()
            self._look_for_loops()
            return [*self._other_paths(self.compared), *self._beyond()]

    # --- by symbols

    def _first_path(self) -> Path:
        """The comparisons with the given sizes; all are lost if forward does not take symbols for numbers."""
        path: Path = ()
        with suppress(Exception):
            path = self._path(self.given)
            if essence(self.symbolic_log) == essence(self.first):
                return path
        self.lost |= set(range(len(self.given)))
        return path

    def _other_paths(self, first: Path) -> Iterator[Turn]:
        """Every path is followed to its end, and left at each comparison that nobody has seen come out otherwise."""
        todo: list[Path] = [_left(first, k) for k in range(len(first))][::-1]
        known = {first[: k + 1] for k in range(len(first))}
        tried = 0
        while todo and tried < MOST_WAYS and self.left > 0:
            path = todo.pop()
            if path in known or self._can_only_be_otherwise(path[-1]) or self._contradicts_itself(path):
                continue
            known.add(path)
            tried += 1
            there = self._tried(path)
            if there is None:
                yield Turn(path, tuple(self._examples(path)), sure=False)
            elif there.taken is not None:
                known |= {there.taken[: k + 1] for k in range(len(there.taken))}
                todo += [_left(there.taken, k) for k in range(len(path), len(there.taken))][::-1]
                if there.other:
                    yield Turn(there.taken, (there.sizes,), sure=True)
        for path in todo:  # nobody has looked there
            if path not in known and not (self._can_only_be_otherwise(path[-1]) or self._contradicts_itself(path)):
                yield Turn(path, tuple(self._examples(path)), sure=False)

    def _contradicts_itself(self, path: Path) -> bool:
        """Whether there are no such sizes, surely: comparisons of one size, and no remainders, which go on for ever."""
        one = len({k for comparison in path for k in comparison.about}) == 1
        plain = not any(sign in comparison.code for comparison in path for sign in ("%", "//"))
        return one and plain and solved(path, self.given) is None

    def _tried(self, path: Path) -> _There | None:
        """What happens with sizes for which these comparisons come out so; None if that cannot be told."""
        for several in self._examples(path):
            try:
                other = self._log(several) != self.first
            except Refused:
                return _There(several, None, False)
            except Exception:  # noqa: S112  # these do not go together
                continue
            try:
                return _There(several, self._path(several), other)
            except Exception:  # an operation does not take symbols: what comes after it is not known
                return _There(several, path, other)
        return None

    def _examples(self, path: Path) -> Iterator[Sizes]:
        """Sizes with which these comparisons come out so; those of other tensors may have to change along."""
        sizes = solved(path, self.given)
        for several in self._together(sizes) if sizes is not None else ():
            if all(comparison.holds(several) for comparison in path):
                yield several

    def _can_only_be_otherwise(self, comparison: Comparison) -> bool:
        """Whether a comparison is only about sizes that the model does not let change."""
        return all(not self._may_change(k) for k in comparison.about)

    def _may_change(self, k: int) -> bool:
        if k not in self._free:
            n = self.given[k]
            others = (self._with([k], m) for m in (n + 1, 2 * n, 3 * n, n - 1, n + 2, n + 8, 4 * n) if m > 0)
            self._free[k] = any(self._runs(several) for sizes in others for several in self._together(sizes))
        return self._free[k]

    def _runs(self, sizes: Sizes) -> bool:
        try:
            self._log(sizes)
        except (Refused, TooLong):
            return True  # it is the user's own code that says no: to this size
        except Exception:
            return False
        return True

    def _path(self, sizes: Sizes) -> Path:
        """The comparisons that the user's code makes with these sizes, each once, in their order."""
        self.world.asked.begin()
        recorder = Recorder(self.copy)
        self.symbolic_log = recorder.log
        with self.world.between:
            self._run(self.world.symbolic, sizes, (self._cap(), recorder), recorder.whole(self.whole))
        lost, found = self.world.asked.told()
        path = tuple(dict.fromkeys(Comparison(code, outcome) for code, outcome in found))
        lost += " ".join(comparison.code for comparison in path if not comparison.holds(sizes))  # they cannot be made
        self.lost |= {k for k in range(len(sizes)) if f"n[{k}]" in lost}
        return tuple(comparison for comparison in path if comparison.holds(sizes))

    # --- by numbers

    def _look_for_loops(self) -> None:
        """Note the modules that are called more often, or less, where a size is another."""
        for k, n in enumerate(self.given):
            with suppress(Exception):  # it does not take such a size
                self.looped |= loops(self.first, self._log(self._with([k], 4 * n)))

    def _beyond(self) -> Iterator[Turn]:
        """For sizes that are plain numbers to the code: where it turns, alone and together."""
        lost = self.lost if len(self.lost) < len(self.given) else ()
        for k in sorted(lost):  # beyond a turn, forward may make numbers of further sizes
            with suppress(Exception):
                self._path(self._with([k], 1 + max((4 * self.given[k], *self.named))))
        free = sorted(k for k in self.lost if self._may_change(k))
        for axes in [[k] for k in free] + ([free] if len(free) > 1 else []):
            yield from self._along(axes)
        if len(free) == 2:
            yield from self._corners(free)

    def _corners(self, axes: list[int]) -> Iterator[Turn]:
        """Turns where one size is large and another small: at the sizes that the code names, in pairs."""
        self.reference, self.by_names = self.first, self._has_sizes_among_numbers(axes)
        tried = [[n for n in {2, *self.named} if n != self.given[k]] for k in axes]
        for pair in islice(sorted(product(*tried), key=lambda pair: -abs(pair[0] - pair[1])), MOST_CORNERS):
            if self.left <= 0:
                return
            sizes = tuple(dict(zip(axes, pair, strict=True)).get(k, n) for k, n in enumerate(self.given))
            with suppress(Exception):  # it does not take these
                if self._is_other(sizes):
                    signs = [">=" if sizes[k] > self.given[k] else "<=" for k in axes]
                    path = [Comparison(f"n[{k}] {sign} {sizes[k]}", True) for k, sign in zip(axes, signs, strict=True)]
                    yield Turn(tuple(path), (sizes,), sure=True)
                    return

    def _along(self, axes: list[int]) -> Iterator[Turn]:
        """The turns where these sizes grow: from one to the next, by doublings and at the sizes that the code names."""
        doubled = {2**exponent for exponent in range(1, HIGHEST.bit_length(), STRIDE)}
        self.reference, self.by_names = self.first, self._has_sizes_among_numbers(axes)
        given = last = self.given[axes[0]]
        found = 0
        for size in sorted(n for n in doubled.union(self.named) if n != given):
            if self.left <= 0 or found >= MOST_TURNS:
                break
            try:
                there = self._at(axes, size)
            except TooLong:
                yield from self._behind_a_loop(axes, size)
                break
            except Unknown:  # nobody can look there
                yield _unseen(axes, size)
                break
            if there is not None and there.other and size < given:
                yield Turn(tuple(Comparison(f"n[{k}] <= {size}", True) for k in axes), (there.sizes,), sure=True)
            elif there is not None and there.other:
                found += 1
                yield (turn := self._between(axes, last, there))
                self.reference = self._log(turn.examples[0])
            last = max(last, size)

    def _behind_a_loop(self, axes: list[int], beyond: int) -> Iterator[Turn]:
        """The first size from ``beyond`` on that the code names and that is, or may be, a turn: it is not tried.

        A program of so many turns of a loop would take minutes to follow.
        """
        for size in sorted(n for n in self.named if n >= beyond) if self.compares else ():
            self._more = self._patience
            try:
                there = self._at(axes, size)
                other = there is not None and there.other
                self._patience -= 0 if there is None else len(self._logs[there.sizes])
            except (TooLong, Unknown):
                other = True
            finally:
                self._more = MORE_OPERATIONS
            if other:
                yield _unseen(axes, size)
                return

    def _has_sizes_among_numbers(self, axes: list[int]) -> bool:
        """Whether what runs has numbers in it that are made of these sizes; then only the operations are compared."""
        with suppress(Exception):
            return self._log(self._with(axes, self.given[axes[0]] + 1)) != self.first
        return False

    def _between(self, axes: list[int], low: int, found: _There) -> Turn:
        """The smallest size above ``low`` from which on, as far as halving tells, the other way is taken."""
        high = found.sizes[axes[0]]
        while high - low > 1:
            middle = (low + high) // 2
            there = self._at(axes, middle)
            if there is not None and there.other:
                found, high = there, middle
            else:
                low = middle
        return Turn(tuple(Comparison(f"n[{k}] >= {high}", True) for k in axes), (found.sizes,), sure=True)

    def _at(self, axes: list[int], size: int) -> _There | None:
        for several in self._together(self._with(axes, size)):
            try:
                return _There(several, None, self._is_other(several))
            except Refused:
                return None
            except (TooLong, Unknown):
                raise
            except Exception:  # noqa: S112  # these do not go together
                continue
        return None

    # --- sizes

    def _with(self, axes: list[int], size: int) -> Sizes:
        return tuple(size if k in axes else n for k, n in enumerate(self.given))

    def _together(self, sizes: Sizes) -> Iterator[Sizes]:
        return together(sizes, self.given, self.axes)

    # --- runs

    def _is_other(self, sizes: Sizes) -> bool:
        """Whether another way is taken; a loop that is only longer is none, if all of the log grows with it."""
        log = self._log(sizes)
        before, after = ([name for name, _ in part] if self.by_names else part for part in (self.reference, log))
        if before == after:
            return False
        only_longer = {name for name, _ in log} <= {name for name, _ in self.reference}
        looped = loops(self.reference, log)
        self.looped |= looped
        if not (looped and only_longer):
            return True
        grown = grown_by(self.reference, log)
        self._step = self._step or grown
        return not proportional(grown, self._step)

    def _log(self, sizes: Sizes) -> Log:
        """What runs with these sizes."""
        if sizes in self._logs:
            return self._logs[sizes]
        recorder = Recorder(self.copy)
        modes = self._cap(), FewZeros(self.world), recorder
        self._run(self.world.static, sizes, modes, recorder.whole(self.whole))
        self._logs[sizes] = recorder.log
        return recorder.log

    def _cap(self) -> Cap:
        return Cap(self._more + len(getattr(self, "first", ())))

    def _run(
        self,
        fake: Callable[[Tensor, Sizes], Tensor],
        sizes: Sizes,
        modes: tuple[Mode, ...] = (),
        whole: AbstractContextManager[None] | None = None,
    ) -> None:
        self.left -= 1
        rest = list(sizes)

        def replaced(x: Tensor) -> Tensor:
            own, rest[:] = tuple(rest[: x.ndim]), rest[x.ndim :]
            return fake(x, own)

        call = self.precision.inputs(self.call).mapped(replaced)
        with as_one_operation(self.copy), whole or nullcontext():
            try:
                run(self.copy, call, (self.world.mode, *self.precision.modes(), *modes))
            except self.world.unsupported as error:
                raise Unknown from error
            except Exception as error:
                if raised_by_user(error):
                    raise Refused from error
                raise


def _unseen(axes: list[int], size: int) -> Turn:
    """From this size on nobody knows."""
    return Turn(tuple(Comparison(f"n[{k}] >= {size}", True) for k in axes), (), sure=False)


def _left(path: Path, k: int) -> Path:
    return (*path[:k], path[k].otherwise)


class _There(NamedTuple):
    """With some sizes: the comparisons that a model makes, if it accepts them, and whether it does other things."""

    sizes: Sizes
    taken: Path | None
    other: bool
