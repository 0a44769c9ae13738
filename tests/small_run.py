"""All experiments in a few seconds: settings too small to mean anything, but every step of a real run."""

import dataclasses

import pytest

from radnet.experiments import collection
from radnet.experiments.experiment import Outcome, QuickLook
from radnet.experiments.reporting.results import rows_of

SMALL = {
    1: QuickLook({}, 3),
    2: QuickLook({"initialisations": 2, "epochs": 20}, 1),
    3: QuickLook({"per_axis": 9, "epochs": 45, "loss": 0.2}, 2),
    4: QuickLook({"epochs": 3, "copies": 6, "train": 12}, 2),
    5: QuickLook({"depths": (2, 4), "per_axis": 5, "epochs": 3}, 2),
    6: QuickLook({"hidden": (8, 8), "train": 50, "test": 50, "epochs": 3}, 2),
}


def look_smaller(patch: pytest.MonkeyPatch):
    """From here on a quick look is a small run."""
    small = tuple(dataclasses.replace(one, quick=SMALL[one.number]) for one in collection.experiments())
    patch.setattr(collection, "experiments", lambda: small)


def part_of(experiment, name):
    """One part of an experiment, by its name."""
    return next(part for part in experiment.parts if part.name == name)


def judged(experiment, trials):
    """The rows of an experiment from trials, part by part, as if they had been run with the paper's settings."""
    return rows_of(
        experiment, {name: Outcome(part_of(experiment, name).settings, tuple(some)) for name, some in trials.items()}
    )
