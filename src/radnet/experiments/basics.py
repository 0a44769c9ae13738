"""What the trials of all experiments share: seeds and counts."""

from __future__ import annotations

import torch

from ..checks import check_count


def streams(seed: int) -> tuple[torch.Generator, torch.Generator]:
    """Two generators that have nothing to do with each other: one for data, one for weights."""
    return torch.Generator().manual_seed(2 * seed), torch.Generator().manual_seed(2 * seed + 1)


def check_counts(**counts: int) -> None:
    """Refuse a number of trials, epochs and the like that is not at least 1.

    >>> check_counts(trials=0)
    Traceback (most recent call last):
    radnet.errors.InvalidValue: trials=0: at least 1 is needed
    """
    for name, value in counts.items():
        check_count(name, value)
