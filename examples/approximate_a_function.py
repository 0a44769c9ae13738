"""Turn a function into a network with a guaranteed error, check it, and draw it."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import radnet


def f(x: Tensor) -> Tensor:
    """A bump on a slope: 3 exp(-x^2) + x/2, which approaches x/2."""
    return 3 * torch.exp(-x * x) + x / 2


def main() -> radnet.approximation.Approximation:
    steepest = 3 * 0.8578 + 0.5
    a = radnet.approximate(f, radnet.Box(-3, 3), 0.25, lipschitz=steepest, limit=([[0.5]], [0.0]))
    print(a.report())
    x = 100 * torch.randn(100_000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check = a.certificate.check(f, x)
    print(f"largest error on {check.points:,} points of the line: {check.worst:.4f}")
    figure, axes = plt.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    radnet.plots.graph(axes[0], a, f)
    radnet.plots.cover(axes[1], a)
    figure.savefig("approximation.png")
    return a


if __name__ == "__main__":
    main()
