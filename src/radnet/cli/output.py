"""What commands answer with, and the exit code of an answer that does not hold."""

from __future__ import annotations

import json
from collections.abc import Mapping

import typer

VERIFICATION_FAILED = 3


def print_json(data: Mapping[str, object]) -> None:
    """The answer as JSON on stdout."""
    typer.echo(json.dumps(data, indent=2))


def end_unless(holds: bool) -> None:
    """End the command with the exit code of a verification that failed, unless it holds."""
    if not holds:
        raise typer.Exit(VERIFICATION_FAILED)
