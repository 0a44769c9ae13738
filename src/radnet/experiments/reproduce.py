"""The whole of `radnet reproduce`: plan, run what is missing, compare, write the page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingPackage
from . import page, recovery, results, runner
from .images import digest
from .plan import TITLES, Job, plan
from .report import Row

Begin = Callable[[Sequence[Job]], runner.Advance]


@dataclass(frozen=True)
class Reproduction:
    """What came out, and whether it was run now or found finished."""

    data: dict[str, Any]
    folder: Path
    found: bool
    page: bool  # whether there is one: it needs matplotlib

    @property
    def rows(self) -> list[Row]:
        """Ours beside the paper's."""
        return results.rows_from(self.data)


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
        From 1 to 6; all by default. Experiment 4 is left out, with a word, if there are no images for it.
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
        Image files for experiment 4.
    begin : callable, optional
        Is given the jobs, returns what is told of their progress.

    Returns
    -------
    Reproduction
    """
    wanted, skipped, found = list(experiments or TITLES), {}, None
    if 4 in wanted:
        try:
            found = digest(recovery.images(recovery.Settings(mnist=mnist)))
        except MissingPackage as error:
            if experiments:
                raise
            wanted.remove(4)
            skipped[4] = str(error)
    todo = plan(wanted, trials=trials, seed=seed, quick=quick, mnist=mnist, digest=found)
    workers = cores() if jobs is None else jobs
    runner.make_folder(folder)
    with runner.locked(folder):
        finished = runner.open_folder(folder, todo, force=force)
        if finished:
            data = results.read(folder)
        else:
            start = time.perf_counter()
            before = sum(runner.finished(folder, job) is not None for job in todo)
            advance = begin(todo) if begin is not None else None
            answers = runner.run(todo, folder, workers=workers, advance=advance)
            seconds = time.perf_counter() - start
            data = results.assemble(todo, answers, quick=quick, seconds=seconds, before=before, skipped=skipped)
            results.write(folder, data)
        made = _make_page(folder, data)
    return Reproduction(data, folder, finished, made)


def _make_page(folder: Path, data: dict[str, Any]) -> bool:
    """Write the page and the tables that are not there; without matplotlib there is no page."""
    results.write_tables(folder, data)
    if (folder / "index.html").is_file():
        return True
    try:
        page.write(folder, data)
    except MissingPackage:
        return False
    return True


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
