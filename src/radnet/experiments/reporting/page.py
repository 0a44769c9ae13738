"""``index.html``: one file that needs nothing else, with the results, the figures and three things to play with."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import string
from pathlib import Path

import torch
from torch import Tensor

from ...approximation import Approximation, approximate
from ...approximation.domains import Box
from ...writing import write_atomically
from ..collection import find
from ..experiment import Row
from ..figure import text_of
from ..plain import as_plain
from .pictures import pictures
from .report import findings, of_the_paper, summary, verdict
from .results import ExperimentResult, PartResult, Results

REACH, EPS, SIDE = 1.5, 0.2, 31
FORMULA = "exp(−x² − y²)"


def write(folder: Path, results: Results) -> None:
    """Write the page of a run."""
    write_atomically(folder / "index.html", page(results).encode())


def page(results: Results) -> str:
    """The page as text."""
    a = approximation()
    script = _asset("toys.js")
    parts = {
        "css": _asset("page.css"),
        "script": script,
        "policy": _policy(script),
        "notice": _notice(results),
        "summary": _text(summary(results.rows)),
        "verdicts": "\n".join(map(_verdict_row, of_the_paper(results.rows))),
        "formula": FORMULA,
        "experiments": "\n".join(_experiment(results, one) for one in results.experiments),
        "figures": "\n".join(
            f'<figure id="fig-{p.name}">{_labelled(p.svg, p.alt)}<figcaption>{_text(p.caption)}</figcaption></figure>'
            for p in pictures(results, a)
        ),
        "environment": "\n".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in _facts(results).items()),
        "version": _text(results.environment["radnet"]),
        "toys": json.dumps(toy_data(a)).replace("<", "\\u003c"),
    }
    return string.Template(_asset("page.html")).substitute(parts)


def target(x: Tensor) -> Tensor:
    """The function the page's network approximates."""
    return torch.exp(-x.square().sum(dim=1))


def approximation() -> Approximation:
    """Its approximation on a square; the steepest slope of exp(-r^2) is sqrt(2/e)."""
    return approximate(target, Box([-REACH] * 2, [REACH] * 2), EPS, lipschitz=(2 / torch.e) ** 0.5)


def toy_data(a: Approximation) -> dict[str, dict[str, object]]:
    """What the three toys need: a cover with the values in it, and a small network."""
    axis = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    values = a.evaluate(torch.from_numpy(a.cover.centres))[:, 0]
    return {
        "cover": {
            "centres": a.cover.centres.tolist(),
            "radii": a.cover.radii.tolist(),
            "values": values.tolist(),
            "lowest": float(values.min()),
            "highest": float(values.max()),
            "eps": EPS,
            "reach": REACH,
            "grid": target(torch.cartesian_prod(axis, axis)).tolist(),
        },
        "network": {"W1": [1.9, -0.6], "b1": [0.3, 0.9], "W2": [1.4, -1.1], "b2": 0.2},
    }


def _asset(name: str) -> str:
    return (importlib.resources.files(__package__) / "assets" / name).read_text(encoding="utf-8").strip()


def _policy(script: str) -> str:
    """The page runs its own script and no other, and fetches nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _labelled(svg: str, alt: str) -> str:
    return svg.replace("<svg", f'<svg role="img" aria-label="{_text(alt)}"', 1)


def _notice(results: Results) -> str:
    said = ["A quick look: fewer and shorter trials than the paper's."] if results.quick else []
    said += [f"Experiment {one.number} was not run: {one.why}." for one in results.skipped]
    return "".join(f"<p><strong>{_text(sentence)}</strong></p>" for sentence in said)


def _verdict_row(row: Row) -> str:
    kind = "" if row.agrees is None else "yes" if row.agrees else "no"
    why = "; ".join(part for part in (row.rule, row.note) if part)
    cells = (
        ("Figure", "", row.figure),
        ("Ours", "number", text_of(row.ours)),
        ("Paper", "number", text_of(row.paper)),
        ("Agrees", kind, verdict(row)),
        ("Rule", "", why),
    )
    rest = "".join(f'<td class="{c}" data-label="{label}">{_text(value)}</td>' for label, c, value in cells)
    return f'<tr><th scope="row">{_text(row.experiment)}, {_text(row.part)}</th>{rest}</tr>'


def _experiment(results: Results, one: ExperimentResult) -> str:
    number = one.number
    said = "".join(f"<p>{_text(sentence)}</p>" for sentence in findings(results, number))
    lines = "".join(
        f'<tr><th scope="row">{_text(row.part)}</th><td>{_text(row.figure)}</td><td>{_text(row.trials)}</td>'
        f'<td class="number">{_text(text_of(row.ours))}</td><td>{_text(row.note)}</td></tr>'
        for row in results.rows
        if row.experiment == number
    )
    settings = "".join(
        f"<h3>{_text(part.part)}</h3><p>seeds {_text(part.trials[0].seed)} to {_last_seed(number, part)}; "
        + _text(", ".join(f"{key} = {value}" for key, value in as_plain(part.settings).items() if value is not None))
        + "</p>"
        for part in one.parts
    )
    title = f"{number}. {_text(one.title)}"
    return (
        f'<h3 id="experiment-{number}">{title}</h3>{said}'
        f'<details><summary>All figures of experiment {number}</summary><div class="wide" tabindex="0" role="region" '
        f'aria-label="All figures of experiment {number}"><table><thead><tr><th scope="col">Part</th>'
        '<th scope="col">Figure</th><th scope="col">Trials</th><th scope="col">Ours</th><th scope="col">Note</th></tr>'
        f"</thead><tbody>{lines}</tbody></table></div></details>"
        f"<details><summary>Settings and seeds of experiment {number}</summary>{settings}</details>"
    )


def _last_seed(number: int, part: PartResult) -> int:
    return part.trials[-1].seed + find(number).seeds_of(part.settings) - 1


def _facts(results: Results) -> dict[str, str | int]:
    before = results.times.trials_before
    seconds = [trial.seconds for one in results.experiments for part in one.parts for trial in part.trials]
    count, spent = len(seconds), sum(seconds)
    return {
        **results.environment,
        "time taken": f"{results.times.seconds / 60:.1f} minutes for {count - before} trials",
        "trials": f"{count}, {spent / 60:.1f} minutes in all, some side by side"
        + (f"; {before} of them were finished before" if before else ""),
    }
