"""A certificate that was read from a file, measured again.

Two things can be measured. The network against f, where f is given or stored as a formula: the distance must stay below
the recorded bound. And the network against its closed form, "the value of the first ball that contains x", which needs
no f: it shows that weights, balls and values belong together and that the balls cover the domain, and nothing about f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..checks import check_positive
from ..expressions import parse_formula
from .certificate import table
from .domains import Array
from .targets import Function, values_of

if TYPE_CHECKING:
    from .result import Approximation


@dataclass(frozen=True)
class Recheck:
    """What `Approximation.recheck` measured.

    Attributes
    ----------
    against : str
        What the network was compared with.
    points, near_a_sphere : int
        How many points of the domain were looked at, and on how many of them rounding decides in which ball they are;
        these are not compared with the closed form.
    uncovered : int
        Points of the domain in no ball: the cover is not one.
    from_closed_form, from_f : float
        The largest distance of the network from its closed form, and from f (None if there is no f).
    eps, bound, rounding : float
        As recorded.
    holds : bool
        Whether every point is in a ball, the network is within rounding of its closed form, and within the bound of f,
        which is below eps.
    """

    against: str
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
            ("points", f"{self.points:,} of the domain, {self.uncovered:,} in no ball"),
            ("closed form", f"{self.from_closed_form:.3g} at worst, {self.rounding:.3g} recorded as rounding"),
            ("f", f),
            ("holds", "yes" if self.holds else "NO"),
        ]
        return table(rows)


def recheck(a: Approximation, f: Function | None, points: int) -> Recheck:
    """Measure an approximation again; see `Approximation.recheck`."""
    check_positive("points", points)
    c, against = a.certificate, "f as given"
    if f is None and a.formula is not None:
        formula = parse_formula(a.formula)
        f, against = formula, f"the formula {formula.text}"
    dtype = next(a.network.parameters()).dtype
    x = torch.from_numpy(_points(a, points)).to(dtype)
    exact: Array = x.double().numpy()
    with torch.no_grad():
        F = a.network(x).double()
    uncovered = int((a.cover.tree.first(exact) < 0).sum())
    near = a.cover.near_a_sphere(exact)
    off = _largest((F - a.evaluate(x.double()))[torch.from_numpy(~near)])
    ulps = 8 * torch.finfo(dtype).eps * _largest(F)
    holds = uncovered == 0 and off <= c.rounding + ulps and c.bound < c.eps
    from_f = None
    if f is None:
        against = "its closed form alone: f is neither given nor in the file"
    else:
        from_f = _largest(F - torch.from_numpy(values_of(f, exact, c.widths[-1])))
        holds = holds and from_f <= c.bound
    return Recheck(against, len(x), int(near.sum()), uncovered, off, from_f, c.eps, c.bound, c.rounding, holds)


def _points(a: Approximation, count: int) -> Array:
    """Points of K: random ones, and those where f was evaluated; these alone where the file does not say what K is."""
    known = a.cover.samples[:count]
    if a.domain is None:
        return known
    return np.concatenate([known, a.domain.sample(count, np.random.default_rng(7))])


def _largest(rows: Tensor) -> float:
    """The largest norm of a row; infinite if one is no number."""
    norms = rows.norm(dim=1)
    return float(norms.nan_to_num(nan=torch.inf).max()) if len(norms) else 0.0
