"""What can be wrong with how a page looks, found in a browser: scrolls sideways, clipped, too faint, or not for all."""

from __future__ import annotations

from pathlib import Path

from places import ROOT

HERE = Path(__file__).parent
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"

#: axe-core's rules of level A and AA; what it finds, each with one place
_RUN_AXE = """
return axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }).then((found) =>
  found.violations.map((v) => `${v.id}: ${v.help} (${v.nodes.length}, first ${v.nodes[0].target})`));
"""


def clipped(window) -> list[str]:
    """What is cut off, and whether the page scrolls sideways."""
    return window.run((HERE / "clipped.js").read_text(encoding="utf-8"))


def faint(window, least: float = 4.5) -> list[str]:
    """Text with less contrast than that."""
    return window.run((HERE / "faint.js").read_text(encoding="utf-8"), least)


def violations(window) -> list[str]:
    """Of the rules of WCAG 2.1, A and AA, by axe-core."""
    window.run(AXE.read_text(encoding="utf-8"))
    return window.run(_RUN_AXE)
