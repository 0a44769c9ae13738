"""`radnet compress` and `radnet verify`: from file to file, nothing written that was not found to be the same."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from radnet.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a network, a module of the user's with a factory, and the tensors of a model that it makes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "their_models.py").write_text(
        "import radnet\nfrom torch import nn\n\n\n"
        "def make():\n    return nn.Sequential(nn.Linear(3, 64), nn.RMSNorm(64), nn.Linear(64, 64), radnet.Squash(), "
        "nn.Linear(64, 2))\n\n\ndef other():\n    return nn.Linear(3, 2)\n\n\ndef nothing():\n    return 3\n\n\n"
        "def fails():\n    raise OSError('no disk')\n"
    )
    monkeypatch.delitem(sys.modules, "their_models", raising=False)
    radnet.save(radnet.RadNet((2, 32, 1)), "net.safetensors")
    import their_models

    radnet.save(their_models.make(), "tensors.safetensors")
    np.save("x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    yield tmp_path
    monkeypatch.delitem(sys.modules, "their_models", raising=False)


def test_a_network_is_compressed_and_verified(folder, capsys):
    assert main(["compress", "net.safetensors", "small.safetensors"]) == 0
    assert "lossless, on 256 inputs" in capsys.readouterr().out
    assert radnet.load("small.safetensors").widths == (2, 3, 1)
    assert main(["verify", "net.safetensors", "small.safetensors"]) == 0


def test_a_model_of_ones_own_is_compressed_and_verified(folder, capsys):
    model = ["--model", "their_models:make"]
    assert main(["compress", "tensors.safetensors", "small.safetensors", *model, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["certificate"]["lossless"] is True
    assert answer["parameters"][1] < answer["parameters"][0]
    assert answer["bytes"][1] == 4 * answer["parameters"][1]
    assert main(["verify", "tensors.safetensors", "small.safetensors", *model, "--inputs", "x.npy"]) == 0
    import their_models

    small = their_models.make()
    radnet.load_into(small, "small.safetensors")
    assert small[0].out_features == 4


def test_what_is_compressed_already_says_so(folder, capsys):
    main(["compress", "net.safetensors", "small.safetensors"])
    assert main(["compress", "small.safetensors", "again.safetensors"]) == 2
    assert "compressed already" in capsys.readouterr().err
    assert not (folder / "again.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["net.safetensors", "x.npy"], "exists; use --force"),
        (["none.safetensors", "small.safetensors"], "there is no such file"),
        (["tensors.safetensors", "small.safetensors"], "give --model MODULE:FACTORY"),
        (["tensors.safetensors", "small.safetensors", "--model", "their_models:nothing"], "makes a int"),
        (["tensors.safetensors", "small.safetensors", "--model", "their_models:fails"], "OSError: no disk"),
        (["tensors.safetensors", "small.safetensors", "--model", "their_models:absent"], "cannot be imported"),
        (["tensors.safetensors", "small.safetensors", "--model", "their models"], "expected MODULE:FACTORY"),
        (["tensors.safetensors", "small.safetensors", "--model", "their_models:other"], "Sequential"),
        (["net.safetensors", "small.safetensors", "--inputs", "x.npy"], "2"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(arguments, said, folder, capsys):
    before = sorted(path.name for path in folder.iterdir() if path.is_file())
    assert main(["compress", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True), err
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == before


def test_a_model_that_is_not_the_same_is_found_out(folder):
    other = radnet.RadNet((2, 32, 1), generator=torch.Generator().manual_seed(5))
    radnet.save(other, "other.safetensors")
    assert main(["verify", "net.safetensors", "other.safetensors"]) == 3


def test_inputs_are_asked_for_where_a_model_does_not_tell(folder, capsys):
    model = ["--model", "their_models:make"]
    assert main(["verify", "tensors.safetensors", "tensors.safetensors", *model]) == 2
    assert "give --inputs" in capsys.readouterr().err


def test_tensors_of_a_state_dict_that_does_not_fit_are_named(folder, capsys):
    from safetensors.torch import save_file

    save_file(nn.Linear(3, 5).state_dict(), "plain.safetensors")
    assert main(["compress", "plain.safetensors", "small.safetensors", "--model", "their_models:other"]) == 2
    err = capsys.readouterr().err
    assert (
        "bias has shape (5,); the model needs (2,)" in err or "weight has shape (5, 3); the model needs (2, 3)" in err
    )
