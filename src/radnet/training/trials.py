"""The same thing over many seeds, in parallel: processes here, a cluster through joblib's backends.

Paper: "Experiments" repeats every run over ten initialisations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

from ..checks import check_count
from ..errors import InvalidType, MissingPackage

ResultT = TypeVar("ResultT")


def run_trials(
    trial: Callable[[int], ResultT], seeds: Iterable[int], *, jobs: int | None = None, threads: int = 1
) -> list[ResultT]:
    """``[trial(seed) for seed in seeds]``, run by joblib.

    Inside ``joblib.parallel_config(backend="dask")`` the trials go to the dask cluster whose client is active. The same
    seeds give the same bits however many jobs there are, because every trial runs with the same number of threads.

    Parameters
    ----------
    trial : callable
        Takes a seed. Must be importable, or a function that joblib can send to another process.
    seeds : iterable of int
    jobs : int, optional
        How many at once: 1 is here and now, -1 one for each core; by default what joblib's configuration says.
    threads : int
        torch threads of each trial, while it runs.

    Returns
    -------
    list
        In the order of the seeds.

    Examples
    --------
    >>> run_trials(abs, [3, -4], jobs=1)
    [3, 4]
    """
    try:
        import joblib
    except ModuleNotFoundError as error:
        raise MissingPackage("run_trials needs joblib; install radnet[parallel]") from error
    if not callable(trial):
        raise InvalidType(f"trial is a {type(trial).__name__}; expected a function of a seed")
    check_count("threads", threads)
    work = (joblib.delayed(_with_threads)(trial, seed, threads) for seed in seeds)
    results: list[ResultT] = joblib.Parallel(n_jobs=jobs)(work)
    return results


def _with_threads(trial: Callable[[int], ResultT], seed: int, threads: int) -> ResultT:
    """Run one trial with a fixed number of torch threads, and put the number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return trial(seed)
    finally:
        torch.set_num_threads(before)
