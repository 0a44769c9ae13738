"""What compression costs where nothing can be gained: spaces, bases and changes beside a forward pass of the model.

The model is traced once; then the analysis (spaces, ranks, new weights) is timed in turns with a forward pass. The
``whole`` is all that `compress` does before it judges: tracing and running the model are in it. The certificate stands
beside a forward pass of the given rows in float64; the last case is one where much is gained, so that rounding has to
be told from a difference.
"""

from __future__ import annotations

import copy
import itertools
import resource
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from timing import finish, interleave, show
from torch import Tensor, nn

import radnet
from radnet.compression.certifying import run_as_stored
from radnet.compression.chain import qr_compress
from radnet.compression.judging.judge import judge
from radnet.compression.pipeline import Wish, compress_model, follower_of, made_smaller
from radnet.compression.program import Step
from radnet.compression.spaces.bases import lay_out
from radnet.compression.spaces.follow import Analysis
from radnet.compression.surgery import changes
from radnet.compression.tracing.fx import trace
from radnet.running import Call


@dataclass(frozen=True)
class Case:
    """A model, the inputs it is traced with, and those of the forward pass that it is compared with."""

    model: nn.Module
    x: Tensor
    forward: Callable[[], object]
    rounds: int = 5


class Block(nn.Module):
    """Two convolutions with BatchNorm and ReLU, and a shortcut."""

    def __init__(self, n: int, m: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.Conv2d(m, m, 3, 1, 1, bias=False)
        self.norm_a, self.norm_b, self.relu = nn.BatchNorm2d(m), nn.BatchNorm2d(m), nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or n != m:
            self.shortcut = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m))

    def forward(self, x: Tensor) -> Tensor:
        """The sum, rectified."""
        y: Tensor = self.relu(self.norm_a(self.a(x)))
        out: Tensor = self.relu(self.norm_b(self.b(y)) + self.shortcut(x))
        return out


def residual_network() -> nn.Module:
    """18 layers of the kind and the widths of ResNet-18."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths, blocks = (64, 64, 64, 128, 128, 256, 256, 512, 512), []
    for n, m in itertools.pairwise(widths):
        blocks.append(Block(n, m, 1 if n == m else 2))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def perceptron(activation: Callable[[], nn.Module], n: int = 2048) -> nn.Sequential:
    """Three layers of n, and ten outputs."""
    return nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(n, n), activation())), nn.Linear(n, 10))


def deep(pairs: int) -> nn.Sequential:
    """Layers of 8, with an activation after each."""
    return nn.Sequential(*(m for _ in range(pairs) for m in (nn.Linear(8, 8), radnet.Squash())), nn.Linear(8, 2))


class Sum(nn.Module):
    """Many layers of one input, added up."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(3, 32) for _ in range(count))
        self.rho, self.head = radnet.Squash(), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        """The sum, rescaled and read."""
        total = self.parts[0](x)
        for part in self.parts[1:]:
            total = total + part(x)
        out: Tensor = self.head(self.rho(total))
        return out


def analysed(steps: list[Step], parameters: dict[str, Any]) -> None:
    """Spaces, bases and new weights of a program."""
    analysis = Analysis(steps, parameters, {})
    changes(analysis, lay_out(analysis, set(), None))


def cases() -> dict[str, Case]:
    """The models by name."""
    torch.manual_seed(0)
    full, rectified = perceptron(radnet.Squash).eval(), perceptron(nn.ReLU).eval()
    rows = torch.randn(4096, 2048)
    pictures, network = torch.randn(2, 3, 224, 224), residual_network().eval()
    blocks = nn.Sequential(nn.Linear(3, 4096), radnet.Squash(blocks=1024), nn.Linear(4096, 10)).eval()
    flat = nn.Sequential(nn.Flatten(), nn.Linear(150_528, 64), radnet.Squash(), nn.Linear(64, 10)).eval()
    layer = nn.Linear(150_528, 64).double()
    batch = pictures[:1].flatten(1).double()
    points, narrow, batch_of_points = torch.randn(4, 3), torch.randn(4, 8), torch.randn(512, 3)
    chain, total = deep(1200).eval(), Sum(1200).eval()
    wide = nn.Sequential(
        nn.Linear(64, 2048), radnet.Squash(), nn.Linear(2048, 2048), radnet.Squash(), nn.Linear(2048, 10)
    )
    many = torch.randn(1024, 64)
    return {
        "full width, 2048 x 3": Case(full, rows[:2], partial(full, rows)),
        "ReLU, 2048 x 3": Case(rectified, rows[:2], partial(rectified, rows)),
        "residual, 18 layers": Case(network, pictures, partial(network, pictures)),
        "1,024 blocks of 4": Case(blocks, points, partial(blocks, points)),
        "1,024 blocks of 4, 512 rows": Case(blocks, batch_of_points, partial(blocks, batch_of_points)),
        "flatten, 150,528 to 64": Case(flat, pictures[:1], partial(layer, batch)),
        "1,200 layers of 8": Case(chain, narrow, partial(chain, narrow), rounds=3),
        "sum of 1,200 layers": Case(total, points, partial(total, points), rounds=3),
        "64 to 2048 x 2, much to gain": Case(wide.eval(), many, partial(wide, many)),
    }


def main() -> None:
    data: dict[str, Any] = {}
    with torch.no_grad():
        for name, case in cases().items():
            steps, parameters = trace(case.model, (case.x,)), dict(case.model.named_parameters())
            wish = Wish(case.model, Call((case.x,)))
            follower = follower_of(wish)
            smaller = made_smaller(wish, follower)
            stored = run_as_stored(case.model, Call((case.x,)))  # the first thing that `compress` does
            judged: Any = {"shipped": smaller.network, "explored": follower.explored, "as_stored": stored}
            timed: dict[str, Callable[[], object]] = {
                "forward": case.forward,
                "analysis": partial(analysed, steps, parameters),
                "whole": partial(compress_model, case.model, (case.x,)),
                "in float64": partial(copy.deepcopy(case.model).double(), case.x.double()),
                "certificate": partial(judge, case.model, smaller.wide, case.x, **judged),
            }
            times = interleave(timed, rounds=case.rounds, warmup=1)
            show(name, times, "forward")
            ratios = {key: t["median_ms"] / times["forward"]["median_ms"] for key, t in times.items()}
            passes = times["certificate"]["median_ms"] / times["in float64"]["median_ms"]
            print(f"  the certificate costs {passes:.1f} float64 passes of the given rows")
            data[name] = {"times": times, "times_a_forward_pass": ratios, "passes_of_the_certificate": passes}
        net = radnet.RadNet((2048, 2048, 2048, 2048, 10), "squash", init="linear").eval()
        x = torch.randn(4096, 2048)
        times = interleave(
            {"forward": partial(net, x), "Algorithm 1": lambda: qr_compress(net.weights, net.biases)}, rounds=5
        )
        show("RadNet of full width, 2048 x 3", times, "forward")
        data["RadNet of full width, 2048 x 3"] = {"times": times}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest resident memory: {peak:,.0f} MB")
    finish({"cases": data, "peak_mb": peak})


if __name__ == "__main__":
    main()
