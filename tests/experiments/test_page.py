"""The page, in a browser: nothing missing, nothing asked for, three toys that compute, any screen."""

import base64
import hashlib
import itertools
import json
import random
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import browser
import radnet
from damage import changed
from radnet.experiments.plain import as_plain
from radnet.experiments.reporting import page, results, schemas
from small_run import SMALL

pytestmark = pytest.mark.xdist_group("report")
needs_chromium = pytest.mark.skipif(
    browser.CHROMIUM is None or browser.DRIVER is None, reason="chromium and chromedriver are not installed"
)


@pytest.fixture(scope="module")
def text(small_report):
    return (small_report / "index.html").read_text()


@pytest.fixture(scope="module")
def window(small_report):
    with browser.chromium() as opened:
        opened.window(1200, 900)
        opened.open("about:blank")
        opened.requests()
        opened.open((small_report / "index.html").as_uri())
        yield opened


class Elements(HTMLParser):
    """All elements with their attributes, and ids."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def ids(self):
        return [attributes["id"] for _, attributes in self.found if "id" in attributes]


# --- the text of it


def test_every_picture_has_a_text_and_every_input_a_label(text):
    found = Elements(text).found
    pictures = [a for tag, a in found if tag == "svg"]
    of_experiments = sum(small.pictures for small in SMALL.values())
    assert len(pictures) == 5 + of_experiments + 3  # the paper's, the experiments', the toys'
    assert all(a.get("role") == "img" and len(a["aria-label"]) > 20 for a in pictures)
    labels = {a["for"] for tag, a in found if tag == "label"}
    assert labels == {a["id"] for tag, a in found if tag == "input"}
    assert [tag for tag, _ in found].count("h1") == 1


def test_ids_are_unique_and_links_stay_on_the_page(text):
    elements = Elements(text)
    ids = elements.ids()
    assert len(ids) == len(set(ids))
    links = [a["href"] for tag, a in elements.found if tag == "a"]
    assert links
    assert all(link[1:] in ids for link in links)
    assert all("src" not in a and "srcset" not in a for _, a in elements.found)


def test_every_row_of_the_papers_experiments_stands_in_the_table(text, small_report):
    rows = [row for row in results.read(small_report).rows if row.experiment <= 4]
    body = text[text.index('id="verdict"') : text.index('id="play"')]
    assert body.count("<tr>") == 1 + len(rows)
    assert "1.31e-08 ± 4.45e-09" in body
    assert "620,158" in body


def test_the_same_results_make_the_same_page(text, small_report):
    assert page.page(results.read(small_report)) == text


def test_what_comes_from_outside_is_escaped(small_report):
    data = results.read(small_report)
    attack = "<script>alert(1)</script>"
    one = data.experiments[0]
    trials = one.parts[0].trials
    part = replace(one.parts[0], trials=(replace(trials[0], seed=attack), *trials))
    attacked = replace(
        data,
        environment={**data.environment, "system": attack},
        rows=(replace(data.rows[0], trials=attack, note=attack), *data.rows[1:]),
        experiments=(replace(one, title=attack, parts=(part, *one.parts[1:])), *data.experiments[1:]),
    )
    made = page.page(attacked)
    assert "<script>alert(1)" not in made
    assert made.count("&lt;script&gt;alert(1)") == 6  # system, trials, title, seed, and the note in two tables


def test_the_page_runs_its_own_script_and_no_other(text):
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_results_are_read_by_the_schema_that_ships_with_them(small_report, count):
    jsonschema = pytest.importorskip("jsonschema")
    data, schema = as_plain(results.read(small_report)), json.loads(results.schema())
    schemas.check(data, schema)
    rng, wrong = random.Random(0), 0
    validator = jsonschema.Draft202012Validator(schema)
    small = {**data, "rows": data["rows"][:2], "experiments": data["experiments"][:1]}
    small["experiments"][0]["parts"] = small["experiments"][0]["parts"][:1]
    for _ in range(count(200, 3000)):
        mutant = changed(small, rng)
        try:
            schemas.check(mutant, schema)
            fits = True
        except ValueError:
            fits = False
        assert validator.is_valid(mutant) or not fits  # a whole number like 1e3 is one to the standard, not to us
        wrong += not validator.is_valid(mutant)
    assert wrong > 20


def test_the_pages_network_keeps_its_promise():
    a = page.approximation()
    x = (
        torch.rand(20_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 * page.REACH
        - page.REACH
    )
    gap = (a.network(x)[:, 0] - page.target(x)).abs().max()
    assert float(gap.detach()) < page.EPS


# --- in a browser


@needs_chromium
def test_the_page_opens_without_an_error_and_asks_for_nothing(window, small_report):
    assert window.console() == []
    assert window.requests() == [(small_report / "index.html").as_uri()]


def put(window, name, value):
    script = (
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))"
    )
    window.run(script, name, value)


def read(window, name):
    return window.run("return document.getElementById(arguments[0]).textContent", name)


@needs_chromium
@pytest.mark.parametrize(
    "widths", [(1, 8, 16, 8, 1), (2, 16, 64, 128, 16, 2), (5, 1), (3, 2, 9, 4), (784, 4096, 4096, 10)]
)
def test_typing_widths_shows_reduced_widths_and_parameters(window, widths):
    put(window, "widths", ", ".join(map(str, widths)))
    reduced = radnet.reduced_widths(widths)
    count = lambda n: sum(b * (a + 1) for a, b in itertools.pairwise(n))  # noqa: E731
    said = read(window, "widths-out")
    assert f"({', '.join(map(str, widths))}) becomes ({', '.join(map(str, reduced))})" in said
    assert f"{count(widths):,} parameters become {count(reduced):,}," in said


@needs_chromium
def test_305_parameters_become_34(window):
    put(window, "widths", "1, 8, 16, 8, 1")
    assert "305 parameters become 34," in read(window, "widths-out")


@needs_chromium
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3", "at least two widths"),
        ("1, x, 2", "x is not a width"),
        ("1, 0", "0 is not"),
        ("1,,2", "Nothing is not"),
        ("0x10, 2", "0x10 is not"),
        ("-1, 2", "-1 is not"),
        ("1e3, 2", "1e3 is not"),
        ("5, 5", "nothing is to be taken away"),
    ],
)
def test_widths_that_are_none_are_told(window, text, said):
    put(window, "widths", text)
    assert said in read(window, "widths-out")


@needs_chromium
@pytest.mark.parametrize("share", [0, 0.3, 0.7, 1])
def test_dragging_through_the_layers_collapses_the_balls(window, share):
    a = page.approximation()
    layer = round(share * len(a.cover))
    put(window, "layers", layer)
    axis = torch.linspace(-page.REACH, page.REACH, page.SIDE, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis)
    ball = a.cover.tree.first(x.numpy())
    taken = (ball >= 0) & (ball < layer)
    said = read(window, "layers-out")
    assert f"After {layer} of {len(a.cover)} layers {taken.sum()} of {len(x)} points" in said
    worst = float(re.search(r"off by ([\d.]+)", said)[1])
    gap = (a.evaluate(x)[:, 0] - page.target(x)).abs().numpy()
    assert worst == pytest.approx(gap[taken].max() if taken.any() else 0, abs=6e-5)
    assert worst < page.EPS
    moved = window.run(
        "return [...document.querySelectorAll('#collapse circle')].filter(c => c.getAttribute('r') === '0.05').length"
    )
    assert moved == taken.sum()


@needs_chromium
def test_turning_the_hidden_plane_changes_weights_and_no_output(window):
    put(window, "angle", 0)
    still = read(window, "weights")
    curve = "return document.querySelectorAll('#graph path')[1].getAttribute('d')"
    before = window.run(curve)
    put(window, "angle", 90)
    numbers = [float(x) for x in re.findall(r"-?\d+\.\d+", read(window, "weights"))]
    given = page.toy_data(page.approximation())["network"]
    expected = [turned for key in ("W1", "b1", "W2") for turned in (-given[key][1], given[key][0])]
    assert numbers == pytest.approx(expected, abs=1e-4)
    assert read(window, "weights") != still
    assert window.run(curve) == before
    said = read(window, "angle-out")
    assert float(re.search(r"differ by ([\d.e-]+) ", said)[1]) < 1e-14


@needs_chromium
def test_the_toys_are_reached_and_moved_by_the_keyboard(window):
    window.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen = []
    for _ in range(60):
        window.press("Tab")
        seen.append(window.run("return document.activeElement.id"))
        if seen[-1] == "angle":
            break
    assert [name for name in seen if name in ("widths", "layers", "angle")] == ["widths", "layers", "angle"]
    window.press("Home", "ArrowRight", "ArrowRight")
    assert "Turned by 2°" in read(window, "angle-out")


def pixels(png):
    """The picture as an array; screenshots are 8-bit RGB or RGBA without interlacing."""
    width, height, _, kind = struct.unpack(">IIBB", png[16:26])
    packed, at = b"", 8
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        packed += png[at + 8 : at + 8 + size] if name == b"IDAT" else b""
        at += 12 + size
    depth = {2: 3, 6: 4}[kind]
    raw = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * depth)
    out = np.zeros((height, width * depth), np.uint8)
    for y in range(height):
        filtered, above = (
            raw[y, 1:].reshape(width, depth).astype(int),
            out[y - 1].reshape(width, depth).astype(int) * (y > 0),
        )
        line = np.zeros((width, depth), int)
        if raw[y, 0] in (0, 2):
            line = filtered + (above if raw[y, 0] else 0)
        else:
            for x in range(width):
                left = line[x - 1] if x else 0 * line[0]
                corner = above[x - 1] if x else 0 * line[0]
                line[x] = (filtered[x] + _predicted(raw[y, 0], left, above[x], corner)) % 256
        out[y] = (line % 256).reshape(-1).astype(np.uint8)
    return out.reshape(height, width, depth)[..., :3]


def _predicted(kind, left, above, corner):
    if kind == 1:
        return left
    if kind == 3:
        return (left + above) // 2
    p = left + above - corner
    a, b, c = abs(p - left), abs(p - above), abs(p - corner)
    return np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))


@needs_chromium
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_on_a_phone_and_on_a_desk(window, width, dark, tmp_path):
    window.window(width, 400, dark=dark)
    window.run("window.scrollTo(0, 0)")
    assert window.run("return document.documentElement.scrollWidth") <= width
    for name in ("verdict", "play", "experiments", "figures", "run"):
        assert window.run("return document.getElementById(arguments[0]).getBoundingClientRect().right", name) <= width
    png = window.screenshot()
    (tmp_path / "page.png").write_bytes(png)
    brightness = np.median(pixels(png).mean(axis=2))
    assert (brightness < 60) if dark else (brightness > 200)
    ink = window.run("return getComputedStyle(document.querySelector('figure svg')).color")
    shade = np.mean([int(x) for x in re.findall(r"\d+", ink)[:3]])
    assert (shade > 180) if dark else (shade < 80)
    window.window(1200, 900)


def test_the_toys_get_only_what_json_can_carry():
    data = page.toy_data(page.approximation())
    assert json.loads(json.dumps(data)) == data
