"""Which trials there are: every experiment at the paper's settings and counts, or a quick look at each."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...checks import is_whole
from ...errors import InvalidValue
from .. import collection
from ..basics import check_counts
from ..collection import NUMBERS, chosen, find
from ..experiment import LARGEST_SEED, Changes
from ..plain import from_plain

#: every part of every experiment, by number and name
PARTS = {(experiment.number, part.name): part for experiment in collection.experiments() for part in experiment.parts}


@dataclass(frozen=True)
class Job:
    """One trial of one part of an experiment; the settings are those of that experiment."""

    experiment: int
    part: str
    trial: int
    seed: int
    settings: object

    @property
    def name(self) -> str:
        """Also the name of its file."""
        return f"{self.experiment}-{self.part}-{self.trial}"


def job_from(data: Mapping[str, object]) -> Job:
    """A job from the plain data that `as_plain` made of it."""
    number = data["experiment"]
    if not isinstance(number, int):
        raise TypeError(f"experiment {number!r}: expected a number")
    return from_plain(Job, data, settings=find(number).settings)


def plan(
    experiments: Collection[int] = NUMBERS,
    *,
    trials: int | None = None,
    seed: int = 0,
    quick: bool = False,
    prepared: Mapping[int, Changes] | None = None,
) -> list[Job]:
    """All trials, the slowest first.

    Parameters
    ----------
    experiments : sequence of int
        Their numbers; all by default.
    trials : int, optional
        So many for each part; by default the paper's counts.
    seed : int
        Of the first trial; the others follow.
    quick : bool
        A few short trials of each.
    prepared : mapping, optional
        For experiments that need images, what `Experiment.prepare` says of them.

    Examples
    --------
    >>> jobs = plan([1, 4], trials=2)
    >>> [job.name for job in jobs]
    ['4-noise-3-0', '4-noise-3-1', '4-noise-0.5-0', '4-noise-0.5-1', '1-initialisations-0', '1-initialisations-1']
    """
    if trials is not None:
        check_counts(trials=trials)
    wanted = {experiment.number: experiment for experiment in chosen(experiments)}
    if not is_whole(seed) or not 0 <= seed <= LARGEST_SEED:
        raise InvalidValue(f"seed={seed!r}: expected a whole number from 0 to {LARGEST_SEED:,}")
    jobs = []
    for (number, name), part in PARTS.items():
        if number not in wanted:
            continue
        experiment, count, changes = wanted[number], part.trials, {}
        if quick:
            count, changes = experiment.quick.trials, dict(experiment.quick.changes)
        if trials is not None and experiment.together is not None:
            changes[experiment.together] = trials
        elif trials is not None:
            count = trials
        changes.update((prepared or {}).get(number, {}))
        settings = dataclasses.replace(part.settings, **changes)
        jobs += [Job(number, name, k, seed + k, settings) for k in range(count)]
    return sorted(jobs, key=lambda job: -wanted[job.experiment].seconds)
