"""The same thing over many seeds, in parallel: processes here, a cluster through joblib's backends.

Paper: "Experiments" repeats every run over ten initialisations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ..checks import check_count
from ..errors import InvalidType, MissingPackage
from ..threads import torch_threads

ResultT = TypeVar("ResultT")


def run_trials(
    trial: Callable[[int], ResultT],
    seeds: Iterable[int],
    *,
    jobs: int | None = None,
    threads: int = 1,
    tell: Callable[[int], None] | None = None,
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
    tell : callable, optional
        Gets the number of trials that are done, whenever it has grown.

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
    work = (joblib.delayed(_with_threads)(k, trial, seed, threads) for k, seed in enumerate(seeds))
    if tell is None:
        return [result for _, result in joblib.Parallel(n_jobs=jobs)(work)]
    results: dict[int, ResultT] = {}
    for k, result in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(work):
        results[k] = result
        tell(len(results))
    return [results[k] for k in sorted(results)]


def _with_threads(k: int, trial: Callable[[int], ResultT], seed: int, threads: int) -> tuple[int, ResultT]:
    """Run one trial with a fixed number of torch threads, and put the number back; its place comes along."""
    with torch_threads(threads):
        return k, trial(seed)
