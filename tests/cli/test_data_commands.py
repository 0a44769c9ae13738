"""`radnet train`, `predict`, `inspect FILE` and `plot`: from a table to a network, and what it makes of other rows."""

import csv
import io
import json

import numpy as np
import pytest
import torch

import radnet
from radnet.cli import main
from radnet.reading import pack, unpack


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = x[:, 0] - 2 * x[:, 1] + 7
    rows = [f"{a!r},{b!r},{c!r},{'up' if c > 7 else 'down'}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y,way", *rows]) + "\n")
    return tmp_path


TRAIN = ["train", "data.csv", "--target", "y", "--inputs", "a,b", "--epochs", "150", "--quiet"]


def test_a_network_is_trained_shipped_small_and_predicts_by_the_names_of_columns(folder, capsys):
    assert main([*TRAIN, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["widths"] == [[2, 64, 64, 1], [2, 3, 4, 1]]
    assert (answer["rows"], answer["held_out"], answer["measure"]) == (96, 24, "rmse")
    assert answer["score"] < 0.3 * answer["baseline"]
    assert (answer["inputs"], answer["targets"], answer["classes"]) == (["a", "b"], ["y"], None)
    (folder / "new.csv").write_text("b,what,a\n1,no,2\n0.5,no,-1\n")
    assert main(["predict", "model.safetensors", "new.csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    net = radnet.load("model.safetensors")
    with torch.no_grad():
        wanted = net(torch.tensor([[2, 1], [-1, 0.5]]))[:, 0].tolist()
    assert rows == [["y"], [repr(wanted[0])], [repr(wanted[1])]]
    assert wanted == pytest.approx([7.0, 5.0], abs=1.0)
    (folder / "plain.csv").write_text("2,1\n-1,0.5\n")
    assert main(["predict", "model.safetensors", "plain.csv", "--out", "p.csv"]) == 0
    assert list(csv.reader((folder / "p.csv").read_text().splitlines())) == rows


def test_classes_are_predicted_by_their_labels(folder, capsys):
    arguments = ["train", "data.csv", "--target", "way", "--inputs", "a,b", "--classify", "--epochs", "150", "--quiet"]
    assert main([*arguments, "--keep-wide", "--hidden", "16"]) == 0
    assert "right on 24 rows held out" in capsys.readouterr().out
    assert main(["predict", "model.safetensors", "data.csv", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["columns"] == ["way"]
    labels = [row.split(",")[3] for row in (folder / "data.csv").read_text().split()[1:]]
    assert sum(a == [b] for a, b in zip(answer["predictions"], labels, strict=True)) > 100


def test_a_file_says_what_is_in_it(folder, capsys):
    def told(path, *more):
        assert main(["inspect", path, *more]) == 0
        return capsys.readouterr().out

    main([*TRAIN, "--json"])
    capsys.readouterr()
    shown = told("model.safetensors")
    for text in ("a network", "2, 3, 4, 1", "squash, squash, identity", "recorded: lossless", "a, b"):
        assert text in shown
    radnet.save(radnet.RadNet((2, 64, 1)), "wide.safetensors")
    wide = json.loads(told("wide.safetensors", "--json"))
    assert (wide["widths"], wide["reduced_widths"], wide["compressed"]) == ([2, 64, 1], [2, 3, 1], False)
    model = torch.nn.Sequential(torch.nn.Linear(3, 64), radnet.Squash(), torch.nn.Linear(64, 2))
    radnet.compress(model).save("small.safetensors")
    small = json.loads(told("small.safetensors", "--json"))
    assert (small["numbers_before"], small["numbers_after"], small["compressed"]) == (386, 26, True)
    assert small["read_by"] == "radnet.load_into(model, path)"
    radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1).save("a.safetensors")
    assert json.loads(told("a.safetensors", "--json"))["eps"] == 0.1
    net = radnet.RadNet((2, 4, 1))
    optimizer = torch.optim.Adam(net.parameters())
    radnet.training.fit(net, (torch.ones(3, 2), torch.ones(3, 1)), epochs=2, optimizer=optimizer, checkpoint="c")
    assert json.loads(told("c", "--json"))["epochs"] == 2
    (folder / "x.safetensors").write_bytes(pack({"w": torch.ones(3)}, "theirs", {}))
    assert "no header of ours" in told("x.safetensors")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "data.csv", "--target", "z"], 2, "there is no column 'z'"),
        (["train", "data.csv", "--target", "y"], 2, "row 2, column way"),
        (["train", "data.csv", "--target", "y,,"], 2, "names of columns"),
        (["train", "none.csv", "--target", "y"], 2, "there is no such file"),
        (["train", "data.csv", "--target", "y", "--inputs", "a", "--out", "data.csv"], 2, "use --force"),
        (["train", "data.csv", "--target", "y", "--inputs", "a", "--hidden", "x"], 2, "whole numbers"),
        (["train", "data.csv", "--target", "y", "--inputs", "a", "--activation", "relu"], 2, "unknown activation"),
        (["predict", "net.safetensors", "data.csv"], 2, "has 4 columns, the network reads 2"),
        (["predict", "none.safetensors", "data.csv"], 2, "there is no such file"),
        (["predict", "a.safetensors", "data.csv"], 2, "predict needs a network"),
        (["inspect", "none.safetensors"], 2, "there is no such file"),
        (["inspect", "data.csv"], 2, "not a safetensors file"),
        (["plot", "net.safetensors", "p.txt"], 2, "expected a name that ends in"),
        (["plot", "data.csv", "p.svg"], 2, "no history of a run"),
        (["plot", "net.safetensors", "data.csv.svg/p.svg"], 2, "there is no such folder"),
    ],
)
def test_bad_input_is_refused_with_a_reason_and_nothing_is_written(arguments, code, message, folder, capsys):
    radnet.save(radnet.RadNet((2, 4, 1)), "net.safetensors")
    radnet.approximate(torch.sin, radnet.Box(0, 3), 0.5, lipschitz=1).save("a.safetensors")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_forged_header_does_not_decide_what_is_read(folder, capsys):
    main([*TRAIN, "--json"])
    header, tensors = unpack("model.safetensors", "radnet", 2, "")
    for columns in ({"inputs": ["a"]}, {"inputs": ["a"], "targets": ["y"], "classes": None}, 3, {"inputs": [1, 2]}):
        (folder / "forged.safetensors").write_bytes(pack(tensors, "radnet", {**header, "columns": columns}))
        capsys.readouterr()
        assert main(["predict", "forged.safetensors", "data.csv"]) == 2
        assert "the header is damaged" in capsys.readouterr().err


def test_pictures_are_drawn_of_networks_approximations_and_histories(folder, capsys):
    radnet.save(radnet.RadNet((2, 4, 1)), "net.safetensors")
    radnet.save(radnet.RadNet((2, 400, 1)), "wide.safetensors")
    main(["approximate", "sin(x)", "--box=0:3", "--eps", "0.2", "--lipschitz", "1", "--out", "f.safetensors"])
    disc = radnet.approximate(lambda x: x.sum(1).sin(), radnet.Ball([0, 0], 1), 0.5, lipschitz=1.5)
    disc.save("disc.safetensors")
    net = radnet.RadNet((2, 4, 1))
    x, y = torch.ones(3, 2), torch.ones(3, 1)
    optimizer = torch.optim.Adam(net.parameters())
    radnet.training.fit(net, (x, y), epochs=4, optimizer=optimizer, validation=(x, y)).save_history("history.csv")
    for name in ("net.safetensors", "wide.safetensors", "f.safetensors", "disc.safetensors", "history.csv"):
        out = f"{name}.svg"
        assert main(["plot", name, out, "--quiet"]) == 0
        assert "<svg" in (folder / out).read_text()[:2000]
    assert main(["plot", "net.safetensors", "n.png"]) == 0
    assert (folder / "n.png").read_bytes().startswith(b"\x89PNG")


def test_the_shell_completes_commands(capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert main(["--show-completion", "bash"]) == 0
    assert "_radnet_completion" in capsys.readouterr().out
