"""A chain of linear layers and rescalings as one call of a compiled kernel, forward and backward.

A small network costs less than the calls it is made of: at one sample a layer of 32 takes half a microsecond of
arithmetic and ten of Python. The kernel takes 16 samples through all layers while they stay in the cache; for the
gradient it takes them through once more, so that besides the inputs nothing is kept.

It serves where each part is what it seems (`nn.Linear`, a built-in activation along the last axis, no hooks), where
nobody looks on (no tracer, no transform, no mode, no autocast), and where it pays: see `FORWARD`. Everywhere else
`links_of` gives None, and the layers run one by one. Since the samples go forward again for the gradient, inputs and
parameters must not be written into before it is taken, not even those that torch would not have kept.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from .activations import NAMES, RadialActivation
from .native.kernels import IDENTITY, NOTHING, Formula, address, is_compiled, is_watched, lies_plainly, threads_for
from .native.library import functions
from .rescaling import composed

#: weights of a chain that runs fused, and its widest layer: forward alone; with its loss, once forward and back; for a
#: gradient, forward twice. Beyond, the products of torch's are the better ones (`radnet bench`)
FORWARD, ONE_PASS, TRAINED, WIDEST = 2**17, 2**15, 2**14, 512

_FORWARD, _BACKWARD = functions("chain"), functions("chain_back")
_BUILT_IN = frozenset(NAMES.values())
_LINEAR = nn.Linear.forward  # somebody may put another in its place


class Link(NamedTuple):
    """A layer: what it multiplies by, what it adds, and the rescaling after it."""

    W: Tensor
    b: Tensor | None
    rho: RadialActivation
    formula: Formula
    shift: Tensor | None


def forward(layers: nn.ModuleList, rescalings: nn.ModuleList, x: Tensor) -> Tensor | None:
    """What the network gives, or None if it has to be run layer by layer."""
    if is_compiled(x) or x.dtype not in _FORWARD:
        return None
    if not isinstance(layers, nn.Module) or not isinstance(rescalings, nn.Module):
        return None  # a subclass has put something else in their place
    trained = torch.is_grad_enabled()
    alone = not trained and x.numel() == x.shape[-1] and torch.get_num_threads() > 1
    links = links_of(layers, rescalings, x, TRAINED if trained else math.inf if alone else FORWARD)
    y = None if links is None else _value(links, x)
    if y is None or links is None or not trained:
        return y
    parameters = _parameters(links)
    if not any(p.requires_grad for p in (x, *parameters)):
        return y
    out: Tensor = _Chain.apply((y,), links, x, *parameters)  # type: ignore[no-untyped-call]
    return out


def links_of(layers: nn.ModuleList, rescalings: nn.ModuleList, x: Tensor, most: float = FORWARD) -> list[Link] | None:
    """The layers, if each is one that the kernel knows, lies in memory as it expects, and nobody looks on.

    They have at most so many weights. If that is any number, one sample is shared by threads, which wait for memory.
    """
    if not lies_plainly(x) or is_watched() or _has_any_global_hook() or torch.is_autocast_enabled("cpu"):
        return None
    found: list[Link] = []
    numbers, n, dtype = 0, x.shape[-1], x.dtype
    widest = WIDEST if most < math.inf else math.inf
    if n > widest or nn.Linear.forward is not _LINEAR:
        return None
    for layer, rho in zip(layers._modules.values(), rescalings._modules.values(), strict=True):
        if type(layer) is not nn.Linear or type(rho) not in _BUILT_IN or not is_itself(layer) or not is_itself(rho):
            return None
        rho = cast("RadialActivation", rho)
        own, its = layer._parameters, rho._parameters
        shifts = its if "shift" in its else rho._buffers
        W = own.get("weight")
        if W is None or "bias" not in own or "shift" not in shifts:
            return None  # they are no parameters any more
        b, shift = own["bias"], shifts["shift"]
        formula = rho._formula()
        if formula is None or rho.blocks is not None or rho.dim != -1 or its.get("scale", rho) is not None:
            return None
        out = _outputs(W, b, shift, n, dtype)
        numbers += n * out
        if not out or numbers > most or out > widest:
            return None
        n = out
        found.append(Link(W, b, rho, formula, shift))
    return found


def _parameters(links: Iterable[Link]) -> list[Tensor]:
    """W, b and t of each layer, as many of them as it has: the order of gradients too."""
    return [p for link in links for p in (link.W, link.b, link.shift) if p is not None]


def is_itself(m: nn.Module) -> bool:
    """Whether a call of a module is its class's forward and nothing else."""
    return not (
        m._forward_hooks
        or m._forward_pre_hooks
        or m._backward_hooks
        or m._backward_pre_hooks
        or "forward" in m.__dict__
    )


