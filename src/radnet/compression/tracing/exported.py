"""The steps of a model by way of `torch.export`, for models whose Python `torch.fx` cannot follow.

An exported program is a list of operations on tensors; each remembers the module it came from. Operations of one call
of a radial activation or a norm layer become one step again, those of a linear layer, a convolution or an embedding are
found by the parameter they use, and the rest by name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from ...containers import DEEPEST
from ...lean import only_looked_at
from ...modes import Argument, Float64
from ...running import Call, as_float64, opened, restored
from ...threads import silently, tracing
from ..operations import layer_of_aten, operation_of_aten, operation_of_module, whole_module
from ..operations.embedding import Parameter
from ..operations.ends import Input, Output
from ..program import FunctionCall, Operation, Step, Unknown, asks_for_kind, values_in
from ..reasons import Cause, Reason
from ..recording import Recorder
from .fx import Traced, fitted, whole_modules
from .memory import Values, Watched, steps_of
from .opaque import as_one_operation, put_back


def trace_exported(model: nn.Module, inputs: Sequence[Argument] | Call) -> list[Step]:
    """The steps of a model on the given inputs; raises whatever `torch.export` raises."""
    return export_recorded(model, inputs).steps


def export_recorded(model: nn.Module, inputs: Sequence[Argument] | Call, wide: nn.Module | None = None) -> Traced:
    """The steps of a model and the log of the run that they were read from; raises whatever `torch.export` raises.

    Parameters
    ----------
    model : nn.Module
    inputs : sequence, or Call
    wide : nn.Module, optional
        The copy whose modules the steps are to name; the model itself by default.
    """
    call = (inputs if isinstance(inputs, Call) else Call(tuple(inputs))).mapped(lambda x: x.detach().clone())
    around = tracing(), silently(), only_looked_at(), torch.no_grad(), restored(model), _giving_tensors(model)
    with ExitStack() as stack:
        for context in around:
            stack.enter_context(context)
        activations = stack.enter_context(as_one_operation(model))
        program = torch.export.export(model, call.args, dict(call.kwargs), strict=False)
    put_back(program.graph, activations)
    ran = Watched(program.graph_module)
    recorder = Recorder(model)
    arguments = list(_arguments(program, call))
    inside = _inside(program, model if wide is None else wide)
    ran.before = lambda node: recorder.mute(inside.get(node))
    with torch.no_grad(), Float64(), recorder:
        ran.run(*arguments)
    steps = list(_Reader(model if wide is None else wide, program, ran).steps())
    return Traced(steps, recorder.log)


@contextmanager
def _giving_tensors(model: nn.Module) -> Iterator[None]:
    """While this lasts, a model gives a list of the tensors in what it gives: torch.export knows few classes."""
    forward, before = model.forward, vars(model).get("forward")

    @functools.wraps(forward)
    def call(*args: Argument, **kwargs: Argument) -> list[Tensor]:
        return [x for _, x in opened("output", forward(*args, **kwargs), DEEPEST) if isinstance(x, Tensor)]

    model.forward = call
    try:
        yield
    finally:
        if before is None:
            vars(model).pop("forward", None)
        else:
            vars(model)["forward"] = before


def _inside(program: torch.export.ExportedProgram, model: nn.Module) -> dict[fx.Node, tuple[str, str]]:
    """For every node of a call of a module that is one step: its first name, and a key that tells calls apart."""
    names = {m: path for path, m in whole_modules(model).items()}
    whole = {path: names[m] for path, m in model.named_modules(remove_duplicate=False) if m in names}
    found = {}
    for node in program.graph_module.graph.nodes:
        stack = [(whole[path], key) for key, (path, _) in node.meta.get("nn_module_stack", {}).items() if path in whole]
        if stack:
            found[node] = stack[0]
    return found


def _arguments(program: torch.export.ExportedProgram, call: Call) -> Iterator[Argument]:
    """What the placeholders of an exported graph take: parameters, buffers, constants, and the inputs, flattened."""
    given = iter(tree_leaves((call.args, dict(call.kwargs))))
    kinds = torch.export.graph_signature.InputKind
    for spec in program.graph_signature.input_specs:
        state = program.state_dict.get(str(spec.target), program.constants.get(str(spec.target)))
        x = next(given) if spec.kind == kinds.USER_INPUT else state
        yield as_float64(x.detach()) if isinstance(x, Tensor) else x


class _Call(NamedTuple):
    """A call of a module that stays whole: what goes in, the operation that comes out, and why it cannot stay whole."""

    path: str
    input: fx.Node | None
    last: fx.Node
    broken: Reason | None


class _Layer(NamedTuple):
    """A layer that an operation belongs to: what it is, its path, and what it reads."""

    operation: Operation
    path: str
    input: fx.Node


class _Reader:
    def __init__(self, model: nn.Module, program: torch.export.ExportedProgram, ran: Watched) -> None:
        signature = program.graph_signature
        self.model, self.graph, self.ran = model, program.graph_module.graph, ran
        self.states = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.states.update(getattr(signature, "inputs_to_lifted_tensor_constants", {}))
        self.whole: dict[str, bool] = {}
        self.calls = self._whole_calls()

    def steps(self) -> Iterator[Step]:
        """All steps, in order."""
        return steps_of(list(self.graph.nodes), self.ran, self._step)

    def _step(self, node: fx.Node, now: Values) -> Step | None:
        call = self.calls.get(node)
        if call is not None:
            same = _same_tensor(node)
            if node is call.last:
                return self._call(node, call, now)
            if call.broken:
                return self._unknown(node, call.broken, now, call.path)
            if same in now:
                now[node] = now[same]  # a conversion to the dtype it has is the tensor itself
            return None
        if node.op == "output":
            return Step(Output(), "output", values_in(node, now), None)
        if node.op == "placeholder":
            return self._placeholder(node)
        return None if "_assert" in str(node.target) else self._operation(node, now)

    def _placeholder(self, node: fx.Node) -> Step | None:
        if node.name not in self.states:
            return Step(Input(), node.name, (), self.ran.value(node))
        plain = [user for user in node.users if self._layer(user) is None and user not in self.calls]
        if all(asks_for_kind(user, node) for user in plain):
            return None
        path = self.states[node.name]
        return Step(Parameter(), path, (), self.ran.value(node), path)

    def _layer(self, node: fx.Node) -> _Layer | None:
        """The layer of a class we know that an operation belongs to."""
        known = layer_of_aten(str(node.target))
        if known is None:
            return None
        kind, at, weight_at = known
        weight, read = node.args[weight_at], node.args[at]
        name = self.states.get(weight.name, "") if isinstance(weight, fx.Node) else ""
        running = self._running(node)
        if running is None or not name.endswith("weight") or not isinstance(read, fx.Node):
            return None
        path, module = running
        operation = operation_of_module(module)
        return _Layer(operation, path, read) if isinstance(operation, kind) else None

    def _running(self, node: fx.Node) -> tuple[str, nn.Module] | None:
        """The path and the module of the innermost forward an operation belongs to; None for the model's own.

        The name of a weight does not tell: a tied one has another's, and ``F.linear`` may be given that of any layer.
        """
        stack = list(node.meta.get("nn_module_stack", {}).values())
        path = stack[-1][0] if stack else ""
        try:
            return (path, self.model.get_submodule(path)) if isinstance(path, str) and path else None
        except AttributeError:
            return None

    def _operation(self, node: fx.Node, now: Values) -> Step:
        layer = self._layer(node)
        if layer is not None and layer.input in now:
            return Step(layer.operation, layer.path, (now[layer.input],), self.ran.value(node), layer.path)
        call = FunctionCall.of(node, self.ran.results)
        return fitted(operation_of_aten(call), call, now, _name(node), self.ran.value(node))

    def _unknown(self, node: fx.Node, why: Reason, now: Values, path: str | None = None) -> Step:
        return Step(Unknown(Cause(why)), path or _name(node), values_in(node, now), self.ran.value(node))

    # --- calls of modules that stay whole

    def _whole_calls(self) -> dict[fx.Node, _Call]:
        """For every operation inside a call of such a module: its path, what goes in, the operation that comes out."""
        calls: list[tuple[str, list[fx.Node]]] = []
        before = None
        for node in self.graph.nodes:
            stack = [(key, path) for key, (path, _) in node.meta.get("nn_module_stack", {}).items()]
            inside_of = next(((key, path) for key, path in stack if path and self._stays_whole(path)), None)
            if inside_of is not None and inside_of == before:  # a second call has a key of its own
                calls[-1][1].append(node)
            elif inside_of is not None:
                calls.append((inside_of[1], [node]))
            before = inside_of
        fixed: set[fx.Node] = set()  # what depends on parameters alone
        for node in self.graph.nodes:
            state = node.op == "get_attr" or (node.op == "placeholder" and node.name in self.states)
            if state or (node.op == "call_function" and all(n in fixed for n in node.all_input_nodes)):
                fixed.add(node)
        found: dict[fx.Node, _Call] = {}
        for path, nodes in calls:
            inside = set(nodes)
            outside = [n for n in nodes if n not in fixed and any(user not in inside for user in n.users)]
            leaving = [n for n in outside if _same_tensor(n) is None or _same_tensor(n) in inside]
            entering = [m for n in nodes for m in n.all_input_nodes if m not in inside and m not in fixed]
            broken = None
            held = set().union(*(self.ran.storages(n) for n in entering), set())
            if any(self.ran.written.get(n, set()) & held for n in nodes):
                broken = Reason.CHANGED
            elif len(leaving) != 1 or len(set(entering)) != 1:
                broken = Reason.USED_INSIDE
            call = _Call(path, entering[0] if entering else None, leaving[-1] if leaving else nodes[-1], broken)
            found.update(dict.fromkeys(nodes, call))
        return found

    def _stays_whole(self, path: str) -> bool:
        if path not in self.whole:
            try:
                self.whole[path] = whole_module(self.model.get_submodule(path))
            except AttributeError:
                self.whole[path] = False
        return self.whole[path]

    def _call(self, node: fx.Node, call: _Call, now: Values) -> Step:
        if call.broken or call.input not in now:
            return self._unknown(node, call.broken or Reason.READS_UNFOLLOWED, now, call.path)
        operation = operation_of_module(self.model.get_submodule(call.path))
        return Step(operation, call.path, (now[call.input],), self.ran.value(node), call.path)


def _same_tensor(node: fx.Node) -> fx.Node | None:
    """What a conversion to the same dtype converts; None for anything else."""
    if str(node.target) != "aten.to.dtype" or not isinstance(node.args[0], fx.Node):
        return None
    before, after = node.args[0].meta.get("val"), node.meta.get("val")
    same = isinstance(before, Tensor) and isinstance(after, Tensor) and before.dtype == after.dtype
    return node.args[0] if same else None


def _name(node: fx.Node) -> str:
    lines = (node.meta.get("stack_trace") or node.stack_trace or "").strip().splitlines()
    return f"{node.target} ({lines[-1].strip()})" if lines else str(node.target)
