"""The abstract radial activation, ``v -> h(|v| - t) v/|v|`` and 0 at 0: all of it but the profile h.

Paper: "Radial neural networks", "Radial neural networks with shifts". A new activation is a subclass with one method,
its profile; everything else (axis, blocks, shifts, scales, gradients, the origin) comes from here.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .checks import as_number, check_blocks, check_dim, check_input, check_number, check_shift
from .errors import InvalidType, InvalidValue
from .lean import scaled_by
from .native import kernels
from .native.kernels import Formula
from .origin import beside
from .rescaling import block_sizes, rescale_axis, rescale_blocks, slope_of

Shift = float | Literal["trainable"] | None
#: a number for all blocks, or one for each: given, "trainable" (one) or "per_block" (one for each, trainable)
PerBlock = float | Sequence[float] | Tensor | Literal["trainable", "per_block"] | None


class Reach(NamedTuple):
    """What is known of how far a rescaling takes vectors; `compress` bounds by it what a tolerance changes."""

    lipschitz: float | None = None  # a Lipschitz constant of ``v -> h(|v| - t) v/|v|``: sup h', if h(-t) = 0
    longest: float = math.inf  # the supremum of |h|
    growth: float = math.inf  # a number g with ``|h(r - t)| <= r + g`` for all norms r


class RadialActivation(nn.Module, abc.ABC):
    """A radial rescaling ``v -> s h(|v| - t) v/|v|``; a subclass supplies its profile h.

    Parameters
    ----------
    shift : None, float, "trainable", "per_block", sequence or Tensor
        t. A float is kept as a buffer; "trainable" is a Parameter that starts at 0; None is no shift. With ``blocks``
        there may be one for each: "per_block" is a Parameter of zeros, a sequence or tensor is kept as a buffer, an
        ``nn.Parameter`` as itself.
    dim : int
        The axis along which a vector lies: -1 for features last, 1 for NCHW.
    blocks : int or sequence of int, optional
        Split the axis into that many equal blocks, or blocks of these sizes, each rescaled by its own norm.
    scale : as shift
        s. Trainable ones start at 1; None is no scale.
    device, dtype
        Of shift and scale.

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
    scale: Tensor | None
    _closed: ClassVar[bool] = False  # whether h is a formula without parameters
    _bounded: ClassVar[bool] = False  # whether it is no larger than 1 + |r|
    _known: ClassVar[Formula | None] = None  # what the compiled kernels know it by
    _defined: ClassVar[tuple[object, object]]  # profile and slope when the class was made

    def __init_subclass__(cls, *, closed: bool = False, bounded: bool = False, kind: int | None = None) -> None:
        super().__init_subclass__()
        base = next(b for b in cls.__mro__[1:] if issubclass(b, RadialActivation))
        other_profile, other_slope = (getattr(cls, name) is not getattr(base, name) for name in ("profile", "slope"))
        if other_profile or other_slope:  # also where they come from a class beside
            cls._known = None if kind is None else Formula(kind)
        if other_profile:
            cls._closed = closed or bounded or kind is not None
            cls._bounded = bounded or kind is not None
            for name in ("slope", "reach", "leanly"):  # a new profile has not the old derivative
                if getattr(cls, name) is getattr(base, name):
                    setattr(cls, name, getattr(RadialActivation, name))
        cls._defined = cls.profile, cls.slope

    def __init__(
        self,
        *,
        shift: PerBlock = None,
        dim: int = -1,
        blocks: int | Sequence[int] | None = None,
        scale: PerBlock = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = check_dim(dim)
        self.blocks = check_blocks(blocks)
        for name, given, start in (("shift", shift, 0.0), ("scale", scale, 1.0)):
            value = _numbers(name, given, start, self.blocks, device, dtype)
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                self.register_parameter(name, value)

    @abc.abstractmethod
    def profile(self, r: Tensor) -> Tensor:
        """The profile h, applied elementwise."""

    def slope(self, r: Tensor) -> Tensor:
        """The derivative of the profile; found by automatic differentiation unless a subclass knows better."""
        return slope_of(self.profile)(r)

    def leanly(self, v: Tensor, r: Tensor, t: Tensor | float | None) -> Tensor:
        """``h(r - t) v/r`` where all norms r are ordinary; a subclass may know how to say it in fewer operations.

        It is what exported programs hold. t is None without a shift; one of each block stands as the norms do.
        """
        return scaled_by(self.profile, bounded=self._bounded)(v, r, t)

    def reach(self, dtype: torch.dtype = torch.float64) -> Reach:
        """How far it takes vectors of this dtype, but for the scale; nothing is known unless a subclass says so.

        >>> from radnet import ShiftedReLU, Squash
        >>> Squash(shift=2.0).reach(), ShiftedReLU(0.5).reach().growth
        (Reach(lipschitz=None, longest=1.0, growth=inf), 0.0)
        """
        return Reach()

    def forward(self, v: Tensor) -> Tensor:
        """Rescale each vector of ``v``."""
        if not self._closed or not self._is_tensor(v) or type(self).along is not RadialActivation.along:
            return self.along(v, self.dim)
        dim, formula = self.dim % v.ndim, self._formula()
        y = None if formula is None else self._at_once(v, formula, dim)
        if y is not None:
            return y
        if not self._is_plain():
            return self.along(v, self.dim)
        lean = None if "profile" in self.__dict__ else self.leanly
        return rescale_axis(v, self.profile, self.slope, None, dim, closed=True, formula=formula, lean=lean)

    def _at_once(self, v: Tensor, formula: Formula, dim: int) -> Tensor | None:
        """By one call of a kernel, where nobody wants a gradient, there is no scale, and blocks are of one size."""
        own, blocks = self._parameters, self.blocks
        given = own if "shift" in own else self._buffers
        if "shift" not in given or own.get("scale", self) is not None:
            return None
        if blocks is not None and (not isinstance(blocks, int) or blocks < 1):
            return None
        shift = given["shift"]
        trained = v.requires_grad or (shift is not None and shift.requires_grad)
        return None if trained and torch.is_grad_enabled() else kernels.value(v, formula, dim, blocks, shift)

    def along(self, v: Tensor, dim: int) -> Tensor:
        """Rescale each vector of ``v``, wherever it lies.

        >>> from radnet import Squash
        >>> Squash().along(torch.tensor([[0.6], [0.8]]), dim=0).T
        tensor([[0.3000, 0.4000]])
        """
        axis, slope = check_input(v, dim), None if type(self).slope is RadialActivation.slope else self.slope
        shift, scale = (check_shift(t, self.blocks, name) for t, name in ((self.shift, "shift"), (self.scale, "scale")))
        y = rescale_blocks(
            v, self.profile, slope, shift, axis, self.blocks, closed=self._closed,
            formula=self._formula(), lean=None if "profile" in self.__dict__ else self.leanly,
        )  # fmt: skip
        return y if scale is None else _scaled(y, scale, axis, self.blocks)

    def _formula(self) -> Formula | None:
        """By what the compiled kernels know the profile, unless this object has one of its own."""
        own, cls = self.__dict__, type(self)
        replaced = "profile" in own or "slope" in own or (cls.profile, cls.slope) != cls._defined
        return None if replaced else self._known

    @property
    def _shifts(self) -> tuple[float, float]:
        """The least shift and the largest size of one; without a shift it is 0."""
        if self.shift is None:
            return 0.0, 0.0
        t = self.shift.detach()
        return float(t.min()), float(t.abs().max())

    def _is_tensor(self, v: object) -> bool:
        """What `rescale` checks of v at every call, in short."""
        return type(v) is Tensor and v.is_floating_point() and -v.ndim <= self.dim < v.ndim

    def _is_plain(self) -> bool:
        """Whether there are no blocks, no shift and no scale."""
        own = self._parameters
        return self.blocks is None and own.get("shift", self) is None and own.get("scale", self) is None

    def extra_repr(self) -> str:
        """Only what differs from the default."""
        parts = [_said("shift", self.shift)]
        if self.dim != -1:
            parts.append(f"dim={self.dim}")
        if self.blocks is not None:
            parts.append(f"blocks={self.blocks}")
        return ", ".join(part for part in (*parts, _said("scale", self.scale)) if part)


def _scaled(y: Tensor, scale: Tensor | float, dim: int, blocks: int | Sequence[int] | None) -> Tensor:
    """Each block of an axis times a number of its own, or all of it times one."""
    if not isinstance(scale, Tensor):
        return y * scale
    scale = scale.to(y.dtype)
    if not scale.ndim or blocks is None:
        return y * scale
    sizes = block_sizes(blocks, as_number(y.shape[dim]))
    if len(set(sizes)) == 1:
        split = y.unflatten(dim, (len(sizes), sizes[0]))
        out: Tensor = (split * beside(scale, split.ndim, dim)).flatten(dim, dim + 1)
        return out
    return torch.cat([part * s for part, s in zip(y.split(sizes, dim), scale.unbind(), strict=True)], dim)


def _said(name: str, value: Tensor | None) -> str:
    """A shift or a scale in a repr."""
    if value is None:
        return ""
    if isinstance(value, nn.Parameter):
        return f'{name}="{"per_block" if value.ndim else "trainable"}"'
    if value.is_meta:
        return f"{name}=?"
    return f"{name}={value.item():g}" if not value.ndim else f"{name}=({len(value)} numbers)"


def _numbers(
    name: str,
    given: PerBlock,
    start: float,
    blocks: int | tuple[int, ...] | None,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> Tensor | None:
    """A shift or a scale as what a module keeps: nothing, or one number or one for each block, trainable or not."""
    if given is None:
        return None
    count = None if blocks is None else blocks if isinstance(blocks, int) else len(blocks)
    if isinstance(given, str):
        if given not in ("trainable", "per_block"):
            raise InvalidValue(
                f'{name}={given!r}: expected None, a number or "trainable"; with blocks also "per_block" or a sequence'
            )
        if given == "per_block" and count is None:
            raise InvalidValue(f'{name}="per_block": there are no blocks; give blocks, or {name}="trainable"')
        shape = () if given == "trainable" or count is None else (count,)
        return nn.Parameter(torch.full(shape, start, device=device, dtype=dtype))
    if isinstance(given, Tensor):
        if not given.is_floating_point():
            raise InvalidType(f"{name} is a tensor of {given.dtype}; expected real floating point")
        value = given if isinstance(given, nn.Parameter) else given.detach().to(device=device, dtype=dtype, copy=True)
    elif isinstance(given, list | tuple | np.ndarray) and count is not None:
        numbers = [check_number(f"{name}[{i}]", t) for i, t in enumerate(given)]
        value = torch.tensor(numbers, device=device, dtype=dtype)
    else:
        value = torch.tensor(check_number(name, given), device=device, dtype=dtype)
    if value.ndim and value.shape != (count,):
        if count is None:
            raise InvalidValue(f"{name} has shape {tuple(value.shape)}, and there are no blocks; give one number")
        raise InvalidValue(
            f"{name} has shape {tuple(value.shape)}; expected one number, or one for each of {count} blocks"
        )
    if not value.is_meta and not bool(value.isfinite().all()):
        raise InvalidValue(f"{name} holds numbers that are not finite")
    return value