def _outputs(W: Tensor, b: Tensor | None, shift: Tensor | None, n: int, dtype: torch.dtype) -> int:
    """How many numbers a layer gives; 0 if it does not take n of this dtype, or does not lie as the kernel reads it."""
    if W.dtype is not dtype or W.ndim != 2 or not lies_plainly(W):
        return 0
    out, takes = W.shape
    if takes != n:
        return 0
    if b is not None and (b.dtype is not dtype or b.ndim != 1 or b.shape[0] != out or not lies_plainly(b)):
        return 0
    return out if shift is None or (shift.numel() == 1 and shift.is_cpu) else 0


def _fit_together(links: Iterable[Link], x: Tensor) -> bool:
    """Whether inputs and layers are what the kernel expects, sizes included."""
    n = x.shape[-1]
    for link in links:
        n = _outputs(link.W, link.b, link.shift, n, x.dtype)
        if not n:
            return False
    return lies_plainly(x)


class _Given(NamedTuple):
    """The layers as the kernel takes them: sizes, addresses and kinds; the numbers of the profiles. And all weights."""

    sizes: array[int]
    numbers: array[float]
    weights: int

    def work(self, rows: int) -> int:
        """About how many numbers a pass makes, counted as those of an activation: a product costs a tenth of one."""
        return rows * self.weights // 10


def _given(links: Iterable[Link]) -> _Given | None:
    sizes: list[int] = []
    numbers: list[float] = []
    weights = 0
    for W, b, _, (kind, of_profile), shift in links:
        at, bias = W.data_ptr(), 0 if b is None else b.data_ptr()
        if not at or (b is not None and not bias):
            return None
        out, n = W.shape
        weights += out * n
        sizes += n, out, at, bias, NOTHING if kind == IDENTITY and shift is None else kind
        numbers += of_profile, 0.0 if shift is None else shift.item()
    return _Given(array("q", sizes), array("d", numbers), weights)


def _value(links: Sequence[Link], x: Tensor) -> Tensor | None:
    given, source = _given(links), address(x)
    n, out = x.shape[-1], links[-1].W.shape[0]
    if given is None or not source or not n * out:
        return None
    rows = x.numel() // n
    y = torch.empty((*x.shape[:-1], out), dtype=x.dtype)
    norms = _FORWARD[x.dtype](
        source, y.data_ptr(), rows, len(links), given.sizes.buffer_info()[0], given.numbers.buffer_info()[0],
        threads_for(given.work(rows)),
    )  # fmt: skip
    return y if norms else None


def _gradients(
    links: Sequence[Link], x: Tensor, gy: Tensor, *, of_inputs: bool, loss: array[float] | None = None
) -> list[Tensor | None] | None:
    """Gradients of x, and of W, b and t of each layer.

    With ``loss``, gy are targets instead: the gradients are those of the mean square error, which is put there.
    """
    if (
        is_compiled(x)
        or not _fit_together(links, x)
        or gy.shape != (*x.shape[:-1], links[-1].W.shape[0])
        or gy.dtype != x.dtype
    ):
        return None  # something has become another thing since the forward pass
    gy = gy.contiguous()
    given, source, comes = _given(links), address(x), address(gy)
    if given is None or not source or not comes or not lies_plainly(gy) or is_watched():
        return None
    rows = x.numel() // x.shape[-1]
    gx = torch.empty_like(x) if of_inputs else None
    flat = x.new_empty(sum(W.numel() + W.shape[0] + 1 for W, *_ in links))
    norms = _BACKWARD[x.dtype](
        source, comes, None if gx is None else gx.data_ptr(), flat.data_ptr(),
        None if loss is None else loss.buffer_info()[0], rows, len(links), given.sizes.buffer_info()[0],
        given.numbers.buffer_info()[0], threads_for(2 * given.work(rows)),
    )  # fmt: skip
    if not norms:
        return None
    # each one a tensor of its own: who writes into one, or saves it, means that one
    parts = [part.clone() for part in flat.split([k for W, *_ in links for k in (W.numel(), W.shape[0], 1)])]
    found: list[Tensor | None] = [gx]
    for k, (W, b, _, _, shift) in enumerate(links):
        gW, gb, gt = parts[3 * k : 3 * k + 3]
        found.append(gW.view_as(W))
        found += [] if b is None else [gb]
        found += [] if shift is None else [gt.reshape(shift.shape).to(shift.dtype)]
    return found


def _layer_by_layer(links: Sequence[Link], x: Tensor) -> Tensor:
    """The same function, made of operations that can be differentiated as often as one likes."""
    for W, b, rho, _, shift in links:
        x = composed(nn.functional.linear(x, W, b), rho.profile, rho.slope, shift, x.ndim - 1)[0]
    return x


