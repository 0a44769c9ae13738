"""Models for other worlds: as C."""

from __future__ import annotations

from .c import export_c as export_c

__all__ = ["export_c"]
