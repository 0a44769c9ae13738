"""Where the command starts: Ctrl-C and SIGTERM end it in silence, also while modules are still being imported.

An interrupt in the middle of an import becomes whatever the half-imported module makes of it, so the process ends right
there; nothing is under way then that a later start would miss. Everywhere else it is Python's own KeyboardInterrupt,
for SIGTERM too: files that are half written are removed, and processes that were started end.
"""

import atexit
import contextlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

#: what ends a command, and what a shell expects of one that was ended so: 130, 143
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ENDED = 128


class _Ending:
    """Which signal has come, if any."""

    code: int | None = None


def _interrupt(number: int, frame: FrameType | None) -> None:
    _Ending.code = _ENDED + number
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(_Ending.code)
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line in a process of its own; returns the exit code."""
    try:
        for number in SIGNALS:
            signal.signal(number, _interrupt)
        try:
            from .cli import main

            code = main()
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # it is over; what is left is to go
    except KeyboardInterrupt:  # also in between those lines
        code = _ENDED + signal.SIGINT
    return code if _Ending.code is None else _Ending.code


def _leave(code: int) -> NoReturn:
    """End the process as Python does, but with this code.

    After an interrupt inside an ``exec`` of text (dataclasses and named tuples are made so) ``python -m`` ends with
    SIGINT whatever is returned, even if the interrupt was caught and was a SIGTERM.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    code = main()
    sys.exit(code) if _Ending.code is None else _leave(code)
