"""The certificate: what was measured on the original and the compressed network, side by side.

A theorem says the two functions are equal; the certificate says how equal the two programs are, in the dtype that
ships and in float64, row by row, beside what rounding alone does to the original.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..activations import RadialActivation
from ..errors import InvalidType, InvalidValue
from ..rescaling import block_sizes
from ..testing import TIMES_CONDITIONING, ULPS, as_it_is, conditioning, gap_of, in_float64, substituted


@dataclass(frozen=True)
class Certificate:
    """Measured gaps between two networks.

    Attributes
    ----------
    rows : int
        Inputs compared.
    dtype : str
        The dtype the networks ship in.
    max_gap, mean_gap : float
        ``|F - F_red|`` in that dtype.
    max_gap64, mean_gap64 : float
        The same with both networks evaluated in float64.
    scale : float
        ``max |F|`` over the inputs.
    ulps : float
        ``max_gap`` in units of ``eps * scale``.
    conditioning : float
        The largest D(x): how far F itself moves when weights, biases and x move by one ulp.
    rows_at_jump : int
        Rows with a hidden norm within 64 eps of a jump of its profile (Step-ReLU at 1); they are not judged, since
        there two runs of the *same* network may differ.
    rows_ill_conditioned : int
        Rows whose gap is above 64 eps max|F| but within 10 D(x).
    rows_failed : int
        Rows whose gap nothing excuses, those where F is not finite included.
    rows_not_finite : int
        Rows where F is NaN or infinite, so that there is nothing to compare.
    """

    rows: int
    dtype: str
    max_gap: float
    mean_gap: float
    max_gap64: float
    mean_gap64: float
    scale: float
    ulps: float
    conditioning: float
    rows_at_jump: int
    rows_ill_conditioned: int
    rows_failed: int
    rows_not_finite: int

    @property
    def lossless(self) -> bool:
        """Whether every judged row is within ``max(64 eps max|F|, 10 D(x))``."""
        return self.rows_failed == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "lossless": self.lossless}

    def __str__(self) -> str:
        verdict = "lossless" if self.lossless else f"NOT lossless: {self.rows_failed} rows beyond rounding"
        lines = [
            f"{verdict}, on {self.rows} inputs",
            f"  gap in {self.dtype:<9} max {self.max_gap:.3g}, mean {self.mean_gap:.3g} ({self.ulps:.3g} eps max|F|)",
            f"  gap in float64   max {self.max_gap64:.3g}, mean {self.mean_gap64:.3g}",
            f"  max|F| {self.scale:.3g}; one ulp in weights and inputs moves F by up to {self.conditioning:.3g}",
        ]
        if self.rows_ill_conditioned:
            lines.append(f"  {self.rows_ill_conditioned} rows above {ULPS} eps, within {TIMES_CONDITIONING} times that")
        if self.rows_not_finite:
            lines.append(f"  {self.rows_not_finite} rows where F itself is not finite")
        if self.rows_at_jump:
            lines.append(f"  {self.rows_at_jump} rows at a jump of the profile, not judged")
        return "\n".join(lines)


def verify(
    a: nn.Module, b: nn.Module, inputs: Tensor | Sequence[Tensor], *, generator: torch.Generator | None = None
) -> Certificate:
    """Measure how equal two modules are on the given inputs; `radnet.verify` says more, and takes files too."""
    for name, model in (("first", a), ("second", b)):
        if not isinstance(model, nn.Module):
            raise InvalidType(f"verify needs two modules; the {name} is a {type(model).__name__}")
        check_mode(model, name)
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    _check_inputs(a, given)
    if len(given) > 1 or not _gives_one_tensor(a, given[0]):
        a, b = _Flat(a, given[1:]), _Flat(b, given[1:])
    x = given[0]
    generator = generator if generator is not None else torch.Generator(x.device).manual_seed(0)
    with torch.no_grad(), substituted(a, as_it_is), substituted(b, as_it_is):
        values = a(x)
        gap = gap_of(values, b(x))
        with _watching_jumps(a, x.shape[0], torch.finfo(values.dtype).eps) as at_jump:
            exact = in_float64(a)(x)
        gap64 = gap_of(exact, in_float64(b)(x))
    D = conditioning(a, x, generator=generator)
    judged = ~at_jump.to(gap.rows.device)
    beyond = judged & ~(gap.rows <= ULPS * gap.eps * gap.scale)
    finite = values.reshape(len(x), -1).isfinite().all(dim=1)
    failed = (beyond & ~(gap.rows <= TIMES_CONDITIONING * D)) | ~finite
    return Certificate(
        rows=x.shape[0],
        dtype=str(values.dtype).removeprefix("torch."),
        max_gap=gap.max,
        mean_gap=gap.mean,
        max_gap64=gap64.max,
        mean_gap64=gap64.mean,
        scale=gap.scale,
        ulps=gap.ulps,
        conditioning=float(D.max()),
        rows_at_jump=int(at_jump.sum()),
        rows_ill_conditioned=int((beyond & ~failed).sum()),
        rows_failed=int(failed.sum()),
        rows_not_finite=int((~finite).sum()),
    )


def _check_inputs(model: nn.Module, given: Sequence[Any]) -> None:
    if not given or not isinstance(given[0], Tensor) or given[0].ndim < 1 or given[0].numel() == 0:
        raise InvalidValue("verify needs a tensor of inputs with at least one row")
    for x in given:
        if not isinstance(x, Tensor):
            raise InvalidType(f"an input is a {type(x).__name__}; verify needs tensors")
        looked_up = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in model.modules())
        if x.is_complex() or not (x.is_floating_point() or looked_up):
            raise InvalidType(f"the inputs are {x.dtype}; verify needs floating point, or integers for embeddings")
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise InvalidValue("the inputs hold NaN or infinite values; a certificate needs finite ones")


def _gives_one_tensor(model: nn.Module, x: Tensor) -> bool:
    with torch.no_grad(), substituted(model, as_it_is):
        out = model(x)
    return isinstance(out, Tensor) and out.ndim > 0 and len(out) == len(x)


class _Flat(nn.Module):
    """A model as a function of its first input, all that it gives in one tensor, a row for each row of the input."""

    def __init__(self, model: nn.Module, others: Sequence[Tensor]) -> None:
        super().__init__()
        self.model = model
        self.others = list(others)

    def forward(self, x: Tensor) -> Tensor:
        dtype = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), x.dtype)
        rest = [y.to(dtype) if y.is_floating_point() else y for y in self.others]
        found = [y for y in _tensors(self.model(x, *rest)) if y.is_floating_point()]
        if not found:
            raise InvalidType("the model gives no floating-point tensor; there is nothing to compare")
        rows = len(x)
        flat = [y.reshape(rows, -1) if y.ndim and len(y) == rows else y.reshape(1, -1).expand(rows, -1) for y in found]
        return torch.cat(flat, dim=1)


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)


def check_mode(model: nn.Module, name: str) -> None:
    """A model that draws random numbers or updates statistics has no function to compare."""
    for part, module in model.named_modules():
        if module.training and isinstance(module, nn.modules.dropout._DropoutNd | nn.modules.batchnorm._BatchNorm):
            raise InvalidValue(
                f"the {name + ' ' if name else ''}model is in training mode and {part or 'it'} is a "
                f"{type(module).__name__}; call eval()"
            )
    if any(is_lazy(p) for p in model.parameters()):
        raise InvalidValue(
            f"the {name + ' ' if name else ''}model has parameters that are not initialised yet; run it once first"
        )


@contextmanager
def _watching_jumps(model: nn.Module, rows: int, eps: float) -> Iterator[Tensor]:
    """While the model runs, note which rows come within 64 eps of a jump of some activation's profile."""
    seen = torch.zeros(rows, dtype=torch.bool)

    def look(rho: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        v = inputs[0] if inputs else next(iter(keywords.values()))
        if isinstance(rho, RadialActivation) and len(v) == rows:
            seen.logical_or_(near_jump(rho, v.detach(), eps).cpu())

    watched = [m for m in model.modules() if isinstance(m, RadialActivation) and m.jumps]
    handles = [m.register_forward_pre_hook(look, with_kwargs=True) for m in watched]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def near_jump(rho: RadialActivation, v: Tensor, eps: float) -> Tensor:
    """For each row (first axis) of v, whether some norm is within 64 eps of a jump of the profile.

    >>> from radnet.activations import StepReLU
    >>> near_jump(StepReLU(), torch.tensor([[1.0, 0.0], [1.1, 0.0]]), eps=1e-7)
    tensor([ True, False])
    """
    sizes = block_sizes(rho.blocks or 1, v.shape[rho.dim])
    parts = [torch.linalg.vector_norm(part, dim=rho.dim, keepdim=True) for part in v.split(sizes, rho.dim)]
    r = torch.cat(parts, dim=rho.dim)
    t = 0.0 if rho.shift is None else float(rho.shift)
    near = torch.zeros_like(r, dtype=torch.bool)
    for jump in rho.jumps:
        near |= (r - t - jump).abs() <= ULPS * eps * max(1.0, abs(t + jump), abs(t))
    return near.reshape(v.shape[0], -1).any(dim=1)
