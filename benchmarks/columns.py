"""A training step by rows and by columns, for networks of several widths, on the samples of experiment 3."""

from __future__ import annotations

from collections.abc import Callable

import torch
from timing import finish, interleave, show
from torch import Tensor, nn

import radnet
from radnet.columns import Columns

WIDTHS = ((2, 3, 4, 5, 6, 2), (2, 8, 8, 8, 2), (2, 16, 16, 16, 2), (2, 16, 64, 128, 16, 2))


def step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def one() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return one


def main() -> None:
    axis = -3 + torch.arange(121) / 20
    x = torch.cartesian_prod(axis, axis)
    y = torch.exp(-x * x)
    found = {}
    for widths in WIDTHS:
        net = radnet.RadNet(widths, "sigmoid", generator=torch.Generator().manual_seed(0))
        times = interleave({"rows": step(net, x, y), "columns": step(Columns(net), x, y)}, rounds=15, warmup=3)
        show(f"widths {widths}, {len(x):,} samples, float32", times, "rows")
        found[str(widths)] = times
    finish({"times": found})


if __name__ == "__main__":
    main()
