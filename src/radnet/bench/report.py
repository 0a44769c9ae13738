"""What was measured, as text, as data and as pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidValue
from ..native.library import LIBRARY
from ..plots.backend import canvas
from ..writing import write_atomically
from .comparisons import OURS, Claim, Comparison, comparisons
from .growth import CURVES, Curve, Point, exponent
from .timing import Times, interleave, machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Measured:
    """A comparison with its times."""

    comparison: Comparison
    times: Mapping[str, Times]

    def verdicts(self) -> Iterator[tuple[Claim, float, bool]]:
        """The claims that apply here, what was measured, and whether they hold."""
        for claim in self.comparison.claims:
            ratio = claim.ratio(self.times) if claim.applies(LIBRARY is not None) else None
            if ratio is not None:
                yield claim, ratio, claim.holds(ratio)

    def text(self) -> str:
        """A line for each run, and one for each claim."""
        base = self.times[self.comparison.against].median_ms
        lines = [self.comparison.name]
        for name, t in self.times.items():
            spread = f"[{t.q1_ms:.3f}, {t.q3_ms:.3f}]"
            beside = f"{t.median_ms / base:8.2f} x {self.comparison.against}"
            lines.append(f"  {name:<28}{t.median_ms:>11.3f} ms  {spread:<22}{beside}")
        for claim, ratio, holds in self.verdicts():
            lines.append(f"  {'holds' if holds else 'FAILS':<8}{claim.text}: {ratio:.2f}")
        return "\n".join(lines)

    def data(self) -> dict[str, object]:
        """The same for JSON."""
        claims = [{"claim": c.text, "ratio": ratio, "holds": holds} for c, ratio, holds in self.verdicts()]
        return {"times": {name: t._asdict() for name, t in self.times.items()}, "claims": claims}


@dataclass(frozen=True)
class Grown:
    """A curve with its points."""

    curve: Curve
    points: list[Point]

    def text(self) -> str:
        """The curve in a few lines."""
        points = "  ".join(f"{p.size}: {p.times.median_ms:.3g} ms" for p in self.points)
        return f"{self.curve.name}, by {self.curve.along}: exponent {exponent(self.points):.2f}\n  {points}"

    def data(self) -> dict[str, object]:
        """The same for JSON."""
        points = [{"size": p.size, **p.times._asdict()} for p in self.points]
        return {"along": self.curve.along, "exponent": exponent(self.points), "points": points}


@dataclass(frozen=True)
class Bench:
    """All that was measured, and on what."""

    compared: list[Measured]
    grown: list[Grown]
    machine: dict[str, object]

    def data(self) -> dict[str, object]:
        """For JSON."""
        return {
            "machine": self.machine,
            "comparisons": {m.comparison.name: m.data() for m in self.compared},
            "growth": {g.curve.name: g.data() for g in self.grown},
        }

    def text(self) -> str:
        """For a person."""
        about = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        return "\n\n".join([about, *(m.text() for m in self.compared), *(g.text() for g in self.grown)])

    def markdown(self) -> str:
        """For the documentation: what was measured on, a table of the claims, a table of all times."""
        about = ", ".join(f"{name} {value}" for name, value in self.machine.items() if value is not None)
        lines = [f"Measured on: {about}.", "", "| what | claim | measured | |", "|---|---|---|---|"]
        for m in self.compared:
            for claim, ratio, holds in m.verdicts():
                lines.append(f"| {m.comparison.name} | {claim.text} | {ratio:.2f} | {'' if holds else 'not reached'} |")
        lines += ["", "| what | run | median, ms | quartiles, ms |", "|---|---|---|---|"]
        for m in self.compared:
            for name, t in m.times.items():
                lines.append(f"| {m.comparison.name} | {name} | {t.median_ms:.3g} | {t.q1_ms:.3g} to {t.q3_ms:.3g} |")
        lines += ["", "| cost of | grows with | exponent |", "|---|---|---|"]
        lines += [f"| {g.curve.name} | {g.curve.along} | {exponent(g.points):.2f} |" for g in self.grown]
        return "\n".join(lines) + "\n"


def measure(*, quick: bool, only: str = "", tell: Callable[[str, float], None] = lambda name, share: None) -> Bench:
    """Run all comparisons and curves, or those with a word in their name."""
    compared = []
    for c in comparisons():
        if only in c.name and not (quick and c.slow):
            rounds = max(2, c.rounds // 10) if quick else c.rounds
            times = interleave(c.runs(), rounds, c.warmup, repeats=c.repeats, tell=partial(tell, c.name))
            compared.append(Measured(c, times))
    grown = [Grown(c, c.measured(quick=quick, tell=partial(tell, c.name))) for c in CURVES if only in c.name]
    if not compared and not grown:
        raise InvalidValue(f"no comparison or curve has {only!r} in its name; radnet bench without --only shows all")
    return Bench(compared, grown, machine())


# --- pictures


def draw(bench: Bench, folder: Path) -> list[Path]:
    """Bars for the comparisons and curves for the growth, as SVG; where they were written."""
    bars = [_bars(bench.compared, folder / "comparisons.svg")] if bench.compared else []
    return bars + ([_curves(bench.grown, folder / "growth.svg")] if bench.grown else [])


def _bars(compared: list[Measured], path: Path) -> Path:
    figure = canvas(8, 0.6 + sum(0.35 + 0.25 * len(m.times) for m in compared))
    heights = [len(m.times) + 1.4 for m in compared]
    for axes, m in zip(
        figure.subplots(len(compared), 1, height_ratios=heights, squeeze=False)[:, 0], compared, strict=True
    ):
        names = list(m.times)
        middles = [t.median_ms for t in m.times.values()]
        spread = [[t.median_ms - t.q1_ms for t in m.times.values()], [t.q3_ms - t.median_ms for t in m.times.values()]]
        axes.barh(names, middles, xerr=spread, color=["C0" if name in OURS else "0.75" for name in names])
        axes.set_title(f"{m.comparison.name} (ms)", loc="left", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    return _saved(figure, path)


def _curves(grown: list[Grown], path: Path) -> Path:
    figure = canvas(8, 2.8 * ((len(grown) + 1) // 2))
    for axes, g in zip(figure.subplots((len(grown) + 1) // 2, 2, squeeze=False).flat, grown, strict=False):
        axes.loglog([p.size for p in g.points], [p.times.median_ms for p in g.points], marker="o", markersize=3)
        axes.set_title(f"{g.curve.name}: exponent {exponent(g.points):.2f}", loc="left", fontsize=9)
        axes.set_xlabel(g.curve.along, fontsize=8)
        axes.set_ylabel("ms", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.tick_params(which="minor", labelbottom=False, labelleft=False)
    return _saved(figure, path)


def _saved(figure: Figure, path: Path) -> Path:
    text = io.StringIO()
    figure.set_layout_engine("constrained")
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    write_atomically(path, text.getvalue().encode())
    return path
