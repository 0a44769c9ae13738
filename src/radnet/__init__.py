"""radnet: radial neural networks on PyTorch. Train wide, ship tiny, lose nothing.

The names below are loaded on first use, so that ``import radnet`` and ``radnet --help`` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import testing
    from .activations import Identity, Radial, RadialActivation, RadialSigmoid, ShiftedReLU, Squash, StepReLU
    from .approximation import Ball, Box, Points, approximate
    from .compression import compress
    from .descent import InterpolatingSpace, ProjectedOptimizer
    from .errors import RadNetError
    from .files import load, load_into, save
    from .network import RadNet, widen
    from .symmetry import OrthogonalAction
    from .verification import verify
    from .widths import reduced_widths

__version__ = "0.1.0"

_HOME = {
    "Identity": "activations",
    "Radial": "activations",
    "RadialActivation": "activations",
    "RadialSigmoid": "activations",
    "ShiftedReLU": "activations",
    "Squash": "activations",
    "StepReLU": "activations",
    "Ball": "approximation",
    "Box": "approximation",
    "Points": "approximation",
    "approximate": "approximation",
    "compress": "compression",
    "verify": "verification",
    "InterpolatingSpace": "descent",
    "ProjectedOptimizer": "descent",
    "RadNetError": "errors",
    "load": "files",
    "load_into": "files",
    "save": "files",
    "RadNet": "network",
    "widen": "network",
    "OrthogonalAction": "symmetry",
    "reduced_widths": "widths",
}
_SUBMODULES = (
    "activations",
    "approximation",
    "columns",
    "compression",
    "descent",
    "experiments",
    "files",
    "linalg",
    "models",
    "network",
    "plots",
    "profiles",
    "rbf",
    "rescaling",
    "symmetry",
    "testing",
    "training",
    "widths",
)

__all__ = [
    "Ball",
    "Box",
    "Identity",
    "InterpolatingSpace",
    "OrthogonalAction",
    "Points",
    "ProjectedOptimizer",
    "RadNet",
    "RadNetError",
    "Radial",
    "RadialActivation",
    "RadialSigmoid",
    "ShiftedReLU",
    "Squash",
    "StepReLU",
    "approximate",
    "compress",
    "load",
    "load_into",
    "reduced_widths",
    "save",
    "testing",
    "verify",
    "widen",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
