"""A model as a list of steps between tensors, whichever way it was traced.

`torch.fx` follows the model's own Python; radial activations and norm layers stay whole. Each step has a kind that the
analysis knows ("linear", "add", "radial", ...), or "unknown" with the name of what it is.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import textwrap
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ..activations import RadialActivation
from ..errors import InvalidValue
from ..network import RadNet
from .memory import IN_PLACE, changed_in_place
from .operations import Kind, argument, function_kind, pool_kind

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
_SAME = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


CHANGED = "is changed in place"


@dataclass(eq=False)
class Value:
    """A tensor that flows through the model: its name in the trace, its shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(eq=False)
class Step:
    """One operation: what kind, which module or parameter, tensors in, tensors out."""

    kind: str
    name: str
    inputs: tuple[Value, ...]
    output: Value | None
    module: nn.Module | None = None
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    changed: bool = False  # whether something writes into what a layer made
    in_place: bool = False  # whether its result stands where its first operand stood

    @property
    def made(self) -> Value:
        """The value it makes; every step of a known kind but the model's output makes one."""
        if self.output is None:
            raise InvalidValue(f"{self.name} gives no tensor; compress needs layers that do")
        return self.output


def trace(model: nn.Module, inputs: Sequence[Tensor]) -> list[Step]:
    """The steps of a model on the given inputs, by `torch.fx`.

    Raises
    ------
    InvalidValue
        If the model cannot be traced: the message has the place and what would help.
    """
    tracer = ModelTracer()
    try:
        graph = tracer.trace(model)
    except Exception as error:
        raise InvalidValue(
            f"{type(model).__name__} cannot be traced ({_place(error)}{type(error).__name__}: {error}); control flow "
            "that depends on data, and writing into tensors, have to move out of forward"
        ) from error
    module = fx.GraphModule(tracer.root, graph)
    values = _Values(module)
    with torch.no_grad():
        values.run(*inputs)
    return list(_steps(module, values.found))


def whole_module(m: nn.Module) -> bool:
    """Modules that are one step, however many operations they are made of."""
    known = isinstance(m, RadialActivation | nn.RMSNorm | nn.LayerNorm | nn.modules.batchnorm._BatchNorm)
    return known or rms_norm(m) is not None


class RMSNormOf(NamedTuple):
    """What an RMSNorm is made of: ``v -> gain * v / sqrt(|v|^2/n + eps)``."""

    n: int
    eps: float | None  # None: the eps of the dtype that arrives, or of float32 if that is shorter
    gain: Tensor | None


def rms_norm(m: nn.Module) -> RMSNormOf | None:
    """n, eps and gain of an RMSNorm: torch's, or one of the many others, which are tried out first."""
    if type(m) is nn.RMSNorm:
        return RMSNormOf(m.normalized_shape[0], m.eps, m.weight) if len(m.normalized_shape) == 1 else None
    gain: Any = getattr(m, "weight", None)
    eps: Any = getattr(m, "variance_epsilon", getattr(m, "eps", None))
    if not type(m).__name__.endswith("RMSNorm") or not isinstance(gain, nn.Parameter) or gain.ndim != 1:
        return None
    if len(list(m.parameters())) != 1 or not isinstance(eps, float) or _has_hooks(m):
        return None
    generator = torch.Generator().manual_seed(0)
    v = (torch.randn(6, len(gain), generator=generator) * torch.logspace(-3, 2, 6).unsqueeze(1)).to(gain)
    with torch.no_grad():
        try:
            found = m(v).double()
        except Exception:
            return None
        wide = v.double()
        expected = gain.double() * wide / (wide.square().mean(dim=1, keepdim=True) + eps).sqrt()
    close = found.shape == expected.shape and bool(
        ((found - expected).abs() <= 32 * torch.finfo(gain.dtype).eps * expected.abs().max()).all()
    )
    return RMSNormOf(len(gain), eps, gain) if close else None


class _Proxy(fx.Proxy):
    """A tensor while a model is traced; ``x += y`` is recorded as what it is, not as ``x = x + y``."""

    def record(self, target: Callable[..., Any], other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, other), {})


for _operator in IN_PLACE:
    setattr(_Proxy, f"__{_operator.__name__}__", functools.partialmethod(_Proxy.record, _operator))


