"""Numbers in sentences."""

from __future__ import annotations


def counted(count: int, thing: str) -> str:
    """So many of something.

    >>> counted(1, "row"), counted(2048, "row"), counted(0, "input")
    ('1 row', '2,048 rows', '0 inputs')
    """
    return f"{count:,} {thing}" + "s" * (count != 1)


def times_fewer(before: int, after: int) -> str:
    """How much less there is now; nothing where there is not less.

    >>> times_fewer(305, 34), times_fewer(3_283_842, 126), times_fewer(67_139, 66_947), times_fewer(5, 5)
    ('(9.0 times fewer)', '(26,062.2 times fewer)', '(0.29 % fewer)', '')
    """
    if not 0 < after < before:
        return ""
    ratio = before / after
    return f"({ratio:,.1f} times fewer)" if ratio >= 1.05 else f"({100 * (1 - after / before):.2g} % fewer)"
