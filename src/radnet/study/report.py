"""What a study found, as text for a page, as plain data and as a picture."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..experiments.plain import as_plain
from ..plots.backend import canvas
from ..wording import counted
from ..writing import write_atomically
from .contest import CONTESTANTS, Entry, Settings
from .data import named
from .networks import NETWORKS, WIDER
from .ranking import Ranks, beside, ranks, scores_of, width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: whose place is asked for, and beside whom
OURS, RIVAL = "blocks", "GELU"
RANKED = [network.name for network in NETWORKS if network.ranked]
HALVES = {True: "set aside", False: "looked at"}


def halves(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries of each half, the one that was set aside first."""
    found = {HALVES[aside]: [e for e in entries if named(e.data).aside == aside] for aside in (True, False)}
    return {name: part for name, part in found.items() if part}


def summary(entries: Sequence[Entry], settings: Settings) -> dict[str, object]:
    """The figures as plain data."""
    parts: dict[str, object] = {}
    for name, part in halves(entries).items():
        found, scores = _ranks(part), scores_of(part)
        wide = width(part)
        parts[name] = {
            "data": sorted(scores),
            "mean_ranks": found.mean,
            "median_ranks": found.median,
            "friedman_p": None if math.isnan(found.p) else found.p,
            "critical_difference": None if math.isnan(found.p) else found.difference,
            OURS: {other: beside(scores, OURS, other)._asdict() for other in CONTESTANTS if other != OURS},
            "width": None if wide is None else wide._asdict(),
            "holds": verdict(part),
        }
    return {
        "settings": as_plain(settings),
        "halves": parts,
        "lossless": _lossless(entries),
        "entries": [as_plain(e) for e in entries],
    }


def verdict(part: Sequence[Entry]) -> bool:
    """Whether the blocks at least tie GELU networks on the median rank."""
    median = _ranks(part).median
    return median[OURS] <= median[RIVAL]


def text(entries: Sequence[Entry], settings: Settings) -> str:
    """For a page, in Markdown: every half with its ranks and its errors; what width does; what ships."""
    lines = []
    for name, part in halves(entries).items():
        lines += ["", f"## The half that was {name}", "", *_standing(part), "", *_errors(part), "", *_on_width(part)]
    lines += ["", "## What ships", "", _said_of_lossless(entries), "", "## The contestants", "", *_contestants()]
    lines += ["", "## The data", "", *_data(entries)]
    return "\n".join([_said_of_settings(settings), *lines]) + "\n"


def _ranks(part: Sequence[Entry]) -> Ranks:
    return ranks(scores_of(part), RANKED)


def _said_of_settings(s: Settings) -> str:
    share = f"{100 * s.held_out:.0f} % of the rows that are not test rows"
    return (
        f"{s.trials} trials of a random search on {share}, the same draws for everybody; the winner from "
        f"{counted(s.seeds, 'seed')}; {s.steps:,} steps of AdamW in batches of {s.batch}, a cosine schedule, the "
        f"weights that are best on held-out rows; {100 * s.test:.0f} % of the rows for the verdict."
    )


def _standing(part: Sequence[Entry]) -> list[str]:
    """A row for each contestant, best first."""
    found, scores = _ranks(part), scores_of(part)
    median = found.median[OURS], found.median[RIVAL]
    word = "better than" if median[0] < median[1] else "as good as" if median[0] == median[1] else "behind"
    lines = [
        f"On {counted(len(scores), 'data set')} blocks are {word} GELU networks of the same shipped size "
        "by the median rank: "
        f"{median[0]:g} against {median[1]:g} of {len(RANKED)}."
        + (
            ""
            if math.isnan(found.p)
            else f" Mean ranks that are less than {found.difference:.1f} apart do not differ by more than chance "
            f"explains (Friedman's p: {found.p:.2g})."
        ),
        "",
        "| contestant | median rank | mean rank | blocks win, tie, lose | parameters | training, s | one row, µs |",
        "|---|---|---|---|---|---|---|",
    ]
    names = sorted(CONTESTANTS, key=lambda name: found.mean.get(name, float("inf")))
    for name in names:
        own = [e for e in part if e.contestant == name]
        place = f"{found.median[name]:g} | {found.mean[name]:.1f}" if name in found.mean else "– | –"
        against = ", ".join(map(str, beside(scores, OURS, name))) if name != OURS else "–"
        size = f"{statistics.median(e.parameters for e in own):,.0f}" if own[0].parameters else "–"
        seconds, micro = (statistics.median(getattr(e, key) for e in own) for key in ("seconds", "microseconds"))
        lines.append(f"| {name} | {place} | {against} | {size} | {seconds:.1f} | {micro:,.0f} |")
    return lines


def _errors(part: Sequence[Entry]) -> list[str]:
    """A row for each data set: the mean error of each contestant, the smallest of a network in bold."""
    scores = scores_of(part)
    lines = ["Bold is the smallest error of a network.", ""]
    lines += ["| error | " + " | ".join(CONTESTANTS) + " |", "|---|" + "---|" * len(CONTESTANTS)]
    for data in sorted(scores):
        means = {name: statistics.fmean(values) for name, values in scores[data].items()}
        best = min(means[network.name] for network in NETWORKS)
        cells = [f"**{_digits(x)}**" if x == best else _digits(x) for x in (means[name] for name in CONTESTANTS)]
        lines.append(f"| {data} | " + " | ".join(cells) + " |")
    return lines


