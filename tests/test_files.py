"""Files: what goes in comes out, what is damaged is refused with a reason, a crash loses nothing."""

import contextlib
import copy
import json
import os
import pickle
import random

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import prune

import radnet
from radnet import files, shards
from radnet.activations import NAMES
from strategies import ACTIVATIONS, Bump


class Named(radnet.RadialActivation):
    name = "cube"

    def profile(self, r):
        return r**3


def write(path, tensors, **changes):
    """A file whose header is that of a (2, 3, 1) network, with changes."""
    header = {
        "format": 1, "widths": [2, 3, 1], "bias": True, "dtype": "float32",
        "activations": [{"name": "squash", "shift": "none"}, {"name": "identity", "shift": "none"}],
    }  # fmt: skip
    header.update(changes)
    save_file(tensors, path, metadata={"radnet": json.dumps(header)})


def tensors(**changes):
    state = {name: value.clone() for name, value in radnet.RadNet((2, 3, 1), "squash").state_dict().items()}
    state.update(changes)
    return {name: value for name, value in state.items() if value is not None}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shift", [None, 0.25, "trainable"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_network_comes_back_to_the_last_bit(dtype, shift, bias, tmp_path, generator):
    hidden = [ACTIVATIONS[kind](shift=shift, dtype=dtype) for kind in ("step_relu", "squash", "sigmoid")]
    hidden.insert(1, radnet.ShiftedReLU(0.75))
    net = radnet.RadNet((2, 3, 4, 5, 3, 1), hidden, bias=bias, generator=generator, dtype=dtype)
    path = tmp_path / "net.safetensors"
    radnet.save(net, path)
    again = radnet.load(path)
    assert again.widths == net.widths
    assert again.has_bias == bias
    assert [repr(a) for a in again.activations] == [repr(a) for a in net.activations]
    assert list(again.state_dict()) == list(net.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))
    assert [p.requires_grad for p in again.parameters()] == [True] * len(list(net.parameters()))
    x = torch.randn(5, 2, generator=generator).to(dtype)
    assert torch.equal(again(x), net(x))


def random_network(seed):
    """Widths, an activation for every layer, shifts, biases, dtype: all drawn."""
    rng = random.Random(seed)
    dtype = rng.choice([torch.float16, torch.bfloat16, torch.float32, torch.float64])
    widths = [rng.randint(1, 20) for _ in range(rng.randint(2, 7))]

    def activation():
        name = rng.choice(sorted(NAMES))
        options = {"b": rng.uniform(-1, 2)} if name == "shifted_relu" else {}
        return NAMES[name](shift=rng.choice([None, rng.uniform(-1, 1), "trainable"]), dtype=dtype, **options)

    hidden = [activation() for _ in widths[2:]]
    generator = torch.Generator().manual_seed(seed)
    output = rng.choice([radnet.Identity(), activation()])
    net = radnet.RadNet(widths, hidden, output=output, bias=rng.random() < 0.7, generator=generator, dtype=dtype)
    for p in net.parameters():
        p.requires_grad_(rng.random() < 0.8)
        if p.ndim == 0:
            nn.init.constant_(p, rng.uniform(-1, 1))
    return net, rng


def test_random_networks_and_their_small_ones_come_back_to_the_last_bit(tmp_path, count, evidence, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 300)
    number, smaller = count(10, 100), 0
    for seed in range(number):
        net, rng = random_network(seed)
        with contextlib.suppress(radnet.RadNetError):  # all rows at a jump, say
            small = radnet.compress(net).network if rng.random() < 0.5 else net
            smaller += small.parameter_count < net.parameter_count
            net = small
        path = tmp_path / rng.choice(["net.safetensors", "net.safetensors.index.json"])
        radnet.save(net, path)
        again = radnet.load(path)
        assert (again.widths, again.has_bias, again.training) == (net.widths, net.has_bias, False), seed
        assert [repr(a) for a in again.activations] == [repr(a) for a in net.activations], seed
        flags = [{name: p.requires_grad for name, p in one.named_parameters()} for one in (again, net)]
        assert flags[0] == flags[1], seed
        fresh = copy.deepcopy(net).requires_grad_(True)
        with torch.no_grad():
            for p in fresh.parameters():
                p.zero_()
        radnet.load_into(fresh, path)
        assert all(torch.equal(x, net.state_dict()[name]) for name, x in fresh.state_dict().items()), seed
        before, after = net.state_dict(), again.state_dict()
        assert before.keys() == after.keys()
        assert all(x.dtype == after[name].dtype and torch.equal(x, after[name]) for name, x in before.items()), seed
        x = torch.randn(7, net.widths[0], generator=torch.Generator().manual_seed(seed)).to(net.weights[0].dtype)
        assert torch.equal(again(x), net(x)), seed
    evidence("round trips of RadNets", networks=number, compressed=smaller)


