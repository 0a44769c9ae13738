"""The compiled kernels, where there are any: found beside this file, loaded once, left alone if ``RADNET_NATIVE=0``.

The package build compiles kernels.cpp where it finds a C++ compiler (hatch_build.py); without one the same functions
run in PyTorch, and nothing else is different.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

#: what the functions of the library take; kernels.cpp has the same number
ABI = 2
NAME = "_kernels.so"

_P, _I, _N, _D = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_double
_CHAIN = [_N, _I, _P, _P, _I]
_FUNCTIONS = {
    "forward": (_I, [_P, _P, _P, _N, _N, _N, _I, _D, _D, _P, _N, _I]),
    "backward": (None, [_P, _P, _P, _P, _P, _N, _N, _N, _I, _D, _D, _P, _N, _I]),
    "chain": (_I, [_P, _P, *_CHAIN]),
    "chain_back": (_I, [_P, _P, _P, _P, _P, *_CHAIN]),
}


def load(path: Path) -> ctypes.CDLL | None:
    """The library in this file; None if there is none, or one that was built from another version of the source.

    >>> load(Path("nowhere.so")) is None
    True
    """
    if not path.is_file():
        return None
    try:
        library = ctypes.CDLL(str(path))
        found = int(library.radnet_abi())
        for name, (result, arguments) in _FUNCTIONS.items():
            for number in ("float", "double"):
                function = getattr(library, f"radnet_{name}_{number}")
                function.restype, function.argtypes = result, arguments
        why = "" if found == ABI else f"it is of version {found}, needed is {ABI}"
    except (OSError, AttributeError) as error:
        why = str(error)
    if why:
        warnings.warn(f"radnet: {path.name} is not used ({why}); install radnet again to have it built", stacklevel=3)
    return None if why else library


def switched_off() -> bool:
    """Whether the environment asks for PyTorch alone."""
    return os.environ.get("RADNET_NATIVE", "1") == "0"


def functions(name: str) -> dict[torch.dtype, Callable[..., int]]:
    """A function of the library for each dtype that it knows; none where there is no library."""
    kinds = {torch.float32: "float", torch.float64: "double"}
    return {dtype: getattr(LIBRARY, f"radnet_{name}_{kind}") for dtype, kind in kinds.items() if LIBRARY is not None}


LIBRARY = None if switched_off() else load(Path(__file__).with_name(NAME))
