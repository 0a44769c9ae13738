"""A model as a program of torch.export: what ONNX files are made of, and a file of its own (``.pt2``)."""

from __future__ import annotations

import io
import os
from typing import cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map

from ..compression import Compression, ModelCompression
from ..compression.arguments import inputs_for
from ..errors import InvalidType, InvalidValue
from ..modes import Argument
from ..network import RadNet
from ..running import Call, copied
from ..threads import silently
from ..writing import write_atomically
from .comparing import compare, first_outputs, outputs

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
    twin, call = prepared(model, inputs)
    expected = first_outputs(twin, call)
    program = program_of(twin, call, dynamic)
    compare(twin, lambda given: outputs(program.module(), given), call, expected, dynamic)
    buffer = io.BytesIO()
    with silently():
        torch.export.save(program, buffer)
    write_atomically(path, buffer.getvalue())
    return program


def prepared(model: Exportable, inputs: Argument) -> tuple[nn.Module, Call]:
    """A copy of a model in evaluation mode, and what it is followed with."""
    if isinstance(model, Compression | ModelCompression):
        inputs = model.inputs if inputs is None and isinstance(model, ModelCompression) else inputs
        model = model.network
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise InvalidType(f"export needs a module or a compression, got a {type(model).__name__}")
    _check_plain(model)
    twin = cast("nn.Module", copied(model, torch.clone)).eval().requires_grad_(False)
    return twin, inputs_for(twin, inputs, torch.Generator().manual_seed(0)).mapped(torch.clone)


def program_of(model: nn.Module, call: Call, dynamic: bool) -> ExportedProgram:
    """The program that torch makes of a model; the number of rows is open, or that of the call."""
    rows, kwargs = call.rows, dict(call.kwargs)

    def open_rows(x: Argument) -> object:
        return {0: torch.export.Dim.AUTO} if isinstance(x, Tensor) and x.ndim and len(x) == rows else None

    if dynamic and rows == 1:
        raise InvalidValue("the inputs have one row, of which torch makes a constant; give more, or dynamic=False")
    shapes = (tree_map(open_rows, call.args), tree_map(open_rows, kwargs)) if dynamic else None
    try:
        with silently(), torch.no_grad():
            program = torch.export.export(
                model, call.args, kwargs, strict=False,
                dynamic_shapes=None if shapes is None else (*shapes[0], *shapes[1].values()),
            )  # fmt: skip
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
    return any(isinstance(x, Tensor) and x.ndim > 0 and isinstance(x.shape[0], torch.SymInt) for x in values)


def _check_plain(model: nn.Module) -> None:
    """Refuse weights that are no ordinary numbers: what is quantised, on the meta device, or lazy."""
    for path, m in model.named_modules():
        if "quantized" in type(m).__module__:
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
