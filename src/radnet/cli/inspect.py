"""`radnet inspect`: what is in a file, or what compression makes of a network of given widths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import printable
from ..widths import check_widths, count_parameters, reduced_widths
from ..wording import times_fewer
from .options import Json
from .output import print_json

_FILES = (".safetensors", ".json")


def inspect(
    what: Annotated[str, typer.Argument(metavar="FILE|WIDTHS", help="A file of ours, or widths such as 1,8,16,8,1.")],
    no_bias: Annotated[bool, typer.Option("--no-bias", help="Of widths: the layers have no biases.")] = False,
    as_json: Json = False,
) -> None:
    """What is in a file and what compression would give, or what it makes of a network of the given widths."""
    if Path(what).is_file() or Path(what).suffix in _FILES:
        from ..inspection import contents_of

        answer: dict[str, object] = {"file": what, **contents_of(what)}
        print_json(answer) if as_json else typer.echo(_table(answer))
    else:
        _of_widths(what, not no_bias, as_json)


def _of_widths(text: str, bias: bool, as_json: bool) -> None:
    n = check_widths(_parse_widths(text))
    n_red = reduced_widths(n, bias)
    before, after = count_parameters(n, bias), count_parameters(n_red, bias)
    if as_json:
        print_json({"widths": n, "reduced_widths": n_red, "bias": bias, "parameters": before, "reduced": after})
        return
    typer.echo(f"widths      {', '.join(map(str, n))}")
    typer.echo(f"reduced     {', '.join(map(str, n_red))}")
    typer.echo(f"parameters  {before:,} -> {after:,} {times_fewer(before, after)}".rstrip())


def _table(answer: dict[str, object]) -> str:
    rows = [f"{name.replace('_', ' '):<20}{_text(value)}" for name, value in answer.items() if value is not None]
    return "\n".join(rows)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)), 400)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value), 400)


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
