"""`radnet bench`: how fast it is on this machine, beside the obvious alternatives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Quiet
from .output import print_json
from .progress import steps


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, smaller cases: within a minute.")] = False,
    only: Annotated[str, typer.Option(help="Only comparisons and curves with this in their name.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for bench.json, bench.md and the pictures.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how fast it is, beside the obvious alternatives, in turns; medians, quartiles and claims."""
    from ..bench.report import draw, measure
    from ..writing import write_atomically

    with steps(quiet) as tell:
        found = measure(quick=quick, only=only, tell=tell)
    data = found.data()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "bench.json", (json.dumps(data, indent=2) + "\n").encode())
        write_atomically(out / "bench.md", found.markdown().encode())
        draw(found, out)
    print_json(data) if as_json else typer.echo(found.text())
