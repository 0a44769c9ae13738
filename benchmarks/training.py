"""One training step of experiment 3 and of wider networks: ours beside the paper's text, and beside a ReLU network.

"As the paper says" is its text in eager PyTorch, a sample a row: linear layer, norm, profile, quotient, product. The
compiled one is the same under torch.compile, left out where there is no compiler.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from typing import Any

import torch
from inference import relu_network
from timing import finish, interleave, show
from torch import Tensor, nn

import radnet
from radnet.native.library import LIBRARY

FULL = (2, 16, 64, 128, 16, 2)
Step = Callable[[], None]


class AsThePaperSays(nn.Module):
    """``h(|v|) v/|v|`` after each linear layer but the last, with the radial sigmoid of experiment 3."""

    def __init__(self, net: radnet.RadNet) -> None:
        super().__init__()
        self.layers = copy.deepcopy(net.layers)

    def forward(self, x: Tensor) -> Tensor:
        """Layer by layer."""
        *hidden, last = self.layers
        for layer in hidden:
            v = layer(x)
            r = v.norm(dim=1, keepdim=True)
            x = torch.sigmoid(r) / r * v
        out: Tensor = last(x)
        return out


def step(model: Any, parameters: Any, x: Tensor, y: Tensor) -> Step:
    """Forward, backward and a step of plain gradient descent."""
    optimizer = torch.optim.SGD(list(parameters), lr=1e-3)

    def one() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return one


def experiment_3() -> dict[str, Any]:
    """The full and the reduced network on 14,641 samples."""
    axis = -3 + torch.arange(121) / 20
    x = torch.cartesian_prod(axis, axis)
    y = torch.exp(-x * x)
    full = radnet.RadNet(FULL, "sigmoid", init="linear", generator=torch.Generator().manual_seed(0))
    small = radnet.compress(full, x[:64]).network
    runs: dict[str, Step] = {}
    for name, net in (("reduced", small), ("full", full)):
        plain = AsThePaperSays(net)
        runs[f"{name}, the paper's text"] = step(plain, plain.parameters(), x, y)
        runs[f"{name}, radnet"] = step(net, net.parameters(), x, y)
    columns = radnet.columns.Columns(copy.deepcopy(small))
    runs["reduced, by columns"] = step(columns, columns.parameters(), x, y)
    if shutil.which("c++"):
        plain = AsThePaperSays(small)
        runs["reduced, text compiled"] = step(torch.compile(plain), plain.parameters(), x, y)
    times = interleave(runs, rounds=25, warmup=5)
    show("a training step of experiment 3, 14,641 samples, float32", times, "reduced, radnet")
    return times


def beside_relu() -> dict[str, Any]:
    """Wide networks: what one pays for a norm instead of a maximum."""
    found = {}
    for n in (256, 1024):
        widths = (64, n, n, 10)
        x, y = torch.randn(256, 64), torch.randn(256, 10)
        relu, net = relu_network(widths), radnet.RadNet(widths, "squash")
        runs = {"ReLU": step(relu, relu.parameters(), x, y), "radnet": step(net, net.parameters(), x, y)}
        times = interleave(runs, rounds=60, warmup=5)
        show(f"a training step of {widths}, batch 256, float32", times, "ReLU")
        found[str(widths)] = times
    return found


def main() -> None:
    """Print the tables."""
    torch.manual_seed(0)
    print("compiled kernels" if LIBRARY is not None else "no compiled kernels")
    finish({"native": LIBRARY is not None, "experiment 3": experiment_3(), "beside ReLU": beside_relu()})


if __name__ == "__main__":
    main()
