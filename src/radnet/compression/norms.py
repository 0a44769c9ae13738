"""Norm layers as radial activations: what is linear in them goes to the layers around, what is left is radial.

RMSNorm is ``v -> g * v / sqrt(|v|^2/n + eps)``: a radial rescaling and a gain, which the readers take over. LayerNorm
is a centring, which the writers take over, then the same with a shift, which the readers' biases take over. BatchNorm
in eval mode is affine entry by entry, and its writer takes over all of it. The original n and eps are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..activations import RadialActivation
from .folded import FoldedBatchNorm
from .graph import double
from .program import RMSNormOf, Step, Value, rms_norm
from .trust import BATCH_NORMS, CONVOLUTIONS, class_of, has_hooks, stands_for


class RMSRescaling(RadialActivation):
    """``v -> v / sqrt(|v|^2/n + eps)`` with an n of its own: an RMSNorm of n entries, kept in fewer.

    Parameters
    ----------
    n : int
        Entries of the original norm layer.
    eps : float, optional
        None takes the eps of the dtype in which norms are accumulated (float32 for the half precisions), whatever
        arrives, as `torch.nn.RMSNorm` does.
    dim : int
        The axis along which a vector lies.

    Examples
    --------
    >>> v = torch.randn(4, 8)
    >>> torch.allclose(RMSRescaling(8, 1e-6)(v), nn.RMSNorm(8, eps=1e-6)(v), atol=1e-6)
    True
    """

    def __init__(self, n: int, eps: float | None, *, dim: int = -1) -> None:
        super().__init__(dim=dim)
        self.n, self.eps = n, eps

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r / sqrt(r^2/n + eps)``, without squaring r."""
        q, p, _ = self._shares(r)
        return math.sqrt(self.n) * (q / (q * q + p * p).sqrt())

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = eps / (r^2/n + eps)^(3/2)``."""
        q, p, m = self._shares(r)
        square = q * q + p * p
        return math.sqrt(self.n) * (p / m) * p / (square * square.sqrt())

    def _shares(self, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``r/m`` and ``s/m`` with ``s = sqrt(n eps)``, and m, the larger of r and s.

        ``r / sqrt(r^2/n + eps) = sqrt(n) r / sqrt(r^2 + s^2) = sqrt(n) q / sqrt(q^2 + p^2)``, where q and p are at most
        1 and one of them is 1: nothing overflows, and what underflows is less than rounding.
        """
        eps = torch.finfo(r.dtype).eps if self.eps is None else self.eps
        s = math.sqrt(self.n) * math.sqrt(eps)
        m = r.detach().abs().clamp(min=s)
        return r / m, s / m, m

    def extra_repr(self) -> str:
        """n and eps."""
        return f"n={self.n}, eps={self.eps}"


def fold(model: nn.Module, steps: Sequence[Step]) -> bool:
    """Fold the norm layers that can be; returns whether there were any. The model is a copy.

    The steps may be those of several programs, one after the other: the ways that one model takes.
    """
    graph = _Graph(model, steps)
    return any([_fold_one(graph, calls) for calls in list(graph.calls.values()) if graph.once(calls[0])])  # noqa: C419


def _fold_one(graph: _Graph, calls: Sequence[Step]) -> bool:
    """Fold a module, given all its calls."""
    m: Any = calls[0].module
    if any(step.output is None or len(step.inputs) != 1 for step in calls):
        return False
    if class_of(m, BATCH_NORMS) is not None:
        return _fold_batch(graph, calls, m)
    if stands_for(m, nn.LayerNorm):
        return _fold_layer(graph, calls, m)
    rms = rms_norm(m)
    return rms is not None and _fold_rms(graph, calls, rms)


