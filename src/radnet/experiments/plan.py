"""Which trials there are: every experiment at the paper's settings and counts, or a quick look at each."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..errors import InvalidValue
from .basics import LARGEST_SEED, check_counts

TITLES = {
    1: "Compression changes nothing",
    2: "Projected descent on the big network is descent on the small one",
    3: "The compressed network trains faster",
    4: "Noisy image recovery",
    5: "Sensitivity to initialisation and depth",
    6: "Circular and distance-based class boundaries",
}
_MODULES = {1: "lossless", 2: "descent", 3: "speed", 4: "recovery", 5: "stability", 6: "boundaries"}

#: for each part of an experiment: what differs from its default settings, and how many trials
PARTS: dict[tuple[int, str], tuple[dict[str, Any], int]] = {
    (1, "initialisations"): ({}, 10),  # §7 (1)
    (2, "float32"): ({"dtypes": ("float32",)}, 1),  # the ten of §7 (2) are trained together
    (2, "float64"): ({"dtypes": ("float64",)}, 1),
    (3, "paper"): ({}, 3),
    (3, "script"): ({"target": "script", "rate": 0.01}, 10),  # §7 (3)
    (4, "noise-3"): ({}, 10),  # §7 (4)
    (4, "noise-0.5"): ({"noise_scale": 0.5}, 10),  # what the published script does
    (5, "grid"): ({}, 3),
    (6, "data"): ({}, 5),
}
#: the same for a quick look, which is not compared with the paper where it does less than the paper
QUICK: dict[int, tuple[dict[str, Any], int]] = {
    1: ({}, 10),
    2: ({"initialisations": 3, "epochs": 200}, 1),
    3: ({"rate": 0.1, "epochs": 150}, 1),
    4: ({"epochs": 20}, 1),
    5: ({"depths": (2, 8), "epochs": 30}, 1),
    6: ({"epochs": 60}, 1),
}
_SLOWEST_FIRST = (3, 4, 5, 6, 2, 1)


@dataclass(frozen=True)
class Job:
    """One trial of one part of an experiment."""

    experiment: int
    part: str
    trial: int
    seed: int
    settings: Any

    @property
    def name(self) -> str:
        """Also the name of its file."""
        return f"{self.experiment}-{self.part}-{self.trial}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data; `job_from` makes a job of it again."""
        return {**dataclasses.asdict(self), "settings": dataclasses.asdict(self.settings)}


def module_of(experiment: int) -> ModuleType:
    """The file an experiment is in."""
    return importlib.import_module(f"{__package__}.{_MODULES[experiment]}")


def job_from(data: dict[str, Any]) -> Job:
    """A job from plain data."""
    settings = module_of(data["experiment"]).Settings(**{k: _tuples(v) for k, v in data["settings"].items()})
    return Job(**{**data, "settings": settings})


def trial_from(experiment: int, data: dict[str, Any]) -> Any:
    """A trial of an experiment from the plain data it was written as."""
    module = module_of(experiment)
    nested = {
        3: {"full": _one("Run"), "reduced": _one("Run")},
        4: {"runs": lambda m, runs: {name: m.Run(**_fields(run)) for name, run in runs.items()}},
        5: {"cells": lambda m, cells: tuple(m.Cell(**_fields(cell)) for cell in cells)},
    }.get(experiment, {})
    return module.Trial(**{k: nested[k](module, v) if k in nested else _tuples(v) for k, v in data.items()})


def plan(
    experiments: Sequence[int] = tuple(TITLES),
    *,
    trials: int | None = None,
    seed: int = 0,
    quick: bool = False,
    mnist: str | None = None,
    digest: str | None = None,
) -> list[Job]:
    """All trials, the slowest first.

    Parameters
    ----------
    experiments : sequence of int
        From 1 to 6.
    trials : int, optional
        So many for each part; by default the paper's counts.
    seed : int
        Of the first trial; the others follow.
    quick : bool
        A few short trials of each.
    mnist : str, optional
        Image files for experiment 4.
    digest : str, optional
        What `images.digest` says of the images: a trial with other images is refused.

    Examples
    --------
    >>> jobs = plan([1, 4], trials=2)
    >>> [job.name for job in jobs]
    ['4-noise-3-0', '4-noise-3-1', '4-noise-0.5-0', '4-noise-0.5-1', '1-initialisations-0', '1-initialisations-1']
    """
    if trials is not None:
        check_counts(trials=trials)
    unknown = set(experiments) - set(TITLES)
    if unknown or not experiments:
        raise InvalidValue(f"experiments {sorted(experiments)}: expected some of {', '.join(map(str, TITLES))}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < LARGEST_SEED - 1000:
        raise InvalidValue(f"seed={seed!r}: expected a whole number from 0 to {LARGEST_SEED - 1001:,}")
    jobs = []
    for (experiment, part), (differences, count) in PARTS.items():
        if experiment not in experiments:
            continue
        changes = dict(differences)
        if quick:
            short, count = QUICK[experiment]
            changes.update(short)
        if trials is not None and experiment == 2:
            changes["initialisations"] = trials
        elif trials is not None:
            count = trials
        if experiment == 4:
            changes.update(mnist=mnist, digest=digest)
        settings = module_of(experiment).Settings(**changes)
        jobs += [Job(experiment, part, k, seed + k, settings) for k in range(count)]
    return sorted(jobs, key=lambda job: _SLOWEST_FIRST.index(job.experiment))


def _one(kind: str) -> Any:
    return lambda module, data: getattr(module, kind)(**_fields(data))


def _fields(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in data.items()}


def _tuples(value: Any) -> Any:
    """JSON has lists where we have tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
