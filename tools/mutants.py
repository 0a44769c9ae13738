"""Run the mutation tests and say, for each file, how many mutants the tests kill; fail below 85 %."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path

REQUIRED = 0.85
KILLED = {"killed", "timeout", "segfault", "caught by type check"}


def main() -> int:
    """Run mutmut and print the table and the survivors."""
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RADNET_COUNTS": "few"}
    subprocess.run([mutmut, "run", "--max-children", "2"], env=environment, check=True)
    listed = subprocess.run([mutmut, "results", "--all", "true"], capture_output=True, text=True, check=True).stdout
    outcome = [line.strip().rsplit(": ", 1) for line in listed.splitlines() if ": " in line]
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, result in outcome:
        table[name.split(".x", 1)[0]][result] += 1
    lowest = 1.0
    for module, results in sorted(table.items()):
        share = sum(results[kind] for kind in KILLED) / results.total()
        lowest = min(lowest, share)
        print(f"{module:<28}{results.total():>5} mutants  {100 * share:5.1f} % killed  {dict(results)}")
    for name, result in outcome:
        if result not in KILLED:
            print(f"  {result}: {name}")
    return int(lowest < REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
