"""Damaged and hostile files for every reader: refused with a reason, or harmless; nothing raw, nothing half changed."""

import gzip
import io
import json
import math
import os
import random
import struct
import time
import zipfile
import zlib

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from damage import changed
from held import forget_peak, peak
from radnet import arrays, reading
from radnet.checkpoints import Progress, read_checkpoint, write_checkpoint
from radnet.cli.arguments import parse_domain
from radnet.experiments.recovery import images
from radnet.experiments.running import folder as folders
from radnet.reading import pack, unpack

KEYS = {
    "network": "radnet",
    "model": "radnet-model",
    "checkpoint": "radnet-checkpoint",
    "approximation": "radnet-approximation",
}


def flipped(data, rng):
    """Some bits changed, a part cut out, repeated, filled or swapped."""
    data = bytearray(data)
    kind = rng.randrange(6)
    i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    if kind == 0:
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[i:]
    elif kind == 2:
        del data[i:j]
    elif kind == 3:
        data[i:i] = data[i:j][:200]
    elif kind == 4:
        data[i : i + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)))
    else:
        data[i : i + rng.randrange(40)] = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
    return bytes(data)


def other_tensors(tensors, rng):
    """Tensors with one of them of another kind, shape or value, left out, or one more."""
    tensors = dict(tensors)
    name = rng.choice(sorted(tensors))
    x = tensors[name]
    kind = rng.randrange(7)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[rng.choice(("extra", name + ".x", "optimizer.9.step", "optimizer.x", "model.", "random.cpu"))] = (
            x.clone()
        )
    elif kind == 2:
        tensors[name] = x.to(rng.choice((torch.int64, torch.bool, torch.complex64, torch.float16, torch.uint8)))
    elif kind == 3:
        tensors[name] = torch.zeros(rng.choice(((), (0,), (9, 9), (1, 1, 1))), dtype=x.dtype)
    elif kind == 4 and x.is_floating_point() and x.numel():
        tensors[name] = torch.full_like(x, rng.choice((float("nan"), float("inf"), 1e30, -1e-40)))
    elif kind == 5:
        tensors[name] = x.reshape(-1)
    else:
        tensors[name] = x.to(torch.float8_e4m3fn) if x.is_floating_point() else x.to(torch.int8)
    return tensors


