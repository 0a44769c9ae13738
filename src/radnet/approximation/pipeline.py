"""The walk of `approximate`: check the arguments, refute the claims, plan a cover, build the network, certify it."""

from __future__ import annotations

import math

import numpy as np
import torch

from ..checks import check_positive, is_number
from ..errors import InvalidType, InvalidValue
from ..expressions import Formula
from .building import build
from .certifying import certify
from .choosing import choose_plan
from .constructions import RECIPES
from .domains import Domain, Points
from .planning import BITS, Problem
from .result import Approximation
from .targets import (
    LARGEST,
    Function,
    LocalBound,
    Modulus,
    Target,
    Values,
    claimed_limit,
    claimed_variation,
    refute,
    refute_limit,
)

#: balls of the largest network that is built
MOST_BALLS = 10_000_000


def approximate(
    f: Function,
    domain: Domain,
    eps: float,
    *,
    lipschitz: float | LocalBound | None = None,
    modulus: Modulus | None = None,
    width: str = "auto",
    limit: tuple[Values, Values] | None = None,
    dtype: torch.dtype = torch.float64,
    max_balls: int = 20_000,
) -> Approximation:
    """Turn f into a radial network with Step-ReLU that is off by less than eps, and say what that rests on.

    Parameters
    ----------
    f : function
        Takes a float64 tensor of shape (batch, n), returns a tensor or array of shape (batch, m), or (batch,) for m =
        1.
    domain : Box, Ball or Points
        The compact set K.
    eps : float
        The error allowed, in the Euclidean norm.
    lipschitz : float or function, optional
        A Lipschitz constant of f on K; or a function ``(lo, hi) -> bound`` that gives one for each of a batch of
        boxes, for a cover that adapts. With a limit it has to hold around K too, as far as balls around points of K
        reach.
    modulus : function, optional
        A modulus of continuity instead, increasing: ``|f(x) - f(y)| <= modulus(|x - y|)``. With neither, f is sampled,
        and the certificate says so; on `Points` samples are all that is needed.
    width : "growing", "n+m+1", "max+1", "max" or "auto"
        Which construction. The first two are good on all of R^n if a limit is given; "max" needs max(n, m) >= 2.
        "auto" takes the one with the fewest parameters.
    limit : pair (A, b), optional
        The affine map ``A x + b`` that f approaches: claimed to be within 0.97 eps of f outside K.
    dtype : torch.float64 or torch.float32
        Of the network.
    max_balls : int
        The largest cover allowed.

    Returns
    -------
    Approximation
        ``network``, ``cover``, ``certificate``, ``evaluate(x)``.

    Raises
    ------
    InvalidValue, InvalidType
        If an argument makes no sense, a claim about f is refuted by samples, or the cover would be too large.

    References
    ----------
    thm:UA-asymp-lin, thm:UA-n+m+1, thm:UA-n+1, thm:UA-bd=n-app.

    Examples
    --------
    >>> import torch, radnet
    >>> a = radnet.approximate(torch.sin, radnet.Box(0, 6), 0.1, lipschitz=1)
    >>> a
    Approximation(width='max+1', balls=31, bound=0.09999, eps=0.1)
    >>> x = 6 * torch.rand(1000, 1, dtype=torch.float64)
    >>> bool((a.network(x) - x.sin()).abs().max() < 0.1)
    True
    """
    _check_arguments(domain, eps, width, dtype, max_balls)
    rng = np.random.default_rng(0)
    target = Target(f, domain, rng)
    n, m = domain.dimension, target.outputs
    if width != "auto":
        RECIPES[width].refuse(n, m)
    claimed = claimed_limit(limit, n, m)
    if claimed.given and width != "auto" and not RECIPES[width].everywhere:
        raise InvalidValue(
            f'width="{width}" knows the domain only and has no limit; use "growing" or "n+m+1", or limit=None'
        )
    everywhere = claimed.given and not isinstance(domain, Points)
    variation = claimed_variation(lipschitz, modulus, domain, everywhere)
    refute(variation, target, domain, rng)
    refute_limit(claimed, target, domain, eps, rng)
    problem = Problem(target, domain, float(eps), variation, claimed, dtype, max_balls)
    plan = choose_plan(problem, width)
    built = build(problem, plan)
    certificate = certify(problem, plan, built)
    formula = f.text if isinstance(f, Formula) else None
    return Approximation(built.network, plan.cover, certificate, built.outputs, built.outside, domain, formula)


def _check_arguments(domain: object, eps: object, width: object, dtype: object, max_balls: object) -> None:
    if not isinstance(domain, Domain):
        raise InvalidType(f"domain must be a Box, a Ball or Points, got {type(domain).__name__}")
    if not is_number(eps):
        raise InvalidType(f"eps must be a number, got {type(eps).__name__}")
    if not 0 < eps < math.inf:
        raise InvalidValue(f"eps={eps}: the error allowed must be a positive number")
    sides = domain.upper - domain.lower
    if not 1 / LARGEST <= eps <= LARGEST or domain.reach > LARGEST or ((sides > 0) & (sides < 1 / LARGEST)).any():
        raise InvalidValue(
            f"eps={eps} on {domain}: sizes must be between {1 / LARGEST:g} and {LARGEST:g}; change the units"
        )
    if width not in (*RECIPES, "auto"):
        raise InvalidValue(f"width={width!r}: expected one of {', '.join((*RECIPES, 'auto'))}")
    if not isinstance(dtype, torch.dtype) or dtype not in BITS:
        raise InvalidValue(f"dtype={dtype}: expected torch.float64 or torch.float32")
    if check_positive("max_balls", max_balls) > MOST_BALLS:
        raise InvalidValue(f"max_balls={max_balls:,}: networks of more than {MOST_BALLS:,} balls are not built")
