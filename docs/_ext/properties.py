"""Docstrings of properties as they stand: their first colon is one of a sentence, not the end of a type."""

from __future__ import annotations

from typing import Any


def _as_sentences(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """An empty comment goes first, and is what napoleon reads as "type: description"."""
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]


def setup(app: Any) -> dict[str, Any]:
    """Before napoleon, which has the usual priority."""
    app.connect("autodoc-process-docstring", _as_sentences, priority=400)
    return {"parallel_read_safe": True}
