"""Run the mutation tests and say, for each part, how many mutants the tests kill; fail below 85 %.

Parts are the files with the mathematics of the paper, and the package that compresses any model, as a whole.

    python tools/mutants.py             all of them: hours
    python tools/mutants.py --share 5   every fifth, the same ones every time
"""

from __future__ import annotations

import argparse
import collections
import os
import subprocess
import sys
from pathlib import Path

REQUIRED = 0.85
KILLED = {"killed", "timeout", "segfault", "caught by type check"}
PACKAGE = "radnet.compression"


def main() -> int:
    """Run mutmut and print the table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=int, default=1, metavar="N", help="run every N-th mutant")
    share = parser.parse_args().share
    chosen = [name for name, _ in _outcomes()][::share] if share > 1 else []
    _mutmut("run", "--max-children", "2", *chosen)
    outcome = [(name, result) for name, result in _outcomes() if result != "not checked"]
    files: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    parts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, result in outcome:
        module = name.split(".x", 1)[0]
        files[module][result] += 1
        parts[PACKAGE if module.startswith(PACKAGE) else module][result] += 1
    for module, results in sorted(files.items()):
        print(f"{module:<32}{results.total():>6} mutants {100 * _killed(results):6.1f} % killed  {dict(results)}")
    for name, result in outcome:
        if result not in KILLED:
            print(f"  {result}: {name}")
    for part, results in sorted(parts.items()):
        print(f"{part:<32}{results.total():>6} mutants {100 * _killed(results):6.1f} % killed")
    return int(min(map(_killed, parts.values())) < REQUIRED)


def _killed(results: collections.Counter[str]) -> float:
    return sum(results[kind] for kind in KILLED) / results.total()


def _outcomes() -> list[list[str]]:
    """Names of all mutants and what became of them; they are made first, if they are not there."""
    if not Path("mutants").is_dir():
        _mutmut("run", "--max-children", "2", "radnet.none*", check=False)
    listed = _mutmut("results", "--all", "true", capture_output=True).stdout
    return [line.strip().rsplit(": ", 1) for line in listed.splitlines() if ": " in line]


def _mutmut(*arguments: str, check: bool = True, capture_output: bool = False) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RADNET_COUNTS": "few"}
    return subprocess.run(command, env=environment, check=check, capture_output=capture_output, text=True)


if __name__ == "__main__":
    sys.exit(main())
