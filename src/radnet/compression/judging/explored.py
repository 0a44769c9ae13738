"""What is known of a model before it is traced: the calls that were tried, what they gave, the ways they took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from ...running import Call, Precision, Ran
from ..recording import Log, grown_by, proportional
from .comparisons import Path

#: calls with loops of other lengths that are judged, each because the lengths of those before do not explain its log
MOST_LOOPS = 4


class Tried(NamedTuple):
    """A call, what the original gave, which of its rows came near a jump of an activation, and what ran."""

    call: Call
    ran: Ran
    at_jump: Tensor
    log: Log


@dataclass(eq=False)
class Explored:
    """What is known of a model before it is traced."""

    precision: Precision
    base: Call  # to be traced with
    given: Tried
    others: list[Tried] = field(default_factory=list)  # other calls that the model accepts
    ways: list[Call] = field(default_factory=list)  # those among them that take another way
    alike: list[Call] = field(default_factory=list)  # calls with other arguments that take a known way with these sizes
    looped: set[str] = field(default_factory=set)  # modules called as often as an axis is long, or an argument says
    # modules whose results, or what is made of them, are asked for their shapes; are left on the model; must not change
    measured: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    pinned: set[str] = field(default_factory=set)
    differ: list[Tried] = field(default_factory=list)  # calls at which a small model was found to differ
    refused_axes: frozenset[int] = frozenset()  # -1, 1: a small model is another function with fewer, with more axes
    refused_sizes: list[tuple[Call, Path]] = field(
        default_factory=list
    )  # comparisons of sizes that lead nobody knows where
    compared: Path = ()  # the comparisons of sizes that forward makes with those of the base
    refused_training: bool = False  # in training mode forward does something else, and it was given in evaluation mode
    asked: dict[str, set[str]] = field(default_factory=dict)  # sizes of layers that forward reads, by path
    logs: list[Log] = field(default_factory=list)  # of the base and of the ways
    layers: frozenset[str] = frozenset()  # the layers with parameters that are called as such
    ran: set[str] = field(default_factory=set)  # those among them, and other modules, that some call has run
    loop_steps: list[Mapping[str, int]] = field(default_factory=list)  # what loops of other lengths run more or less of

    def add_way(self, call: Call, log: Log) -> None:
        """Have the model followed with this call as well."""
        self.ways.append(call)
        self.logs.append(log)

    def forget(self, which: Callable[[Call], bool]) -> None:
        """Forget calls that cannot be followed: they are not judged either."""
        kept = [(way, log) for way, log in zip(self.ways, self.logs[1:], strict=True) if not which(way)]
        self.ways, self.logs = [way for way, _ in kept], [self.logs[0], *(log for _, log in kept)]
        self.others = [tried for tried in self.others if not which(tried.call)]

    def unexplained(self, log: Log) -> bool:
        """Whether more differs in a log of longer or shorter loops than that they are longer or shorter.

        Between two lengths of one loop, what is counted in a log differs by a multiple of one and the same step.
        """
        more = grown_by(self.logs[0], log)
        if any(proportional(more, step) for step in self.loop_steps) or len(self.loop_steps) >= MOST_LOOPS:
            return False
        self.loop_steps.append(more)
        return True

    def idle(self) -> list[str]:
        """The layers that no call has run."""
        return sorted(self.layers - self.ran)


def shapes_tried(found: Explored) -> Sequence[str]:
    """What the calls were, in words."""
    return tuple(dict.fromkeys(tried.call.what for tried in found.others))


def other_kind(call: Call, base: Call) -> bool:
    """Whether an argument is a tensor in one call and is left out, or None, in the other.

    There are few such calls, so each is followed for itself, and none is taken for a longer loop.
    """
    a, b = ({str(k) for k, x in (*enumerate(c.args), *c.kwargs.items()) if isinstance(x, Tensor)} for c in (call, base))
    return a != b and len(call.args) == len(base.args)
