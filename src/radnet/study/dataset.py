"""What a data set is: rows of numbers with targets or classes, where they come from, and which half it belongs to."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
#: inputs, a row each, and targets: a row of numbers each, or a whole number that names the class
Loaded: TypeAlias = "tuple[Array, npt.NDArray[np.generic]]"


@dataclass(frozen=True)
class DataSet:
    """A data set of the study.

    Attributes
    ----------
    name : str
    kind : str
        "table" (measured), "formula", "motion" or "field".
    source : str
        Where it comes from, or its formula.
    load : callable
        Gives the inputs and the targets, the same every time.
    parameters : int
        How many numbers every network may ship with.
    aside : bool
        Whether it was set aside: nothing was chosen by looking at it.
    classes : int or None
        How many there are, if the targets are classes.
    alike : bool
        Whether all columns are of one kind, as pixels are: then they are scaled by one number, and those that hardly
        ever change stay small.
    """

    name: str
    kind: str
    source: str
    load: Callable[[], Loaded]
    parameters: int
    aside: bool
    classes: int | None = None
    alike: bool = False

    @property
    def seed(self) -> int:
        """A number that is its own.

        >>> from radnet.study.data import named
        >>> named("iris").seed == named("wine").seed
        False
        """
        return zlib.crc32(self.name.encode())


def drawn(rows: int, low: Array | float, high: Array | float, columns: int, seed: int) -> Array:
    """Rows drawn evenly from a box."""
    return np.random.default_rng(seed).uniform(low, high, (rows, columns))
