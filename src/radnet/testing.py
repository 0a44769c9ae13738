"""Measure, then judge: how far two functions are apart, how far rounding alone moves them, whether they are the same.

Public, for the tests of those who build on radnet. `functional_gap` and `conditioning` return numbers; the functions
named ``assert_`` raise `AssertionError`. "The same function" is decided row by row: ``gap(x) <= max(64 eps max|F|, 10
D(x))``, where D(x) is how far F(x) moves when weights, biases and x move by one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .errors import InvalidType, InvalidValue
from .linalg import haar_orthogonal
from .measuring import DRAWS, TIMES_CONDITIONING, ULPS, as_rows, differences, nudged
from .rescaling import block_sizes
from .running import copied, in_float64

__all__ = [
    "DRAWS", "TIMES_CONDITIONING", "ULPS", "FunctionalGap", "assert_commutes_with_rotations", "assert_same_function",
    "conditioning", "functional_gap", "gap_of", "in_float64",
]  # fmt: skip

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FunctionalGap:
    """How far two functions are apart on a batch.

    Attributes
    ----------
    max, mean : float
        Of ``|f(x) - g(x)|`` over all rows and outputs.
    scale : float
        The largest ``|f(x)|``.
    eps : float
        Of the dtype the functions returned.
    rows : Tensor, shape (rows,)
        For each row the largest ``|f(x) - g(x)|`` over its outputs, in float64.
    """

    max: float
    mean: float
    scale: float
    eps: float
    rows: Tensor = field(repr=False)

    @property
    def ulps(self) -> float:
        """``max`` in units of ``eps * scale`` (0 if both functions vanish)."""
        unit = self.eps * self.scale
        return self.max / unit if unit > 0 else (0.0 if self.max == 0 else float("inf"))


def functional_gap(f: Function, g: Function, x: Tensor) -> FunctionalGap:
    """Largest and mean difference of two functions on the rows of x, in the dtype they return.

    A value that is not finite in one of them counts as an infinite difference, unless both have it alike.

    Parameters
    ----------
    f, g : callables (modules too)
    x : Tensor, shape (rows, ...)

    Examples
    --------
    >>> gap = functional_gap(torch.sin, torch.sin, torch.ones(3, 1))
    >>> gap.max, gap.ulps
    (0.0, 0.0)
    """
    with torch.no_grad():
        return gap_of(f(x), g(x))


def gap_of(a: Tensor, b: Tensor) -> FunctionalGap:
    """The gap between two batches of values."""
    if a.shape != b.shape:
        raise InvalidValue(f"the functions return shapes {tuple(a.shape)} and {tuple(b.shape)}; nothing to compare")
    if not a.is_floating_point():
        raise InvalidType(f"the functions return {a.dtype}; a gap needs floating point")
    eps = torch.finfo(a.dtype).eps
    a, b = as_rows(a), as_rows(b)
    difference = differences(a, b)
    if difference.numel() == 0:
        return FunctionalGap(0.0, 0.0, 0.0, eps, difference.new_zeros(a.shape[0]))
    scale = float(a[a.isfinite()].abs().max()) if a.isfinite().any() else 0.0
    return FunctionalGap(float(difference.max()), float(difference.mean()), scale, eps, difference.amax(dim=1))


def conditioning(f: Function, x: Tensor, *, draws: int = DRAWS, generator: torch.Generator | None = None) -> Tensor:
    """D(x): for each row, how far f(x) moves when x, and the parameters of f if it is a module, move by one ulp.

    The largest change over ``draws`` perturbations in which every number goes one step up or down at random.

    Returns
    -------
    Tensor, shape (rows,)
        In float64; rows where f is not finite give 0.

    Examples
    --------
    >>> ill = conditioning(lambda x: 1e6 * (x - 1.0), torch.ones(1, 1, dtype=torch.float64))
    >>> bool(1e-10 < ill < 1e-9)
    True
    """
    with torch.no_grad():
        reference = as_rows((copied(f, torch.clone) if isinstance(f, nn.Module) else f)(x))
        moved = torch.zeros(reference.shape[0], dtype=torch.float64, device=reference.device)
        for _ in range(draws):
            g = copied(f, lambda value: nudged(value, generator)) if isinstance(f, nn.Module) else f
            nearby = as_rows(g(nudged(x, generator)))
            change = torch.where(reference.isfinite() & nearby.isfinite(), (nearby - reference).abs(), 0.0)
            moved = torch.maximum(moved, change.amax(dim=1) if change.shape[1] else moved)
    return moved


def assert_same_function(
    f: Function, g: Function, x: Tensor, *, generator: torch.Generator | None = None, ignore: Tensor | None = None
) -> None:
    """Raise `AssertionError` unless, for every row of x, ``|f - g| <= max(64 eps max|f|, 10 D)``.

    Parameters
    ----------
    f, g : callables (modules too)
        If f is a module, D also counts what one ulp in its parameters does.
    x : Tensor, shape (rows, ...)
    generator : torch.Generator, optional
        For the perturbations behind D.
    ignore : bool Tensor, shape (rows,), optional
        Rows that are not judged, for example those at a jump of a profile.

    Examples
    --------
    >>> assert_same_function(torch.tanh, lambda x: torch.tanh(x), torch.randn(4, 3))
    """
    gap = functional_gap(f, g, x)
    bad = gap.rows > ULPS * gap.eps * gap.scale
    if ignore is not None:
        bad &= ~ignore
    if not bad.any():
        return
    D = conditioning(f, x, generator=generator)
    bad &= ~(gap.rows <= TIMES_CONDITIONING * D)
    if bad.any():
        row = int(torch.where(bad, gap.rows, -1.0).argmax())
        raise AssertionError(
            f"not the same function: {int(bad.sum())} of {len(bad)} rows differ by more than rounding; worst {row}: "
            f"gap {gap.rows[row]:.3g}, allowed {ULPS} eps max|f| = {ULPS * gap.eps * gap.scale:.3g} "
            f"or {TIMES_CONDITIONING} D = {TIMES_CONDITIONING * float(D[row]):.3g}"
        )


def assert_commutes_with_rotations(
    activation: Function, x: Tensor, *, dim: int = -1, blocks: int | Sequence[int] | None = None, trials: int = 4,
    generator: torch.Generator | None = None,
) -> None:  # fmt: skip
    """Raise `AssertionError` unless ``activation(Q x) = Q activation(x)`` for random orthogonal Q (lem:radial-basics).

    Parameters
    ----------
    activation : callable
    x : Tensor
        The feature vectors lie along ``dim``.
    blocks : int or sequence of int, optional
        How many blocks, or their sizes; Q is then block diagonal.
    trials : int
        How many Q are drawn, uniformly on O(n).

    Examples
    --------
    >>> import radnet
    >>> assert_commutes_with_rotations(radnet.Squash(), torch.randn(5, 3))
    >>> assert_commutes_with_rotations(torch.relu, torch.randn(5, 3))
    Traceback (most recent call last):
        ...
    AssertionError: relu does not commute with rotations: ...
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InvalidType(f"x is {kind}; rotations need a floating-point tensor")
    n = x.shape[dim]
    sizes = block_sizes(blocks if blocks is not None else 1, n)
    for _ in range(trials):
        parts = [haar_orthogonal(k, generator) for k in sizes]
        Q = torch.block_diag(*parts).to(x.device)

        def rotate(v: Tensor, Q: Tensor = Q) -> Tensor:
            return (v.double().movedim(dim, -1) @ Q.mT).movedim(-1, dim).to(v.dtype)

        gap = functional_gap(lambda v: rotate(activation(v)), lambda v: activation(rotate(v)), x)
        allowed = ULPS * gap.eps * max(gap.scale, float(x.abs().max()) if x.numel() else 0.0)
        if gap.max > allowed or not bool(activation(x).isfinite().all()):
            name: Any = getattr(activation, "__name__", repr(activation))
            raise AssertionError(
                f"{name} does not commute with rotations: off by {gap.max:.3g} at n = {n}, allowed {allowed:.3g}"
            )
