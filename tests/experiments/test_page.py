"""The page, in a browser: nothing missing, nothing asked for, four toys that compute, any screen, any reader."""

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
import looks
import radnet
from damage import changed
from places import ROOT
from radnet.experiments.collection import find
from radnet.experiments.plain import as_plain
from radnet.experiments.reporting import page, results, schemas
from radnet.experiments.reporting.errata import ERRATA
from small_run import SMALL

pytestmark = pytest.mark.xdist_group("report")
needs_chromium = pytest.mark.skipif(
    browser.CHROMIUM is None or browser.DRIVER is None, reason="chromium and chromedriver are not installed"
)

needs_axe = pytest.mark.skipif(not looks.AXE.exists(), reason="axe-core is not installed (npm, into .venv/axe)")


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
    assert len(pictures) == 5 + of_experiments + 4  # the paper's, the experiments', the toys'
    assert all(a.get("role") == "img" and len(a["aria-label"]) > 20 for a in pictures)
    labels = {a["for"] for tag, a in found if tag == "label"}
    assert labels == {a["id"] for tag, a in found if tag in ("input", "select")}
    assert all("aria-label" in a for tag, a in found if tag == "canvas")
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
    shown, folded = body.split("<details>")
    assert shown.count("<tr>") == 1 + sum(row.agrees is not None for row in rows)
    assert folded.count("<tr>") == 1 + sum(row.agrees is None for row in rows)
    assert "1.31e-08 ± 4.45e-09" in body
    assert "620,158" in body


def test_the_page_opens_with_what_came_out(text, small_report):
    found = page.cards(results.read(small_report))
    assert [card["number"] for card in found] == [1, 2, 3, 4]
    assert found[0]["word"] == "Lossless"
    assert found[1]["word"] == "The same descent"
    top = text[: text.index("<main>")]
    assert top.count("<li class=") == 4
    assert all(str(card["word"]) in top for card in found)


def test_figures_stand_within_their_experiments_and_errata_are_links(text):
    experiments = text[text.index('id="experiments"') : text.index('id="figures"')]
    assert experiments.count("<figure") == sum(small.pictures for small in SMALL.values())
    assert '(<a href="#erratum-17">erratum 17</a>)' in experiments
    errata = (ROOT / "docs" / "errata.md").read_text() if (ROOT / "docs").exists() else ""
    for number in ERRATA:
        assert f'<dt id="erratum-{number}">' in text
        assert not errata or f"| {number} |" in errata


def test_an_experiment_that_turns_out_otherwise_is_not_praised(small_report):
    data = results.read(small_report)
    one = data.of(1)
    (part,) = one.parts
    worse = [replace(t, result=replace(t.result, errors={"float32": 1e-3, "float64": 1e-3})) for t in part.trials]
    attacked = replace(data, experiments=(replace(one, parts=(replace(part, trials=tuple(worse)),)),))
    (card,) = page.cards(attacked)
    assert (card["word"], card["kind"]) == ("Not lossless", "quick")
    (card,) = page.cards(replace(attacked, quick=False))
    assert card["kind"] == "fails"
    assert '<li class="fails">' in page.page(replace(attacked, rows=data.rows[:1], quick=False))


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
    assert made.count("<script") == 2


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


def test_the_page_is_light(text):
    assert len(text.encode()) < 1e6


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


def heights(window, which):
    """Of the grey columns (0) or the blue ones (1)."""
    script = "return [...document.querySelectorAll('#funnel rect')].map(r => Number(r.getAttribute('height')))"
    return window.run(script)[which::2]


@needs_chromium
def test_dragging_a_width_changes_the_picture_and_the_counts(window):
    put(window, "widths", "2, 16, 16, 1")
    put(window, "slider-1", 6)
    assert window.run("return document.getElementById('widths').value") == "2, 16, 64, 1"
    said = read(window, "widths-out")
    assert "(2, 16, 64, 1) becomes (2, 3, 4, 1): 1,201 parameters become 30," in said
    scale = lambda n: [170 * (k / 64) ** 0.5 for k in n]  # noqa: E731
    assert heights(window, 0) == pytest.approx(scale([2, 16, 64, 1]))
    assert heights(window, 1) == pytest.approx(scale([2, 3, 4, 1]))
    put(window, "widths", ", ".join(["3"] * 12))
    assert window.run("return document.querySelectorAll('#sliders input').length") == 0


