"""The experiments of the paper, and two it leaves open: each whole in one file, an `Experiment` object at its end.

`experiment` says what an experiment is, `collection` is the tuple of all of them, `running` plans trials and runs them
in processes of their own, `reporting` sets ours beside the paper's and makes tables and a page, `reproduce` is the
whole of it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

#: modules that are also known by a shorter name
_SHORT = {
    "plan": "running.plan",
    "runner": "running.runner",
    "results": "reporting.results",
    "findings": "reporting.report",
}


def __getattr__(name: str) -> ModuleType:
    if name not in _SHORT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_SHORT[name]}")
