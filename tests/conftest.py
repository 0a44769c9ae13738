"""Counts, and the figures the tests have seen.

RADNET_COUNTS chooses how often a claim is tried: "quick" (default), "full" (`make prove`), "few" (`make mutants`).
`--evidence FILE` writes the figures that tests hand to the `evidence` fixture, as JSON.
"""

import json
import os
from pathlib import Path

import hypothesis
import pytest
import torch

COUNTS = os.environ.get("RADNET_COUNTS", "quick")

hypothesis.settings.register_profile(
    "radnet",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=list(hypothesis.HealthCheck),
    # a mutant is dead at the first failure: no time for a smaller example
    phases=[hypothesis.Phase.generate] if COUNTS == "few" else list(hypothesis.Phase),
)
hypothesis.settings.load_profile("radnet")

torch.set_warn_always(True)  # what torch warns of once in a process would fail in whichever test comes first

if COUNTS == "few":  # every mutant is a fork of one process: what takes seconds the first time is done before
    torch.export.export(torch.nn.Linear(1, 1), (torch.zeros(1, 1),))


def pytest_addoption(parser):
    parser.addoption("--evidence", default=None, help="write the figures seen to this JSON file")


def pytest_configure(config):
    config.seen = []


@pytest.fixture
def evidence(request):
    """Call with a claim and its figures; they end up in the evidence file."""

    def record(claim, **figures):
        plain = json.loads(json.dumps(figures, default=float))  # numbers of NumPy's do not travel between processes
        request.config.seen.append({"claim": claim, "test": request.node.nodeid, **plain})

    return record


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.seen.extend(getattr(node, "workeroutput", {}).get("seen", []))


def pytest_sessionfinish(session, exitstatus):
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["seen"] = config.seen
    elif config.getoption("--evidence"):
        data = {
            "counts": COUNTS,
            "torch": torch.__version__,
            "passed": exitstatus == 0,
            "seen": sorted(config.seen, key=lambda row: row["claim"]),
        }
        Path(config.getoption("--evidence")).write_text(json.dumps(data, indent=2) + "\n")


@pytest.fixture
def count():
    """`count(quick, full)`: how often to try, by RADNET_COUNTS."""
    return lambda quick, full: {"quick": quick, "full": full, "few": max(1, quick // 15)}[COUNTS]


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(20230)


@pytest.fixture(scope="session")
def small_report(tmp_path_factory):
    """The folder of a small run of all experiments."""
    from radnet.experiments.reproduce import reproduce
    from small_run import look_smaller

    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        look_smaller(patch)
        reproduce(folder, quick=True, jobs=2)
    return folder
