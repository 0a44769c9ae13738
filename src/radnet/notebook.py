"""How results look in a notebook: pieces of HTML and SVG that follow its colours, light or dark.

Everything takes its colour from the text around it, so nothing has to know which theme is on. What comes from a user
(names of classes, layers and files) is escaped.
"""

from __future__ import annotations

import abc
import html
from collections.abc import Sequence

_BLUE = "#1f77b4"
_LINE = "border-bottom:1px solid rgba(127,127,127,.35)"
_ROW, _BAR, _WIDTH = 26, 300, 560
_MOST = 24  # layers that are drawn


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; of four columns the two in the middle are numbers and stand at the right.

    >>> table(["layer", "width"], [["<b>", "3"]]).count("&lt;b&gt;")
    1
    """

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left", "right", "right", "left"] if len(cells) == 4 else ["left"] * len(cells)
        style = "padding:2px 12px 2px 0;" + (_LINE if tag == "th" else "")
        return "".join(
            f'<{tag} style="text-align:{side};{style}">{html.escape(cell)}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )

    top = f"<tr>{line(head, 'th')}</tr>" if head else ""
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<table style="border-collapse:collapse;margin:6px 0">{top}{body}</table>'


def verdict(holds: bool, text: str) -> str:
    """A line that says at first sight whether something holds.

    >>> "✓ lossless" in verdict(True, "lossless")
    True
    """
    mark, colour = ("✓", "#2e8b57") if holds else ("✗", "#c0392b")
    style = f"display:inline-block;padding:2px 10px;border-radius:10px;background:{colour};color:#fff"
    return f'<div style="margin:6px 0"><span style="{style}">{mark} {html.escape(text)}</span></div>'


def lines(texts: Sequence[str]) -> str:
    """Sentences, one below the other, in small print."""
    return "".join(f'<div style="opacity:.8;font-size:90%">{html.escape(text.strip())}</div>' for text in texts)


def whole(*parts: str) -> str:
    """Pieces as one."""
    return f'<div style="font-family:sans-serif;max-width:960px">{"".join(parts)}</div>'


def alone(svg: str) -> str:
    """A picture that is shown by itself, where no text around it says which colours are on.

    >>> alone("<svg a='b'><g/></svg>").startswith("<svg a='b'><style>")
    True
    """
    style = "<style>svg{color:#222}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"
    head, bracket, rest = svg.partition(">")
    return f"{head}{bracket}{style}{rest}"


def layers(widths: Sequence[int], names: Sequence[str]) -> str:
    """The layers of a chain as SVG: a bar for each width, the activation beside it; of many layers the first and last.

    >>> layers((1, 6, 1), ("Squash()", "Identity()")).count("<rect")
    3
    >>> layers([2] * 1000, ["StepReLU()"] * 999).count("<rect")
    24
    """
    said = [(f"{n:,}", name, n) for n, name in zip(widths, ("input", *names), strict=True)]
    if len(said) > _MOST:
        said = [*said[: _MOST // 2], (f"… {len(said) - _MOST:,} more layers", "", 0), *said[-_MOST // 2 :]]
    height = _ROW * len(said) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" '
        'font-family="sans-serif" font-size="12" fill="currentColor">'
        f"<title>A network of {len(widths) - 1:,} layers</title>"
    ]
    for k, (label, name, n) in enumerate(said):
        y, long = _ROW * k + 8, max(3.0, _BAR * n / max(widths))
        if n:
            parts.append(f'<rect x="8" y="{y}" width="{long:.1f}" height="14" rx="3" fill="{_BLUE}"/>')
        text = f'{label} <tspan fill-opacity="0.6">{html.escape(name)}</tspan>'
        parts.append(f'<text x="{16 + long:.1f}" y="{y + 11}">{text}</text>')
    return "".join([*parts, "</svg>"])


class Drawn(abc.ABC):
    """A network that shows itself in a notebook as a chain of layers."""

    @abc.abstractmethod
    def _drawing(self) -> str:
        """The picture, by `layers`."""

    def _repr_svg_(self) -> str:
        return alone(self._drawing())

    def _repr_html_(self) -> str:
        return whole(self._drawing())
