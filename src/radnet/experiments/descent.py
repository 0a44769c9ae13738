"""Experiment 2: projected descent on the big network is descent on the small one, measured.

Paper: "Experiments" (2) and "Implementation details" (2). The loss is the mean squared error: with the sum, which the
text has, a learning rate of 0.01 diverges. The printed figure is what float32 gives; float64 is run beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..compression import compress
from ..ensembles import fit_ensemble
from ..errors import InvalidValue
from . import lossless
from .lossless import Figure

PAPER = Figure(4.02e-9, 7.01e-9)  # §7 (2)


@dataclass(frozen=True)
class Settings(lossless.Settings):
    """As printed, with the place in the paper; network and samples are those of experiment 1."""

    epochs: int = 3000  # App. E.2 (2)
    rate: float = 0.01  # App. E.2 (2)


@dataclass(frozen=True)
class Result:
    """What came out, for one dtype: the two losses after training, for each initialisation."""

    dtype: str
    losses: tuple[float, ...]
    reduced_losses: tuple[float, ...]

    @property
    def figure(self) -> Figure:
        """|L - L_red| over the initialisations: the number the paper prints."""
        gaps = [abs(a - b) for a, b in zip(self.losses, self.reduced_losses, strict=True)]
        return Figure(statistics.mean(gaps), statistics.stdev(gaps) if len(gaps) > 1 else 0.0)


def run(settings: Settings, seed: int = 0, progress: Callable[[int], None] | None = None) -> list[Result]:
    """Run experiment 2; ``progress`` is told after each of the four trainings how many are done.

    Examples
    --------
    >>> results = run(Settings(initialisations=2, epochs=3))
    >>> [r.figure.mean < 1e-6 for r in results]
    [True, True]
    """
    if settings.initialisations < 1 or settings.epochs < 1:
        raise InvalidValue(
            f"{settings.initialisations} trials of {settings.epochs} epochs: at least 1 of each is needed"
        )
    results = []
    for k, dtype in enumerate(settings.dtypes):
        starts = [
            compress(lossless.initial_network(settings, getattr(torch, dtype), seed + trial))
            for trial in range(settings.initialisations)
        ]
        x = (-3 + torch.arange(settings.samples, dtype=torch.float64) / 20).unsqueeze(1)
        y = torch.exp(-x * x)
        losses = []
        for project, nets in ((True, [c.transformed() for c in starts]), (False, [c.network for c in starts])):
            data = (x.to(nets[0].weights[0]), y.to(nets[0].weights[0]))
            fit_ensemble(
                nets,
                data,
                epochs=settings.epochs,
                optimizer=lambda p: torch.optim.SGD(p, lr=settings.rate),
                project=project,
            )
            with torch.no_grad():
                losses.append(tuple(float(torch.nn.functional.mse_loss(net(data[0]), data[1])) for net in nets))
            if progress is not None:
                progress(2 * k + len(losses))
        results.append(Result(dtype, *losses))
    return results
