"""The contestants that are networks: each as wide as the number of parameters that may ship allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..initialization import draw_like_linear
from ..models import BlockRadialMLP, CoordinateNet

#: entries of a block, and how many times as wide as what ships a network is that is trained wide
SIZE, WIDER = 3, 8
#: widest hidden layer of any contestant
WIDEST = 4096


class Task(NamedTuple):
    """What a network is built for: its inputs and outputs, what it may ship, and a few rows of the inputs."""

    inputs: int
    outputs: int
    parameters: int
    rows: Tensor


class Knobs(NamedTuple):
    """What the search draws, the same for every contestant: numbers in [0, 1), and what they stand for."""

    rate: float
    decay: float
    depth: float
    scale: float

    def hidden_layers(self, *choices: int) -> int:
        """One of some depths."""
        return choices[int(self.depth * len(choices))]

    def between(self, low: float, high: float) -> float:
        """A scale, evenly on a logarithmic axis."""
        return float(low * (high / low) ** self.scale)

    def settings(self) -> tuple[float, float]:
        """Learning rate and weight decay.

        >>> Knobs(0.5, 0.9, 0.0, 0.0).settings()
        (0.01, 0.01)
        """
        return round(1e-3 * 100**self.rate, 12), 0.0 if self.decay < 0.5 else 1e-2


Build = Callable[[Task, Knobs, torch.Generator], nn.Sequential]


@dataclass(frozen=True)
class Network:
    """A contestant: a name, what it is in a few words, and how it is built for a task."""

    name: str
    about: str
    build: Build
    radial: bool = False  # whether it is compressed before it ships
    ranked: bool = True  # not for what is another training of a contestant


def widest(count: Callable[[int], int], most: int) -> int:
    """The largest k up to `WIDEST` for which ``count(k)`` is at most ``most``; 1 if there is none.

    >>> widest(lambda k: 10 * k + 1, 100)
    9
    """
    low, high = 1, WIDEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= most else (low, middle)
    return low


def dense(widths: Sequence[int]) -> int:
    """Weights and biases of linear layers between these widths.

    >>> dense((2, 3, 1))
    13
    """
    return sum((n + 1) * m for n, m in itertools.pairwise(widths))


def _linear(n: int, m: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(n, m, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        draw_like_linear(layer.weight, layer.bias, generator)
    return layer


def pointwise(
    activation: Callable[[], nn.Module], task: Task, knobs: Knobs, generator: torch.Generator
) -> nn.Sequential:
    """Linear layers with a function of each entry between them."""
    depth = knobs.hidden_layers(1, 2)
    k = widest(lambda k: dense((task.inputs, *[k] * depth, task.outputs)), task.parameters)
    widths = (task.inputs, *[k] * depth)
    parts: list[nn.Module] = []
    for n, m in itertools.pairwise(widths):
        parts += [_linear(n, m, generator), activation()]
    return nn.Sequential(*parts, _linear(k, task.outputs, generator))


class Sine(nn.Module):
    """``sin(w x)``."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        """Each entry."""
        return torch.sin(self.frequency * x)


def sines(task: Task, knobs: Knobs, generator: torch.Generator) -> nn.Sequential:
    """A network of sines (Sitzmann et al. 2020), with weights that keep what arrives at them level with depth."""
    w = knobs.between(0.3, 30.0)
    net = pointwise(partial(Sine, w), task, knobs, generator)
    with torch.no_grad():
        for i, layer in enumerate(m for m in net if isinstance(m, nn.Linear)):
            bound = 1 / layer.in_features if i == 0 else math.sqrt(6 / layer.in_features) / w
            layer.weight.uniform_(-bound, bound, generator=generator)
    return net


class Waves(nn.Module):
    """Fixed random Fourier features: ``(sin Bx, cos Bx)``; B ships as weights do."""

    def __init__(self, n: int, count: int, frequency: float, generator: torch.Generator) -> None:
        super().__init__()
        self.B = nn.Parameter(frequency * torch.randn(count, n, generator=generator), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Twice as many features as B has rows."""
        y = x @ self.B.T
        return torch.cat([y.sin(), y.cos()], dim=-1)


def fourier(task: Task, knobs: Knobs, generator: torch.Generator) -> nn.Sequential:
    """Random Fourier features (Tancik et al. 2020), and a ReLU network on them."""
    depth = knobs.hidden_layers(1, 2)

    def count(k: int) -> int:
        return task.inputs * math.ceil(k / 2) + dense((2 * math.ceil(k / 2), *[k] * depth, task.outputs))

    k = widest(count, task.parameters)
    frequency = knobs.between(0.2, 20.0) / math.sqrt(task.inputs)  # of a column; what is drawn is that of a row
    features = Waves(task.inputs, math.ceil(k / 2), frequency, generator)
    wide = Task(2 * math.ceil(k / 2), task.outputs, task.parameters - features.B.numel(), task.rows)
    return nn.Sequential(features, *pointwise(nn.ReLU, wide, knobs, generator))


