"""matplotlib, when it is needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def matplotlib(part: str | None = None) -> Any:
    """matplotlib or a part of it, or an error that names the extra to install."""
    try:
        return importlib.import_module("matplotlib" if part is None else f"matplotlib.{part}")
    except ModuleNotFoundError as error:
        raise MissingPackage("plots need matplotlib; install radnet[plot]") from error


def canvas(width: float, height: float) -> Figure:
    """A new figure of matplotlib's, so many inches wide and high."""
    figure: Figure = matplotlib("figure").Figure(figsize=(width, height))
    return figure
