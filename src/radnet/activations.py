"""Radial rescaling activations as modules: ``v -> h(|v| - t) v/|v|``, and 0 at 0.

Paper: ex:radialact, fig:radial_act, "Radial neural networks with shifts". A new activation is a subclass with one
method, its profile h; everything else (axis, blocks, shift, gradients, the origin) comes from `RadialActivation`.
"""

from __future__ import annotations

import abc
import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from . import profiles
from .checks import check_blocks, check_dim, check_input, check_number, check_shift, is_traced
from .errors import InvalidType, InvalidValue
from .lean import scaled_by
from .native import kernels
from .native.kernels import IDENTITY, SHIFTED_RELU, SIGMOID, SQUASH, STEP_RELU, Formula
from .origin import less_shift
from .rescaling import block_sizes, rescale_axis, rescale_blocks, slope_of

Shift = float | Literal["trainable"] | None


class Reach(NamedTuple):
    """What is known of how far a rescaling takes vectors; `compress` bounds by it what a tolerance changes."""

    lipschitz: float | None = None  # a Lipschitz constant of ``v -> h(|v| - t) v/|v|``: sup h', if h(-t) = 0
    longest: float = math.inf  # the supremum of |h|
    growth: float = math.inf  # a number g with ``|h(r - t)| <= r + g`` for all norms r


