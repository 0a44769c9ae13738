"""From a function, a domain and an eps to a radial network with a guarantee.

Paper: "Universal Approximation" and its appendix; every construction is a file of this package, named after the width
it promises. `docs/approximation.md` shows how it works and what is and is not claimed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_features
from ..errors import InvalidType, InvalidValue
from ..expressions import Formula
from .certificate import Certificate, Check
from .constructions.construction import Outside
from .constructions.growing_width import GrowingNetwork
from .constructions.stacked import DeepNetwork, StackedNetwork
from .covers import Cover, TooManyBalls
from .domains import Array, Ball, Box, Domain, Points
from .guarantee import certify
from .planning import BITS, WIDTHS, Plan, Problem, make_plan
from .rechecking import Recheck, recheck
from .targets import LARGEST, Target, claimed_limit, claimed_variation, refute, refute_limit

__all__ = [
    "Approximation",
    "Ball",
    "Box",
    "Certificate",
    "Check",
    "Cover",
    "GrowingNetwork",
    "Points",
    "Recheck",
    "StackedNetwork",
    "approximate",
    "load",
]


@dataclass(frozen=True, eq=False)
class Approximation:
    """A network, the cover it was made from, and its certificate.

    Attributes
    ----------
    network : StackedNetwork or GrowingNetwork
        With ``widths``, ``partial`` and ``to_radnet()``.
    cover : Cover
    certificate : Certificate
    domain : Box, Ball or Points, or None
        None only in files of earlier versions, which did not store it.
    formula : str or None
        f as a text, if it was given as a formula (`radnet.expressions.parse_formula`).
    """

    network: DeepNetwork
    cover: Cover
    certificate: Certificate
    outputs: Array
    outside: Outside
    domain: Domain | None = None
    formula: str | None = None

    def evaluate(self, x: Tensor) -> Tensor:
        """The same function by its closed form: the value of the first ball that contains x, by a k-d tree.

        Computed in float64 and returned in the dtype of x. It differs from the network by rounding, and for points
        that are within rounding of a sphere.

        Examples
        --------
        >>> import torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> x = torch.linspace(0, 3, 7, dtype=torch.float64).unsqueeze(1)
        >>> bool((a.evaluate(x) - a.network(x)).abs().max() < 1e-12)
        True
        """
        n = self.certificate.widths[0]
        check_features(x, "evaluate", n)
        points = x.detach().cpu().double().reshape(-1, n).numpy()
        ball = self.cover.tree.first(points)
        y = self.outputs[np.maximum(ball, 0)]
        out = np.flatnonzero(ball < 0)
        if len(out):
            with np.errstate(invalid="ignore", over="ignore"):
                y[out] = self.outside(points[out])
        return torch.from_numpy(y).reshape(*x.shape[:-1], y.shape[1]).to(dtype=x.dtype, device=x.device)

    def recheck(self, f: Callable[[Tensor], Any] | None = None, *, points: int = 10_000) -> Recheck:
        """Measure again what the certificate says, for one that was read from a file: whoever wrote it may be wrong.

        Parameters
        ----------
        f : function, optional
            The function that was approximated; by default the formula, if there is one. Without either, only the
            network is compared with its closed form, and the result says so.
        points : int
            How many random points of the domain are looked at.

        Examples
        --------
        >>> import torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> a.recheck(torch.sin).holds, a.recheck(torch.cos).holds
        (True, False)
        >>> a.recheck().against
        'its closed form alone: f is neither given nor in the file'
        """
        return recheck(self, f, points)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write network, cover and certificate to a safetensors file, atomically; `radnet.approximation.load` reads it.

        Examples
        --------
        >>> import os, tempfile, torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     a.save(os.path.join(folder, "sine.safetensors"))
        ...     again = radnet.approximation.load(os.path.join(folder, "sine.safetensors"))
        >>> again
        Approximation(width='max+1', balls=16, bound=0.09999, eps=0.1)
        """
        from .storage import save

        save(self, path)

    def report(self) -> str:
        """The certificate as a table a person reads."""
        return self.certificate.report()

    def __repr__(self) -> str:
        c = self.certificate
        return f"Approximation(width={c.width!r}, balls={c.balls}, bound={c.bound:.4g}, eps={c.eps:g})"


def load(path: str | os.PathLike[str]) -> Approximation:
    """Read an approximation written by `Approximation.save`: checked, never unpickled.

    Its certificate is what the writer of the file recorded, and says so; `Approximation.recheck` measures it again.

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If it is damaged, or not an approximation.
    """
    from .storage import load

    return load(path)


#: balls of the largest network that is built
MOST_BALLS = 10_000_000


