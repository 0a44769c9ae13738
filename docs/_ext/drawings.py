"""``{drawing}``: an SVG as part of the page, so that its ink is that of the text, in the light and in the dark."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

#: what matplotlib draws with when nobody says anything else: black ink, white paper, and a frame around a legend
_BLACK, _WHITE = re.compile(r"#000000|#010203"), re.compile(r"fill: #ffffff;")


def inline(svg: str, name: str, alt: str) -> str:
    """The element alone, black as the ink of the page and white left out, its names apart from those of others.

    Letters are shapes without a colour of their own: they take that of the page too.

    >>> inline('<?xml?><svg id="a"><use href="#a" fill="#000000"/></svg>', "b", "A & B")
    '<svg role="img" aria-label="A &amp; B" fill="currentColor" id="b-a"><use href="#b-a" fill="currentColor"/></svg>'
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>\*\{.*?</style>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = _WHITE.sub("fill: none;", _BLACK.sub("currentColor", svg))
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r'(<svg[^>]*?) role="img"', r"\1", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}" fill="currentColor"', 1).strip()


class Drawing(SphinxDirective):
    """The file relative to the page; what it shows as ``:alt:``, and a caption if there is one."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """A figure."""
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        name = re.sub(r"[^a-z0-9]+", "-", Path(relative).stem.lower())
        figure = nodes.figure(classes=["drawing"])
        svg = inline(Path(path).read_text(encoding="utf-8"), name, self.options["alt"])
        if f'id="{name}-figure_1"' in svg:  # a plot: its letters stay legible, on a narrow screen it scrolls
            svg = f'<div class="plot" tabindex="0">{svg}</div>'
        figure += nodes.raw("", svg, format="html")
        if self.content:
            parsed = nodes.Element()
            self.state.nested_parse(self.content, self.content_offset, parsed)
            figure += nodes.caption("", "", *parsed[0].children)
        return [figure]


def setup(app: Any) -> dict[str, Any]:
    """For pages in Markdown and for docstrings."""
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}
