"""Experiment 1: compression changes nothing, measured.

Paper: "Experiments" (1) and "Implementation details" (1). Networks as nn.Linear initialises them, not trained; shifts
start at -U(0, 1). The printed 1.31e-8 is what float32 gives; float64 is run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compression import compress
from ..network import RadNet
from .basics import check_counts
from .experiment import Experiment, Headline, Line, Outcomes, Part, QuickLook, Row, Tell
from .figure import Figure, number

NUMBER = 1
PAPER = Figure(1.31e-8, 4.45e-9)  # §7 (1)
#: a float32 figure at the level of rounding agrees with the paper's if it is within this factor
WITHIN = 3.0


@dataclass(frozen=True)
class Settings:
    """As printed, with the place in the paper."""

    widths: tuple[int, ...] = (1, 6, 7, 1)  # §7 (1)
    samples: int = 121  # App. E.2 (1): x_j = -3 + j/20, 0 <= j < 121
    activation: str = "sigmoid"  # §7 (1): h(x) = 1/(1 + e^(-x+s)), s trainable
    dtypes: tuple[str, ...] = ("float32", "float64")  # the paper's figure is float32


@dataclass(frozen=True)
class Trial:
    """One initialisation: mean |F - F_red| over the samples, for each dtype."""

    reduced_widths: tuple[int, ...]
    errors: dict[str, float]


def trial(settings: Settings, seed: int, tell: Tell = lambda share: None) -> Trial:
    """Compress one random network and measure the difference on the samples.

    Examples
    --------
    >>> trial(Settings(), seed=0).reduced_widths
    (1, 2, 3, 1)
    """
    check_counts(samples=settings.samples)
    errors = {}
    for k, dtype in enumerate(settings.dtypes, 1):
        net = initial_network(settings, getattr(torch, dtype), seed)
        compression = compress(net, samples(settings, net.weights[0]))
        errors[dtype] = compression.certificate.mean_gap
        tell(k / len(settings.dtypes))
    return Trial(compression.network.widths, errors)


def figure(trials: Sequence[Trial], dtype: str) -> Figure:
    """The number the paper prints."""
    return Figure.of(t.errors[dtype] for t in trials)


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


def samples(settings: Settings, like: Tensor) -> Tensor:
    """``x_j = -3 + j/20`` as rows, in the dtype of a weight."""
    return (-3 + torch.arange(settings.samples, dtype=torch.float64) / 20).to(like).unsqueeze(1)


def _rows(outcomes: Outcomes[Settings, Trial]) -> list[Row]:
    trials = outcomes["initialisations"].trials
    single, double = (figure(trials, dtype) for dtype in ("float32", "float64"))
    name = "mean |F − F_red|"
    within = PAPER.mean / WITHIN <= single.mean <= PAPER.mean * WITHIN
    return [
        Row(NUMBER, "float32", name, len(trials), single, PAPER, within, f"within a factor of {WITHIN:g}"),
        Row(NUMBER, "float64", name, len(trials), double, None, double.mean < 1e-15, "below 1e-15"),
    ]


def _findings(outcomes: Outcomes[Settings, Trial]) -> list[str]:
    trials = outcomes["initialisations"].trials
    single, double = (max(t.errors[dtype] for t in trials) for dtype in ("float32", "float64"))
    return [
        f"In the worst of {len(trials)} initialisations the big and the small network differ by {number(single)} in "
        f"float32 and by {number(double)} in float64, on average over the samples."
        + (" It is rounding: it follows the precision." if 0 < double < single * 1e-6 else "")
    ]


def _headline(outcomes: Outcomes[Settings, Trial]) -> Headline:
    _, double = _rows(outcomes)
    worst = max(t.errors["float64"] for t in outcomes["initialisations"].trials)
    said = f"In the worst case the small network is off by {number(worst)} in float64"
    if double.agrees:
        return Headline("Lossless", f"{said}: rounding, and nothing else.", True)
    return Headline("Not lossless", f"{said}.", False)


def _table(t: Trial, seed: int) -> list[Line]:
    return [{"dtype": dtype, "error": error} for dtype, error in t.errors.items()]


EXPERIMENT = Experiment(
    number=NUMBER,
    title="Compression changes nothing",
    printed=True,
    settings=Settings,
    result=Trial,
    parts=(Part("initialisations", Settings(), 10),),  # §7 (1)
    quick=QuickLook({}, 10),
    seconds=0.1,
    trial=trial,
    rows=_rows,
    findings=_findings,
    headline=_headline,
    table=_table,
)
