"""Experiments 1 and 2 at the paper's settings."""

import copy

import pytest
import torch

from radnet.experiments import descent, lossless, report


def test_experiment_1_reproduces_the_papers_figure(evidence):
    results = lossless.run(lossless.Settings())
    single, double = (result.figure for result in results)
    evidence("experiment 1", float32=single.mean, std=single.std, float64=double.mean, paper=lossless.PAPER.mean)
    assert all(result.reduced_widths == (1, 2, 3, 1) for result in results)
    assert lossless.PAPER.mean / 3 < single.mean < lossless.PAPER.mean * 3
    assert double.mean < 1e-15


def test_the_settings_are_the_papers():
    settings = lossless.Settings()
    assert (settings.widths, settings.samples, settings.initialisations) == ((1, 6, 7, 1), 121, 10)


def test_trials_start_where_the_paper_says_and_repeat_themselves():
    settings = lossless.Settings()
    net = lossless.initial_network(settings, torch.float32, 3)
    shifts = [float(rho.shift.detach()) for rho in net.activations[:-1]]
    assert all(-1 <= t <= 0 for t in shifts)
    assert len(set(shifts)) == 2
    bounds = [1 / n**0.5 for n in (1, 6, 7)]
    assert all(W.abs().max() <= bound for W, bound in zip(net.weights, bounds, strict=True))
    again = lossless.initial_network(settings, torch.float32, 3)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), again.parameters(), strict=True))


def test_progress_is_told_after_every_trial():
    told = []
    lossless.run(lossless.Settings(initialisations=2), progress=told.append)
    assert told == [1, 2, 3, 4]


def test_no_trials_is_refused():
    with pytest.raises(ValueError, match="0 trials: at least 1 is needed"):
        lossless.run(lossless.Settings(initialisations=0))


def test_agreement_is_within_a_factor_three_and_only_for_float32():
    def row(dtype, mean):
        return report.lossless_rows([lossless.Result(dtype, (1, 2, 3, 1), (mean, mean))])[0]

    assert row("float32", 3.9e-8)["agrees"] is True
    assert row("float32", 4.0e-8)["agrees"] is False
    assert row("float32", 4.3e-9)["agrees"] is False
    assert row("float64", 1e-17)["agrees"] is None
    assert row("float64", 1e-17)["paper"] is None
    assert "yes" in report.table([row("float32", 1e-8)])


def test_experiment_2_reproduces_the_papers_figure(count, evidence):
    settings = descent.Settings(initialisations=count(3, 10), epochs=count(600, 3000))
    single, double = (result.figure for result in descent.run(settings))
    evidence("experiment 2", epochs=settings.epochs, float32=single.mean, std=single.std, float64=double.mean)
    assert single.mean <= 1.1e-8
    assert double.mean < 1e-15


def test_experiment_2_has_the_papers_settings_and_learns():
    settings = descent.Settings()
    assert (settings.widths, settings.samples, settings.epochs, settings.rate) == ((1, 6, 7, 1), 121, 3000, 0.01)
    early, late = (
        descent.run(descent.Settings(initialisations=2, epochs=epochs, dtypes=("float64",)))[0] for epochs in (1, 200)
    )
    assert all(b < a for a, b in zip(early.losses, late.losses, strict=True))
    with pytest.raises(ValueError, match="0 trials of 3000 epochs"):
        descent.run(descent.Settings(initialisations=0))


def test_experiment_2_agrees_if_it_is_not_above_the_papers_mean_and_deviation():
    def agrees(gap):
        return report.descent_rows([descent.Result("float32", (1.0, 1.0), (1.0 + gap, 1.0 + gap))])[0]["agrees"]

    assert agrees(1.0e-8) is True
    assert agrees(1.2e-8) is False


def test_errata_17_the_sum_of_squares_diverges_at_the_printed_rate():
    net = lossless.initial_network(lossless.Settings(), torch.float64, 0)
    x = (-3 + torch.arange(121, dtype=torch.float64) / 20).unsqueeze(1)
    y = torch.exp(-x * x)

    def largest(reduction):
        start = copy.deepcopy(net)
        optimizer = torch.optim.SGD(start.parameters(), lr=0.01)
        worst = 0.0
        for _ in range(300):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(start(x), y, reduction=reduction)
            if not loss.isfinite():
                return float("inf")
            worst = max(worst, float(loss.detach()))
            loss.backward()
            optimizer.step()
        return worst

    assert largest("mean") < 1
    assert largest("sum") > 1e6