class _Graph:
    """Who makes and who uses every value, and which modules are called once.

    A module is known by itself, not by its name: it may have several.
    """

    def __init__(self, model: nn.Module, steps: Sequence[Step]) -> None:
        self.model = model
        self.maker: dict[Value, Step] = {}
        self.users: dict[Value, list[Step]] = {}
        self.calls: dict[int, list[Step]] = {}
        self.program: dict[int, int] = {}  # which program a step is of
        self.owners: dict[int, int] = {}
        for m in model.modules():  # each once, however many names it has
            for tensor in _own_tensors(m):
                self.owners[id(tensor)] = self.owners.get(id(tensor), 0) + 1
        ended = 0
        for step in steps:
            self.program[id(step)] = ended
            ended += step.kind == "output"
            if step.output is not None:
                self.maker[step.output] = step
            for value in step.inputs if step.kind != "size" else ():
                self.users.setdefault(value, []).append(step)
            if step.module is not None:
                self.calls.setdefault(id(step.module), []).append(step)
        self.bare = {id(_tensor(model, step.path or "")) for step in steps if step.kind == "parameter"}

    def once(self, step: Step) -> bool:
        """Whether a module is called once in a program, has no hooks, and shares its parameters with nobody."""
        m = step.module
        if m is None or has_hooks(m):
            return False
        calls = self.calls[id(m)]
        if len({self.program[id(call)] for call in calls}) < len(calls):
            return False
        own = [id(tensor) for tensor in _own_tensors(m)]
        return all(self.owners.get(key, 1) == 1 and key not in self.bare for key in own)

    def layer(self, step: Step, *classes: type[nn.Module]) -> bool:
        """Whether a step is a layer of one of these classes whose weights may be changed."""
        m = step.module
        return m is not None and class_of(m, classes) is not None and self.once(step)

    def layers(self, found: Sequence[list[Step] | None]) -> list[Any] | None:
        """The modules of steps that were found for every call of another; None if they have other calls as well."""
        steps = {id(step): step for some in found if some is not None for step in some}
        modules = {id(step.module): step.module for step in steps.values()}
        others = any(id(call) not in steps for key in modules for call in self.calls[key])
        return None if others or any(some is None for some in found) else list(modules.values())

    def replace(self, old: nn.Module, new: nn.Module) -> None:
        """Put a module where another one was, under all its names."""
        new.train(old.training)
        for owner in list(self.model.modules()):
            for name in [name for name, child in owner._modules.items() if child is old]:
                setattr(owner, name, new)

    def linear_readers(self, value: Value) -> list[Step] | None:
        """The layers that read a value along its last axis, or a part of its positions, if only such do."""
        readers: list[Step] = []
        todo = [value]
        while todo:
            read = todo.pop()
            if read not in self.users:
                return None
            for step in self.users[read]:
                if step.kind == "linear" and self.layer(step, nn.Linear):
                    readers.append(step)
                elif step.output is not None and _keeps_the_last_axis(step, len(read.shape)):
                    todo.append(step.output)
                else:
                    return None
        return readers

    def writers(self, value: Value) -> list[Step] | None:
        """The linear layers whose sum a value is, if it is that and nobody else reads any of it."""
        found: list[Step] = []
        todo = [value]
        while todo:
            part = todo.pop()
            if len(self.users.get(part, [])) != 1 or part not in self.maker:
                return None
            step = self.maker[part]
            if step.kind == "linear" and self.layer(step, nn.Linear):
                found.append(step)
            elif step.kind in ("add", "same", "scale") and len(set(step.inputs)) == len(step.inputs):
                todo += step.inputs
            else:
                return None
        return found

    def batch_norm_writer(self, value: Value) -> list[Step] | None:
        """The layer that makes a value whose channels a BatchNorm sees as such, if nobody else reads it."""
        step = self.maker.get(value)
        if step is None or len(self.users[value]) != 1 or step.kind not in ("linear", "conv"):
            return None
        m: Any = step.module
        fits = len(value.shape) == m.weight.ndim  # with one axis less, it takes channels for rows
        return [step] if fits and self.layer(step, nn.Linear, *CONVOLUTIONS) else None


def _keeps_the_last_axis(step: Step, ndim: int) -> bool:
    """Whether a step is the same tensor, or a part of its positions."""
    cut = [*step.options.get("dims", []), *step.options.get("dropped", [])] if step.kind == "slice" else []
    return step.kind in ("slice", "same") and all(d % ndim != ndim - 1 for d in cut)


def _own_tensors(m: nn.Module) -> list[Tensor]:
    return [tensor for kept in (m._parameters, m._buffers) for tensor in kept.values() if tensor is not None]


def _tensor(model: nn.Module, path: str) -> Any:
    """A parameter or a buffer by its name; None if there is none."""
    owner, _, name = path.rpartition(".")
    try:
        return getattr(model.get_submodule(owner), name, None)
    except AttributeError:
        return None


def _fold_batch(graph: _Graph, calls: Sequence[Step], m: Any) -> bool:
    writers = graph.layers([graph.batch_norm_writer(step.inputs[0]) for step in calls])
    if m.training or m.running_mean is None or writers is None or len(writers) != 1:
        return False
    s = 1 / (double(m.running_var) + m.eps).sqrt()
    t = -s * double(m.running_mean)
    if m.affine:
        s, t = s * double(m.weight), t * double(m.weight) + double(m.bias)
    (w,) = writers
    b = t if w.bias is None else s * double(w.bias) + t
    _set(w, double(w.weight) * s.reshape(-1, *[1] * (w.weight.ndim - 1)), b)
    axes = {len(step.made.shape) for step in calls}
    graph.replace(m, FoldedBatchNorm(*axes) if stands_for(m, nn.BatchNorm1d) else nn.Identity())
    return True


def _fold_rms(graph: _Graph, calls: Sequence[Step], rms: RMSNormOf) -> bool:
    m: Any = calls[0].module
    if rms.gain is not None:
        readers = graph.layers([graph.linear_readers(step.made) for step in calls])
        if readers is None:
            return False
        _absorb(readers, double(rms.gain), None)
    graph.replace(m, RMSRescaling(rms.n, rms.eps))
    return True


def _fold_layer(graph: _Graph, calls: Sequence[Step], m: Any) -> bool:
    if len(m.normalized_shape) != 1:
        return False
    writers = graph.layers([graph.writers(step.inputs[0]) for step in calls])
    if writers is None:
        return False
    if m.weight is not None or m.bias is not None:
        readers = graph.layers([graph.linear_readers(step.made) for step in calls])
        if readers is None:
            return False
        gain = torch.ones(m.normalized_shape, dtype=torch.float64) if m.weight is None else double(m.weight)
        _absorb(readers, gain, None if m.bias is None else double(m.bias))
    for w in writers:
        W, b = double(w.weight), None if w.bias is None else double(w.bias)
        _set(w, W - W.mean(dim=0), None if b is None else b - b.mean())
    graph.replace(m, RMSRescaling(m.normalized_shape[0], m.eps))
    return True


def _absorb(readers: Sequence[Any], gain: Tensor, shift: Tensor | None) -> None:
    for w in readers:
        W = double(w.weight)
        b = None if w.bias is None else double(w.bias)
        if shift is not None:
            b = W @ shift if b is None else b + W @ shift
        _set(w, W * gain, b)


def _set(m: Any, W: Tensor, b: Tensor | None) -> None:
    like = m.weight
    m.weight = nn.Parameter(W.to(like.device, like.dtype), requires_grad=like.requires_grad)
    if b is not None:
        wanted = like.requires_grad if m.bias is None else m.bias.requires_grad
        m.bias = nn.Parameter(b.to(like.device, like.dtype), requires_grad=wanted)
