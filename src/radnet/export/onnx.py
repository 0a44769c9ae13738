"""A model as an ONNX file: made by torch's exporter, in the lean form, and compared with the model in onnxruntime.

The graph is torch's (``torch.onnx.export``); what is ours is what it is made of (`radnet.lean`), shorter weights on
request, the words in its metadata, and that a file is written only if onnxruntime gives the numbers that PyTorch gives.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from .. import __version__
from ..compression import Compression, ModelCompression
from ..compression.arguments import inputs_for
from ..compression.judging.certificate import Certificate
from ..errors import InvalidType, InvalidValue, MissingPackage
from ..measuring import DRAWS, TIMES_CONDITIONING, ULPS, gap_by_rows, nudged
from ..modes import Argument
from ..network import RadNet
from ..running import Call, copied
from ..threads import silently
from ..writing import write_atomically
from .doubles import restore, written_out
from .shorter import shortened

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

#: the version of ONNX's operators that is written unless another is asked for
OPSET = 18
#: one file holds no more, which is a limit of its format
_LARGEST = 2**31 - 1
#: how onnxruntime says that it lacks an operator
_LACKING = re.compile(r"Could not find an implementation for (\w+)")
_TALKS = "torch.onnx._internal.exporter._registration"  # of libraries that are not installed
Weights = Literal["float16", "int8"]


@dataclass(frozen=True)
class OnnxExport:
    """What `export_onnx` wrote, and how far onnxruntime is from PyTorch on the given inputs."""

    path: str
    opset: int
    nodes: int
    bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optimization: str  # how far onnxruntime may rewrite the graph: "all", or "basic" where more would cost digits
    weights: str  # the dtype they are kept in
    gap: float  # the largest difference; with shorter weights, what they change
    scale: float  # the largest output, beside which the gap is seen
    rows: int

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON."""
        return asdict(self)


def export_onnx(
    model: nn.Module | Compression[RadNet] | ModelCompression[nn.Module],
    path: str | os.PathLike[str],
    inputs: Argument = None,
    *,
    weights: Weights | None = None,
    opset: int = OPSET,
    dynamic: bool = True,
    certificate: Certificate | None = None,
) -> OnnxExport:
    """Write a model as ONNX, once onnxruntime has given the numbers that PyTorch gives.

    Parameters
    ----------
    model : nn.Module, or what `compress` gives
        What it does in evaluation mode is written. With a compression its certificate goes into the file.
    path : str or path
        Written at once or not at all.
    inputs : Tensor, or a tuple with one entry for each argument, optional
        What the model is followed and compared with; by default 256 normal rows for a model that begins with a linear
        layer.
    weights : "float16" or "int8", optional
        Keep matrices shorter: in half precision, or as 8-bit integers with one scale for each output. They are
        made long again where they are used, and what that changes is measured (``gap``).
    opset : int
        Version of ONNX's operators.
    dynamic : bool
        Whether the number of rows is left open.
    certificate : Certificate, optional
        For the metadata, where the model is given without one.

    Returns
    -------
    OnnxExport

    Raises
    ------
    MissingPackage
        Without onnx, onnxscript and onnxruntime: ``pip install 'radnet[onnx]'``.
    InvalidType
        If it is no module.
    InvalidValue
        If torch cannot export it, onnxruntime cannot run it (the operator is named) or gives other numbers, it is
        quantised already, or it is larger than a file of this kind may be. Nothing is written then.

    Examples
    --------
    >>> import os, tempfile, radnet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = radnet.export_onnx(radnet.RadNet((2, 8, 1)), os.path.join(folder, "net.onnx"))
    >>> found.nodes, found.gap < 1e-5
    (8, True)
    """
    _check_packages()
    if isinstance(model, Compression | ModelCompression):
        certificate = model.certificate if certificate is None else certificate
        inputs = model.inputs if inputs is None and isinstance(model, ModelCompression) else inputs
        model = model.network
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise InvalidType(f"export_onnx needs a module or a compression, got a {type(model).__name__}")
    if weights not in (None, "float16", "int8"):
        raise InvalidValue(f'weights={weights!r}: expected None, "float16" or "int8"')
    _check_plain(model)
    twin = cast("nn.Module", copied(model, torch.clone)).eval().requires_grad_(False)
    call = inputs_for(twin, inputs, torch.Generator().manual_seed(0)).mapped(torch.clone)
    expected = _outputs(twin, call)
    proto = _exported(twin, call, opset, dynamic)
    _describe(proto, model, certificate)
    kept = {str(p.dtype).removeprefix("torch.") for p in model.parameters()}
    session, optimization = _compared(twin, proto, opset, call, expected, dynamic)
    proto.metadata_props.add(key="optimization", value=optimization)
    gap, scale = _gap(expected, _run(session, call))
    if weights is not None:
        proto = shortened(proto, weights)
        session = _session(proto, opset, optimization)
        gap, scale = _gap(expected, _run(session, call))
        if not math.isfinite(gap):
            raise InvalidValue(
                f"weights={weights!r}: the outputs are not finite any more; keep the weights as they are"
            )
        kept = {weights}
    data = proto.SerializeToString()
    write_atomically(path, data)
    graph = proto.graph
    return OnnxExport(
        path=os.fspath(path),
        opset=opset,
        nodes=len(graph.node),
        bytes=len(data),
        inputs=tuple(x.name for x in session.get_inputs()),
        outputs=tuple(x.name for x in session.get_outputs()),
        optimization=optimization,
        weights=", ".join(sorted(kept)),
        gap=gap,
        scale=scale,
        rows=call.rows,
    )


