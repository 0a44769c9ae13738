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
from .graph import double
from .program import RMSNormOf, Step, Value, rms_norm

_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class RMSRescaling(RadialActivation):
    """``v -> v / sqrt(|v|^2/n + eps)`` with an n of its own: an RMSNorm of n entries, kept in fewer.

    Parameters
    ----------
    n : int
        Entries of the original norm layer.
    eps : float
    dim : int
        The axis along which a vector lies.

    Examples
    --------
    >>> v = torch.randn(4, 8)
    >>> torch.allclose(RMSRescaling(8, 1e-6)(v), nn.RMSNorm(8, eps=1e-6)(v), atol=1e-6)
    True
    """

    def __init__(self, n: int, eps: float, *, dim: int = -1) -> None:
        super().__init__(dim=dim)
        self.n, self.eps = n, eps

    def profile(self, r: Tensor) -> Tensor:
        """``h(r) = r / sqrt(r^2/n + eps)``, without squaring r."""
        return r / self._size(r)

    def slope(self, r: Tensor) -> Tensor:
        """``h'(r) = eps / (r^2/n + eps)^(3/2)``."""
        size = self._size(r)
        return self.eps / size / size / size

    def _size(self, r: Tensor) -> Tensor:
        return torch.hypot(r / math.sqrt(self.n), torch.full_like(r, math.sqrt(self.eps)))

    def extra_repr(self) -> str:
        """n and eps."""
        return f"n={self.n}, eps={self.eps}"


def fold(model: nn.Module, steps: Sequence[Step]) -> bool:
    """Fold the norm layers that can be; returns whether there were any. The model is a copy."""
    graph = _Graph(model, steps)
    return any([_fold_one(graph, step) for step in steps if step.module is not None and graph.once(step)])  # noqa: C419


def _fold_one(graph: _Graph, step: Step) -> bool:
    m: Any = step.module
    if type(m) in _BATCH:
        return _fold_batch(graph, step, m)
    if type(m) is nn.LayerNorm:
        return _fold_layer(graph, step, m)
    rms = rms_norm(m)
    return rms is not None and _fold_rms(graph, step, rms)


class _Graph:
    """Who makes and who uses every value, and which modules are called once."""

    def __init__(self, model: nn.Module, steps: Sequence[Step]) -> None:
        self.model = model
        self.maker: dict[Value, Step] = {}
        self.users: dict[Value, list[Step]] = {}
        self.calls: dict[str, int] = {}
        owners: dict[int, int] = {}
        for p in (p for _, p in model.named_parameters(remove_duplicate=False)):
            owners[id(p)] = owners.get(id(p), 0) + 1
        self.tied = {key for key, count in owners.items() if count > 1}
        bare = {step.path for step in steps if step.kind == "parameter"}
        for step in steps:
            if step.output is not None:
                self.maker[step.output] = step
            for value in step.inputs if step.kind != "size" else ():
                self.users.setdefault(value, []).append(step)
            if step.path is not None:
                self.calls[step.path] = self.calls.get(step.path, 0) + 1
        self.bare = bare

    def once(self, step: Step) -> bool:
        """Whether a module is called in one place, has no hooks, and shares its parameters with nobody."""
        m, path = step.module, step.path or ""
        if m is None or self.calls.get(path, 0) != 1 or m._forward_hooks or m._forward_pre_hooks:
            return False
        names = [f"{path}.{name}" for name, _ in m.named_parameters()]
        return not any(id(p) in self.tied for p in m.parameters()) and not self.bare & set(names)

    def replace(self, step: Step, module: nn.Module) -> None:
        owner, _, name = (step.path or "").rpartition(".")
        module.train(step.module.training if step.module is not None else False)
        setattr(self.model.get_submodule(owner), name, module)

    def linear_readers(self, value: Value) -> list[Step] | None:
        """The layers that read a value along its last axis, or a part of its positions, if only such do."""
        readers: list[Step] = []
        for step in self.users.get(value, []):
            if step.kind == "linear" and self.once(step):
                readers.append(step)
                continue
            last = len(value.shape) - 1
            cut = step.options.get("dims", []) + step.options.get("dropped", []) if step.kind == "slice" else [last]
            more = (
                self.linear_readers(step.output) if step.output is not None and step.kind in ("slice", "same") else None
            )
            if more is None or (step.kind == "slice" and any(d % (last + 1) == last for d in cut)):
                return None
            readers += more
        return readers or None

    def writers(self, value: Value) -> list[Step] | None:
        """The linear layers whose sum a value is, if it is that and nobody else reads any of it."""
        if len(self.users.get(value, [])) != 1:
            return None
        step = self.maker[value]
        if step.kind == "linear" and self.once(step):
            return [step]
        if step.kind not in ("add", "same", "scale") or len(set(step.inputs)) != len(step.inputs):
            return None
        found: list[Step] = []
        for part in step.inputs:
            more = self.writers(part)
            if more is None:
                return None
            found += more
        return found


def _fold_batch(graph: _Graph, step: Step, m: Any) -> bool:
    (value,) = step.inputs
    if m.training or m.running_mean is None or len(graph.users[value]) != 1:
        return False
    writer = graph.maker[value]
    fits = (writer.kind == "linear" and len(value.shape) == 2) or (writer.kind == "conv" and len(value.shape) > 2)
    if not fits or not graph.once(writer):
        return False
    s = 1 / (double(m.running_var) + m.eps).sqrt()
    t = -s * double(m.running_mean)
    if m.affine:
        s, t = s * double(m.weight), t * double(m.weight) + double(m.bias)
    w: Any = writer.module
    b = t if w.bias is None else s * double(w.bias) + t
    _set(w, double(w.weight) * s.reshape(-1, *[1] * (w.weight.ndim - 1)), b)
    graph.replace(step, nn.Identity())
    return True


def _fold_rms(graph: _Graph, step: Step, rms: RMSNormOf) -> bool:
    if step.output is None:
        return False
    if rms.gain is not None:
        readers = graph.linear_readers(step.output)
        if readers is None:
            return False
        _absorb(readers, double(rms.gain), None)
    arrives = step.inputs[0].dtype
    own = torch.finfo(torch.promote_types(arrives, torch.float32)).eps
    graph.replace(step, RMSRescaling(rms.n, own if rms.eps is None else rms.eps))
    return True


def _fold_layer(graph: _Graph, step: Step, m: Any) -> bool:
    if len(m.normalized_shape) != 1 or step.output is None:
        return False
    writers = graph.writers(step.inputs[0])
    if writers is None:
        return False
    if m.weight is not None:
        readers = graph.linear_readers(step.output)
        if readers is None:
            return False
        _absorb(readers, double(m.weight), None if m.bias is None else double(m.bias))
    for writer in writers:
        w: Any = writer.module
        W, b = double(w.weight), None if w.bias is None else double(w.bias)
        _set(w, W - W.mean(dim=0), None if b is None else b - b.mean())
    graph.replace(step, RMSRescaling(m.normalized_shape[0], m.eps))
    return True


def _absorb(readers: Sequence[Step], gain: Tensor, shift: Tensor | None) -> None:
    for reader in readers:
        w: Any = reader.module
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
