"""`radnet export`: a network for other worlds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidValue
from ..wording import counted
from .options import Factory, Force, Json, Quiet
from .output import check_output, print_json
from .progress import working

if TYPE_CHECKING:
    from torch import nn

_DTYPES, _WEIGHTS = ("float32", "float64"), ("float16", "int8")
#: the options beside those of all formats
_OPTIONS = {
    "--onnx": ("--inputs", "--weights", "--opset"),
    "--c": ("--name", "--dtype", "--max-bytes"),
    "--torch": ("--inputs",),
    "--hub": (),
}
Answer = dict[str, object]


def export(
    source: Annotated[str, typer.Argument(metavar="IN", help="A network, or the tensors of a model (.safetensors).")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where to write it: a file, or for --hub a folder.")],
    as_onnx: Annotated[bool, typer.Option("--onnx", help="As ONNX, compared in onnxruntime.")] = False,
    as_c: Annotated[bool, typer.Option("--c", help="As a C99 header that needs nothing but libm.")] = False,
    as_program: Annotated[bool, typer.Option("--torch", help="As a program of torch.export (.pt2).")] = False,
    as_hub: Annotated[bool, typer.Option("--hub", help="As a folder of the Hugging Face Hub, with a card.")] = False,
    model: Factory = None,
    inputs: Annotated[
        str | None, typer.Option(help="ONNX, torch: a .npy or .csv file with one input a row to follow it with.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="ONNX: keep matrices as float16 or int8.")] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX: version of the operators, 18 by default.")] = None,
    name: Annotated[str | None, typer.Option(help="C: of the function, network by default.")] = None,
    dtype: Annotated[str | None, typer.Option(help="C: float32 or float64; by default that of the network.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option(help="C: refuse a network with more bytes of weights, 4 MiB by default.", min=1)
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a network for programs that have no radnet, or no PyTorch."""
    asked = {"--onnx": as_onnx, "--c": as_c, "--torch": as_program, "--hub": as_hub}
    wanted = [option for option, yes in asked.items() if yes]
    if len(wanted) != 1:
        raise InvalidValue(f"export: say as what, with one of {', '.join(asked)}")
    given = {
        "--inputs": inputs, "--weights": weights, "--opset": opset,
        "--name": name, "--dtype": dtype, "--max-bytes": max_bytes,
    }  # fmt: skip
    for option, value in given.items():
        if value is not None and option not in _OPTIONS[wanted[0]]:
            raise InvalidValue(f"{option}: says nothing about {wanted[0]}, which takes {_OPTIONS[wanted[0]] or 'none'}")
    if Path(out).exists() and Path(source).exists() and Path(out).samefile(source):
        raise InvalidValue(f"{out}: is the network itself; give another name")
    if dtype is not None and dtype not in _DTYPES:
        raise InvalidValue(f"--dtype {dtype}: expected {' or '.join(_DTYPES)}")
    if weights is not None and weights not in _WEIGHTS:
        raise InvalidValue(f"--weights {weights}: expected {' or '.join(_WEIGHTS)}")
    _check_folder(out, force) if as_hub else check_output(out, force)
    with working(f"exporting {source}", quiet):
        from .models import model_of

        found = model_of(source, model)
        if as_c:
            answer, said = _c(found, out, name or "network", dtype, max_bytes or 2**22)
        elif as_hub:
            answer, said = _hub(found, out, source)
        elif as_onnx:
            answer, said = _onnx(found, out, inputs, weights, opset or 18, _certificate(source))
        else:
            answer, said = _program(found, out, inputs)
    if as_json:
        print_json({"file": out, "format": wanted[0].removeprefix("--"), **answer})
    else:
        typer.echo(f"{out}: {said}")


def _check_folder(out: str, force: bool) -> None:
    """Raise if there is something that is not to be overwritten."""
    if Path(out).exists() and not Path(out).is_dir():
        raise InvalidValue(f"{out}: is a file; give the name of a folder")
    if Path(out).is_dir() and any(Path(out).iterdir()) and not force:
        raise InvalidValue(f"{out}: is a folder with something in it; use --force to replace files of these names")


def _certificate(source: str) -> Mapping[str, object] | None:
    """What the file says of how it was compressed."""
    from ..files import header_of

    found = [header_of(source, key).get("certificate") for key in ("radnet", "radnet-model")]
    return next((said for said in found if isinstance(said, dict)), None)


def _c(model: nn.Module, out: str, name: str, dtype: str | None, max_bytes: int) -> tuple[Answer, str]:
    import torch

    from ..export import export_c

    wanted = None if dtype is None else getattr(torch, dtype)
    size = export_c(model, out, name=name, dtype=wanted, max_bytes=max_bytes)
    return {"name": name, "bytes": size}, f"void {name}(const T *x, T *y), {size:,} bytes of weights"


def _hub(model: nn.Module, out: str, source: str) -> tuple[Answer, str]:
    from ..hub import compressed_as, save_pretrained

    certificate, before = compressed_as(source)
    if certificate is None:
        raise InvalidValue(
            f"{source}: a card says what was measured, and it was not compressed; run radnet compress first"
        )
    save_pretrained(model, out, certificate=certificate, widths_before=before)
    return {}, "config.json, model.safetensors, README.md"


def _onnx(
    model: nn.Module,
    out: str,
    inputs: str | None,
    weights: str | None,
    opset: int,
    certificate: Mapping[str, object] | None,
) -> tuple[Answer, str]:
    from ..export import export_onnx
    from .arguments import input_rows

    rows = input_rows(inputs, model)
    found = export_onnx(model, out, rows, weights=weights, opset=opset, certificate=certificate)  # type: ignore[arg-type]
    said = (
        f"opset {found.opset}, {found.nodes} nodes, {found.bytes:,} bytes, weights {found.weights}; onnxruntime is "
        f"within {found.gap:.3g} of PyTorch, outputs up to {found.scale:.3g}, on {counted(found.rows, 'row')}"
    )
    return {**found.to_dict(), "file": out}, said


def _program(model: nn.Module, out: str, inputs: str | None) -> tuple[Answer, str]:
    from ..export import export_program
    from .arguments import input_rows

    program = export_program(model, out, input_rows(inputs, model))
    operations = sum(node.op == "call_function" for node in program.graph.nodes)
    return {"operations": operations}, f"{operations} operations; torch.export.load reads it"
