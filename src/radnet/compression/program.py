"""A model as a list of steps between tensors, by `torch.fx`.

`torch.fx` follows the model's own Python; radial activations and norm layers stay whole. Each step has a kind that the
analysis knows ("linear", "add", "radial", ...), or "unknown" with the name of what it is.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ..activations import RadialActivation
from ..errors import InvalidValue
from ..running import Call, Precision, as_float64, attributes, copied, restored, run_in_float64
from ..threads import tracing
from .folded import FoldedBatchNorm
from .memory import CHANGED, Step, Value, Values, Watched, steps_of
from .operations import Kind, Operation, adaptive_kind, argument, flatten_kind, function_kind, pool_kind
from .recording import Log, Recorder
from .trust import (
    ADAPTIVE_POOLS,
    BATCH_NORMS,
    CONVOLUTIONS,
    DROPOUTS,
    KNOWN,
    POOLS,
    class_of,
    has_hooks,
    stands_for,
    why_not,
)  # fmt: skip

__all__ = ["CHANGED", "Step", "Value", "trace"]

IN_PLACE = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
)  # fmt: skip


class Traced(NamedTuple):
    """The steps of a model, and what ran when its graph did (see `recording`)."""

    steps: list[Step]
    log: Log


def trace(model: nn.Module, inputs: Sequence[Any] | Call) -> list[Step]:
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
            contexts: list[Any] = [torch.no_grad(), restored(model), *precision.modes()]
            for context in (*contexts, recorder.whole(whole_modules(model)), recorder):
                stack.enter_context(context)
            ran.run(*arguments)
    except Exception as error:
        raise InvalidValue(
            f"{type(model).__name__} cannot be traced ({_place(error)}{type(error).__name__}: {error}); control flow "
            "that depends on data, and writing into tensors, have to move out of forward"
        ) from error
    return Traced(list(_steps(module, ran, sides)), recorder.log)


def absent(model: nn.Module, call: Call) -> dict[str, Any]:
    """The arguments of forward that the call does not give, with their defaults: constants of the program."""
    names = _parameters_of(model)
    given = {*list(names)[: len(call.args)], *call.kwargs}
    return {name: p.default for name, p in names.items() if name not in given and p.default is not p.empty}


def _flat_arguments(model: nn.Module, call: Call) -> list[Any]:
    """What the placeholders of the graph take: the arguments that are given, in the order of forward."""
    names = _parameters_of(model)
    found = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    return [found[name] for name in names if name in found] + list(call.args[len(names) :])


def _parameters_of(model: nn.Module) -> Mapping[str, Any]:
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
    return {path: m for path, m in model.named_modules() if whole_module(m) or class_of(m) is not None or _torchs(m)}


def _torchs(m: nn.Module) -> bool:
    """Whether it is a module of torch's own, to which nothing was done."""
    ours = type(m).__module__.startswith("torch.nn.") and not isinstance(m, _CONTAINERS) and type(m) not in KNOWN
    return ours and "forward" not in vars(m) and not has_hooks(m) and not hasattr(m, "parametrizations")


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict, nn.DataParallel)


def whole_module(m: nn.Module) -> bool:
    """Modules that are one step, however many operations they are made of."""
    return isinstance(m, RadialActivation) or class_of(m, _NORMS) is not None or rms_norm(m) is not None


_NORMS = (nn.RMSNorm, nn.LayerNorm, *BATCH_NORMS)


class RMSNormOf(NamedTuple):
    """What an RMSNorm is made of: ``v -> gain * v / sqrt(|v|^2/n + eps)``."""

    n: int
    eps: float | None  # None: the eps of the dtype that arrives, or of float32 if that is shorter
    gain: Tensor | None


#: what an RMSNorm may be made of: operations without branches, so that agreement at many scales is agreement
_RMS_OPERATIONS = (
    "aten.pow", "aten.mul", "aten.square", "aten.mean", "aten.add", "aten.rsqrt", "aten.sqrt", "aten.reciprocal",
    "aten.div", "aten._to_copy", "aten.to.", "aten._fused_rms_norm", "aten.rms_norm", "aten.empty", "aten.view",
)  # fmt: skip


