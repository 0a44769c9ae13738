"""Folders of the Hub: with a card, read by ours, by the hub's own tools and by safetensors, offline, the same bits."""

import json
import os

import pytest
import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from safetensors.torch import load_file
from torch import nn

import radnet
from radnet.cli import main
from radnet.errors import InvalidType, InvalidValue, MissingFile
from radnet.hub import HubRadNet, from_pretrained, save_pretrained
from random_models import FAMILIES, random_model


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def compressed(generator, **options):
    return radnet.compress(radnet.RadNet((3, 64, 64, 2), "squash", generator=generator, **options))


@pytest.mark.parametrize("shift", [None, 0.25, "trainable"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_network_comes_back_by_every_way(shift, dtype, tmp_path, generator):
    c = compressed(generator, shift=shift, dtype=dtype)
    save_pretrained(c, tmp_path / "ours")
    HubRadNet.of(c).save_pretrained(tmp_path / "theirs")
    x = torch.randn(20, 3, generator=generator).to(dtype)
    for folder in (tmp_path / "ours", tmp_path / "theirs"):
        assert sorted(os.listdir(folder)) == ["README.md", "config.json", "model.safetensors"]
        for net in (
            from_pretrained(folder),
            HubRadNet.from_pretrained(folder),
            HubRadNet.from_pretrained(str(folder), map_location="cpu"),
            radnet.load(folder / "model.safetensors"),
        ):
            assert torch.equal(net(x), c.network(x))
            assert not net.training
        assert set(load_file(folder / "model.safetensors")) == set(c.network.state_dict())
        assert json.loads((folder / "config.json").read_text())["widths"] == [3, 4, 5, 2]
        card = ModelCard.load(folder / "README.md")
        assert card.data.library_name == "radnet"
        assert "| widths | (3, 64, 64, 2) | (3, 4, 5, 2) |" in card.content
        assert f"{c.certificate.max_gap64:.3g}" in card.content


def test_a_class_of_the_users_own_with_the_mixin_reads_it(tmp_path, generator):
    """What the hub's own loader does: config.json to arguments, model.safetensors into the module."""

    class Mine(radnet.RadNet, PyTorchModelHubMixin):
        def __init__(self, widths, activation="squash", bias=True):
            super().__init__(widths, activation, bias=bias)

    c = compressed(generator)
    save_pretrained(c, tmp_path)
    net = Mine.from_pretrained(tmp_path, strict=True)
    x = torch.randn(20, 3, generator=generator)
    assert torch.equal(net(x), c.network(x))


@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_random_models_come_back_with_the_same_bits(family, count, tmp_path, evidence):
    models = 0
    for seed in range(family, len(FAMILIES) * count(2, 40), len(FAMILIES)):
        model, rng = random_model(seed)
        x = model.inputs(8, rng)
        c = radnet.compress(model, x)
        folder = tmp_path / str(seed)
        save_pretrained(c, folder)
        fresh = from_pretrained(folder, random_model(seed)[0])
        assert torch.equal(fresh(x), c.network(x)), seed
        models += 1
    evidence("Hub folders of random models", models=models, same_bits=models)


def test_a_hub_network_is_a_network(generator, tmp_path):
    c = compressed(generator)
    net = HubRadNet.of(c)
    assert isinstance(net, radnet.RadNet)
    with torch.no_grad():
        net.weights[0].add_(1)
    assert not torch.equal(net.weights[0], c.network.weights[0])
    assert radnet.compress(HubRadNet.of(radnet.RadNet((2, 32, 1)))).network.widths == (2, 3, 1)
    again = HubRadNet.of(c)
    again.save_pretrained(tmp_path)
    read = HubRadNet.from_pretrained(tmp_path)
    assert (read.certificate["lossless"], read.widths_before) == (True, (3, 64, 64, 2))


def test_a_card_needs_a_certificate(tmp_path, generator):
    net = radnet.RadNet((2, 8, 1))
    with pytest.raises(InvalidValue, match="RadNet: a card says what was measured, and there is no certificate"):
        save_pretrained(net, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    save_pretrained(net, tmp_path / "bare", with_card=False)
    assert sorted(os.listdir(tmp_path / "bare")) == ["config.json", "model.safetensors"]
    measured = radnet.verify(net, net, torch.randn(30, 2, generator=generator))
    save_pretrained(net, tmp_path / "measured", certificate=measured)
    assert "The same function" in (tmp_path / "measured" / "README.md").read_text()
    save_pretrained(net, tmp_path / "measured", certificate=measured)  # replaced
    with pytest.raises(InvalidType, match="needs a module or a compression, got a int"):
        save_pretrained(3, tmp_path / "int")
    with pytest.raises(InvalidType, match="needs a RadNet or a compression of one"):
        HubRadNet.of(nn.Linear(2, 1))


def test_what_is_not_there_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingFile, match=r"empty: has no model.safetensors"):
        from_pretrained(tmp_path / "empty")
    with pytest.raises(MissingFile, match="no such folder, and no such repository could be reached"):
        from_pretrained("nobody/nothing-of-this-name", local_files_only=True)
    with pytest.raises(MissingFile, match="no such folder"):
        from_pretrained(tmp_path / "a" / "b" / "c")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="no folder can be made there"):
        save_pretrained(radnet.RadNet((2, 8, 1)), tmp_path / "file" / "sub", with_card=False)
    save_pretrained(radnet.compress(nn.Sequential(nn.Linear(2, 9), radnet.Squash(), nn.Linear(9, 1))), tmp_path / "own")
    with pytest.raises(InvalidValue, match="make one and give it to"):
        from_pretrained(tmp_path / "own")


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    radnet.save(radnet.RadNet((2, 32, 1)), "net.safetensors")
    assert main(["compress", "net.safetensors", "small.safetensors"]) == 0
    assert main(["export", "small.safetensors", "folder", "--hub"]) == 0
    assert "| widths | (2, 32, 1) | (2, 3, 1) |" in (tmp_path / "folder" / "README.md").read_text()
    assert main(["export", "small.safetensors", "folder", "--hub"]) == 2
    assert main(["export", "small.safetensors", "folder", "--hub", "--force"]) == 0
    assert main(["export", "net.safetensors", "other", "--hub"]) == 2
    assert main(["export", "small.safetensors", "net.safetensors", "--hub"]) == 2
    said = capsys.readouterr().err
    assert "is a folder with something in it" in said
    assert "it was not compressed; run radnet compress first" in said
    assert "is a file; give the name of a folder" in said


def test_a_forward_of_ones_own_is_not_lost(tmp_path):
    class Doubled(radnet.RadNet):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(InvalidValue, match="has hooks or a forward of its own"):
        HubRadNet.of(Doubled((2, 8, 1)))


def test_the_card_of_another_model_does_not_stay(tmp_path, generator):
    save_pretrained(compressed(generator), tmp_path)
    before = sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir())
    with pytest.raises(InvalidValue, match=r"README.md: is the card of another model"):
        save_pretrained(radnet.RadNet((7, 3, 1)), tmp_path, with_card=False)
    assert sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir()) == before


