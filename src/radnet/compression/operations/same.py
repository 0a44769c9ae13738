"""What gives back its input: identities, dropout that is off, conversions between floating-point dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.nn import functional as F  # noqa: N812

from ..bounds.lengths import Size
from ..bounds.sizes import Sizes
from ..program import FunctionCall, Operation, Step, Value
from ..replacements import FoldedBatchNorm
from ..spaces.features import Feature
from ..spaces.follow import Analysis

_DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout)
_CONVERSIONS = (
    "contiguous", "clone", "float", "double", "half", "bfloat16", "to", "type", "type_as", "detach", "cpu", "data",
    torch.clone, torch.detach,
)  # fmt: skip
_ATEN_DROPOUTS = ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")


@dataclass(frozen=True)
class Same(Operation):
    """The input itself. Rounding is not part of the function that a model stands for, so conversions are this too."""

    classes = (
        nn.Identity, FoldedBatchNorm, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
    )  # fmt: skip
    calls = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
    functions = (*_DROPOUTS, *_CONVERSIONS, getattr)
    atens = (
        *_ATEN_DROPOUTS, "aten.to.dtype", "aten._to_copy.default", "aten.to.dtype_layout", "aten.to.device",
        "aten.contiguous.default", "aten.clone.default", "aten.alias.default", "aten.detach.default",
        "aten.detach_.default", "aten.to.other", "aten.type_as.default",
    )  # fmt: skip

    @classmethod
    def of_module(cls, module: nn.Module) -> Same | None:
        """Not a dropout layer in training mode."""
        return cls() if isinstance(module, nn.Identity) or not module.training else None

    @classmethod
    def of_function(cls, call: FunctionCall) -> Same | None:
        """Dropout that is told to be off, conversions, and ``x.data``."""
        if call.target in _DROPOUTS:
            return cls() if call.argument(2, "training", True) is False else None
        if call.target is getattr and call.args[1] != "data":
            return None
        return cls() if call.floating else None

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Same | None:
        """The same by torch.export."""
        if call.aten in _ATEN_DROPOUTS:
            return cls() if call.args[2] is False else None
        return cls() if call.floating else None

    def operands(self, call: FunctionCall, now: Mapping[fx.Node, Value]) -> tuple[Value, ...] | None:
        """What is converted; of a tensor to whose dtype it is converted the numbers are not read."""
        first = call.node.args[0] if call.node.args else None
        return (now[first],) if isinstance(first, fx.Node) and first in now else super().operands(call, now)

    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The feature that arrives."""
        return analysis.arriving(step)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """As long as what arrives."""
        return sizes.of(step.inputs[0])
