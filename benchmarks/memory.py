"""Extra peak memory of compressing, certificate included: below twice the largest layer in float64.

For the network (784, 8192, 8192, 10), which becomes small, and for a layer on the 150,528 numbers of a picture, which
does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from timing import finish
from torch import Tensor, nn

import radnet

WIDTHS = (784, 8192, 8192, 10)
BOUND = 2.0


def status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def extra_memory(model: nn.Module, x: Tensor | None) -> tuple[int, Any]:
    """How far the peak rises while a model is compressed, in bytes; and what came out."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = status("VmRSS")
    compression = radnet.compress(model, x)
    return status("VmHWM") - before, compression


def cases() -> Iterator[tuple[str, nn.Module, Tensor | None]]:
    """A name, a model and what it is compressed with; one model at a time is in memory."""
    generator = torch.Generator().manual_seed(0)
    yield str(WIDTHS), radnet.RadNet(WIDTHS, "shifted_relu", init="linear", generator=generator), None
    layers = nn.Flatten(), nn.Linear(3 * 224 * 224, 512), radnet.Squash(), nn.Linear(512, 10)
    yield "flatten, 150,528 to 512", nn.Sequential(*layers).eval(), torch.randn(2, 3, 224, 224, generator=generator)


def main() -> int:
    if not Path("/proc/self/clear_refs").exists():
        print("this measurement needs /proc (Linux)")
        return 0
    radnet.compress(nn.Sequential(nn.Linear(3, 8), radnet.Squash()))  # libraries and thread pools are not measured
    found = {}
    for name, model, x in cases():
        extra, compression = extra_memory(model, x)
        largest = max(W.numel() for W in model.parameters()) * 8
        print(f"compressing {name}")
        print(f"  extra peak memory         {extra / 2**20:8.0f} MiB, the certificate included")
        print(f"  largest layer in float64  {largest / 2**20:8.0f} MiB")
        print(f"  ratio                     {extra / largest:8.2f}     (bound {BOUND})")
        print(compression.certificate)
        found[name] = {"extra_bytes": extra, "largest_layer_bytes": largest, "ratio": extra / largest, "bound": BOUND}
    finish({"memory": found})
    return int(any(case["ratio"] >= BOUND for case in found.values()))


if __name__ == "__main__":
    sys.exit(main())
