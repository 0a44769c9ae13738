"""Many initialisations at once: each follows the trajectory of its own run."""

import copy

import pytest
import torch

import radnet
from radnet.ensembles import Ensemble, fit_ensemble
from radnet.training import fit
from strategies import ACTIVATIONS

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
}


def problem(kind="sigmoid", shift="trainable", bias=True, count=4):
    generator = torch.Generator().manual_seed(0)
    rho = ACTIVATIONS[kind](shift=shift, dtype=torch.float64)
    nets = [
        radnet.RadNet((2, 6, 5, 1), rho, init="linear", bias=bias, generator=generator, dtype=torch.float64)
        for _ in range(count)
    ]
    x = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    return nets, (x, x.square().sum(1, keepdim=True))


def distance(a, b):
    return max(float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("shift", [None, 0.25, "trainable"])
@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_an_ensemble_evaluates_every_network(kind, shift):
    nets, (x, _) = problem(kind, shift)
    for s, net in enumerate(nets):
        if shift == "trainable":
            with torch.no_grad():
                net.activations[0].shift.fill_(0.1 * s)
    out = Ensemble(nets)(x)
    for s, net in enumerate(nets):
        torch.testing.assert_close(out[s], net(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_each_network_follows_the_trajectory_of_its_own_run(name, bias, evidence):
    nets, data = problem(bias=bias)
    alone = copy.deepcopy(nets)
    together = fit_ensemble(nets, data, epochs=80, optimizer=OPTIMIZERS[name])
    for net, own, result in zip(nets, alone, together, strict=True):
        expected = fit(own, data, epochs=80, optimizer=OPTIMIZERS[name](own.parameters()))
        assert result.losses == pytest.approx(expected.losses, rel=1e-9)
        assert distance(net, own) < 1e-9
    evidence("ensemble against single runs", optimizer=name, gap=max(map(distance, nets, alone)))
    assert together[0].losses[-1] < together[0].losses[0]


def test_projection_keeps_every_network_in_its_space():
    nets, data = problem()
    compressions = [radnet.compress(net) for net in nets]
    T, V = [c.transformed() for c in compressions], [c.network for c in compressions]
    fit_ensemble(T, data, epochs=60, optimizer=OPTIMIZERS["adam"], project=True)
    fit_ensemble(V, data, epochs=60, optimizer=OPTIMIZERS["adam"])
    space = radnet.InterpolatingSpace(nets[0].widths)
    for big, small in zip(T, V, strict=True):
        assert space.contains(big)
        assert distance(space.q_2(big), small) < 1e-10
    with pytest.raises(ValueError, match="not in the interpolating space"):
        fit_ensemble(nets, data, epochs=1, optimizer=OPTIMIZERS["sgd"], project=True)


def test_a_network_that_reaches_the_target_stays_there():
    nets, data = problem()
    alone = copy.deepcopy(nets)
    losses = [r.losses for r in fit_ensemble(copy.deepcopy(nets), data, epochs=40, optimizer=OPTIMIZERS["adam"])]
    target = sorted(history[20] for history in losses)[1]
    results = fit_ensemble(nets, data, epochs=40, optimizer=OPTIMIZERS["adam"], target=target)
    assert {r.reason for r in results} == {"target", "epochs"} or all(r.reached for r in results)
    for net, own, result in zip(nets, alone, results, strict=True):
        expected = fit(own, data, epochs=40, optimizer=OPTIMIZERS["adam"](own.parameters()), target=target)
        assert result.reason == expected.reason
        assert result.epochs == expected.epochs
        assert distance(net, own) < 1e-9


def test_fixed_shifts_are_not_trained():
    nets, data = problem(shift=0.25)
    fit_ensemble(nets, data, epochs=5, optimizer=OPTIMIZERS["sgd"])
    assert all(net.activations[0].shift == 0.25 for net in nets)


def test_networks_that_are_not_alike_are_refused():
    nets, data = problem()
    other = radnet.RadNet((2, 7, 5, 1), "sigmoid", dtype=torch.float64)
    cases = [
        ([], ValueError, "at least one network"),
        ([nets[0], other], ValueError, r"network 1 has widths \(2, 7, 5, 1\), network 0 has \(2, 6, 5, 1\)"),
        ([nets[0], problem("squash")[0][0]], ValueError, "network 1 has other activations"),
        ([nets[0], problem(shift=None)[0][0]], ValueError, "network 1 has other activations"),
        ([nets[0], torch.nn.Linear(1, 1)], TypeError, "network 1 is a Linear"),
    ]
    for given, kind, message in cases:
        with pytest.raises(kind, match=message):
            fit_ensemble(given, data, epochs=1, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(ValueError, match="epochs=0"):
        fit_ensemble(nets, data, epochs=0, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(radnet.RadNetError, match=r"epoch \d+: the loss of network \d is not finite"):
        fit_ensemble(problem("identity", None)[0], data, epochs=500, optimizer=lambda p: torch.optim.SGD(p, lr=1e5))
