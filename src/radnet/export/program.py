"""A model as a program of torch.export: what ONNX files are made of, and a file of its own (``.pt2``)."""

from __future__ import annotations

import inspect
import io
import os
import re
from typing import cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map

from ..compression import Compression, ModelCompression
from ..compression.arguments import inputs_for
from ..compression.judging.exploring import Explorer
from ..errors import InvalidType, InvalidValue
from ..modes import Argument
from ..network import RadNet
from ..running import Call, Precision, copied
from ..threads import silently
from ..writing import check_target, write_atomically
from .comparing import compare, first_outputs, outputs

#: where torch has the layers that its quantisation puts in the places of others
_QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized", "torchao.")
Exportable = nn.Module | Compression[RadNet] | ModelCompression[nn.Module]


def export_program(
    model: Exportable, path: str | os.PathLike[str], inputs: Argument = None, *, dynamic: bool = True
) -> ExportedProgram:
    """Write a model as a program that ``torch.export.load`` reads, once it has given the model's numbers.

    Parameters
    ----------
    model : nn.Module, or what `compress` gives
        What it does in evaluation mode is written.
    path : str or path
        Usually ends in .pt2. Written at once or not at all.
    inputs : Tensor, or a tuple with one entry for each argument, optional
        What the model is followed with; by default 256 normal rows for a model that begins with a linear layer.
    dynamic : bool
        Whether the number of rows is left open.

    Raises
    ------
    InvalidValue
        If torch cannot export it, or the program gives other numbers. Nothing is written then.

    Examples
    --------
    >>> import os, tempfile, radnet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.pt2")
    ...     program = radnet.export.export_program(radnet.RadNet((2, 8, 1)), path)
    ...     torch.export.load(path).module()(torch.ones(3, 2)).shape
    torch.Size([3, 1])
    """
    check_target(path)
    twin, call = prepared(model, inputs)
    expected = first_outputs(twin, call)
    program = program_of(twin, call, dynamic)
    compare(twin, lambda given: _run(program, given), call, expected, dynamic)
    buffer = io.BytesIO()
    with silently():
        torch.export.save(program, buffer)
    write_atomically(path, buffer.getvalue())
    return program


def _run(program: ExportedProgram, call: Call) -> list[Tensor]:
    """What a program gives; its guards refuse numbers of rows for which it would be another function."""
    try:
        return outputs(program.module(), call)
    except Exception as error:
        raise InvalidValue(
            f"{call.what}: the program refuses what the model takes ({first_line(error)}); give dynamic=False"
        ) from error


def prepared(model: Exportable, inputs: Argument) -> tuple[nn.Module, Call]:
    """A copy of a model in evaluation mode, and what it is followed with."""
    if isinstance(model, Compression | ModelCompression):
        inputs = model.inputs if inputs is None and isinstance(model, ModelCompression) else inputs
        model = model.network
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise InvalidType(f"export needs a module or a compression, got a {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise InvalidType("export needs the module that was compiled; give it model._orig_mod")
    _check_plain(model)
    twin = cast("nn.Module", copied(model, torch.clone)).eval().requires_grad_(False)
    draws = torch.Generator().manual_seed(0)
    call = inputs_for(twin, inputs, draws, who="export", argument="inputs").mapped(torch.clone)
    first_outputs(cast("nn.Module", copied(twin, torch.clone)), call)
    Explorer(twin, draws, Precision(float64=False)).check_function(call)
    return twin, call


def program_of(model: nn.Module, call: Call, dynamic: bool) -> ExportedProgram:
    """The program that torch makes of a model; the number of rows is open, or that of the call."""
    rows, kwargs = call.rows, dict(call.kwargs)

    def open_rows(x: Argument) -> object:
        return {0: torch.export.Dim.AUTO} if isinstance(x, Tensor) and x.ndim and len(x) == rows else None

    if dynamic and rows == 1:
        raise InvalidValue("the inputs have one row, of which torch makes a constant; give more, or dynamic=False")
    if dynamic is not True and dynamic is not False:
        raise InvalidType(f"dynamic={dynamic!r}: expected True or False")
    given = inspect.signature(model.forward).bind(*call.args, **kwargs).arguments
    shapes = {name: tree_map(open_rows, x) for name, x in given.items()} if dynamic else None
    try:
        with silently(), torch.no_grad():
            program = torch.export.export(model, call.args, kwargs, strict=False, dynamic_shapes=shapes)
    except Exception as error:
        raise InvalidValue(f"{_culprit(model, error)}: torch cannot export it ({first_line(error)})") from error
    if dynamic and not _is_open(program):
        raise InvalidValue(
            f"{type(model).__name__}: its forward makes a constant of the number of rows, {rows}; give dynamic=False"
        )
    return program


def _is_open(program: ExportedProgram) -> bool:
    """Whether the first axis of an input may have another length."""
    names = set(program.graph_signature.user_inputs)
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    rows = [x.shape[0] for x in values if isinstance(x, Tensor) and x.ndim > 0]
    return any(
        isinstance(n, torch.SymInt) and not n.node.expr.is_number for n in rows
    )  # which may be one number by now


def numbers_in_guards(program: ExportedProgram) -> set[int]:
    """The numbers with which torch compared sizes while it followed a model: beyond them it may be another function."""
    found = [re.sub(r"L\[.*?\.size\(\)\[\d+\]", "n", guard) for guard in getattr(program, "_guards_code", ())]
    return {int(number) for guard in found for number in re.findall(r"\b\d+\b", guard)}


def _check_plain(model: nn.Module) -> None:
    """Refuse weights that are no ordinary numbers: what is quantised, on the meta device, or lazy."""
    for path, m in model.named_modules():
        if type(m).__module__.startswith(_QUANTISED):
            kind = type(m).__name__
            raise InvalidValue(f"{path or 'the model'}: is quantised already ({kind}); give the model as it was")
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        if nn.parameter.is_lazy(p) or p.is_meta:
            raise InvalidValue(f"{name}: has no numbers yet; load the weights, or run the model once")
        if p.is_quantized or type(p.data) is not Tensor:
            raise InvalidValue(f"{name}: is quantised already ({type(p.data).__name__}); give the model as it was")


def _culprit(model: nn.Module, error: BaseException) -> str:
    """The innermost layer in whose forward an export failed, and the model if that cannot be told."""
    paths = {id(m): path for path, m in model.named_modules()}
    found, frame = type(model).__name__, error.__traceback__
    while frame is not None:
        here = frame.tb_frame.f_locals.get("self")
        if isinstance(here, nn.Module) and paths.get(id(here)):
            found = f"{paths[id(here)]} ({type(here).__name__})"
        frame = frame.tb_next
    return found


def first_line(error: BaseException) -> str:
    """What the innermost error says, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
