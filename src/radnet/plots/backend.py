"""matplotlib, when it is needed."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import MissingPackage


def matplotlib(part: str | None = None) -> Any:
    """matplotlib or a part of it, or an error that names the extra to install."""
    try:
        return importlib.import_module("matplotlib" if part is None else f"matplotlib.{part}")
    except ModuleNotFoundError as error:
        raise MissingPackage("plots need matplotlib; install radnet[plot]") from error