@pytest.mark.parametrize("frozen", [3, ["layers.7.weight"], [["layers.0.weight"]], "layers.0.weight"])
def test_a_header_that_says_nonsense_about_what_is_frozen_is_refused(frozen, tmp_path):
    write(tmp_path / "net.safetensors", tensors(), frozen=frozen)
    with pytest.raises(radnet.errors.InvalidValue, match="the header is damaged: what it says is frozen"):
        radnet.load(tmp_path / "net.safetensors")


def test_a_single_entry_of_any_stride_is_written(tmp_path):
    net = radnet.RadNet((1, 1), dtype=torch.bfloat16)
    net.layers[0].weight = nn.Parameter(torch.zeros(1, 14, dtype=torch.bfloat16).T[:1])
    assert net.weights[0].stride() == (1, 14)
    radnet.save(net, tmp_path / "net.safetensors")
    assert torch.equal(radnet.load(tmp_path / "net.safetensors").weights[0], net.weights[0])


def test_named_activations_come_back_when_they_are_given(tmp_path, generator):
    net = radnet.RadNet((2, 4, 4, 1), [radnet.Radial(torch.tanh, name="tanh", shift=0.5), Named()], generator=generator)
    path = tmp_path / "net.safetensors"
    radnet.save(net, path)
    again = radnet.load(path, activations={"tanh": torch.tanh, "cube": Named})
    x = torch.randn(5, 2, generator=generator)
    assert torch.equal(again(x), net(x))
    with pytest.raises(ValueError, match=r"layer 1: activation 'tanh' is not built in; pass load\(path, activations="):
        radnet.load(path)


def test_a_loaded_network_is_in_eval_mode_and_can_be_trained_on(tmp_path):
    net = radnet.RadNet((2, 5, 1), ["squash"], shift="trainable")
    assert net.training
    radnet.save(net, tmp_path / "net.safetensors")
    again = radnet.load(tmp_path / "net.safetensors")
    assert not any(module.training for module in again.modules())
    assert all(p.requires_grad for p in again.parameters())
    assert all(module.training for module in again.train().modules())


def test_a_compressed_network_survives_its_file(tmp_path, generator):
    net = radnet.RadNet((3, 64, 64, 2), "sigmoid", shift="trainable", generator=generator)
    small = radnet.compress(net).network
    radnet.save(small, tmp_path / "small.safetensors")
    x = torch.randn(50, 3, generator=generator)
    assert radnet.verify(net, radnet.load(tmp_path / "small.safetensors"), x).lossless
    radnet.save(net, tmp_path / "net.safetensors")
    assert radnet.verify(tmp_path / "net.safetensors", str(tmp_path / "small.safetensors"), x).lossless
    with pytest.raises(FileNotFoundError, match="none.safetensors"):
        radnet.verify(net, tmp_path / "none.safetensors", x)


