"""The function to be approximated, and what its caller claims about it, refuted where two samples are enough to do so.

`Target` calls f with float64 tensors of shape (batch, n) and insists on finite values of shape (batch, m). The claims
are a Lipschitz constant, a bound on it for every box, a modulus of continuity, and a limit at infinity. None of them
can be proven by looking; all of them can be refuted by looking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import is_number
from ..errors import InvalidType, InvalidValue
from .domains import Array, Domain, Points

#: what f and bounds on it may return
Values = Tensor | npt.ArrayLike
#: f: a float64 tensor (batch, n) to values (batch, m)
Function = Callable[[Tensor], Values]
#: lower and upper corners of boxes, (batch, n) each, to a Lipschitz constant for each
LocalBound = Callable[[Tensor, Tensor], Values]
Modulus = Callable[[float], float]

_PAIRS = 2048
_SHELLS = (1.0, 1.125, 1.5, 2.0, 4.0, 16.0, 1000.0)
_ROUNDING = 64 * float(np.finfo(np.float64).eps)
#: magnitudes must lie in [1 / LARGEST, LARGEST], so that their squares neither overflow nor underflow
LARGEST = 1e100
LIMIT_SHARE = 0.97  # of eps: how far f may be from its limit outside K; the rest is for rounding far out


class Target:
    """f as a function of arrays, checked at every call."""

    def __init__(self, f: Function, domain: Domain, rng: np.random.Generator) -> None:
        if not callable(f):
            raise InvalidType(f"f must be callable, got {type(f).__name__}")
        self.f, self.n, self.domain = f, domain.dimension, domain
        self.m: int | None = None
        x = domain.sample(256, rng)
        first, second = self(x), self(x)
        if not np.array_equal(first, second):
            i = int((first != second).any(1).argmax())
            raise InvalidValue(
                f"f is not deterministic: at x = {x[i].tolist()} it gave {first[i].tolist()} "
                f"and then {second[i].tolist()}; fix its random numbers first"
            )

    @property
    def outputs(self) -> int:
        """m."""
        if self.m is None:
            raise AssertionError("f has not been called yet")
        return self.m

    @cached_property
    def extent(self) -> tuple[float, float]:
        """How far samples of f spread in any coordinate, and the largest of their norms."""
        y = self(self.domain.sample(4096, np.random.default_rng(1)))
        return float((y.max(0) - y.min(0)).max()), float(np.linalg.norm(y, axis=1).max())

    def __call__(self, x: Array) -> Array:
        """Values of shape (batch, m)."""
        y = values_of(self.f, x, self.m)
        self.m = y.shape[1]
        return y


def values_of(f: Function, x: Array, m: int | None) -> Array:
    """f at each row, as finite float64 values of shape (batch, m); f gets a copy it may change."""
    batch = torch.from_numpy(np.array(x, dtype=np.float64))
    try:
        with torch.no_grad():
            found = _as_array(f(batch))
    except Exception as error:
        raise InvalidValue(
            f"f raised {type(error).__name__} ({error}) for a float64 tensor of shape {tuple(batch.shape)}; "
            "it is called with a batch of points, one a row"
        ) from error
    if found.dtype.kind not in "fiu":
        raise InvalidType(f"f returned values of type {found.dtype}; real numbers are needed")
    if found.ndim == 1:
        found = found[:, None]
    expected = f"({len(x)}, {m if m is not None else 'm'})"
    if found.ndim != 2 or len(found) != len(x) or found.shape[1] == 0 or m not in (None, found.shape[1]):
        raise InvalidValue(f"f returned shape {found.shape} for {len(x)} points; expected {expected}, one row a point")
    y = np.asarray(found, dtype=np.float64)
    bad = ~(np.abs(y) <= LARGEST)
    if bad.any():
        i = int(bad.any(1).argmax())
        what = (
            "values must be finite" if not np.isfinite(y[i]).all() else f"values up to {LARGEST:g} can be worked with"
        )
        raise InvalidValue(f"f returned {y[i].tolist()} at x = {np.asarray(x)[i].tolist()}; {what}")
    return y


def _as_array(y: Values) -> npt.NDArray[np.generic]:
    """A tensor of any dtype, an array or nested lists, as an array."""
    if isinstance(y, torch.Tensor):
        y = y.detach().cpu()
        y = y.resolve_conj() if y.is_complex() else y.double() if y.is_floating_point() else y
        return np.asarray(y.numpy())
    return np.asarray(y)


@dataclass(frozen=True)
class Variation:
    """What is claimed about how fast f varies: ``|f(x) - f(c)| <= bound(c, r)`` for ``|x - c| <= r``.

    kind is "constant" (a Lipschitz constant), "local" (one for every box), "modulus", or "samples" (nothing is
    claimed).
    """

    kind: str
    constant: float = 0.0
    local: LocalBound | None = None
    modulus: Modulus | None = None
    clip: Domain | None = None  # where the claim need not reach beyond K: its bounding box

    def bound(self, centres: Array, radii: Array) -> Array:
        """Bound on the variation over each ball."""
        if self.kind == "constant":
            return self.constant * radii
        if self.kind == "modulus":
            return np.array([self._omega(r) for r in radii.tolist()])
        lower, upper = centres - radii[:, None], centres + radii[:, None]
        if self.clip is not None:
            lower, upper = np.maximum(lower, self.clip.lower), np.minimum(upper, self.clip.upper)
        return self.on_boxes(lower, upper) * radii

    def largest_radius(self, variation: float, most: float) -> float:
        """The largest radius, at most `most`, for which the bound is at most `variation`; not for "local"."""
        if self.kind == "constant":
            return most if self.constant * most <= variation else variation / self.constant
        if self._omega(most) <= variation:
            return most
        low, high = 0.0, most
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if self._omega(middle) <= variation else (low, middle)
        if low <= most * 1e-9:
            raise InvalidValue(
                f"modulus: it stays above {variation:.3g} down to r = {low:.3g}; a modulus of continuity tends to 0"
            )
        return low

    def on_boxes(self, lower: Array, upper: Array) -> Array:
        """The claimed Lipschitz constant on each box."""
        if self.local is None:
            return np.full(len(lower), self.constant)
        try:
            found = _as_array(self.local(torch.from_numpy(lower.copy()), torch.from_numpy(upper.copy())))
        except Exception as error:
            raise InvalidValue(
                f"lipschitz raised {type(error).__name__} ({error}); it is called with lo and hi of shape "
                f"{lower.shape}, one box a row"
            ) from error
        if found.ndim == 0:
            found = np.broadcast_to(found, lower.shape[:1])
        elif found.size == len(found):
            found = found.reshape(-1)
        if found.shape != lower.shape[:1] or found.dtype.kind not in "fiu":
            raise InvalidValue(
                f"lipschitz returned shape {found.shape} for {len(lower)} boxes; expected one number a box"
            )
        R = found.astype(np.float64)
        if not (R >= 0).all() or not np.isfinite(R).all():
            i = int((~((R >= 0) & np.isfinite(R))).argmax())
            raise InvalidValue(f"lipschitz returned {R[i]} on the box {lower[i].tolist()} to {upper[i].tolist()}")
        return R

    def _omega(self, r: float) -> float:
        if self.modulus is None:
            raise AssertionError("no modulus was given")
        try:
            value = float(self.modulus(r))
        except Exception as error:
            raise InvalidValue(f"modulus({r}) raised {type(error).__name__} ({error})") from error
        if not value >= 0:
            raise InvalidValue(f"modulus({r}) is {value}; a modulus of continuity is a non-negative number")
        return value


def claimed_variation(
    lipschitz: float | LocalBound | None, modulus: Modulus | None, domain: Domain, everywhere: bool
) -> Variation:
    """The claim, from the arguments of `approximate`; `everywhere`: it has to hold outside K too."""
    if lipschitz is not None and modulus is not None:
        raise InvalidValue("give lipschitz or modulus, not both")
    if modulus is not None:
        if not callable(modulus):
            raise InvalidType(f"modulus must be a function of a distance, got {type(modulus).__name__}")
        claim = Variation("modulus", modulus=modulus)
        _check_increasing(claim, domain)
        return claim
    if callable(lipschitz):
        return Variation("local", local=lipschitz, clip=None if everywhere else domain)
    if lipschitz is not None:
        if not is_number(lipschitz):
            raise InvalidType(f"lipschitz must be a number or a function of boxes, got {type(lipschitz).__name__}")
        if not 0 <= lipschitz <= LARGEST**2:
            raise InvalidValue(f"lipschitz={lipschitz}: a Lipschitz constant is a finite number, at least 0")
        return Variation("constant", constant=float(lipschitz))
    return Variation("samples")


def _check_increasing(claim: Variation, domain: Domain) -> None:
    """A bound for |x - y| = r has to be one for |x - y| <= r."""
    last, before = 0.0, 0.0
    for r in (2.5 * (domain.radius or 1.0) * np.geomspace(1e-9, 1, 400)).tolist():
        value = claim._omega(r)
        if value < last * (1 - 1e-12):
            raise InvalidValue(
                f"modulus: it falls from {last:.6g} at r = {before:.6g} to {value:.6g} at r = {r:.6g}; a modulus of "
                "continuity bounds all changes over distances up to r and does not decrease"
            )
        last, before = value, r


def refute(variation: Variation, f: Target, domain: Domain, rng: np.random.Generator) -> None:
    """Raise if two samples contradict the claim, and say which two."""
    if variation.kind == "samples":
        return
    x = domain.sample(_PAIRS, rng)
    if isinstance(domain, Points):
        y = x[rng.permutation(len(x))]
    else:
        step = 10.0 ** rng.uniform(-5, 0.3, (len(x), 1)) * domain.radius
        y = domain.nearest(x + step * rng.standard_normal(x.shape) / math.sqrt(domain.dimension))
    fx, fy = f(x), f(y)
    distance = np.linalg.norm(x - y, axis=1)
    change = np.linalg.norm(fx - fy, axis=1)
    if variation.kind == "modulus":
        allowed = np.array([variation._omega(d) for d in distance.tolist()])
        rate = np.zeros(len(x))
    else:
        rate = variation.on_boxes(np.minimum(x, y), np.maximum(x, y))
        allowed = rate * distance
    size = np.linalg.norm(fx, axis=1) + np.linalg.norm(fy, axis=1)
    rounding = _ROUNDING * (size + rate * domain.reach)
    excess = change - allowed - rounding
    i = int(excess.argmax())
    if excess[i] > 0:
        claim = "modulus" if variation.kind == "modulus" else f"lipschitz={rate[i]:.6g}"
        raise InvalidValue(
            f"{claim} is refuted by two points: f({x[i].tolist()}) = {fx[i].tolist()} and f({y[i].tolist()}) = "
            f"{fy[i].tolist()} differ by {change[i]:.6g} over a distance of {distance[i]:.6g} "
            f"(at most {allowed[i]:.6g} is claimed)"
        )


@dataclass(frozen=True)
class Limit:
    """The affine map ``L(x) = A x + b`` that f approaches at infinity; A = 0 and b = 0 if none is given."""

    A: Array
    b: Array
    given: bool = False

    def __call__(self, x: Array) -> Array:
        """L at each row."""
        return np.asarray(x @ self.A.T + self.b)

    def arrays(self) -> dict[str, Array]:
        """A and b."""
        return {"A": self.A, "b": self.b}


def claimed_limit(limit: tuple[Values, Values] | None, n: int, m: int) -> Limit:
    """The limit from the argument of `approximate`."""
    if limit is None:
        return Limit(np.zeros((m, n)), np.zeros(m), given=False)
    try:
        given = [_as_array(part) for part in limit]
        if any(part.dtype.kind not in "fiu" for part in given):
            raise TypeError("not real numbers")
        A, b = (part.astype(np.float64) for part in given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidType(f"limit must be a pair (A, b) of numbers or arrays ({error})") from error
    if A.size == m * n and A.shape in ((), (m,), (n,), (m, n)):
        A = A.reshape(m, n)
    if b.shape == () and m == 1:
        b = b.reshape(1)
    if A.shape != (m, n) or b.shape != (m,):
        raise InvalidValue(f"limit: A has shape {A.shape} and b {b.shape}; f needs ({m}, {n}) and ({m},)")
    if not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise InvalidValue("limit: A and b must be finite")
    return Limit(A, b, given=True)


def refute_limit(limit: Limit, f: Target, domain: Domain, eps: float, rng: np.random.Generator) -> None:
    """Raise if f is off its limit by more than it may at the boundary of the domain or outside, and say where."""
    edge = domain.boundary(1024, rng)
    if not limit.given or not len(edge):
        return
    for factor in _SHELLS:
        x = domain.centre + factor * (edge - domain.centre)
        off = np.linalg.norm(f(x) - limit(x), axis=1) - _ROUNDING * np.linalg.norm(limit(x), axis=1)
        i = int(off.argmax())
        allowed = float(eps) if factor == 1 else LIMIT_SHARE * eps  # the boundary is covered by balls
        if off[i] > allowed * (1 + 1e-9):
            where = "at the boundary of the domain" if factor == 1 else "outside the domain"
            raise InvalidValue(
                f"limit: {where}, at x = {x[i].tolist()}, f is {off[i]:.6g} away from A x + b, more than "
                f"{allowed:g} (eps = {eps}); take a larger domain or another limit"
            )
