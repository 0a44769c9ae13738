"""`radnet study`: which network to train, on many data sets, half of which are set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Quiet
from .output import print_json
from .progress import steps


def study(
    quick: Annotated[bool, typer.Option("--quick", help="Few short trials on few rows, within two minutes.")] = False,
    half: Annotated[str, typer.Option(help="first (looked at), aside (set aside) or both.")] = "both",
    data: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for what was found.")] = Path("study"),
    jobs: Annotated[int | None, typer.Option(help="Trainings at once; by default one for each core.", min=1)] = None,
    force: Annotated[bool, typer.Option("--force", help="Remove the study in the folder and start anew.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train networks of equal shipped size on many data sets: ranks, errors, sizes, times.

    An interrupted study goes on where it was when the same command is given again.
    """
    from ..study.contest import QUICK, Settings
    from ..study.report import HALVES, draw, halves, summary, text
    from ..study.running import chosen, run
    from ..writing import write_atomically

    settings = QUICK if quick else Settings()
    with steps(quiet) as tell:
        entries = run(
            out,
            chosen(half, data or ()),
            settings,
            jobs=-1 if jobs is None else jobs,
            force=force,
            tell=lambda done, total: tell(f"{done} of {total}", done / total),
        )
    found, page = summary(entries, settings), text(entries, settings)
    write_atomically(out / "summary.json", (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
    write_atomically(out / "study.md", page.encode())
    shown = halves(entries)
    for name in HALVES.values():
        picture = out / f"ranks-{name.replace(' ', '-')}.svg"
        draw(shown[name], picture) if name in shown else picture.unlink(missing_ok=True)
    print_json(found) if as_json else typer.echo(page)
