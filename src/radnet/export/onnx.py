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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from .. import __version__
from ..checks import is_whole
from ..compression import Compression, ModelCompression
from ..compression.judging.certificate import Measured, plain_data
from ..errors import InvalidValue, MissingPackage
from ..modes import Argument
from ..network import RadNet
from ..running import Call, copied
from ..threads import silently
from ..writing import check_target, write_atomically
from .comparing import compare, first_outputs, largest_gap
from .doubles import restore, written_out
from .program import Exportable, first_line, numbers_in_guards, prepared, program_of
from .shorter import shortened

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

#: the version of ONNX's operators that is written unless another is asked for
OPSET = 18
#: one file holds no more, which is a limit of its format
_LARGEST = 2**31 - 1
#: numbers of rows, around those that forward compares with, at which a graph is compared too; and the largest
MOST_TURNS, MOST_ROWS = 40, 100_000
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
    model: Exportable,
    path: str | os.PathLike[str],
    inputs: Argument = None,
    *,
    weights: Weights | None = None,
    opset: int = OPSET,
    dynamic: bool = True,
    certificate: Measured | None = None,
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
    certificate : what `radnet.verify` gives, or plain data, optional
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
    _check_opset(opset)
    if weights not in (None, "float16", "int8"):
        raise InvalidValue(f'weights={weights!r}: expected None, "float16" or "int8"')
    check_target(path)
    if isinstance(model, Compression | ModelCompression) and certificate is None:
        certificate = model.certificate
    said = plain_data(certificate)
    _check_size(model)
    twin, call = prepared(model, inputs)
    _check_dtypes(twin, call)
    _check_outputs(twin, call)
    expected = first_outputs(twin, call)
    program = program_of(twin, call, dynamic)
    proto = _graph(twin, program, call, opset)
    _describe(proto, twin, said)
    kept = {str(p.dtype).removeprefix("torch.") for p in twin.parameters()}
    turns = _rows_at_turns(twin, program, call) if dynamic else []
    session, optimization = _compared(twin, proto, opset, call, expected, dynamic, turns)
    proto.metadata_props.add(key="optimization", value=optimization)
    gap, scale = largest_gap(expected, _run(session, call))
    if weights is not None:
        proto = shortened(proto, weights)
        session = _session(proto, opset, optimization)
        gap, scale = largest_gap(expected, _run(session, call))
        if not math.isfinite(gap):
            raise InvalidValue(
                f"weights={weights!r}: the outputs are not finite any more; keep the weights as they are"
            )
        kept = {weights, *_other_matrices(proto)}
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


def _check_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(name)
        except ImportError as error:
            raise MissingPackage(f"export_onnx needs {name}: pip install 'radnet[onnx]'") from error


def _check_opset(opset: object) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if not is_whole(opset) or not OPSET <= opset <= newest:
        raise InvalidValue(f"opset={opset!r}: onnx {onnx.__version__} and torch write opsets {OPSET} to {newest}")


def _check_dtypes(model: nn.Module, call: Call) -> None:
    """Refuse what NumPy has no dtype for, and so onnxruntime no arrays."""
    named = [
        *model.named_parameters(),
        *model.named_buffers(),
        *((f"input {k}", x) for k, x in enumerate(call.tensors)),
    ]
    for name, x in named:
        if x.dtype == torch.bfloat16 or (x.is_floating_point() and x.element_size() == 1):
            raise InvalidValue(
                f'{name}: is {x.dtype}, for which NumPy has no arrays; export model.float(), weights="float16"'
            )


def _check_size(model: Exportable) -> None:
    """Refuse what no file of this kind can hold, before anything is copied."""
    network = model.network if isinstance(model, Compression | ModelCompression) else model
    if not isinstance(network, nn.Module):
        return  # it is refused for that
    tensors = {id(x): x for x in (*network.parameters(), *network.buffers()) if not nn.parameter.is_lazy(x)}
    size = sum(x.numel() * x.element_size() for x in tensors.values())
    if size > _LARGEST:
        raise InvalidValue(f"{type(network).__name__}: has {size:,} bytes of weights; an ONNX file has at most 2 GiB")


