"""How cost grows: with width, depth, batch and the number of balls; the exponents are those of the upper half."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..approximation import Box, approximate
from ..compression.chain import qr_compress
from ..network import RadNet
from .comparisons import SMALL
from .timing import Run, Tell, Times, interleave

#: a size, and what is run for it
Sized = tuple[int, Run]


class Point(NamedTuple):
    """A size and what it took."""

    size: int
    times: Times


@dataclass(frozen=True)
class Curve:
    """What is run for each size, and the sizes: few of them for a quick look."""

    name: str
    along: str
    run: Callable[[int], Sized]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]

    def measured(self, *, quick: bool, tell: Tell | None = None) -> list[Point]:
        """The points; sizes take turns, so that noise hits all alike."""
        sizes = self.quick if quick else self.sizes
        runs = dict(self.run(size) for size in sizes)
        named = {str(size): run for size, run in runs.items()}
        times = interleave(named, rounds=3 if quick else 5, warmup=1, tell=tell)
        return [Point(size, times[str(size)]) for size in runs]


def exponent(points: list[Point]) -> float:
    """The p of ``time ~ size^p`` through the upper half of the points, by least squares.

    >>> exponent([Point(n, Times(n**2, 0, 0)) for n in (1, 2, 4, 8)])
    2.0
    """
    upper = points[len(points) // 2 - 1 :] if len(points) > 2 else points
    xs = [math.log(p.size) for p in upper]
    ys = [math.log(p.times.median_ms) for p in upper]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return round(above / sum((x - mean_x) ** 2 for x in xs), 3)


def _compressing(width: int) -> Sized:
    net = RadNet((16, width, width, 10), "squash", init="linear")
    return width, lambda: qr_compress(net.weights, net.biases)


def _deep(depth: int) -> Sized:
    net, x = RadNet((16, *[64] * depth, 10), "squash"), torch.randn(256, 16)
    return depth, torch.no_grad()(partial(net, x))


def _batch(rows: int) -> Sized:
    net, x = RadNet(SMALL, "squash"), torch.randn(rows, SMALL[0])
    return rows, torch.no_grad()(partial(net, x))


def _bell(x: Tensor) -> Tensor:
    return torch.exp(-x.square().sum(1))


def _balls(about: int) -> Sized:
    """A network with one hidden layer a ball; how many there are follows from the error that is asked for."""
    eps = 3.2 / about**0.5
    a = approximate(_bell, Box([-3, -3], [3, 3]), eps, lipschitz=0.8578, width="n+m+1", max_balls=4 * about + 100)
    x = 6 * torch.rand(1000, 2, dtype=torch.float64) - 3
    return a.certificate.hidden_layers, torch.no_grad()(partial(a.network, x))


CURVES = (
    Curve("compressing (16, n, n, 10)", "width", _compressing, tuple(2**k for k in range(6, 14)), (64, 128, 256, 512)),
    Curve("64 wide, batch 256", "depth", _deep, (2, 4, 8, 16, 32, 64), (2, 8, 32)),
    Curve(f"{SMALL}", "batch", _batch, tuple(4**k for k in range(9)), (1, 64, 4096)),
    Curve("a ball a layer, 1,000 points", "number of balls", _balls, (10, 100, 1000, 5000, 20_000), (10, 100, 1000)),
)
