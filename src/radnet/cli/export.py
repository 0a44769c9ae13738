"""`radnet export`: a network for other worlds."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InvalidValue
from .options import Factory, Force, Json, Quiet
from .output import check_output, print_json
from .progress import working

_DTYPES = ("float32", "float64")


def export(
    source: Annotated[str, typer.Argument(metavar="IN", help="A network, or the tensors of a model (.safetensors).")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where to write it.")],
    as_c: Annotated[bool, typer.Option("--c", help="As a C99 header that needs nothing but libm.")] = False,
    model: Factory = None,
    name: Annotated[str, typer.Option(help="Of the C function.")] = "network",
    dtype: Annotated[str | None, typer.Option(help="float32 or float64; by default that of the network.")] = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse a network with more bytes of weights.", min=1)] = 2**22,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a network for a program that has no PyTorch."""
    if not as_c:
        raise InvalidValue("export: say as what; --c writes a C99 header")
    if dtype is not None and dtype not in _DTYPES:
        raise InvalidValue(f"--dtype {dtype}: expected {' or '.join(_DTYPES)}")
    check_output(out, force)
    with working(f"exporting {source}", quiet):
        import torch

        from ..export import export_c
        from .models import model_of

        wanted = None if dtype is None else getattr(torch, dtype)
        size = export_c(model_of(source, model), out, name=name, dtype=wanted, max_bytes=max_bytes)
    if as_json:
        print_json({"file": out, "format": "c", "name": name, "bytes": size})
    else:
        typer.echo(f"{out}: void {name}(const T *x, T *y), {size:,} bytes of weights")
