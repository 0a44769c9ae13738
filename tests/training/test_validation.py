"""Held-out data: its loss after every epoch, the best weights, when a run gives up; a learning rate to start with."""

import copy
import csv

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import radnet
from radnet.errors import Diverged, InvalidValue
from radnet.training import find_rate, fit


def problem():
    """Few noisy rows to train on, many clean ones held out: the network overfits, the best epoch is not the last."""
    generator = torch.Generator().manual_seed(1)
    net = radnet.RadNet((1, 24, 24, 1), "sigmoid", generator=generator, dtype=torch.float64)
    x = torch.linspace(-3, 3, 12, dtype=torch.float64).unsqueeze(1)
    y = torch.exp(-x * x) + 0.4 * torch.randn(12, 1, generator=generator, dtype=torch.float64)
    x_out = torch.linspace(-3, 3, 101, dtype=torch.float64).unsqueeze(1)
    return net, (x, y), (x_out, torch.exp(-x_out * x_out))


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.03)


def loss_of(net, data):
    with torch.no_grad():
        return float(nn.functional.mse_loss(net(data[0]), data[1]))


def test_the_model_ends_with_the_weights_that_were_best_on_held_out_data():
    net, data, out = problem()
    by_hand = copy.deepcopy(net)
    result = fit(net, data, epochs=150, optimizer=adam(net), validation=out)
    optimizer, seen = adam(by_hand), []
    for _ in range(150):
        fit(by_hand, data, epochs=1, optimizer=optimizer)
        seen.append((loss_of(by_hand, out), copy.deepcopy(by_hand.state_dict())))
    best = min(range(150), key=lambda i: seen[i][0])
    assert list(result.validation) == [value for value, _ in seen]
    assert result.best_epoch == best + 1 < 150
    assert all(torch.equal(net.state_dict()[name], x) for name, x in seen[best][1].items())
    assert loss_of(net, out) == min(result.validation)


def test_a_run_gives_up_after_its_patience():
    net, data, out = problem()
    result = fit(net, data, epochs=1000, optimizer=adam(net), validation=out, patience=5)
    assert result.reason == "patience"
    assert result.epochs == result.best_epoch + 5
    assert all(value >= min(result.validation) for value in result.validation[-5:])
    assert not result.reached


@pytest.mark.parametrize("patience", [None, 4])
def test_a_resumed_run_knows_its_best_weights(patience, tmp_path):
    net, data, out = problem()
    keywords = {"validation": out, "patience": patience}
    whole = fit(net, data, epochs=60, optimizer=adam(net), **keywords)
    path = tmp_path / "run.safetensors"
    for epochs in (2, whole.best_epoch + 1, 60, 60):  # the third goes on after the best epoch, the last finds it done
        again, _, _ = problem()
        result = fit(again, data, epochs=epochs, optimizer=adam(again), checkpoint=path, **keywords)
    assert (result.losses, result.validation) == (whole.losses, whole.validation)
    assert result.reason == whole.reason
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in net.state_dict().items())


def test_a_run_is_resumed_as_it_was_started(tmp_path):
    net, data, out = problem()
    for started, resumed, words in ((None, out, "without"), (out, None, "with")):
        path = tmp_path / f"{words}.safetensors"
        fit(net, data, epochs=2, optimizer=adam(net), validation=started, checkpoint=path)
        before = copy.deepcopy(net.state_dict())
        with pytest.raises(InvalidValue, match=f"started {words} validation data"):
            fit(net, data, epochs=4, optimizer=adam(net), validation=resumed, checkpoint=path)
        assert all(torch.equal(x, net.state_dict()[name]) for name, x in before.items())


def test_it_is_measured_in_evaluation_mode_and_every_part_is_in_its_mode_afterwards():
    model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), radnet.Squash(), nn.Linear(8, 1)).double()
    model[2].eval()
    seen = []
    model[1].register_forward_hook(lambda m, args, out: seen.append(m.training))
    _, data, out = problem()
    fit(model, data, epochs=2, optimizer=adam(model), validation=DataLoader(TensorDataset(*out), batch_size=60))
    assert seen == [True, False, False, True, False, False]
    assert [m.training for m in model] == [True, True, False, True]


def test_the_history_has_a_column_for_it(tmp_path):
    net, data, out = problem()
    result = fit(net, data, epochs=3, optimizer=adam(net), validation=out)
    result.save_history(tmp_path / "h.csv")
    rows = list(csv.DictReader((tmp_path / "h.csv").read_text().splitlines()))
    assert [float(row["validation"]) for row in rows] == list(result.validation)


@pytest.mark.parametrize(
    ("keywords", "match"),
    [
        ({"patience": 3}, "needs at least 1 epoch, and validation="),
        ({"patience": 0, "validation": problem()[2]}, "patience"),
        ({"validation": []}, "validation data gave no rows"),
        ({"validation": (torch.ones(4, 1).double(), torch.ones(4).double())}, "would compare each output"),
    ],
)
def test_bad_input_is_refused(keywords, match):
    net, data, _ = problem()
    with pytest.raises(InvalidValue, match=match):
        fit(net, data, epochs=2, optimizer=adam(net), **keywords)


def test_a_loss_that_is_not_finite_stops_the_run():
    net, data, (x, y) = problem()
    with pytest.raises(Diverged, match="epoch 1: the loss on the validation data is nan"):
        fit(net, data, epochs=2, optimizer=adam(net), validation=(x, y * float("nan")))


# --- a learning rate to start with


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_the_rate_that_is_found_is_near_the_best_of_a_grid(optimizer):
    net, data, _ = problem()
    found = find_rate(net, data, optimizer=optimizer)

    def after(rate):
        twin = copy.deepcopy(net)
        try:
            return fit(twin, data, epochs=200, optimizer=optimizer(twin.parameters(), lr=rate)).loss
        except Diverged:
            return float("inf")

    start = loss_of(net, data)
    best = min(after(10.0**k) for k in range(-5, 2))
    assert after(found.rate) - best < 0.35 * (start - best)


def test_finding_a_rate_changes_nothing():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 1)).double()
    _, data, _ = problem()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = find_rate(model, DataLoader(TensorDataset(*data), batch_size=5), steps=40)
    assert all(torch.equal(x, model.state_dict()[name]) for name, x in before.items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())
    assert list(found.rates) == sorted(found.rates)
    assert 10 * found.rate == pytest.approx(min(found.rates, key=lambda rate: abs(rate - 10 * found.rate)))


def test_a_search_that_finds_nothing_says_so():
    net, (x, y), _ = problem()
    with pytest.raises(InvalidValue, match="no learning rate between"):
        find_rate(net, (x, net(x).detach()))
    with pytest.raises(InvalidValue, match="not finite before the first step"):
        find_rate(net, (x, y * float("nan")))
    with pytest.raises(InvalidValue, match="0 < low < high"):
        find_rate(net, (x, y), low=1.0, high=0.5)
    with pytest.raises(InvalidValue, match="no rows"):
        find_rate(net, [])
