"""Axes of matplotlib's to draw on: those that are given, or new ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, cast, overload

from .backend import matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")


class Drawing(Protocol[P]):
    """A function that draws on the Axes it is given first, and without them on new ones."""

    __name__: str

    @overload
    def __call__(self, ax: Axes, /, *args: P.args, **kwargs: P.kwargs) -> Axes: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Axes: ...


def new_axes(*, shown: bool = True) -> Axes:
    """Axes on a figure of their own; one that pyplot knows of, and a notebook shows, unless it is not to be shown."""
    if shown:
        axes: Axes = matplotlib("pyplot").subplots(layout="constrained")[1]
        return axes
    figure: Figure = matplotlib("figure").Figure(layout="constrained")
    return figure.subplots()


def on_axes(draw: Callable[Concatenate[Axes, P], Axes]) -> Drawing[P]:
    """Let a function that draws on Axes make its own where it is given none.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import radnet
    >>> radnet.plots.network_diagram((2, 3, 1)).get_title()
    '(2, 3, 1): 13 parameters'
    """

    @functools.wraps(draw)
    def drawn(*args: object, **kwargs: object) -> Axes:
        given = "ax" in kwargs or (args and hasattr(args[0], "get_figure"))
        return draw(*(args if given else (new_axes(), *args)), **kwargs)  # type: ignore[arg-type]

    return cast("Drawing[P]", drawn)
