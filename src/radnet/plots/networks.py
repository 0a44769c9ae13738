"""Pictures of activations, networks and descent: fig:radial_act, fig:ptwise-vs-radial, fig:dim_red, fig:orth-gd."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ..activations import RadialActivation, ShiftedReLU, Squash, StepReLU
from ..errors import InvalidValue
from ..network import RadNet
from ..widths import check_widths, count_parameters, reduced_widths
from .axes import on_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@on_axes
def activations(ax: Axes, shown: Mapping[str, RadialActivation] | None = None, *, reach: float = 2.1) -> Axes:
    """Radial rescaling functions on the line, jumps and all (fig:radial_act).

    Parameters
    ----------
    ax : matplotlib Axes, optional
    shown : mapping from names to activations, optional
        By default the three of the paper's figure.
    reach : float
        The picture goes from -reach to reach.

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = radnet.plots.activations(matplotlib.figure.Figure().subplots())
    >>> ax.get_legend_handles_labels()[1]
    ['Step-ReLU', 'Squashing function', 'Shifted ReLU']
    """
    chosen = shown or {"Step-ReLU": StepReLU(), "Squashing function": Squash(), "Shifted ReLU": ShiftedReLU(0.5)}
    ax.axhline(0, color="0.6", lw=0.6)
    ax.axvline(0, color="0.6", lw=0.6)
    for k, (name, rho) in enumerate(chosen.items()):
        shift = 0.0 if rho.shift is None else float(rho.shift.detach())
        jumps = [jump + shift for jump in rho.jumps if 0 < jump + shift < reach]
        edges = [-reach, *(-jump for jump in reversed(jumps)), *jumps, reach]
        for i, (a, b) in enumerate(itertools.pairwise(edges)):
            inset = 1e-9 * reach
            x = np.linspace(a + inset, b - inset, 400)
            ax.plot(x, _on_the_line(rho, x), color=f"C{k}", lw=1.8, label=name if i == 0 else None)
        for jump in (sign * jump for jump in jumps for sign in (-1, 1)):
            inner, at = _on_the_line(rho, np.array([jump * (1 - 1e-9), jump]))
            ax.plot([jump, jump], [inner, at], color=f"C{k}", lw=0.8, ls=":")
            ax.plot([jump], [inner], "o", color=f"C{k}", mfc="white", ms=4)
            ax.plot([jump], [at], "o", color=f"C{k}", ms=4)
    ax.legend(loc="upper left", frameon=False)
    ax.set_xlabel("v")
    ax.set_ylabel("ρ(v)")
    return ax


@on_axes
def activation_map(ax: Axes, activation: Callable[[Tensor], Tensor], *, reach: float = 2.0) -> Axes:
    """What an activation does to the plane: where circles go, and arrows from points to their images.

    A pointwise and a radial one side by side are fig:ptwise-vs-radial: the one knows the axes, the other does not.

    Examples
    --------
    >>> import torch, radnet, matplotlib.figure
    >>> left, right = matplotlib.figure.Figure().subplots(1, 2)
    >>> ax = radnet.plots.activation_map(left, torch.relu)
    >>> ax = radnet.plots.activation_map(right, radnet.Squash())
    >>> len(ax.lines) >= 4
    True
    """
    angle = torch.linspace(0, 2 * torch.pi, 361, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], dim=1)
    for k, r in enumerate(np.linspace(reach / 4, reach, 4)):
        before, after = r * circle, activation(r * circle).detach()
        ax.plot(before[:, 0], before[:, 1], color="0.7", lw=0.8, ls=":")
        ax.plot(after[:, 0], after[:, 1], color=f"C{k}", lw=1.6)
    axis = torch.linspace(-reach, reach, 9, dtype=torch.float64)
    v = torch.cartesian_prod(axis, axis)
    v = v[v.norm(dim=1) <= reach]
    d = activation(v).detach() - v
    ax.quiver(*v.T, *d.T, angles="xy", scale_units="xy", scale=1, color="0.5", width=0.004)
    ax.set_aspect("equal")
    ax.set_xlim(-1.1 * reach, 1.1 * reach)
    ax.set_ylim(-1.1 * reach, 1.1 * reach)
    return ax


@on_axes
def network_diagram(ax: Axes, widths: Sequence[int], *, bias: bool = True) -> Axes:
    """Neurons, connections and the number of parameters; compression in three steps is three of these (fig:dim_red).

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = radnet.plots.network_diagram(matplotlib.figure.Figure().subplots(), (1, 4, 4, 1))
    >>> ax.get_title()
    '(1, 4, 4, 1): 33 parameters'
    """
    n = check_widths(widths)
    if max(n) > 64:
        raise InvalidValue(f"network_diagram: widths {n}; more than 64 neurons in a layer cannot be told apart")
    places = [[(i, (width - 1) / 2 - j) for j in range(width)] for i, width in enumerate(n)]
    for left, right in itertools.pairwise(places):
        for (x0, y0), (x1, y1) in itertools.product(left, right):
            ax.plot([x0, x1], [y0, y1], color="0.6", lw=0.7, zorder=1)
    for i, layer in enumerate(places):
        colour = "C2" if i == 0 else "C3" if i == len(n) - 1 else "C0"
        ax.scatter([x for x, _ in layer], [y for _, y in layer], s=90, color=colour, zorder=2)
    ax.set_title(f"({', '.join(map(str, n))}): {count_parameters(n, bias)} parameters")
    ax.margins(0.12)
    ax.set_axis_off()
    return ax


@on_axes
def width_bars(ax: Axes, widths: Sequence[int]) -> Axes:
    """The widths of a network as bars, beside those of its compressed form.

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = radnet.plots.width_bars(matplotlib.figure.Figure().subplots(), (784, 4096, 4096, 10))
    >>> [int(bar.get_width()) for bar in ax.patches][-4:]
    [784, 785, 786, 10]
    """
    n = check_widths(widths)
    small = reduced_widths(n)
    places = np.arange(len(n))
    ax.barh(places, n, color="0.85", label=f"({', '.join(map(str, n))})" if len(n) < 8 else "widths")
    ax.barh(places, small, color="C0", label="compressed")
    ax.set_yticks(places, ["input", *(f"hidden {i}" for i in range(1, len(n) - 1)), "output"])
    ax.invert_yaxis()
    ax.set_xlabel("width")
    ax.legend(frameon=False)
    return ax


@on_axes
def orthogonal_descent(
    ax: Axes, *, start: tuple[float, float] = (2.4, 2.3), steps: int = 60, rate: float = 0.2
) -> Axes:
    """Descent commutes with an orthogonal symmetry of the loss (fig:orth-gd, lem:orth-gd).

    The loss of a radial network of widths (1, 1, 1) over the plane of its two weights. Its symmetry group is O(1):
    changing both signs changes nothing, and descent from the mirrored start is the mirrored descent.

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = radnet.plots.orthogonal_descent(matplotlib.figure.Figure().subplots(), steps=5)
    >>> a, b = (line.get_xydata() for line in ax.lines)
    >>> bool(abs(a + b).max() < 1e-12)
    True
    """
    x = torch.linspace(-2, 2, 41, dtype=torch.float64).unsqueeze(1)
    y = 1.2 * x / (1 + x.abs())
    reach = 1.15 * max(2.0, *map(abs, start))
    axis = torch.linspace(-reach, reach, 81, dtype=torch.float64)
    net = RadNet((1, 1, 1), "squash", bias=False, dtype=torch.float64)
    with torch.no_grad():
        loss = torch.tensor([[float(_loss(net, w1, w2, x, y)) for w1 in axis] for w2 in axis])
    ax.contour(axis, axis, loss.sqrt(), levels=18, linewidths=0.6, cmap="viridis")
    for sign, colour, name in ((1, "C3", "from v"), (-1, "C0", "from Qv")):
        path = _descend(net, sign * start[0], sign * start[1], x, y, steps, rate)
        ax.plot(path[:, 0], path[:, 1], "o-", color=colour, ms=2.5, lw=1, label=name)
    ax.legend(loc="lower right", frameon=False)
    ax.set_xlabel("first weight")
    ax.set_ylabel("second weight")
    ax.set_aspect("equal")
    return ax


def _on_the_line(rho: RadialActivation, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        out: np.ndarray = rho(torch.from_numpy(x).unsqueeze(1))[:, 0].numpy()
    return out


def _loss(net: RadNet, w1: Tensor | float, w2: Tensor | float, x: Tensor, y: Tensor) -> Tensor:
    for p, w in zip(net.parameters(), (w1, w2), strict=True):
        p.fill_(w)
    return nn.functional.mse_loss(net(x), y)


def _descend(net: RadNet, w1: float, w2: float, x: Tensor, y: Tensor, steps: int, rate: float) -> np.ndarray:
    with torch.no_grad():
        _loss(net, w1, w2, x, y)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    path = [(w1, w2)]
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        path.append(tuple(float(p.detach()) for p in net.parameters()))  # type: ignore[arg-type]
    return np.array(path)
