"""What a run leaves: ``results.json`` with its schema, a CSV for each experiment, and the page.

Everything in ``results.json`` but ``times``, the keys that end in ``seconds`` and the rows that are ``timed`` is the
same to the bit for the same seed, however many trials ran at once.
"""

from __future__ import annotations

import csv
import importlib.resources
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import InvalidValue
from ...writing import write_atomically
from ..collection import NUMBERS, find
from ..experiment import AnyExperiment, AnyOutcomes, Outcome, Row
from ..plain import Json, as_plain, from_plain
from ..running.folder import SCHEMA_VERSION, Finished, environment, read_json
from . import schemas


@dataclass(frozen=True)
class TrialResult:
    """One trial, as its experiment has it, with its seed and how long it took."""

    seed: int
    result: object
    seconds: float


@dataclass(frozen=True)
class PartResult:
    """One part of an experiment: its settings, as the experiment has them, and its trials."""

    part: str
    settings: object
    trials: tuple[TrialResult, ...]


@dataclass(frozen=True)
class ExperimentResult:
    """One experiment, part by part."""

    number: int
    title: str
    parts: tuple[PartResult, ...]

    def outcomes(self) -> AnyOutcomes:
        """Settings and trials of each part: what the experiment's own rows, findings and pictures are made from."""
        return {part.part: Outcome(part.settings, tuple(t.result for t in part.trials)) for part in self.parts}


@dataclass(frozen=True)
class Skipped:
    """An experiment that was not run, and why."""

    number: int
    why: str


@dataclass(frozen=True)
class Times:
    """How long the run took, this time, and how many trials were finished before."""

    seconds: float
    trials_before: int


@dataclass(frozen=True)
class Results:
    """All that is known of a run; its fields are those of ``results.json``."""

    schema_version: int
    quick: bool
    environment: dict[str, str | int]
    rows: tuple[Row, ...]
    experiments: tuple[ExperimentResult, ...]
    skipped: tuple[Skipped, ...]
    times: Times

    def of(self, number: int) -> ExperimentResult:
        """What came of one experiment."""
        found = next((one for one in self.experiments if one.number == number), None)
        if found is None:
            raise InvalidValue(f"experiment {number} was not run")
        return found


def assemble(
    finished: Sequence[Finished], *, quick: bool, seconds: float, before: int, skipped: Mapping[int, str]
) -> Results:
    """All that is known of a run.

    Parameters
    ----------
    finished
        The trials, as `runner.run` left them.
    quick : bool
        Whether it was a quick look.
    seconds : float
        How long it took, this time.
    before : int
        How many trials were finished before.
    skipped : mapping
        Experiments that were not run, and why.
    """
    experiments = [_experiment(number, finished) for number in sorted({one.job.experiment for one in finished})]
    return Results(
        SCHEMA_VERSION,
        quick,
        environment(),
        tuple(row for one in experiments for row in rows_of(find(one.number), one.outcomes(), quick=quick)),
        tuple(experiments),
        tuple(Skipped(number, why) for number, why in sorted(skipped.items())),
        Times(seconds, before),
    )


def _experiment(number: int, finished: Sequence[Finished]) -> ExperimentResult:
    parts: dict[str, list[Finished]] = {}
    for one in finished:
        if one.job.experiment == number:
            parts.setdefault(one.job.part, []).append(one)
    return ExperimentResult(
        number,
        find(number).title,
        tuple(
            PartResult(
                part,
                some[0].job.settings,
                tuple(TrialResult(one.job.seed, one.trial, one.seconds) for one in some),
            )
            for part, some in parts.items()
        ),
    )


def write(folder: Path, results: Results) -> None:
    """Write ``results.json``: once it is there, the run is finished."""
    write_atomically(folder / "results.json", (json.dumps(as_plain(results), allow_nan=False) + "\n").encode())


def write_tables(folder: Path, results: Results) -> None:
    """Write the schema and a CSV for each experiment, where they are not there."""
    files = {f"experiment-{one.number}.csv": _csv(one) for one in results.experiments}
    for name, text in {**files, "results.schema.json": schema()}.items():
        if not (folder / name).is_file():
            write_atomically(folder / name, text.encode())


def read(folder: Path) -> Results:
    """The results of a finished run.

    Raises
    ------
    InvalidValue
        If they are damaged or of another version.
    """
    path = folder / "results.json"
    data = read_json(path)
    try:
        schemas.check(data, json.loads(schema()))
        shell = from_plain(Results, {**data, "experiments": []})
        experiments = _experiments_from(data["experiments"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValue(f"{path} cannot be read ({error}); --force starts anew") from error
    return replace(shell, experiments=experiments)


def _experiments_from(data: Json) -> tuple[ExperimentResult, ...]:
    found = []
    for one in data if isinstance(data, list) else ():
        number = one["number"] if isinstance(one, dict) else None
        experiment = find(number if isinstance(number, int) else 0)
        result = from_plain(ExperimentResult, one, settings=experiment.settings, result=experiment.result)
        names = [part.part for part in result.parts]
        if names != [part.name for part in experiment.parts]:
            raise ValueError(f"experiment {number} has the parts {', '.join(names)}")
        found.append(result)
    return tuple(found)


def schema() -> str:
    """The JSON schema of ``results.json``."""
    text = (importlib.resources.files(__package__) / "results.schema.json").read_text(encoding="utf-8")
    return text.replace('"the number of experiments"', str(max(NUMBERS)))


def rows_of(experiment: AnyExperiment, outcomes: AnyOutcomes, *, quick: bool = False) -> list[Row]:
    """The rows of one experiment.

    A quick look is compared with the paper only where it does all that the paper does.
    """
    rows = experiment.rows(outcomes)
    if quick and experiment.quick.changes:
        rows = [replace(row, agrees=None, rule="", note="quick look: not compared") for row in rows]
    return rows


def without_times(data: Json) -> Json:
    """What must be the same in every run with the same seed.

    >>> without_times({"a": 1, "seconds": 2.0, "rows": [{"timed": True, "figure": "x", "ours": 3}]})
    {'a': 1, 'rows': [{'timed': True, 'figure': 'x'}]}
    """
    if isinstance(data, list):
        return [without_times(part) for part in data]
    if not isinstance(data, dict):
        return data
    hidden = {"times"} | ({"ours", "agrees"} if data.get("timed") else set())
    kept = {key: value for key, value in data.items() if key not in hidden and not key.endswith("seconds")}
    return {key: without_times(value) for key, value in kept.items()}


def _csv(result: ExperimentResult) -> str:
    """The table of an experiment: part, trial and seed, and what the experiment has on each line."""
    experiment = find(result.number)
    lines = [
        {"part": part.part, "trial": k, "seed": trial.seed, **line}
        for part in result.parts
        for k, trial in enumerate(part.trials)
        for line in experiment.table(trial.result, trial.seed)
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()