def rms_norm(m: nn.Module) -> RMSNormOf | None:
    """n, eps and gain of an RMSNorm: torch's, or one of the many others, which are tried out first."""
    if stands_for(m, nn.RMSNorm):
        norm: Any = m
        return RMSNormOf(norm.normalized_shape[0], norm.eps, norm.weight) if len(norm.normalized_shape) == 1 else None
    gain: Any = m._parameters.get("weight")
    eps: Any = getattr(m, "variance_epsilon", getattr(m, "eps", None))
    named = type(m).__name__.endswith("RMSNorm") and not isinstance(m, nn.RMSNorm)
    if not named or gain is None or gain.ndim != 1 or len(list(m.parameters())) != 1:
        return None
    if not isinstance(eps, float) or has_hooks(m) or "forward" in vars(m):
        return None
    return RMSNormOf(len(gain), eps, gain) if _is_rms_norm(m, gain.detach(), eps) else None


def _is_rms_norm(m: nn.Module, gain: Tensor, eps: float) -> bool:
    """Whether a module computes the formula, over 48 orders of magnitude and at 0, by smooth operations alone."""
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(26, len(gain), generator=generator, dtype=torch.float64)
    v = (v * torch.cat([torch.logspace(-24, 24, 25, dtype=torch.float64), torch.zeros(1)]).unsqueeze(1)).to(gain.device)
    try:
        wide = copied(m, as_float64)
        recorder = Recorder(wide)
        (found,) = run_in_float64(wide, Call((v,)), [recorder]).tensors.values()
    except Exception:  # whatever a module says that is none
        return False
    if not all(name.startswith(_RMS_OPERATIONS) for name, _ in recorder.log):
        return False
    expected = as_float64(gain) * v / (v.square().mean(dim=1, keepdim=True) + eps).sqrt()
    allowed = 32 * torch.finfo(torch.float64).eps * expected.abs().amax(dim=1, keepdim=True)
    return found.shape == expected.shape and bool(((found - expected).abs() <= allowed).all())


#: attributes of a tensor that are tensors
_VIEWS = ("T", "mT", "H", "mH", "real", "imag")


