"""A picture of what compression found, as SVG: every space with its widths, and the layers between them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

_ROW, _WIDTH, _BAR = 44, 860, 260


@dataclass(frozen=True)
class Edge:
    """A layer: which spaces it reads and writes; None is something that is not followed."""

    layer: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def draw(spaces: Sequence[tuple[str, int, int, str]], edges: Sequence[Edge]) -> str:
    """The picture: spaces from top to bottom as bars, layers as arcs from what they read to what they write.

    >>> draw([("stem", 64, 4, "")], []).startswith("<svg")
    True
    """
    height = _ROW * (len(spaces) + 1)
    widest = max((before for _, before, _, _ in spaces), default=1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="currentColor"><title>Spaces of a model before and after compression</title>',
        '<g fill="none" stroke="currentColor" stroke-opacity="0.45">',
    ]
    parts += [_arc(edge, a, b) for edge in edges for a in edge.reads for b in edge.writes]
    parts.append("</g>")
    for k, (name, before, after, why) in enumerate(spaces):
        y = _ROW * k + 20
        long, short = (max(2.0, _BAR * n / widest) for n in (before, after))
        label = f"{before:,}" if before == after else f"{before:,} → {after:,}"
        parts += [
            f'<rect x="150" y="{y}" width="{long:.1f}" height="14" fill="currentColor" fill-opacity="0.15"/>',
            f'<rect x="150" y="{y}" width="{short:.1f}" height="14" fill="#1f77b4"/>',
            f'<text x="{156 + long:.1f}" y="{y + 11}">{label}</text>',
            f'<text x="150" y="{y - 4}">{_short(name, 40)}</text>',
            f'<text x="{156 + long + 90:.1f}" y="{y + 11}" fill-opacity="0.6">{_short(why, 60)}</text>',
        ]
    return "\n".join([*parts, "</svg>"])


def _arc(edge: Edge, a: int, b: int) -> str:
    start, end = _ROW * a + 27, _ROW * b + 27
    bulge = min(130, 24 + 8 * abs(b - a))
    title = f"<title>{html.escape(edge.layer)}</title>"
    return f'<path d="M148 {start} C{148 - bulge} {start} {148 - bulge} {end} 148 {end}">{title}</path>'


def _short(text: str, length: int) -> str:
    return html.escape(text if len(text) <= length else text[: length - 1] + "…")
