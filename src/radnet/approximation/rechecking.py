"""A certificate that was read from a file, measured again.

Two things can be measured. The network against f, where f is given or stored as a formula: the distance must stay below
the recorded bound. And the network against its closed form, "the value of the first ball that contains x", which needs
no f: it shows that weights, balls and values belong together and that the balls cover the domain, and nothing about f.

Whoever wrote the file may know this file too. So all points of a finite domain are looked at, and the points of a box
or a ball are others every time; and what the file says of its own rounding excuses no more than its bound does.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..checks import check_positive, is_whole
from ..errors import InvalidValue, NotEnoughMemory, RadNetError
from ..expressions import parse_formula
from ..reading import is_out_of_memory
from .certificate import scope_of, table
from .domains import Array, Domain, Points
from .targets import Function, values_of

if TYPE_CHECKING:
    from .result import Approximation

#: how many numbers, and rows of them, are looked at in one go
_NUMBERS_AT_ONCE, _ROWS_AT_ONCE = 2**22, 2**16
_POINTS, _FEWEST = 10_000, 16  # random points, and how many of them at least in high dimensions
_RAW = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Recheck:
    """What `Approximation.recheck` measured.

    Attributes
    ----------
    against : str
        What the network was compared with.
    domain, scope : str
        What was looked at, and where the bound is said to hold, as recorded.
    whole_scope : bool
        Whether the first is all of the second; if not, the rest of it was not measured.
    points, near_a_sphere : int
        How many points of the domain were looked at, no two of them the same where the domain is finite, and on how
        many of them rounding decides in which ball they are; these are not compared with the closed form.
    uncovered : int
        Points of the domain in no ball: the cover is not one.
    from_closed_form, from_f : float
        The largest distance of the network from its closed form, and from f (None if there is no f).
    eps, bound, rounding : float
        As recorded.
    holds : bool
        Whether every point is in a ball, the network is within rounding of its closed form, and within the bound of f,
        which is below eps; rounding is at most the bound, and fewer than half of the points are near a sphere.
    """

    against: str
    domain: str
    scope: str
    whole_scope: bool
    points: int
    near_a_sphere: int
    uncovered: int
    from_closed_form: float
    from_f: float | None
    eps: float
    bound: float
    rounding: float
    holds: bool

    def report(self) -> str:
        """A table a person reads."""
        f = "not measured" if self.from_f is None else f"{self.from_f:.6g} at worst, {self.bound:.6g} recorded"
        rows = [
            ("against", self.against),
            ("looked at", self.domain),
            ("points", f"{self.points:,} of the domain, {self.uncovered:,} in no ball"),
            ("closed form", f"{self.from_closed_form:.3g} at worst, {self.rounding:.3g} recorded as rounding"),
            ("f", f),
            ("holds", "NO" if not self.holds else "yes" if self.whole_scope else "yes, on what was looked at"),
        ]
        if not self.whole_scope:
            rows.insert(2, ("recorded for", f"{self.scope}; only what was looked at was measured"))
        if self.near_a_sphere:
            rows.insert(-2, ("near a sphere", f"{self.near_a_sphere:,} points, not compared with the closed form"))
        return table(rows)


@dataclass
class _Measured:
    """What was found on the points so far."""

    points: int = 0
    near: int = 0
    uncovered: int = 0
    off: float = 0.0
    from_f: float = 0.0
    largest: float = 0.0

    def add(self, a: Approximation, f: Function | None, points: Array) -> None:
        """Look at some more."""
        x = torch.from_numpy(points).to(next(a.network.parameters()).dtype)
        exact: Array = x.double().numpy()
        with torch.no_grad():
            F = a.network(x).double()
        self.points += len(x)
        self.largest = max(self.largest, _largest(F))
        rows = max(1, _NUMBERS_AT_ONCE // int(a.cover.tree.size.max()))  # a point is compared with so many balls
        for i in range(0, len(x), rows):
            part = exact[i : i + rows]
            near = a.cover.near_a_sphere(part)
            self.near += int(near.sum())
            self.uncovered += int((a.cover.tree.first(part) < 0).sum())
            off = F[i : i + rows] - a.evaluate(torch.from_numpy(part))
            self.off = max(self.off, _largest(off[torch.from_numpy(~near)]))
        if f is not None:
            values = torch.from_numpy(values_of(f, exact, a.certificate.widths[-1]))
            self.from_f = max(self.from_f, _largest(F - values))


def recheck(a: Approximation, f: Function | None, points: int | None, seed: int | None) -> Recheck:
    """Measure an approximation again; see `Approximation.recheck`."""
    n = a.certificate.widths[0]
    count = max(_FEWEST, min(_POINTS, _NUMBERS_AT_ONCE // n)) if points is None else check_positive("points", points)
    if seed is not None and (not is_whole(seed) or seed < 0):
        raise InvalidValue(f"seed={seed!r}: expected a whole number, at least 0")
    rng, c, against = (
        np.random.default_rng(secrets.randbits(128) if seed is None else seed),
        a.certificate,
        "f as given",
    )
    if f is None and a.formula is not None:
        formula = parse_formula(a.formula)
        f, against = formula, f"the formula {formula.text}"
    elif f is None:
        against = "its closed form alone: f is neither given nor in the file"
    found, rows = _Measured(), max(1, min(_NUMBERS_AT_ONCE // n, _ROWS_AT_ONCE))
    try:
        for part in _points(a, count, rows, rng):
            found.add(a, f, part)
    except RadNetError:
        raise
    except (MemoryError, *_RAW) as error:
        if is_out_of_memory(error):
            raise NotEnoughMemory(f"recheck: not enough memory for {rows:,} points of {n:,} coordinates") from error
        raise InvalidValue(f"recheck: the parts of the approximation do not fit together ({error})") from error
    if a.domain is None:
        against += f"; at the {found.points:,} points in the file alone, which does not say what the domain is"
    ulps = 8 * torch.finfo(next(a.network.parameters()).dtype).eps * found.largest
    holds = found.uncovered == 0 and found.off <= c.rounding + ulps and c.rounding <= c.bound < c.eps
    holds = holds and 2 * found.near < found.points and found.from_f <= c.bound
    return Recheck(
        against=against,
        domain=_named(a.domain, found.points),
        scope=c.scope,
        whole_scope=a.domain is not None and c.scope == scope_of(a.domain),
        points=found.points,
        near_a_sphere=found.near,
        uncovered=found.uncovered,
        from_closed_form=found.off,
        from_f=None if f is None else found.from_f,
        eps=c.eps,
        bound=c.bound,
        rounding=c.rounding,
        holds=holds,
    )


def _named(domain: Domain | None, points: int) -> str:
    if domain is None:
        return f"{points:,} points in the file, which does not say what the domain is"
    return f"all of the domain {domain}" if isinstance(domain, Points) else f"random points of the domain {domain}"


def _points(a: Approximation, count: int, rows: int, rng: np.random.Generator) -> Iterator[Array]:
    """Points of K, some rows at a time: all of a finite K; else random ones, and some of those where f was evaluated.

    These alone, each of them once, where the file does not say what K is.
    """
    if isinstance(a.domain, Points):
        known = a.domain.x  # no two the same
    else:
        known = np.unique(a.cover.samples, axis=0) if a.domain is None else a.cover.samples[:count]
    for i in range(0, len(known), rows):
        yield known[i : i + rows]
    if a.domain is not None and not isinstance(a.domain, Points):
        for i in range(0, count, rows):
            yield a.domain.sample(min(rows, count - i), rng)


def _largest(rows: Tensor) -> float:
    """The largest norm of a row; infinite if one is no number."""
    norms = rows.norm(dim=1)
    return float(norms.nan_to_num(nan=torch.inf).max()) if len(norms) else 0.0
