"""The documentation as a reader sees it: every page, narrow and wide, light and dark, and nothing leads nowhere."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

import browser
import looks
from places import ROOT

DOCS = ROOT / "docs"
pytestmark = [
    pytest.mark.skipif(not DOCS.exists(), reason="the docs are not part of this copy"),
    pytest.mark.xdist_group("site"),
]
needs_chromium = pytest.mark.skipif(
    browser.CHROMIUM is None or browser.DRIVER is None, reason="chromium and chromedriver are not installed"
)
needs_axe = pytest.mark.skipif(not looks.AXE.exists(), reason="axe-core is not installed (npm, into .venv/axe)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built anew, with warnings as errors."""
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("site")
    source = folder / "docs"
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("_build", "_pictures", "gallery"))
    (folder / "examples").symlink_to(ROOT / "examples")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", source, folder / "html"]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert built.returncode == 0, built.stderr
    return folder / "html"


def pages(site, *, listings=False):
    """All pages, those that list source code only where they are asked for."""
    return sorted(p for p in site.rglob("*.html") if listings or "_modules" not in p.parts)


@pytest.fixture(scope="module")
def window(site):
    with browser.chromium() as opened:
        opened.open("about:blank")
        opened.requests()
        yield opened


# --- what stands in the files


class Links(HTMLParser):
    """The ids of a page, and where it leads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.targets, self.sources = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.update(found[key] for key in ("id", "name") if found.get(key))
        if tag == "a" and found.get("href"):
            self.targets.append(found["href"])
        self.sources += [found[key] for key in ("src",) if found.get(key)]
        if tag == "link" and "stylesheet" in (found.get("rel") or ""):
            self.sources.append(found["href"])


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(site):
    read = {page: Links(page.read_text(encoding="utf-8")) for page in pages(site, listings=True)}
    wrong = []
    for page, links in read.items():
        for href in links.targets:
            parts = urlsplit(href)
            if parts.scheme:
                continue
            to = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            there = to.exists() and (
                to.suffix != ".html" or not parts.fragment or unquote(parts.fragment) in read[to].ids
            )
            if not there:
                wrong.append((page.name, href))
        wrong += [(page.name, src) for src in links.sources if "//" in src]
    assert wrong == []


def test_navigation_is_in_groups_and_the_landing_page_is_light(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    groups = re.findall(r'class="caption-text">([^<]+)<', text)
    assert groups[:5] == ["Start", "Guides", "Theory", "Reference", "Project"]
    cards = text[text.index('<ul class="cards') :]
    assert cards[: cards.index("</ul>")].count("<li>") == 6  # one for each kind of reader
    fetched = [site / "index.html", *(site / "_static").rglob("*.css"), *(site / "_static").rglob("*.js")]
    assert sum(path.stat().st_size for path in fetched) < 1e6


def test_properties_are_described_by_sentences(site):
    text = (site / "api" / "network.html").read_text(encoding="utf-8")
    assert "Number of trainable numbers: weights, biases, trainable shifts." in re.sub(r"<[^>]+>", "", text)
    for page in pages(site):
        assert ">Type<span" not in page.read_text(encoding="utf-8"), page.name


def test_a_statement_of_the_paper_leads_to_its_code(site):
    text = (site / "paper-map.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, flags=re.DOTALL)
    (theorem_4,) = (row for row in rows if ">Theorem 4<" in row)
    (href,) = re.findall(r'href="(api/approximation\.html#[^"]+)"', theorem_4)
    assert href.endswith("width_n_plus_m_plus_1.build")
    linked = [row for row in rows if 'href="api/' in row or 'href="_modules/' in row]
    assert len(linked) > 0.6 * len(rows)


def test_every_example_has_its_output_its_source_and_a_notebook_that_runs(site, tmp_path):
    for path in (ROOT / "examples").glob("*.py"):
        text = (site / "gallery" / f"{path.stem}.html").read_text(encoding="utf-8")
        notebooks = re.findall(r'href="(\.\./_downloads/[^"]+\.ipynb)"', text)
        assert len(notebooks) == 1
        assert "prints" in text
        cells = json.loads((site / "gallery" / notebooks[0]).resolve().read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert code[-1] == "result = main()"
        if path.stem == "compress_a_network":
            names = {"__name__": "__main__"}
            for cell in code:
                exec(cell, names)  # noqa: S102
            assert names["result"].certificate.lossless


# --- in a browser


@needs_chromium
def test_every_page_is_legible_on_any_screen(site, window, count):
    wrong = {}
    for page in pages(site, listings=count(0, 1) == 1):
        window.open(page.as_uri())
        for width in (390, 1200):
            for dark in (False, True):
                window.window(width, 900, dark=dark)
                found = [*looks.clipped(window), *looks.faint(window)]
                if found:
                    wrong[f"{page.relative_to(site)}, {width}, {'dark' if dark else 'light'}"] = found
    assert wrong == {}
    assert [line for line in window.console() if "favicon" not in line] == []
    assert all(url.startswith(site.as_uri()) for url in window.requests())


@needs_chromium
@needs_axe
@pytest.mark.parametrize("name", ["index.html", "compression.html", "api/network.html", "gallery/index.html"])
def test_a_page_is_for_all_readers(site, window, name):
    for dark in (False, True):
        window.window(1200, 900, dark=dark)
        window.open((site / name).as_uri())
        assert looks.violations(window) == []


@needs_chromium
def test_what_is_wrong_is_seen(tmp_path, window):
    page = tmp_path / "wrong.html"
    page.write_text(
        "<!doctype html><html lang=en><title>x</title><body style='background:#fff'><p style='color:#999'>faint</p>"
        "<p style='width:40px;white-space:nowrap'>much too long</p><div style='width:2000px'>wide</div>"
        "<div class='math-wrapper' style='height:9px;overflow:hidden'>high<br>er</div>"
        "<figure class=drawing><svg aria-label='a line'><g id=one-text_1><use href='#x' style='fill: #eee'/></g></svg>"
    )
    window.window(390, 900)
    window.open(page.as_uri())
    found = looks.clipped(window)
    assert any("the page is" in line for line in found)
    assert any("of P are cut" in line for line in found)
    assert any("below DIV are cut" in line for line in found)
    text, letters = looks.faint(window)
    assert text.startswith("2.85: P. faint")
    assert letters == "1.16: letters of a line"
