"""``index.html``: one file that needs nothing else, with the results, the figures and four things to play with."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from torch import Tensor

from ...approximation import Approximation, approximate
from ...approximation.domains import Box
from ...wording import counted
from ...writing import write_atomically
from ..collection import find
from ..experiment import Headline, Row
from ..figure import text_of
from ..plain import as_plain
from .errata import ERRATA
from .pictures import Picture, of_experiment, of_the_paper
from .report import findings, summary, verdict
from .report import of_the_paper as printed_rows
from .results import ExperimentResult, PartResult, Results

REACH, EPS, SIDE = 1.5, 0.2, 31
FORMULA = "exp(−x² − y²)"
#: the scripts of the page, as one
SCRIPTS = ("network.js", "toys.js", "learn.js")


def write(folder: Path, results: Results) -> None:
    """Write the page of a run."""
    write_atomically(folder / "index.html", page(results).encode())


def page(results: Results) -> str:
    """The page as text."""
    a = approximation()
    script = scripts()
    shown = [_shown(row) for row in printed_rows(results.rows)]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals.update(counted=counted, parts_of=parts_of, labelled=_labelled)
    return environment.from_string(_asset("page.html")).render(
        css=_ours(_asset("page.css")),
        script=_ours(script),
        policy=_ours(_policy(script)),
        notice=_notice(results),
        cards=cards(results),
        quick=results.quick,
        summary=summary(results.rows),
        compared=[row for row in shown if row.kind],
        uncompared=[row for row in shown if not row.kind],
        formula=FORMULA,
        experiments=[_experiment(results, one) for one in results.experiments],
        pictures=of_the_paper(a),
        errata=ERRATA,
        facts=_facts(results),
        version=results.environment["radnet"],
        toys=_ours(json.dumps(toy_data(a)).replace("<", "\\u003c")),
    )


def cards(results: Results) -> list[dict[str, object]]:
    """What the page opens with: one word for each experiment that has one."""
    found = []
    for one in results.experiments:
        headline = find(one.number).headline
        if headline is not None:
            said: Headline = headline(one.outcomes())
            kind = "quick" if results.quick else "holds" if said.holds else "fails"
            found.append({"number": one.number, "word": said.word, "said": said.said, "kind": kind})
    return found


@dataclass(frozen=True)
class Piece:
    """Some text, and the erratum that it names."""

    text: str
    erratum: int | None = None


def parts_of(sentence: str) -> Iterator[Piece]:
    """A sentence cut where it names an erratum that the page has.

    >>> list(parts_of("no (erratum 20)"))
    [Piece(text='no (', erratum=None), Piece(text='erratum 20', erratum=20), Piece(text=')', erratum=None)]
    """
    for k, text in enumerate(re.split(r"(erratum \d+)", sentence)):
        number = int(text.split()[1]) if k % 2 else None
        if text:
            yield Piece(text, number if number in ERRATA else None)


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


def scripts() -> str:
    """What the page runs: a function of its own, so that nothing of it is anybody else's."""
    parts = "\n\n".join(map(_asset, SCRIPTS))
    seen = "window.radial = { compressNetwork, evaluateNetwork, makeNetwork, uniform, step, trainFor, learn };"
    return f'"use strict";\n(() => {{\n{parts}\n{seen}\n}})();'


def _asset(name: str) -> str:
    return (importlib.resources.files(__package__) / "assets" / name).read_text(encoding="utf-8").strip()


def _policy(script: str) -> str:
    """The page runs its own script and no other, and fetches nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _labelled(picture: Picture) -> Markup:
    return _ours(picture.svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.alt)}"', 1))


def _ours(text: str) -> Markup:
    """Text that stands in the page as it is: nothing in it comes from a user."""
    return Markup(text)  # noqa: S704


def _notice(results: Results) -> list[str]:
    said = ["A quick look: fewer and shorter trials than the paper's."] if results.quick else []
    return said + [f"Experiment {one.number} was not run: {one.why}." for one in results.skipped]


@dataclass(frozen=True)
class Shown:
    """A row of the table of verdicts, as text."""

    experiment: int
    part: str
    figure: str
    ours: str
    paper: str
    verdict: str
    kind: str
    why: str


def _shown(row: Row) -> Shown:
    kind = "" if row.agrees is None else "yes" if row.agrees else "no"
    why = "; ".join(part for part in (row.rule, row.note) if part)
    return Shown(row.experiment, row.part, row.figure, text_of(row.ours), text_of(row.paper), verdict(row), kind, why)


def _experiment(results: Results, one: ExperimentResult) -> dict[str, object]:
    """What the page says of one experiment."""
    return {
        "number": one.number,
        "title": one.title,
        "printed": find(one.number).printed,
        "findings": findings(results, one.number),
        "pictures": of_experiment(one),
        "rows": [
            {"part": r.part, "figure": r.figure, "trials": r.trials, "ours": text_of(r.ours), "note": r.note}
            for r in results.rows
            if r.experiment == one.number
        ],
        "parts": [
            {
                "name": part.part,
                "seeds": f"seeds {part.trials[0].seed} to {_last_seed(one.number, part)}",
                "settings": _settings(part),
            }
            for part in one.parts
        ],
    }


def _settings(part: PartResult) -> str:
    return ", ".join(f"{key} = {value}" for key, value in as_plain(part.settings).items() if value is not None)


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
