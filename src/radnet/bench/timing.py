"""Time things in turns, so that noise on a shared machine hits all of them alike: medians and quartiles."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from .. import __version__
from ..native.library import LIBRARY

Run = Callable[[], object]
Tell = Callable[[float], None]  # how much is done


class Times(NamedTuple):
    """Milliseconds of one run: median, lower and upper quartile."""

    median_ms: float
    q1_ms: float
    q3_ms: float


def interleave(
    runs: Mapping[str, Run], rounds: int, warmup: int = 2, *, repeats: int = 1, tell: Tell | None = None
) -> dict[str, Times]:
    """Times of each run over the rounds; in each round it runs ``repeats`` times in a row.

    Threads that were asleep take a while to wake up: what runs for long in practice should be repeated here.

    >>> list(interleave({"a": int, "b": float}, rounds=3))
    ['a', 'b']
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(warmup + rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            if i >= warmup:
                seconds[name].append((time.perf_counter() - start) / repeats)
        if tell is not None:
            tell((i + 1) / (warmup + rounds))
    return {name: _summary(values) for name, values in seconds.items()}


def _summary(seconds: list[float]) -> Times:
    if len(seconds) == 1:
        return Times(*3 * [1e3 * seconds[0]])
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Times(1e3 * middle, 1e3 * low, 1e3 * high)


def machine() -> dict[str, object]:
    """What the figures were measured on.

    >>> machine()["radnet"] == __version__
    True
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "radnet": __version__,
        "commit": _commit(),
        "kernels": LIBRARY is not None,
    }


def _commit() -> str | None:
    """The commit of the source, if this is a checkout of it."""
    git, here = shutil.which("git"), Path(__file__).parent
    if git is None:
        return None
    command = [git, "-C", str(here), "log", "-1", "--format=%h", "--", str(here.parent)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip() or None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
