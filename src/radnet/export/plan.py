"""A model as a straight line of steps on one vector: what a program without PyTorch has to do.

Chains (`RadNet`, `nn.Sequential` of linear layers and radial activations, with blocks or without) and
`ResidualRadialMLP` have such a plan. Anything else is refused by name, and so is a layer that is not what its class
says (`compression.trust`): a plan is written from what classes promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..activations import Identity, RadialActivation, ShiftedReLU
from ..compression.reasons import Why
from ..compression.replacements import FoldedBatchNorm
from ..compression.trust import has_hooks, runs_as, stands_for, why_not
from ..errors import InvalidType, InvalidValue
from ..models import ResidualRadialMLP
from ..network import RadNet
from ..origin import accumulation_dtype
from ..rescaling import block_sizes

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Affine:
    """``x <- W x + b``."""

    where: str
    W: Float[Tensor, "out in"]
    b: Float[Tensor, " out"] | None


@dataclass(frozen=True, eq=False)
class Rescaling:
    """Every block of x is rescaled by its norm, less a shift, and scaled."""

    where: str
    rho: RadialActivation
    sizes: tuple[int, ...]  # of the blocks; for each of them:
    shifts: tuple[float, ...]
    floors: tuple[float, ...]  # norms up to here count as 0
    scales: tuple[float, ...]


@dataclass(frozen=True)
class Keep:
    """Remember x, beside what is remembered already."""


@dataclass(frozen=True)
class AddKept:
    """Add to x what was remembered last, and forget it."""


Step = Affine | Rescaling | Keep | AddKept


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps, and how many entries x has before each of them and after the last."""

    steps: tuple[Step, ...]
    widths: tuple[int, ...]
    dtype: torch.dtype

    @property
    def parameters(self) -> int:
        """Numbers in all matrices and biases."""
        affine = [step for step in self.steps if isinstance(step, Affine)]
        return sum(step.W.numel() + (0 if step.b is None else step.b.numel()) for step in affine)


def plan_of(model: nn.Module, dtype: torch.dtype | None = None) -> Plan:
    """What a model does to one row, in evaluation mode.

    Parameters
    ----------
    model : nn.Module
    dtype : torch.dtype, optional
        float32 or float64; by default that of the parameters.

    Raises
    ------
    InvalidType
        If it has a layer without a plan; the error names it.
    InvalidValue
        If widths do not fit together, or the dtype is another.

    Examples
    --------
    >>> plan = plan_of(RadNet((2, 8, 1), "squash"))
    >>> [type(step).__name__ for step in plan.steps], plan.widths
    (['Affine', 'Rescaling', 'Affine'], (2, 8, 8, 1))
    """
    if not isinstance(model, nn.Module):
        raise InvalidType(f"export: expected a module, got a {type(model).__name__}")
    own = {p.dtype for p in model.parameters()}
    if dtype is None:
        if len(own) != 1:
            several = "dtypes; give the one to export" if own else "dtypes: it has none, or is quantised"
            raise InvalidValue(f"{type(model).__name__}: its parameters have {len(own)} {several}")
        (dtype,) = own
    if dtype not in (torch.float32, torch.float64):
        raise InvalidValue(f"dtype {dtype}: numbers are exported as torch.float32 or torch.float64; give one of them")
    walk = _Walk(dtype)
    steps = tuple(walk.steps(model, ""))
    if not walk.widths:
        raise InvalidValue(f"{type(model).__name__}: has no linear layer, so nothing says how many entries a row has")
    return Plan(steps, tuple(walk.widths), dtype)


