"""The command line. Answers on stdout, progress on stderr; torch is imported only when a command needs it.

Exit codes: 0 success, 1 failure, 2 usage, 3 verification failed, 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__
from .errors import InvalidValue, RadNetError, TrialFailed
from .experiments.collection import NUMBERS
from .experiments.experiment import LARGEST_SEED
from .widths import check_widths, count_parameters, reduced_widths

app = typer.Typer(
    name="radnet",
    help="Radial neural networks: train wide, ship tiny, lose nothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
FormulaOnly = Annotated[
    bool, typer.Option("--formula-only", help="Refuse MODULE:FUNCTION: nothing is imported, whatever the text says.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"radnet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Radial neural networks: train wide, ship tiny, lose nothing."""


@app.command()
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
        _print_json({"widths": n, "reduced_widths": n_red, "bias": bias, "parameters": before, "reduced": after})
        return
    typer.echo(f"widths      {', '.join(map(str, n))}")
    typer.echo(f"reduced     {', '.join(map(str, n_red))}")
    typer.echo(f"parameters  {before:,} -> {after:,} ({before / after:.1f} times fewer)")


@app.command()
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
    from .experiments.reporting import report
    from .experiments.reproduce import reproduce

    options: dict[str, Any] = {"trials": trials, "seed": seed, "quick": quick, "jobs": jobs, "force": force}
    try:
        with _bars(quiet) as begin:
            result = reproduce(out, experiment or (), mnist=mnist, begin=begin, **options)
    except KeyboardInterrupt:
        typer.echo("radnet: interrupted; the same command goes on from the finished trials", err=True)
        raise
    if as_json:
        _print_json({key: value for key, value in result.data.items() if key != "experiments"})
    else:
        typer.echo(report.table(report.of_the_paper(result.rows)))
        typer.echo(report.summary(result.rows))
        for one in result.results.experiments:
            typer.echo(f"\n{one.number}. {one.title}")
            findings = report.findings(result.results, one.number)
            typer.echo("\n".join(textwrap.fill(said, 120) for said in findings))
        typer.echo("")
        for left_out in result.results.skipped:
            typer.echo(f"experiment {left_out.number} was not run: {left_out.why}")
        typer.echo(f"the page is {out / 'index.html'}" if result.page else "no page: it needs radnet[plot]")
    if result.found:
        typer.echo(f"radnet: {out} was finished before; nothing was run. --force runs it again", err=True)
    if report.failed(result.rows):
        raise typer.Exit(3)


@app.command()
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
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn a function, a domain and an eps into a network with a guarantee."""
    from .approximation.command import run

    if out is not None and Path(out).exists() and not force:
        raise InvalidValue(f"{out} exists; use --force to overwrite it")
    with _working(f"approximating {function}", quiet):
        a, check = run(function, eps, (box, ball, points), lipschitz, width, limit, dtype, max_balls, formula_only)
    if out is not None:
        a.save(out)
    if as_json:
        _print_json({**a.certificate.as_dict(), "checked": check, "file": out})
    else:
        typer.echo(a.report())
        typer.echo(f"{'checked':<15}{check['worst']:.6g} at worst on {check['points']:,} points")
        if out is not None:
            typer.echo(f"{'written to':<15}{out}")
    if not check["holds"]:
        raise typer.Exit(3)


@app.command()
def verify(
    file: Annotated[str, typer.Argument(help="A network, or an approximation, whose certificate is measured again.")],
    other: Annotated[str | None, typer.Argument(help="The network that is to be the same function.")] = None,
    function: Annotated[
        str | None,
        typer.Option(help="f of an approximation: a formula, or MODULE:FUNCTION; by default the formula in the file."),
    ] = None,
    formula_only: FormulaOnly = False,
    inputs: Annotated[str | None, typer.Option(help="A .npy or .csv file with one input a row.")] = None,
    rows: Annotated[int, typer.Option(help="Without --inputs: how many normal inputs are drawn.", min=1)] = 256,
    seed: Annotated[int, typer.Option(help="Seed of these.", min=0)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure again what a file claims, or how equal two networks are. Exit code 3 if it does not hold."""
    from .reading import key_of

    with _working(f"verifying {file}", quiet):
        if other is not None:
            from .verification import verify_networks

            certificate = verify_networks(file, other, inputs, rows, seed)
            holds, text, data = certificate.lossless, str(certificate), certificate.to_dict()
        elif key_of(file) == "radnet":
            raise InvalidValue(f"{file}: holds a network; give the one it is to be compared with too")
        else:
            from .approximation.command import verify_file

            found = verify_file(file, function, formula_only)
            holds, text, data = found.holds, found.report(), dataclasses.asdict(found)
    _print_json(data) if as_json else typer.echo(text)
    if not holds:
        raise typer.Exit(3)


def _parse_widths(text: str) -> list[Any]:
    """Numbers where the text has numbers; the rest is left for `check_widths` to name."""
    return [_number(part.strip()) for part in text.split(",")] if text.strip() else []


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2))


@contextmanager
def _bars(quiet: bool) -> Iterator[Any]:
    """A bar for each experiment on stderr with the time that is left; a line for each if stderr is not a terminal."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield _begin_lines
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=120) as progress:

            def begin(jobs: Any) -> Any:
                total = Counter(job.experiment for job in jobs)
                tasks = {e: progress.add_task(f"experiment {e}", total=n) for e, n in sorted(total.items())}
                return _shares(lambda e, done: progress.update(tasks[e], completed=done))

            yield begin


def _begin_lines(jobs: Any) -> Any:
    total = Counter(job.experiment for job in jobs)
    said = set()

    def say(experiment: int, done: float) -> None:
        if done >= total[experiment] - 1e-9 and experiment not in said:
            said.add(experiment)
            typer.echo(f"experiment {experiment}: {total[experiment]} trials done", err=True)

    return _shares(say)


def _shares(say: Any) -> Any:
    """Turn the share of each job into how many jobs of its experiment are done."""
    shares: dict[Any, float] = {}

    def advance(job: Any, share: float) -> None:
        shares[job.name] = share
        say(job.experiment, sum(s for name, s in shares.items() if name.startswith(f"{job.experiment}-")))

    return advance


@contextmanager
def _working(title: str, quiet: bool) -> Iterator[None]:
    """A spinner on stderr, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no ± shows a question mark
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        result = app(args=arguments, prog_name="radnet", standalone_mode=False)
    except RadNetError as error:
        typer.echo(f"radnet: {error}", err=True)
        return 1 if isinstance(error, TrialFailed) else 2
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: Exception) -> int:
    """Usage errors speak for themselves; anything else is a failure, told in one line."""
    show, code = getattr(error, "show", None), getattr(error, "exit_code", 1)
    if callable(show):
        show()
        return int(code)
    typer.echo(f"radnet: {type(error).__name__}: {error}", err=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