class _Proxy(fx.Proxy):
    """A tensor while a model is traced.

    ``x += y`` is recorded as what it is, not as ``x = x + y``, and ``x.mT`` where it stands, not where it is used.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _VIEWS:
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name)

    def record(self, target: Callable[..., Any], other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, other), {})


for _operator in IN_PLACE:
    setattr(_Proxy, f"__{_operator.__name__}__", functools.partialmethod(_Proxy.record, _operator))


class ModelTracer(fx.Tracer):
    """torch.fx with layers that we know, radial activations and norm layers left whole."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for a tensor in the user's code."""
        return _Proxy(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """A node that knows its line, so that a reason can quote it; to have torch record it takes seconds at first."""
        node = super().create_node(*args, **kwargs)
        node.stack_trace = _users_line()
        return node

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """The graph of a module; which parts stay whole is found out before, while calling one still runs it."""
        self.whole = set(whole_modules(root).values())
        with tracing():
            graph = super().trace(root, concrete_args)
        fixed = [f"{name}_{k}" for name in concrete_args or () for k in range(1, len(concrete_args or ()) + 1)]
        for node in [n for n in graph.nodes if n.op == "placeholder" and n.target in fixed]:
            _erase(graph, node)  # an argument that is not given is no argument of this program
        return graph

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step."""
        return m in self.whole or super().is_leaf_module(m, module_qualified_name)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Take out a node with everything that depends on it, which is torch.fx asserting its value."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _steps(module: fx.GraphModule, ran: Watched, sides: Mapping[str, fx.Node]) -> Iterator[Step]:
    def describe(node: fx.Node, now: Values) -> Step | None:
        if node.op == "get_attr" and not node.users:
            return None
        kind, name, part, path, options = _describe(module, node, ran)
        kind, options, inputs = fitted(kind, options, Operation.of(node, ran), now)
        return Step(kind, name, inputs, ran.value(node), part, path, options)

    return steps_of(list(module.graph.nodes), ran, describe, sides)


def fitted(kind: str, options: dict[str, Any], op: Operation, now: Values) -> tuple[str, dict[str, Any], Inputs]:
    """A kind with its operands; unknown if they are not what the kind needs."""
    inputs = tuple(now[n] for n in op.node.all_input_nodes if n in now)
    if kind in ("input", "parameter", "output", "unknown"):
        return kind, options, inputs
    if kind in ("add", "cat"):
        operands = argument(op, 0, "tensors") if kind == "cat" else op.args[:2]
        fits = isinstance(operands, list | tuple) and all(isinstance(n, fx.Node) and n in now for n in operands)
        if fits and operands and (kind == "add" or isinstance(options["dim"], int)):
            return kind, options, tuple(now[n] for n in operands)  # in their order, twice if they are there twice
        return "unknown", {}, inputs
    if len(inputs) != 1 or (kind == "pool" and len(inputs[0].shape) != options["axes"] + 2):
        return "unknown", {}, inputs
    return kind, options, inputs


Inputs = tuple[Value, ...]
_Description = tuple[str, str, nn.Module | None, str | None, dict[str, Any]]


def _describe(module: fx.GraphModule, node: fx.Node, ran: Watched) -> _Description:
    if node.op in ("placeholder", "output"):
        return ("input" if node.op == "placeholder" else "output"), node.name, None, None, {}
    if node.op == "get_attr":
        return "parameter", str(node.target), None, str(node.target), {}
    if node.op == "call_module":
        path = str(node.target)
        part = module.get_submodule(path)
        kind, options = module_kind(part)
        if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], fx.Node):
            kind, options = "unknown", {"why": "is called with more than one tensor"}
        return kind, path, part, path, options
    kind, options = function_kind(Operation.of(node, ran))
    return kind, _function_name(node), None, None, options


def module_kind(m: nn.Module) -> Kind:
    """What the analysis calls a module, if it may be taken for what its class says (see `trust`)."""
    if isinstance(m, RadialActivation):
        why = why_not(m, RadialActivation)
        return ("radial", {}) if why is None else ("unknown", {"why": why})
    kind: Any = class_of(m)
    if kind is None and rms_norm(m) is not None:
        return "norm", {}
    if kind is None:
        near = next((cls for cls in KNOWN if isinstance(m, cls)), None)
        return "unknown", ({} if near is None else {"why": why_not(m, near)})
    layer: Any = m
    if kind is nn.Linear:
        return "linear", {}
    if kind in CONVOLUTIONS and layer.groups == 1:
        return "conv", {}
    if kind in CONVOLUTIONS:
        return "unknown", {"why": "is a grouped convolution, which ties channels together"}
    if kind is nn.Embedding and layer.max_norm is None and not layer.sparse:
        return "embedding", {}
    if kind in (nn.Identity, FoldedBatchNorm) or (kind in DROPOUTS and not m.training):
        return "same", {}
    if kind is nn.Flatten:
        return flatten_kind(layer.start_dim, layer.end_dim)
    if kind in POOLS:
        divisor = getattr(m, "divisor_override", None)
        return pool_kind(POOLS.index(kind) + 1, layer.padding, layer.count_include_pad, divisor)
    if kind in ADAPTIVE_POOLS:
        return adaptive_kind(ADAPTIVE_POOLS.index(kind) + 1)
    if kind in (nn.LayerNorm, nn.RMSNorm) and len(layer.normalized_shape) == 1:
        return "norm", {}
    return "unknown", {}


def _function_name(node: fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{name} ({node.stack_trace})" if node.stack_trace else str(name)


_LIBRARIES = tuple(str(Path(file).parents[depth]) + os.sep for file, depth in ((torch.__file__, 0), (__file__, 1)))


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
