"""A process that runs trials: jobs come in as lines of JSON, what happened goes out as lines of JSON.

A trial is written to its file, atomically, before it is said to be done. When the process that gives out the jobs is
gone, so is this one. Every trial runs with one thread, so its bits do not depend on how many run at once.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypedDict

if TYPE_CHECKING:
    from ..experiment import Tell
    from ..plain import Json
    from .folder import Finished

_BETWEEN = 0.2  # seconds between two reports of progress


class Request(TypedDict):
    """A line that comes in: a job, and the file its trial goes to."""

    job: dict[str, Json]
    file: str


class Message(TypedDict, total=False):
    """A line that goes out: what share is done, that all is done, or what went wrong and whether radnet refused it."""

    share: float
    done: bool
    error: str
    kind: str
    ours: bool


def run_job(data: dict[str, Json], tell: Tell) -> Finished:
    """Run one job."""
    from ..collection import find
    from .folder import Finished
    from .plan import job_from

    job = job_from(data)
    start = time.perf_counter()
    trial = find(job.experiment).trial(job.settings, job.seed, tell)
    return Finished(job, trial, time.perf_counter() - start)


def main() -> None:
    """Serve until the input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints is not part of the conversation
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who gives out the jobs decides what an interrupt means
    requests: queue.Queue[Request | None] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True).start()

    import torch

    from ...errors import RadNetError
    from .folder import THREADS, keep

    torch.set_num_threads(THREADS)
    while True:
        request = requests.get()
        if request is None:
            return
        try:
            keep(Path(request["file"]), run_job(request["job"], _Teller(out)))
            _say(out, {"done": True})
        except Exception as error:
            said = Message(error=str(error), kind=type(error).__name__, ours=isinstance(error, RadNetError))
            _say(out, said)


class _Teller:
    """Passes on what share of a trial is done, but not too often."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.last = out, 0.0

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self.last >= _BETWEEN:
            self.last = now
            _say(self.out, {"share": share})


def _say(out: TextIO, message: Message) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _read(source: TextIO, requests: queue.Queue[Request | None]) -> None:
    """Take in jobs; when there is nobody left to give any, leave at once, in the middle of a trial if need be."""
    for line in source:
        request: Request | None = json.loads(line)
        requests.put(request)
        if request is None:
            return
    os._exit(1)


if __name__ == "__main__":
    main()
