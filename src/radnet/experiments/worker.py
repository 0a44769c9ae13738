"""A process that runs trials: jobs come in as lines of JSON, what happened goes out as lines of JSON.

A trial is written to its file, atomically, before it is said to be done. When the process that gives out the jobs is
gone, so is this one. Every trial runs with one thread, so its bits do not depend on how many run at once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

THREADS = 1
_BETWEEN = 0.2  # seconds between two reports of progress


def run_job(data: dict[str, Any], tell: Any) -> dict[str, Any]:
    """Run one job, given and answered as plain data."""
    from .plan import job_from, module_of

    job = job_from(data)
    start = time.perf_counter()
    trial = module_of(job.experiment).trial(job.settings, job.seed, tell)
    return {"job": data, "trial": dataclasses.asdict(trial), "seconds": time.perf_counter() - start}


def main() -> None:
    """Serve until the input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints is not part of the conversation
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who gives out the jobs decides what an interrupt means
    jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin, jobs), daemon=True).start()

    import torch

    from ..errors import RadNetError
    from ..writing import write_atomically

    torch.set_num_threads(THREADS)
    while True:
        request = jobs.get()
        if request is None:
            return
        try:
            answer = run_job(request["job"], _Teller(out))
            write_atomically(Path(request["file"]), (json.dumps(answer, allow_nan=False) + "\n").encode())
            _say(out, done=True)
        except Exception as error:
            _say(out, error=str(error), kind=type(error).__name__, ours=isinstance(error, RadNetError))


class _Teller:
    """Passes on what share of a trial is done, but not too often."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.last = out, 0.0

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self.last >= _BETWEEN:
            self.last = now
            _say(self.out, share=share)


def _say(out: TextIO, **message: Any) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _read(source: TextIO, jobs: queue.Queue[dict[str, Any] | None]) -> None:
    """Take in jobs; when there is nobody left to give any, leave at once, in the middle of a trial if need be."""
    for line in source:
        request = json.loads(line)
        jobs.put(request)
        if request is None:
            return
    os._exit(1)


if __name__ == "__main__":
    main()
