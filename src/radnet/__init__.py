"""radnet: radial neural networks on PyTorch. Train wide, ship tiny, lose nothing.

The names below are loaded on first use, so that ``import radnet`` and ``radnet --help`` do not wait for torch. Modules
that are not attributes of the package are its own affair and may change at any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in _DOOR, for type checkers and editors; a test compares the two
    from . import activations as activations
    from . import approximation as approximation
    from . import arrays as arrays
    from . import columns as columns
    from . import compression as compression
    from . import descent as descent
    from . import ensembles as ensembles
    from . import errors as errors
    from . import estimators as estimators
    from . import experiments as experiments
    from . import export as export
    from . import expressions as expressions
    from . import files as files
    from . import hub as hub
    from . import initialization as initialization
    from . import lean as lean
    from . import linalg as linalg
    from . import models as models
    from . import modes as modes
    from . import network as network
    from . import plots as plots
    from . import profiles as profiles
    from . import radial as radial
    from . import rbf as rbf
    from . import reading as reading
    from . import rescaling as rescaling
    from . import running as running
    from . import saving as saving
    from . import streaming as streaming
    from . import study as study
    from . import symmetry as symmetry
    from . import testing as testing
    from . import training as training
    from . import trials as trials
    from . import verification as verification
    from . import widths as widths
    from . import writing as writing
    from .activations import Identity as Identity
    from .activations import Radial as Radial
    from .activations import RadialActivation as RadialActivation
    from .activations import RadialSigmoid as RadialSigmoid
    from .activations import ShiftedReLU as ShiftedReLU
    from .activations import Squash as Squash
    from .activations import StepReLU as StepReLU
    from .approximation import Ball as Ball
    from .approximation import Box as Box
    from .approximation import Points as Points
    from .approximation import approximate as approximate
    from .compression import compress as compress
    from .descent import InterpolatingSpace as InterpolatingSpace
    from .descent import ProjectedOptimizer as ProjectedOptimizer
    from .errors import RadNetError as RadNetError
    from .export import export_onnx as export_onnx
    from .network import RadNet as RadNet
    from .network import widen as widen
    from .saving import load as load
    from .saving import load_into as load_into
    from .saving import save as save
    from .symmetry import OrthogonalAction as OrthogonalAction
    from .verification import verify as verify
    from .widths import reduced_widths as reduced_widths

__version__ = "0.1.0"

#: each module that is an attribute of the package, with the names that it hands to the package itself
_DOOR: dict[str, tuple[str, ...]] = {
    "activations": (
        "Identity", "Radial", "RadialActivation", "RadialSigmoid", "ShiftedReLU", "Squash", "StepReLU",
    ),
    "approximation": ("Ball", "Box", "Points", "approximate"),
    "arrays": (),
    "columns": (),
    "compression": ("compress",),
    "descent": ("InterpolatingSpace", "ProjectedOptimizer"),
    "ensembles": (),
    "errors": ("RadNetError",),
    "estimators": (),
    "experiments": (),
    "export": ("export_onnx",),
    "expressions": (),
    "files": (),
    "hub": (),
    "initialization": (),
    "lean": (),
    "linalg": (),
    "models": (),
    "modes": (),
    "network": ("RadNet", "widen"),
    "plots": (),
    "profiles": (),
    "radial": (),
    "rbf": (),
    "reading": (),
    "rescaling": (),
    "running": (),
    "saving": ("load", "load_into", "save"),
    "streaming": (),
    "study": (),
    "symmetry": ("OrthogonalAction",),
    "testing": (),
    "training": (),
    "trials": (),
    "verification": ("verify",),
    "widths": ("reduced_widths",),
    "writing": (),
}  # fmt: skip
_HOME = {name: module for module, names in _DOOR.items() for name in names}

__all__ = sorted([*_HOME, "testing"])


def __getattr__(name: str) -> Any:
    if name in _DOOR:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_DOOR, *_HOME})
