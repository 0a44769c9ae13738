"""From file to file: the network that `compress` gives, to the bit, without the wide one in memory; files in pieces."""

import json
import weakref

import pytest
import torch

import radnet
from radnet import shards, streaming
from radnet.cli import main
from radnet.errors import InvalidValue, MissingFile
from radnet.streaming import compress_file


def networks():
    generator = torch.Generator().manual_seed(3)
    yield radnet.RadNet((2, 64, 64, 1), "squash", generator=generator)
    yield radnet.RadNet((3, 40, 90, 7, 2), ["sigmoid", "step_relu", "squash"], shift="trainable", generator=generator)
    yield radnet.RadNet((4, 30, 30, 2), "sigmoid", bias=False, generator=generator)
    yield radnet.RadNet((3, 600, 601, 1), "squash", generator=generator, dtype=torch.float64)
    yield radnet.RadNet((5, 2), generator=generator)
    yield radnet.RadNet((3, 50, 2), "squash", shift=0.25, generator=generator).to(torch.bfloat16)


@pytest.mark.parametrize("k", range(6))
@pytest.mark.parametrize("name", ["wide.safetensors", "wide.safetensors.index.json"])
def test_the_small_network_is_that_of_compress_to_the_bit(k, name, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 4000)
    net = list(networks())[k]
    for rho in net.activations:
        if isinstance(rho.shift, torch.nn.Parameter):
            rho.shift.data.fill_(0.3)
    radnet.save(net, tmp_path / name)
    c = compress_file(tmp_path / name, tmp_path / "small.safetensors")
    wanted, found = radnet.compress(net), radnet.load(tmp_path / "small.safetensors")
    assert found.widths == wanted.network.widths == c.network.widths
    for a, b in zip(found.state_dict().values(), wanted.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    ours, theirs = c.certificate, wanted.certificate
    assert (ours.lossless, ours.rows, ours.dtype) == (True, 256, theirs.dtype)
    assert ours.scale == pytest.approx(theirs.scale)
    few = 64 * torch.finfo(net.weights[0].dtype).eps * ours.scale
    assert abs(ours.max_gap - theirs.max_gap) < few > abs(ours.rounding - theirs.rounding)
    assert ours.max_gap64 < 1e-13 > theirs.max_gap64


def test_a_network_that_is_another_function_is_not_written(tmp_path, monkeypatch):
    radnet.save(radnet.RadNet((2, 64, 64, 1), "squash"), tmp_path / "wide.safetensors")
    right = streaming.reduced_layers

    def wrong(weights, biases):
        for i, (W, b, Q) in enumerate(right(weights, biases)):
            W[0, 0] += 1e-7 if i == 1 else 0.0
            yield W, b, Q

    monkeypatch.setattr(streaming, "reduced_layers", wrong)
    with pytest.raises(InvalidValue, match=r"not give the same outputs \(row .* differs by .*; nothing was written"):
        compress_file(tmp_path / "wide.safetensors", tmp_path / "small.safetensors")
    assert not (tmp_path / "small.safetensors").exists()


def test_old_bases_are_not_held(tmp_path, monkeypatch):
    radnet.save(radnet.RadNet((2, 64, 64, 64, 1), "squash"), tmp_path / "wide.safetensors")
    right, bases = streaming.reduced_layers, []

    def watched(weights, biases):
        for W, b, Q in right(weights, biases):
            assert all(basis() is None for basis in bases[:-1])  # the last one is with who asked
            bases.extend([] if Q is None else [weakref.ref(Q)])
            yield W, b, Q
            del Q

    monkeypatch.setattr(streaming, "reduced_layers", watched)
    compress_file(tmp_path / "wide.safetensors", tmp_path / "small.safetensors")
    assert len(bases) == 3


def test_rows_that_rounding_alone_moves_are_excused_and_no_others(tmp_path):
    """Deep and without biases: gaps beyond 64 eps, within ten times what one ulp does."""
    generator = torch.Generator().manual_seed(0)
    net = radnet.RadNet((2, *[40] * 30, 2), "sigmoid", bias=False, init="linear", generator=generator)
    radnet.save(net, tmp_path / "wide.safetensors")
    c = compress_file(tmp_path / "wide.safetensors", tmp_path / "small.safetensors")
    assert c.certificate.lossless
    assert c.certificate.rows_ill_conditioned > 0 < c.certificate.conditioning


def test_progress_is_told_layer_by_layer(tmp_path):
    radnet.save(radnet.RadNet((2, 8, 8, 1)), tmp_path / "wide.safetensors")
    told = []
    compress_file(tmp_path / "wide.safetensors", tmp_path / "s", tell=lambda what, share: told.append(what))
    assert told[0] == "checking the file"
    assert [f"layer {i} of 3" in told for i in (1, 2, 3)] == [True] * 3


# --- files in pieces


def test_an_index_names_files_that_others_can_read(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    monkeypatch.setattr(shards, "SHARD_BYTES", 600)
    net = radnet.RadNet((2, 16, 16, 1), "squash", shift=0.5)
    path = tmp_path / "net.safetensors.index.json"
    radnet.save(net, path)
    index = json.loads(path.read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 1
    parts = {name: x for file in files for name, x in load_file(tmp_path / file).items()}
    assert parts.keys() == net.state_dict().keys() == index["weight_map"].keys()
    assert index["metadata"]["total_size"] == sum(x.numel() * 4 for x in parts.values())
    again = radnet.load(path)
    x = torch.randn(5, 2)
    assert torch.equal(again(x), net(x))
    assert not again.training


def test_a_new_index_has_files_of_its_own_and_the_old_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 600)
    path = tmp_path / "net.safetensors.index.json"
    (tmp_path / "net-mine.safetensors").write_bytes(b"theirs")
    radnet.save(radnet.RadNet((2, 16, 16, 1)), path)
    old = set(json.loads(path.read_text())["weight_map"].values())
    new = radnet.RadNet((2, 16, 16, 1))
    radnet.save(new, path)
    files = set(json.loads(path.read_text())["weight_map"].values())
    assert not files & old
    assert {p.name for p in tmp_path.iterdir()} == {path.name, "net-mine.safetensors", *files}
    assert torch.equal(radnet.load(path).weights[0], new.weights[0])


def test_an_interrupted_write_of_several_files_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 100)
    path = tmp_path / "net.safetensors.index.json"
    old, new = (radnet.RadNet((3, 8, 2), generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    radnet.save(old, path)
    before, write = names(tmp_path), shards.write_atomically
    for k in range(len(before)):
        written = []

        def interrupted(place, data, k=k, written=written):
            if len(written) == k:
                raise KeyboardInterrupt
            written.append(place)
            write(place, data)

        monkeypatch.setattr(shards, "write_atomically", interrupted)
        with pytest.raises(KeyboardInterrupt, match="^$"):
            radnet.save(new, path)
        assert names(tmp_path) == before
        assert torch.equal(radnet.load(path).weights[0], old.weights[0])

    def written_and_then_refused(place, data):
        write(place, data)
        if shards.is_index(place):
            raise radnet.errors.NotWritten("written, but it may be gone if the machine stops now")

    monkeypatch.setattr(shards, "write_atomically", written_and_then_refused)
    with pytest.raises(radnet.errors.NotWritten, match="may be gone"):
        radnet.save(new, path)
    assert torch.equal(radnet.load(path).weights[0], new.weights[0])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def change(index, **parts):
    return {**index, **parts}


def elsewhere(index, name, place):
    return change(index, weight_map={**index["weight_map"], name: place})


def other_header(index, text):
    return change(index, metadata={"radnet": text})


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda i: {}, "no metadata, or no weight_map"),
        (lambda i: change(i, metadata={}), "not one written by radnet"),
        (
            lambda i: change(i, weight_map={**i["weight_map"], "layers.0.weight": "../x.safetensors"}),
            "in no file beside",
        ),
        (lambda i: change(i, weight_map={**i["weight_map"], "layers.0.weight": 3}), "in no file beside"),
        (lambda i: change(i, weight_map={**i["weight_map"], "more": min(i["weight_map"].values())}), "says otherwise"),
        (lambda i: change(i, weight_map=dict(list(i["weight_map"].items())[1:])), "says otherwise"),
        (
            lambda i: change(i, metadata={"radnet": i["metadata"]["radnet"].replace("squash", "sigmoid")}),
            "checksum is wrong",
        ),
        (lambda i: change(i, metadata={"radnet": "[" * 50}), "is damaged"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(damage, match, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 600)
    path = tmp_path / "net.safetensors.index.json"
    radnet.save(radnet.RadNet((2, 16, 16, 1), "squash"), path)
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    for read in (radnet.load, lambda p: compress_file(p, tmp_path / "out")):
        with pytest.raises(InvalidValue, match=match):
            read(path)


def test_a_piece_that_is_missing_or_another_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 600)
    path = tmp_path / "net.safetensors.index.json"
    radnet.save(radnet.RadNet((2, 16, 16, 1), "squash"), path)
    piece = tmp_path / sorted(set(json.loads(path.read_text())["weight_map"].values()))[0]
    data = bytearray(piece.read_bytes())
    data[-1] ^= 1
    piece.write_bytes(data)
    with pytest.raises(InvalidValue, match="checksum is wrong"):
        compress_file(path, tmp_path / "out")
    piece.unlink()
    with pytest.raises(MissingFile, match="there is no such file"):
        radnet.load(path)


# --- from the shell


def test_large_files_and_indices_go_from_file_to_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = radnet.RadNet((2, 64, 64, 1), "squash")
    radnet.save(net, "wide.safetensors.index.json")
    assert main(["compress", "wide.safetensors.index.json", "small.safetensors"]) == 0
    out, err = capsys.readouterr()
    assert "(2, 64, 64, 1) -> (2, 3, 4, 1)" in out
    assert "lossless, on 256 inputs" in out
    assert "layer" not in err  # a line when something is done, elsewhere than on a terminal
    monkeypatch.setattr("radnet.cli.compress._LARGE", 100)
    radnet.save(net, "wide.safetensors")
    assert main(["compress", "wide.safetensors", "again.safetensors", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == [4417, 30]
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "small.safetensors").read_bytes()
    assert main(["compress", "again.safetensors", "third.safetensors"]) == 2
    assert "compressed already" in capsys.readouterr().err
    assert main(["inspect", "wide.safetensors.index.json"]) == 0
    assert "a network in several files" in capsys.readouterr().out


def test_what_cannot_be_streamed_is_refused(tmp_path):
    radnet.save(radnet.RadNet((2, 8, 1)).half(), tmp_path / "half.safetensors")
    with pytest.raises(InvalidValue, match="float16 is not compressed from file to file"):
        compress_file(tmp_path / "half.safetensors", tmp_path / "out")
    radnet.save(radnet.RadNet((2, 8, 1)), tmp_path / "net.safetensors")
    with pytest.raises(InvalidValue, match=r"inputs of shape \(3, 3\); needs \(rows, 2\)"):
        compress_file(tmp_path / "net.safetensors", tmp_path / "out", inputs=torch.ones(3, 3))
    radnet.save(radnet.RadNet((2, 8, 1), radnet.Radial(torch.tanh, name="mine")), tmp_path / "own.safetensors")
    with pytest.raises(InvalidValue, match="activation 'mine' is not built in"):
        compress_file(tmp_path / "own.safetensors", tmp_path / "out")
    assert not (tmp_path / "out").exists()
