"""A picture of what compression found, as SVG: every space with its widths, and the layers between them."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BLUE = "#1f77b4"
#: rows of a picture of any model
_ROW, _WIDTH, _BAR = 44, 860, 260
#: columns of a picture of a chain, of which there are at most so many
_MOST, _STEP, _COLUMN, _TALL = 9, 130, 26, 190
_MIDDLE = 36 + _TALL / 2

#: name, width before, width after, and why it is no narrower
Space = tuple[str, int, int, str]


@dataclass(frozen=True)
class Edge:
    """A layer: which spaces it reads and writes; None is something that is not followed."""

    layer: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def draw(spaces: Sequence[Space], edges: Sequence[Edge]) -> str:
    """The picture: of a short chain side by side, of anything else from top to bottom.

    >>> draw([("stem", 64, 4, "")], []).startswith("<svg")
    True
    """
    if 1 < len(spaces) <= _MOST and _is_chain(len(spaces), edges):
        return _document(_STEP * len(spaces), 80 + _TALL, [*_funnels(spaces), *_columns(spaces)])
    return _document(_WIDTH, _ROW * (len(spaces) + 1), [*_arcs(edges), *_rows(spaces)])


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" '
        'font-size="12" fill="currentColor"><title>Spaces of a model before and after compression</title>'
    )
    return "\n".join([head, *parts, "</svg>"])


# --- a chain: a column for each space, as tall as the root of its width; layers are the funnels between them


def _is_chain(count: int, edges: Sequence[Edge]) -> bool:
    between = [(e.reads, e.writes) for e in edges if e.reads and e.writes]
    return between == [((k,), (k + 1,)) for k in range(count - 1)]


def _tall(n: int, widest: int) -> float:
    return float(max(4.0, _TALL * (n / widest) ** 0.5))


def _funnels(spaces: Sequence[Space]) -> Iterator[str]:
    """What the layers were, faintly, and in colour what they are."""
    widest = max(before for _, before, _, _ in spaces)
    layers = (
        ([before for _, before, _, _ in spaces], 'fill-opacity="0.07"'),
        (
            [after for _, _, after, _ in spaces],
            f'fill="{BLUE}" fill-opacity="0.35"',
        ),
    )
    for widths, style in layers:
        heights = [_tall(n, widest) / 2 for n in widths]
        for k, (a, b) in enumerate(itertools.pairwise(heights)):
            left, right = _STEP * (k + 0.5) + _COLUMN / 2, _STEP * (k + 1.5) - _COLUMN / 2
            bend = (right - left) / 2
            yield (
                f'<path {style} d="M{left:g} {_MIDDLE - a:.1f}c{bend:g} 0 {bend:g} {a - b:.1f} {2 * bend:g} {a - b:.1f}'
                f'v{2 * b:.1f}c{-bend:g} 0 {-bend:g} {a - b:.1f} {-2 * bend:g} {a - b:.1f}z"/>'
            )


def _columns(spaces: Sequence[Space]) -> Iterator[str]:
    widest = max(before for _, before, _, _ in spaces)
    for k, (name, before, after, why) in enumerate(spaces):
        middle = _STEP * (k + 0.5)
        for n, style in ((before, 'fill-opacity="0.16"'), (after, f'fill="{BLUE}"')):
            tall = _tall(n, widest)
            yield (
                f'<rect x="{middle - _COLUMN / 2:g}" y="{_MIDDLE - tall / 2:.1f}" width="{_COLUMN}" '
                f'height="{tall:.1f}" rx="{min(6.0, tall / 2):.1f}" {style}><title>{html.escape(why)}</title></rect>'
            )
        yield f'<text x="{middle:g}" y="20" text-anchor="middle" fill-opacity="0.75">{_short(name, 20)}</text>'
        yield (
            f'<text x="{middle:g}" y="{_TALL + 66}" text-anchor="middle" font-size="15" font-weight="600">'
            f"{_said(before, after)}</text>"
        )


# --- any model: a row for each space, and arcs beside them


def _arcs(edges: Sequence[Edge]) -> Iterator[str]:
    yield '<g fill="none" stroke="currentColor" stroke-opacity="0.45">'
    for edge in edges:
        title = f"<title>{html.escape(edge.layer)}</title>"
        for a in edge.reads:
            for b in edge.writes:
                start, end, bulge = _ROW * a + 27, _ROW * b + 27, min(130, 24 + 8 * abs(b - a))
                yield f'<path d="M148 {start} C{148 - bulge} {start} {148 - bulge} {end} 148 {end}">{title}</path>'
    yield "</g>"


def _rows(spaces: Sequence[Space]) -> Iterator[str]:
    widest = max((before for _, before, _, _ in spaces), default=1)
    for k, (name, before, after, why) in enumerate(spaces):
        y = _ROW * k + 20
        long, short = (max(2.0, _BAR * n / widest) for n in (before, after))
        yield f'<rect x="150" y="{y}" width="{long:.1f}" height="14" rx="3" fill-opacity="0.15"/>'
        yield f'<rect x="150" y="{y}" width="{short:.1f}" height="14" rx="3" fill="{BLUE}"/>'
        yield f'<text x="{156 + long:.1f}" y="{y + 11}" font-weight="600">{_said(before, after)}</text>'
        yield f'<text x="150" y="{y - 4}">{_short(name, 40)}</text>'
        yield f'<text x="{156 + long + 100:.1f}" y="{y + 11}" fill-opacity="0.6">{_short(why, 60)}</text>'


def _said(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"


def _short(text: str, length: int) -> str:
    return html.escape(text if len(text) <= length else text[: length - 1] + "…")