@needs_chromium
@pytest.mark.parametrize("still", [False, True])
def test_the_page_moves_by_itself_and_stops_or_does_not_move_for_those_who_asked(small_report, window, still):
    window.devtools(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}],
    )
    window.open((small_report / "index.html").as_uri())
    first = heights(window, 1)
    wait = "return new Promise(done => setTimeout(() => done(1), arguments[0]))"
    window.run(wait, 4000)
    last = heights(window, 1)
    assert (first == last) if still else (first[1] > last[1])
    window.run(wait, 300)
    assert heights(window, 1) == last
    window.window(1200, 900)


def flat(tensors):
    return [t.detach().double().flatten().tolist() for t in tensors]


@needs_chromium
def test_the_pages_compression_is_pythons_on_random_networks(window, count):
    """The same function as the network that Python compresses, weights up to signs, and what Python says it gives."""
    rng = random.Random(0)
    for k in range(count(20, 100)):
        widths = [rng.randint(1, 6), *(rng.randint(1, 30) for _ in range(rng.randint(1, 4))), rng.randint(1, 3)]
        generator = torch.Generator().manual_seed(k)
        net = radnet.RadNet(widths, "squash", generator=generator, dtype=torch.float64)
        c = radnet.compress(net)
        x = torch.randn(20, widths[0], generator=generator, dtype=torch.float64)
        given = {"widths": widths, "W": flat(net.weights), "b": flat(net.biases)}
        script = (
            "const small = radial.compressNetwork(arguments[0]);"
            "return [small.widths, arguments[1].map(x => [...radial.evaluateNetwork(small, x)]),"
            "arguments[1].map(x => [...radial.evaluateNetwork(arguments[0], x)]), small.W.map(W => [...W])]"
        )
        small, after, before, W = window.run(script, given, x.tolist())
        assert tuple(small) == c.network.widths
        with torch.no_grad():
            ours = c.network(x)
        scale = 1 + ours.abs().max()
        assert (torch.tensor(after, dtype=torch.float64) - ours).abs().max() < 1e-6 * scale
        assert (torch.tensor(before, dtype=torch.float64) - ours).abs().max() < 1e-6 * scale
        for mine, theirs in zip(W, flat(c.network.weights), strict=True):
            assert np.abs(mine) == pytest.approx(np.abs(theirs), abs=1e-6 * (1 + np.abs(theirs).max()))


@needs_chromium
def test_the_pages_step_is_a_step_of_adam(window):
    generator = torch.Generator().manual_seed(0)
    net = radnet.RadNet((2, 7, 5, 1), "squash", generator=generator, dtype=torch.float64)
    x = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    y = x.prod(dim=1, keepdim=True).sign()
    given = {"widths": [2, 7, 5, 1], "W": flat(net.weights), "b": flat(net.biases)}
    samples = [{"x": a.tolist(), "y": float(b)} for a, b in zip(x, y, strict=True)]
    script = (
        "const net = arguments[0], memory = {}; net.W = net.W.map(W => Float64Array.from(W));"
        "net.b = net.b.map(b => Float64Array.from(b)); const losses = [];"
        "for (let k = 0; k < 5; k++) losses.push(radial.step(net, arguments[1], memory, 0.02));"
        "return [losses, net.W.map(W => [...W]), net.b.map(b => [...b])]"
    )
    losses, W, b = window.run(script, given, samples)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for loss in losses:
        optimizer.zero_grad()
        ours = torch.nn.functional.mse_loss(net(x), y)
        ours.backward()
        optimizer.step()
        assert loss == pytest.approx(float(ours.detach()), rel=1e-9)
    for mine, theirs in zip([*W, *b], flat([*net.weights, *net.biases]), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-9)


PICK = """
const shapes = document.getElementById("learn-shape");
shapes.value = arguments[0];
shapes.dispatchEvent(new Event("change"));
"""


@needs_chromium
@pytest.mark.parametrize("shape", ["ring", "wave", "heart"])
def test_a_network_learns_a_shape_and_nothing_changes_when_it_is_compressed(window, shape):
    window.run(PICK, shape)
    window.run("radial.trainFor(600)")
    right, points = map(int, re.search(r"(\d+) of (\d+) points are right", read(window, "learn-out")).groups())
    assert right >= 0.93 * points
    window.run("document.getElementById('learn-compress').click()")
    said = read(window, "learn-out")
    assert "(2, 3, 4, 5, 1): 1,297 parameters became 56. 0 of 4,096 places changed colour" in said
    assert float(re.search(r"differ by ([\d.e-]+) at most", said)[1]) < 1e-12


