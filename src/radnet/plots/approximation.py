"""Pictures of approximations, drawn on an Axes of matplotlib's.

`cover` and `collapse` are the paper's fig:UA-asymp-lin: the balls over K, and what is left of K after some layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..approximation import Approximation
from ..approximation.targets import Function
from ..errors import InvalidValue
from .axes import on_axes
from .backend import matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@on_axes
def cover(ax: Axes, a: Approximation, *, taken: int | None = None) -> Axes:
    """The balls of an approximation: discs in two dimensions, intervals in one.

    Parameters
    ----------
    ax : matplotlib Axes, optional
    a : Approximation
        Of a function of one or two variables.
    taken : int, optional
        So many balls, in the order of the layers, are drawn filled.

    Examples
    --------
    >>> import torch, radnet, matplotlib.figure
    >>> a = radnet.approximate(lambda x: x.sin().sum(1), radnet.Box([0, 0], [2, 2]), 0.5, lipschitz=1.5)
    >>> ax = radnet.plots.cover(matplotlib.figure.Figure().subplots(), a)
    >>> len(ax.collections[0].get_paths()) == len(a.cover)
    True
    """
    c, r = a.cover.centres, a.cover.radii
    done = len(r) if taken is None else taken
    if c.shape[1] == 1:
        colours = ["C0" if i < done else "0.75" for i in range(len(r))]
        rows = np.arange(len(r)) % 4
        ax.hlines(rows, c[:, 0] - r, c[:, 0] + r, colors=colours, lw=2)
        ax.plot(c[:, 0], rows, "k.", ms=3)
        ax.set_yticks([])
        return ax
    if c.shape[1] != 2:
        raise InvalidValue(f"cover: a picture has one or two dimensions, the cover has {c.shape[1]}")
    patches, collections = matplotlib("patches"), matplotlib("collections")
    faces = [(0.12, 0.47, 0.71, 0.25) if i < done else (0, 0, 0, 0) for i in range(len(r))]
    discs = [patches.Circle(centre, radius) for centre, radius in zip(c, r, strict=True)]
    ax.add_collection(collections.PatchCollection(discs, facecolors=faces, edgecolors="0.3", linewidths=0.6))
    ax.plot(c[:, 0], c[:, 1], "k.", ms=2)
    ax.set_aspect("equal")
    ax.autoscale_view()
    return ax


@on_axes
def graph(ax: Axes, a: Approximation, f: Function, *, points: int = 2000) -> Axes:
    """The network's graph against that of f, for a function of one variable, with the band of eps around f.

    Examples
    --------
    >>> import torch, radnet, matplotlib.figure
    >>> a = radnet.approximate(torch.sin, radnet.Box(0, 6), 0.2, lipschitz=1)
    >>> ax = radnet.plots.graph(matplotlib.figure.Figure().subplots(), a, torch.sin)
    >>> [line.get_label() for line in ax.lines]
    ['f', 'network']
    """
    if a.network.widths[0] != 1 or a.network.widths[-1] != 1:
        raise InvalidValue("graph: for functions of one variable with one value")
    lower, upper = (a.cover.centres - a.cover.radii[:, None]).min(), (a.cover.centres + a.cover.radii[:, None]).max()
    x = torch.linspace(float(lower), float(upper), points, dtype=torch.float64).unsqueeze(1)
    y = torch.as_tensor(f(x)).detach().double().reshape(-1)
    F = a.network(x.to(next(a.network.parameters()).dtype)).detach().double().reshape(-1)
    t, eps = x[:, 0].numpy(), a.certificate.eps
    ax.fill_between(t, (y - eps).numpy(), (y + eps).numpy(), color="C0", alpha=0.15, lw=0, label=f"f ± {eps:g}")
    ax.plot(t, y.numpy(), "C0", lw=1, label="f")
    ax.plot(t, F.numpy(), "C3", lw=1, label="network")
    ax.legend(loc="best", fontsize="small")
    return ax


@on_axes
def collapse(ax: Axes, a: Approximation, x: Tensor, layer: int) -> Axes:
    """Where the points x of the plane are after so many hidden layers: collapsed to a centre, or still where they were.

    Examples
    --------
    >>> import torch, radnet, matplotlib.figure
    >>> a = radnet.approximate(lambda x: x.sin().sum(1), radnet.Box([0, 0], [2, 2]), 0.5, lipschitz=1.5)
    >>> x = 2 * torch.rand(500, 2, dtype=torch.float64)
    >>> ax = radnet.plots.collapse(matplotlib.figure.Figure().subplots(), a, x, layer=3)
    >>> ax.get_title()
    'after 3 layers'
    """
    if a.network.widths[0] != 2:
        raise InvalidValue(f"collapse: for functions of two variables, not {a.network.widths[0]}")
    if not 0 <= layer <= len(a.cover):
        raise InvalidValue(f"collapse: layer {layer}; there are {len(a.cover)} balls, one for each layer")
    cover(ax, a, taken=layer)
    ball = a.cover.tree.first(x.detach().double().numpy())
    taken = (ball >= 0) & (ball < layer)
    free = x.detach()[torch.from_numpy(~taken)].double().numpy()
    c = a.cover.centres[np.unique(ball[taken])]
    ax.plot(free[:, 0], free[:, 1], ".", color="0.5", ms=1, rasterized=True)  # an SVG of so many would be large
    ax.plot(c[:, 0], c[:, 1], "o", color="C3", ms=3)
    ax.set_title(f"after {layer} layers")
    return ax
