"""The folder of a run: ``run.json`` says what is being run, ``trials/`` has a file for each finished trial.

A folder with anything else in it is refused and left as it is.
"""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ...errors import InvalidValue
from ...reading import LARGEST_TEXT, parse_json, regular_file
from ...writing import exclusively, write_atomically
from ..collection import NUMBERS, find
from ..plain import Json, as_plain, from_plain
from .plan import Job

SCHEMA_VERSION = 2
THREADS = 1  # of torch, for each trial
#: what a run leaves in its folder; --force removes these and nothing else
OURS = ("run.json", "trials", "results.json", "results.schema.json", "index.html")


@dataclass(frozen=True)
class Finished:
    """A job that was run, as its file says: the trial is one of its experiment's."""

    job: Job
    trial: object
    seconds: float


def environment() -> dict[str, str | int]:
    """What the figures depend on besides the seed."""
    import radnet

    return {
        "radnet": radnet.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads per trial": THREADS,
    }


def open_folder(folder: Path, jobs: Sequence[Job], *, force: bool = False) -> bool:
    """Begin or take up the run of a folder; returns whether the run in it is finished already.

    Raises
    ------
    InvalidValue
        If the folder holds something else, or another run, or one of another version. Nothing is changed then.
    """
    in_order = sorted(jobs, key=lambda job: (job.experiment, job.part, job.trial))
    description: dict[str, Json] = {
        "schema_version": SCHEMA_VERSION,
        "environment": {**environment()},
        "jobs": [as_plain(job) for job in in_order],
    }
    make_folder(folder)
    names = {path.name for path in folder.iterdir()}
    foreign = _foreign(folder)
    if foreign or (_visible(names) and "run.json" not in names):
        raise InvalidValue(
            f"{folder} is not empty and not a run of radnet ({', '.join(foreign or sorted(names))}); "
            "give another folder with --out"
        )
    if force:
        _clear(folder)
    elif "run.json" in names:
        _check_same_run(folder, description)
        return (folder / "results.json").is_file()
    write_atomically(folder / "run.json", (json.dumps(description, indent=1) + "\n").encode())
    return False


def locked(folder: Path) -> AbstractContextManager[None]:
    """While this lasts, no other run works in the folder (where the system can tell); nothing is put there for it."""
    return exclusively(folder, f"another run is at work in {folder}; wait for it, or give another --out")


def make_folder(folder: Path) -> None:
    """Make the folder of a run, unless it is there."""
    if folder.exists() and not folder.is_dir():
        raise InvalidValue(f"{folder} is a file; give a folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be used: {error.strerror}; give another folder with --out") from error


def file_of(folder: Path, job: Job) -> Path:
    """The file that the trial of a job goes to."""
    return folder / "trials" / f"{job.name}.json"


def keep(file: Path, done: Finished) -> None:
    """Write the file of a trial."""
    write_atomically(file, (json.dumps(as_plain(done), allow_nan=False) + "\n").encode())


def finished(folder: Path, job: Job) -> Finished | None:
    """What is kept of a job that was run before; None if it was not."""
    experiment = find(job.experiment)
    try:
        data = _parsed(file_of(folder, job))
        found = from_plain(Finished, data, settings=experiment.settings, trial=experiment.result)
    except (OSError, ValueError, TypeError):
        return None
    return found if found.job == job else None


def read_json(path: Path) -> dict[str, Json]:
    """What a run left in one of its JSON files, if that has the version this radnet reads."""
    try:
        found = _parsed(path)
        if not isinstance(found, dict):
            raise TypeError(f"it is a {type(found).__name__}")
        version = found["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValue(f"{path} cannot be read ({error}); --force starts anew") from error
    if version != SCHEMA_VERSION:
        raise InvalidValue(
            f"{path} has version {version}, this radnet reads version {SCHEMA_VERSION}; "
            "give another folder with --out, or --force to start anew"
        )
    return found


def _parsed(path: Path) -> Json:
    if regular_file(path).stat().st_size > LARGEST_TEXT:
        raise InvalidValue(f"{path}: more than {LARGEST_TEXT:,} bytes")
    found: Json = parse_json(path.read_bytes(), str(path))
    return found


def _check_same_run(folder: Path, description: dict[str, Json]) -> None:
    found = read_json(folder / "run.json")
    for part, what in (("environment", "in another environment"), ("jobs", "with other settings")):
        if found.get(part) != description[part]:
            raise InvalidValue(
                f"{folder} has a run made {what}; give another folder with --out, or --force to start anew"
            )


def _and_leftovers(names: str) -> re.Pattern[str]:
    """Our files, and temporary ones of theirs."""
    return re.compile(rf"({names})|\.({names})\.[0-9a-f]{{16}}\.tmp")


_NUMBER = f"(?:{'|'.join(map(str, NUMBERS))})"
_OUR_FILES = _and_leftovers(
    "|".join(map(re.escape, (name for name in OURS if name != "trials"))) + rf"|experiment-{_NUMBER}\.csv"
)
_OUR_TRIALS = _and_leftovers(rf"{_NUMBER}-[\w.-]+-\d+\.json")


def _visible(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith(".")}


def _foreign(folder: Path) -> list[str]:
    """What we did not put there; files that a desktop hides in every folder do not count."""
    trials = folder / "trials"
    found = [path.name for path in folder.iterdir() if path.name not in OURS and not _OUR_FILES.fullmatch(path.name)]
    if trials.is_symlink() or (trials.exists() and not trials.is_dir()):
        found.append("trials")
    elif trials.is_dir():
        found += [f"trials/{path.name}" for path in trials.iterdir() if not _OUR_TRIALS.fullmatch(path.name)]
    return sorted(name for name in found if not name.split("/")[-1].startswith("."))


def _clear(folder: Path) -> None:
    """Remove our files and no others; run.json stays until it is written anew, so that a crash leaves a run."""
    for path in [*(folder / "trials").glob("*"), *(folder / "trials").glob(".*.tmp")]:
        if _OUR_TRIALS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    for path in folder.iterdir():
        if _OUR_FILES.fullmatch(path.name) and path.name != "run.json":
            path.unlink()
