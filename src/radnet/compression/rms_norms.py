"""RMSNorm layers, torch's and those of other libraries, which are tried out before they are believed."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..running import Call, as_float64, copied, run_in_float64
from .recording import Recorder
from .trust import has_hooks, stands_for


class RMSNormOf(NamedTuple):
    """What an RMSNorm is made of: ``v -> gain * v / sqrt(|v|^2/n + eps)``."""

    n: int
    eps: float | None  # None: the eps of the dtype that arrives, or of float32 if that is shorter
    gain: Tensor | None


#: what an RMSNorm may be made of: operations without branches, so that agreement at many scales is agreement
_RMS_OPERATIONS = (
    "aten.pow", "aten.mul", "aten.square", "aten.mean", "aten.add", "aten.rsqrt", "aten.sqrt", "aten.reciprocal",
    "aten.div", "aten._to_copy", "aten.to.", "aten._fused_rms_norm", "aten.rms_norm", "aten.empty", "aten.view",
)  # fmt: skip


def rms_norm(m: nn.Module) -> RMSNormOf | None:
    """n, eps and gain of an RMSNorm: torch's, or one of the many others, which are tried out first."""
    if stands_for(m, nn.RMSNorm):
        norm = cast(nn.RMSNorm, m)
        return RMSNormOf(norm.normalized_shape[0], norm.eps, norm.weight) if len(norm.normalized_shape) == 1 else None
    if isinstance(m, torch.jit.ScriptModule):
        return None
    gain = m._parameters.get("weight")
    eps = getattr(m, "variance_epsilon", getattr(m, "eps", None))
    named = type(m).__name__.endswith("RMSNorm") and not isinstance(m, nn.RMSNorm)
    if not named or gain is None or gain.ndim != 1 or len(list(m.parameters())) != 1:
        return None
    if not isinstance(eps, float) or has_hooks(m) or "forward" in vars(m):
        return None
    return RMSNormOf(len(gain), eps, gain) if _is_rms_norm(m, gain.detach(), eps) else None


def _is_rms_norm(m: nn.Module, gain: Tensor, eps: float) -> bool:
    """Whether a module computes the formula, over 48 orders of magnitude and at 0, by smooth operations alone."""
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(26, len(gain), generator=generator, dtype=torch.float64)
    v = (v * torch.cat([torch.logspace(-24, 24, 25, dtype=torch.float64), torch.zeros(1)]).unsqueeze(1)).to(gain.device)
    try:
        wide = copied(m, as_float64)
        recorder = Recorder(wide)
        (found,) = run_in_float64(wide, Call((v,)), [recorder]).tensors.values()
    except Exception:  # whatever a module says that is none
        return False
    if not all(name.startswith(_RMS_OPERATIONS) for name, _ in recorder.log):
        return False
    expected = as_float64(gain) * v / (v.square().mean(dim=1, keepdim=True) + eps).sqrt()
    allowed = 32 * torch.finfo(torch.float64).eps * expected.abs().amax(dim=1, keepdim=True)
    return found.shape == expected.shape and bool(((found - expected).abs() <= allowed).all())
