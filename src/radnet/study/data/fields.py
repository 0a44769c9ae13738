"""What is at a place: the grey of a photograph, the distance to a body."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..dataset import Array, DataSet, Loaded, drawn

ROWS = 4000
#: pixels along an edge of a picture, and how many of the photograph's are one of them
EDGE, AVERAGED = 80, 5


def photograph(name: str) -> Loaded:
    """The grey of a photograph of scikit-learn's, from the place of a pixel in [-1, 1]^2."""
    from sklearn.datasets import load_sample_image

    grey = np.asarray(load_sample_image(name), dtype=np.float64).mean(axis=2) / 255
    size = EDGE * AVERAGED
    top, left = (grey.shape[0] - size) // 2, (grey.shape[1] - size) // 2
    parts = grey[top : top + size, left : left + size].reshape(EDGE, AVERAGED, EDGE, AVERAGED)
    along = np.linspace(-1, 1, EDGE)
    places = np.stack(np.meshgrid(along, along, indexing="xy"), axis=-1).reshape(-1, 2)
    return places, parts.mean(axis=(1, 3)).ravel()


def _to_box(x: Array, half: Array) -> Array:
    """The signed distance to a box around 0."""
    q = np.abs(x) - half
    outside: Array = np.linalg.norm(np.maximum(q, 0), axis=1)
    distance: Array = outside + np.minimum(q.max(axis=1), 0)
    return distance


def distance() -> Loaded:
    """The signed distance to two discs and a rectangle."""
    x = drawn(ROWS, -1, 1, 2, 21)
    discs = [np.linalg.norm(x - c, axis=1) - r for c, r in (((-0.4, 0.3), 0.3), ((0.5, 0.5), 0.2))]
    return x, np.minimum(np.minimum(*discs), _to_box(x - np.array([0.2, -0.5]), np.array([0.3, 0.2])))


def torus() -> Loaded:
    """The signed distance to a torus with a beam through its hole."""
    x = drawn(ROWS, -1, 1, 3, 22)
    ring = np.hypot(np.hypot(x[:, 0], x[:, 1]) - 0.6, x[:, 2]) - 0.2
    return x, np.minimum(ring, _to_box(x, np.array([0.15, 0.15, 0.8])))


FIELDS = (
    DataSet("china", "field", "a photograph, 80 x 80, scikit-learn", partial(photograph, "china.jpg"), 2250, False),
    DataSet("distance", "field", "signed distance to two discs and a rectangle", distance, 800, False),
    DataSet("flower", "field", "a photograph, 80 x 80, scikit-learn", partial(photograph, "flower.jpg"), 2250, True),
    DataSet("torus", "field", "signed distance to a torus and a beam", torus, 800, True),
)
