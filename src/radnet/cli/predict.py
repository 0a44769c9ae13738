"""`radnet predict`: what a network in a file makes of the rows of a table."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidType, InvalidValue
from ..wording import counted
from .options import Force, Json, Quiet
from .output import check_output, print_json
from .progress import working

if TYPE_CHECKING:
    from ..tables import Table
    from ..training.learning import Columns


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A network (.safetensors).")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table: .csv, .npz or .parquet.")],
    out: Annotated[str | None, typer.Option(help="A .csv file; by default predictions go to stdout.")] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict for each row of a table. A network from `radnet train` finds its columns by their names."""
    if out is not None:
        check_output(out, force)
    with working(f"predicting {data}", quiet):
        import torch

        from ..files import header_of
        from ..network import RadNet
        from ..saving import load
        from ..tables import read_table
        from ..training.learning import Columns
        from ..writing import write_atomically

        network = load(model)
        if not isinstance(network, RadNet):
            raise InvalidType(f"{model}: holds an approximation; predict needs a network")
        columns = Columns.of_header(header_of(model, "radnet").get("columns"), network, model)
        table = read_table(data)
        names = _read(table, columns, network.widths[0])
        x = torch.from_numpy(table.numbers(names)).to(network.weights[0])
        beyond = (~x.isfinite()).nonzero().tolist()
        if beyond:
            row, k = beyond[0]
            raise table.error(row, names[k], f"is beyond the range of {x.dtype}, in which the network computes")
        with torch.no_grad():
            y = torch.cat([network(part) for part in x.split(65_536)])
        names, rows = _answers(y.tolist(), columns)
    text = _as_csv(names, rows)
    if out is not None:
        write_atomically(out, text.encode())
    if as_json:
        print_json({"columns": names, "rows": len(rows), **({"file": out} if out else {"predictions": rows})})
    else:
        typer.echo(f"{counted(len(rows), 'row')} written to {out}" if out is not None else text, nl=out is not None)


def _read(table: Table, columns: Columns | None, width: int) -> list[str]:
    """The names of the columns that the network reads."""
    from ..reading import some_of

    if columns is not None and (table.named or (len(table.names) != width and set(columns.inputs) <= set(table.names))):
        return list(columns.inputs)
    if len(table.names) != width:
        reads = "" if columns is None else f" ({some_of(columns.inputs)})"
        raise InvalidValue(
            f"{table.path}: has {len(table.names)} columns, the network reads {width}{reads}; give those alone, or a "
            "first row with the names"
        )
    return table.names


def _answers(y: list[list[float]], columns: Columns | None) -> tuple[list[str], list[list[object]]]:
    if columns is None:
        return [f"y{k}" for k in range(1, len(y[0]) + 1)], [list(row) for row in y]
    if columns.classes is None:
        return list(columns.targets), [list(row) for row in y]
    labels: list[list[object]] = [[columns.classes[max(range(len(row)), key=row.__getitem__)]] for row in y]
    return list(columns.targets), labels


def _as_csv(names: list[str], rows: list[list[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return buffer.getvalue()
