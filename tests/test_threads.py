"""Models are used by some threads while others compress, verify, report, save and export them."""

import copy
import threading
import warnings

import pytest
import torch
from torch import nn

import radnet


class Looped(nn.Module):
    """A loop over positions and a branch on a class: torch.fx cannot follow it, torch.export can."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(4, 24), radnet.Squash(), nn.Linear(24, 2)

    def forward(self, x):
        x = x.clamp(-20.0, 20.0) if isinstance(x, torch.Tensor) else x
        return self.b(self.rho(self.a(x)))


def network():
    return radnet.RadNet((4, 32, 32, 2), "sigmoid", generator=torch.Generator().manual_seed(0))


def traced():
    torch.manual_seed(0)
    layers = (
        nn.Linear(4, 32),
        nn.BatchNorm1d(32),
        radnet.Squash(),
        nn.Linear(32, 16),
        radnet.StepReLU(),
        nn.Linear(16, 2),
    )
    return nn.Sequential(*layers).eval()


def exported():
    torch.manual_seed(0)
    return Looped().eval()


def state(model):
    """Everything that must not change: the objects and their bits."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: (id(p), p.dtype, p.requires_grad, p.detach().clone()) for name, p in tensors}


def assert_same_state(model, before):
    after = state(model)
    assert after.keys() == before.keys()
    for name, (*kind, value) in before.items():
        assert after[name][:3] == tuple(kind), name
        assert torch.equal(after[name][3], value), name


class Served:
    """Threads that call a model all the time and count what is not as it was."""

    def __init__(self, model, threads):
        self.model, self.x = model, torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            self.want = model(self.x)
        self.calls, self.different, self.errors = 0, 0, []
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._serve) for _ in range(threads)]

    def _serve(self):
        calls = different = 0
        while not self._stop.is_set():
            calls += 1
            try:
                with torch.no_grad():
                    different += not torch.equal(self.model(self.x), self.want)
            except Exception as error:
                self.errors.append(repr(error)[:200])
        with self._lock:
            self.calls += calls
            self.different += different

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("make", [network, traced, exported])
def test_a_model_serves_while_it_is_compressed_verified_reported_saved_and_exported(make, count, evidence, tmp_path):
    model = make()
    before, filters = state(model), list(warnings.filters)
    calls = different = compressions = 0
    errors = []
    while compressions < count(2, 70) or calls < count(100, 34_000):
        with Served(model, 4) as served:
            c = radnet.compress(model, served.x)
            c.report()
            assert radnet.verify(model, c.network, served.x).lossless
            if make is network:
                radnet.save(model, tmp_path / "model.safetensors")
            if compressions % 20 == 0:
                radnet.compress(exported(), served.x)  # torch.export of another model
            compressions += 1
        calls += served.calls
        different += served.different
        errors += served.errors
    evidence(
        f"{make.__name__}: forwards in 4 threads while others work on the model",
        forwards=calls,
        compressions=compressions,
        different=different,
        errors=len(errors),
    )
    assert (different, errors) == (0, [])
    assert_same_state(model, before)
    assert warnings.filters == filters


@pytest.mark.parametrize("make", [network, traced])
def test_threads_that_compress_one_model_leave_it_as_it_was(make, count, evidence):
    rounds, bad = count(6, 100), []
    filters, call = list(warnings.filters), nn.Module.__call__
    x = torch.randn(8, 4)
    for _ in range(rounds):
        model, widths = make(), []
        before = state(model)

        def compress(model=model, widths=widths):
            try:
                c = radnet.compress(model, x)
                c.report()
                widths.append(sum(p.numel() for p in c.network.parameters()))
            except Exception as error:
                bad.append(repr(error)[:200])

        threads = [threading.Thread(target=compress) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_same_state(model, before)
        assert len(set(widths)) == 1
    evidence(f"{make.__name__}: 4 threads compress one model", rounds=rounds, errors=len(bad))
    assert bad == []
    assert warnings.filters == filters
    assert nn.Module.__call__ is call


def test_a_model_that_writes_into_its_buffers_is_not_written_into():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total.copy_(x.mean(0))
            return self.layer(x) + self.total

    model, x = Counting(), torch.randn(8, 4)
    seen = set()
    stop = threading.Event()

    def look():
        while not stop.is_set():
            seen.add(tuple(model.total.tolist()))

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(3):
        radnet.verify(model, copy.deepcopy(model), x)
    stop.set()
    thread.join()
    assert seen == {(0.0, 0.0, 0.0, 0.0)}