# --- what can be exported


def _check_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(name)
        except ImportError as error:
            raise MissingPackage(f"export_onnx needs {name}: pip install 'radnet[onnx]'") from error


def _check_plain(model: nn.Module) -> None:
    """Refuse weights that are no ordinary numbers: what is quantised, on the meta device, or lazy."""
    for path, m in model.named_modules():
        if "quantized" in type(m).__module__:
            raise InvalidValue(
                f"{path or 'the model'}: is quantised already ({type(m).__name__}); give the model as it was"
            )
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        if p.is_quantized or type(p.data) is not Tensor:
            raise InvalidValue(f"{name}: is quantised already ({type(p.data).__name__}); give the model as it was")
        if nn.parameter.is_lazy(p) or p.is_meta:
            raise InvalidValue(f"{name}: has no numbers yet; load the weights, or run the model once")


def _exported(model: nn.Module, call: Call, opset: int, dynamic: bool) -> ModelProto:
    """The graph that torch makes of a model."""
    rows, kwargs = call.rows, dict(call.kwargs)

    def open_rows(x: Argument) -> object:
        return {0: torch.export.Dim.AUTO} if isinstance(x, Tensor) and x.ndim and len(x) == rows else None

    shapes = None
    if dynamic and rows > 1:
        shapes = (*tree_map(open_rows, call.args), *(tree_map(open_rows, x) for x in kwargs.values()))
    elif dynamic:
        raise InvalidValue("the inputs have one row, of which torch makes a constant; give more, or dynamic=False")
    try:
        logging.getLogger(_TALKS)  # so that it is silent too
        with silently(), torch.no_grad():
            program = torch.export.export(model, call.args, kwargs, dynamic_shapes=shapes, strict=False)
            long = any(x.dtype == torch.float64 for x in (*program.state_dict.values(), *call.tensors))
            program = written_out(program) if long else program
            made = cast(
                "torch.onnx.ONNXProgram",
                torch.onnx.export(program, dynamo=True, verbose=False, optimize=False, opset_version=opset),
            )
            if long:
                restore(made, program)
            made.optimize()
            proto: ModelProto = made.model_proto
    except Exception as error:
        raise InvalidValue(
            f"{_culprit(model, error)}: torch cannot export it to ONNX ({_first_line(error)})"
        ) from error
    first = proto.graph.input[0].type.tensor_type.shape.dim
    if dynamic and not first[0].dim_param:
        raise InvalidValue(
            f"{type(model).__name__}: its forward makes a constant of the number of rows, {rows}; give dynamic=False"
        )
    if proto.ByteSize() > _LARGEST:
        raise InvalidValue(f"{type(model).__name__}: {proto.ByteSize():,} bytes; an ONNX file has at most 2 GiB")
    return proto


def _culprit(model: nn.Module, error: BaseException) -> str:
    """The layer at which an export failed, if the error names one, and the model otherwise."""
    said = str(error)
    paths = [path for path, _ in model.named_modules() if path and f"L['self'].{path}" in said]
    return max(paths, key=len) if paths else type(model).__name__


