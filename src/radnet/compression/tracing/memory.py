"""A graph run once: what every node made, where that lies in memory, and what it wrote into.

A value is what a node's tensor holds at a moment. An operation that writes into memory gives every node whose tensor
lies there a new value: readers from then on do not see what readers before saw. Whether an operation writes, and where,
is taken from the schemas of what actually ran (`recording.Writes`), and who shares memory from the addresses, so
nothing depends on names. An operation that is the same in place (`Operation.updates`) is followed; any other pins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, fx

from ...modes import Argument, storage_of
from ..program import Step, Unknown, Value
from ..reasons import Cause, Reason
from ..recording import Writes

CHANGED = Unknown(Cause(Reason.CHANGED))


class Place(NamedTuple):
    """Where a tensor lies: equal places are the same numbers."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Watched(fx.Interpreter):
    """Runs a graph once, node by node, and keeps what has to be known of every node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)  # addresses must not be used again
        self.results: dict[fx.Node, object] = {}
        self.written: dict[fx.Node, set[int]] = {}
        self._places: dict[fx.Node, Place | None] = {}
        self._held: dict[fx.Node, set[int]] = {}
        self._writes = Writes()
        self.before: Callable[[fx.Node], None] | None = None  # is told of every node before it runs

    def run_node(self, n: fx.Node) -> Argument:
        """Run one node."""
        if self.before is not None:
            self.before(n)
        asserts = n.op == "call_function" and "_assert" in str(n.target)  # torch.export notes dtypes, which we change
        with self._writes:
            result = None if asserts else super().run_node(n)
        self.results[n] = result
        self.written[n] = self._writes.taken()
        self._places[n] = _place(result)  # now: it may be given other memory later
        self._held[n] = set(_storages(result))
        return result

    def value(self, node: fx.Node) -> Value | None:
        """The value a node makes; None if it makes no tensor."""
        x = self.results.get(node)
        return Value(node.name, tuple(x.shape), x.dtype) if isinstance(x, Tensor) else None

    def place(self, node: fx.Node) -> Place | None:
        """Where the tensor of a node lay when it was made; None if it makes none."""
        return self._places.get(node)

    def storages(self, node: fx.Node) -> set[int]:
        """All memory that what a node gave lay in, also in tuples and lists."""
        return self._held.get(node, set())


def _place(x: object) -> Place | None:
    if not isinstance(x, Tensor):
        return None
    if x.layout != torch.strided or x.is_nested:  # it has no strides
        return Place(storage_of(x), 0, (), ())
    return Place(storage_of(x), int(x.storage_offset()), tuple(x.shape), x.stride())


def _storages(x: object) -> Iterator[int]:
    if isinstance(x, Tensor):
        yield storage_of(x)
    elif isinstance(x, list | tuple | dict):
        for part in x.values() if isinstance(x, dict) else x:
            yield from _storages(part)


Values = dict[fx.Node, Value]  # what the tensors of nodes hold at a moment
Describe = Callable[[fx.Node, Values], Step | None]


def steps_of(
    nodes: Sequence[fx.Node], ran: Watched, describe: Describe, kept: Mapping[str, fx.Node] | None = None
) -> Iterator[Step]:
    """The steps of a graph, every one with the values its operands have at that moment.

    Parameters
    ----------
    nodes : sequence of nodes
    ran : Watched
        The graph after it has run.
    describe : callable
        Gives the step of a node, whose output is ``ran.value(node)``; None for nodes that are no step.
    kept : mapping, optional
        Nodes whose tensors are left on the model, by the names they have there: outputs, in effect.
    """
    now: Values = {}
    for node in nodes:
        step = describe(node, now)
        written = ran.written.get(node, set())
        touched = [m for m in now if ran.storages(m) & written] if written else []
        if step is not None and touched:
            yield from _after_writing(node, step, touched, now, ran)
        elif step is not None:
            yield step
        if step is not None and step.output is not None:
            now[node] = step.output
    for name, node in (kept or {}).items():
        if node in now:
            yield Step(Unknown(Cause(Reason.KEPT)), name, (now[node],), None)


def _after_writing(node: fx.Node, step: Step, touched: list[fx.Node], now: Values, ran: Watched) -> Iterator[Step]:
    """The steps of an operation that wrote into tensors of earlier nodes; ``now`` gets their new values."""
    first = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
    there = ran.place(node)
    in_place = step.operation.updates and first is not None and there == ran.place(first)
    same = [m for m in touched if in_place and ran.place(m) == there]
    others = [m for m in touched if m not in same]
    affected = tuple(dict.fromkeys(now[m] for m in others))
    if in_place:  # the same as out of place, if those that lie there too are read as the result from now on
        step.in_place = True
        if affected:
            yield Step(CHANGED, step.name, affected, None)
        yield step
    else:
        inputs = tuple(dict.fromkeys((*step.inputs, *affected)))
        yield Step(CHANGED, step.name, inputs, step.output)
    for m in same:
        now[m] = step.made
    for m in others:
        old = now[m]
        now[m] = Value(f"{old.name} after {node.name}", old.shape, old.dtype)
