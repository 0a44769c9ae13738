"""`radnet verify`: what a file claims, or how equal two networks are, measured again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import typer

from ..errors import InvalidValue
from .options import FormulaOnly, Function, Json, Quiet
from .output import end_unless, print_json
from .progress import working

_LARGEST_SEED = 2**63 - 1  # that torch takes
_MOST_ROWS = 10**7


def verify(
    file: Annotated[str, typer.Argument(help="A network, or an approximation, whose certificate is measured again.")],
    other: Annotated[str | None, typer.Argument(help="The network that is to be the same function.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="MODULE:FACTORY that makes the models whose tensors the files hold; it runs its code."),
    ] = None,
    function: Function = None,
    formula_only: FormulaOnly = False,
    inputs: Annotated[str | None, typer.Option(help="A .npy or .csv file with one input a row.")] = None,
    rows: Annotated[
        int, typer.Option(help="Without --inputs: how many normal inputs are drawn.", min=1, max=_MOST_ROWS)
    ] = 256,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of these, by default 0, and of the points at which a certificate is measured, by default any.",
            min=0,
            max=_LARGEST_SEED,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure again what a file claims, or how equal two networks are. Exit code 3 if it does not hold."""
    with working(f"verifying {file}", quiet):
        if other is None:
            verdict = _recheck(file, function, formula_only, seed)
        else:
            verdict = _compare(file, other, model, inputs, rows, seed or 0)
    print_json(verdict.data) if as_json else typer.echo(verdict.text)
    end_unless(verdict.holds)


class _Verdict(NamedTuple):
    """Whether it holds, and what was measured: for a person, and as data."""

    holds: bool
    text: str
    data: Mapping[str, object]


def _recheck(file: str, function: str | None, formula_only: bool, seed: int | None) -> _Verdict:
    """The certificate of an approximation, measured again: against f if it is given or in the file."""
    from ..shards import key_of

    if key_of(file) in ("radnet", "radnet-model"):
        raise InvalidValue(f"{file}: holds a network; give the one it is to be compared with too")
    from ..approximation import load
    from .arguments import parse_f

    a = load(file)
    found = a.recheck(None if function is None else parse_f(function, formula_only), seed=seed)
    return _Verdict(found.holds, found.report(), dataclasses.asdict(found))


def _compare(file: str, other: str, factory: str | None, inputs: str | None, rows: int, seed: int) -> _Verdict:
    """Two networks, on the rows of a file or on normal ones."""
    import torch

    from ..network import RadNet
    from ..verification import verify
    from .arguments import input_rows
    from .models import model_of

    a, b = model_of(file, factory), model_of(other, factory)
    x = input_rows(inputs, a)
    if x is None:
        if not isinstance(a, RadNet):
            raise InvalidValue(f"{file}: a {type(a).__name__} does not say how large its inputs are; give --inputs")
        x = torch.randn(rows, a.widths[0], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        x = x.to(a.weights[0].dtype)
    certificate = verify(a, b, x)
    return _Verdict(certificate.lossless, str(certificate), certificate.to_dict())
