"""Radial rescaling activations by name: the profiles of the paper, some smooth ones, and `Radial` for any other.

Paper: ex:radialact, fig:radial_act, "Radial neural networks with shifts". Each is a `RadialActivation` with its profile
h; what they share is in `radnet.radial`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from . import profiles
from .checks import check_input, check_number, is_traced
from .errors import InvalidType, InvalidValue
from .native.kernels import (
    GAUSSIAN,
    IDENTITY,
    SHIFTED_RELU,
    SIGMOID,
    SIN,
    SQUASH,
    STEP_RELU,
    SWISH,
    TANH,
    Formula,
)
from .origin import less_shift
from .radial import PerBlock as PerBlock
from .radial import RadialActivation as RadialActivation
from .radial import Reach as Reach
from .radial import Shift as Shift
from .rescaling import block_sizes


class Identity(RadialActivation, kind=IDENTITY):
    """``h(r) = r``: nothing happens (with a shift, ``v -> (|v| - t) v/|v|``).

    >>> Identity()(torch.tensor([3.0, 4.0]))
    tensor([3., 4.])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r``."""
        return profiles.identity(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """Without a shift nothing happens; with one, norms change by it."""
        _, far = self._shifts
        return Reach(1.0 if far == 0 else None, growth=far)

    def forward(self, v: Tensor) -> Tensor:
        """``v`` itself, unless there is a shift or a scale."""
        if self._is_tensor(v) and self._is_plain():
            return v
        if self.shift is not None or self.scale is not None:
            return super().forward(v)
        axis = check_input(v, self.dim)
        if self.blocks is not None:
            block_sizes(self.blocks, v.shape[axis])
        return v

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = 1``."""
        return profiles.identity_slope(r)


class StepReLU(RadialActivation, kind=STEP_RELU):
    """``h(r) = r`` if ``r >= 1``, else 0: short vectors go to 0, long ones stay (eqn:step-relu).

    >>> StepReLU()(torch.tensor([[0.3, 0.4], [3.0, 4.0]]))
    tensor([[0., 0.],
            [3., 4.]])
    """

    jumps = (1.0,)

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r`` if ``r >= 1``, else 0."""
        return profiles.step_relu(r)

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``v`` or 0."""
        if t is None:
            return v * (r >= 1).to(v.dtype)
        p = r - t
        return v * (torch.where(p >= 1, p, 0.0) / r)

    def slope(self, r: Tensor) -> Tensor:
        """1 if ``r >= 1``, else 0."""
        return profiles.step_relu_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """It jumps; norms grow by a shift below 0 alone."""
        return Reach(growth=max(0.0, -self._shifts[0]))


class Squash(RadialActivation, kind=SQUASH):
    """``h(r) = r^2 / (r^2 + 1)``, the squashing function of capsule networks.

    >>> Squash()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5000])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r^2 / (r^2 + 1)``."""
        return profiles.squash(r)

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``v / (r + r/p^2)`` with ``p = r - t``, since ``r/h = r (p^2 + 1)/p^2``; where p is 0 that is 0."""
        if t is None:
            return v / (r + 1 / r)
        p = r - t
        return v / (r + r / (p * p))

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = 2r / (r^2 + 1)^2``."""
        return profiles.squash_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup h' = h'(1/sqrt 3) = 3 sqrt(3)/8``, and h < 1; with a shift h(-t) is not 0."""
        return Reach(3 * math.sqrt(3) / 8 if self._shifts[1] == 0 else None, longest=1.0)


class ShiftedReLU(RadialActivation, kind=SHIFTED_RELU):
    """``h(r) = max(0, r - b)`` with a fixed b (a trainable one is ``ShiftedReLU(0, shift="trainable")``).

    >>> ShiftedReLU(1.0)(torch.tensor([3.0, 4.0]))
    tensor([2.4000, 3.2000])
    """

    def __init__(self, b: float = 0.5, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.b = check_number("b", b)

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = max(0, r - b)``."""
        return profiles.shifted_relu(r, self.b)

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``v max(0, r - t - b)/r``."""
        return v * (torch.relu(less_shift(r, t) - self.b) / r)

    def slope(self, r: Tensor) -> Tensor:
        """1 if ``r >= b``, else 0."""
        return profiles.shifted_relu_slope(r, self.b)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup h' = 1``; norms grow only if b and t together are below 0, and then it jumps at the origin."""
        b = self.b + self._shifts[0]
        return Reach(1.0 if b >= 0 else None, growth=max(0.0, -b))

    def _formula(self) -> Formula | None:
        found = super()._formula()
        return found._replace(b=float(self.b)) if found is not None and isinstance(self.b, int | float) else None

    def extra_repr(self) -> str:
        """b first."""
        return ", ".join(part for part in (f"b={self.b:g}", super().extra_repr()) if part)


