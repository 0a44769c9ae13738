"""`radnet compress`: the same function with smaller layers, from a file to a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Factory, Force, Json, Quiet
from .output import check_output, print_json
from .progress import steps, working

if TYPE_CHECKING:
    from torch import nn

    from ..compression.model import ModelCompression
    from ..compression.result import Compression
    from ..network import RadNet

#: bytes of a file from which on a network is compressed from file to file, without being read as a whole
_LARGE = 2**28


def compress(
    source: Annotated[str, typer.Argument(metavar="IN", help="A network, or the tensors of a model (.safetensors).")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where to write the small one.")],
    model: Factory = None,
    inputs: Annotated[
        str | None, typer.Option(help="A .npy or .csv file with one input a row, on which equality is measured.")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Leave out directions below this share of the largest; not lossless.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The same function with smaller layers; nothing is written unless it was found to be the same."""
    check_output(out, force)
    if model is None and tol is None and (source.endswith(".index.json") or _size(source) > _LARGE):
        _from_file_to_file(source, out, inputs, as_json, quiet)
        return
    with working(f"compressing {source}", quiet):
        from ..compression import compress as compress_model
        from .arguments import input_rows
        from .models import model_of

        original = model_of(source, model, fresh=True)
        c = compress_model(original, input_rows(inputs, original), tol=tol)
        _save(c, source, out)
    if as_json:
        print_json({**_sizes(original, c.network), "certificate": c.certificate.to_dict(), "file": out})
    else:
        typer.echo(c.report())


def _from_file_to_file(source: str, out: str, inputs: str | None, as_json: bool, quiet: bool) -> None:
    """A network that may be larger than memory."""
    import torch

    from ..arrays import read_rows
    from ..streaming import compress_file

    x = None if inputs is None else torch.tensor(read_rows(inputs)).float()
    with steps(quiet) as tell:
        c = compress_file(source, out, inputs=x, tell=tell)
    print_json({**c.to_dict(), "file": out}) if as_json else typer.echo(c.report())


def _save(c: Compression[RadNet] | ModelCompression[nn.Module], source: str, out: str) -> None:
    """With the columns of a table that a network from `radnet train` reads."""
    from ..files import header_of, save
    from ..network import RadNet

    columns = header_of(source, "radnet").get("columns")
    if isinstance(c.network, RadNet) and isinstance(columns, dict):
        before = c.original.widths if isinstance(c.original, RadNet) else None
        save(c.network, out, certificate=c.certificate.for_file(), before=before, columns=columns)
    else:
        c.save(out)


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _sizes(before: nn.Module, after: nn.Module) -> dict[str, object]:
    from ..compression.model import parameters, stored_bytes

    return {
        "parameters": [parameters(before), parameters(after)],
        "bytes": [stored_bytes(before), stored_bytes(after)],
    }