class RadialActivation(nn.Module, abc.ABC):
    """A radial rescaling ``v -> h(|v| - t) v/|v|``; a subclass supplies its profile h.

    Parameters
    ----------
    shift : None, float or "trainable"
        t. A float is kept as a buffer; "trainable" is a Parameter that starts at 0; None is no shift.
    dim : int
        The axis along which a vector lies: -1 for features last, 1 for NCHW.
    blocks : int or sequence of int, optional
        Split the axis into that many equal blocks, or blocks of these sizes, each rescaled by its own norm.
        One shift serves all blocks.
    device, dtype
        Of the shift.

    References
    ----------
    "Radial neural networks"; "Radial neural networks with shifts".

    Examples
    --------
    >>> import torch, radnet
    >>> class Cubic(radnet.RadialActivation):
    ...     def profile(self, r):
    ...         return r**3
    >>> Cubic()(torch.tensor([0.0, 2.0]))
    tensor([0., 8.])
    """

    #: arguments at which h jumps; there, equal networks may differ by rounding
    jumps: ClassVar[tuple[float, ...]] = ()
    shift: Tensor | None
    _closed: ClassVar[bool] = False  # whether h is a formula without parameters
    _known: ClassVar[Formula | None] = None  # what the compiled kernels know it by

    def __init_subclass__(cls, *, closed: bool = False, kind: int | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if {"profile", "slope"} & vars(cls).keys():
            cls._known = None if kind is None else Formula(kind)
        if "profile" in vars(cls):
            cls._closed = closed or kind is not None
            for name in {"slope", "reach", "leanly"} - vars(cls).keys():  # a new profile has not the old derivative
                setattr(cls, name, getattr(RadialActivation, name))

    def __init__(
        self,
        *,
        shift: Shift = None,
        dim: int = -1,
        blocks: int | Sequence[int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = check_dim(dim)
        self.blocks = check_blocks(blocks)
        if shift is None:
            self.register_parameter("shift", None)
        elif isinstance(shift, str):
            if shift != "trainable":
                raise InvalidValue(f'shift={shift!r}: expected None, a number or "trainable"')
            self.shift = nn.Parameter(torch.zeros((), device=device, dtype=dtype))
        else:
            self.register_buffer("shift", torch.tensor(check_number("shift", shift), device=device, dtype=dtype))

    @abc.abstractmethod
    def profile(self, r: Tensor) -> Tensor:
        """The profile h, applied elementwise."""

    def slope(self, r: Tensor) -> Tensor:
        """The derivative of the profile; found by automatic differentiation unless a subclass knows better."""
        return slope_of(self.profile)(r)

    def leanly(self, v: Tensor, r: Tensor) -> Tensor:
        """``h(r - t) v/r`` where all norms r are ordinary; a subclass may know how to say it in fewer operations.

        It is what exported programs hold.
        """
        return scaled_by(self.profile, self.shift, bounded=self._formula() is not None)(v, r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """How far it takes vectors of this dtype; nothing is known unless a subclass says so.

        >>> Squash(shift=2.0).reach(), ShiftedReLU(0.5).reach().growth
        (Reach(lipschitz=None, longest=1.0, growth=inf), 0.0)
        """
        return Reach()

    def forward(self, v: Tensor) -> Tensor:
        """Rescale each vector of ``v``."""
        if not self._closed or not self._is_plain(v):
            return self.along(v, self.dim)
        dim, formula = self.dim % v.ndim, self._formula()
        if formula is not None and not (v.requires_grad and torch.is_grad_enabled()):
            y = kernels.value(v, formula, dim)
            if y is not None:
                return y
        lean = None if "profile" in self.__dict__ else self.leanly
        return rescale_axis(v, self.profile, self.slope, None, dim, closed=True, formula=formula, lean=lean)

    def along(self, v: Tensor, dim: int) -> Tensor:
        """Rescale each vector of ``v``, wherever it lies.

        >>> Squash().along(torch.tensor([[0.6], [0.8]]), dim=0).T
        tensor([[0.3000, 0.4000]])
        """
        axis, slope = check_input(v, dim), None if type(self).slope is RadialActivation.slope else self.slope
        return rescale_blocks(
            v, self.profile, slope, check_shift(self.shift), axis, self.blocks, closed=self._closed,
            formula=self._formula(), lean=None if "profile" in self.__dict__ else self.leanly,
        )  # fmt: skip

    def _formula(self) -> Formula | None:
        """By what the compiled kernels know the profile, unless this object has one of its own."""
        own = self.__dict__
        return None if "profile" in own or "slope" in own else self._known

    @property
    def _t(self) -> float:
        return 0.0 if self.shift is None else float(self.shift.detach())

    def _is_plain(self, v: object) -> bool:
        """What `rescale` checks at every call, in short, where there are no blocks and no shift."""
        return (
            type(v) is Tensor
            and self.blocks is None
            and v.is_floating_point()
            and -v.ndim <= self.dim < v.ndim
            and self._parameters.get("shift", self) is None
        )

    def extra_repr(self) -> str:
        """Only what differs from the default."""
        parts = []
        if isinstance(self.shift, nn.Parameter):
            parts.append('shift="trainable"')
        elif self.shift is not None:
            parts.append("shift=?" if self.shift.is_meta else f"shift={self.shift.item():g}")
        if self.dim != -1:
            parts.append(f"dim={self.dim}")
        if self.blocks is not None:
            parts.append(f"blocks={self.blocks}")
        return ", ".join(parts)


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
        return Reach(1.0 if self._t == 0 else None, growth=abs(self._t))

    def forward(self, v: Tensor) -> Tensor:
        """``v`` itself, unless there is a shift."""
        if self._is_plain(v):
            return v
        if self.shift is not None:
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

    def leanly(self, v: Tensor, r: Tensor) -> Tensor:
        """``v`` or 0."""
        if self.shift is None:
            return v * (r >= 1).to(v.dtype)
        p = r - self.shift
        return v * (torch.where(p >= 1, p, 0.0) / r)

    def slope(self, r: Tensor) -> Tensor:
        """1 if ``r >= 1``, else 0."""
        return profiles.step_relu_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """It jumps; norms grow by a shift below 0 alone."""
        return Reach(growth=max(0.0, -self._t))


class Squash(RadialActivation, kind=SQUASH):
    """``h(r) = r^2 / (r^2 + 1)``, the squashing function of capsule networks.

    >>> Squash()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5000])
    """

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r^2 / (r^2 + 1)``."""
        return profiles.squash(r)

    def leanly(self, v: Tensor, r: Tensor) -> Tensor:
        """``v / (r + r/p^2)`` with ``p = r - t``, since ``r/h = r (p^2 + 1)/p^2``; where p is 0 that is 0."""
        if self.shift is None:
            return v / (r + 1 / r)
        p = r - self.shift
        return v / (r + r / (p * p))

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = 2r / (r^2 + 1)^2``."""
        return profiles.squash_slope(r)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup h' = h'(1/sqrt 3) = 3 sqrt(3)/8``, and h < 1; with a shift h(-t) is not 0."""
        return Reach(3 * math.sqrt(3) / 8 if self._t == 0 else None, longest=1.0)


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

    def leanly(self, v: Tensor, r: Tensor) -> Tensor:
        """``v max(0, r - t - b)/r``."""
        return v * (torch.relu(less_shift(r, self.shift) - self.b) / r)

    def slope(self, r: Tensor) -> Tensor:
        """1 if ``r >= b``, else 0."""
        return profiles.shifted_relu_slope(r, self.b)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """``sup h' = 1``; norms grow only if b and t together are below 0, and then it jumps at the origin."""
        return Reach(1.0 if self.b + self._t >= 0 else None, growth=max(0.0, -self.b - self._t))

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
    "step_relu": StepReLU,
    "squash": Squash,
    "shifted_relu": ShiftedReLU,
    "sigmoid": RadialSigmoid,
    "identity": Identity,
}


def named_activation(name: str, **keywords: Any) -> RadialActivation:
    """A built-in activation by its name; an unknown name is answered with the nearest known one.

    >>> named_activation("squash", shift=0.5)
    Squash(shift=0.5)
    """
    try:
        kind = NAMES[name]
    except KeyError:
        near = difflib.get_close_matches(name.lower().replace("-", "_"), NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidValue(f"unknown activation {name!r}; {hint}known names: {', '.join(sorted(NAMES))}") from None
    return kind(**keywords)
