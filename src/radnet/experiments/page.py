"""``index.html``: one file that needs nothing else, with the results, the figures and three things to play with."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import string
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..approximation import Approximation, approximate
from ..approximation.domains import Box
from ..writing import write_atomically
from .findings import findings
from .pictures import pictures
from .report import Row, of_the_paper, summary, text_of, verdict
from .results import rows_from

REACH, EPS, SIDE = 1.5, 0.2, 31
FORMULA = "exp(−x² − y²)"


def write(folder: Path, data: dict[str, Any]) -> None:
    """Write the page of a run."""
    write_atomically(folder / "index.html", page(data).encode())


def page(data: dict[str, Any]) -> str:
    """The page as text."""
    a = approximation()
    rows = rows_from(data)
    script = _asset("toys.js")
    parts = {
        "css": _asset("page.css"),
        "script": script,
        "policy": _policy(script),
        "notice": _notice(data),
        "summary": _text(summary(rows)),
        "verdicts": "\n".join(map(_verdict_row, of_the_paper(rows))),
        "formula": FORMULA,
        "experiments": "\n".join(_experiment(data, one, rows) for one in data["experiments"]),
        "figures": "\n".join(
            f'<figure id="fig-{p.name}">{_labelled(p.svg, p.alt)}<figcaption>{_text(p.caption)}</figcaption></figure>'
            for p in pictures(data, a)
        ),
        "environment": "\n".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in _facts(data).items()),
        "version": _text(data["environment"]["radnet"]),
        "toys": json.dumps(toy_data(a)).replace("<", "\\u003c"),
    }
    return string.Template(_asset("page.html")).substitute(parts)


def target(x: Tensor) -> Tensor:
    """The function the page's network approximates."""
    return torch.exp(-x.square().sum(dim=1))


def approximation() -> Approximation:
    """Its approximation on a square; the steepest slope of exp(-r^2) is sqrt(2/e)."""
    return approximate(target, Box([-REACH] * 2, [REACH] * 2), EPS, lipschitz=(2 / torch.e) ** 0.5)


def toy_data(a: Approximation) -> dict[str, Any]:
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


def _text(value: Any) -> str:
    return html.escape(str(value))


def _labelled(svg: str, alt: str) -> str:
    return svg.replace("<svg", f'<svg role="img" aria-label="{_text(alt)}"', 1)


def _notice(data: dict[str, Any]) -> str:
    said = ["A quick look: fewer and shorter trials than the paper's."] if data["quick"] else []
    said += [f"Experiment {one['number']} was not run: {one['why']}." for one in data["skipped"]]
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


def _experiment(data: dict[str, Any], one: dict[str, Any], rows: list[Row]) -> str:
    number = int(one["number"])
    said = "".join(f"<p>{_text(sentence)}</p>" for sentence in findings(data, number))
    lines = "".join(
        f'<tr><th scope="row">{_text(row.part)}</th><td>{_text(row.figure)}</td><td>{_text(row.trials)}</td>'
        f'<td class="number">{_text(text_of(row.ours))}</td><td>{_text(row.note)}</td></tr>'
        for row in rows
        if row.experiment == number
    )
    settings = "".join(
        f"<h3>{_text(part['part'])}</h3><p>seeds {_text(part['trials'][0]['seed'])} to {_last_seed(part)}; "
        + _text(", ".join(f"{key} = {value}" for key, value in part["settings"].items() if value is not None))
        + "</p>"
        for part in one["parts"]
    )
    title = f"{number}. {_text(one['title'])}"
    return (
        f'<h3 id="experiment-{number}">{title}</h3>{said}'
        f'<details><summary>All figures of experiment {number}</summary><div class="wide" tabindex="0" role="region" '
        f'aria-label="All figures of experiment {number}"><table><thead><tr><th scope="col">Part</th>'
        '<th scope="col">Figure</th><th scope="col">Trials</th><th scope="col">Ours</th><th scope="col">Note</th></tr>'
        f"</thead><tbody>{lines}</tbody></table></div></details>"
        f"<details><summary>Settings and seeds of experiment {number}</summary>{settings}</details>"
    )


def _last_seed(part: dict[str, Any]) -> int:
    together = part["settings"].get("initialisations", 1)  # experiment 2 trains them all in one trial
    return int(part["trials"][-1]["seed"]) + (together - 1 if isinstance(together, int) else 0)


def _facts(data: dict[str, Any]) -> dict[str, Any]:
    seconds = data["times"]["seconds"]
    before = data["times"]["trials_before"]
    count = sum(len(part["trials"]) for one in data["experiments"] for part in one["parts"])
    spent = sum(t["seconds"] for one in data["experiments"] for part in one["parts"] for t in part["trials"])
    return {
        **data["environment"],
        "time taken": f"{seconds / 60:.1f} minutes for {count - before} trials",
        "trials": f"{count}, {spent / 60:.1f} minutes in all, some side by side"
        + (f"; {before} of them were finished before" if before else ""),
    }
