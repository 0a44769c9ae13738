"""A model as a list of steps between tensors, by `torch.fx`.

`torch.fx` follows the model's own Python; layers that are known, radial activations and norm layers stay whole.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import operator
import os
import textwrap
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import torch
from torch import fx, nn

from ... import __file__ as radnet_file
from ...errors import InvalidValue
from ...modes import Argument, Unseen
from ...running import Call, Precision, attributes, restored
from ...threads import quietly, tracing
from ..operations import known_module, operation_of_function, operation_of_module, whole_module
from ..operations.embedding import Parameter
from ..operations.ends import Input, Output
from ..program import FunctionCall, Operation, Step, Unknown, Value, asks_for_kind, values_in
from ..reasons import Cause, Reason
from ..recording import Log, Recorder
from ..trust import has_hooks, is_trusted
from .memory import Values, Watched, steps_of

IN_PLACE = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
)  # fmt: skip


class Traced(NamedTuple):
    """The steps of a model, and what ran when its graph did (see `recording`)."""

    steps: list[Step]
    log: Log


def trace(model: nn.Module, inputs: Sequence[Argument] | Call) -> list[Step]:
    """The steps of a model on the given inputs.

    Raises
    ------
    InvalidValue
        If the model cannot be traced: the message has the place and what would help.
    """
    return trace_recorded(model, inputs if isinstance(inputs, Call) else Call(tuple(inputs))).steps


def trace_recorded(model: nn.Module, call: Call, precision: Precision | None = None) -> Traced:
    """The steps of a model and the log of the run in float64 that they were read from; raises like `trace`."""
    tracer, precision = ModelTracer(), Precision() if precision is None else precision
    try:
        with restored(model), torch.no_grad():
            graph = tracer.trace(model, absent(model, call))
            sides = dict(_kept(model))
            module = fx.GraphModule(tracer.root, graph)
        ran = Watched(module)
        recorder = Recorder(model)
        arguments = _flat_arguments(model, precision.inputs(call))
        with ExitStack() as stack:
            contexts: list[AbstractContextManager[object]] = [torch.no_grad(), restored(model), *precision.modes()]
            for context in (*contexts, recorder.whole(whole_modules(model)), recorder):
                stack.enter_context(context)
            ran.run(*arguments)
    except Exception as error:
        raise InvalidValue(
            f"{type(model).__name__} cannot be traced ({_place(error)}{type(error).__name__}: {error}); control flow "
            "that depends on data, and writing into tensors, have to move out of forward"
        ) from error
    return Traced(list(_steps(module, ran, sides)), recorder.log)


def absent(model: nn.Module, call: Call) -> dict[str, Argument]:
    """The arguments of forward that the call does not give, with their defaults: constants of the program."""
    names = _parameters_of(model)
    given = {*list(names)[: len(call.args)], *call.kwargs}
    return {name: p.default for name, p in names.items() if name not in given and p.default is not p.empty}


def _flat_arguments(model: nn.Module, call: Call) -> list[Argument]:
    """What the placeholders of the graph take: the arguments that are given, in the order of forward."""
    names = _parameters_of(model)
    found = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    return [found[name] for name in names if name in found] + list(call.args[len(names) :])


def _parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    kinds = inspect.Parameter
    return {
        name: p
        for name, p in inspect.signature(model.forward).parameters.items()
        if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    }


def _kept(model: nn.Module) -> Iterator[tuple[str, fx.Node]]:
    """What modules keep that belongs to a trace, by the names it has there."""
    for path, m in model.named_modules():
        for name, value in attributes(m):
            if isinstance(value, fx.Proxy):
                yield f"{path}.{name}" if path else name, value.node


def whole_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that are one step, known layers and torch's own too, by their first name."""
    return {path: m for path, m in model.named_modules() if whole_module(m) or known_module(m) or _torchs(m)}


def _torchs(m: nn.Module) -> bool:
    """Whether it is a module of torch's own, to which nothing was done."""
    torchs = type(m).__module__.startswith("torch.nn.") and not isinstance(m, _CONTAINERS)
    plain = "forward" not in vars(m) and not has_hooks(m) and not hasattr(m, "parametrizations")
    return torchs and plain and not is_trusted(type(m))


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict, nn.DataParallel)


#: attributes of a tensor that are tensors
_VIEWS = ("T", "mT", "H", "mH", "real", "imag")


