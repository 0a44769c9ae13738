"""One row through a compressed (30, 512, 512, 512, 1): its C header, and PyTorch without compiled kernels."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = 1000
EAGER = "without kernels"
if os.environ.get("RADNET_NATIVE") != "0" and __name__ == "__main__":  # asked for before radnet is imported
    without = {**os.environ, "RADNET_NATIVE": "0"}
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=without, check=False).returncode)

import torch  # noqa: E402
from timing import finish, interleave, show  # noqa: E402

import radnet  # noqa: E402
from radnet.export import export_c  # noqa: E402

LOOP = """
#include "network.h"
void loop(const float *x, float *y, int calls);
void loop(const float *x, float *y, int calls)
{
    volatile float seen = 0;
    int i;
    for (i = 0; i < calls; i++) {
        network(x, y);
        seen += y[0];
    }
}
"""


def main() -> None:
    wide = radnet.RadNet((30, 512, 512, 512, 1), "squash", generator=torch.Generator().manual_seed(0))
    net = radnet.compress(wide).network
    x = torch.randn(1, 30, generator=torch.Generator().manual_seed(1))
    y = torch.zeros(1, 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_c(net, folder / "network.h")
        (folder / "loop.c").write_text(LOOP)
        options = ["-O2", "-std=c99", "-fPIC", "-shared"]
        subprocess.run(["cc", *options, "loop.c", "-o", "loop.so", "-lm"], cwd=folder, check=True)
        loop = ctypes.CDLL(str(folder / "loop.so")).loop
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, y)]

        def eager() -> None:
            for _ in range(CALLS):
                net(x)

        with torch.no_grad():
            times = interleave({EAGER: eager, "C": lambda: loop(*pointers, CALLS)}, rounds=15, warmup=2)
            gap = float((net(x) - y).abs().max())
    show(f"{CALLS:,} calls with one row, float32", times, EAGER)
    faster = times[EAGER]["median_ms"] / times["C"]["median_ms"]
    print(f"  C: {faster:.0f} times faster than PyTorch without compiled kernels; the outputs differ by {gap:.1e}")
    finish({"calls": CALLS, "times": times, "times_faster": faster, "gap": gap})


if __name__ == "__main__":
    main()
