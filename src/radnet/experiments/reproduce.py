"""The whole of `radnet reproduce`: plan, run what is missing, compare, write the page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import MissingPackage
from .collection import NUMBERS, chosen
from .experiment import Changes, Row
from .plain import Json, as_plain
from .reporting import page, results
from .reporting.results import Results
from .running import runner
from .running.folder import finished, locked, make_folder, open_folder
from .running.plan import Job, plan

Begin = Callable[[Sequence[Job]], runner.Advance]


@dataclass(frozen=True)
class Reproduction:
    """What came out, and whether it was run now or found finished."""

    results: Results
    folder: Path
    found: bool
    page: bool  # whether there is one: it needs matplotlib

    @property
    def rows(self) -> list[Row]:
        """Ours beside the paper's."""
        return list(self.results.rows)

    @property
    def data(self) -> dict[str, Json]:
        """What ``results.json`` holds."""
        return as_plain(self.results)


def reproduce(
    folder: Path,
    experiments: Sequence[int] = (),
    *,
    trials: int | None = None,
    seed: int = 0,
    quick: bool = False,
    jobs: int | None = None,
    force: bool = False,
    mnist: str | None = None,
    begin: Begin | None = None,
) -> Reproduction:
    """Run the experiments and leave figures, tables and a page in a folder.

    Parameters
    ----------
    folder : Path
        New, empty, or of the same run: an interrupted one goes on, a finished one is read and not run again.
    experiments : sequence of int
        Their numbers; all by default. One that needs images is left out, with a word, if there are none for it.
    trials : int, optional
        For each part of each experiment; by default the paper's counts.
    seed : int
        Of the first trial; the others follow.
    quick : bool
        A few short trials of each.
    jobs : int, optional
        How many trials at once; by default one for each core.
    force : bool
        Remove the results in the folder and start anew.
    mnist : str, optional
        Image files, for experiments that need them.
    begin : callable, optional
        Is given the jobs, returns what is told of their progress.

    Returns
    -------
    Reproduction
    """
    prepared, skipped = _prepare(experiments, mnist)
    todo = plan(list(prepared), trials=trials, seed=seed, quick=quick, prepared=prepared)
    workers = cores() if jobs is None else jobs
    make_folder(folder)
    with locked(folder):
        found = open_folder(folder, todo, force=force)
        if found:
            result = results.read(folder)
        else:
            start = time.perf_counter()
            before = sum(finished(folder, job) is not None for job in todo)
            advance = begin(todo) if begin is not None else None
            done = runner.run(todo, folder, workers=workers, advance=advance)
            seconds = time.perf_counter() - start
            in_order = [done[job.name] for job in todo]
            result = results.assemble(in_order, quick=quick, seconds=seconds, before=before, skipped=skipped)
            results.write(folder, result)
        made = _make_page(folder, result)
    return Reproduction(result, folder, found, made)


def _prepare(wanted: Sequence[int], mnist: str | None) -> tuple[dict[int, Changes], dict[int, str]]:
    """What the settings of each experiment say of its images; and those to be left out for want of any, and why."""
    prepared: dict[int, Changes] = {}
    skipped: dict[int, str] = {}
    for experiment in chosen(wanted or NUMBERS):
        try:
            prepared[experiment.number] = experiment.prepare(mnist)
        except MissingPackage as error:
            if wanted:
                raise
            skipped[experiment.number] = str(error)
    return prepared, skipped


def _make_page(folder: Path, result: Results) -> bool:
    """Write the page and the tables that are not there; without matplotlib there is no page."""
    results.write_tables(folder, result)
    if (folder / "index.html").is_file():
        return True
    try:
        page.write(folder, result)
    except MissingPackage:
        return False
    return True


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
