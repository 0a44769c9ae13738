"""What the theme leaves undone, on the pages as they were written.

Code that scrolls can be reached by the keyboard, headings of the navigation have a level, names of tests break where
they have an underscore and show their file when asked, names of ours in tables lead to their entry or their source.
Links from the source of a name lead back to its entry: viewcode takes one way of writing a module for all of its names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TEST = re.compile(r'<span class="pre">(tests/[\w/]+\.py)::(\w+)</span>')
_CODE = '<code class="docutils literal notranslate"><span class="pre">'
_DOTTED = re.compile(rf"(?<=<td><p>){_CODE}(radnet(?:\.\w+)+)</span></code>")
_BACK = re.compile(r'(<a class="viewcode-back" href=")([^"#]+)#([^"]+)(">)')


def _finish(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    ids: dict[Path, set[str]] = {}
    root = Path(app.outdir)
    named = {folder: _ids(root / folder) for folder in ("api", "_modules")}
    for path in sorted(root.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        found = text.replace('role="heading">', 'role="heading" aria-level="2">').replace("<pre>", '<pre tabindex="0">')
        found = _TEST.sub(_named, found)
        found = _DOTTED.sub(lambda name, page=path: _linked(name[1], page, root, named), found)
        found = _BACK.sub(lambda link, page=path: _back(link, page, ids), found)
        if found != text:
            path.write_text(found, encoding="utf-8")


def _named(test: re.Match[str]) -> str:
    """A test without its file, which the pointer finds.

    >>> _named(_TEST.match('<span class="pre">tests/a.py::test_b</span>'))
    '<span class="pre" title="tests/a.py">test_<wbr>b</span>'
    """
    return f'<span class="pre" title="{test[1]}">{test[2].replace("_", "_<wbr>")}</span>'


def _ids(folder: Path) -> dict[tuple[str, str], Path]:
    """The pages of a folder, by their path in it and the ids on them."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html"))}
    at = {path: path.relative_to(folder).with_suffix("").as_posix() for path in pages}
    return {(at[path], key): path for path, text in pages.items() for key in re.findall(r'id="(\w[^"]*)"', text)}


def _linked(name: str, page: Path, root: Path, named: Mapping[str, Mapping[tuple[str, str], Path]]) -> str:
    """A name of ours as a link to its entry or, if it has none, to its source; as it stands if there is neither."""
    parts = name.split(".")
    entries = {key: path for (_, key), path in named["api"].items() if key.startswith("radnet.")}
    target = (entries[name], name) if name in entries else None
    for k in range(len(parts) - 1, 0, -1):
        at = "/".join(parts[:k]), ".".join(parts[k:])
        target = target or ((named["_modules"][at], at[1]) if at in named["_modules"] else None)
    for end in (f"radnet.{parts[-1]}", ".".join(["", *parts[-2:]]), f".{parts[-1]}"):
        alike = [key for key in entries if key.endswith(end)]
        target = target or ((entries[alike[0]], alike[0]) if len(alike) == 1 else None)
    shown = f"{_CODE}{name.replace('.', '.<wbr>').replace('_', '_<wbr>')}</span></code>"
    if target is None:
        return shown
    to = Path(os.path.relpath(target[0], page.parent)).as_posix()
    return f'<a class="reference internal" href="{to}#{target[1]}">{shown}</a>'


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
