"""The certificate of a network: the bound in each dtype, where it holds, what it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from ..errors import InvalidValue
from .certificate import DTYPES, Certificate, scope_of
from .constructions.construction import Construction
from .covers import Cover
from .domains import Points
from .planning import Plan, Problem
from .targets import LIMIT_SHARE

_ROUNDING_AFAR = 0.02  # share of eps that rounding may take up where the limit is still called good


def certify(problem: Problem, plan: Plan, built: Construction) -> Certificate:
    """What is guaranteed about a network that was built to a plan.

    Raises
    ------
    InvalidValue
        If that is not even the eps that was asked for, in the dtype of the network.
    """
    own = str(problem.dtype).removeprefix("torch.")
    bounds = {name: _bound(problem, plan, built, name) for name in ("float64", "float32")}
    if not bounds[own] < problem.eps:
        raise InvalidValue(
            f"eps={problem.eps} is below what {own} can do with width={plan.width!r} and {len(plan.cover)} balls "
            f"(the bound would be {bounds[own]:.3g}); use float64, a larger eps, or another width"
        )
    u = _unit_roundoff(own)
    reach = {name: _reach(problem, plan, built, name) if math.isfinite(bounds[name]) else 0.0 for name in bounds}
    widths = built.network.widths
    return Certificate(
        width=plan.width,
        balls=len(plan.cover),
        hidden_layers=len(widths) - 2,
        parameters=built.network.parameter_count,
        widths=widths,
        eps=problem.eps,
        bound=bounds[own],
        variation=plan.variation,
        snapping=plan.snapping,
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


def _bound(problem: Problem, plan: Plan, built: Construction, name: str) -> float:
    """The guarantee in a dtype; infinite if balls or values were placed for a finer one, or for larger numbers."""
    u = _unit_roundoff(name)
    if 2.0**-plan.cover.bits < u or not built.margin(u) > 1 or not _in_range(problem, plan, built, name):
        return math.inf
    inside = float(plan.variation + plan.snapping + built.rounding(u))
    return max(inside, (LIMIT_SHARE + _ROUNDING_AFAR) * problem.eps) if _reach(problem, plan, built, name) else inside


def _in_range(problem: Problem, plan: Plan, built: Construction, name: str) -> bool:
    """Whether no number of the network, squared, leaves the range of the dtype; values below eps may vanish."""
    info = torch.finfo(DTYPES[name])
    parts = [p.detach().abs().double() for p in built.network.parameters()]
    largest = max(
        [float(p.max()) for p in parts if p.numel()] + [float(np.abs(plan.values).max()), problem.domain.reach]
    )
    smallest = min(plan.cover.scale, plan.cover.pitch, problem.eps)
    scaled = plan.cover.scale * problem.domain.reach * 2.0 ** int(plan.cover.levels.max())
    return largest < info.max / 2**10 and scaled**2 < info.max / 2**10 and smallest > info.tiny * 2**10


def _reach(problem: Problem, plan: Plan, built: Construction, name: str) -> float:
    """Up to which |x| the limit holds in a dtype."""
    u = _unit_roundoff(name)
    if not problem.limit.given or isinstance(problem.domain, Points) or 2.0**-plan.cover.bits < u:
        return 0.0
    largest = _largest_argument(plan.cover, name)
    least = problem.domain.reach * math.sqrt(problem.n)
    return _largest_reach(built.far, u, _ROUNDING_AFAR * problem.eps, least, largest)


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
    everywhere = reach and not isinstance(problem.domain, Points)
    return f"all of R^{problem.n}, up to |x| = {reach:.3g}" if everywhere else scope_of(problem.domain)


def _unit_roundoff(name: str) -> float:
    """u of a dtype, by its name."""
    return torch.finfo(DTYPES[name]).eps / 2


def _largest_reach(
    far: Callable[[float, float], float], u: float, allowed: float, least: float, largest: float
) -> float:
    """The largest |x| for which rounding stays allowed; 0 if that is not even the whole domain."""
    if not far(u, least) <= allowed:
        return 0.0
    low, high = least, largest
    if far(u, high) <= allowed:
        return high
    for _ in range(200):
        middle = float(np.sqrt(low) * np.sqrt(high)) if low > 0 else high / 2
        low, high = (middle, high) if far(u, middle) <= allowed else (low, middle)
    return float(low)


def _largest_argument(cover: Cover, name: str) -> float:
    """Beyond this |x| the coordinates of the network overflow."""
    return float(torch.finfo(DTYPES[name]).max) / (
        16 * cover.scale * 2.0 ** int(cover.levels.max()) * len(cover.centres[0])
    )
