"""Ours beside the paper's: the table `radnet reproduce` prints, and the same as data."""

from __future__ import annotations

from typing import Any

from . import lossless

SCHEMA_VERSION = 1
#: a float32 figure at the level of rounding agrees with the paper's if it is within this factor
AGREES_WITHIN = 3.0


def lossless_rows(results: list[lossless.Result]) -> list[dict[str, Any]]:
    """One row of data for each dtype of experiment 1."""
    rows = []
    for result in results:
        ours, paper = result.figure, lossless.PAPER if result.dtype == "float32" else None
        agrees = None if paper is None else paper.mean / AGREES_WITHIN <= ours.mean <= paper.mean * AGREES_WITHIN
        rows.append(
            {
                "experiment": 1,
                "figure": "mean |F - F_red|",
                "dtype": result.dtype,
                "reduced_widths": list(result.reduced_widths),
                "trials": len(result.errors),
                "ours": {"mean": ours.mean, "std": ours.std},
                "paper": None if paper is None else {"mean": paper.mean, "std": paper.std},
                "agrees": agrees,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, one line each.

    >>> print(table([]))
    experiment  figure            dtype    trials  ours                   paper                  agrees
    """
    layout = "{:<12}{:<18}{:<9}{:<8}{:<23}{:<23}{}"
    lines = [layout.format("experiment", "figure", "dtype", "trials", "ours", "paper", "agrees")]
    for row in rows:
        agrees = "-" if row["agrees"] is None else "yes" if row["agrees"] else "no"
        cells = (row["experiment"], row["figure"], row["dtype"], row["trials"], _pm(row["ours"]), _pm(row["paper"]))
        lines.append(layout.format(*cells, agrees))
    return "\n".join(lines)


def _pm(figure: dict[str, float] | None) -> str:
    return "-" if figure is None else f"{figure['mean']:.2e} ± {figure['std']:.2e}"
