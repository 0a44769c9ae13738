"""The one hot kernel: ``v -> h(|v| - t) v/|v|`` along an axis, its gradient, and the origin.

Paper: "Radial neural networks" (the definition of h^(n)) and "Radial neural networks with shifts" (h^(n,t)).

With ``g(r) = h(r - t)``, ``s = g/r`` and ``d = v/r`` the vector-Jacobian product is

    y = s v                   dy = s dv + (g' - s) <d, dv> d - g' d dt
    =>  grad_v = s gy + (g' - s) <gy, d> d,      grad_t = - sum over rows of g' <gy, d>

so besides v only the norm of each row is kept for the backward pass. At v = 0 the value is 0, and the gradient is
``g'(0)`` if ``g(0) = 0`` and 0 otherwise. Where ``g(0) != 0`` the gradient grows like ``1/|v|``: there, and only there,
norms below ``sqrt(tiny)`` count as 0. See docs/decisions/0003-origin.md.

Three forms of the same function: `composed` is made of differentiable operations and serves `torch.compile`,
`torch.func`, forward mode and second derivatives; `_Rescale` is the fast one for eager training; `lean` is what
exported programs hold. Where there is a compiled kernel for a profile (`native`), it does the work of the fast form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .checks import as_number, check_blocks, check_input, check_shift
from .errors import InvalidType, InvalidValue
from .lean import Lean, is_exported, is_in_program, norms, ordinary_range, rescaled, scaled_by
from .native import kernels
from .native.kernels import Formula, Norms, inside_transform, is_compiled
from .origin import Profile, accumulation_dtype, as_shift, beside, less_shift, origin


def rescale(
    v: Tensor,
    h: Profile,
    *,
    slope: Profile | None = None,
    shift: Tensor | float | None = None,
    dim: int = -1,
    blocks: int | Sequence[int] | None = None,
) -> Tensor:
    """Rescale each vector along ``dim`` by a function of its norm: ``h(|v| - shift) v/|v|``, and 0 at 0.

    The functional twin of the activation modules.

    Parameters
    ----------
    v : Tensor
        Floating point, of any shape with at least one axis.
    h : callable
        The profile: takes a tensor of numbers, gives one of the same shape.
    slope : callable, optional
        The derivative of h; found by automatic differentiation when not given.
    shift : float or Tensor, optional
        t in the formula: one number, or with ``blocks`` one for each.
    dim : int
        The axis along which a vector lies: -1 for features last, 1 for NCHW.
    blocks : int or sequence of int, optional
        Split the axis into that many equal blocks, or blocks of these sizes, each rescaled by its own norm.

    Returns
    -------
    Tensor
        Of the shape and dtype of v. Half precisions are accumulated in float32.

    Raises
    ------
    InvalidType
        If v is not a floating-point tensor.
    InvalidValue
        If ``dim`` or ``blocks`` do not fit the shape of v.

    References
    ----------
    "Radial neural networks"; "Radial neural networks with shifts".

    Examples
    --------
    >>> rescale(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tanh, shift=4.0)
    tensor([[0.4570, 0.6093],
            [0.0000, 0.0000]])
    """
    axis = check_input(v, dim)
    if not callable(h):
        raise InvalidType(f"the profile h must be callable, got {type(h).__name__}")
    blocks = check_blocks(blocks)
    return rescale_blocks(v, h, slope, check_shift(shift, blocks), axis, blocks)


def rescale_blocks(
    v: Tensor,
    h: Profile,
    slope: Profile | None,
    shift: Tensor | float | None,
    dim: int,
    blocks: int | Sequence[int] | None,
    *,
    closed: bool = False,
    formula: Formula | None = None,
    lean: Lean | None = None,
) -> Tensor:
    """The rescaling of each block of an axis, with one shift or one for each; the rest as in `rescale_axis`."""

    def of_block(part: Tensor, axis: int, t: Tensor | float | None) -> Tensor:
        return rescale_axis(part, h, slope, t, axis, closed=closed, formula=formula, lean=lean)

    if blocks is None:
        return of_block(v, dim, shift)
    sizes = block_sizes(blocks, as_number(v.shape[dim]))
    each = isinstance(shift, Tensor) and shift.ndim == 1
    if len(set(sizes)) == 1:
        split = v.unflatten(dim, (len(sizes), sizes[0]))
        t = beside(shift, split.ndim, dim) if isinstance(shift, Tensor) else shift
        out: Tensor = of_block(split, dim + 1, t).flatten(dim, dim + 1)
        return out
    shifts = shift.unbind() if each and isinstance(shift, Tensor) else [shift] * len(sizes)
    return torch.cat([of_block(part, dim, t) for part, t in zip(v.split(sizes, dim), shifts, strict=True)], dim)


def block_sizes(blocks: int | Sequence[int], n: int) -> list[int]:
    """Sizes of the blocks an axis of n entries is split into.

    >>> block_sizes(3, 6), block_sizes((3, 5), 8)
    ([2, 2, 2], [3, 5])
    """
    if isinstance(blocks, int):
        if n % blocks or n < blocks:
            raise InvalidValue(f"blocks={blocks}: an axis of {n} entries does not split into {blocks} equal blocks")
        return [n // blocks] * blocks
    if sum(blocks) != n:
        raise InvalidValue(f"blocks={tuple(blocks)}: the sizes add up to {sum(blocks)}, but the axis has {n} entries")
    return list(blocks)


def rescale_axis(
    v: Tensor,
    h: Profile,
    slope: Profile | None,
    shift: Tensor | float | None,
    dim: int,
    *,
    closed: bool = False,
    formula: Formula | None = None,
    lean: Lean | None = None,
) -> Tensor:
    """The rescaling along one axis; a shift may be any tensor that broadcasts against the norms.

    Chooses between the forms; the choice never changes the function. A profile that is ``closed`` is a formula
    without parameters: it is not tried out to see whether it is being trained. Its ``formula`` is the number by which
    the compiled kernels know it, and ``lean`` a shorter way than h to say it in an exported program.
    """
    if is_exported(v):
        return rescaled(v, lean or scaled_by(h), shift, dim)
    dh = slope if slope is not None else slope_of(h)
    if is_compiled(v) or inside_transform() or _has_tangent(v, shift) or not (closed or _is_fixed(h, v)):
        return composed(v, h, dh, shift, dim)[0]
    if not _is_trained(v, shift):
        return forward(v, shift, h, dh, dim, formula, keep=False)[0]
    out: Tensor = _Rescale.apply(v, shift, h, dh, dim, formula)  # type: ignore[no-untyped-call]
    return out


def _is_trained(v: Tensor, shift: Tensor | float | None) -> bool:
    """Whether somebody will ask for the gradient of v or of the shift."""
    wanted = v.requires_grad or (isinstance(shift, Tensor) and shift.requires_grad)
    return wanted and torch.is_grad_enabled()


def _is_fixed(h: Profile, v: Tensor) -> bool:
    """Whether the profile itself is not being trained (as a module is, or a closure over a Parameter)."""
    if not torch.is_grad_enabled():
        return True
    return not h(torch.ones(1, dtype=accumulation_dtype(v.dtype), device=v.device)).requires_grad


def _has_tangent(*tensors: object) -> bool:
    if forward_ad._current_level < 0:  # nobody is in forward mode
        return False
    return any(isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def slope_of(h: Profile) -> Profile:
    """Derivative of a profile, by automatic differentiation.

    In an exported program it is 0: there only the gradient at v = 0 would use it, the value never does.

    >>> slope_of(torch.sin)(torch.zeros(2))
    tensor([1., 1.])
    """

    def slope(r: Tensor) -> Tensor:
        if is_in_program(r):
            return torch.zeros_like(r)
        out, pull = torch.func.vjp(h, r)[:2]
        gradient: Tensor = pull(torch.ones_like(out))[0]
        return gradient

    return slope


def _power_of_two(v: Tensor, dim: int) -> Tensor:
    """Per row, a power of two that brings the norm of v near 1; 1 if it is within the square root of the range."""
    v = v.detach()
    size = v.abs().amax(dim, keepdim=True) if v.shape[dim] else v.sum(dim, keepdim=True)
    step = 3 * math.frexp(torch.finfo(v.dtype).max)[1] // 8  # float32: 2^48, float64: 2^384
    c = torch.ones_like(size)
    # float32: below 2^-24 times 2^48, below 2^-72 times 2^96, below 2^-120 times 2^120
    for bound, power in ((-0.5, 1.0), (-1.5, 2.0), (-2.5, 2.5)):
        c = torch.where(size < 2.0 ** (bound * step), 2.0 ** (power * step), c)
    # above 2^24 times 2^-24, above 2^48 times 2^-48, ...: never below 1, since g(r)/q is divided by q again
    for power in (0.5, 1.0, 1.5, 2.0):
        c = torch.where(size > 2.0 ** (power * step), 2.0 ** (-power * step), c)
    return c


def composed(v: Tensor, h: Profile, slope: Profile, shift: Tensor | float | None, dim: int) -> tuple[Tensor, Tensor]:
    """The rescaling as a composition of differentiable operations, safe over the whole range of the dtype.

    Returns the value, and the norm of each row with 0 for the rows that count as 0.

    With a power of two c per row: ``q = |c v|``, ``r = q/c``, ``y = (g(r) c/q) v``, where c stands with g if it is
    above 1 and with v if it is below. Every factor in the chain rule then stays representable, and ``g(r) = r`` gives
    back v to the last bit.
    """
    a = v.to(accumulation_dtype(v.dtype))
    t = as_shift(shift, a.dtype, a.device)
    floor, slope0 = origin(h, slope, t.detach())
    if a.shape[dim] == 1:  # a number: h(|v| - t) times its sign, and nothing to cancel
        at_origin = a.detach().abs() <= floor
        r = torch.where(at_origin, torch.ones_like(a), a.abs())
        y = torch.where(at_origin, slope0 * a, h(r - t) * a.detach().sign())
        return y.to(v.dtype), torch.where(at_origin, torch.zeros_like(r), r)
    c = _power_of_two(a, dim)
    square = (a * c).square().sum(dim, keepdim=True)
    at_origin = square.detach().sqrt() / c <= floor
    # the double where: no branch that is not taken ever sees a zero norm
    q = torch.where(at_origin, torch.ones_like(square), square).sqrt()
    r = torch.where(at_origin, torch.ones_like(q), q / c).clamp(max=torch.finfo(a.dtype).max)
    factor = torch.where(at_origin, slope0, h(r - t) * c.clamp(min=1) / q)
    return (factor * (a * c.clamp(max=1))).to(v.dtype), torch.where(at_origin, torch.zeros_like(r), r)


def is_ordinary(r: Tensor) -> bool:
    """Whether all norms are in the ordinary range; only on the CPU, where asking does not stall a device."""
    count = r.numel()
    if count == 0 or r.device.type != "cpu":
        return False
    low, high = ordinary_range(r.dtype)
    if count == 1:
        return low <= r.item() <= high
    smallest, largest = torch.aminmax(r)
    return low <= smallest.item() and largest.item() <= high


def ordinary_but_for_zeros(v: Tensor, r: Tensor) -> Tensor | None:
    """The norms with 1 in place of those of rows that are exactly 0, if then all are ordinary; None otherwise.

    A Step-ReLU gives such rows. A norm that is 0 by underflow is none of them.
    """
    if not r.numel() or r.device.type != "cpu" or torch.aminmax(r)[0].item() != 0:
        return None
    zeros = r == 0
    safe = torch.where(zeros, torch.ones_like(r), r)
    underflow = bool((torch.where(zeros, v, torch.zeros_like(v)) != 0).any())
    return safe if is_ordinary(safe) and not underflow else None


def forward(
    v: Tensor,
    shift: Tensor | float | None,
    h: Profile,
    slope: Profile,
    dim: int,
    formula: Formula | None = None,
    *,
    keep: bool = True,
) -> tuple[Tensor, Tensor | None, Norms]:
    """The value, the norm of each row (if it is to be kept) with 0 for rows that count as 0, and how the norms are."""
    found = None if formula is None else kernels.forward(v, formula, shift, dim, keep=keep)
    if found is not None:
        return found
    accumulated = accumulation_dtype(v.dtype)
    a = v if v.dtype == accumulated else v.to(accumulated)
    r = norms(a, dim)
    if is_ordinary(r):
        y = scaled_by(h, bounded=True)(a, r, shift)  # whatever h: norms are far from 0
        return y if y.dtype == v.dtype else y.to(v.dtype), r, Norms.ORDINARY
    safe = None if kernels.is_watched() else ordinary_but_for_zeros(a, r)  # who looks on sees one form of two
    if safe is not None:
        factor = torch.where(r == 0, torch.zeros_like(r), h(less_shift(safe, shift)) / safe)
        return (a * factor).to(v.dtype), r, Norms.SOME_ZERO
    y, r = composed(v, h, slope, shift, dim)
    return y, r, Norms.EXTRAORDINARY


def backward(
    v: Tensor,
    r: Tensor,
    shift: Tensor | float | None,
    h: Profile,
    slope: Profile,
    dim: int,
    norms: Norms,
    gy: Tensor,
    formula: Formula | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of v and t from the gradient of the value: the two lines at the top of this file."""
    found = None if formula is None or not norms else kernels.backward(v, r, formula, shift, dim, gy)
    if found is not None:
        return found
    a, ga = v.to(r.dtype), gy.to(r.dtype)
    if v.shape[dim] == 1:  # a number: the tangent space is empty, and the two terms in s would have to cancel
        at_origin = r == 0
        dg = slope(less_shift(torch.where(at_origin, torch.ones_like(r), r), shift))
        slope0 = origin(h, slope, as_shift(shift, r.dtype, r.device)).slope
        grad = ga * torch.where(at_origin, slope0, dg)
        return grad.to(v.dtype), torch.where(at_origin, torch.zeros_like(r), dg * ga * a.sign())
    if norms is Norms.ORDINARY:
        x = less_shift(r, shift)
        s, dg = h(x) / r, slope(x)
        along = (ga * a).sum(dim, keepdim=True) / r
        grad = (ga * s).addcmul_(a, (dg - s) * along / r)
        return grad.to(v.dtype), dg * along
    at_origin = r == 0
    safe = torch.where(at_origin, torch.ones_like(r), r)
    slope0 = origin(h, slope, as_shift(shift, r.dtype, r.device)).slope
    x = less_shift(safe, shift)
    d = a / safe
    s = torch.where(at_origin, slope0, h(x) / safe)
    dg = torch.where(at_origin, s, slope(x))
    along = torch.where(at_origin, torch.zeros_like(r), (ga * d).sum(dim, keepdim=True))
    grad = (ga * s).addcmul_(d, (dg - s) * along)
    return grad.to(v.dtype), dg * along


