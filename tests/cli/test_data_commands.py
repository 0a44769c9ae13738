"""`radnet train`, `predict`, `inspect FILE` and `plot`: from a table to a network, and what it makes of other rows."""

import csv
import io
import json
import math
import re

import numpy as np
import pytest
import torch

import radnet
from radnet.cli import main
from radnet.cli.output import print_json
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


# --- tables as they are


def table(path, head, columns):
    rows = [",".join(map(repr, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]
    path.write_text("\n".join([*([head] if head else []), *rows]) + "\n")


def normal(seed, n=120):
    return np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize(
    "far",
    [
        lambda a: 20240101 + np.floor(14 + 4 * a),
        lambda a: 1.7e9 + 1000 * a,
        lambda a: 1e35 * a,
        lambda a: np.full_like(a, 123456789.123),
    ],
)
def test_columns_that_float32_does_not_tell_apart_make_a_network_of_float64(far, folder, capsys):
    a, b = normal(0), normal(1)
    table(folder / "far.csv", "t,b,y", [far(a), b, 1.7e9 + b])
    options = ["--epochs", "150", "--rate", "0.03", "--quiet", "--out", "far.safetensors", "--json"]
    assert main(["train", "far.csv", "--target", "y", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["score"] < 0.5 * answer["baseline"]
    assert radnet.load("far.safetensors").weights[0].dtype == torch.float64
    assert main(["predict", "far.safetensors", "far.csv"]) == 0
    said = np.array([float(row) for row in capsys.readouterr().out.split()[1:]])
    assert np.sqrt(np.mean((said - 1.7e9 - b) ** 2)) < 0.5


@pytest.mark.parametrize(
    ("head", "columns", "said"),
    [
        ("a,b,y", [1e300 * normal(0), normal(1), normal(2)], "column a: is .*e.300, beyond 1e.100; give .* another"),
        ("a,b,y", [normal(0), normal(1), 1e39 * 1e80 * normal(2)], "column y: is .*, beyond 1e.100"),
        ("a,b,y", [normal(0), normal(1), 1e-300 * normal(2)], "column y: the numbers, around .* differ by .* alone"),
        ("a,b,y", [2.0**60 + 1000 * normal(0), normal(1), normal(2)], "column a: the numbers, around 1.15e.18, differ"),
        ("", [normal(0), np.where(np.arange(120) < 1, np.nan, 1.0), normal(2)], "row 1, column 2: is nan"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_learned_are_told_before_training(head, columns, said, folder, capsys):
    table(folder / "odd.csv", head, columns)
    assert main(["train", "odd.csv", "--target", head[-1:] or "3", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert re.search(rf"^radnet: odd.csv: .*{said}", err), err
    assert not (folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--held-out", "0.999"], "held_out=0.999: of 120 rows that leaves none"),
        (["--rate", "nan"], "rate=nan: expected a number above 0"),
        (["--rate", "0"], "rate=0.0: expected a number above 0"),
        (["--seed", str(2**64)], "Invalid value for '--seed'"),
        (["--hidden", "100000000000"], "parameters; at most 268,435,456"),
        (["--hidden", "4,0"], "each must be at least 1"),
        (["--inputs", "a,a"], "a is named twice"),
        (["--target", "y,y"], "y is named twice"),
        (["--out", "."], "is a folder; give the name of a file"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_done(options, said, folder, capsys):
    before = sorted(folder.iterdir())
    assert main([*TRAIN, *options, "--force"]) == 2
    assert said in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_numbers_beyond_the_networks_own_are_told_with_row_and_column(folder, capsys):
    assert main([*TRAIN, "--rate", "0.01"]) == 0
    (folder / "new.csv").write_text("b,a\n1,2\n1,1e300\n")
    assert main(["predict", "model.safetensors", "new.csv"]) == 2
    assert "new.csv: row 3, column a: is beyond the range of torch.float32" in capsys.readouterr().err


def test_json_has_no_numbers_that_json_does_not_have(capsys):
    print_json({"a": [math.nan, 1.5], "b": {"c": -math.inf}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": {"c": None}}


@pytest.mark.parametrize("name", ["wide.safetensors", "wide.safetensors.index.json"])
def test_a_trained_network_keeps_its_columns_when_it_is_compressed_and_in_several_files(name, folder, capsys):
    options = ["--classify", "--keep-wide", "--rate", "0.01", "--out", name]
    assert main(["train", "data.csv", "--target", "way", "--inputs", "b,a", "--epochs", "30", "--quiet", *options]) == 0
    assert main(["compress", name, "small.safetensors"]) == 0
    capsys.readouterr()
    said = []
    for file in (name, "small.safetensors"):
        assert main(["predict", file, "data.csv"]) == 0
        said.append(capsys.readouterr().out.split())
    assert said[0] == said[1]
    assert set(said[0][1:]) <= {"up", "down"}
    assert main(["verify", name, "small.safetensors"]) == 0


def test_a_network_of_a_table_without_names_predicts_on_that_table(folder, capsys):
    table(folder / "bare.csv", "", [normal(0), normal(1), normal(2)])
    assert main(["train", "bare.csv", "--target", "1", "--epochs", "20", "--rate", "0.01", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["predict", "model.safetensors", "bare.csv"]) == 0
    whole = capsys.readouterr().out
    table(folder / "two.csv", "", [normal(1), normal(2)])
    assert main(["predict", "model.safetensors", "two.csv"]) == 0
    assert capsys.readouterr().out == whole
    table(folder / "one.csv", "", [normal(1)])
    assert main(["predict", "model.safetensors", "one.csv"]) == 2
    assert "has 1 columns, the network reads 2 (2, 3); give those alone" in capsys.readouterr().err


def test_tables_of_other_worlds_are_refused_with_a_hint(folder, capsys):
    text = (folder / "data.csv").read_text()
    (folder / "semi.csv").write_text(text.replace(",", ";"))
    assert main(["train", "semi.csv", "--target", "y"]) == 2
    assert "Are its cells separated by ';'? Separate them by commas" in capsys.readouterr().err
    (folder / "wide.csv").write_bytes(text.encode("utf-16"))
    assert main(["train", "wide.csv", "--target", "y"]) == 2
    assert "the text is not UTF-8" in capsys.readouterr().err
    np.savez(folder / "twice.npz", **{"x": np.zeros((9, 2)), "x.1": np.ones(9), "y": np.arange(9)})
    assert main(["train", "twice.npz", "--target", "y"]) == 2
    assert "two columns are called 'x.1'" in capsys.readouterr().err


def test_whole_numbers_are_inputs_of_a_network(folder, capsys):
    radnet.save(radnet.RadNet((2, 16, 1)), "net.safetensors")
    np.save("x.npy", np.arange(12).reshape(6, 2))
    assert main(["compress", "net.safetensors", "small.safetensors", "--inputs", "x.npy"]) == 0
    assert main(["verify", "net.safetensors", "small.safetensors", "--inputs", "x.npy"]) == 0
