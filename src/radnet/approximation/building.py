"""From a plan to a network."""

from __future__ import annotations

from .constructions import RECIPES, Construction, Materials
from .planning import Plan, Problem


def build(problem: Problem, plan: Plan) -> Construction:
    """The network of the construction that was chosen, and what is known about it."""
    given = Materials(
        cover=plan.cover,
        values=plan.values,
        lattice=plan.snapped,
        freedom=plan.snapping,
        limit=problem.limit,
        dtype=problem.dtype,
        rng_seed=problem.rng_seed,
    )
    return RECIPES[plan.width].build(given)
