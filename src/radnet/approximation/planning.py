"""From a function, a domain and an eps to balls: the error budget, and the arithmetic in which balls are placed.

The budget eps pays for the variation of f over a ball, for snapping its values, and for rounding. Balls are placed for
float32 arithmetic where that costs next to nothing, so that the network holds in float32 too, and for float64
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import InvalidValue
from .constructions import RECIPES, Recipe
from .constructions.construction import Snapped, snap
from .covers import Balls, Cover, Ruler, TooManyBalls, place
from .covers.greedy import greedy_cover, safe_radius, separated_cover
from .covers.lattices import lattice_cover
from .covers.subdivision import Fits, adaptive_cover
from .covers.trees import BallTree
from .domains import Array, Domain, Points
from .targets import Limit, Target, Variation

BITS = {torch.float32: 24, torch.float64: 53}
_SAFE = 1 - 2.0**-20


@dataclass(frozen=True)
class Problem:
    """Everything that is given."""

    f: Target
    domain: Domain
    eps: float
    variation: Variation
    limit: Limit
    dtype: torch.dtype
    max_balls: int
    rng_seed: int = 0

    @property
    def n(self) -> int:
        """Inputs."""
        return self.domain.dimension

    @property
    def m(self) -> int:
        """Outputs."""
        return self.f.outputs


@dataclass(frozen=True)
class Plan:
    """Balls that are placed, with their values and what the error is made of.

    ``snapping`` is how far values may be moved: to the lattice, or where the construction wants them.
    """

    width: str
    cover: Cover
    values: Array
    snapped: Snapped | None
    variation: float
    snapping: float


@dataclass(frozen=True)
class _Attempt:
    bits: int
    margin: float
    quantum: float  # as a share of eps; 0 where values are not snapped


def make_plan(problem: Problem, width: str) -> Plan:
    """The first attempt that works out.

    Raises
    ------
    TooManyBalls
        If the cover would be too large.
    InvalidValue
        If arithmetic is too coarse for this eps.
    """
    recipe = RECIPES[width]
    spread, size = problem.f.extent
    for attempt in _attempts(problem, recipe):
        plan = _try(problem, recipe, attempt, spread, size)
        if plan is not None:
            return plan
    raise InvalidValue(
        f"eps={problem.eps} is below what {str(problem.dtype).removeprefix('torch.')} can do here: values up to "
        f"{size:.3g} over a domain reaching {problem.domain.reach:.3g}. Take a larger eps, subtract what is constant, "
        f"move the domain closer to 0{', use float64' if problem.dtype == torch.float32 else ''}, or try another width"
    )


def _attempts(problem: Problem, recipe: Recipe) -> Iterator[_Attempt]:
    """float32 with little to spare first, where it is cheap; then what has to be."""
    uniform = problem.variation.kind in ("constant", "modulus") and not isinstance(problem.domain, Points)
    quanta = recipe.quanta
    cheap = (1e-4, 1e-3, 3e-3, 1e-2) if uniform else (1e-3, 1e-2)
    for margin in cheap:
        yield from (_Attempt(24, margin, q) for q in quanta)
    if problem.dtype == torch.float32:
        for margin in (0.03, 0.1, 0.2):
            yield from (_Attempt(24, margin, q) for q in quanta)
    else:
        for margin in (1e-9, 1e-6, 1e-3, 1e-2, 0.1):
            yield _Attempt(53, margin, min(quanta[0], 2.0**-10))


def _try(problem: Problem, recipe: Recipe, attempt: _Attempt, spread: float, size: float) -> Plan | None:
    n, m, eps = problem.n, problem.m, problem.eps
    hidden = recipe.hidden_width(n, m)
    u = 2.0**-attempt.bits
    A = float(np.linalg.norm(problem.limit.A)) * problem.domain.reach * math.sqrt(n)
    constants = size + spread + 2 * eps + A + float(np.linalg.norm(problem.limit.b))
    rounding = 8 * (hidden + 4) * u * constants
    if rounding > (0.02 if attempt.margin <= 0.01 else 0.2) * eps:
        return None
    snapping = attempt.quantum * eps * math.sqrt(m) / 2
    budget = eps * _SAFE - snapping - rounding - recipe.freedom * eps
    largest = (1.02 * spread + eps) / (attempt.quantum * eps) if attempt.quantum else 0.0
    if 4 * largest > 2.0**attempt.bits:
        return None
    ruler = Ruler(
        bits=attempt.bits,
        unit=recipe.unit,
        terms=hidden,
        reach=problem.domain.reach,
        values=largest if recipe.shared else 0.0,
    )
    cover = _cover(problem, recipe.separated, budget, attempt.margin, ruler)
    if cover is None:
        return None
    values = problem.f(cover.samples)
    snapped = snap(values, attempt.quantum * eps) if attempt.quantum else None
    if snapped is not None and float(np.abs(snapped.V).max()) > largest:
        spread = float((values.max(0) - values.min(0)).max())
        return _try(problem, recipe, attempt, spread, size)
    moved = 0.99 * recipe.freedom * eps if recipe.freedom else snapping
    return Plan(recipe.width, cover, values, snapped, _variation(problem, cover, values), moved)


def _cover(problem: Problem, separated: bool, budget: float, margin: float, ruler: Ruler) -> Cover | None:
    """Balls of the kind that suits the claim, placed, or None if the ruler is too coarse."""
    domain, variation = problem.domain, problem.variation
    rng = np.random.default_rng(problem.rng_seed)
    if isinstance(domain, Points):
        if not separated:
            balls = greedy_cover(domain, problem.f, budget, margin, problem.max_balls, rng)
        else:
            radius = safe_radius(domain.x, problem.f(domain.x), budget) / (1 + 3 * margin)
            balls = separated_cover(domain, min(radius, 1.01 * domain.radius or 1.0), margin, problem.max_balls)
        return _placed(balls, domain, margin, ruler, separated)
    if variation.kind == "local":
        balls = _adaptive_or_lattice(problem, budget, margin, separated)
        largest = ruler.largest_radius(domain.dimension, margin * float(balls.radii.min()))
        if problem.dtype == torch.float32 and balls.radii.min() <= largest < balls.radii.max():
            # large balls cost small ones precision; where float32 is wanted they are kept smaller
            fits = _fits(variation, budget, margin, largest / (1 + 2 * margin))
            balls = adaptive_cover(domain, fits, problem.max_balls, separated=separated)
        return _placed(balls, domain, margin, ruler, separated)
    whole = domain.radius * (1 + 1e-9)
    if variation.kind == "samples":
        balls = greedy_cover(domain, problem.f, budget / (2 if separated else 1), margin, problem.max_balls, rng)
        if not separated:
            return _placed(balls, domain, margin, ruler, separated)
        inner = float(balls.radii.min())  # within it f varies by at most twice what it may within a ball
    else:
        inner = variation.largest_radius(budget, whole * (1 + 2 * margin)) / (1 + 2 * margin)
    if ruler.slack(domain.dimension, inner * (1 + margin)) > margin * inner:
        return None
    balls = lattice_cover(domain, inner, problem.max_balls, separated=separated)
    return _placed(balls, domain, margin, ruler, separated)


def _adaptive_or_lattice(problem: Problem, budget: float, margin: float, separated: bool) -> Balls:
    """An adaptive cover, or a lattice for the bound on all of K where that needs fewer balls."""
    domain, variation, refused = problem.domain, problem.variation, None
    try:
        fits = _fits(variation, budget, margin, math.inf)
        adaptive: Balls | None = adaptive_cover(domain, fits, problem.max_balls, separated=separated)
    except TooManyBalls as error:
        adaptive, refused = None, error
    size = np.array([2 * domain.radius])
    whole = Variation("constant", constant=float((variation.bound(domain.centre[None], size) / size)[0]))
    inner = whole.largest_radius(budget, domain.radius * (1 + 1e-9) * (1 + 2 * margin)) / (1 + 2 * margin)
    fewer = len(adaptive.levels) - 1 if adaptive else problem.max_balls
    try:
        return lattice_cover(domain, inner, fewer, separated=separated)
    except TooManyBalls:
        if adaptive is None:
            raise refused or TooManyBalls(math.inf) from None
        return adaptive


def _placed(balls: Balls, domain: Domain, margin: float, ruler: Ruler, separated: bool) -> Cover | None:
    """Placed, or None if the ruler is too coarse for that or for keeping balls apart."""
    cover = place(balls, domain, margin, ruler)
    return None if cover is None or (separated and not cover.separation >= 1 + margin) else cover


def _fits(variation: Variation, budget: float, margin: float, largest: float) -> Fits:
    """Whether f stays within the budget on each ball, up to the outer radius, and the ball is not too large."""
    return lambda c, r: (variation.bound(c, r * (1 + 2 * margin)) <= budget) & (r <= largest)


def _variation(problem: Problem, cover: Cover, values: Array) -> float:
    """How far f may be from the value of a ball: by the claim, or as far as samples tell."""
    domain, claim = problem.domain, problem.variation
    if claim.kind != "samples" and not isinstance(domain, Points):
        return float(claim.bound(cover.samples, cover.outer).max())
    x = domain.x if isinstance(domain, Points) else domain.sample(100_000, np.random.default_rng(2))
    point, ball, _ = BallTree(cover.centres, cover.outer).pairs(x)
    return float(np.linalg.norm(problem.f(x)[point] - values[ball], axis=1).max())
