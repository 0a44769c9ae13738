"""How far a command has got, on stderr: bars and spinners on a terminal, a line here and there elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..experiments.reproduce import Begin
    from ..experiments.running.plan import Job
    from ..experiments.running.runner import Advance


@contextmanager
def bars(quiet: bool) -> Iterator[Begin | None]:
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

            def begin(jobs: Sequence[Job]) -> Advance:
                total = Counter(job.experiment for job in jobs)
                tasks = {e: progress.add_task(f"experiment {e}", total=n) for e, n in sorted(total.items())}
                return _shares(lambda e, done: progress.update(tasks[e], completed=done))

            yield begin


def _begin_lines(jobs: Sequence[Job]) -> Advance:
    total = Counter(job.experiment for job in jobs)
    said = set()

    def say(experiment: int, done: float) -> None:
        if done >= total[experiment] - 1e-9 and experiment not in said:
            said.add(experiment)
            typer.echo(f"experiment {experiment}: {total[experiment]} trials done", err=True)

    return _shares(say)


def _shares(say: Callable[[int, float], None]) -> Advance:
    """Turn the share of each job into how many jobs of its experiment are done."""
    shares: dict[str, float] = {}

    def advance(job: Job, share: float) -> None:
        shares[job.name] = share
        say(job.experiment, sum(s for name, s in shares.items() if name.startswith(f"{job.experiment}-")))

    return advance


@contextmanager
def working(title: str, quiet: bool) -> Iterator[None]:
    """A spinner on stderr, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


@contextmanager
def steps(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """What is being done and how far it is, on a terminal; otherwise a line for each thing that is done."""
    if quiet:
        yield lambda name, share: None
    elif not sys.stderr.isatty():

        def say(name: str, share: float) -> None:
            if share >= 1:
                typer.echo(name, err=True)

        yield say
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = TextColumn("{task.description}"), BarColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=1.0)
            yield lambda name, share: progress.update(task, description=name, completed=share)
