"""Extra peak memory of compressing (784, 8192, 8192, 10): below twice the largest layer in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from timing import finish

import radnet

WIDTHS = (784, 8192, 8192, 10)
BOUND = 2.0


def status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def main() -> int:
    if not Path("/proc/self/clear_refs").exists():
        print("this measurement needs /proc (Linux)")
        return 0
    net = radnet.RadNet(WIDTHS, "shifted_relu", init="linear", generator=torch.Generator().manual_seed(0))
    radnet.compress(radnet.RadNet((2, 8, 1)))  # libraries and thread pools are not what is measured
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = status("VmRSS")
    compression = radnet.compress(net)
    extra = status("VmHWM") - before
    largest = max(W.numel() for W in net.weights) * 8
    ratio = extra / largest
    print(f"compressing {WIDTHS} to {compression.network.widths}")
    print(f"  extra peak memory         {extra / 2**20:8.0f} MiB, the certificate included")
    print(f"  largest layer in float64  {largest / 2**20:8.0f} MiB")
    print(f"  ratio                     {ratio:8.2f}     (bound {BOUND})")
    print(compression.certificate)
    finish({"memory": {"extra_bytes": extra, "largest_layer_bytes": largest, "ratio": ratio, "bound": BOUND}})
    return int(ratio >= BOUND)


if __name__ == "__main__":
    sys.exit(main())
