"""How far a tolerance can move the output: norms and errors followed from step to step.

For every value two numbers: N, how long its feature vectors can be for inputs no longer than the given ones, and e, how
far those of the small model can be from those of the original. A layer ``w = W u + b`` that writes into a basis U which
leaves directions out adds what it leaves out, with P = I - U U^T and c the constants of u and w:

    e_w = |W| e_u + |P W B_u| |u - c_u| + |P c_w|,      N_w = |W| N_u + |b|,

where B_u is a basis of the directions u can take. A radial activation with Lipschitz constant L multiplies both by L.
Where a step is not Lipschitz (Step-ReLU) or not known, and what arrives there is not exact, there is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..activations import Identity, RadialActivation, RadialSigmoid, ShiftedReLU, Squash
from .bases import Layout
from .features import Feature
from .graph import Analysis, double
from .norms import RMSRescaling
from .program import Step, Value
from .spans import basis_of


@dataclass(frozen=True)
class Bound:
    """The most an output vector can change, for inputs as long as the given ones; None with the reason why not."""

    value: float | None
    why: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"no bound: {self.why}"
        return f"outputs change by at most {self.value:.3g}, for inputs as long as the given ones"


@dataclass(frozen=True)
class _Size:
    """N and e of a value."""

    norm: float
    error: float


def lipschitz(rho: RadialActivation) -> float | None:
    """A Lipschitz constant of ``v -> h(|v| - t) v/|v|``: the larger of sup h' and sup h/r. None if we know none.

    >>> from radnet.activations import StepReLU
    >>> lipschitz(ShiftedReLU(0.5)), lipschitz(StepReLU())
    (1.0, None)
    """
    t = 0.0 if rho.shift is None else float(rho.shift.detach())
    if type(rho) is Identity:
        return 1.0 if t == 0 else None
    if type(rho) is Squash:
        return 3 * math.sqrt(3) / 8 if t == 0 else None  # with a shift h(-t) is not 0
    if type(rho) is ShiftedReLU:
        return 1.0 if rho.b + t >= 0 else None
    if type(rho) is RMSRescaling:
        return 1 / math.sqrt(rho.eps) if rho.eps > 0 else None
    return None


def bound(analysis: Analysis, layout: Layout, steps: Sequence[Step], inputs: Sequence[Tensor]) -> Bound:
    """Follow N and e through the program."""
    return _Follower(analysis, layout, inputs).run(steps)


class _NoBound(Exception):
    pass


class _Follower:
    def __init__(self, analysis: Analysis, layout: Layout, inputs: Sequence[Tensor]) -> None:
        self.analysis, self.layout = analysis, layout
        self.given = list(inputs)
        self.tensors: dict[Value, Tensor] = {}
        self.sizes: dict[Value, _Size] = {}
        self.writes = {id(use.step): use for use in analysis.uses}

    def run(self, steps: Sequence[Step]) -> Bound:
        total = 0.0
        try:
            for step in steps:
                if step.kind == "output":
                    total = math.sqrt(sum(self._size(value).error ** 2 for value in step.inputs))
                elif step.output is not None:
                    self.sizes[step.output] = self._take(step)
        except _NoBound as reason:
            return Bound(None, str(reason))
        return Bound(total) if math.isfinite(total) else Bound(None, "hidden vectors can be of any length")

    def _size(self, value: Value) -> _Size:
        return self.sizes.get(value, _Size(math.inf, 0.0))

    def _take(self, step: Step) -> _Size:
        sizes = [self._size(value) for value in step.inputs]
        kind, options = step.kind, step.options
        if kind == "input":
            if step.output is not None and self.given:
                self.tensors[step.output] = self.given.pop(0)
            return _Size(math.inf, 0.0)
        if kind in ("linear", "conv"):
            return self._layer(step, sizes[0])
        if kind in ("embedding", "parameter"):
            return self._table(step)
        if kind == "radial":
            return self._radial(step, sizes[0])
        if kind == "add":
            a, b = sizes
            return _Size(a.norm + b.norm, a.error + b.error)
        if kind == "scale":
            factor = abs(options["factor"])
            return _Size(factor * sizes[0].norm, factor * sizes[0].error)
        if kind == "cat":
            return _Size(math.hypot(*(s.norm for s in sizes)), math.hypot(*(s.error for s in sizes)))
        if kind in ("same", "flatten", "mean", "pool", "permute", "transpose", "slice"):
            return sizes[0]
        if any(s.error > 0 for s in sizes):
            raise _NoBound(f"{step.name} comes after directions were left out, and is not known to be Lipschitz")
        return _Size(math.inf, 0.0)

    def _layer(self, step: Step, size: _Size) -> _Size:
        m: Any = step.module
        use = self.writes[id(step)]
        W = double(m.weight)
        taps = W.shape[2:].numel() if W.ndim > 2 else (1 if use.reads is None else use.reads.inner)
        if use.reads is None and step.inputs[0] in self.tensors:
            x = double(self.tensors[step.inputs[0]])
            size = _Size(float(x.norm(dim=1 if step.kind == "conv" else -1).max()), 0.0)
        spread = math.sqrt(taps)
        W = W.reshape(len(W), -1, taps)
        b = 0.0 if m.bias is None else float(double(m.bias).norm())
        length = _norm(W.flatten(1)) * spread
        error = length * size.error if size.error else 0.0
        error += self._left_out(W, use.writes, use.reads, size, spread)
        return _Size(length * size.norm + b, error)

    def _left_out(self, W: Tensor, writes: Feature | None, reads: Feature | None, size: _Size, spread: float) -> float:
        rest = self._rest(W, writes)
        if rest is None:
            return 0.0
        c = 0.0
        if reads is not None:
            B = basis_of(reads.span.directions)
            rest = torch.einsum("oik,ij->ojk", rest, B)
            c = 0.0 if reads.span.c is None else float(reads.span.c.norm())
        constant = (
            self._rest(writes.span.c.unsqueeze(1), writes) if writes is not None and writes.span.c is not None else None
        )
        return _norm(rest.flatten(1)) * spread * (size.norm + c) + (0.0 if constant is None else float(constant.norm()))

    def _rest(self, W: Tensor, writes: Feature | None) -> Tensor | None:
        """What of the rows of W does not fit into the bases that leave directions out."""
        if writes is None:
            return None
        rest, any_cut = torch.zeros_like(W), False
        for run in self.layout.runs[writes]:
            if run.basis is not None and run.basis.cut:
                part, U = W[run.rows], run.basis.U
                rest[run.rows] = part - torch.einsum("ij,j...->i...", U, torch.einsum("ij,i...->j...", U, part))
                any_cut = True
        return rest if any_cut else None

    def _table(self, step: Step) -> _Size:
        use = self.writes.get(id(step))
        if use is None or use.writes is None:
            return _Size(math.inf, 0.0)
        rows = double(step.options["tensor"]).reshape(-1, len(use.writes.entries))
        rest = self._rest(rows.mT, use.writes)
        return _Size(float(rows.norm(dim=1).max()), 0.0 if rest is None else float(rest.norm(dim=0).max()))

    def _radial(self, step: Step, size: _Size) -> _Size:
        rho: Any = step.module
        L = lipschitz(rho)
        if L is None and size.error > 0:
            raise _NoBound(
                f"{step.name} ({type(rho).__name__}) comes after directions were left out, and is not Lipschitz"
            )
        blocks = 1 if rho.blocks is None else rho.blocks if isinstance(rho.blocks, int) else len(rho.blocks)
        largest = math.sqrt(blocks) if isinstance(rho, Squash | RadialSigmoid) else math.inf
        norm = min(largest, math.inf if L is None else L * size.norm)
        return _Size(norm, 0.0 if L is None else L * size.error)


def _norm(A: Tensor) -> float:
    return float(torch.linalg.matrix_norm(A, ord=2)) if A.numel() else 0.0
