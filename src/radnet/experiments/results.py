"""What a run leaves: ``results.json`` with its schema, a CSV for each experiment, and the page.

Everything in ``results.json`` but ``times``, the keys that end in ``seconds`` and the rows that are ``timed`` is the
same to the bit for the same seed, however many trials ran at once.
"""

from __future__ import annotations

import csv
import importlib.resources
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidValue
from ..writing import write_atomically
from . import schemas
from .figure import Figure
from .plan import TITLES, Job, trial_from
from .report import Row, rows_of
from .runner import SCHEMA_VERSION, environment, read_json


def assemble(
    jobs: Sequence[Job], answers: dict[str, Any], *, quick: bool, seconds: float, before: int, skipped: dict[int, str]
) -> dict[str, Any]:
    """All that is known of a run, as plain data.

    Parameters
    ----------
    jobs, answers
        What was planned and what came of it (`runner.run`).
    quick : bool
        Whether it was a quick look.
    seconds : float
        How long it took, this time.
    before : int
        How many trials were finished before.
    skipped : dict
        Experiments that were not run, and why.
    """
    experiments, rows = [], []
    for experiment in sorted({job.experiment for job in jobs}):
        parts: dict[str, list[Job]] = {}
        for job in jobs:
            if job.experiment == experiment:
                parts.setdefault(job.part, []).append(job)
        trials = {
            part: [trial_from(experiment, answers[job.name]["trial"]) for job in some] for part, some in parts.items()
        }
        rows += rows_of(experiment, trials, {part: some[0].settings for part, some in parts.items()}, quick=quick)
        experiments.append(
            {
                "number": experiment,
                "title": TITLES[experiment],
                "parts": [
                    {
                        "part": part,
                        "settings": some[0].as_dict()["settings"],
                        "trials": [
                            {
                                "seed": job.seed,
                                "result": answers[job.name]["trial"],
                                "seconds": answers[job.name]["seconds"],
                            }
                            for job in some
                        ],
                    }
                    for part, some in parts.items()
                ],
            }
        )
    data = {
        "schema_version": SCHEMA_VERSION,
        "quick": quick,
        "environment": environment(),
        "rows": [row.as_dict() for row in rows],
        "experiments": experiments,
        "skipped": [{"number": number, "why": why} for number, why in sorted(skipped.items())],
        "times": {"seconds": seconds, "trials_before": before},
    }
    plain: dict[str, Any] = json.loads(json.dumps(data))
    return plain


def write(folder: Path, data: dict[str, Any]) -> None:
    """Write ``results.json``: once it is there, the run is finished."""
    write_atomically(folder / "results.json", (json.dumps(data, allow_nan=False) + "\n").encode())


def write_tables(folder: Path, data: dict[str, Any]) -> None:
    """Write the schema and a CSV for each experiment, where they are not there."""
    files = {f"experiment-{one['number']}.csv": _csv(one) for one in data["experiments"]}
    for name, text in {**files, "results.schema.json": schema()}.items():
        if not (folder / name).is_file():
            write_atomically(folder / name, text.encode())


def read(folder: Path) -> dict[str, Any]:
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
        rows_from(data)
        for one in data["experiments"]:
            for part in one["parts"]:
                trials_from(data, one["number"], part["part"])
        _ = data["skipped"], data["times"]["seconds"], data["environment"]["radnet"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValue(f"{path} cannot be read ({error}); --force starts anew") from error
    return data


def schema() -> str:
    """The JSON schema of ``results.json``."""
    return (importlib.resources.files(__package__) / "results.schema.json").read_text()


def rows_from(data: dict[str, Any]) -> list[Row]:
    """The rows of results that were read back."""
    rows = []
    for row in data["rows"]:
        figures: dict[str, Any] = {k: None if row[k] is None else Figure(**row[k]) for k in ("ours", "paper")}
        rows.append(Row(**{**row, **figures}))
    return rows


def trials_from(data: dict[str, Any], experiment: int, part: str) -> list[Any]:
    """The trials of one part of an experiment, as its own ``Trial``; empty if it was not run."""
    return [
        trial_from(experiment, trial["result"])
        for one in data["experiments"]
        if one["number"] == experiment
        for some in one["parts"]
        if some["part"] == part
        for trial in some["trials"]
    ]


def without_times(data: Any) -> Any:
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


def _csv(experiment: dict[str, Any]) -> str:
    """A line for each trial and network, with single numbers only; curves are in ``results.json``."""
    lines = [
        {"part": part["part"], "trial": k, "seed": trial["seed"], **line}
        for part in experiment["parts"]
        for k, trial in enumerate(part["trials"])
        for line in _LINES[experiment["number"]](trial["result"])
    ]
    if experiment["number"] == 2:  # one trial is all initialisations
        lines = [{**line, "seed": line["seed"] + line["initialisation"]} for line in lines]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def _numbers(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if not isinstance(value, list | dict)}


def _recovery_lines(t: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "network": name,
            **_numbers(run),
            "acting at first": max(run["acting"][0], default=0.0),
            "acting at last": max(run["acting"][-1], default=0.0),
        }
        for name, run in t["runs"].items()
    ]


_LINES: dict[int, Any] = {
    1: lambda t: [{"dtype": dtype, "error": error} for dtype, error in t["errors"].items()],
    2: lambda t: [
        {"initialisation": k, "loss": a, "reduced_loss": b}
        for k, (a, b) in enumerate(zip(t["losses"], t["reduced_losses"], strict=True))
    ],
    3: lambda t: [{"network": name, **_numbers(t[name])} for name in ("full", "reduced")],
    4: _recovery_lines,
    5: lambda t: t["cells"],
    6: lambda t: [
        {"data": data, "network": name, "accuracy": value, "larger class": t["larger_class"][data]}
        for data, values in t["accuracy"].items()
        for name, value in values.items()
    ],
}