def _check_outputs(model: nn.Module, call: Call) -> None:
    """Refuse outputs that are no tensors, which a graph does not have."""
    with torch.no_grad():
        own = call.mapped(torch.clone)
        found = tree_leaves(copied(model, torch.clone)(*own.args, **own.kwargs))
    other = next((y for y in found if not isinstance(y, Tensor)), None)
    if other is not None:
        raise InvalidValue(f"{type(model).__name__}: gives {other!r} among its outputs; a graph gives tensors alone")


def _rows_at_turns(model: nn.Module, program: ExportedProgram, call: Call) -> list[int]:
    """Numbers of rows around those that the model's code was seen to compare with: a graph has no such guards."""
    turns = sorted({rows for n in numbers_in_guards(program) for rows in (n - 1, n, n + 1) if rows > 0})
    if len(turns) > MOST_TURNS or max(turns, default=0) > MOST_ROWS:
        raise InvalidValue(
            f"{type(model).__name__}: its forward compares the number of rows with {len(turns)} numbers up to "
            f"{max(turns)}, which are too many to compare it with the graph at; give dynamic=False"
        )
    return turns


def _other_matrices(proto: ModelProto) -> set[str]:
    """The dtypes of matrices that are as long as they were: what others than layers read."""
    names = {1: "float32", 11: "float64"}  # onnx.TensorProto.FLOAT and DOUBLE
    return {names[x.data_type] for x in proto.graph.initializer if len(x.dims) > 1 and x.data_type in names}


def _graph(model: nn.Module, program: ExportedProgram, call: Call, opset: int) -> ModelProto:
    """The graph that torch makes of a model."""
    long = any(x.dtype == torch.float64 for x in (*program.state_dict.values(), *call.tensors))
    try:
        logging.getLogger(_TALKS)  # so that it is silent too
        with silently(), torch.no_grad():
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
        who = type(model).__name__
        raise InvalidValue(f"{who}: torch cannot write it as ONNX, opset {opset} ({first_line(error)})") from error
    _forget_where_it_was_made(proto)
    return proto


def _forget_where_it_was_made(proto: ModelProto) -> None:
    """Torch notes lines of code, with the paths of files on this machine, at every node; nobody needs them later."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]


def _describe(proto: ModelProto, model: nn.Module, certificate: dict[str, object] | None) -> None:
    """Who made it from what, in the metadata."""
    said: dict[str, object] = {
        "radnet": __version__,
        "model": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if isinstance(model, RadNet):
        said["widths"] = list(model.widths)
    if certificate is not None:
        said["certificate"] = certificate
    for key, value in said.items():
        proto.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    proto.producer_name, proto.producer_version = "radnet", __version__


# --- onnxruntime


def _compared(
    model: nn.Module,
    proto: ModelProto,
    opset: int,
    call: Call,
    expected: list[Tensor],
    dynamic: bool,
    rows: Sequence[int],
) -> tuple[InferenceSession, str]:
    """A session that gives the numbers of the model, and how far onnxruntime may rewrite the graph for that.

    All the way, but for some graphs in float64: operators of its own have attributes, and those are float32.
    """
    session = _session(proto, opset, "all")
    try:
        compare(model, lambda given: _run(session, given), call, expected, dynamic, rows)
    except InvalidValue:
        if not any(y.dtype == torch.float64 for y in expected):
            raise
        basic = _session(proto, opset, "basic")
        compare(model, lambda given: _run(basic, given), call, expected, dynamic, rows)
        return basic, "basic"
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
    tensors, names = [x.numpy() for x in call.tensors], [given.name for given in session.get_inputs()]
    if len(names) != len(tensors):
        raise InvalidValue(
            f"the graph has {len(names)} inputs ({', '.join(names)}), and {len(tensors)} tensors were given"
        )
    feed = dict(zip(names, tensors, strict=True))
    try:
        return [torch.from_numpy(y) for y in session.run(None, feed)]
    except Exception as error:
        raise InvalidValue(
            f"{call.what}: onnxruntime fails ({str(error).strip()[:300]}); nothing was written"
        ) from error
