"""Memory and time of compressing a network of 2 GB from file to file: at most 1.3 times its largest layer in float64.

What is measured is the peak of anonymous memory, sampled; pages of the mapped file, which the system takes back when it
needs them, are not counted. The result is compared with the one in memory, to the bit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from memory import status
from timing import finish

import radnet
from radnet.streaming import compress_file

WIDTHS = (784, *[8192] * 9, 10)
BOUND = 1.3


class Peak(threading.Thread):
    """Samples anonymous memory until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.over = 0, threading.Event()

    def run(self) -> None:
        """Until it is over."""
        while not self.over.wait(0.002):
            self.most = max(self.most, status("RssAnon"))


def measured(wide: Path, small: Path) -> dict[str, float]:
    """Compress in this process, which has done nothing else: bytes of anonymous memory it took, seconds."""
    before, peak = status("RssAnon"), Peak()
    peak.start()
    start = time.perf_counter()
    c = compress_file(wide, small)
    seconds = time.perf_counter() - start
    peak.over.set()
    peak.join()
    return {"extra": peak.most - before, "seconds": seconds, "lossless": c.certificate.lossless}


def main() -> int:
    if not Path("/proc/self/status").exists():
        print("this measurement needs /proc (Linux)")
        return 0
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measured(*map(Path, sys.argv[2:]))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        wide, small = (Path(folder) / name for name in ("wide.safetensors", "small.safetensors"))
        net = radnet.RadNet(WIDTHS, "squash", generator=torch.Generator().manual_seed(0))
        radnet.save(net, wide)
        wanted = radnet.compress(net).network
        del net
        size = wide.stat().st_size
        alone = [sys.executable, __file__, "--measure", str(wide), str(small)]
        seen = json.loads(subprocess.run(alone, check=True, capture_output=True, text=True).stdout)
        found, lossless = radnet.load(small), seen["lossless"]
        assert isinstance(found, radnet.RadNet)
        same = all(torch.equal(a, b) for a, b in zip(found.parameters(), wanted.parameters(), strict=True))
    largest = 8192 * 8192 * 8
    ratio = seen["extra"] / largest
    print(f"compressing {size / 2**30:.2f} GiB of {WIDTHS} from file to file, in a process of its own")
    print(f"  extra anonymous memory    {seen['extra'] / 2**20:8.0f} MiB, the certificate included")
    print(f"  largest layer in float64  {largest / 2**20:8.0f} MiB")
    print(f"  ratio                     {ratio:8.2f}     (bound {BOUND})")
    print(f"  seconds                   {seen['seconds']:8.1f}")
    print(f"  the same as in memory     {same}, lossless {lossless}, {found.widths}")
    finish({"streaming": {"bytes": size, "ratio": ratio, "same": same, **seen}})
    return int(not (same and lossless and ratio <= BOUND))


if __name__ == "__main__":
    sys.exit(main())
