"""All experiments in a few seconds: settings too small to mean anything, but every step of a real run."""

import dataclasses
from typing import NamedTuple

from radnet.experiments import collection
from radnet.experiments.experiment import Outcome, QuickLook
from radnet.experiments.reporting.results import rows_of


class Small(NamedTuple):
    """A quick look that takes a second or two, and what it leaves: lines in the table, pictures on the page."""

    look: QuickLook
    lines: int
    pictures: int


SMALL = {
    1: Small(QuickLook({}, 3), 6, 0),
    2: Small(QuickLook({"initialisations": 2, "epochs": 20}, 1), 4, 0),
    3: Small(QuickLook({"per_axis": 9, "epochs": 45, "loss": 0.2}, 2), 8, 1),
    4: Small(QuickLook({"epochs": 3, "copies": 6, "train": 12}, 2), 16, 2),
    5: Small(QuickLook({"depths": (2, 4), "per_axis": 5, "epochs": 3}, 2), 36, 1),
    6: Small(QuickLook({"hidden": (8, 8), "train": 50, "test": 50, "epochs": 3}, 2), 24, 1),
}


def look_smaller(patch):
    """From here on a quick look is a small run."""
    small = tuple(dataclasses.replace(one, quick=SMALL[one.number].look) for one in collection.experiments())
    patch.setattr(collection, "experiments", lambda: small)


def part_of(experiment, name):
    """One part of an experiment, by its name."""
    return next(part for part in experiment.parts if part.name == name)


def judged(experiment, trials):
    """The rows of an experiment from trials, part by part, as if they had been run with the paper's settings."""
    return rows_of(
        experiment, {name: Outcome(part_of(experiment, name).settings, tuple(some)) for name, some in trials.items()}
    )