class _Proxy(fx.Proxy):
    """A tensor while a model is traced.

    ``x += y`` is recorded as what it is, not as ``x = x + y``, and ``x.mT`` where it stands, not where it is used.
    """

    def __getattr__(self, name: str) -> Argument:
        if name in _VIEWS:
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name)

    def record(self, target: Callable[..., object], other: Argument) -> Argument:
        return self.tracer.create_proxy("call_function", target, (self, other), {})


for _operator in IN_PLACE:
    setattr(_Proxy, f"__{_operator.__name__}__", functools.partialmethod(_Proxy.record, _operator))


class ModelTracer(fx.Tracer):
    """torch.fx with layers that we know, radial activations and norm layers left whole."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for a tensor in the user's code."""
        return _Proxy(node, self)

    def create_node(self, *args: Argument, **kwargs: Argument) -> fx.Node:
        """A node that knows its line, so that a reason can quote it; to have torch record it takes seconds at first."""
        node = super().create_node(*args, **kwargs)
        node.stack_trace = _users_line()
        return node

    def trace(self, root: Argument, concrete_args: dict[str, Argument] | None = None) -> fx.Graph:
        """The graph of a module; which parts stay whole is found out before, while calling one still runs it."""
        self.whole = set(whole_modules(root).values())
        with tracing(), quietly(), Unseen():  # torch warns of arguments that it does not know how to check
            graph = super().trace(root, concrete_args)
        fixed = [f"{name}_{k}" for name in concrete_args or () for k in range(1, len(concrete_args or ()) + 1)]
        for node in [n for n in graph.nodes if n.op == "placeholder" and n.target in fixed]:
            _erase(graph, node)  # an argument that is not given is no argument of this program
        return graph

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step."""
        if isinstance(m, torch.jit.ScriptModule):
            return True
        return m in self.whole or super().is_leaf_module(m, module_qualified_name)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Take out a node with everything that depends on it, which is torch.fx asserting its value."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _steps(module: fx.GraphModule, ran: Watched, sides: Mapping[str, fx.Node]) -> Iterator[Step]:
    def describe(node: fx.Node, now: Values) -> Step | None:
        if node.op == "get_attr" and all(asks_for_kind(user, node) for user in node.users):
            return None
        operation, name, path = _described(module, node, ran)
        call = FunctionCall.of(node, ran.results)
        if node.op in ("placeholder", "get_attr", "output"):
            return Step(operation, name, values_in(node, now), ran.value(node), path)
        return fitted(operation, call, now, name, ran.value(node), path)

    return steps_of(list(module.graph.nodes), ran, describe, sides)


def _described(module: fx.GraphModule, node: fx.Node, ran: Watched) -> tuple[Operation, str, str | None]:
    """The operation of a node, its name, and its path in the model if it is a layer or a parameter."""
    if node.op in ("placeholder", "output"):
        return (Input() if node.op == "placeholder" else Output()), node.name, None
    if node.op == "get_attr":
        return Parameter(), str(node.target), str(node.target)
    if node.op != "call_module":
        return operation_of_function(FunctionCall.of(node, ran.results)), _function_name(node), None
    path = str(node.target)
    part = module.get_submodule(path)
    if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], fx.Node):
        return Unknown(Cause(Reason.SEVERAL_TENSORS), part), path, path
    return operation_of_module(part), path, path


def fitted(
    operation: Operation,
    call: FunctionCall,
    now: Values,
    name: str,
    output: Value | None,
    path: str | None = None,
) -> Step:
    """A step with its operands; an unknown one if they are not what the operation needs."""
    operands = operation.operands(call, now)
    if operands is None:
        operation, operands = Unknown(module=operation.module), values_in(call.node, now)
    return Step(operation, name, operands, output, path)


def _function_name(node: fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{name} ({node.stack_trace})" if node.stack_trace else str(name)


_LIBRARIES = tuple(str(Path(file).parent) + os.sep for file in (torch.__file__, radnet_file))


def _is_torch(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_LIBRARIES[0])


def _users_line() -> str | None:
    """The line of the user's code that is being traced: the first that is not a library's, seen from torch."""
    for frame, line in itertools.dropwhile(lambda f: not _is_torch(f[0].f_code), traceback.walk_stack(None)):
        if frame.f_code is fx.Tracer.trace.__code__:
            break  # what comes now called the tracer
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARIES):
            code = linecache.getline(file, line).strip()
            return textwrap.shorten(code, 80, placeholder=" …") or f"{Path(file).name}, line {line}"
    return None


def _place(error: Exception) -> str:
    """The last line of the user's code on the way to an error."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARIES):
            found = f"{Path(file).name}, line {line}: "
    return found