def _first_line(error: BaseException) -> str:
    """What the innermost error says, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _describe(proto: ModelProto, model: nn.Module, certificate: Certificate | None) -> None:
    """Who made it from what, in the metadata."""
    said: dict[str, Any] = {
        "radnet": __version__,
        "model": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if isinstance(model, RadNet):
        said["widths"] = list(model.widths)
    if certificate is not None:
        said["certificate"] = certificate.for_file()
    for key, value in said.items():
        proto.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    proto.producer_name, proto.producer_version = "radnet", __version__


# --- onnxruntime


def _compared(
    model: nn.Module, proto: ModelProto, opset: int, call: Call, expected: list[Tensor], dynamic: bool
) -> tuple[InferenceSession, str]:
    """A session that gives the numbers of the model, and how far onnxruntime may rewrite the graph for that.

    All the way, but for some graphs in float64: operators of its own have attributes, and those are float32.
    """
    session = _session(proto, opset, "all")
    try:
        _compare(model, session, call, expected, dynamic)
    except InvalidValue:
        if not any(y.dtype == torch.float64 for y in expected):
            raise
        session = _session(proto, opset, "basic")
        _compare(model, session, call, expected, dynamic)
        return session, "basic"
    return session, "all"


def _session(proto: ModelProto, opset: int, optimization: str) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimization == "all" else level.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        who, lacking = f"onnxruntime {onnxruntime.__version__}", _LACKING.search(str(error))
        if lacking is not None:
            of, hint = "", ""
            if any(x.data_type == 11 for x in proto.graph.initializer):  # onnx.TensorProto.DOUBLE
                of, hint = " of float64", "; export model.float()"
            raise InvalidValue(f"{who} has no {lacking[1]}{of}{hint}") from error
        raise InvalidValue(f"{who} cannot run it, opset {opset} ({str(error).strip()[:300]})") from error


def _run(session: InferenceSession, call: Call) -> list[Tensor]:
    tensors = [x.numpy() for x in call.tensors]
    feed = {given.name: x for given, x in zip(session.get_inputs(), tensors, strict=True)}
    return [torch.from_numpy(y) for y in session.run(None, feed)]


def _outputs(model: nn.Module, call: Call) -> list[Tensor]:
    with torch.no_grad():
        own = call.mapped(torch.clone)
        return [y for y in tree_leaves(model(*own.args, **own.kwargs)) if isinstance(y, Tensor)]


def _compare(model: nn.Module, session: InferenceSession, call: Call, expected: list[Tensor], dynamic: bool) -> None:
    """Each row within 64 eps of its size, or 10 times what one ulp does to the model."""
    for what, given, wanted in _calls(model, call, expected, dynamic):
        found = _run(session, given)
        if [y.shape for y in found] != [y.shape for y in wanted]:
            shapes = [[tuple(y.shape) for y in ys] for ys in (found, wanted)]
            raise InvalidValue(
                f"{what}: onnxruntime gives shapes {shapes[0]}, PyTorch {shapes[1]}; nothing was written"
            )
        for k, (y, F) in enumerate(zip(found, wanted, strict=True)):
            gap = gap_by_rows(F, y)
            eps = torch.finfo(F.dtype).eps if F.is_floating_point() else 0.0
            allowed = ULPS * eps * gap.scale
            if bool((gap.rows > allowed).any()):
                allowed = torch.maximum(allowed, TIMES_CONDITIONING * _drift(model, given, k, F))
            if bool((gap.rows > allowed).any()):
                row = int((gap.rows - allowed).argmax())
                raise InvalidValue(
                    f"{what}, row {row} of output {k}: onnxruntime differs from PyTorch by {float(gap.rows[row]):.3g}, "
                    f"allowed {float(allowed[row]):.3g}; nothing was written"
                )


def _calls(
    model: nn.Module, call: Call, expected: list[Tensor], dynamic: bool
) -> Iterator[tuple[str, Call, list[Tensor]]]:
    """The given inputs; and where the number of rows is open, one row and one more."""
    yield "the given inputs", call, expected
    for rows in (1, call.rows + 1) if dynamic else ():
        other = call.with_rows(torch.arange(rows) % call.rows, f"{rows} rows")
        try:
            wanted = _outputs(model, other)
        except Exception:  # noqa: S112  # the model itself does not take as many
            continue
        yield other.what, other, wanted


def _drift(model: nn.Module, call: Call, k: int, F: Tensor) -> Tensor:
    """How far one ulp, in every weight and input, moves each row of an output."""
    draws = torch.Generator().manual_seed(1)
    D = gap_by_rows(F, F).rows
    for _ in range(DRAWS):
        near = cast("nn.Module", copied(model, lambda x: nudged(x, draws)))
        moved = call.mapped(lambda x: nudged(x, draws) if x.is_floating_point() else x)
        D = torch.maximum(D, gap_by_rows(F, _outputs(near, moved)[k]).rows)
    return D


def _gap(expected: list[Tensor], found: list[Tensor]) -> tuple[float, float]:
    gaps = [float(gap_by_rows(F, y).rows.max()) for F, y in zip(expected, found, strict=True) if F.numel()]
    sizes = [float(F.abs().max()) for F in expected if F.is_floating_point() and F.numel()]
    return max(gaps, default=0.0), max(sizes, default=0.0)
