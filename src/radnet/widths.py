"""Widths vectors: what they must look like, what Algorithm 1 makes of them, how many parameters they cost.

Paper: "Radial neural networks" (the widths vector n) and "Model compression" (the reduction n_red). No torch here, so
that the command line can answer questions about widths at once.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from .errors import InvalidType, InvalidValue


def check_widths(widths: Iterable[object]) -> tuple[int, ...]:
    """Return ``widths`` as a tuple of Python ints, or say which entry cannot be a width.

    Raises
    ------
    InvalidType
        If ``widths`` is no sequence, or an entry is not a whole number.
    InvalidValue
        If there are fewer than two entries, or one is below 1.
    """
    if isinstance(widths, str | bytes) or not isinstance(widths, Iterable):
        raise InvalidType(f"widths {widths!r}: expected a sequence of whole numbers, for example (2, 16, 1)")
    try:
        entries = list(widths)
    except TypeError:  # an array without axes
        raise InvalidType(f"widths {widths!r}: expected a sequence of whole numbers") from None
    whole = [_whole(entries, i) for i in range(len(entries))]
    if len(whole) < 2:
        raise InvalidValue(
            f"widths {tuple(whole)}: a network needs at least an input and an output width, for example (2, 16, 1)"
        )
    for i, n in enumerate(whole):
        if n < 1:
            raise InvalidValue(f"widths {tuple(whole)}: entry {i} is {n}; a width must be at least 1")
    return tuple(whole)


def _whole(entries: Sequence[object], i: int) -> int:
    """Entry i as an int: numbers that are not whole are a wrong value, all else is a wrong type."""
    n = entries[i]
    if type(n) is int:
        return n
    if isinstance(n, SupportsIndex) and not isinstance(n, bool):
        try:
            return operator.index(n)
        except TypeError:  # a tensor that is not one whole number
            pass
    what = f"widths {tuple(entries)}: entry {i} is {n!r}"
    if isinstance(n, float) and not n.is_integer():
        raise InvalidValue(f"{what}; a width must be a whole number")
    raise InvalidType(f"{what} ({type(n).__name__}); a width must be an int")


def reduced_widths(widths: Sequence[int], bias: bool = True) -> tuple[int, ...]:
    """Widths of the compressed network: each hidden one is at most one more than the one before it.

    ``n_red[0] = n[0]``, ``n_red[i] = min(n[i], n_red[i-1] + 1)`` for hidden layers, ``n_red[L] = n[L]``; without biases
    the ``+ 1`` goes, since nothing adds a direction.

    Parameters
    ----------
    widths : sequence of int, length L + 1
    bias : bool
        Whether the layers have biases.

    References
    ----------
    Paper, "Model compression" (before thm:mod-comp).

    Examples
    --------
    >>> reduced_widths((1, 8, 16, 8, 1))
    (1, 2, 3, 4, 1)
    >>> reduced_widths((3, 64, 2, 64, 1), bias=False)
    (3, 3, 2, 2, 1)
    """
    n = check_widths(widths)
    n_red = [n[0]]
    for n_i in n[1:-1]:
        n_red.append(min(n_i, n_red[-1] + int(bool(bias))))
    return (*n_red, n[-1])


def count_parameters(widths: Sequence[int], bias: bool = True) -> int:
    """Number of weights and biases of a network: the sum of ``(n[i-1] + 1) n[i]``.

    Examples
    --------
    >>> count_parameters((1, 8, 16, 8, 1)), count_parameters((1, 2, 3, 4, 1))
    (305, 34)
    """
    n = check_widths(widths)
    return sum((n_in + int(bool(bias))) * n_out for n_in, n_out in itertools.pairwise(n))