class _Rescale(torch.autograd.Function):
    """The fast form: saves v and one number a row."""

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        shift: Tensor | float | None,
        h: Profile,
        slope: Profile,
        dim: int,
        formula: Formula | None,
    ) -> Tensor:
        y, r, ctx.norms = forward(v, shift, h, slope, dim, formula)
        t = shift if isinstance(shift, Tensor) else None
        ctx.save_for_backward(v, r, t)
        ctx.fixed, ctx.h, ctx.slope, ctx.dim, ctx.formula = (shift if t is None else None), h, slope, dim, formula
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gy,) = grads
        v, r, t = ctx.saved_tensors
        shift = ctx.fixed if t is None else t
        if torch.is_grad_enabled():  # create_graph=True: autograd differentiates the composed form, twice
            return (*_differentiable_backward(ctx, v, t, shift, gy), None, None, None, None)
        grad_v, along = backward(v, r, shift, ctx.h, ctx.slope, ctx.dim, ctx.norms, gy, ctx.formula)
        grad_t = -along.sum_to_size(t.shape).to(t.dtype) if ctx.needs_input_grad[1] else None
        return grad_v, grad_t, None, None, None, None


def _differentiable_backward(
    ctx: Any, v: Tensor, t: Tensor | None, shift: Tensor | float | None, gy: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of v and t, each None where it is not needed, that can be differentiated again."""
    needed = ctx.needs_input_grad[:2]
    v = v.view_as(v)  # it may depend on t, and what is wanted is the share of each
    t = None if t is None else t.view_as(t)
    wanted = [x for x, needs in zip((v, t), needed, strict=True) if needs and x is not None]
    y, _ = composed(v, ctx.h, ctx.slope, shift if t is None else t, ctx.dim)
    found = iter(torch.autograd.grad(y, wanted, gy, create_graph=True, allow_unused=True, materialize_grads=True))
    grad_v, grad_t = (next(found) if needs else None for needs in needed)
    return grad_v, grad_t