class Mixed(nn.Module):
    """A norm layer that is folded, a bias that comes, blocks, a shared layer, an argument that may be left out."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(3, 24), nn.RMSNorm(24), nn.Linear(24, 16, bias=False)
        self.rho, self.c = radnet.Squash(blocks=2, shift="trainable"), nn.Linear(16, 2)
        self.again = self.c
        self.register_buffer("mask", torch.ones(3))

    def forward(self, x, scale=None):
        y = self.c(self.rho(self.b(self.norm(self.a(x * self.mask)))))
        return y if scale is None else self.again(self.rho(self.b(self.norm(self.a(x))))) * scale


class Reader:
    """A good file, and what reads it."""

    def __init__(self, name, folder):
        self.name, self.folder, self.path = name, folder, folder / f"{name}.safetensors"
        make = getattr(self, f"make_{name}", None)
        make() if make else self.make_array()
        self.good = self.path.read_bytes()
        if name in KEYS:
            self.header, self.tensors = unpack(self.path, KEYS[name], 3, "")

    def make_network(self):
        radnet.save(radnet.RadNet((2, 3, 4, 1), ["squash", "shifted_relu"], shift="trainable"), self.path)

    def make_into(self):
        self.make_network()
        self.model = radnet.RadNet((2, 3, 4, 1), ["squash", "shifted_relu"], shift="trainable")

    def make_fresh(self):
        """A model that has not read a file."""
        if getattr(self, "stale", True):
            self.model, self.stale = Mixed().eval(), False

    def make_model(self):
        self.make_fresh()
        radnet.compress(self.model, (torch.randn(20, 3), torch.ones(20, 1))).save(self.path)

    def make_checkpoint(self):
        self.model = radnet.RadNet((2, 3, 1), "sigmoid")
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.generator = torch.Generator().manual_seed(0)
        x = torch.ones(4, 2)
        for _ in range(2):
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            self.optimizer.step()
        best = {name: x.clone() for name, x in self.model.state_dict().items()}
        options = {"generator": self.generator, "began": {"cpu": torch.zeros(5056, dtype=torch.uint8)}}
        write_checkpoint(
            self.path, self.model, self.optimizer, Progress([1.0, 0.5], [0.1, 0.1], [0.9, 0.8], best), **options
        )

    def make_approximation(self):
        radnet.approximate(torch.sin, radnet.Box(0, 1), 0.4, lipschitz=1).save(self.path)

    def make_array(self):
        if self.name == "points":
            self.path = self.folder / "points.npy"
            np.save(self.path, np.random.default_rng(0).random((6, 2)))
        elif self.name == "text":
            self.path = self.folder / "points.csv"
            self.path.write_text("0.5,1\n2,3e-3\n-4,5\n")
        elif self.name == "images":
            self.path = self.folder / "images.npz"
            np.savez_compressed(self.path, x=np.arange(600).reshape(6, 100) % 250, y=np.full(6, 3))
        else:
            self.path = self.folder / "run.json"
            self.path.write_text(json.dumps({"schema_version": 2, "environment": {"a": [1, 2]}, "jobs": [{"b": 1.5}]}))

    def mutant(self, rng):
        """Another file."""
        if self.name in KEYS and rng.random() < 0.6:
            key, header, tensors = KEYS[self.name], self.header, self.tensors
            if rng.random() < 0.5:
                header = changed(header, rng)
            else:
                tensors = other_tensors(tensors, rng)
            try:
                return pack(tensors, key, header)
            except Exception:  # what cannot be written
                return flipped(self.good, rng)
        if self.name == "run" and rng.random() < 0.5:
            return json.dumps(changed(json.loads(self.good), rng)).encode()
        return flipped(self.good, rng)

    def read(self):
        if self.name == "network":
            return radnet.load(self.path)
        if self.name == "into":
            return radnet.load_into(self.model, self.path)
        if self.name == "model":
            self.make_fresh()
            self.stale = True
            radnet.load_into(self.model, self.path)
            return None
        if self.name == "checkpoint":
            return read_checkpoint(self.path, self.model, self.optimizer, generator=self.generator)
        if self.name == "approximation":
            return radnet.approximation.load(self.path)
        if self.name in ("points", "text"):
            return parse_domain(None, None, str(self.path))
        if self.name == "images":
            return images.digits(3, self.path)
        return folders.read_json(self.path)

    def state(self):
        """What must be as it was after a refusal."""
        if self.name not in ("into", "model", "checkpoint"):
            return []
        tensors = [p.detach().clone() for p in self.model.parameters()]
        if self.name == "model":
            tensors += [b.clone() for b in self.model.buffers()]
        tensors.append(torch.tensor([len(m._forward_pre_hooks) for m in self.model.modules()]))
        if self.name == "checkpoint":
            tensors += [x.clone() for s in self.optimizer.state.values() for x in s.values()]
            tensors += [self.generator.get_state()]
        return tensors


NAMES = ("network", "into", "model", "checkpoint", "approximation", "points", "text", "images", "run")


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_are_refused_or_harmless(name, tmp_path, count, evidence):
    reader, rng = Reader(name, tmp_path), random.Random(0)
    reader.read()
    number, refused, slowest, raw, half = count(100, 10_000), 0, 0.0, [], []
    generator = torch.get_rng_state()
    forget_peak()
    held = peak()
    for i in range(number):
        reader.path.write_bytes(reader.mutant(rng))
        if name == "model":
            reader.make_fresh()
        before, start = reader.state(), time.perf_counter()
        try:
            reader.read()
        except radnet.RadNetError:
            refused += 1
            after = reader.state()
            if len(after) != len(before) or not all(torch.equal(a, b) for a, b in zip(before, after, strict=True)):
                half.append(i)
        except BaseException as error:
            raw.append((i, repr(error)[:200]))
        slowest = max(slowest, time.perf_counter() - start)
    torch.set_rng_state(generator)
    more = (peak() - held) / 2**20
    figures = {"files": number, "refused": refused, "raw": len(raw), "half": len(half)}
    evidence(f"mutated files: {name}", **figures, slowest=slowest, megabytes=more)
    assert (raw, half) == ([], [])
    assert more < 200
    assert refused > number / 3


def bombs():
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (400000000, 1), }"
    header += b" " * (-(11 + len(header)) % 64) + b"\n"
    npy = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", npy + bytes(3 * 10**8))
        z.writestr("y.npy", npy + bytes(3 * 10**8))
    yield "images", archive.getvalue()
    yield "points", npy
    yield "network", struct.pack("<Q", 2**40) + b"{}"
    yield "network", struct.pack("<Q", 90_000_000) + b"{" + b" " * 90_000_000
    yield "run", b"[" * 10**6
    yield "run", b'{"schema_version": ' + b"9" * 5000 + b"}"


def test_bombs_are_refused_at_once(tmp_path, evidence):
    seconds, megabytes = [], []
    for i, (name, data) in enumerate(bombs()):
        folder = tmp_path / str(i)
        folder.mkdir()
        reader = Reader(name, folder)
        reader.path.write_bytes(data)
        forget_peak()
        start, held = time.perf_counter(), peak()
        with pytest.raises(radnet.RadNetError, match="damaged"):
            reader.read()
        seconds.append(time.perf_counter() - start)
        megabytes.append((peak() - held) / 2**20)
    evidence("bombs", files=len(seconds), slowest=max(seconds), megabytes=max(megabytes))
    assert max(megabytes) < 50


@pytest.mark.parametrize("dtype", [">f8", "<f8", ">f4", ">i2", ">u4", "g", "?"])
def test_arrays_of_other_byte_orders_and_long_doubles_become_what_torch_has(dtype, tmp_path):
    x = np.array([[0, 1, 0], [1, 0, 1]], dtype=dtype)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    for found in (arrays.read_npy(tmp_path / "x.npy"), arrays.read_npz(tmp_path / "x.npz")["x"]):
        assert found.dtype.isnative
        assert torch.tensor(found).tolist() == x.tolist()
        assert found.dtype == np.float64 or found.dtype.itemsize == x.dtype.itemsize


def test_a_packed_file_is_not_inflated_beyond_what_it_announces(tmp_path):
    head = struct.pack(">4I", 0x803, 60_000, 28, 28)
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = stream.compress(head) + b"".join(stream.compress(bytes(10**6)) for _ in range(500)) + stream.flush()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(packed)
    with pytest.raises(radnet.RadNetError, match="announces"):
        arrays.read_idx(tmp_path / "train-images-idx3-ubyte.gz", 0x803)
    honest = struct.pack(">4I", 0x803, 3, 2, 2) + bytes(12)
    (tmp_path / "ok.gz").write_bytes(gzip.compress(honest))
    assert arrays.read_idx(tmp_path / "ok.gz", 0x803).shape == (3, 2, 2)
    (tmp_path / "long.gz").write_bytes(gzip.compress(honest + b"x"))
    with pytest.raises(radnet.RadNetError, match="more bytes than its header announces"):
        arrays.read_idx(tmp_path / "long.gz", 0x803)


def test_a_packed_file_that_would_grow_beyond_reason_is_not_inflated(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(struct.pack(">4I", 0x803, 500_000, 28, 28) + bytes(10**6)))
    with pytest.raises(radnet.RadNetError, match="it announces 392,000,000 bytes and has"):
        arrays.read_idx(tmp_path / "bomb.gz", 0x803)


def test_a_checkpoint_from_which_the_optimizer_cannot_go_on_is_refused(tmp_path):
    reader = Reader("checkpoint", tmp_path)
    without = {name: x for name, x in reader.tensors.items() if not name.endswith(".step")}
    reader.path.write_bytes(pack(without, KEYS["checkpoint"], reader.header))
    before = reader.state()
    with pytest.raises(radnet.RadNetError, match="the optimizer cannot go on from the state in the file"):
        reader.read()
    assert all(torch.equal(a, b) for a, b in zip(before, reader.state(), strict=True))


def with_a_hole(path, name, dtype, size):
    """A tensor more, or another one of that name, of so many bytes that take no room on the disk."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + n]), data[8 + n :]
    width = {"F64": 8, "F32": 4}[dtype]
    entry = {"dtype": dtype, "shape": [size // width], "data_offsets": [len(body), len(body) + size]}
    if name in header:  # what was there stays in the file under another name of the same kind
        first, last = header[name]["data_offsets"]
        entry = {"dtype": dtype, "shape": [(size + last - first) // width], "data_offsets": [first, last + size]}
        for other in header.values():
            if "data_offsets" in other and other["data_offsets"][0] >= last:
                other["data_offsets"] = [offset + size for offset in other["data_offsets"]]
    text = json.dumps({**header, name: entry}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
        file.truncate(8 + len(text) + len(body) + size)


HOLES = [
    ("network", "extra", "F32"),
    ("network", "layers.0.weight", "F32"),
    ("into", "layers.0.weight", "F32"),
    ("checkpoint", "extra", "F32"),
    ("checkpoint", "model.layers.0.weight", "F32"),
    ("checkpoint", "optimizer.0.exp_avg", "F32"),
    ("checkpoint", "optimizer.0.extra", "F32"),
    ("checkpoint", "history.losses", "F64"),
    ("checkpoint", "random.cuda:7", "F32"),
    ("approximation", "extra", "F64"),
    ("approximation", "cover.centres", "F64"),
    ("approximation", "outputs", "F64"),
    ("approximation", "network.extra", "F64"),
    ("approximation", "domain.x", "F64"),
]


@pytest.mark.parametrize(("name", "tensor", "dtype"), HOLES)
def test_no_tensor_is_read_that_does_not_fit_what_the_header_announces(name, tensor, dtype, tmp_path):
    reader = Reader(name, tmp_path)
    with_a_hole(reader.path, tensor, dtype, 2**31)
    forget_peak()
    start, held = time.perf_counter(), peak()
    with pytest.raises(radnet.RadNetError, match=reader.path.name):
        reader.read()
    assert time.perf_counter() - start < 2
    assert peak() - held < 2**25


def layers(count):
    return {
        "format": 2,
        "widths": [1] * (count + 1),
        "bias": False,
        "dtype": "float32",
        "activations": [{"name": "squash", "shift": "none"}] * count,
    }


def test_a_network_is_loaded_in_a_time_that_grows_with_its_layers_and_not_faster(tmp_path):
    path, seconds = tmp_path / "deep", {}
    for count in (500, 4000):
        state = {f"layers.{i}.weight": torch.ones(1, 1) for i in range(count)}
        path.write_bytes(pack(state, "radnet", layers(count)))
        seconds[count] = math.inf
        for _ in range(3):
            start = time.perf_counter()
            assert len(radnet.load(path).widths) == count + 1
            seconds[count] = min(seconds[count], time.perf_counter() - start)
    assert seconds[4000] < 20 * seconds[500]


def many_names(header, tensors):
    return layers(50_000), tensors


def many_widths(header, tensors):
    return {**header, "widths": [1] * 50_000 + [0]}, tensors


def a_long_text(header, tensors):
    return {**header, "dtype": "\n" * 10**6}, tensors


def a_long_list(header, tensors):
    return {**header, "bias": [1] * 10**5}, tensors


def a_long_name(header, tensors):
    return header, {**tensors, "\x1b[2K" * 10**4: torch.zeros(1)}


@pytest.mark.parametrize("forgery", [many_names, many_widths, a_long_text, a_long_list, a_long_name])
def test_a_refusal_is_not_as_long_as_what_it_refuses(forgery, tmp_path):
    reader = Reader("network", tmp_path)
    header, tensors = forgery(reader.header, reader.tensors)
    reader.path.write_bytes(pack(tensors, "radnet", header))
    start = time.perf_counter()
    for read in (reader.read, lambda: radnet.load_into(radnet.RadNet((2, 2)), reader.path)):
        with pytest.raises(radnet.RadNetError, match="\\w") as refusal:
            read()
        assert len(str(refusal.value)) < 1000
        assert str(refusal.value).isprintable()
    assert time.perf_counter() - start < 5


# --- bits that flip

SEALED = ("network", "checkpoint", "approximation")


def same_file(reader):
    """Whether what is read is what was written: header and tensors, bit by bit."""
    header, tensors = unpack(reader.path, KEYS[reader.name], 3, "")
    return (
        header == reader.header
        and tensors.keys() == reader.tensors.keys()
        and all(tensors[name].equal(x) and tensors[name].dtype == x.dtype for name, x in reader.tensors.items())
    )


def flip(data, bit):
    data = bytearray(data)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def refused_or_harmless(reader, bit):
    """Whether a file with that bit flipped is refused; it must not be read as another."""
    reader.path.write_bytes(flip(reader.good, bit))
    try:
        reader.read()
    except radnet.RadNetError:
        return True
    assert same_file(reader), bit
    return False


@pytest.mark.parametrize("name", SEALED)
def test_a_flipped_bit_is_refused_or_harmless(name, tmp_path, count, evidence):
    reader, rng = Reader(name, tmp_path), random.Random(1)
    bits = [rng.randrange(8 * len(reader.good)) for _ in range(count(60, 1000))]
    refused = sum(refused_or_harmless(reader, bit) for bit in bits)
    evidence(f"a flipped bit: {name}", files=len(bits), refused=refused, harmless=len(bits) - refused)
    assert refused > 0.9 * len(bits)


def test_every_bit_of_a_file_may_flip(tmp_path, count, evidence):
    reader = Reader("network", tmp_path)
    bits = range(0, 8 * len(reader.good), count(37, 1))
    refused = sum(refused_or_harmless(reader, bit) for bit in bits)
    evidence("every bit of a network's file", bits=len(bits), refused=refused, harmless=len(bits) - refused)
    assert refused > 0.9 * len(bits)


# --- memory that is not to be had


class Exhausted:
    """The k-th time that a reader asks for memory there is none."""

    def __init__(self, monkeypatch, k):
        self.left, self.reached = k, False
        for owner, name in (
            (torch.Tensor, "clone"), (torch.Tensor, "to"), (json, "loads"), (np, "frombuffer"), (np, "loadtxt"),
            (reading, "safe_open"), (zipfile, "ZipFile"), (torch, "zeros"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, function):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                self.reached = True
                raise MemoryError
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("name", NAMES)
def test_memory_that_is_not_to_be_had_is_said_and_nothing_changes(name, tmp_path, evidence):
    reader, tried = Reader(name, tmp_path), 0
    generator = torch.get_rng_state()
    for k in range(1, 200):
        if name == "model":
            reader.make_fresh()
        before = reader.state()
        with pytest.MonkeyPatch.context() as patch:
            exhausted = Exhausted(patch, k)
            try:
                reader.read()
                said = None
            except radnet.RadNetError as error:
                said = str(error)
        if not exhausted.reached:
            break
        tried += 1
        assert said is not None
        assert "not enough memory to read it" in said
        after = reader.state()
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), k
    torch.set_rng_state(generator)
    evidence(f"no memory: {name}", allocations=tried)
    assert tried > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_refused_and_nothing_hangs(name, tmp_path):
    reader = Reader(name, tmp_path)
    reader.path.unlink()
    os.mkfifo(reader.path)
    with pytest.raises(radnet.RadNetError, match="is no regular file"):
        reader.read()
    reader.path.unlink()
    reader.path.mkdir()
    with pytest.raises(radnet.RadNetError, match="is no regular file|there is neither train-images"):
        reader.read()
    reader.path.rmdir()
    reader.path.symlink_to("/dev/zero")
    with pytest.raises(radnet.RadNetError, match="is no regular file"):
        reader.read()
