"""Ours beside the paper's: the table `radnet reproduce` prints, and the same as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from . import descent, lossless
from .lossless import Figure

SCHEMA_VERSION = 1
#: a float32 figure at the level of rounding agrees with the paper's if it is within this factor
AGREES_WITHIN = 3.0


def lossless_rows(results: list[lossless.Result]) -> list[dict[str, Any]]:
    """One row of data for each dtype of experiment 1; float32 agrees within a factor 3 of the paper's."""
    rows = []
    for result in results:
        paper = lossless.PAPER if result.dtype == "float32" else None
        agrees = (
            None if paper is None else paper.mean / AGREES_WITHIN <= result.figure.mean <= paper.mean * AGREES_WITHIN
        )
        row = _row(1, "mean |F - F_red|", result.dtype, len(result.errors), result.figure, paper, agrees)
        rows.append({**row, "reduced_widths": list(result.reduced_widths)})
    return rows


def descent_rows(results: list[descent.Result]) -> list[dict[str, Any]]:
    """One row of data for each dtype of experiment 2; float32 agrees if it is not above the paper's mean + std."""
    rows = []
    for result in results:
        paper = descent.PAPER if result.dtype == "float32" else None
        agrees = None if paper is None else result.figure.mean <= paper.mean + paper.std
        rows.append(_row(2, "|L - L_red|", result.dtype, len(result.losses), result.figure, paper, agrees))
    return rows


def _row(
    experiment: int, name: str, dtype: str, trials: int, ours: Figure, paper: Figure | None, agrees: bool | None
) -> dict[str, Any]:
    return {
        "experiment": experiment,
        "figure": name,
        "dtype": dtype,
        "trials": trials,
        "ours": asdict(ours),
        "paper": None if paper is None else asdict(paper),
        "agrees": agrees,
    }


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