@pytest.mark.parametrize(
    ("rho", "message"),
    [
        (radnet.Radial(torch.tanh), r"layer 1: Radial\(h=tanh\) cannot be saved without a name of its own"),
        (radnet.Radial(torch.tanh, name="squash"), "without a name of its own"),
        (Bump(), r"layer 1: Bump\(\) cannot be saved"),
        (radnet.Radial(torch.nn.PReLU(), name="prelu"), "has parameters of its own besides the shift"),
    ],
)
def test_activations_that_could_not_be_found_again_are_refused(rho, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        radnet.save(radnet.RadNet((1, 2, 1), rho), tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def set_on(name, function):
    net = radnet.RadNet((2, 3, 1), "squash")
    setattr(net.rescalings[0] if name == "profile" else net.layers[0], name, function)
    return net


def parametrized():
    net = radnet.RadNet((2, 3, 1))
    nn.utils.parametrizations.weight_norm(net.layers[0])
    return net


def pruned():
    net = radnet.RadNet((2, 3, 1))
    prune.l1_unstructured(net.layers[0], "weight", 2)
    return net


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: set_on("profile", lambda r: 5 * r), r"rescalings.0 has a profile of its own, set on it"),
        (lambda: set_on("forward", torch.relu), r"layers.0 has a forward of its own, set on it"),
        (parametrized, r"layers.0.parametrizations.* weights that are computed"),
        (pruned, r"layers.0.weight_mask, layers.0.weight_orig: weights that are computed"),
    ],
)
def test_what_no_file_gives_back_is_not_written_over_a_good_one(make, match, tmp_path):
    path = tmp_path / "net.safetensors"
    good = radnet.RadNet((2, 3, 1))
    radnet.save(good, path)
    with pytest.raises(radnet.errors.InvalidValue, match=match):
        radnet.save(make(), path)
    assert torch.equal(radnet.load(path).weights[0], good.weights[0])


@pytest.mark.parametrize(("path", "error"), [(None, TypeError), (5, TypeError), ("a\0b", ValueError), ("", ValueError)])
def test_what_is_no_path_is_refused(path, error):
    net = radnet.RadNet((2, 3, 1))
    for call in (lambda: radnet.save(net, path), lambda: radnet.load(path), lambda: radnet.load_into(net, path)):
        with pytest.raises(error, match="path was expected|no name of a file") as raised:
            call()
        assert isinstance(raised.value, radnet.RadNetError)


