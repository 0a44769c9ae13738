"""How results look in a notebook: short in text, whole as HTML and SVG, in the colours of the page."""

import html
import json
import re
from xml.etree.ElementTree import fromstring

import pytest
import torch
from torch import nn

import radnet
from radnet import notebook


def model():
    return nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


RESULTS = {
    "compression of a network": lambda: radnet.compress(radnet.RadNet((2, 64, 64, 1))),
    "compression of a model": lambda: radnet.compress(model()),
    "compression with a bound": lambda: radnet.compress(model(), tol=0.1),
    "certificate": lambda: radnet.compress(model()).certificate,
    "network": lambda: radnet.RadNet((2, 64, 64, 1), "squash", shift=0.5),
    "RBF network": lambda: radnet.rbf.RBFNetwork((2, 8, 1)),
    "approximation": lambda: radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1),
    "stacked network": lambda: radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1).network,
    "certificate of an approximation": lambda: radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1).certificate,
}


@pytest.mark.parametrize("name", RESULTS)
def test_what_a_notebook_shows_is_well_formed_and_takes_its_colours_from_the_page(name):
    result = RESULTS[name]()
    shown = result._repr_html_()
    fromstring(shown)  # noqa: S314
    colours = re.findall(r'(?<!-)\b(?:color|fill|stroke)[=:]"?(#\w+|\w+)', shown)
    assert set(colours) <= {"currentColor", "none", "#fff", "#1f77b4"}, colours  # the badge's own, and bars
    if hasattr(result, "_repr_svg_"):
        alone = result._repr_svg_()
        assert fromstring(alone).tag.endswith("svg")  # noqa: S314
        assert "prefers-color-scheme:dark" in alone
        assert "<style>" not in shown  # which would change the page around it


@pytest.mark.parametrize("name", [name for name in RESULTS if "network" not in name or "compression" in name])
def test_the_text_of_a_result_is_one_line(name):
    text = repr(RESULTS[name]())
    assert len(text) < 600
    assert "\n" not in text
    assert "Linear" not in text


def test_the_figures_are_those_of_the_report():
    c = radnet.compress(model())
    shown = c._repr_html_()
    for text in ("4,546", "466", "does not commute with a change of basis", "64 → 4", c.certificate.verdict):
        assert text in shown
    assert repr(c) == "ModelCompression(Sequential, 4,546 -> 466 parameters, lossless, on 256 inputs)"
    c = radnet.compress(radnet.RadNet((2, 64, 64, 1)))
    assert repr(c) == "Compression((2, 64, 64, 1) -> (2, 3, 4, 1), lossless, on 256 inputs)"
    assert "64 → 4" in c._repr_html_()
    a = RESULTS["approximation"]()
    shown = a._repr_html_()
    assert all(html.escape(line[15:]) in shown for line in a.report().split("\n"))


def test_a_model_that_is_another_function_is_seen_at_first_sight():
    net = radnet.RadNet((2, 8, 1))
    other = radnet.verify(net, radnet.RadNet((2, 8, 1)), torch.randn(50, 2))
    assert "✗ NOT lossless" in other._repr_html_()
    assert "✓ lossless" in radnet.verify(net, net, torch.randn(50, 2))._repr_html_()
    assert "✗" in RESULTS["certificate of an approximation"]()._repr_html_()  # on samples only


def test_names_of_the_users_do_nothing_to_the_page():
    class Evil(radnet.Radial):
        def extra_repr(self):
            return "<script>alert(1)</script>"

    net = radnet.RadNet((1, 3, 1), Evil(torch.tanh))
    for shown in (
        net._repr_html_(),
        net._repr_svg_(),
        notebook.verdict(True, "<script>"),
        notebook.lines(["<script>"]),
    ):
        assert "<script" not in shown
        fromstring(f"<p>{shown}</p>")  # noqa: S314


def test_many_layers_are_not_all_drawn():
    a = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 3), 0.01, lipschitz=1)
    shown = a.network._repr_html_()
    assert "more layers" in shown
    assert len(shown) < 10_000


@pytest.mark.parametrize("name", ["compression of a network", "compression of a model", "approximation"])
def test_results_are_plain_data(name):
    result = RESULTS[name]()
    data = result.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data))
    if name != "approximation":
        assert data["certificate"]["lossless"] is True
        assert data["parameters"][0] > data["parameters"][1]


def test_an_approximation_is_a_function_of_any_floating_point_dtype():
    a = RESULTS["approximation"]()
    x = torch.linspace(0, 3, 40, dtype=torch.float64).unsqueeze(1)
    assert torch.equal(a(x), a.network(x))
    assert a(x.float()).dtype == torch.float32
    assert float((a(x.float()).double() - x.sin()).abs().max()) < 0.1
    with pytest.raises(radnet.RadNetError, match="an approximation: input of shape"):
        a(torch.ones(3, 2))
