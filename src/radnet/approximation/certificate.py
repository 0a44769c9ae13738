"""What is guaranteed about an approximation, what that rests on, and how to check it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy.typing as npt
import torch
from torch import Tensor

from .. import notebook
from ..errors import InvalidType, InvalidValue, printable
from .constructions.deep import DeepNetwork
from .covers import Cover
from .domains import Domain, Points
from .targets import Function, values_of

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_LONGEST_ROW = 10_000  # characters; a formula may have as many


@dataclass(frozen=True)
class Check:
    """What `Certificate.check` measured.

    Attributes
    ----------
    points : int
    worst, mean : float
        Of ``|F(x) - f(x)|``.
    at : tuple of float
        Where the worst is.
    near_a_sphere : int
        Points so close to the sphere of a ball that rounding decides on which side they are.
    holds : bool
        Whether the worst is below eps.
    """

    points: int
    worst: float
    mean: float
    at: tuple[float, ...]
    near_a_sphere: int
    holds: bool


@dataclass(frozen=True)
class Certificate:
    """The guarantee: ``|F(x) - f(x)| <= bound < eps`` on `scope`, and what it rests on.

    Attributes
    ----------
    width : str
        The construction.
    balls, hidden_layers, parameters : int
        N (or M) of the cover, depth, number of weights and biases.
    widths : tuple of int
    eps, bound : float
        What was asked for, and what is guaranteed on `scope` in the dtype of the network: the sum of the next three,
        or, with a limit, 0.99 eps if that is more (0.97 for f and its limit outside the domain, 0.02 for rounding).
    variation, snapping, rounding : float
        In a ball: how far f may be from its value, how far values were moved, and how far arithmetic may be off.
    rests_on : str
        The claim that the bound follows from.
    proven : bool
        False if nothing was claimed about f and samples are all there is.
    scope : str
        Where the bound holds.
    sphere_margin : float
        Room on either side of a sphere, as a share of the radius: rounding stays inside it.
    threshold_margin : float
        By what factor the norms of all other states avoid the threshold of Step-ReLU.
    bounds, reach : dict
        The bound in float64 and in float32, infinite where nothing is guaranteed, and up to which ``|x|`` the limit
        holds there with a rounding of at most 2 % of eps; 0 where it does not or no limit was given.
    recorded : bool
        Whether it was read from a file: it is then what somebody wrote there, until `Approximation.recheck` has
        measured it.

    Examples
    --------
    >>> import torch, radnet
    >>> f = lambda x: torch.exp(-x.square().sum(1))
    >>> a = radnet.approximate(f, radnet.Box([-3, -3], [3, 3]), 0.2, lipschitz=0.86, limit=([[0, 0]], [0]))
    >>> a.certificate.holds_in(torch.float32), a.certificate.scope
    (True, 'all of R^2, up to |x| = 1.51e+306')
    >>> a.certificate.check(f, 4 * torch.randn(1000, 2, dtype=torch.float64)).holds
    True
    """

    width: str
    balls: int
    hidden_layers: int
    parameters: int
    widths: tuple[int, ...] = field(repr=False)
    eps: float
    bound: float
    variation: float
    snapping: float
    rounding: float
    rests_on: str
    proven: bool
    scope: str
    cover: str
    dtype: str
    sphere_margin: float
    threshold_margin: float
    bounds: dict[str, float]
    reach: dict[str, float]
    recorded: bool = field(default=False, compare=False)
    _network: DeepNetwork | None = field(default=None, repr=False, compare=False)
    _cover: Cover | None = field(default=None, repr=False, compare=False)

    def holds_in(self, dtype: torch.dtype) -> bool:
        """Whether the guarantee holds for the network in that dtype, for example after ``network.float()``."""
        name = str(dtype).removeprefix("torch.")
        return self.bounds.get(name, float("inf")) < self.eps

    def check(self, f: Function, points: Tensor | npt.ArrayLike) -> Check:
        """Measure ``|F(x) - f(x)|`` at the given points, with the network in the dtype it has now.

        Parameters
        ----------
        f : function
            As for `approximate`.
        points : Tensor or array of shape (count, n)
            Rounded to the dtype of the network first, if need be.
        """
        if self._network is None or self._cover is None:
            raise InvalidValue("this certificate was made without its network; use the one of the approximation")
        n, dtype = self.widths[0], next(self._network.parameters()).dtype
        try:
            x = torch.as_tensor(points).detach().to(dtype)
        except (TypeError, ValueError, RuntimeError) as problem:
            raise InvalidType(f"points must be a tensor or an array of numbers ({problem})") from problem
        x = x.reshape(-1, n) if x.ndim < 2 and n == 1 else x
        if x.ndim != 2 or x.shape[1] != n or not len(x):
            raise InvalidValue(f"points of shape {tuple(x.shape)}; expected (count, {n}) with at least one point")
        exact = x.cpu().double()
        y = torch.from_numpy(values_of(f, exact.numpy(), self.widths[-1]))
        with torch.no_grad():
            F = self._network(x.to(next(self._network.parameters()).device)).cpu().double()
        error = (F - y).norm(dim=1)
        i = int(error.argmax())
        near = self._cover.near_a_sphere(exact.numpy())
        worst = float(error[i])
        return Check(len(x), worst, float(error.mean()), tuple(exact[i].tolist()), int(near.sum()), worst < self.eps)

    def report(self) -> str:
        """A table a person reads."""
        return table(self._rows())

    def _repr_html_(self) -> str:
        said = f"|F(x) - f(x)| ≤ {self.bound:.4g} < {self.eps:g}" + ("" if self.proven else ", on samples only")
        rows = [(name, printable(text, _LONGEST_ROW)) for name, text in self._rows()]
        return notebook.whole(notebook.verdict(self.proven, said), notebook.table((), rows))

    def _rows(self) -> list[tuple[str, str]]:
        bound = "bound" if self.proven else "on samples"
        far = ", ".join(f"{value:.3g} in {name}" for name, value in self.reach.items() if value > 0)
        also = ", ".join(name for name in self.bounds if self.holds_in(DTYPES[name]))
        hidden = self.widths[1:-1]
        shown = str(hidden[0]) if len(set(hidden)) == 1 else f"{hidden[0]} to {hidden[-1]}"
        rows = [
            ("construction", f"{self.width}: {self.widths[0]} -> {self.widths[-1]}"),
            ("balls", f"{self.balls:,} ({self.cover})"),
            ("hidden layers", f"{self.hidden_layers:,} of width {shown}"),
            ("parameters", f"{self.parameters:,}"),
            (bound, f"{self.bound:.6g} < eps = {self.eps:g}"),
            ("made of", f"variation {self.variation:.3g}, snapping {self.snapping:.3g}, rounding {self.rounding:.3g}"),
            ("rests on", self.rests_on),
            ("valid on", self.scope),
            ("holds in", also),
            (
                "margins",
                f"{self.sphere_margin:.1e} of a radius at spheres, factor {self.threshold_margin:.3g} elsewhere",
            ),
        ]
        if far:
            rows.append(("limit up to", f"|x| = {far}"))
        if self.recorded:
            rows.append(("recorded", "in the file; not measured again (radnet verify does)"))
        return rows

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON, None for infinite; the widths are left out, which width and depth determine."""
        left_out = ("widths", "recorded")
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_") and name not in left_out]
        return {name: _plain(getattr(self, name)) for name in names}

    def as_dict(self) -> dict[str, object]:
        """The same as `to_dict`, by its older name."""
        return self.to_dict()


def scope_of(domain: Domain) -> str:
    """Where a certificate holds that knows no limit of f."""
    return "the given points" if isinstance(domain, Points) else f"the domain {domain}"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and texts, one a line; what stands in a file does nothing to the terminal."""
    return "\n".join(f"{name:<15}{printable(text, _LONGEST_ROW)}" for name, text in rows)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