def test_a_network_that_is_not_finite_is_not_written(tmp_path):
    net = radnet.RadNet((1, 2, 1))
    with torch.no_grad():
        net.weights[1].fill_(float("nan"))
    with pytest.raises(ValueError, match=r"layers.1.weight holds NaN or infinite"):
        radnet.save(net, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


BAD = [
    ({"format": 3}, {}, "file format 3; this radnet reads formats 1 to 2"),
    ({"format": True}, {}, "file format True"),
    ({"format": 2}, {}, "the checksum is wrong"),
    ({"widths": [2, 3]}, {}, "2 widths, but 2 activations"),
    ({"widths": [2, 0, 1]}, {}, "entry 1 is 0"),
    ({"widths": [2, 4, 1]}, {}, r"layer 1: layers.0.weight has shape \(3, 2\); needs \(4, 2\)"),
    ({"widths": "2,3,1"}, {}, "the header is damaged: widths is"),
    ({"dtype": "float64"}, {}, "is stored as float32, the header says float64"),
    ({"dtype": "int8"}, {}, "unknown dtype 'int8'"),
    ({"bias": False}, {}, "the tensors in the file are not those the header announces"),
    ({"activations": [{"name": "relu", "shift": "none"}] * 2}, {}, "unknown activation 'relu'"),
    ({"activations": [{"shift": "none"}] * 2}, {}, "layer 1: the header does not say which activation"),
    ({"activations": [{"name": "squash", "shift": "odd"}] * 2}, {}, "unknown kind of shift 'odd'"),
    ({}, {"layers.1.bias": None}, r"\(layers.1.bias\)"),
    ({}, {"extra": torch.ones(1)}, r"\(extra\)"),
    ({}, {"layers.0.weight": torch.full((3, 2), float("inf"))}, "layers.0.weight holds NaN or infinite"),
    ({}, {"layers.1.weight": torch.ones(1, 4)}, r"layer 2: layers.1.weight has shape \(1, 4\); needs \(1, 3\)"),
]


@pytest.mark.parametrize(("header", "state", "message"), BAD, ids=[m for _, _, m in BAD])
def test_a_file_that_does_not_hold_what_it_says_is_refused(header, state, message, tmp_path):
    path = tmp_path / "net.safetensors"
    write(path, tensors(**state), **header)
    with pytest.raises(ValueError, match=message) as caught:
        radnet.load(path)
    assert isinstance(caught.value, radnet.RadNetError)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        radnet.load(tmp_path / "none.safetensors")
    with pytest.raises(radnet.RadNetError, match="there is no folder"):
        radnet.save(radnet.RadNet((1, 1)), tmp_path / "none" / "net.safetensors")
    with pytest.raises(TypeError, match="save needs a module, an approximation or a compression, got dict"):
        radnet.save({}, tmp_path / "net.safetensors")
    pickled = tmp_path / "net.pt"
    pickled.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    with pytest.raises(ValueError, match="not a safetensors file, or damaged"):
        radnet.load(pickled)
    foreign = tmp_path / "foreign.safetensors"
    save_file({"w": torch.ones(1)}, foreign)
    with pytest.raises(ValueError, match="but not one written by radnet"):
        radnet.load(foreign)
    save_file({"w": torch.ones(1)}, foreign, metadata={"radnet": "{not json"})
    with pytest.raises(ValueError, match="the header is damaged"):
        radnet.load(foreign)


def test_no_truncation_and_no_flipped_bit_gives_a_network_silently(tmp_path, count):
    path = tmp_path / "net.safetensors"
    net = radnet.RadNet((2, 3, 1), "squash", generator=torch.Generator().manual_seed(0))
    radnet.save(net, path)
    data = path.read_bytes()
    broken = tmp_path / "broken.safetensors"
    for length in range(0, len(data), max(1, len(data) // count(40, 400))):
        broken.write_bytes(data[:length])
        with pytest.raises(ValueError, match="damaged"):
            radnet.load(broken)

    bits = range(8 * len(data))
    step = max(1, len(bits) // count(600, len(bits)))
    for bit in bits[::step]:
        position = bit // 8
        broken.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit % 8]) + data[position + 1 :])
        try:
            got = radnet.load(broken)
        except radnet.RadNetError:
            continue
        assert all(torch.equal(p, q) for p, q in zip(net.parameters(), got.parameters(), strict=True)), bit


def test_files_without_a_checksum_still_load(tmp_path):
    state = tensors()
    write(tmp_path / "old.safetensors", state)
    assert all(
        torch.equal(state[name], value)
        for name, value in radnet.load(tmp_path / "old.safetensors").state_dict().items()
    )


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    old = radnet.RadNet((1, 2, 1))
    radnet.save(old, path)
    before = path.read_bytes()
    for broken in ("fsync", "replace"):

        def fail(*_):
            raise OSError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(os, broken, fail)
            with pytest.raises(OSError, match="no space left"):
                radnet.save(radnet.RadNet((1, 2, 1)), path)
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]
    radnet.save(radnet.RadNet((1, 2, 1)), path)
    assert path.read_bytes() != before


def test_load_into_copies_all_or_nothing(tmp_path):
    path = tmp_path / "net.safetensors"
    radnet.save(radnet.RadNet((2, 3, 1)), path)
    other = radnet.RadNet((2, 3, 1))
    radnet.load_into(other, path)
    assert torch.equal(other.weights[0], radnet.load(path).weights[0])
    for model, message in (
        (radnet.RadNet((2, 4, 1)), r"layers.0.weight has shape \(3, 2\); the model needs \(4, 2\)"),
        (radnet.RadNet((2, 3, 1), bias=False), "the model lacks layers.0.bias"),
        (radnet.RadNet((2, 3, 1), shift="trainable"), "the file lacks rescalings.0.shift"),
    ):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(ValueError, match=message):
            radnet.load_into(model, path)
        assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_files_have_the_permissions_of_any_other_new_file(tmp_path):
    files.write_atomically(tmp_path / "a", b"x")
    (tmp_path / "b").write_bytes(b"x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
