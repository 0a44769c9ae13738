"""Small networks without a gradient, at batch 1 and 256: activations and whole networks beside the obvious ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from timing import finish, interleave, show
from torch import Tensor, nn

import radnet

Run = Callable[[], object]
#: a compressed network, and what it was before
SMALL, WIDE = (30, 31, 32, 2), (30, 512, 512, 512, 1)


def naive_squash(v: Tensor) -> Tensor:
    """``v * (h(r)/r)`` as one writes it down first; NaN at v = 0 included."""
    r: Tensor = v.norm(dim=-1, keepdim=True)
    return v * ((r * r / (r * r + 1)) / r)


def relu_network(widths: Sequence[int]) -> nn.Sequential:
    """The ReLU network of these widths."""
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def half_zero(v: Tensor) -> Tensor:
    """Every second row 0, as a Step-ReLU leaves them."""
    v = v.clone()
    v[::2] = 0
    return v


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results = {}
    with torch.no_grad():
        for rows in (1, 64):
            v = torch.randn(rows, 64)
            runs: dict[str, Run] = {
                "radnet": partial(radnet.Squash(), v),
                "naive composition": partial(naive_squash, v),
                "F.layer_norm": partial(F.layer_norm, v, (64,)),
                "F.relu": partial(F.relu, v),
            }
            times = interleave(runs, 3000, warmup=100)
            show(f"squash alone, no gradient, {rows} x 64, float32, one thread", times, "naive composition")
            results[f"squash {rows}x64"] = times
        v = torch.randn(64, 64)
        steps: dict[str, Run] = {
            "no row is 0": partial(radnet.StepReLU(), v),
            "half of them are": partial(radnet.StepReLU(), half_zero(v)),
        }
        times = interleave(steps, 2000, warmup=100)
        show("Step-ReLU, no gradient, 64 x 64, float32, one thread", times, "no row is 0")
        results["step_relu 64x64"] = times
        wide = radnet.RadNet(WIDE, "squash")
        networks = {
            f"radnet {SMALL}": radnet.RadNet(SMALL, "squash"),
            f"ReLU {SMALL}": relu_network(SMALL),
            f"radnet {WIDE}, compressed": radnet.compress(wide).network,
            f"ReLU {WIDE}": relu_network(WIDE),
        }
        for rows in (1, 256):
            x = torch.randn(rows, 30)
            times = interleave({name: partial(net, x) for name, net in networks.items()}, 1000, warmup=50)
            show(f"networks, no gradient, batch {rows}, float32, one thread", times, f"ReLU {SMALL}")
            results[f"networks, batch {rows}"] = times
    finish({"inference": results})


if __name__ == "__main__":
    main()
