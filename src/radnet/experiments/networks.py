"""Feedforward networks that are not radial throughout, to set beside those that are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import nn

from ..initialization import draw_like_linear


def feedforward(
    widths: Sequence[int], activation: Callable[[int], nn.Module], generator: torch.Generator
) -> nn.Sequential:
    """Linear layers, initialised as nn.Linear is, and between them ``activation(width)``.

    >>> feedforward((2, 3, 1), lambda width: nn.ReLU(), torch.Generator())
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
      (2): Linear(in_features=3, out_features=1, bias=True)
    )
    """
    modules: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layer = nn.Linear(a, b)
        with torch.no_grad():
            draw_like_linear(layer.weight, layer.bias, generator)
        modules += [layer, activation(b)]
    return nn.Sequential(*modules[:-1])
