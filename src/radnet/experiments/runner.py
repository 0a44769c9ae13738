"""Run trials in processes of their own, keep what is finished, and go on from there.

In the folder of a run, ``run.json`` says what is being run, ``trials/`` has a file for each finished trial. A run that
is killed at any moment and started again with the same command runs only the trials that are missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InvalidValue, TrialFailed
from ..reading import LARGEST_TEXT, parse_json, regular_file
from ..writing import exclusively, write_atomically
from .plan import Job, trial_from
from .worker import THREADS

SCHEMA_VERSION = 2
#: what a run leaves in its folder; --force removes these and nothing else
OURS = ("run.json", "trials", "results.json", "results.schema.json", "index.html")

Advance = Callable[[Job, float], None]  # a job, and what share of it is done


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
    description = {
        "schema_version": SCHEMA_VERSION,
        "environment": environment(),
        "jobs": sorted((job.as_dict() for job in jobs), key=lambda job: (job["experiment"], job["part"], job["trial"])),
    }
    description = json.loads(json.dumps(description))
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


def finished(folder: Path, job: Job) -> dict[str, Any] | None:
    """What is kept of a job that was run before; None if it was not."""
    try:
        data = _parsed(folder / "trials" / f"{job.name}.json")
        same = data["job"] == json.loads(json.dumps(job.as_dict()))
        trial_from(job.experiment, data["trial"])
        float(data["seconds"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return data if same else None


def run(jobs: Sequence[Job], folder: Path, *, workers: int = 1, advance: Advance | None = None) -> dict[str, Any]:
    """Run the jobs that are not finished; returns all of them, name by name.

    Parameters
    ----------
    jobs : sequence of Job
    folder : Path
        As `open_folder` left it.
    workers : int
        How many trials at once.
    advance : callable, optional
        Is told what share of which job is done.
    """
    if workers < 1:
        raise InvalidValue(f"jobs={workers}: at least 1 is needed")
    advance = advance or (lambda job, share: None)
    (folder / "trials").mkdir(exist_ok=True)
    missing = []
    for job in jobs:
        if finished(folder, job) is None:
            missing.append(job)
        else:
            advance(job, 1.0)
    if missing:
        _Crew(missing, folder, min(workers, len(missing))).work(advance)
    answers = {job.name: finished(folder, job) for job in jobs}
    lost = [name for name, answer in answers.items() if answer is None]
    if lost:
        raise TrialFailed(f"{folder}: {', '.join(lost)} cannot be read back; run the same command again")
    return answers


class _Crew:
    """Worker processes, a thread to talk to each, and the events they report."""

    def __init__(self, jobs: Sequence[Job], folder: Path, count: int) -> None:
        self.folder = folder
        self.left: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            self.left.put(job)
        self.events: queue.SimpleQueue[tuple[Job | None, dict[str, Any]]] = queue.SimpleQueue()
        surroundings = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "radnet.experiments.worker"],  # -P: not from the current folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=surroundings,
            )
            for _ in range(count)
        ]

    def work(self, advance: Advance) -> None:
        threads = [threading.Thread(target=self._talk, args=(process,), daemon=True) for process in self.processes]
        for thread in threads:
            thread.start()
        try:
            working = len(threads)
            while working:
                job, message = self.events.get()
                if job is None:
                    working -= 1
                elif "error" in message:
                    raise _failure(job, message)
                else:
                    advance(job, message.get("share", 1.0))
        finally:
            self._end(threads)

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was not sent is not wanted any more
                        pipe.close()

    def _talk(self, process: subprocess.Popen[str]) -> None:
        """Give one worker job after job, and pass on what it says."""
        while True:
            try:
                job = self.left.get_nowait()
            except queue.Empty:
                break
            file = self.folder / "trials" / f"{job.name}.json"
            for message in _ask(process, {"job": job.as_dict(), "file": str(file)}):
                self.events.put((job, message))
                if "error" in message:
                    return
        self.events.put((None, {}))


def _ask(process: subprocess.Popen[str], request: dict[str, Any]) -> Any:
    """Send a job to a worker; what it answers, to the last line."""
    source, sink = process.stdout, process.stdin
    if source is None or sink is None:  # never: both are pipes
        return
    try:
        sink.write(json.dumps(request) + "\n")
        sink.flush()
        for line in source:
            message = json.loads(line)
            yield message
            if "share" not in message:
                return
    except (OSError, ValueError):
        pass
    yield {"error": f"its process ended with code {process.wait()}", "kind": "Died", "ours": True}


def _failure(job: Job, message: dict[str, Any]) -> TrialFailed:
    kind = "" if message["ours"] else f"{message['kind']}: "
    return TrialFailed(
        f"experiment {job.experiment} ({job.part}), trial {job.trial}: {kind}{message['error']}; finished trials are "
        "kept, the same command goes on from them"
    )


def _parsed(path: Path) -> Any:
    if regular_file(path).stat().st_size > LARGEST_TEXT:
        raise InvalidValue(f"{path}: more than {LARGEST_TEXT:,} bytes")
    return parse_json(path.read_bytes(), str(path))


def read_json(path: Path) -> dict[str, Any]:
    """What a run left in one of its JSON files, if that has the version this radnet reads."""
    try:
        found: dict[str, Any] = _parsed(path)
        version = found["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValue(f"{path} cannot be read ({error}); --force starts anew") from error
    if version != SCHEMA_VERSION:
        raise InvalidValue(
            f"{path} has version {version}, this radnet reads version {SCHEMA_VERSION}; "
            "give another folder with --out, or --force to start anew"
        )
    return found


def _check_same_run(folder: Path, description: dict[str, Any]) -> None:
    found = read_json(folder / "run.json")
    for part, what in (("environment", "in another environment"), ("jobs", "with other settings")):
        if found.get(part) != description[part]:
            raise InvalidValue(
                f"{folder} has a run made {what}; give another folder with --out, or --force to start anew"
            )


def _and_leftovers(names: str) -> re.Pattern[str]:
    """Our files, and temporary ones of theirs."""
    return re.compile(rf"({names})|\.({names})\.[0-9a-f]{{16}}\.tmp")


_OUR_FILES = _and_leftovers(
    "|".join(map(re.escape, (name for name in OURS if name != "trials"))) + r"|experiment-[1-6]\.csv"
)
_OUR_TRIALS = _and_leftovers(r"[1-6]-[\w.-]+-\d+\.json")


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
