"""What the theme leaves undone, on the pages as they were written.

Code that scrolls can be reached by the keyboard, headings of the navigation have a level, names of tests break where
they have an underscore and show their file when asked, and links from the source of a name lead back to its entry
(viewcode takes one way of writing a module for all of its names).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_TEST = re.compile(r'<span class="pre">(tests/[\w/]+\.py)::(\w+)</span>')
_DOTTED = re.compile(r'(?<=<td><p><code class="docutils literal notranslate"><span class="pre">)radnet(?:\.\w+)+(?=<)')
_BACK = re.compile(r'(<a class="viewcode-back" href=")([^"#]+)#([^"]+)(">)')


def _finish(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    ids: dict[Path, set[str]] = {}
    for path in sorted(Path(app.outdir).rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        found = text.replace('role="heading">', 'role="heading" aria-level="2">').replace("<pre>", '<pre tabindex="0">')
        found = _TEST.sub(_named, found)
        found = _DOTTED.sub(lambda name: name[0].replace(".", ".<wbr>").replace("_", "_<wbr>"), found)
        found = _BACK.sub(lambda link, page=path: _back(link, page, ids), found)
        if found != text:
            path.write_text(found, encoding="utf-8")


def _named(test: re.Match[str]) -> str:
    """A test without its file, which the pointer finds.

    >>> _named(_TEST.match('<span class="pre">tests/a.py::test_b</span>'))
    '<span class="pre" title="tests/a.py">test_<wbr>b</span>'
    """
    return f'<span class="pre" title="{test[1]}">{test[2].replace("_", "_<wbr>")}</span>'


def _back(link: re.Match[str], page: Path, ids: dict[Path, set[str]]) -> str:
    """The link to the entry whose name ends alike, or to its page."""
    to = (page.parent / link[2]).resolve()
    if to not in ids:
        ids[to] = set(re.findall(r'id="([^"]+)"', to.read_text(encoding="utf-8")))
    parts = link[3].split(".")
    ends = [".".join(parts[k:]) for k in range(len(parts))]
    for end in ends:
        for known in sorted(ids[to], key=len):
            if known == end or known.endswith("." + end):
                return f"{link[1]}{link[2]}#{known}{link[4]}"
    return f"{link[1]}{link[2]}{link[4]}"


def setup(app: Any) -> dict[str, Any]:
    """When all pages are written."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True}