def approximate(
    f: Callable[[Tensor], Any],
    domain: Domain,
    eps: float,
    *,
    lipschitz: float | Callable[..., Any] | None = None,
    modulus: Callable[[float], float] | None = None,
    width: str = "auto",
    limit: tuple[Any, Any] | None = None,
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
    if width == "max" and max(n, m) == 1:
        raise InvalidValue(
            'width="max" needs max(n, m) >= 2: networks of width 1 with Step-ReLU are monotone; use "max+1"'
        )
    asymptotic = claimed_limit(limit, n, m)
    if asymptotic.given and width in ("max+1", "max"):
        raise InvalidValue(
            f'width="{width}" knows the domain only and has no limit; use "growing" or "n+m+1", or limit=None'
        )
    everywhere = asymptotic.given and not isinstance(domain, Points)
    variation = claimed_variation(lipschitz, modulus, domain, everywhere)
    refute(variation, target, domain, rng)
    refute_limit(asymptotic, target, domain, eps, rng)
    problem = Problem(target, domain, float(eps), variation, asymptotic, dtype, max_balls)
    try:
        plan = _cheapest(problem) if width == "auto" else make_plan(problem, width)
    except TooManyBalls as error:
        raise InvalidValue(_too_many(problem, width, error)) from None
    built, certificate = certify(problem, plan)
    formula = f.text if isinstance(f, Formula) else None
    return Approximation(built.network, plan.cover, certificate, built.outputs, built.outside, domain, formula)


def _check_arguments(domain: Any, eps: Any, width: Any, dtype: Any, max_balls: Any) -> None:
    if not isinstance(domain, Domain):
        raise InvalidType(f"domain must be a Box, a Ball or Points, got {type(domain).__name__}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating, np.integer)):
        raise InvalidType(f"eps must be a number, got {type(eps).__name__}")
    if not 0 < eps < math.inf:
        raise InvalidValue(f"eps={eps}: the error allowed must be a positive number")
    sides = domain.upper - domain.lower
    if not 1 / LARGEST <= eps <= LARGEST or domain.reach > LARGEST or ((sides > 0) & (sides < 1 / LARGEST)).any():
        raise InvalidValue(
            f"eps={eps} on {domain}: sizes must be between {1 / LARGEST:g} and {LARGEST:g}; change the units"
        )
    if width not in (*WIDTHS, "auto"):
        raise InvalidValue(f"width={width!r}: expected one of {', '.join((*WIDTHS, 'auto'))}")
    if not isinstance(dtype, torch.dtype) or dtype not in BITS:
        raise InvalidValue(f"dtype={dtype}: expected torch.float64 or torch.float32")
    if isinstance(max_balls, bool) or not isinstance(max_balls, int) or max_balls < 1:
        raise InvalidValue(f"max_balls={max_balls!r}: expected a positive whole number")
    if max_balls > MOST_BALLS:
        raise InvalidValue(f"max_balls={max_balls:,}: networks of more than {MOST_BALLS:,} balls are not built")


def _cheapest(problem: Problem) -> Plan:
    """The construction with the fewest parameters; width "max" never is: it has twice the layers."""
    n, m = problem.n, problem.m
    plan = make_plan(problem, "n+m+1" if problem.limit.given else "max+1")
    N = len(plan.cover)
    bounded = (n + m + 1) if problem.limit.given else max(n, m) + 1
    cost = _parameters([n, *[bounded] * N, m])
    if _parameters([n, *range(n + 1, n + N + 1), m]) < cost:
        return make_plan(problem, "growing")
    return plan


def _parameters(widths: list[int]) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def _too_many(problem: Problem, width: str, error: TooManyBalls) -> str:
    """How many balls it would take, and an eps for which they suffice."""
    rule = {"auto": "n+m+1" if problem.limit.given else "max+1"}.get(width, width)
    known = error.count != math.inf
    growth = 2.0
    count = "very many"
    if known:
        count = f"{error.count:,.0f}" if error.count < 1e15 else f"10^{math.log10(error.count):.0f}"
        growth = min(math.exp((math.log(error.count) - math.log(problem.most)) / problem.n), 1e6)
    eps = problem.eps * max(growth, 1.05)
    advice = "no eps was found that would fit"
    for k in range(20):
        eps = _round_up(eps)
        try:
            make_plan(replace(problem, eps=eps), rule)
        except TooManyBalls:
            eps *= 1.25 if k < 4 else 2.0
        else:
            advice = f"eps={eps:g} would fit"
            break
    about = "about " if known and not error.exact else ""
    return f"eps={problem.eps:g} takes {about}{count} balls, more than max_balls={problem.most:,}; {advice}"


def _round_up(x: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / unit * (1 - 1e-9)) * unit:.2g}")
