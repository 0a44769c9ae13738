"""What a process has once and a measurement changes for a moment: warning filters, and what torch.fx patches.

Python's warning filters are one list for all threads; two threads that change and restore it in turns leave it changed.
torch.fx and torch.export replace ``nn.Module.__call__`` for the whole process while they trace, and whoever calls an
unrelated model meanwhile gets an error. Here one lock orders our own threads, and the replacement holds for the thread
that traces alone.
"""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import _symbolic_trace

_ALONE = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """One of our threads at a time."""
    with _ALONE:
        yield


@contextmanager
def quietly() -> Iterator[None]:
    """No warnings: torch's own, about itself."""
    with _ALONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """So many threads inside torch's operations; None: as many as there are.

    >>> import torch
    >>> with torch_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def silently() -> Iterator[None]:
    """No warnings, and nothing that torch and onnx log or print in this thread: torch.export shows graphs it fails at.

    >>> import logging
    >>> with silently():
    ...     logging.getLogger("torch.export").error("not shown")
    """
    here = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != here

    with quietly():
        from torch.export import _trace  # takes its time, only who exports needs it, and it adds a filter of warnings

        names = [name for name in list(logging.root.manager.loggerDict) if name.startswith(("torch", "onnx"))]
        loggers = [logging.getLogger(name) for name in names if name != "torch.__trace"]  # which writes files, if asked
        for logger in loggers:
            logger.addFilter(elsewhere)
        vars(_trace)["print"] = lambda *args, **kwargs: None
        try:
            yield
        finally:
            del vars(_trace)["print"]
            for logger in loggers:
                logger.removeFilter(elsewhere)


@contextmanager
def tracing() -> Iterator[None]:
    """While a model is traced: calls of modules in other threads stay what they are.

    >>> import torch
    >>> with tracing():
    ...     graph = torch.fx.symbolic_trace(torch.nn.Linear(2, 1))
    """
    with _ALONE:
        before = _symbolic_trace._Patcher
        _symbolic_trace._Patcher = _ForThisThread  # type: ignore[misc]
        try:
            yield
        finally:
            _symbolic_trace._Patcher = before  # type: ignore[misc]


class _ForThisThread(_symbolic_trace._Patcher):
    """Replaces methods of a class for the thread that asks for it; the others get what was there."""

    def patch_method(self, cls: type, name: str, new_fn: Callable[..., Any], deduplicate: bool = True) -> None:
        """Replace a method."""
        here, before = threading.get_ident(), getattr(cls, name)

        @functools.wraps(new_fn)
        def choose(*args: Any, **kwargs: Any) -> Any:
            return (new_fn if threading.get_ident() == here else before)(*args, **kwargs)

        choose.elsewhere = (here, before)  # type: ignore[attr-defined]
        super().patch_method(cls, name, choose, deduplicate)


def in_this_thread(method: Any) -> Any:
    """What a method is here: while another thread traces, what it was before.

    >>> in_this_thread(len) is len
    True
    """
    here = threading.get_ident()
    while getattr(method, "elsewhere", (here, None))[0] != here:
        method = method.elsewhere[1]
    return method
