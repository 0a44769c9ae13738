"""Experiment 1: compression changes nothing, measured.

Paper: "Experiments" (1) and "Implementation details" (1). Networks as nn.Linear initialises them, not trained; shifts
start at -U(0, 1). The printed 1.31e-8 is what float32 gives; float64 is run beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..compression import compress
from ..errors import InvalidValue
from ..network import RadNet


@dataclass(frozen=True)
class Settings:
    """As printed, with the place in the paper."""

    widths: tuple[int, ...] = (1, 6, 7, 1)  # §7 (1)
    samples: int = 121  # App. E.2 (1): x_j = -3 + j/20, 0 <= j < 121
    initialisations: int = 10  # §7 (1)
    activation: str = "sigmoid"  # §7 (1): h(x) = 1/(1 + e^(-x+s)), s trainable
    dtypes: tuple[str, ...] = ("float32", "float64")  # the paper's figure is float32


@dataclass(frozen=True)
class Figure:
    """Mean and standard deviation, over the initialisations, of the mean absolute error over the samples."""

    mean: float
    std: float


PAPER = Figure(1.31e-8, 4.45e-9)  # §7 (1)


@dataclass(frozen=True)
class Result:
    """What came out, for one dtype."""

    dtype: str
    reduced_widths: tuple[int, ...]
    errors: tuple[float, ...]

    @property
    def figure(self) -> Figure:
        """The number the paper prints."""
        return Figure(statistics.mean(self.errors), statistics.stdev(self.errors) if len(self.errors) > 1 else 0.0)


def run(settings: Settings, seed: int = 0, progress: Callable[[int], None] | None = None) -> list[Result]:
    """Run experiment 1; ``progress`` is told after each initialisation how many are done.

    Examples
    --------
    >>> results = run(Settings(initialisations=2))
    >>> [r.reduced_widths for r in results]
    [(1, 2, 3, 1), (1, 2, 3, 1)]
    """
    if settings.initialisations < 1:
        raise InvalidValue(f"{settings.initialisations} trials: at least 1 is needed")
    results = []
    for k, dtype in enumerate(settings.dtypes):
        errors = []
        for trial in range(settings.initialisations):
            net = initial_network(settings, getattr(torch, dtype), seed + trial)
            x = (-3 + torch.arange(settings.samples, dtype=torch.float64) / 20).to(net.weights[0]).unsqueeze(1)
            compression = compress(net, x)
            errors.append(compression.certificate.mean_gap)
            if progress is not None:
                progress(k * settings.initialisations + trial + 1)
        results.append(Result(dtype, compression.network.widths, tuple(errors)))
    return results


def initial_network(settings: Settings, dtype: torch.dtype, seed: int) -> RadNet:
    """The network of one trial: nn.Linear's initialisation, shifts -U(0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    net = RadNet(
        settings.widths, settings.activation, shift="trainable", init="linear", generator=generator, dtype=dtype
    )
    with torch.no_grad():
        for rho in net.activations[:-1]:
            if rho.shift is not None:
                rho.shift.copy_(-torch.rand((), generator=generator))
    return net
