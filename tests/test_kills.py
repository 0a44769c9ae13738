"""kill -9 at random moments of save, in one file and in several, Approximation.save, fit and reproduce.

What is there afterwards is the old file or the new one; the next start goes on to the same bits and leaves nothing of
the killed one behind; files of others stay.
"""

import contextlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time

import pytest
import torch

import radnet
from places import HELPERS
from radnet import shards
from radnet.experiments import results
from radnet.experiments.plain import as_plain

RUN = HELPERS / "run_training.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
#: names that look like what a killed write leaves, and are not
FOREIGN = (
    ".file.notes.tmp",
    ".file.0123456789abcdef.tmp.bak",
    "file.0123456789abcdef.tmp",
    ".other.0123456789abcdef.tmp",
)


def networks():
    return [radnet.RadNet((40, 30, 20), generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]


def approximations():
    return [radnet.approximate(f, radnet.Box(0, 3), 0.02, lipschitz=1) for f in (torch.sin, torch.cos)]


def write(thing, path):
    radnet.save(thing, path) if isinstance(thing, radnet.RadNet) else thing.save(path)


def write_forever(things, path):
    torch.set_num_threads(1)  # the threads of the process this is a fork of are not here
    while True:
        for thing in things:
            write(thing, path)


def leftovers(folder):
    return [path.name for path in folder.rglob(".*.tmp") if path.name not in FOREIGN]


@pytest.mark.parametrize("make", [networks, approximations])
def test_a_killed_write_leaves_the_old_file_or_the_new_one(make, tmp_path, count, evidence):
    things, path, rng = make(), tmp_path / "file", random.Random(0)
    allowed = []
    for thing in things:
        write(thing, path)
        allowed.append(path.read_bytes())
    for name in FOREIGN:
        (tmp_path / name).write_text(name)
    context, left = multiprocessing.get_context("fork"), 0
    kills = count(10, 50)
    for _ in range(kills):
        process = context.Process(target=write_forever, args=(things, path))
        process.start()
        time.sleep(rng.uniform(0.005, 0.06))
        process.kill()
        process.join()
        assert path.read_bytes() in allowed
        left += len(leftovers(tmp_path))
        write(things[0], path)
        assert leftovers(tmp_path) == []
    assert all((tmp_path / name).read_text() == name for name in FOREIGN)
    evidence(f"kill -9 while {make.__name__} are written", kills=kills, leftovers_before_the_next_write=left)


def test_a_killed_write_of_several_files_leaves_the_old_index_or_the_new_one(tmp_path, count, evidence, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 1000)
    things, path, rng = networks(), tmp_path / "net.safetensors.index.json", random.Random(0)
    write(things[0], path)
    context, kills, seen = multiprocessing.get_context("fork"), count(5, 50), set()
    for _ in range(kills):
        process = context.Process(target=write_forever, args=(things, path))
        process.start()
        time.sleep(rng.uniform(0.01, 0.1))
        process.kill()
        process.join()
        net = radnet.load(path)  # every file that the index names is there, and its checksum is right
        seen.add(next(i for i, thing in enumerate(things) if torch.equal(thing.weights[0], net.weights[0])))
        for thing in things:  # of its own files each removes what the killed write left
            write(thing, path)
        assert leftovers(tmp_path) == []
        assert {p.name for p in tmp_path.glob("net-*")} == set(json.loads(path.read_text())["weight_map"].values())
    evidence("kill -9 while several files are written", kills=kills, networks_found=len(seen))


@pytest.mark.parametrize("options", [(), ("--dropout",)])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(options, tmp_path, count, evidence):
    """The same history, the same bits, never a broken checkpoint; with dropout and a loader that shuffles too."""

    if options and count(0, 1) == 0:
        pytest.skip("at full counts only")

    def command(name):
        return [sys.executable, str(RUN), str(tmp_path / name), str(tmp_path / f"{name}.json"), *options]

    subprocess.run(command("whole"), check=True, env=ENVIRONMENT, timeout=120)
    whole = (tmp_path / "whole.json").read_text()
    for name in FOREIGN:
        (tmp_path / name).write_text(name)
    rng, path, kills, finished = random.Random(0), tmp_path / "file", count(1, 50), 0
    for _ in range(kills):
        process = subprocess.Popen(command("file"), env=ENVIRONMENT)
        deadline = time.monotonic() + 60
        before = path.stat().st_mtime_ns if path.exists() else 0
        while process.poll() is None and time.monotonic() < deadline:
            if path.exists() and path.stat().st_mtime_ns != before:  # it is training: let it go on for a moment
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.08))
        process.kill()
        process.wait()
        if (tmp_path / "file.json").exists():  # it was done before it could be killed: begin again
            assert (tmp_path / "file.json").read_text() == whole
            (tmp_path / "file.json").unlink()
            path.unlink()
            finished += 1
    subprocess.run(command("file"), check=True, env=ENVIRONMENT, timeout=120)
    assert (tmp_path / "file.json").read_text() == whole
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()
    assert leftovers(tmp_path) == []
    assert all((tmp_path / name).read_text() == name for name in FOREIGN)
    evidence(f"kill -9 of fit {' '.join(options)}", kills=kills, runs_that_came_to_their_end=finished, same_bits=True)
    assert finished < kills


def test_a_killed_reproduction_ends_with_the_same_results(tmp_path, count, evidence):
    if count(0, 1) == 0:
        pytest.skip("at full counts only; test_reproduce kills one at quick counts")
    options = ["--experiment", "1", "--trials", "60", "--jobs", "2", "--quiet"]

    def reproduce(folder):
        return [sys.executable, "-m", "radnet", "reproduce", *options, "--out", str(folder)]

    def whole(folder):
        subprocess.run(reproduce(folder), env=ENVIRONMENT, check=True, capture_output=True, timeout=300)
        return json.dumps(results.without_times(as_plain(results.read(folder))))

    expected = whole(tmp_path / "whole")
    rng, kills, rounds = random.Random(0), 0, 10
    for i in range(rounds):
        folder = tmp_path / str(i)
        for _ in range(5):
            process = subprocess.Popen(reproduce(folder), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=rng.uniform(1.0, 5.0))
            process.kill()
            process.wait()
            kills += 1
        assert whole(folder) == expected
        assert leftovers(folder) == []
    evidence("kill -9 of reproduce", kills=kills, rounds=rounds, same_results=True)