class _Walk:
    """Goes through a model, and knows how wide x is."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.widths: list[int] = []

    def steps(self, m: nn.Module, path: str) -> Iterator[Step]:
        where = path or type(m).__name__
        if isinstance(m, RadNet) and stands_for(m, RadNet):
            for i, (layer, rho) in enumerate(zip(m.layers, m.activations, strict=True), start=1):
                yield from self.steps(layer, f"{where}: layer {i}")
                yield from self._rescaling(f"{where}: activation {i}", rho)
        elif isinstance(m, nn.Sequential) and runs_as(m, nn.Sequential, "__iter__"):
            for name, part in _parts(m):
                yield from self.steps(part, f"{path}.{name}" if path else name)
        elif runs_as(m, ResidualRadialMLP):
            yield from self._residual(m, path)
        elif isinstance(m, nn.Linear) and stands_for(m, nn.Linear):
            yield self._affine(where, m.weight, m.bias)
        elif isinstance(m, RadialActivation):
            yield from self._rescaling(where, m)
        elif not self._does_nothing(m):
            why = "has hooks" if has_hooks(m) else "is not written"
            raise InvalidType(
                f"{where}: this {type(m).__name__} {why}; what is: linear layers and radial activations as their "
                "classes have them, in a row or in a ResidualRadialMLP"
            )

    @staticmethod
    def _does_nothing(m: nn.Module) -> bool:
        """In evaluation mode, to rows."""
        if isinstance(m, FoldedBatchNorm):
            return runs_as(m, FoldedBatchNorm) and m.axes == 2
        return runs_as(m, nn.Identity) or runs_as(m, nn.Dropout)

    def _residual(self, m: nn.Module, path: str) -> Iterator[Step]:
        within = f"{path}." if path else ""
        parts = dict(_parts(m))
        yield from self.steps(parts["stem"], f"{within}stem")
        for name, block in _parts(parts["blocks"]):
            where = f"{within}blocks.{name}"
            if not self.widths:
                raise InvalidValue(f"{where}: no linear layer stands before it, so nothing says how wide a row is")
            n = self.widths[-1]
            yield self._on(Keep())
            yield from self.steps(block, where)
            if self.widths[-1] != n:
                raise InvalidValue(f"{where}: reads {n} entries and gives {self.widths[-1]}, to be added to each other")
            yield self._on(AddKept())
        yield from self.steps(parts["head"], f"{within}head")

    def _on(self, step: Step) -> Step:
        self.widths.append(self.widths[-1])
        return step

    def _affine(self, where: str, W: Tensor, b: Tensor | None) -> Affine:
        out, into = W.shape
        if self.widths and self.widths[-1] != into:
            raise InvalidValue(f"{where}: reads {into} entries, but {self.widths[-1]} arrive")
        self.widths = [*(self.widths or [into]), out]
        if W.is_meta:
            raise InvalidValue(f"{where}: is on the meta device, where there are no numbers; load its weights first")
        W, b = (None if x is None else x.detach().to("cpu", self.dtype) for x in (W, b))  # type: ignore[assignment]
        for x in (W, b):
            if x is not None and not bool(x.isfinite().all()):
                raise InvalidValue(f"{where}: has numbers that are not finite in {self.dtype}")
        return Affine(where, W, b)

    def _rescaling(self, where: str, rho: RadialActivation) -> Iterator[Rescaling]:
        cause = why_not(rho, type(rho)) if isinstance(rho, RadialActivation) else None
        if cause is not None or rho.dim not in (-1, 1):
            who = f"this {type(rho).__name__}"
            why = f"{who} lies along axis {rho.dim}" if cause is None else str(Why(cause.reason, who, cause.detail))
            raise InvalidType(f"{where}: {why}; what it does to a row is not known")
        if type(rho) is Identity and rho.shift is None and rho.scale is None:
            return
        if not self.widths:
            raise InvalidValue(f"{where}: an activation before the first linear layer; nothing says how wide a row is")
        n = self.widths[-1]
        if isinstance(rho, ShiftedReLU) and not math.isfinite(float(rho.b)):
            raise InvalidValue(f"{where}: its b is not a finite number")
        sizes = (n,) if rho.blocks is None else tuple(block_sizes(rho.blocks, n))
        shifts = _of_blocks(f"{where}: its shift", rho.shift, 0.0, len(sizes))
        floors = tuple(_floor(rho, t, self.dtype) for t in shifts)
        scales = _of_blocks(f"{where}: its scale", rho.scale, 1.0, len(sizes))
        yield self._on(Rescaling(where, rho, sizes, shifts, floors, scales))  # type: ignore[misc]


def _of_blocks(what: str, value: Tensor | None, otherwise: float, count: int) -> tuple[float, ...]:
    """A number for each block."""
    if value is None:
        return (otherwise,) * count
    numbers: list[float] = value.detach().reshape(-1).tolist()
    if len(numbers) not in (1, count) or not all(map(math.isfinite, numbers)):
        raise InvalidValue(f"{what} is not one finite number, or one for each of {count} blocks")
    return tuple(numbers) if len(numbers) == count else tuple(numbers) * count


def _parts(m: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts in their order, also those that serve twice, which `named_children` gives once."""
    return ((name, part) for name, part in m._modules.items() if part is not None)


def _floor(rho: RadialActivation, t: float, dtype: torch.dtype) -> float:
    """Norms up to this count as 0: see docs/decisions/0003-origin.md."""
    at_zero = float(rho.profile(torch.tensor(-t, dtype=torch.float64)))
    return 0.0 if at_zero == 0 else math.sqrt(torch.finfo(accumulation_dtype(dtype)).tiny)
