"""From a plan to a network and its certificate: the bound in each dtype, where it holds, what it rests on."""

from __future__ import annotations

import math

import numpy as np
import torch

from ..errors import InvalidValue
from .certificate import ROUNDING_AFAR, Certificate, largest_argument, reach_of, unit_roundoff
from .constructions import growing_width, width_max, width_max_plus_1, width_n_plus_m_plus_1
from .constructions.construction import Construction
from .domains import Points
from .planning import FREEDOM, Plan, Problem
from .targets import LIMIT_SHARE


def certify(problem: Problem, plan: Plan) -> tuple[Construction, Certificate]:
    """Build the network and write its certificate; refuse what that would not cover."""
    built = _build(problem, plan)
    own = str(problem.dtype).removeprefix("torch.")
    bounds = {name: _bound(problem, plan, built, name) for name in ("float64", "float32")}
    if not bounds[own] < problem.eps:
        raise InvalidValue(
            f"eps={problem.eps} is below what {own} can do with width={plan.rule!r} and {len(plan.cover)} balls "
            f"(the bound would be {bounds[own]:.3g}); use float64, a larger eps, or another width"
        )
    u = unit_roundoff(own)
    reach = {name: _reach(problem, plan, built, name) if math.isfinite(bounds[name]) else 0.0 for name in bounds}
    widths = built.network.widths
    certificate = Certificate(
        width=plan.rule,
        balls=len(plan.cover),
        hidden_layers=len(widths) - 2,
        parameters=built.network.parameter_count,
        widths=widths,
        eps=problem.eps,
        bound=bounds[own],
        variation=plan.variation,
        snapping=_snapping(problem, plan),
        rounding=float(built.rounding(u)),
        rests_on=_rests_on(problem),
        proven=problem.variation.kind != "samples" or isinstance(problem.domain, Points),
        scope=_scope(problem, reach[own]),
        cover=plan.cover.kind,
        dtype=own,
        sphere_margin=float((1 - plan.cover.inner / plan.cover.radii).min()),
        threshold_margin=built.margin(u),
        bounds=bounds,
        reach=reach,
        _network=built.network,
        _cover=plan.cover,
    )
    return built, certificate


def _build(problem: Problem, plan: Plan) -> Construction:
    if plan.rule == "growing":
        return growing_width.build(plan.cover, plan.values, problem.limit, problem.dtype)
    if plan.rule == "max":
        freedom = 0.99 * FREEDOM * problem.eps
        return width_max.build(plan.cover, plan.values, freedom, problem.dtype, np.random.default_rng(problem.rng_seed))
    if plan.snapped is None:
        raise AssertionError(f"width {plan.rule} needs snapped values")
    if plan.rule == "n+m+1":
        return width_n_plus_m_plus_1.build(plan.cover, plan.snapped, problem.limit, problem.dtype)
    return width_max_plus_1.build(plan.cover, plan.snapped, problem.dtype)


def _snapping(problem: Problem, plan: Plan) -> float:
    return 0.99 * FREEDOM * problem.eps if plan.rule == "max" else plan.snapping


def _bound(problem: Problem, plan: Plan, built: Construction, name: str) -> float:
    """The guarantee in a dtype; infinite if balls or values were placed for a finer one, or for larger numbers."""
    u = unit_roundoff(name)
    if 2.0**-plan.cover.bits < u or not built.margin(u) > 1 or not _in_range(problem, plan, built, name):
        return math.inf
    inside = float(plan.variation + _snapping(problem, plan) + built.rounding(u))
    return max(inside, (LIMIT_SHARE + ROUNDING_AFAR) * problem.eps) if _reach(problem, plan, built, name) else inside


def _in_range(problem: Problem, plan: Plan, built: Construction, name: str) -> bool:
    """Whether no number of the network, squared, leaves the range of the dtype; values below eps may vanish."""
    info = torch.finfo(getattr(torch, name))
    parts = [p.detach().abs().double() for p in built.network.parameters()]
    largest = max(
        [float(p.max()) for p in parts if p.numel()] + [float(np.abs(plan.values).max()), problem.domain.reach]
    )
    smallest = min(plan.cover.scale, plan.cover.pitch, problem.eps)
    scaled = plan.cover.scale * problem.domain.reach * 2.0 ** int(plan.cover.levels.max())
    return largest < info.max / 2**10 and scaled**2 < info.max / 2**10 and smallest > info.tiny * 2**10


def _reach(problem: Problem, plan: Plan, built: Construction, name: str) -> float:
    """Up to which |x| the limit holds in a dtype."""
    u = unit_roundoff(name)
    if not problem.limit.given or isinstance(problem.domain, Points) or 2.0**-plan.cover.bits < u:
        return 0.0
    most = largest_argument(plan.cover, name)
    least = problem.domain.reach * math.sqrt(problem.n)
    return reach_of(built.far, u, ROUNDING_AFAR * problem.eps, least, most)


def _rests_on(problem: Problem) -> str:
    if isinstance(problem.domain, Points):
        return f"the values of f at all {len(problem.domain.x)} points"
    claims = {
        "constant": f"the Lipschitz constant {problem.variation.constant:g}, as given",
        "local": "the Lipschitz constants of boxes, as given",
        "modulus": "the modulus of continuity, as given",
        "samples": "samples of f only; nothing was claimed about f between them, so nothing is proven",
    }
    near = f"|f(x) - L(x)| < {LIMIT_SHARE * problem.eps:g} outside the domain, as given"
    also = f", and {near}" if problem.limit.given else ""
    return claims[problem.variation.kind] + also


def _scope(problem: Problem, reach: float) -> str:
    if isinstance(problem.domain, Points):
        return "the given points"
    return f"all of R^{problem.n}, up to |x| = {reach:.3g}" if reach else f"the domain {problem.domain}"
