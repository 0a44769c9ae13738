"""`radnet plot`: a picture of what is in a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidType, InvalidValue
from .options import Force, FormulaOnly, Function, Quiet
from .output import check_output
from .progress import working

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..approximation import Approximation

_FORMATS = (".svg", ".png", ".pdf")


def plot(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A network, an approximation, or the history of a run (.csv).")
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A .svg, .png or .pdf file.")],
    function: Function = None,
    formula_only: FormulaOnly = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw a network's layers, an approximation beside its function (or its balls), or how a training run went."""
    if Path(out).suffix.lower() not in _FORMATS:
        raise InvalidValue(f"{out}: expected a name that ends in {', '.join(_FORMATS)}")
    check_output(out, force)
    with working(f"drawing {file}", quiet):
        from ..plots.axes import new_axes
        from ..writing import write_atomically

        ax = new_axes(shown=False)
        if Path(file).suffix.lower() == ".csv":
            _history(ax, file)
        else:
            _model(ax, file, function, formula_only)
        buffer = io.BytesIO()
        figure = ax.get_figure(root=True)
        if figure is not None:
            figure.savefig(buffer, format=Path(out).suffix[1:].lower())
        write_atomically(out, buffer.getvalue())
    typer.echo(f"written to {out}")


def _model(ax: Axes, file: str, function: str | None, formula_only: bool) -> None:
    from ..approximation import Approximation
    from ..network import RadNet
    from ..plots import network_diagram
    from ..plots.networks import width_bars
    from ..saving import load

    found = load(file)
    if isinstance(found, Approximation):
        _approximation(ax, found, function, formula_only)
    elif not isinstance(found, RadNet):
        raise InvalidType(f"{file}: holds a {type(found).__name__}; plot draws networks and approximations")
    elif max(found.widths) <= 64 and len(found.widths) <= 12:
        network_diagram(ax, found.widths, bias=found.has_bias)
    else:
        width_bars(ax, found.widths)


def _approximation(ax: Axes, a: Approximation, function: str | None, formula_only: bool) -> None:
    from ..plots import cover, graph
    from .arguments import parse_f

    n, m = a.certificate.widths[0], a.certificate.widths[-1]
    text = function if function is not None else a.formula
    if n == 1 and m == 1 and text is not None:
        graph(ax, a, parse_f(text, formula_only or function is None))
    elif n in (1, 2):
        cover(ax, a)
    else:
        raise InvalidValue(f"an approximation in {n} dimensions cannot be drawn; 1 or 2 can")


def _history(ax: Axes, file: str) -> None:
    from ..tables import read_table

    table = read_table(file)
    try:
        epochs, losses = table.numbers(["epoch", "loss"]).T
        held_out = table.numbers(["validation"])[:, 0] if "validation" in table.names else None
    except (InvalidValue, csv.Error) as error:
        raise InvalidValue(f"{file}: no history of a run, as FitResult.save_history writes one ({error})") from error
    ax.semilogy(epochs, losses, label="training")
    if held_out is not None:
        ax.semilogy(epochs, held_out, label="held out")
        ax.legend(frameon=False)
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss")