def test_sizes_before_and_certificates_are_kept_for_any_class(tmp_path):
    model = nn.Sequential(nn.Linear(2, 64), radnet.Squash(), nn.Linear(64, 1))
    c = radnet.compress(model)
    save_pretrained(c, tmp_path / "a")
    assert "| parameters | 257 | 13 |" in (tmp_path / "a" / "README.md").read_text()
    save_pretrained(c.network, tmp_path / "b", certificate=c.certificate)
    assert radnet.hub.compressed_as(tmp_path / "b" / "model.safetensors")[0]["lossless"] is True


def test_a_profile_of_ones_own_is_given_again(tmp_path):
    net = radnet.RadNet((2, 16, 1), radnet.Radial(torch.tanh, name="mine"))
    c = radnet.compress(net)
    save_pretrained(c, tmp_path)
    again = from_pretrained(tmp_path, activations={"mine": torch.tanh})
    assert torch.equal(again(torch.ones(3, 2)), c.network(torch.ones(3, 2)))


def test_nothing_is_written_unless_everything_can_be(tmp_path, generator):
    c = compressed(generator)
    (tmp_path / "config.json").mkdir()
    for folder, options, kind, said in (
        (tmp_path, {}, InvalidValue, "config.json: is a folder"),
        (None, {}, InvalidType, "a path was expected"),
        ("a\0b", {}, InvalidValue, "name of a file"),
        (tmp_path / "w", {"widths_before": 5}, InvalidValue, "expected the widths of the network before"),
        (tmp_path / "c", {"certificate": "abc"}, InvalidType, "expected what radnet.verify gives"),
    ):
        with pytest.raises(kind, match=said):
            save_pretrained(c, folder, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_what_is_no_folder_or_no_model_is_said(tmp_path, generator):
    save_pretrained(compressed(generator), tmp_path)
    for where, model in ((5, None), (tmp_path, "x"), (tmp_path, radnet.RadNet)):
        with pytest.raises(InvalidType, match="expected"):
            from_pretrained(where, model)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(InvalidValue, match="config.json is damaged"):
        HubRadNet.from_pretrained(tmp_path)
    with pytest.raises(MissingFile, match="no such folder"):
        HubRadNet.from_pretrained(str(tmp_path / "a" / "b" / "c"))
    with pytest.raises(InvalidType, match="expected a folder"):
        HubRadNet.from_pretrained(5)
