"""From a plan to a network: the construction of the width that was chosen."""

from __future__ import annotations

import numpy as np

from .constructions import growing_width, width_max, width_max_plus_1, width_n_plus_m_plus_1
from .constructions.construction import Construction
from .planning import Plan, Problem


def build(problem: Problem, plan: Plan) -> Construction:
    """The network, and what is known about it."""
    cover, values, dtype = plan.cover, plan.values, problem.dtype
    if plan.width == "growing":
        return growing_width.build(cover, values, problem.limit, dtype)
    if plan.width == "max":
        return width_max.build(cover, values, plan.snapping, dtype, np.random.default_rng(problem.rng_seed))
    if plan.snapped is None:
        raise AssertionError(f"width {plan.width} needs snapped values")
    if plan.width == "n+m+1":
        return width_n_plus_m_plus_1.build(cover, plan.snapped, problem.limit, dtype)
    return width_max_plus_1.build(cover, plan.snapped, dtype)
