"""The pictures: each shows what its caption says, on the Axes it was given."""

import matplotlib.figure
import numpy as np
import pytest
import torch

import radnet
from radnet import plots


@pytest.fixture
def ax():
    return matplotlib.figure.Figure().subplots()


def test_activations_are_drawn_as_they_are_jumps_and_all(ax):
    assert plots.activations(ax) is ax
    drawn = {}
    for line in ax.lines:
        if len(line.get_xdata()) == 400:
            drawn.setdefault(line.get_color(), []).append(line.get_xydata())
    step, squash, shifted = (np.concatenate(parts) for parts in drawn.values())
    x = step[:, 0]
    assert np.allclose(step[:, 1], np.where(np.abs(x) >= 1, x, 0))
    assert len(drawn["C0"]) == 3  # broken at the two jumps
    x = squash[:, 0]
    assert np.allclose(squash[:, 1], np.sign(x) * x**2 / (1 + x**2))
    x = shifted[:, 0]
    assert np.allclose(shifted[:, 1], np.sign(x) * np.maximum(np.abs(x) - 0.5, 0))
    circles = [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    assert {(1.0, 1.0), (-1.0, -1.0)} <= {(round(x, 6), round(y, 6)) for x, y in circles}


def test_a_radial_activation_maps_circles_to_circles_and_a_pointwise_one_does_not(ax):
    def radii(activation):
        ax.clear()
        plots.activation_map(ax, activation)
        images = [line.get_xydata() for line in ax.lines if line.get_linestyle() == "-"]
        assert len(images) == 4
        return [np.linalg.norm(image, axis=1) for image in images]

    for r, norms in zip((0.5, 1.0, 1.5, 2.0), radii(radnet.Squash()), strict=True):
        assert np.allclose(norms, r**2 / (1 + r**2))
    assert all(np.ptp(norms) > 0.1 for norms in radii(torch.relu))


def test_a_network_diagram_has_every_neuron_and_every_connection(ax):
    plots.network_diagram(ax, (1, 4, 4, 1))
    assert sum(len(layer.get_offsets()) for layer in ax.collections) == 10
    assert len(ax.lines) == 4 + 16 + 4
    ax.clear()
    assert plots.network_diagram(ax, (1, 2, 3, 1)).get_title() == "(1, 2, 3, 1): 17 parameters"
    ax.clear()
    assert plots.network_diagram(ax, (1, 2, 3, 1), bias=False).get_title() == "(1, 2, 3, 1): 11 parameters"
    with pytest.raises(ValueError, match="more than 64"):
        plots.network_diagram(ax, (1, 65, 1))


def test_descent_from_the_mirrored_start_is_the_mirrored_descent(ax):
    """lem:orth-gd for O(1), as fig:orth-gd draws it; and it is a descent."""
    plots.orthogonal_descent(ax, steps=40)
    a, b = (line.get_xydata() for line in ax.lines)
    assert a.shape == (41, 2)
    assert np.abs(a + b).max() < 1e-12
    x = np.linspace(-2, 2, 41)

    def loss(w1, w2):
        return np.mean((w2 * np.sign(w1 * x) * (w1 * x) ** 2 / (1 + (w1 * x) ** 2) - 1.2 * x / (1 + np.abs(x))) ** 2)

    losses = [loss(*point) for point in a]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_images_stand_in_rows_and_columns_each_in_its_own_greys(ax):
    images = torch.arange(2 * 3 * 4.0).reshape(2, 3, 2, 2)
    sheet = np.ma.filled(plots.grid_of_images(ax, images, rows=["a", "b"]).get_images()[0].get_array(), np.nan)
    assert sheet.shape == (6, 9)
    for i in range(2):
        for j in range(3):
            assert np.allclose(sheet[3 * i : 3 * i + 2, 3 * j : 3 * j + 2], np.array([[0, 1], [2, 3]]) / 3)
    assert np.isnan(sheet[2]).all()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    with pytest.raises(ValueError, match="rows, columns, height, width"):
        plots.grid_of_images(ax, images[0])


def test_curves_bars_and_tables_hold_the_numbers_they_are_given(ax):
    plots.convergence(ax, {"a": [[3, 2, 1], [3, 1]], "b": [[5]]}, every=20)
    assert [list(line.get_xdata()) for line in ax.lines] == [[1, 21, 41], [1, 21], [1]]
    assert ax.get_legend_handles_labels()[1] == ["a", "b"]
    ax.clear()
    plots.bars(ax, ["x", "y"], {"a": [(1, 0), (2, 0)], "b": [(3, 0), (4, 0)]})
    assert [bar.get_height() for bar in ax.patches] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="a has 1 values for 2 groups"):
        plots.bars(ax, ["x", "y"], {"a": [(1, 0)]})
    ax.clear()
    plots.heat(ax, [[0.25, 1.5]], rows=["r"], columns=["2", "4"])
    assert [text.get_text() for text in ax.texts] == ["0.25", "1.50"]
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for 2 rows"):
        plots.heat(ax, [[0.25, 1.5]], rows=["r", "s"], columns=["2", "4"])


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    import sys

    from radnet.plots.backend import matplotlib

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"radnet\[plot\]"):
        matplotlib()
