"""The command line, a file a command. Answers on stdout, progress on stderr; torch is imported when a command needs it.

Exit codes: 0 success, 1 failure, 2 usage, 3 verification failed, 130 interrupted.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import RadNetError, TrialFailed, printable
from . import approximate, bench, compress, export, inspect, plot, predict, reproduce, study, train, verify

__all__ = ["app", "main"]

app = typer.Typer(
    name="radnet",
    help="Radial neural networks: train wide, ship tiny, lose nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command()(inspect.inspect)
app.command()(compress.compress)
app.command()(export.export)
app.command()(train.train)
app.command()(predict.predict)
app.command()(plot.plot)
app.command()(reproduce.reproduce)
app.command()(approximate.approximate)
app.command()(verify.verify)
app.command()(bench.bench)
app.command()(study.study)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no ± shows a question mark
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        result = app(args=arguments, prog_name="radnet", standalone_mode=False)
    except RadNetError as error:
        typer.echo(f"radnet: {_lines(error)}", err=True)
        return 1 if isinstance(error, TrialFailed) else 2
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:  # what completes words in a shell ends so
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: Exception) -> int:
    """Usage errors speak for themselves; anything else is a failure, told in one line."""
    show, code = getattr(error, "show", None), getattr(error, "exit_code", 1)
    if callable(show):
        show()
        return int(code)
    if isinstance(error, OSError) and error.errno is not None and not error.filename:  # of stdout: files have names
        typer.echo(f"radnet: the answer could not be written ({error.strerror})", err=True)
        return 1
    typer.echo(f"radnet: {type(error).__name__}: {_lines(error)}", err=True)
    return 1


def _lines(error: Exception) -> str:
    """The message, in which names and texts from files do nothing to the terminal."""
    return "\n".join(printable(line) for line in str(error).split("\n"))
