"""Grow, train, compress again: when a narrow network is stuck, width is a way out, and costs nothing afterwards.

A narrow radial network learns sin(2x) for a while. Then it either stays narrow, or is widened with ``fill > 0`` (the
same function, but the gradient sees more), trained for as many epochs more, and compressed to the widths it had.
"""

from __future__ import annotations

import copy

import torch

import radnet
from radnet.ensembles import fit_ensemble

NARROW = (1, 2, 3, 4, 1)
WIDE = (1, 24, 24, 24, 1)
SEEDS = range(7)
EPOCHS = 400


def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def main() -> list[tuple[float, float]]:
    """The loss of each seed after staying narrow, and after growing and compressing."""
    x = (-3 + torch.arange(121, dtype=torch.float64) / 20).unsqueeze(1)
    data = (x, torch.sin(2 * x))
    start = [
        radnet.RadNet(
            NARROW, "squash", shift="trainable", generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        for seed in SEEDS
    ]
    before = fit_ensemble(start, data, epochs=EPOCHS, optimizer=optimizer)
    stayed = copy.deepcopy(start)
    fit_ensemble(stayed, data, epochs=EPOCHS, optimizer=optimizer)
    grown = [
        radnet.widen(net, WIDE, fill=0.2, generator=torch.Generator().manual_seed(seed))
        for seed, net in zip(SEEDS, start, strict=True)
    ]
    fit_ensemble(grown, data, epochs=EPOCHS, optimizer=optimizer)
    shipped = [radnet.compress(net).network for net in grown]

    def loss(net: radnet.RadNet) -> float:
        with torch.no_grad():
            return float(torch.nn.functional.mse_loss(net(data[0]), data[1]))

    results = [(loss(a), loss(b)) for a, b in zip(stayed, shipped, strict=True)]
    print(f"sin(2x), widths {NARROW}, {EPOCHS} epochs and then {EPOCHS} more")
    print("seed   before   stayed narrow   grew to 24 and compressed")
    for seed, first, (a, b), net in zip(SEEDS, before, results, shipped, strict=True):
        print(f"{seed:>4}{first.loss:>9.4f}{a:>16.4f}{b:>28.4f}   widths {net.widths}")
    better = sum(b < a for a, b in results)
    print(f"growing was better for {better} of {len(results)} seeds")
    return results


if __name__ == "__main__":
    main()
