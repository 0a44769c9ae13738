"""Damaged tables, indices and files of models for every reader that came later: refused with a reason, or harmless."""

import contextlib
import json
import random
import time

import numpy as np
import pytest
import torch

import radnet
from held import forget_peak, peak
from radnet import inspection, shards
from radnet.streaming import compress_file
from radnet.tables import read_table


def flipped(data, rng):
    """Some bytes changed, a part cut out, repeated, filled or swapped."""
    data = bytearray(data)
    kind = rng.randrange(5)
    i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    if kind == 0:
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 1:
        del data[i:j]
    elif kind == 2:
        data[i:j] = data[i:j] * rng.randrange(2, 4)
    elif kind == 3:
        data[i:j] = bytes([rng.choice((0, 34, 44, 48, 91, 123, 255))]) * min(j - i, 4096)
    else:
        data[:] = data[:i]
    return bytes(data)


class Files:
    """Good files, and what reads each."""

    def __init__(self, folder):
        self.folder = folder
        net = radnet.RadNet((2, 16, 16, 1), "squash", shift=0.5)
        radnet.save(net, folder / "net.safetensors")
        radnet.save(net, folder / "index.safetensors.index.json")
        index = json.loads((folder / "index.safetensors.index.json").read_text())
        self.shard = folder / min(index["weight_map"].values())
        radnet.save(radnet.models.BlockRadialMLP((3, 24, 2), block=8), folder / "ours.safetensors")
        rows = "".join(f"{k},{k / 7!r},w{k % 3}\n" for k in range(30))
        (folder / "t.csv").write_text(f"a,b,c\n{rows}")
        np.savez(folder / "t.npz", x=np.arange(12.0).reshape(6, 2), y=np.ones(6))
        pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": ["x", None]}), folder / "t.parquet")

    def table(self, path):
        table = read_table(path)
        for name in table.names:
            for look in (lambda name=name: table.numbers([name]), lambda name=name: table.labels(name)):
                with contextlib.suppress(radnet.RadNetError):
                    assert len(look()) == len(table)

    def reader(self, name):
        """The file that is damaged, and what is done with it."""
        index = self.folder / "index.safetensors.index.json"
        return {
            "csv": (self.folder / "t.csv", self.table),
            "npz": (self.folder / "t.npz", self.table),
            "parquet": (self.folder / "t.parquet", self.table),
            "inspect": (self.folder / "net.safetensors", inspection.contents_of),
            "inspect model": (self.folder / "ours.safetensors", inspection.contents_of),
            "load": (self.folder / "ours.safetensors", radnet.load),
            "index": (index, radnet.load),
            "piece": (self.shard, lambda _: radnet.load(index)),
            "stream": (self.folder / "net.safetensors", lambda path: compress_file(path, self.folder / "out")),
        }[name]


def refusal(read, path):
    """Why a file is refused; None if it is not."""
    try:
        read(path)
    except radnet.RadNetError as error:
        return str(error)
    return None


READERS = ["csv", "npz", "parquet", "inspect", "inspect model", "load", "index", "piece", "stream"]


@pytest.mark.parametrize("name", READERS)
def test_mutated_files_are_refused_or_harmless(name, tmp_path, count, evidence, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 800)
    torch.manual_seed(0)
    files = Files(tmp_path)
    path, read = files.reader(name)
    good = path.read_bytes()
    read(path)
    rng = random.Random(7)
    number, refused, slowest = count(60, 10_000), 0, 0.0
    forget_peak()
    held = peak()
    for _ in range(number):
        path.write_bytes(flipped(good, rng))
        start = time.perf_counter()
        said = refusal(read, path)
        refused += said is not None
        assert said is None or (len(said) < 2000 and said.isprintable())
        slowest = max(slowest, time.perf_counter() - start)
    path.write_bytes(good)
    read(path)
    more = (peak() - held) / 2**20
    evidence(f"mutated files, {name}", files=number, refused=refused, slowest_seconds=slowest, megabytes=more)
    assert more < 200
    assert refused > number / 4