class Centres(nn.Module):
    """``exp(-|x - c|^2 / (2 s^2))`` for some centres c, each with a width s of its own."""

    def __init__(self, centres: Tensor, width: float) -> None:
        super().__init__()
        self.centres = nn.Parameter(centres.clone())
        self.log_width = nn.Parameter(torch.full((len(centres),), math.log(width)))

    def forward(self, x: Tensor) -> Tensor:
        """A number for each centre."""
        squares = x.square().sum(-1, keepdim=True) - 2 * x @ self.centres.T + self.centres.square().sum(-1)
        return torch.exp(-0.5 * squares.clamp(min=0) * torch.exp(-2 * self.log_width))


def rbf(task: Task, knobs: Knobs, generator: torch.Generator) -> nn.Sequential:
    """Gaussians around rows of the data, and a linear layer."""
    k = widest(lambda k: k * (task.inputs + 1) + dense((k, task.outputs)), task.parameters)
    k = min(k, len(task.rows))
    chosen = torch.randperm(len(task.rows), generator=generator)[:k]
    width = knobs.between(0.3, 3.0) * math.sqrt(task.inputs)
    return nn.Sequential(Centres(task.rows[chosen], width), _linear(k, task.outputs, generator))


def shipped_widths(task: Task, depth: int) -> list[int]:
    """Hidden widths that a radial network of a depth ships with: as many as there are directions, or may ship."""

    def widths(k: int) -> list[int]:
        return [min(k, task.inputs + i) for i in range(1, depth + 1)]

    k = widest(lambda k: dense((task.inputs, *widths(k), task.outputs)) + depth, task.parameters)
    return widths(k)


def radial(task: Task, knobs: Knobs, generator: torch.Generator, *, wide: bool) -> nn.Sequential:
    """The paper's network, one norm a layer, with trainable shifts: as it ships, or wide where it can shrink so far."""
    shipped = shipped_widths(task, knobs.hidden_layers(2, 4, 6))
    full = all(k == task.inputs + i for i, k in enumerate(shipped, start=1))
    hidden = [(1, WIDER * k if wide and full else k) for k in shipped]
    return BlockRadialMLP(task.inputs, hidden, task.outputs, profile="squash", generator=generator)


def _shifted(task: Task, layers: Sequence[int]) -> int:
    """Weights, biases and shifts of hidden layers with so many blocks."""
    return dense((task.inputs, *(SIZE * k for k in layers), task.outputs)) + sum(layers)


def _streamed(task: Task, layers: Sequence[int]) -> int:
    """The same in a residual stream as wide as the first layer, with a norm before each."""
    n = SIZE * layers[0]
    within = sum(n + dense((n, SIZE * k, n)) + k for k in layers)
    return dense((task.inputs, n)) + within + dense((n, task.outputs))


def _filled(task: Task, depth: int, count: Callable[[Task, Sequence[int]], int]) -> list[tuple[int, int]]:
    """Hidden layers with as many blocks as may ship: all alike, and then the last one wider."""
    k = widest(lambda k: count(task, [k] * depth), task.parameters)
    last = widest(lambda j: count(task, [*[k] * (depth - 1), j]), task.parameters) if depth > 1 else k
    return [*[(k, SIZE)] * (depth - 1), (last, SIZE)]


def blocks(task: Task, knobs: Knobs, generator: torch.Generator) -> nn.Sequential:
    """`BlockRadialMLP` as it comes: blocks of 3, sin(r - t), a trainable shift for each."""
    hidden = _filled(task, knobs.hidden_layers(1, 2), _shifted)
    return BlockRadialMLP(task.inputs, hidden, task.outputs, generator=generator)


def stream(task: Task, knobs: Knobs, generator: torch.Generator) -> nn.Sequential:
    """The same blocks in a residual stream with norms."""
    hidden = _filled(task, knobs.hidden_layers(1, 2), _streamed)
    return BlockRadialMLP(task.inputs, hidden, task.outputs, residual=True, generator=generator)


def waves(task: Task, knobs: Knobs, generator: torch.Generator) -> nn.Sequential:
    """`CoordinateNet`: the same blocks, the first layer of which begins as waves."""
    frequency = knobs.between(0.5, 50.0) / math.sqrt(task.inputs)
    hidden = _filled(task, knobs.hidden_layers(1, 2), _shifted)
    return CoordinateNet(task.inputs, task.outputs, hidden, frequency=frequency, generator=generator)


NETWORKS = (
    Network("ReLU", "linear layers and ReLU", partial(pointwise, nn.ReLU)),
    Network("GELU", "linear layers and GELU", partial(pointwise, nn.GELU)),
    Network("sine", "SIREN: sines and their initialisation", sines),
    Network("Fourier", "random Fourier features and a ReLU network", fourier),
    Network("RBF", "Gaussians around rows", rbf),
    Network("radial", "one norm a layer, trained as it ships", partial(radial, wide=False), radial=True),
    Network("radial, wide", "the same trained 8 times as wide", partial(radial, wide=True), radial=True, ranked=False),
    Network("blocks", "BlockRadialMLP as it comes", blocks, radial=True),
    Network("blocks, residual", "BlockRadialMLP in a residual stream", stream, radial=True),
    Network("blocks, waves", "CoordinateNet", waves, radial=True),
)
