"""From a function, a domain and an eps to a radial network with a guarantee.

Paper: "Universal Approximation" and its appendix; every construction is a file of this package, named after the width
it promises. `docs/approximation.md` shows how it works and what is and is not claimed.
"""

from .certificate import Certificate, Check
from .constructions.growing_width import GrowingNetwork
from .constructions.stacked import StackedNetwork
from .covers import Cover
from .domains import Ball, Box, Points
from .pipeline import approximate
from .rechecking import Recheck
from .result import Approximation, load

__all__ = [
    "Approximation",
    "Ball",
    "Box",
    "Certificate",
    "Check",
    "Cover",
    "GrowingNetwork",
    "Points",
    "Recheck",
    "StackedNetwork",
    "approximate",
    "load",
]
