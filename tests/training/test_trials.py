"""The same trials in this process, in several, and on a dask cluster: the same bits."""

import sys

import joblib
import pytest
import torch

import radnet
from radnet.training import fit
from radnet.trials import run_trials


def trial(seed):
    """A short training run."""
    import torch

    import radnet
    from radnet.training import fit

    generator = torch.Generator().manual_seed(seed)
    net = radnet.RadNet((1, 5, 1), "sigmoid", generator=generator)
    x = torch.linspace(-1, 1, 30).unsqueeze(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return fit(net, (x, x * x), epochs=10, optimizer=optimizer).losses, torch.get_num_threads()


@pytest.fixture(scope="module")
def here():
    return run_trials(trial, range(4), jobs=1)


def test_trials_are_in_the_order_of_their_seeds(here):
    losses = [result[0] for result in here]
    assert len(set(losses)) == 4
    generator = torch.Generator().manual_seed(2)
    net = radnet.RadNet((1, 5, 1), "sigmoid", generator=generator)
    x = torch.linspace(-1, 1, 30).unsqueeze(1)
    alone = fit(net, (x, x * x), epochs=10, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    assert losses[2] == pytest.approx(alone.losses)


def test_several_processes_give_the_same_bits(here):
    assert run_trials(trial, range(4), jobs=2) == here


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_bits(here, tmp_path):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        assert run_trials(trial, range(4)) == here


def test_the_number_of_threads_is_set_for_the_trial_and_put_back():
    before = torch.get_num_threads()
    assert run_trials(lambda seed: torch.get_num_threads(), [0], jobs=1, threads=2) == [2]
    assert torch.get_num_threads() == before


def test_bad_input_is_refused_with_a_reason(monkeypatch):
    with pytest.raises(TypeError, match="trial is a int; expected a function of a seed"):
        run_trials(3, [0])
    with pytest.raises(ValueError, match="threads=0"):
        run_trials(abs, [0], threads=0)
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ImportError, match=r"run_trials needs joblib; install radnet\[parallel\]"):
        run_trials(abs, [0])
