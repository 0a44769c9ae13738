"""Norm layers as radial activations: what is linear in them goes to the layers around, what is left is radial.

RMSNorm is ``v -> g * v / sqrt(|v|^2/n + eps)``: a radial rescaling and a gain, which the readers take over. LayerNorm
is a centring, which the writers take over, then the same with a shift, which the readers' biases take over. BatchNorm
in eval mode is affine entry by entry, and its writer takes over all of it. The original n and eps are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .operations.arithmetic import Add, Scale
from .operations.convolution import Convolution
from .operations.embedding import Parameter
from .operations.ends import Output
from .operations.linear import Linear
from .operations.norm import BatchNorm
from .operations.same import Same
from .operations.shape import SizeOf, Slice
from .program import Step, Value
from .reasons import Cause, Reason
from .replacements import FoldedBatchNorm, RMSRescaling
from .rms_norms import RMSNormOf, rms_norm
from .spaces.spans import double
from .trust import class_of, has_hooks, stands_for


@dataclass(frozen=True)
class Folded:
    """Whether norm layers were folded; and of those that were not, by their paths, why."""

    any: bool
    kept: Mapping[str, Cause] = field(default_factory=dict)


def fold(model: nn.Module, steps: Sequence[Step]) -> Folded:
    """Fold the norm layers that can be. The model is a copy.

    The steps may be those of several programs, one after the other: the ways that one model takes.
    """
    graph = _Graph(model, steps)
    done = False
    kept: dict[str, Cause] = {}
    for calls in list(graph.calls.values()):
        why = _fold_one(graph, calls)
        if why is None:
            done = True
        else:
            kept |= {step.path or "": Cause(why) for step in calls}
    return Folded(done, kept)


def _fold_one(graph: _Graph, calls: Sequence[Step]) -> Reason | None:
    """Fold a module, given all its calls; if it is no norm layer or has to stay, why."""
    m: Any = calls[0].module
    batch, layer = class_of(m, BatchNorm.classes) is not None, stands_for(m, nn.LayerNorm)
    rms = None if batch or layer else rms_norm(m)
    if not (batch or layer or rms is not None):
        return Reason.NOT_EQUIVARIANT
    if not graph.once(calls[0]):
        return Reason.NORM_SHARED
    if any(step.output is None or len(step.inputs) != 1 for step in calls):
        return Reason.NOT_EQUIVARIANT
    if batch:
        return _fold_batch(graph, calls, m)
    return _fold_layer(graph, calls, m) if rms is None else _fold_rms(graph, calls, rms)


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
            ended += isinstance(step.operation, Output)
            if step.output is not None:
                self.maker[step.output] = step
            for value in () if isinstance(step.operation, SizeOf) else step.inputs:
                self.users.setdefault(value, []).append(step)
            if step.module is not None:
                self.calls.setdefault(id(step.module), []).append(step)
        self.bare = {id(_tensor(model, step.path or "")) for step in steps if isinstance(step.operation, Parameter)}

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
                if isinstance(step.operation, Linear) and self.once(step):
                    readers.append(step)
                elif step.output is not None and _keeps_the_last_axis(step, read.ndim):
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
            if isinstance(step.operation, Linear) and self.once(step):
                found.append(step)
            elif isinstance(step.operation, Add | Same | Scale) and len(set(step.inputs)) == len(step.inputs):
                todo += step.inputs
            else:
                return None
        return found

    def batch_norm_writer(self, value: Value) -> list[Step] | None:
        """The layer that makes a value whose channels a BatchNorm sees as such, if nobody else reads it."""
        step = self.maker.get(value)
        if step is None or len(self.users[value]) != 1 or not isinstance(step.operation, Linear | Convolution):
            return None
        fits = value.ndim == step.operation.module.weight.ndim  # with one axis less, it takes channels for rows
        return [step] if fits and self.once(step) else None


def _keeps_the_last_axis(step: Step, ndim: int) -> bool:
    """Whether a step is the same tensor, or a part of its positions."""
    operation = step.operation
    return isinstance(operation, Same) or (isinstance(operation, Slice) and operation.keeps_the_last_axis(ndim))


def _own_tensors(m: nn.Module) -> list[Tensor]:
    return [tensor for kept in (m._parameters, m._buffers) for tensor in kept.values() if tensor is not None]


def _tensor(model: nn.Module, path: str) -> Any:
    """A parameter or a buffer by its name; None if there is none."""
    owner, _, name = path.rpartition(".")
    try:
        return getattr(model.get_submodule(owner), name, None)
    except AttributeError:
        return None


def _fold_batch(graph: _Graph, calls: Sequence[Step], m: Any) -> Reason | None:
    writers = graph.layers([graph.batch_norm_writer(step.inputs[0]) for step in calls])
    if m.training or m.running_mean is None or writers is None or len(writers) != 1:
        return Reason.NOT_EQUIVARIANT
    s = 1 / (double(m.running_var) + m.eps).sqrt()
    t = -s * double(m.running_mean)
    if m.affine:
        s, t = s * double(m.weight), t * double(m.weight) + double(m.bias)
    (w,) = writers
    b = t if w.bias is None else s * double(w.bias) + t
    _set(w, double(w.weight) * s.reshape(-1, *[1] * (w.weight.ndim - 1)), b)
    axes = {step.made.ndim for step in calls}
    graph.replace(m, FoldedBatchNorm(*axes) if stands_for(m, nn.BatchNorm1d) else nn.Identity())
    return None


def _fold_rms(graph: _Graph, calls: Sequence[Step], rms: RMSNormOf) -> Reason | None:
    m: Any = calls[0].module
    if rms.gain is not None:
        readers = graph.layers([graph.linear_readers(step.made) for step in calls])
        if readers is None:
            return Reason.NORM_GAIN
        _absorb(readers, double(rms.gain), None)
    graph.replace(m, RMSRescaling(rms.n, rms.eps))
    return None


def _fold_layer(graph: _Graph, calls: Sequence[Step], m: Any) -> Reason | None:
    if len(m.normalized_shape) != 1:
        return Reason.NOT_EQUIVARIANT
    writers = graph.layers([graph.writers(step.inputs[0]) for step in calls])
    if writers is None:
        return Reason.NORM_WRITERS
    if m.weight is not None or m.bias is not None:
        readers = graph.layers([graph.linear_readers(step.made) for step in calls])
        if readers is None:
            return Reason.NORM_GAIN
        gain = torch.ones(m.normalized_shape, dtype=torch.float64) if m.weight is None else double(m.weight)
        _absorb(readers, gain, None if m.bias is None else double(m.bias))
    for w in writers:
        W, b = double(w.weight), None if w.bias is None else double(w.bias)
        _set(w, W - W.mean(dim=0), None if b is None else b - b.mean())
    graph.replace(m, RMSRescaling(m.normalized_shape[0], m.eps))
    return None


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
