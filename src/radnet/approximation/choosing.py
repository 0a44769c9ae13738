"""Which construction to take, and what to say where its cover would be too large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..errors import InvalidValue
from ..widths import count_parameters
from .constructions import RECIPES
from .covers import TooManyBalls
from .planning import Plan, Problem, make_plan

# values of eps that are considered where the one given takes too many balls, and how many of them lie close together
_CONSIDERED, _CLOSE = 20, 5


def choose_plan(problem: Problem, width: str) -> Plan:
    """The plan for a construction; for "auto", for the one that takes the fewest parameters.

    Raises
    ------
    InvalidValue
        If the cover would be too large, with an eps for which it is not; or if arithmetic is too coarse for this eps.
    """
    bounded = "n+m+1" if problem.limit.given else "max+1"
    try:
        return _cheapest(problem, bounded) if width == "auto" else make_plan(problem, width)
    except TooManyBalls as error:
        raise InvalidValue(_too_many(problem, bounded if width == "auto" else width, error)) from None


def _cheapest(problem: Problem, bounded: str) -> Plan:
    """Of bounded width, or, for a few balls, growing; width "max" never is the cheapest: it has twice the layers."""
    plan = make_plan(problem, bounded)
    n, m, N = problem.n, problem.m, len(plan.cover)
    cost = count_parameters([n, *[RECIPES[bounded].hidden_width(n, m)] * N, m])
    growing = count_parameters([n, *range(n + 1, n + N + 1), m])
    return make_plan(problem, "growing") if growing < cost else plan


def _too_many(problem: Problem, width: str, error: TooManyBalls) -> str:
    """How many balls it would take, and an eps for which they suffice."""
    known = error.count != math.inf
    growth = 2.0
    count = "very many"
    if known:
        count = f"{error.count:,.0f}" if error.count < 1e15 else f"10^{math.log10(error.count):.0f}"
        growth = min(math.exp((math.log(error.count) - math.log(problem.max_balls)) / problem.n), 1e6)
    eps = _first_that_fits(problem, width, _rising(problem.eps * max(growth, 1.05)))
    advice = "no eps was found that would fit" if eps is None else f"eps={eps:g} would fit"
    about = "about " if known and not error.exact else ""
    return f"eps={problem.eps:g} takes {about}{count} balls, more than max_balls={problem.max_balls:,}; {advice}"


def _rising(eps: float) -> list[float]:
    """Values of two digits from eps on: at first close together, then each twice the one before.

    >>> _rising(0.0981)[:8]
    [0.099, 0.13, 0.17, 0.22, 0.28, 0.56, 1.2, 2.4]
    """
    values = [_round_up(eps)]
    while len(values) < _CONSIDERED:
        values.append(_round_up(values[-1] * (1.25 if len(values) < _CLOSE else 2.0)))
    return values


def _first_that_fits(problem: Problem, width: str, values: Sequence[float]) -> float | None:
    """The first eps whose cover is not too large.

    The close ones are planned for one by one, since one of them is likely to fit. Of the others only a few are: what is
    larger than an eps that fits does too, so steps may grow until one fits, and what was passed over is halved.
    """

    def fits(i: int) -> bool:
        try:
            make_plan(replace(problem, eps=values[i]), width)
        except TooManyBalls:
            return False
        return True

    low, high, step = -1, 0, 1  # the value at low does not fit
    while not fits(high):
        if high == len(values) - 1:
            return None
        step = 1 if high < _CLOSE else 2 * step
        low, high = high, min(high + step, len(values) - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return values[high]


def _round_up(x: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / unit * (1 - 1e-9)) * unit:.2g}")
