"""What commands answer with, and the exit code of an answer that does not hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from ..errors import InvalidValue

VERIFICATION_FAILED = 3


def print_json(data: Mapping[str, object]) -> None:
    """The answer as JSON on stdout."""
    typer.echo(json.dumps(data, indent=2))


def check_output(path: str, force: bool) -> None:
    """Raise if a file is there already that is not to be overwritten, or there is no folder for it."""
    if Path(path).exists() and not force:
        raise InvalidValue(f"{path} exists; use --force to overwrite it")
    if not Path(path).absolute().parent.is_dir():
        raise InvalidValue(f"{path}: there is no such folder")


def end_unless(holds: bool) -> None:
    """End the command with the exit code of a verification that failed, unless it holds."""
    if not holds:
        raise typer.Exit(VERIFICATION_FAILED)