@needs_chromium
def test_points_are_drawn_with_the_pointer(window):
    window.run(PICK, "none")
    box = window.run(
        "const c = document.getElementById('learn-canvas'); c.scrollIntoView();"
        "const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]"
    )
    middle = {"x": box[0] + box[2] / 4, "y": box[1] + box[3] / 4}
    for kind in ("mousePressed", "mouseReleased"):
        window.devtools("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **middle)
    ((x, y, c),) = window.run("return radial.learn.samples.map(s => [s.x[0], s.x[1], s.y])")
    assert (x, y) == pytest.approx((-0.6, 0.6), abs=0.02)
    assert c == 1


@needs_chromium
def test_points_are_drawn_with_the_keyboard_and_nothing_is_learned_from_none(window):
    window.run(PICK, "none")
    window.run("document.getElementById('learn-train').click()")
    assert "nothing to learn yet" in read(window, "learn-out")
    assert read(window, "learn-train") == "Train"
    window.run("document.getElementById('learn-canvas').focus()")
    window.press("ArrowRight", "ArrowRight", "Space")
    ((x, y, _),) = window.run("return radial.learn.samples.map(s => [s.x[0], s.x[1], s.y])")
    assert (x, y) == pytest.approx((2 * 4 * 1.2 / 64, 0))


@needs_chromium
def test_the_wide_network_and_the_small_one_can_be_shown_in_turns(window):
    window.run(PICK, "ring")
    shown = "return document.getElementById('learn-canvas').toDataURL()"
    hidden = "return document.getElementById('learn-other').hidden"
    assert window.run(hidden)
    window.run("document.getElementById('learn-compress').click()")
    small = window.run(shown)
    assert not window.run(hidden)
    window.run("document.getElementById('learn-other').click()")
    assert read(window, "learn-other") == "Show the small one"
    assert window.run(shown) == small


@needs_chromium
def test_training_goes_on_where_it_was_in_one_loop(window):
    window.run(PICK, "ring")
    window.run("radial.trainFor(600)")
    right = int(re.search(r"After 600 steps (\d+)", read(window, "learn-out"))[1])
    window.run(
        """
        const button = document.getElementById("learn-train");
        for (let k = 0; k < 3; k++) button.click();  // started, stopped and started within a frame
        return new Promise((done) => {
          let frames = 0;
          const count = () => {
            frames += 1;
            if (frames < 5) return requestAnimationFrame(count);
            button.click();
            done(frames);
          };
          requestAnimationFrame(count);
        });
        """
    )
    steps, now = map(int, re.search(r"After (\d+) steps (\d+)", read(window, "learn-out")).groups())
    assert 600 < steps <= 600 + 4 * 6
    assert now >= right - 12


@needs_chromium
def test_sliders_go_on_from_the_last_widths_that_were_some(window):
    put(window, "widths", "1, 8, 16, 1")
    put(window, "widths", "1, 8, x")
    assert window.run("return document.getElementById('funnel').classList.contains('dim')")
    put(window, "slider-0", 5)
    assert window.run("return document.getElementById('widths').value") == "1, 32, 16, 1"
    put(window, "widths", ", ".join(["2"] * 500))
    assert "too many to be drawn" in read(window, "widths-out")


@pytest.mark.parametrize(
    ("full", "reduced", "word", "holds"),
    [(10.0, 1.0, "10 times faster", True), (1.0, 2.0, "2 times slower", False), (3.0, 2.0, "1.5 times faster", True)],
)
def test_slower_is_not_called_faster(full, reduced, word, holds, small_report):
    outcomes = results.read(small_report).of(3).outcomes()
    trial = outcomes["script"].trials[0]
    timed = replace(
        trial,
        full=replace(trial.full, seconds=full, reached=True),
        reduced=replace(trial.reduced, seconds=reduced, reached=True),
    )
    missed = replace(timed, full=replace(timed.full, reached=False))
    found = find(3).headline({**outcomes, "script": replace(outcomes["script"], trials=(timed, missed))})
    assert (found.word, found.holds) == (word, holds)
    assert "(1 of 2 trials arrived)" in found.said


def test_without_scripts_there_are_results_and_no_empty_toys(text):
    assert ".play { display: none; }" in text
    assert text.index("<noscript>") < text.index('<section id="squeeze" class="play"')


@needs_chromium
@needs_axe
def test_the_page_is_for_all_readers(window):
    for dark in (False, True):
        window.window(1200, 900, dark=dark)
        assert looks.violations(window) == []
    window.window(1200, 900)


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
    off = re.search(r"off by ([\d.]+)", said)
    assert bool(off) == taken.any()
    worst = float(off[1]) if off else 0
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
    put(window, "widths", "1, 8, 16, 8, 1")
    window.run("document.activeElement.blur(); window.scrollTo(0, 0); document.querySelector('.skip').focus()")
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
    assert [*looks.clipped(window), *looks.faint(window)] == []
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
