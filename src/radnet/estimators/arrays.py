"""A fitted network as NumPy arrays: what an estimator keeps, what it predicts with, and the way to and from PyTorch.

The forward pass is that of `radnet.rescaling` where norms are ordinary numbers; rows that leave the range go through
the network in PyTorch, which is right for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..activations import RadialActivation, named_activation

Array = npt.NDArray[np.floating]


class LayerArrays(TypedDict):
    """One layer: ``W x + b``, and if it is hidden the blocks, shifts and scales of its activation."""

    weight: Array
    bias: Array
    blocks: int | tuple[int, ...] | None
    shift: Array | None
    scale: Array | None


#: a column is one that never changes if its spread is no more than this share of its largest number
ALIKE = 1e-14
#: rows from which entries are put in another order, and entries of a block up to which squares are added one by one
MANY, FEW = 16, 8
_TINY = {np.dtype(np.float32): 1e-18, np.dtype(np.float64): 1e-150}


def _sigmoid(x: Array) -> Array:
    half: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return half


#: profiles by name, as functions of NumPy arrays
PROFILES: dict[str, Callable[[Array], Array]] = {
    "identity": lambda r: r,
    "step_relu": lambda r: np.where(r >= 1, r, 0),
    "squash": lambda r: r * r / (r * r + 1),
    "shifted_relu": lambda r: np.maximum(r - 0.5, 0),
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "gaussian": lambda r: r * np.exp(-0.5 * r * r),
    "tanh": np.tanh,
    "swish": lambda r: r * _sigmoid(r),
}


@dataclass(frozen=True, eq=False)
class Scales:
    """Columns to mean 0 and variance 1, and back; a column that never changes has size 0."""

    mean: Array
    size: Array

    @property
    def divisor(self) -> Array:
        """What is divided by: 1 where nothing changes."""
        return np.where(self.size > 0, self.size, 1.0)

    @classmethod
    def of(cls, x: Array, weight: Array) -> Scales:
        """Of columns whose rows count so much; squares neither overflow nor underflow.

        >>> Scales.of(np.array([[1.0, 7.0], [3.0, 7.0]]), np.ones(2))
        Scales(mean=array([2., 7.]), size=array([1., 0.]))
        """
        largest = np.abs(x).max(axis=0)
        unit = np.where(largest > 0, largest, 1.0)
        share = (weight / weight.sum())[:, None]
        z = x / unit
        mean = (share * z).sum(axis=0)
        spread = np.sqrt((share * (z - mean) ** 2).sum(axis=0))
        equal = (x == x[0]).all(axis=0)
        same = equal | (spread <= ALIKE) | (spread * unit < np.finfo(np.float64).tiny)
        return cls(np.where(equal, x[0], mean * unit), np.where(same, 0.0, spread * unit))

    def joined(self, other: Scales, share: float) -> Scales:
        """Of the rows of both, of which the other's are such a share.

        >>> Scales(np.array([0.0]), np.array([1.0])).joined(Scales(np.array([2.0]), np.array([1.0])), 0.5)
        Scales(mean=array([1.]), size=array([1.41421356]))
        """
        apart = other.mean - self.mean
        unit = np.maximum(np.maximum(self.size, other.size), np.abs(apart))
        unit = np.where(unit > 0, unit, 1.0)
        a, b, c = self.size / unit, other.size / unit, apart / unit
        return Scales(
            self.mean + share * apart, unit * np.sqrt((1 - share) * a * a + share * b * b + share * (1 - share) * c * c)
        )


def forward(layers: list[LayerArrays], profile: str, x: Array) -> Array:
    """What the network gives; rows whose norms leave the range come out as NaN, others may be infinite.

    Of many rows the first entries of all blocks stand side by side, then the second ones: so NumPy's loops are long.
    """
    order: npt.NDArray[np.intp] | None = None  # where the entries of x belong
    with np.errstate(all="ignore"):
        for layer in layers[:-1]:
            W, b, blocks = layer["weight"], layer["bias"], layer["blocks"] or 1
            W = W if order is None else W[:, order]
            order = None
            if isinstance(blocks, int) and blocks > 1 and len(x) >= MANY:
                order = np.arange(len(W)).reshape(blocks, -1).T.ravel()
                W, b = W[order], b[order]
            v = x @ W.T
            v += b
            x = _rescaled(v, layer, profile, apart=order is None)
        last = layers[-1]
        y: Array = x @ (last["weight"] if order is None else last["weight"][:, order]).T + last["bias"]
        return y


def _rescaled(v: Array, layer: LayerArrays, profile: str, *, apart: bool) -> Array:
    """Each block rescaled; ``apart`` says that its entries stand together, apart from those of other blocks."""
    blocks, (rows, n) = layer["blocks"] or 1, v.shape
    if not isinstance(blocks, int):
        ends = np.concatenate([[0], np.cumsum(blocks)])
        r = np.sqrt(np.add.reduceat(v * v, ends[:-1], axis=1))
        r[np.isinf(r)] = np.nan
        return v * np.repeat(_factor(r, layer, profile), blocks, axis=1)
    size, axis = n // blocks, 2 if apart else 1
    parts = v.reshape((rows, blocks, size) if apart else (rows, size, blocks))
    if apart or size > FEW:
        r = np.sqrt(np.square(parts).sum(axis=axis))
    else:
        r = np.square(parts[:, 0])
        for j in range(1, size):
            r += np.square(parts[:, j])
        np.sqrt(r, out=r)
    if not np.isfinite(r).all():
        r[np.isinf(r)] = np.nan  # a bounded profile would hide that it is not known
    parts *= np.expand_dims(_factor(r, layer, profile), axis)
    return parts.reshape(rows, n)


def _factor(r: Array, layer: LayerArrays, profile: str) -> Array:
    """``s h(r - t)/r``; where r is 0 so is what it multiplies."""
    t, s = layer["shift"], layer["scale"]
    safe = np.maximum(r, r.dtype.type(_TINY[r.dtype]))
    h = PROFILES[profile](safe if t is None else safe - t)
    found: Array = h / safe if s is None else s * h / safe
    return found


def arrays_of(net: nn.Sequential) -> list[LayerArrays]:
    """The numbers of a chain of linear layers and activations, copied."""
    parts, layers = list(net), list[LayerArrays]()
    for i, part in enumerate(parts):
        if isinstance(part, nn.Linear):
            rho = parts[i + 1] if i + 1 < len(parts) else None
            own = rho if isinstance(rho, RadialActivation) else None
            layers.append(
                {
                    "weight": _array(part.weight),
                    "bias": _array(part.bias),
                    "blocks": None if own is None else own.blocks,
                    "shift": None if own is None or own.shift is None else _array(own.shift),
                    "scale": None if own is None or own.scale is None else _array(own.scale),
                }
            )
    return layers


def _array(t: Tensor) -> Array:
    array: Array = t.detach().cpu().numpy().copy()
    return array


def network_of(layers: list[LayerArrays], profile: str, *, trainable: bool = False) -> nn.Sequential:
    """The chain again; shifts and scales are parameters if it is to be trained."""
    parts: list[nn.Module] = []
    for k, layer in enumerate(layers):
        W, b = torch.from_numpy(layer["weight"].copy()), torch.from_numpy(layer["bias"].copy())
        linear = nn.Linear(W.shape[1], W.shape[0], dtype=W.dtype, device="meta")
        linear.weight, linear.bias = nn.Parameter(W), nn.Parameter(b)
        parts.append(linear)
        if k < len(layers) - 1:
            settings = {}
            for name, value in (("shift", layer["shift"]), ("scale", layer["scale"])):
                number = None if value is None else torch.tensor(value)
                settings[name] = nn.Parameter(number) if trainable and number is not None else number
            parts.append(named_activation(profile, blocks=layer["blocks"] or 1, **settings))
    return nn.Sequential(*parts)


def with_scales(layers: list[LayerArrays], x: Scales, y: Scales | None) -> list[LayerArrays]:
    """The same network for numbers as they are: ``x -> mean_y + size_y net((x - mean_x)/size_x)``, in float64."""
    found = [layer.copy() for layer in layers]
    for layer in found:
        for name in ("weight", "bias", "shift", "scale"):
            value = layer[name]
            layer[name] = None if value is None else value.astype(np.float64)
    first, last = found[0], found[-1]
    first["weight"] = first["weight"] / x.divisor
    first["bias"] = first["bias"] - first["weight"] @ x.mean
    if y is not None:
        last["weight"] = y.size[:, None] * last["weight"]
        last["bias"] = y.size * last["bias"] + y.mean
    return found


def moved_inputs(layers: list[LayerArrays], old: Scales, new: Scales) -> list[LayerArrays]:
    """The same function of the columns as they are, for inputs that are scaled otherwise.

    Of a column that had never changed the weights have learned nothing, and stay as they are.
    """
    known = old.size > 0
    W = layers[0]["weight"]
    ratio = np.where(known, new.divisor / old.divisor, 1.0)
    b = layers[0]["bias"] + W @ np.where(known, (new.mean - old.mean) / old.divisor, 0.0)
    return [{**layers[0], "weight": (W * ratio).astype(W.dtype), "bias": b.astype(W.dtype)}, *layers[1:]]


def moved_outputs(layers: list[LayerArrays], old: Scales, new: Scales) -> list[LayerArrays]:
    """The same for outputs; those that had never changed begin at the mean that is known now."""
    known = old.size > 0
    W, b = layers[-1]["weight"], layers[-1]["bias"]
    ratio = np.where(known, old.divisor / new.divisor, 1.0)
    b = np.where(known, (b * old.divisor + old.mean - new.mean) / new.divisor, b)
    return [*layers[:-1], {**layers[-1], "weight": (W * ratio[:, None]).astype(W.dtype), "bias": b.astype(W.dtype)}]
