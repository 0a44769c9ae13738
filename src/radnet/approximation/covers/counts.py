"""How many balls a cover needs: the bounds of thm:bound-N, and what is raised where there would be too many."""

from __future__ import annotations

import math


class TooManyBalls(Exception):
    """A cover needs more balls than allowed; says how many, as far as that is known."""

    def __init__(self, count: float, exact: bool = True) -> None:
        super().__init__(count)
        self.count, self.exact = count, exact


def bound_on_count(n: int, lipschitz: float, eps: float) -> int:
    """How many balls a function on the unit cube needs at most (thm:bound-N, corrected).

    ``(floor(sqrt(n) / (2 r)) + 1)^n`` for ``r < min(eps/R, 1)``: cubes of side below ``2 r/sqrt(n)``, one ball each.
    The printed ``ceil(R sqrt(n) / (2 eps))^n`` is false where the quotient is a whole number, for R = 0, and for
    ``eps/R >= 1`` in higher dimensions.

    >>> bound_on_count(1, 1.0, 0.5), bound_on_count(2, 0.0, 0.1)
    (2, 1)
    """
    r = min(eps / lipschitz if lipschitz > 0 else math.inf, 1.0)
    return int((math.floor(math.sqrt(n) / (2 * r) * (1 + 1e-15)) + 1) ** n)


def bound_on_separated_count(n: int, lipschitz: float, eps: float) -> float:
    """How many balls a separated cover of the unit cube needs at most (thm:bound-N, second part, with r < 1).

    >>> round(bound_on_separated_count(1, 1.0, 0.5), 6)
    3.0
    """
    r = min(eps / lipschitz if lipschitz > 0 else math.inf, 1.0)
    return float(math.gamma(n / 2 + 1) / math.pi ** (n / 2) * (2 + 2 / r) ** n)
