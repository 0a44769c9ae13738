"""Time things in turns, so that noise on a shared machine hits all of them alike; medians and quartiles, as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from radnet.bench import timing


def interleave(
    functions: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 2
) -> dict[str, dict[str, float]]:
    """Milliseconds of each function over the rounds: median, lower and upper quartile."""
    return {name: times._asdict() for name, times in timing.interleave(functions, rounds, warmup).items()}


def show(title: str, times: Mapping[str, Mapping[str, float]], against: str) -> None:
    """One line each, with the ratio to the one named."""
    print(title)
    base = times[against]["median_ms"]
    for name, t in times.items():
        spread = f"[{t['q1_ms']:.3f}, {t['q3_ms']:.3f}]"
        print(f"  {name:<28}{t['median_ms']:>10.3f} ms  {spread:<22} {t['median_ms'] / base:6.2f} x {against}")


def finish(data: dict[str, Any]) -> None:
    """Write the figures where --json says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    path = parser.parse_args().json
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        environment = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        path.write_text(json.dumps({"environment": environment, **data}, indent=2) + "\n")