class ModelTracer(fx.Tracer):
    """torch.fx with radial activations and norm layers left whole."""

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
        self.whole = {m for m in root.modules() if whole_module(m)}
        return super().trace(root, concrete_args)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step."""
        return m in self.whole or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A RadNet is followed layer by layer."""
        if isinstance(m, RadNet) and not _has_hooks(m):  # its forward checks its input, which is not there yet
            x = args[0] if args else next(iter(kwargs.values()))
            for layer, rho in zip(m.layers, m.rescalings, strict=True):
                x = rho(layer(x))
            return x
        return super().call_module(m, forward, args, kwargs)


class _Values(fx.Interpreter):
    """Runs the graph once and keeps what is needed of every tensor."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: dict[fx.Node, Value] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.found[n] = Value(n.name, tuple(result.shape), result.dtype)
        return result


def _steps(module: fx.GraphModule, values: dict[fx.Node, Value]) -> Iterator[Step]:
    shapes = {node: value.shape for node, value in values.items()}
    changed = changed_in_place(module)
    for node in module.graph.nodes:
        if node.op == "get_attr" and not node.users:
            continue
        inputs = tuple(values[n] for n in node.all_input_nodes if n in values)
        kind, name, part, path, options = _describe(module, node, shapes)
        if kind in ("add", "cat"):
            kind, inputs = with_operands(kind, node, values)
        if node in changed and kind not in ("output", "linear", "conv", "embedding"):
            kind, options = "unknown", {"why": CHANGED}
        yield Step(kind, name, inputs, values.get(node), part, path, options, changed=node in changed)


_Description = tuple[str, str, nn.Module | None, str | None, dict[str, Any]]


def with_operands(kind: str, node: fx.Node, values: dict[fx.Node, Value]) -> tuple[str, tuple[Value, ...]]:
    """The operands of a sum or a concatenation in their order, twice if they are there twice."""
    operands = argument(node, 0, "tensors") if kind == "cat" else node.args[:2]
    if isinstance(operands, list | tuple) and all(isinstance(n, fx.Node) and n in values for n in operands):
        return kind, tuple(values[n] for n in operands if isinstance(n, fx.Node))
    return "unknown", tuple(values[n] for n in node.all_input_nodes if n in values)


def _describe(module: fx.GraphModule, node: fx.Node, shapes: dict[fx.Node, tuple[int, ...]]) -> _Description:
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
    kind, options = function_kind(node, shapes)
    return kind, _function_name(node), None, None, options


def module_kind(m: nn.Module) -> Kind:
    """What the analysis calls a module; exactly these classes, since a subclass may do anything."""
    if _has_hooks(m):
        return "unknown", {"why": "has hooks"}
    if hasattr(m, "parametrizations"):
        return "unknown", {"why": "is parametrized"}
    if isinstance(m, RadialActivation):
        known = type(m).forward is RadialActivation.forward or type(m).__module__ == RadialActivation.__module__
        return ("radial", {}) if known else ("unknown", {"why": "has a forward of its own"})
    kind = type(m)
    if kind is nn.Linear:
        return "linear", {}
    if kind in _CONVS and m.groups == 1:
        return "conv", {}
    if kind in _CONVS:
        return "unknown", {"why": "is a grouped convolution, which ties channels together"}
    if kind is nn.Embedding and m.max_norm is None and not m.sparse:
        return "embedding", {}
    if kind in _SAME and not (m.training and kind is not nn.Identity):
        return "same", {}
    if kind is nn.Flatten:
        return "flatten", {"start": m.start_dim, "end": m.end_dim}
    if kind in _POOLS:
        return pool_kind(m.padding, m.count_include_pad, getattr(m, "divisor_override", None))
    if kind in _ADAPTIVE:
        return "pool", {"zeros": False}
    if (kind is nn.LayerNorm and len(getattr(m, "normalized_shape", ())) == 1) or rms_norm(m) is not None:
        return "norm", {}
    return "unknown", {}


def _function_name(node: fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{name} ({node.stack_trace})" if node.stack_trace else str(name)


def _has_hooks(m: nn.Module) -> bool:
    return bool(m._forward_hooks or m._forward_pre_hooks)


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