class _Chain(torch.autograd.Function):
    """Keeps the inputs and the parameters alone."""

    @staticmethod
    def forward(ctx: Any, value: tuple[Tensor], links: list[Link], x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(x, *parameters)
        ctx.links, ctx.values = links, [p.detach() for p in parameters]
        return value[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gy,) = grads
        x, *parameters = ctx.saved_tensors
        needed, found = ctx.needs_input_grad[2:], None
        if not torch.is_grad_enabled():
            parameters = ctx.values  # what they were, also if p.data is another tensor now
            found = _gradients(_with_parameters(ctx.links, parameters), x, gy, of_inputs=needed[0])
        if found is None:
            found = _by_autograd(ctx.links, (x, *parameters), needed, gy)
        return (None, None, *(g if needs else None for g, needs in zip(found, needed, strict=True)))


def _with_parameters(links: Sequence[Link], parameters: Iterable[Tensor]) -> list[Link]:
    """The layers with the parameters that were saved."""
    rest = iter(parameters)
    return [
        link._replace(
            W=next(rest),
            b=None if link.b is None else next(rest),
            shift=None if link.shift is None else next(rest),
        )
        for link in links
    ]


def _by_autograd(
    links: Sequence[Link], inputs: Sequence[Tensor], needed: Sequence[bool], gy: Tensor
) -> list[Tensor | None]:
    """The gradients that are needed, which can be differentiated again if that is what is asked for."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # one input may depend on another (net(net(x)), tied weights): what is wanted is each one's own share
        x, *parameters = (
            p.view_as(p) if again else p.detach().requires_grad_(needs) for p, needs in zip(inputs, needed, strict=True)
        )
        wanted = [p for p, needs in zip((x, *parameters), needed, strict=True) if needs]
        y = _layer_by_layer(_with_parameters(links, parameters), x)
        found = iter(torch.autograd.grad(y, wanted, gy, create_graph=again, allow_unused=True, materialize_grads=True))
    return [next(found) if needs else None for needs in needed]


def mean_square(layers: nn.ModuleList, rescalings: nn.ModuleList, x: Tensor, y: Tensor) -> Tensor | None:
    """``mse_loss(F(x), y)`` with its gradients from one pass over the samples; None if it must be done step by step.

    Where a gradient is wanted, that is: without one, evaluate the network.
    """
    if (
        is_compiled(x)
        or x.dtype not in _BACKWARD
        or y.dtype != x.dtype
        or y.requires_grad
        or not torch.is_grad_enabled()
    ):
        return None
    links = links_of(layers, rescalings, x, ONE_PASS)
    if links is None or y.shape != (*x.shape[:-1], links[-1].W.shape[0]) or not x.numel() * y.numel():
        return None
    parameters = _parameters(links)
    if not any(p.requires_grad for p in (x, *parameters)):
        return None
    loss = array("d", [0.0])
    found = _gradients(links, x, y, of_inputs=x.requires_grad, loss=loss)
    if found is None:
        return None
    out: Tensor = _MeanSquare.apply((x.new_tensor(loss[0]), found), links, x, y, *parameters)  # type: ignore[no-untyped-call]
    return out


class _MeanSquare(torch.autograd.Function):
    """The loss and its gradients, which are there before anyone asks."""

    @staticmethod
    def forward(
        ctx: Any,
        known: tuple[Tensor, list[Tensor | None]],
        links: list[Link],
        x: Tensor,
        y: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(x, y, *parameters)
        ctx.links, ctx.known, ctx.values = links, known[1], [p.detach() for p in parameters]
        return known[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (times,) = grads
        x, y, *parameters = ctx.saved_tensors
        of_x, _, *of_parameters = ctx.needs_input_grad[2:]
        needed = (of_x, *of_parameters)
        found, ctx.known = ctx.known, None  # whoever gets them may write into them
        parameters = parameters if torch.is_grad_enabled() else ctx.values
        links = _with_parameters(ctx.links, parameters)
        if torch.is_grad_enabled():
            gy = 2 / y.numel() * times * (_layer_by_layer(links, x) - y)
            found = _by_autograd(links, (x, *parameters), needed, gy)
        else:
            if found is None:
                found = _gradients(links, x, y, of_inputs=of_x, loss=array("d", [0.0]))
            if found is None:
                found = _by_autograd(links, (x, *parameters), needed, 2 / y.numel() * (_layer_by_layer(links, x) - y))
            if address(times) == 0 or times.item() != 1:  # it is 1 unless the loss goes into something else
                found = [None if g is None else g * times for g in found]
        of_x, *of_parameters = (g if needs else None for g, needs in zip(found, needed, strict=True))
        return (None, None, of_x, None, *of_parameters)
