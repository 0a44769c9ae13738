"""Where the command starts: Ctrl-C ends it in silence, also while modules are still being imported.

An interrupt in the middle of an import becomes whatever the half-imported module makes of it, so the process ends right
there; nothing is under way then that a later start would miss. Everywhere else it is Python's own KeyboardInterrupt.
"""

import os
import signal
import sys
from types import FrameType

#: what a shell expects of a command that was interrupted
INTERRUPTED = 130


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line in a process of its own; returns the exit code."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        from .cli import main

        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is over; what is left is to go


if __name__ == "__main__":
    sys.exit(main())