def _digits(x: float) -> str:
    return f"{x:.3f}" if x >= 0.0995 else f"{x:.4f}"


def _on_width(part: Sequence[Entry]) -> list[str]:
    found = width(part)
    if found is None:
        return []
    ordered = sorted(found.by_data.items(), key=lambda item: item[1])
    by_data = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ordered)
    return [
        f"**Training wide.** In {counted(found.draws, 'draw')} on {counted(found.data, 'data set')} one norm a layer "
        f"was trained {WIDER} times as wide as it ships. With the same rate, decay and depth the wide network has the "
        f"smaller loss on held-out rows in {100 * found.better:.0f} % of them, in the median {found.ratio:.2f} of the "
        f"other's. The median for each data set: {by_data}."
    ]


def _lossless(entries: Sequence[Entry]) -> dict[str, int]:
    own = [e for e in entries if e.lossless is not None]
    return {
        "compressed": sum(len(e.scores) for e in own),
        "lossless": sum(e.lossless or 0 for e in own),
        "smaller": sum(e.parameters < e.trained_parameters for e in own),
        "changed": sum(e.changed or 0 for e in own),
    }


def _said_of_lossless(entries: Sequence[Entry]) -> str:
    found = _lossless(entries)
    return (
        f"Every radial network is compressed before it ships, on rows it was trained on: {found['lossless']} of "
        f"{found['compressed']} are lossless, in {found['smaller']} of the contests they became smaller, "
        f"{counted(found['changed'], 'prediction')} on test rows changed. Errors and times are of what ships."
    )


def _contestants() -> list[str]:
    lines = ["| contestant | what it is | ranked |", "|---|---|---|"]
    lines += [f"| {c.name} | {c.about} | {'yes' if c.name in RANKED else 'no'} |" for c in CONTESTANTS.values()]
    return lines


def _data(entries: Sequence[Entry]) -> list[str]:
    lines = ["| data | kind | half | what it is | may ship |", "|---|---|---|---|---|"]
    for name in sorted({e.data for e in entries}):
        d = named(name)
        source = d.source.replace("|", "\\|")  # a bar ends a cell, also in code
        lines.append(f"| {name} | {d.kind} | {HALVES[d.aside]} | `{source}` | {d.parameters:,} |")
    return lines


# --- the picture


def draw(part: Sequence[Entry], path: Path) -> Path:
    """Mean ranks on an axis, with the difference that chance explains, and lines over those it joins."""
    found = _ranks(part)
    figure = canvas(8, 3.4)
    _draw_ranks(figure.subplots(), found)
    figure.set_layout_engine("constrained")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    write_atomically(path, buffer.getvalue().encode())
    return path


def _draw_ranks(axes: Axes, found: Ranks) -> None:
    ordered = sorted(found.mean.items(), key=lambda item: item[1])
    k, half = len(ordered), (len(ordered) + 1) // 2
    axes.set_xlim(0.5, k + 0.5)
    axes.set_ylim(-half - 0.5, 2.2)
    axes.hlines(0, 1, k, color="0.5", linewidth=1)
    for tick in range(1, k + 1):
        axes.vlines(tick, 0, 0.15, color="0.5", linewidth=1)
        axes.text(tick, 0.3, str(tick), ha="center", fontsize=8)
    axes.hlines(1.6, 1, 1 + found.difference, color="0.5", linewidth=2)
    axes.text(1 + found.difference / 2, 1.75, "what chance explains", ha="center", fontsize=8)
    for i, (name, rank) in enumerate(ordered):
        left = i < half
        y, edge = -0.8 - (i if left else k - 1 - i), 0.6 if left else k + 0.4
        color = "C0" if name.startswith(("blocks", "radial")) else "0.5"
        axes.plot([rank, rank, edge], [0, y, y], color=color, linewidth=1)
        side = "left" if left else "right"
        axes.text(edge, y + 0.05, f"{name} ({rank:.1f})", ha=side, va="bottom", fontsize=9)
    for level, (low, high) in enumerate(joined([rank for _, rank in ordered], found.difference)):
        axes.hlines(-0.15 - 0.13 * level, low - 0.04, high + 0.04, color="0.35", linewidth=2.5)
    axes.set_axis_off()


def joined(ordered: Sequence[float], difference: float) -> list[tuple[float, float]]:
    """The longest runs of ranks that are no further apart than a difference.

    >>> joined([1.0, 2.0, 2.5, 5.0], 1.6)
    [(1.0, 2.5)]
    """
    runs: list[tuple[float, float]] = []
    for low in ordered:
        high = max(rank for rank in ordered if rank <= low + difference)
        if high > low and (not runs or high > runs[-1][1]):
            runs.append((low, high))
    return runs