class RadialSigmoid(RadialActivation, kind=SIGMOID):
    """``h(r) = 1 / (1 + e^-r)``. Since h(0) = 1/2 it jumps at the origin, where its value and gradient are 0.

    >>> RadialSigmoid(shift=5.0)(torch.tensor([3.0, 4.0]))
    tensor([0.3000, 0.4000])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = 1 / (1 + e^-r)``."""
        return profiles.sigmoid(r)

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = h(r) h(-r)``."""
        return profiles.sigmoid_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """It jumps at the origin, and h < 1."""
        return Reach(longest=1.0)


class RadialSin(RadialActivation, kind=SIN):
    """``h(r) = sin(r)``: in small blocks with trainable shifts, what `radnet.models` takes unless told otherwise.

    >>> RadialSin()(torch.tensor([math.pi / 2, 0.0]))
    tensor([1., 0.])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = sin(r)``."""
        return torch.sin(r)

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = cos(r)``."""
        return torch.cos(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup |h'| = 1``, |h| at most 1, and ``|sin(r - t)| <= r + |t|``."""
        far = self._shifts[1]
        return Reach(1.0 if far == 0 else None, longest=1.0, growth=far)


class RadialGaussian(RadialActivation, kind=GAUSSIAN):
    """``h(r) = r exp(-r^2/2)``: v times a Gaussian of its norm.

    >>> RadialGaussian()(torch.tensor([1.0, 0.0]))
    tensor([0.6065, 0.0000])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r exp(-r^2/2)``."""
        return profiles.gaussian(r)

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``v exp(-r^2/2)``, times p/r where ``p = r - t`` is in the place of r."""
        if t is None:
            return v * torch.exp(-0.5 * (r * r))
        p = r - t
        return v * (p * torch.exp(-0.5 * (p * p)) / r)

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = (1 - r^2) exp(-r^2/2)``."""
        return profiles.gaussian_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup |h'| = h'(0) = 1``, |h| at most ``h(1) = e^(-1/2)``, and ``|h(r - t)| <= |r - t|``."""
        far = self._shifts[1]
        return Reach(1.0 if far == 0 else None, longest=math.exp(-0.5), growth=far)


class RadialTanh(RadialActivation, kind=TANH):
    """``h(r) = tanh(r)``.

    >>> RadialTanh()(torch.tensor([3.0, 4.0]))
    tensor([0.5999, 0.7999])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = tanh(r)``."""
        return torch.tanh(r)

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = 1 - tanh(r)^2``, without cancellation."""
        return profiles.tanh_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup h' = h'(0) = 1``, |h| at most 1, and ``|h(r - t)| <= |r - t|``."""
        far = self._shifts[1]
        return Reach(1.0 if far == 0 else None, longest=1.0, growth=far)


class RadialSwish(RadialActivation, kind=SWISH):
    """``h(r) = r/(1 + e^-r)``: v times a sigmoid of its norm.

    >>> RadialSwish()(torch.tensor([3.0, 4.0]))
    tensor([2.9799, 3.9732])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r/(1 + e^-r)``."""
        return r * torch.sigmoid(r)

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``v/(1 + e^-r)``, times p/r where ``p = r - t`` is in the place of r."""
        if t is None:
            return v * torch.sigmoid(r)
        p = r - t
        return v * (p * torch.sigmoid(p) / r)

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = s(r) + r s(r) s(-r)`` with the sigmoid s."""
        return profiles.swish_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup |h'| < 1.0999``, and ``|h(r - t)| <= |r - t|``."""
        far = self._shifts[1]
        return Reach(1.0999 if far == 0 else None, growth=far)


class Radial(RadialActivation):
    """The rescaling with any profile: a function, a lambda, a module with parameters of its own.

    Parameters
    ----------
    h : callable
        Takes a tensor of norms (less the shift), gives a tensor of the same shape, elementwise.
    name : str, optional
        By which a file can refer to it: ``radnet.save`` asks for one, ``radnet.load(path, activations={name: h})``
        gives it back.
    **keywords
        As for every `RadialActivation`.

    Examples
    --------
    >>> Radial(torch.tanh)(torch.tensor([3.0, 4.0]))
    tensor([0.5999, 0.7999])
    """

    def __init__(self, h: Callable[[Tensor], Tensor], *, name: str | None = None, **keywords: Any) -> None:
        if not callable(h):
            raise InvalidType(f"Radial(h): h must be callable, got {type(h).__name__}; for example Radial(torch.tanh)")
        super().__init__(**keywords)
        self.h = h
        self.name = name

    def profile(self, r: Tensor) -> Tensor:
        """``h(r)``, checked for shape."""
        value = self.h(r)
        if is_traced():  # where sizes are no numbers; it was checked when it ran before
            return value
        if not isinstance(value, Tensor) or value.shape != r.shape or not value.is_floating_point():
            got: Any = type(value).__name__
            if isinstance(value, Tensor):
                got = tuple(value.shape) if value.shape != r.shape else value.dtype
            raise InvalidValue(
                f"Radial(h): h got norms of shape {tuple(r.shape)} and returned {got}; it must work elementwise "
                "(a constant c is lambda r: torch.full_like(r, c))"
            )
        return value

    def extra_repr(self) -> str:
        """The profile first, by its name where it has one."""
        named = [] if isinstance(self.h, nn.Module) else [f"h={getattr(self.h, '__name__', repr(self.h))}"]
        return ", ".join(part for part in (*named, super().extra_repr()) if part)


NAMES: dict[str, type[RadialActivation]] = {
    "identity": Identity,
    "shifted_relu": ShiftedReLU,
    "sigmoid": RadialSigmoid,
    "squash": Squash,
    "step_relu": StepReLU,
    "sin": RadialSin,
    "gaussian": RadialGaussian,
    "tanh": RadialTanh,
    "swish": RadialSwish,
}


def named_activation(name: str, **keywords: Any) -> RadialActivation:
    """A built-in activation by its name; an unknown name is answered with the nearest known one.

    >>> named_activation("squash", shift=0.5)
    Squash(shift=0.5)
    """
    if not isinstance(name, str):
        raise InvalidType(f"a name of an activation was expected, got {name!r}; one of {', '.join(NAMES)}")
    try:
        kind = NAMES[name]
    except KeyError:
        near = difflib.get_close_matches(name.lower().replace("-", "_"), NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidValue(f"unknown activation {name!r}; {hint}known names: {', '.join(NAMES)}") from None
    return kind(**keywords)
