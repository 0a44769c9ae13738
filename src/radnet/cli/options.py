"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
Function = Annotated[
    str | None,
    typer.Option(help="f of an approximation: a formula, or MODULE:FUNCTION; by default the formula in the file."),
]
FormulaOnly = Annotated[
    bool, typer.Option("--formula-only", help="Refuse MODULE:FUNCTION: nothing is imported, whatever the text says.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Factory = Annotated[
    str | None,
    typer.Option(
        help="MODULE:FACTORY that makes the model whose tensors IN holds; it is imported, also from the current "
        "folder, and so runs its code."
    ),
]
