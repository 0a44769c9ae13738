"""`radnet reproduce`: the paper's experiments, ours beside the paper's, and a page of it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.collection import NUMBERS
from ..experiments.experiment import LARGEST_SEED
from .options import Json, Quiet
from .output import end_unless, print_json
from .progress import bars

if TYPE_CHECKING:
    from ..experiments.reproduce import Reproduction


def reproduce(
    experiment: Annotated[
        list[int] | None,
        typer.Option(help=f"Which (1 to {max(NUMBERS)}); may be repeated.", min=1, max=max(NUMBERS)),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each; by default the paper's counts.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first trial; the others follow.", min=0, max=LARGEST_SEED)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, results.json and the tables.")] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="A few short trials of each, within a minute.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Trials at once; by default one for each core.", min=1)] = None,
    force: Annotated[bool, typer.Option("--force", help="Remove the results in the folder and start anew.")] = False,
    mnist: Annotated[
        str | None, typer.Option(help="Images for experiment 4: an .npz file, or a folder with MNIST's IDX files.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments, set ours beside the paper's, and make a page of it.

    An interrupted run goes on where it was when the same command is given again.
    """
    from ..experiments.reporting import report
    from ..experiments.reproduce import reproduce as run

    try:
        with bars(quiet) as begin:
            result = run(
                out,
                experiment or (),
                trials=trials,
                seed=seed,
                quick=quick,
                jobs=jobs,
                force=force,
                mnist=mnist,
                begin=begin,
            )
    except KeyboardInterrupt:
        typer.echo("radnet: interrupted; the same command goes on from the finished trials", err=True)
        raise
    if as_json:
        print_json({key: value for key, value in result.data.items() if key != "experiments"})
    else:
        _tell(result)
    if result.found:
        typer.echo(f"radnet: {out} was finished before; nothing was run. --force runs it again", err=True)
    end_unless(not report.failed(result.rows))


def _tell(result: Reproduction) -> None:
    """Ours beside the paper's, what was found in each experiment, and where the page is."""
    from ..experiments.reporting import report

    typer.echo(report.table(report.of_the_paper(result.rows)))
    typer.echo(report.summary(result.rows))
    for one in result.results.experiments:
        typer.echo(f"\n{one.number}. {one.title}")
        findings = report.findings(result.results, one.number)
        typer.echo("\n".join(textwrap.fill(said, 120) for said in findings))
    typer.echo("")
    for left_out in result.results.skipped:
        typer.echo(f"experiment {left_out.number} was not run: {left_out.why}")
    typer.echo(f"the page is {result.folder / 'index.html'}" if result.page else "no page: it needs radnet[plot]")
