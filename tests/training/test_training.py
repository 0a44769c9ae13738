"""The training loop: targets, histories, checkpoints that survive a kill, several processes, bad input."""

import copy
import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import radnet
from places import HELPERS
from radnet.checkpoints import Progress, read_checkpoint, write_checkpoint
from radnet.reading import pack, unpack
from radnet.training import fit

RUN = HELPERS / "run_training.py"


def problem(seed=0, shift="trainable", dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    net = radnet.RadNet((1, 6, 7, 1), "sigmoid", shift=shift, init="linear", generator=generator, dtype=dtype)
    x = (-3 + torch.arange(121, dtype=torch.float64) / 20).unsqueeze(1).to(dtype)
    return net, (x, torch.exp(-x * x))


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.01)


def test_a_full_batch_run_is_the_plain_loop():
    net, (x, y) = problem()
    by_hand = copy.deepcopy(net)
    result = fit(net, (x, y), epochs=20, optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = radnet.training.mse(by_hand, x, y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert same(net, by_hand)
    assert list(result.losses) == losses
    assert (result.reason, result.epochs, result.loss, result.reached) == ("epochs", 20, losses[-1], False)
    assert set(result.rates) == {0.1}


def test_it_stops_at_the_target_and_says_when_it_was_not_reached():
    net, data = problem()
    result = fit(net, data, epochs=2000, optimizer=torch.optim.Adam(net.parameters(), lr=0.05), target=0.02)
    assert result.reached
    assert result.loss <= 0.02
    assert all(loss > 0.02 for loss in result.losses[:-1])
    net, data = problem()
    result = fit(net, data, epochs=3, optimizer=adam(net), target=1e-9)
    assert (result.reason, result.reached) == ("epochs", False)


def test_it_stops_when_the_time_is_up():
    net, data = problem()
    result = fit(net, data, epochs=10**6, optimizer=adam(net), max_seconds=0.2)
    assert result.reason == "time"
    assert 0.2 <= result.seconds < 20


def test_loaders_losses_and_schedulers_are_whatever_torch_has():
    net, (x, y) = problem()
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(1))
    optimizer = adam(net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    result = fit(net, loader, epochs=12, optimizer=optimizer, loss=torch.nn.L1Loss(), scheduler=scheduler)
    assert result.losses[-1] < result.losses[0]
    assert result.rates == pytest.approx([0.01] * 5 + [0.005] * 5 + [0.0025] * 2)


def test_a_projected_optimizer_trains_the_narrow_network_in_disguise():
    net, data = problem()
    c = radnet.compress(net)
    T, V = c.transformed(), c.network
    big = fit(T, data, epochs=100, optimizer=radnet.ProjectedOptimizer(adam(T), T))
    small = fit(V, data, epochs=100, optimizer=adam(V))
    assert big.losses == pytest.approx(small.losses, rel=1e-10)


def test_the_history_is_a_table(tmp_path):
    net, data = problem()
    result = fit(net, data, epochs=3, optimizer=adam(net))
    result.save_history(tmp_path / "h.csv")
    with open(tmp_path / "h.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3]
    assert [float(row["loss"]) for row in rows] == list(result.losses)
    result.save_history(tmp_path / "h.json")
    data = json.loads((tmp_path / "h.json").read_text())
    assert data["reason"] == "epochs"
    assert [row["loss"] for row in data["history"]] == list(result.losses)
    with pytest.raises(ValueError, match="written as .csv or .json"):
        result.save_history(tmp_path / "h.txt")


@pytest.mark.parametrize("make", [adam, lambda n: torch.optim.SGD(n.parameters(), lr=0.01, momentum=0.9)])
@pytest.mark.parametrize("loader", [False, True])
def test_a_resumed_run_ends_with_the_same_bits(make, loader, tmp_path):
    def start():
        net, (x, y) = problem()
        optimizer = make(net)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        generator = torch.Generator().manual_seed(4)
        data = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True, generator=generator) if loader else (x, y)
        return net, data, {"optimizer": optimizer, "scheduler": scheduler}

    net, data, keywords = start()
    whole = fit(net, data, epochs=30, **keywords)
    path = tmp_path / "run.safetensors"
    for epochs in (7, 20, 30):
        again, data, keywords = start()
        result = fit(again, data, epochs=epochs, checkpoint=path, every=3, **keywords)
    assert same(net, again)
    assert result.losses == whole.losses
    assert result.rates == whole.rates
    finished, data, keywords = start()
    assert fit(finished, data, epochs=30, checkpoint=path, **keywords).losses == whole.losses
    assert same(finished, net)


@pytest.mark.xdist_group("compile")
def test_two_processes_end_with_the_weights_of_one(tmp_path, evidence):
    """torchrun on loopback, odd number of rows, so the shares are not equal."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    arguments = [str(RUN), str(tmp_path / "two.safetensors"), str(tmp_path / "two.json"), "40"]
    result = subprocess.run(
        [*launch, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert result.returncode == 0, result.stderr[-2000:]
    net, data = problem()
    alone = fit(net, data, epochs=40, optimizer=adam(net))
    other, _ = problem()
    progress = read_checkpoint(tmp_path / "two.safetensors", other, adam(other))
    gap = max(float((p - q).detach().abs().max()) for p, q in zip(net.parameters(), other.parameters(), strict=True))
    evidence("two processes under torchrun", gap=gap)
    assert gap < 1e-12
    assert progress.losses == pytest.approx(alone.losses, rel=1e-12)


def test_progress_is_shown_on_a_terminal_only(capsys, monkeypatch):
    net, data = problem()
    fit(net, data, epochs=2, optimizer=adam(net))
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    fit(net, data, epochs=2, optimizer=adam(net))
    out, err = capsys.readouterr()
    assert out == ""
    assert "loss" in err


def test_a_run_that_diverges_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    net, data = problem()
    path = tmp_path / "run.safetensors"
    fit(net, data, epochs=2, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), checkpoint=path)
    good = path.read_bytes()
    wild = radnet.RadNet((1, 6, 7, 1), "identity", init="linear", dtype=torch.float64)
    with pytest.raises(radnet.RadNetError, match=r"epoch \d+: the loss is (inf|nan); .*(layer|layers\.)"):
        fit(wild, data, epochs=2000, optimizer=torch.optim.SGD(wild.parameters(), lr=1e6))
    net, data = problem()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def broken(prediction, target):
        return (prediction - target).square().mean() * float("nan")

    with pytest.raises(ArithmeticError, match=r"epoch 3: the loss is nan; layer \d has norms up to"):
        fit(net, data, epochs=5, optimizer=optimizer, loss=broken, checkpoint=path, every=1)
    assert path.read_bytes() == good


def test_checkpoints_that_do_not_fit_are_refused_and_change_nothing(tmp_path):
    net, data = problem()
    path = tmp_path / "run.safetensors"
    fit(net, data, epochs=2, optimizer=adam(net), checkpoint=path)
    wider = radnet.RadNet((1, 8, 7, 1), "sigmoid", shift="trainable", dtype=torch.float64)
    state = copy.deepcopy(wider.state_dict())
    cases = [
        (wider, lambda n: {"optimizer": adam(n)}, r"of other widths: layers.0.weight has shape \(6, 1\)"),
        (problem(shift=None)[0], lambda n: {"optimizer": adam(n)}, "of another model .*rescalings.0.shift"),
        (
            problem()[0],
            lambda n: {"optimizer": torch.optim.Adam([{"params": [p]} for p in n.parameters()])},
            "other parameter groups",
        ),
    ]
    for model, make, message in cases:
        with pytest.raises(ValueError, match=message):
            fit(model, data, epochs=3, checkpoint=path, **make(model))
    assert all(torch.equal(state[k], v) for k, v in wider.state_dict().items())
    other, _ = problem()
    optimizer = adam(other)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    with pytest.raises(ValueError, match="started with another generator or scheduler"):
        fit(other, data, epochs=3, optimizer=optimizer, scheduler=scheduler, checkpoint=path)
    radnet.save(net, path)
    with pytest.raises(ValueError, match="not a radnet checkpoint"):
        fit(other, data, epochs=3, optimizer=adam(other), checkpoint=path)


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    net, _ = problem()
    monkeypatch.setattr("radnet.training.checkpoints.FORMAT", 7)
    write_checkpoint(tmp_path / "c", net, adam(net), Progress([1.0], [0.1]))
    monkeypatch.setattr("radnet.training.checkpoints.FORMAT", 2)
    with pytest.raises(ValueError, match="file format 7; this radnet reads formats 1 to 2"):
        read_checkpoint(tmp_path / "c", net, adam(net))


def squared(a, b):
    return (a - b).square().mean()


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
@pytest.mark.parametrize("loss", [torch.nn.functional.mse_loss, torch.nn.L1Loss(), torch.nn.HuberLoss(), squared])
def test_targets_in_a_row_beside_outputs_in_a_column_are_refused_with_both_shapes(loss):
    net, (x, y) = problem()
    before = copy.deepcopy(net)
    words = r"outputs have shape \(121, 1\), the targets \(121,\): .* shape \(121, 1\), for example targets.unsqueeze"
    loader = DataLoader(TensorDataset(x, y[:, 0]), batch_size=121)
    for data in ((x, y[:, 0]), (x.numpy(), y[:, 0].numpy()), loader):
        with pytest.raises(radnet.errors.InvalidValue, match=words):
            fit(net, data, epochs=1, optimizer=adam(net), loss=loss)
    assert same(net, before)
    flat = torch.nn.Sequential(net, torch.nn.Flatten(0))
    with pytest.raises(ValueError, match=r"shape \(121,\), the targets \(121, 1\): .* for example targets.squeeze"):
        fit(flat, (x, y), epochs=1, optimizer=adam(flat), loss=loss)


def test_a_loss_that_brings_targets_and_outputs_together_itself_is_used_as_it_is():
    def own(outputs, targets):
        return squared(outputs.squeeze(1), targets)

    (net, (x, y)), (other, _) = problem(), problem()
    assert fit(net, (x, y[:, 0]), epochs=3, optimizer=adam(net), loss=own).losses
    fit(other, (x, y), epochs=3, optimizer=adam(other), loss=squared)
    assert same(net, other)


def test_labels_are_a_row_and_one_row_is_never_ambiguous():
    net = radnet.RadNet((2, 8, 3))
    data = (torch.randn(20, 2), torch.arange(20) % 3)
    assert fit(net, data, epochs=2, optimizer=adam(net), loss=torch.nn.functional.cross_entropy).epochs == 2
    net, (x, y) = problem()
    assert fit(net, (x[:1], y[:1, 0]), epochs=1, optimizer=adam(net), loss=squared).epochs == 1


def test_arrays_become_tensors_of_the_models_dtype():
    (net, (x, y)), (other, _) = problem(dtype=torch.float32), problem(dtype=torch.float32)
    fit(net, (x, y), epochs=5, optimizer=adam(net))
    reversed_rows = x.double().numpy()[::-1][::-1], y.double().numpy()[::-1][::-1]
    for part in reversed_rows:
        part.flags.writeable = False
    fit(other, reversed_rows, epochs=5, optimizer=adam(other))
    assert same(net, other)
    batches, again = problem(dtype=torch.float32)[0], problem(dtype=torch.float32)[0]
    fit(batches, [(x[:60], y[:60]), (x[60:], y[60:])], epochs=5, optimizer=adam(batches))
    fit(
        again,
        [
            (a.numpy()[::-1], b.double().numpy()[::-1])
            for a, b in [(x[:60].flip(0), y[:60].flip(0)), (x[60:].flip(0), y[60:].flip(0))]
        ],
        epochs=5,
        optimizer=adam(again),
    )
    assert same(batches, again)


def test_labels_in_an_array_stay_whole_numbers():
    net = radnet.RadNet((2, 8, 3))
    x, labels = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 3
    assert fit(net, (x, labels), epochs=2, optimizer=adam(net), loss=torch.nn.functional.cross_entropy).epochs == 2
    with pytest.raises(radnet.errors.InvalidType, match="fit needs arrays of numbers, got one of dtype <U1"):
        fit(net, (x, labels.astype("U1")), epochs=2, optimizer=adam(net))


def test_bad_input_is_refused_with_a_reason(tmp_path):
    net, (x, y) = problem()
    other, _ = problem()
    cases = [
        (lambda: fit(net, [], epochs=1, optimizer=adam(net)), ValueError, "epoch 1: the data gave no rows"),
        (lambda: fit(net, (x, y), epochs=0, optimizer=adam(net)), ValueError, "epochs=0: at least 1"),
        (lambda: fit(net, (x, y), epochs=1, optimizer=adam(other)), ValueError, "parameters of another model"),
        (lambda: fit(net, (x, y), epochs=1, optimizer=None), TypeError, "needs a torch optimizer, got NoneType"),
        (lambda: fit(None, (x, y), epochs=1, optimizer=adam(net)), TypeError, "fit needs a module, got NoneType"),
        (lambda: fit(net, (x, y), epochs=1, optimizer=adam(net), every=0), ValueError, "every=0: must be positive"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert isinstance(caught.value, radnet.RadNetError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda o: torch.optim.lr_scheduler.StepLR(o, 2), {"step_size": 0}),
        (lambda o: torch.optim.lr_scheduler.StepLR(o, 1), {"gamma": -1e308, "last_epoch": 5}),
        (lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5), {"T_max": 0}),
    ],
)
def test_a_state_from_which_the_scheduler_cannot_go_on_is_refused_and_nothing_changes(make, change, tmp_path):
    def run(epochs):
        torch.manual_seed(0)
        net = radnet.RadNet((2, 5, 1))
        optimizer = torch.optim.Adam(net.parameters())
        scheduler = make(optimizer)
        data = (torch.ones(8, 2), torch.ones(8, 1))
        before = (copy.deepcopy(scheduler.state_dict()), copy.deepcopy(optimizer.state_dict()))
        try:
            fit(net, data, optimizer=optimizer, epochs=epochs, scheduler=scheduler, checkpoint=path, every=1)
        finally:
            unchanged.append(before == (scheduler.state_dict(), optimizer.state_dict()))

    path, unchanged = tmp_path / "run", []
    run(3)
    run(4)  # as it is, it goes on
    header, tensors = unpack(path, "radnet-checkpoint", 3, "")
    header["scheduler"] |= change
    header["groups"][0]["lr"] = 1e10
    path.write_bytes(pack(tensors, "radnet-checkpoint", header))
    with pytest.raises(radnet.RadNetError, match="the scheduler cannot go on from the state in the file"):
        run(6)
    assert unchanged == [False, False, True]
