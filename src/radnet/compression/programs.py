"""Traces every way that forward takes into a program, folds norm layers, and traces again until nothing more folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..errors import InvalidValue
from ..running import Call, in_mode
from .folding import fold
from .judging.comparisons import sizes_of
from .judging.explored import Explored
from .judging.exploring import Explorer
from .kinds import KindsGuard
from .operations import is_registered
from .program import Operation, Step, Unknown
from .reasons import Cause, Reason
from .recording import Log, missing
from .shipping import as_shipped
from .tracing.exported import export_recorded
from .tracing.fx import trace_recorded


class Follower:
    """Traces a copy of a model along every way that it is known to take, each once, and folds its norm layers."""

    def __init__(self, explored: Explored, explorer: Explorer, rewrite: bool) -> None:
        self.explored, self.explorer, self.rewrite = explored, explorer, rewrite
        explorer.release()
        self.distrusted: frozenset[type[Operation]] = frozenset()  # operations whose word is not taken
        self._why_exported = ""  # what torch.fx said, if it is torch.export that traces
        self._begin("torch.fx")

    def _begin(self, way: str) -> None:
        self.way, self.model = way, self.explored.precision.copy(self.explorer.model)
        self._found: list[list[Step]] = []
        self._folded = False
        self.kept: Mapping[str, Cause] = {}  # norm layers that could not be folded, and why

    def programs(self) -> list[list[Step]]:
        """The steps along each way, with all norm layers folded that can be; traced again after every fold."""
        while True:
            programs = self._traced_programs()
            folded = fold(self.model, [step for steps in programs for step in steps])
            if not folded.any:
                self.kept = folded.kept
                return programs
            self._found, self._folded = [], True  # the copy has changed: what runs is no longer what ran before

    def _traced_programs(self) -> list[list[Step]]:
        """By torch.fx where it sees what runs, by torch.export where it does not."""
        if self.way == "torch.export":
            self._follow_exported()
        else:
            try:
                self._follow(self._traced)
            except InvalidValue as error:
                if self.rewrite:
                    raise
                self._turn_to_export(error)
        return [[self._trusted(step) for step in _without_loops(steps, self.explored.looped)] for steps in self._found]

    def registered(self) -> dict[type[Operation], set[str]]:
        """The operations of the user's own that the model has, and where."""
        found: dict[type[Operation], set[str]] = {}
        for step in (step for steps in self._found for step in steps):
            if is_registered(step.operation):
                found.setdefault(type(step.operation), set()).add(step.path or step.name)
        return found

    def _trusted(self, step: Step) -> Step:
        distrusted = type(step.operation) in self.distrusted
        return replace(step, operation=Unknown(module=step.module)) if distrusted else step

    def _turn_to_export(self, why: InvalidValue) -> None:
        self.explorer.climb(self.explored)
        self.explorer.release()
        self._begin("torch.export")
        self._why_exported = str(why)
        self._follow_exported()

    def _follow_exported(self) -> None:
        try:
            self._follow(self._exported)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidValue(
                f"{self._why_exported}; nor can torch.export ({type(error).__name__}: {reason})"
            ) from error

    def _forget_sizes(self, call: Call) -> bool:
        """Forget calls of sizes with which forward turns off the way of the base as this call does; whether it does."""
        base, path = self.explored.base, self.explored.compared
        axes = [x.ndim for x in base.tensors]
        sizes = sizes_of(call) if [x.ndim for x in call.tensors] == axes else sizes_of(base)
        off = next((k for k, comparison in enumerate(path) if not comparison.holds(sizes)), None)
        if off is None:
            return False
        refused = (*path[:off], path[off].otherwise)
        self.explored.refused_sizes.append((base, refused))

        def turns(other: Call) -> bool:
            alike = [x.ndim for x in other.tensors] == axes
            return alike and all(comparison.holds(sizes_of(other)) for comparison in refused)

        self.explored.forget(turns)
        return True

    def restart(self) -> None:
        """Have new ways traced too: on a fresh copy if a layer was folded, which may be another function along them."""
        if self._folded:
            self._begin(self.way)

    def _follow(self, trace: Callable[[Call, Log], list[Step]]) -> None:
        explored = self.explored
        while len(self._found) <= len(explored.ways):
            k = len(self._found)
            call = (explored.base, *explored.ways)[k]
            try:
                with in_mode(self.model, call):
                    self._found.append(trace(call, explored.logs[k]))
            except Exception:
                if self.way == "torch.fx" or self.rewrite or not self._forget(call):
                    raise

    def _forget(self, call: Call) -> bool:
        """Forget a way that cannot be followed, if the kind of its arguments, or its sizes, can be refused."""
        base, found = self.explored.base, len(self._found)
        if call is base:
            return False
        kinds = KindsGuard(self.model, [(call.args, call.kwargs)])
        followed = (base, *self.explored.ways[: found - 1])
        if any(kinds.knows(other.args, other.kwargs) for other in followed):
            return self._forget_sizes(call)
        self.explored.forget(lambda other: kinds.knows(other.args, other.kwargs))
        return True

    def _traced(self, call: Call, log: Log) -> list[Step]:
        traced = trace_recorded(self.model, call, self.explored.precision)
        if not self._folded and traced.log != log:
            raise InvalidValue(
                f"{type(self.model).__name__} cannot be traced: while torch.fx looks, its forward does something else "
                "than when it runs"
            )
        return traced.steps

    def _exported(self, call: Call, log: Log) -> list[Step]:
        try:
            traced = export_recorded(self.model, self.explored.precision.inputs(call))
        except Exception:  # it insists on a dtype: follow it in its own
            traced = export_recorded(as_shipped(self.model, self.explorer.model), call, self.model)
        unseen = missing(log, traced.log)
        if not self._folded and unseen:
            raise InvalidValue(f"while it looks, {min(unseen)} does not run, which does otherwise")
        return traced.steps


def _without_loops(steps: Sequence[Step], looped: set[str]) -> list[Step]:
    """The steps with those of modules that are called in a loop of varying length as unknown ones.

    What can stand there would have to be a fixed point of the loop; so nothing is said of it, and it stays as it is.
    """
    loop = Unknown(Cause(Reason.LOOP))
    return [Step(loop, step.name, step.inputs, step.output) if step.path in looped else step for step in steps]
