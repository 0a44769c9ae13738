"""`radnet inspect`: what compression makes of a network of given widths."""

from __future__ import annotations

from typing import Annotated

import typer

from ..widths import check_widths, count_parameters, reduced_widths
from .options import Json
from .output import print_json


def inspect(
    widths: Annotated[str, typer.Argument(help="Widths separated by commas, for example 1,8,16,8,1.")],
    no_bias: Annotated[bool, typer.Option("--no-bias", help="The layers have no biases.")] = False,
    as_json: Json = False,
) -> None:
    """What compression makes of a network of the given widths."""
    n = check_widths(_parse_widths(widths))
    bias = not no_bias
    n_red = reduced_widths(n, bias)
    before, after = count_parameters(n, bias), count_parameters(n_red, bias)
    if as_json:
        print_json({"widths": n, "reduced_widths": n_red, "bias": bias, "parameters": before, "reduced": after})
        return
    typer.echo(f"widths      {', '.join(map(str, n))}")
    typer.echo(f"reduced     {', '.join(map(str, n_red))}")
    typer.echo(f"parameters  {before:,} -> {after:,} ({before / after:.1f} times fewer)")


def _parse_widths(text: str) -> list[int | float | str]:
    """Numbers where the text has numbers; the rest is left for `check_widths` to name."""
    return [_number(part.strip()) for part in text.split(",")] if text.strip() else []


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
