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
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InvalidValue, TrialFailed
from ..files import write_atomically
from .plan import Job
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
    """Make or take up the folder of a run; returns whether the run in it is finished already.

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
    if folder.exists() and not folder.is_dir():
        raise InvalidValue(f"{folder} is a file; give a folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be used: {error.strerror}; give another folder with --out") from error
    foreign = sorted(name for name in names if name not in OURS and not _is_csv(name) and not name.endswith(".tmp"))
    if foreign or (names and "run.json" not in names):
        raise InvalidValue(
            f"{folder} is not empty and not a run of radnet ({', '.join(foreign or sorted(names))}); "
            "give another folder with --out"
        )
    if force:
        _clear(folder)
    elif names:
        _check_same_run(folder, description)
        return (folder / "results.json").is_file()
    try:
        write_atomically(folder / "run.json", (json.dumps(description, indent=1) + "\n").encode())
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be written to: {error.strerror}; give another with --out") from error
    return False


def finished(folder: Path, job: Job) -> dict[str, Any] | None:
    """What is kept of a job that was run before; None if it was not."""
    try:
        data = json.loads((folder / "trials" / f"{job.name}.json").read_text())
        same = data["job"] == json.loads(json.dumps(job.as_dict()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return data if same and {"trial", "seconds"} <= data.keys() else None


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
                [sys.executable, "-m", "radnet.experiments.worker"],
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


def _check_same_run(folder: Path, description: dict[str, Any]) -> None:
    try:
        found = json.loads((folder / "run.json").read_text())
        version = found["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValue(f"{folder / 'run.json'} cannot be read ({error}); --force starts anew") from error
    if version != SCHEMA_VERSION:
        raise InvalidValue(
            f"{folder} has results of version {version}, this radnet writes version {SCHEMA_VERSION}; "
            "give another folder with --out, or --force to start anew"
        )
    for part, what in (("environment", "in another environment"), ("jobs", "with other settings")):
        if found.get(part) != description[part]:
            raise InvalidValue(
                f"{folder} has a run made {what}; give another folder with --out, or --force to start anew"
            )


def _is_csv(name: str) -> bool:
    return name.startswith("experiment-") and name.endswith(".csv")


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == "trials":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
