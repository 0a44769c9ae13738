"""What commands answer with, and the exit code of an answer that does not hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import typer

from ..errors import InvalidValue

VERIFICATION_FAILED = 3


def print_json(data: Mapping[str, object]) -> None:
    """The answer as JSON on stdout."""
    typer.echo(json.dumps(_finite(data), indent=2, allow_nan=False))


def _finite(value: object) -> object:
    """What JSON has no numbers for becomes null.

    >>> _finite({"a": [1.0, float("nan")], "b": float("inf")})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_output(path: str, force: bool) -> None:
    """Raise if a file is there already that is not to be overwritten, or there is no folder for it."""
    if Path(path).is_dir():
        raise InvalidValue(f"{path}: is a folder; give the name of a file")
    if Path(path).exists() and not force:
        raise InvalidValue(f"{path} exists; use --force to overwrite it")
    if not Path(path).absolute().parent.is_dir():
        raise InvalidValue(f"{path}: there is no such folder")


def end_unless(holds: bool) -> None:
    """End the command with the exit code of a verification that failed, unless it holds."""
    if not holds:
        raise typer.Exit(VERIFICATION_FAILED)
