"""Experiments 1 and 2 at the paper's settings."""

import copy

import pytest
import torch

from radnet.experiments import descent, lossless
from small_run import judged, part_of


def of_lossless(count=10):
    return [lossless.trial(lossless.Settings(), seed) for seed in range(count)]


def test_experiment_1_reproduces_the_papers_figure(evidence):
    trials = of_lossless()
    single, double = (lossless.figure(trials, dtype) for dtype in ("float32", "float64"))
    evidence("experiment 1", float32=single.mean, std=single.std, float64=double.mean, paper=lossless.PAPER.mean)
    assert all(t.reduced_widths == (1, 2, 3, 1) for t in trials)
    assert lossless.PAPER.mean / 3 < single.mean < lossless.PAPER.mean * 3
    assert double.mean < 1e-15


def test_the_settings_are_the_papers():
    settings = lossless.Settings()
    assert (settings.widths, settings.samples) == ((1, 6, 7, 1), 121)
    assert part_of(lossless.EXPERIMENT, "initialisations").trials == descent.Settings().initialisations == 10


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


def test_what_share_is_done_is_told():
    told = []
    lossless.trial(lossless.Settings(), 0, told.append)
    assert told == [0.5, 1.0]


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="samples=0: at least 1 is needed"):
        lossless.trial(lossless.Settings(samples=0), 0)


def test_experiment_1_agrees_within_a_factor_three():
    def agree(single, double):
        trials = [lossless.Trial((1, 2, 3, 1), {"float32": single, "float64": double})] * 2
        return [row.agrees for row in judged(lossless.EXPERIMENT, {"initialisations": trials})]

    assert agree(3.9e-8, 9e-16) == [True, True]
    assert agree(4.0e-8, 2e-15) == [False, False]
    assert agree(4.3e-9, 1e-17) == [False, True]


def of_descent(dtype, **settings):
    return descent.trial(descent.Settings(dtypes=(dtype,), **settings), 0)


def test_experiment_2_reproduces_the_papers_figure(count, evidence):
    settings = {"initialisations": count(3, 10), "epochs": count(600, 3000)}
    single, double = (of_descent(dtype, **settings).figure for dtype in ("float32", "float64"))
    evidence("experiment 2", **settings, float32=single.mean, std=single.std, float64=double.mean)
    assert single.mean <= 1.1e-8
    assert double.mean < 1e-15


def test_experiment_2_has_the_papers_settings_and_learns():
    settings = descent.Settings()
    assert (settings.widths, settings.samples, settings.epochs, settings.rate) == ((1, 6, 7, 1), 121, 3000, 0.01)
    trial = of_descent("float64", initialisations=2, epochs=200)
    assert all(b < a for a, b in zip(trial.first_losses, trial.losses, strict=True))
    with pytest.raises(ValueError, match="initialisations=0: at least 1"):
        of_descent("float32", initialisations=0)


def test_experiment_2_agrees_if_it_is_not_above_the_papers_mean_and_deviation():
    def agree(single, double):
        trials = {
            dtype: [descent.Trial(dtype, (2.0,), (1.0, 1.0), (1.0 + gap, 1.0 + gap))]
            for dtype, gap in (("float32", single), ("float64", double))
        }
        return [row.agrees for row in judged(descent.EXPERIMENT, trials)]

    assert agree(1.0e-8, 0.0) == [True, True]
    assert agree(1.2e-8, 1e-14) == [False, False]


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
