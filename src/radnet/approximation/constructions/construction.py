"""What a construction is, what it is given and what it returns, and the values of f snapped to a lattice.

Snapping: the values of the balls become ``offset + s V`` with V made of even integers. Values that differ do so by at
least 2 in units of s, so that Step-ReLU, whose threshold is 1, keeps them apart with a margin of 2; values that agree
agree exactly; and all the arithmetic between them is exact. It costs ``s sqrt(m)`` of the error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..covers import Cover
from ..domains import Array
from ..targets import Limit
from .deep import DeepNetwork

STEP_HEIGHT = 0.5  # h of the paper for every ball: exact in binary, and so is everything divided by it
UNIT = float(np.sqrt(1 - STEP_HEIGHT**2))  # the radius below which |(x - c, h)| < 1


class Outside(Protocol):
    """A function of the points that are in no ball, made of arrays only."""

    def __call__(self, x: Array) -> Array:
        """The output at each row."""
        ...

    def arrays(self) -> dict[str, Array]:
        """What it is made of, by the names its class takes."""
        ...


@dataclass(frozen=True)
class Snapped:
    """Values as ``offset + step V``, V of shape (N, m) with even integers."""

    V: Array
    step: float
    offset: Array

    @property
    def values(self) -> Array:
        """What the balls get."""
        return np.asarray(self.offset + self.step * self.V)


def snap(y: Array, quantum: float) -> Snapped:
    """The nearest points of the lattice of that quantum around the middle of the values."""
    offset = (y.min(0) + y.max(0)) / 2
    return Snapped(2 * np.round((y - offset) / quantum), quantum / 2, offset)


@dataclass(frozen=True, eq=False)
class Construction:
    """A network and what is known about it.

    Attributes
    ----------
    network : DeepNetwork
    outputs : array of shape (N, m)
        What the network returns in each ball, up to rounding.
    outside : Outside
        What it returns at points that are in no ball.
    rounding : function of u
        Bound on the rounding of the output in a ball, where u is the unit roundoff.
    far : function of u and |x|
        Bound on the rounding of the limit at points in no ball.
    margin : function of u
        By what factor the norms of all states that are not meant to be at a threshold avoid it; above 1 is safe.
    """

    network: DeepNetwork
    outputs: Array
    outside: Outside
    rounding: Callable[[float], float]
    far: Callable[[float, float], float]
    margin: Callable[[float], float]


@dataclass(frozen=True, eq=False)
class Materials:
    """What a network is built from: balls, the values they get, and the limit outside of them."""

    cover: Cover
    values: Array
    lattice: Snapped | None  # the values once they are snapped, for constructions that ask for it
    freedom: float  # how far a value may be moved besides
    limit: Limit
    dtype: torch.dtype
    rng_seed: int

    @property
    def snapped(self) -> Snapped:
        """The snapped values, where there must be some."""
        if self.lattice is None:
            raise AssertionError("this construction needs snapped values")
        return self.lattice


def _anything(n: int, m: int) -> None:
    """No number of inputs and outputs is refused."""


@dataclass(frozen=True)
class Recipe:
    """All that the rest of the package knows of a construction; its file ends with one.

    Attributes
    ----------
    width : str
        Its name, as `approximate` takes it.
    hidden_width : function of n and m
        The hidden width, or what counts of it when a norm is rounded.
    build : function
        From materials to a network.
    everywhere : bool
        Whether the network has a limit and may be good on all of R^n.
    layers : int
        Hidden layers for each ball.
    quanta : tuple of float
        Steps to which values are snapped, as shares of eps, the finest first; 0 where nothing is snapped.
    shared : bool
        Whether values share coordinates with x, so that large ones cost x precision.
    unit : float
        The radius, in scaled coordinates, below which Step-ReLU sends a ball of level 0 to 0.
    separated : bool
        Whether no ball may contain an earlier centre.
    freedom : float
        Share of eps by which values may be moved besides.
    refuse : function of n and m
        Raises if it cannot be built for so many inputs and outputs.
    """

    width: str
    hidden_width: Callable[[int, int], int]
    build: Callable[[Materials], Construction]
    everywhere: bool
    layers: int = 1
    quanta: tuple[float, ...] = (0.0,)
    shared: bool = False
    unit: float = UNIT
    separated: bool = False
    freedom: float = 0.0
    refuse: Callable[[int, int], None] = _anything


def as_tensor(x: Array, dtype: torch.dtype) -> Tensor:
    """A tensor of its own in the dtype of the network."""
    return torch.from_numpy(np.array(x, dtype=np.float64, order="C")).to(dtype)


def affine_rounding(u: float, W: Array, b: Array, z: Array) -> float:
    """Bound on the rounding of ``W z + b`` over the columns of z, weights rounded too: ``(k+3) u (|W| |z| + |b|)``."""
    terms = W.shape[1] + 3
    size = np.abs(W) @ np.abs(z) + np.abs(b)[:, None]
    return float(terms * u * np.linalg.norm(size, axis=0).max()) if z.shape[1] else 0.0
