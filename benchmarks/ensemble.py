"""Ten initialisations of experiment 2 at once, beside ten runs one after the other."""

from __future__ import annotations

import torch
from timing import finish, interleave, show

from radnet import RadNet
from radnet.ensembles import fit_ensemble
from radnet.experiments import descent, lossless
from radnet.training import fit

EPOCHS = 150


def main() -> None:
    settings = descent.Settings()
    x = (-3 + torch.arange(settings.samples) / 20).unsqueeze(1)
    data = (x, torch.exp(-x * x))

    def networks() -> list[RadNet]:
        return [lossless.initial_network(settings, torch.float32, seed) for seed in range(10)]

    def one_after_the_other() -> None:
        for net in networks():
            fit(net, data, epochs=EPOCHS, optimizer=torch.optim.SGD(net.parameters(), lr=settings.rate))

    def at_once() -> None:
        fit_ensemble(networks(), data, epochs=EPOCHS, optimizer=lambda p: torch.optim.SGD(p, lr=settings.rate))

    times = interleave({"ten runs": one_after_the_other, "ensemble of ten": at_once}, rounds=5, warmup=1)
    show(f"experiment 2, full network, {EPOCHS} epochs, ten seeds", times, "ten runs")
    finish({"ensemble": times, "ratio": times["ensemble of ten"]["median_ms"] / times["ten runs"]["median_ms"]})


if __name__ == "__main__":
    main()
