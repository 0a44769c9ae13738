"""Experiment 4: from which of three images does a noisy one derive? A Step-ReLU radial network against a ReLU network.

Paper: "Experiments" (4) and "Implementation details" (4). At the start hidden norms are 10 to 20, so Step-ReLU, which
acts below 1, may never act, and the radial network is then a linear one. So a linear network of the same widths is run
beside the two, the share of rows on which each layer acts is recorded at every epoch, and a variant is added whose
inputs are scaled so that the step does act.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..activations import StepReLU
from ..errors import InvalidValue
from ..initialization import draw_like_linear
from ..network import RadNet
from .images import noisy_copies
from .lossless import Figure

PAPER = {  # App. E.2 (4): losses; all accuracies are 1
    ("radial", "train"): Figure(0.00256, 3.074e-4),
    ("relu", "train"): Figure(0.00393, 3.992e-4),
    ("radial", "test"): Figure(0.00266, 3.749e-4),
    ("relu", "test"): Figure(0.0041, 4.442e-4),
}
CONTESTANTS = ("radial", "relu", "linear", "scaled")


@dataclass(frozen=True)
class Settings:
    """As printed, with the place in the paper."""

    digit: int = 3  # fig:noisy-threes
    originals: int = 3  # n, App. E.2 (4)
    copies: int = 100  # m
    noise_scale: float = 3.0  # 0.5 in the published script, whatever is passed to it
    train: int = 240  # of originals * copies
    epochs: int = 150
    rate: float = 0.05
    trials: int = 10


@dataclass(frozen=True)
class Run:
    """One network of one trial: losses and accuracies at the end, the loss and what Step-ReLU did at every epoch."""

    train_loss: float
    test_loss: float
    train_accuracy: float
    test_accuracy: float
    losses: tuple[float, ...]
    acting: tuple[tuple[float, ...], ...]  # for each epoch and hidden layer, the share of rows shorter than 1


@dataclass(frozen=True)
class Result:
    """The runs of each contestant, trial by trial."""

    noise_scale: float
    runs: dict[str, tuple[Run, ...]]

    def figure(self, contestant: str, value: str) -> Figure:
        """Mean and deviation over the trials, of "train_loss" and the like."""
        values = [getattr(run, value) for run in self.runs[contestant]]
        return Figure(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def run(settings: Settings, images: Tensor, seed: int = 0, progress: Callable[[int], None] | None = None) -> Result:
    """Run experiment 4 on images of one digit (`images.digits`); ``progress`` is told how many trainings are done.

    Examples
    --------
    >>> x = torch.rand(20, 9, generator=torch.Generator().manual_seed(0))
    >>> result = run(Settings(trials=1, epochs=2, copies=8, train=20), x)
    >>> sorted(result.runs), len(result.runs["radial"][0].losses)
    (['linear', 'radial', 'relu', 'scaled'], 2)
    """
    total = settings.originals * settings.copies
    if settings.trials < 1 or settings.epochs < 1:
        raise InvalidValue(f"{settings.trials} trials of {settings.epochs} epochs: at least 1 of each is needed")
    if not 0 < settings.train < total:
        raise InvalidValue(f"{settings.train} of {total} rows for training: some must be left for testing")
    if len(images) < settings.originals:
        raise InvalidValue(f"{len(images)} images: {settings.originals} with the same label are needed")
    runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
    for trial in range(settings.trials):
        generator = torch.Generator().manual_seed(seed + trial)
        split = make_data(settings, images, generator)
        for name in CONTESTANTS:
            runs[name].append(_train(name, settings, split, torch.Generator().manual_seed(seed + trial)))
            if progress is not None:
                progress(sum(map(len, runs.values())))
    return Result(settings.noise_scale, {name: tuple(part) for name, part in runs.items()})


@dataclass(frozen=True)
class Split:
    """Inputs and labels to train and to test on."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def make_data(settings: Settings, images: Tensor, generator: torch.Generator) -> Split:
    """Noisy copies of a few images, shuffled and split."""
    chosen = images[torch.randperm(len(images), generator=generator)[: settings.originals]]
    x = noisy_copies(chosen, settings.copies, settings.noise_scale, generator).flatten(0, 1)
    y = torch.arange(settings.originals).repeat_interleave(settings.copies)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[: settings.train], order[settings.train :]
    return Split(x[train], y[train], x[test], y[test])


def make_network(name: str, d: int, classes: int, generator: torch.Generator) -> nn.Module:
    """Widths (d, d+1, d+2, classes) for every contestant, initialised as nn.Linear is."""
    widths = (d, d + 1, d + 2, classes)
    if name != "relu":
        activation = "identity" if name == "linear" else "step_relu"
        return RadNet(widths, activation, init="linear", generator=generator)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    with torch.no_grad():
        for layer in layers:
            draw_like_linear(layer.weight, layer.bias, generator)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def _train(name: str, settings: Settings, split: Split, generator: torch.Generator) -> Run:
    net = make_network(name, split.x.shape[1], settings.originals, generator)
    factor = _scale(net, split.x) if name == "scaled" else 1.0
    x, x_test = factor * split.x, factor * split.x_test
    optimizer = torch.optim.SGD(net.parameters(), lr=settings.rate)
    losses, acting = [], []
    for _ in range(settings.epochs):
        acting.append(_acting(net, x))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), split.y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        train, test = net(x), net(x_test)
    return Run(
        float(nn.functional.cross_entropy(train, split.y)),
        float(nn.functional.cross_entropy(test, split.y_test)),
        float((train.argmax(1) == split.y).float().mean()),
        float((test.argmax(1) == split.y_test).float().mean()),
        tuple(losses),
        tuple(acting),
    )


@torch.no_grad()
def _scale(net: nn.Module, x: Tensor) -> float:
    """The factor of the inputs for which half of the first hidden norms are below 1, where Step-ReLU acts."""
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        norms = net.layers[0](middle * x).norm(dim=1)  # type: ignore[index, operator]
        low, high = (middle, high) if float(norms.median()) < 1 else (low, middle)
    return low


@torch.no_grad()
def _acting(net: nn.Module, x: Tensor) -> tuple[float, ...]:
    """Share of rows that Step-ReLU sends to 0, for each hidden layer; nothing for other networks."""
    if not isinstance(net, RadNet) or not isinstance(net.activations[0], StepReLU):
        return ()
    return tuple(float((state == 0).all(dim=1).float().mean()) for state in net.partial(x)[1:-1])
