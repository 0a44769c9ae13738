"""Ours beside the paper's, as text: a line for each row, how many agree, and what each experiment says."""

from __future__ import annotations

from collections.abc import Sequence

from ..collection import find
from ..experiment import Row
from ..figure import text_of
from .results import Results

#: widths of the columns of a table, where nothing in them is wider
LEAST = (14, 32, 8, 23, 23, 0)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line each.

    >>> from radnet.experiments.figure import Figure
    >>> print(table([Row(1, "float32", "mean |F − F_red|", 10, Figure(1e-8, 2e-9), Figure(1.31e-8, 4.45e-9), True)]))
    experiment    figure                          trials  ours                   paper                  agrees
    1 float32     mean |F − F_red|                10      1.00e-08 ± 2.00e-09    1.31e-08 ± 4.45e-09    yes
    """
    head = ("experiment", "figure", "trials", "ours", "paper", "agrees")
    lines = [head, *((f"{r.experiment} {r.part}", r.figure, str(r.trials), *_compared(r)) for r in rows)]
    widths = [max(LEAST[k], 2 + max(len(line[k]) for line in lines)) for k in range(len(head))]
    return "\n".join("".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _compared(row: Row) -> tuple[str, str, str]:
    return text_of(row.ours), text_of(row.paper), verdict(row)


def of_the_paper(rows: Sequence[Row]) -> list[Row]:
    """The rows of the experiments that the paper has, with what stands beside its figures."""
    return [row for row in rows if find(row.experiment).printed]


def summary(rows: Sequence[Row]) -> str:
    """How many figures agree, in a sentence.

    >>> summary([Row(1, "", "", 1, None, agrees=True), Row(4, "", "", 1, None, agrees=False, erratum=20)])
    'Of 2 figures that can be compared 1 agree; 1 differ, 1 of them for a reason that the errata give.'
    """
    judged = [row for row in rows if row.agrees is not None]
    differ = [row for row in judged if not row.agrees]
    said = f"Of {len(judged)} figures that can be compared {len(judged) - len(differ)} agree"
    if not differ:
        return said + "."
    known = sum(row.erratum is not None for row in differ)
    return f"{said}; {len(differ)} differ, {known} of them for a reason that the errata give."


def verdict(row: Row) -> str:
    """yes, no, a dash where nothing is compared, or which erratum explains the difference.

    >>> verdict(Row(4, "network", "parameters", 1, None, None, False, erratum=20))
    'no (erratum 20)'
    """
    if row.agrees is None:
        return "-"
    return "yes" if row.agrees else "no" if row.erratum is None else f"no (erratum {row.erratum})"


def failed(rows: Sequence[Row]) -> list[Row]:
    """Rows that should agree and do not."""
    return [row for row in rows if row.agrees is False and row.erratum is None]


def findings(results: Results, number: int) -> list[str]:
    """What one experiment says, in sentences that follow the numbers, whatever these turn out to be."""
    return find(number).findings(results.of(number).outcomes())
