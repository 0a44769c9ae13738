"""`radnet approximate`: a function, a domain and an eps become a network with a guarantee."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from .options import Force, FormulaOnly, Json, Quiet
from .output import check_output, end_unless, print_json
from .progress import working

_CHECKED = 10_000  # random points of the domain


def approximate(
    function: Annotated[
        str,
        typer.Argument(
            help="A formula in x1, x2, ... (x for the first), or MODULE:FUNCTION, which imports that module, also from "
            "the current folder, and so runs its code."
        ),
    ],
    eps: Annotated[float, typer.Option(help="The error allowed.")],
    box: Annotated[str | None, typer.Option(help="Ranges separated by commas, for example -3:3,0:1.")] = None,
    ball: Annotated[str | None, typer.Option(help="Centre and radius, for example 0,0:2.")] = None,
    points: Annotated[str | None, typer.Option(help="A .npy or .csv file with one point a row.")] = None,
    lipschitz: Annotated[str | None, typer.Option(help="A Lipschitz constant, or MODULE:FUNCTION of boxes.")] = None,
    formula_only: FormulaOnly = False,
    width: Annotated[str, typer.Option(help="growing, n+m+1, max+1, max or auto.")] = "auto",
    limit: Annotated[
        str | None, typer.Option(help="A and b of the limit A x + b, rows of A separated by /: 1,0/0,1;0,0.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    max_balls: Annotated[int, typer.Option(help="The largest cover allowed.", min=1)] = 20_000,
    out: Annotated[str | None, typer.Option(help="Where to write network and certificate (.safetensors).")] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn a function, a domain and an eps into a network with a guarantee."""
    if out is not None:
        check_output(out, force)
    with working(f"approximating {function}", quiet):
        import numpy as np

        from ..approximation import approximate as build
        from . import arguments

        f, K = arguments.parse_f(function, formula_only), arguments.parse_domain(box, ball, points)
        a = build(
            f,
            K,
            eps,
            dtype=arguments.parse_dtype(dtype),
            lipschitz=arguments.parse_lipschitz(lipschitz, formula_only),
            width=width,
            limit=arguments.parse_limit(limit),
            max_balls=max_balls,
        )
        check = a.certificate.check(f, K.sample(_CHECKED, np.random.default_rng(7)))
    if out is not None:
        a.save(out)
    if as_json:
        print_json({**a.certificate.to_dict(), "checked": dataclasses.asdict(check), "file": out})
    else:
        typer.echo(a.report())
        typer.echo(f"{'checked':<15}{check.worst:.6g} at worst on {check.points:,} points")
        if out is not None:
            typer.echo(f"{'written to':<15}{out}")
    end_unless(check.holds)
