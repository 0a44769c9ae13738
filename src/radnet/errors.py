"""What radnet raises: one family, each member also the Python kind it would be elsewhere.

``except RadNetError`` catches everything the library refuses; ``except ValueError`` and ``except TypeError`` go on
working. Every message says where, what, and what to do; what it quotes from elsewhere is made `printable`.
"""

from __future__ import annotations

#: characters of a message about what somebody else has written
LONGEST_MESSAGE = 900


def printable(text: str, most: int | None = None) -> str:
    r"""A text of somebody else's on one line, for a terminal: what is not printable is written as an escape.

    With ``most``, no more than so many characters of it, and how many there are.

    >>> printable("x\n\x1b[8m")
    'x\\n\\x1b[8m'
    >>> printable("0123456789", 4)
    '0123... (10 characters)'
    """
    shown = text if most is None else text[:most]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in shown)
    if most is None or max(len(shown), len(text)) <= most:
        return shown
    return f"{shown[:most]}... ({len(text):,} characters)"


class RadNetError(Exception):
    """Anything radnet refuses to do.

    Examples
    --------
    >>> import radnet
    >>> try:
    ...     radnet.reduced_widths((3,))
    ... except radnet.RadNetError as error:
    ...     print(error)
    widths (3,): a network needs at least an input and an output width, for example (2, 16, 1)
    """


class InvalidValue(RadNetError, ValueError):
    """The right kind of thing with a value that cannot be used."""


class InvalidType(RadNetError, TypeError):
    """The wrong kind of thing."""


class MissingFile(RadNetError, FileNotFoundError):
    """A file or folder that is not there."""


class NotWritten(RadNetError, OSError):
    """A file that the system did not let us write: no room, no permission."""


class NotEnoughMemory(RadNetError, MemoryError):
    """A file that needs more memory than there is."""


class MissingPackage(RadNetError, ModuleNotFoundError):
    """An optional package that is not installed."""


class Diverged(RadNetError, ArithmeticError):
    """Training left the numbers."""


class StaleResult(RadNetError, RuntimeError):
    """A result was asked for that depends on a network which has changed since."""


class TrialFailed(RadNetError, RuntimeError):
    """A trial of an experiment did not come to its end."""
