"""Run trials in processes of their own, keep what is finished, and go on from there.

A run that is killed at any moment and started again with the same command runs only the trials that are missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...errors import InvalidValue, TrialFailed
from ..plain import as_plain
from .folder import THREADS, Finished, file_of, finished
from .plan import Job
from .worker import Message, Request

Advance = Callable[[Job, float], None]  # a job, and what share of it is done


def run(jobs: Sequence[Job], folder: Path, *, workers: int = 1, advance: Advance | None = None) -> dict[str, Finished]:
    """Run the jobs that are not finished; returns all of them, name by name.

    Parameters
    ----------
    jobs : sequence of Job
    folder : Path
        As `folder.open_folder` left it.
    workers : int
        How many trials at once.
    advance : callable, optional
        Is told what share of which job is done.
    """
    if workers < 1:
        raise InvalidValue(f"jobs={workers}: at least 1 is needed")
    advance = advance or (lambda job, share: None)
    (folder / "trials").mkdir(exist_ok=True)
    found: dict[str, Finished | None] = {job.name: finished(folder, job) for job in jobs}
    missing = [job for job in jobs if found[job.name] is None]
    for job in jobs:
        if job not in missing:
            advance(job, 1.0)
    if missing:
        _Crew(missing, folder, min(workers, len(missing))).work(advance)
        found.update((job.name, finished(folder, job)) for job in missing)
    lost = [name for name, one in found.items() if one is None]
    if lost:
        raise TrialFailed(f"{folder}: {', '.join(lost)} cannot be read back; run the same command again")
    return {name: one for name, one in found.items() if one is not None}


class _Crew:
    """Worker processes, a thread to talk to each, and the events they report."""

    def __init__(self, jobs: Sequence[Job], folder: Path, count: int) -> None:
        self.folder = folder
        self.left: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            self.left.put(job)
        self.events: queue.SimpleQueue[tuple[Job | None, Message]] = queue.SimpleQueue()
        surroundings = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "radnet.experiments.running.worker"],  # -P: not from the current folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=surroundings,
                process_group=0 if os.name == "posix" else None,  # Ctrl-C is for the one who gives out the jobs
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
            for message in _ask(process, {"job": as_plain(job), "file": str(file_of(self.folder, job))}):
                self.events.put((job, message))
                if "error" in message:
                    return
        self.events.put((None, {}))


def _ask(process: subprocess.Popen[str], request: Request) -> Iterator[Message]:
    """Send a job to a worker; what it answers, to the last line."""
    source, sink = process.stdout, process.stdin
    if source is None or sink is None:  # never: both are pipes
        return
    try:
        sink.write(json.dumps(request) + "\n")
        sink.flush()
        for line in source:
            message: Message = json.loads(line)
            yield message
            if "share" not in message:
                return
    except (OSError, ValueError):
        pass
    yield {"error": f"its process ended with code {process.wait()}", "kind": "Died", "ours": True}


def _failure(job: Job, message: Message) -> TrialFailed:
    kind = "" if message["ours"] else f"{message['kind']}: "
    return TrialFailed(
        f"experiment {job.experiment} ({job.part}), trial {job.trial}: {kind}{message['error']}; finished trials are "
        "kept, the same command goes on from them"
    )
