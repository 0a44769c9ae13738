"""Pictures of experiments: noise levels and convergence (fig:noisy-threes), tables of numbers as colours, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ..errors import InvalidValue
from .axes import on_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@on_axes
def grid_of_images(ax: Axes, images: Tensor, *, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Axes:
    """Grey images in rows and columns on one Axes: noise levels down, images across (fig:noisy-threes, left).

    Parameters
    ----------
    ax : matplotlib Axes, optional
    images : Tensor of shape (rows, columns, height, width)
    rows, columns : sequence of str
        What to write beside and above.

    Examples
    --------
    >>> import torch, radnet, matplotlib.figure
    >>> ax = matplotlib.figure.Figure().subplots()
    >>> radnet.plots.grid_of_images(ax, torch.rand(2, 3, 8, 8), rows=["0", "3"]).get_images()[0].get_array().shape
    (18, 27)
    """
    if images.ndim != 4:
        raise InvalidValue(
            f"grid_of_images: images of shape {tuple(images.shape)}; expected rows, columns, height, width"
        )
    down, across, height, width = images.shape
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    grey = ((images - low) / (high - low).clamp(min=1e-12)).numpy(force=True)
    sheet = np.full((down * (height + 1), across * (width + 1)), np.nan)
    for i in range(down):
        for j in range(across):
            sheet[i * (height + 1) :, j * (width + 1) :][:height, :width] = grey[i, j]
    ax.imshow(sheet, cmap="gray", interpolation="nearest")
    ax.set_yticks([(i + 0.5) * (height + 1) for i in range(len(rows))], list(rows))
    ax.set_xticks([(j + 0.5) * (width + 1) for j in range(len(columns))], list(columns))
    ax.tick_params(length=0)
    ax.set_frame_on(False)
    return ax


@on_axes
def convergence(ax: Axes, curves: Mapping[str, Sequence[Sequence[float]]], *, every: int = 1) -> Axes:
    """Loss over epochs, one colour for each kind of network, one line for each run (fig:noisy-threes, right).

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = radnet.plots.convergence(matplotlib.figure.Figure().subplots(), {"radial": [[1, 0.1]], "ReLU": [[1, 0.3]]})
    >>> len(ax.lines), ax.get_yscale()
    (2, 'log')
    """
    styles = ("-", "--", "-.", ":")
    for k, (name, runs) in enumerate(curves.items()):
        for i, losses in enumerate(runs):
            epochs = 1 + every * np.arange(len(losses))
            ax.plot(epochs, losses, styles[k % 4], color=f"C{k}", lw=1.2, alpha=0.8, label=name if i == 0 else None)
    ax.set_yscale("log")
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss")
    if curves:
        ax.legend(frameon=False)
    return ax


@on_axes
def heat(
    ax: Axes, values: Any, *, rows: Sequence[str], columns: Sequence[str], low: float = 0, high: float = 1
) -> Axes:
    """A table of numbers with colours behind them.

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = radnet.plots.heat(matplotlib.figure.Figure().subplots(), [[0.1, 0.9]], rows=["a"], columns=["2", "16"])
    >>> [text.get_text() for text in ax.texts]
    ['0.10', '0.90']
    """
    table = np.asarray(values, dtype=float)
    if table.shape != (len(rows), len(columns)):
        raise InvalidValue(f"heat: values of shape {table.shape} for {len(rows)} rows and {len(columns)} columns")
    image = ax.imshow(table, cmap="RdYlBu_r", vmin=low, vmax=high, aspect="auto")
    for i, j in np.ndindex(*table.shape):
        r, g, b, _ = image.cmap(image.norm(table[i, j]))
        ink = "black" if 0.3 * r + 0.6 * g + 0.1 * b > 0.45 else "white"
        ax.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", color=ink, fontsize="small")
    ax.set_xticks(range(len(columns)), list(columns))
    ax.set_yticks(range(len(rows)), list(rows))
    ax.tick_params(length=0)
    return ax


@on_axes
def bars(ax: Axes, groups: Sequence[str], values: Mapping[str, Sequence[tuple[float, float]]]) -> Axes:
    """Groups of bars with their deviations.

    Examples
    --------
    >>> import radnet, matplotlib.figure
    >>> ax = matplotlib.figure.Figure().subplots()
    >>> ax = radnet.plots.bars(ax, ["ball", "discs"], {"radial": [(0.97, 0.01), (0.88, 0.01)]})
    >>> [round(float(bar.get_height()), 2) for bar in ax.patches]
    [0.97, 0.88]
    """
    for name, pairs in values.items():
        if len(pairs) != len(groups):
            raise InvalidValue(f"bars: {name} has {len(pairs)} values for {len(groups)} groups")
    width = 0.8 / max(len(values), 1)
    for k, (name, pairs) in enumerate(values.items()):
        x = np.arange(len(groups)) + (k - (len(values) - 1) / 2) * width
        ax.bar(
            x,
            [mean for mean, _ in pairs],
            0.92 * width,
            yerr=[std for _, std in pairs],
            color=f"C{k}",
            label=name,
            error_kw={"lw": 1, "ecolor": "0.4"},
        )
    ax.set_xticks(range(len(groups)), list(groups))
    if values:
        ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
    return ax
