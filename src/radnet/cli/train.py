"""`radnet train`: from a table of data to a network in a file, trained wide and shipped small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidValue
from ..wording import counted
from .options import Force, Json, Quiet
from .output import check_output, print_json

if TYPE_CHECKING:
    from ..network import RadNet
    from ..training.learning import Learned


def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table: .csv, .npz or .parquet.")],
    target: Annotated[str, typer.Option(help="The column that is to be predicted; several separated by commas.")],
    out: Annotated[str, typer.Option(help="Where to write the network.")] = "model.safetensors",
    inputs: Annotated[
        str | None, typer.Option(help="The columns to predict from, separated by commas; by default all others.")
    ] = None,
    classify: Annotated[bool, typer.Option("--classify", help="The target holds labels of classes.")] = False,
    hidden: Annotated[str, typer.Option(help="Hidden widths, separated by commas.")] = "64,64",
    activation: Annotated[str, typer.Option(help="step_relu, squash, shifted_relu, sigmoid.")] = "squash",
    epochs: Annotated[int, typer.Option(help="At most so many.", min=1)] = 1000,
    patience: Annotated[
        int, typer.Option(help="Stop after so many epochs without a smaller loss on the rows held out.", min=1)
    ] = 100,
    rate: Annotated[float | None, typer.Option(help="Learning rate; by default one is looked for.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the rows to judge by.")] = 0.2,
    seed: Annotated[int, typer.Option(help="For weights, batches and the rows held out.", min=0, max=2**63 - 1)] = 0,
    keep_wide: Annotated[bool, typer.Option("--keep-wide", help="Write the network as it was trained.")] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a network on a table; the small network that is the same function is written."""
    check_output(out, force)
    from ..compression import CERTIFICATE_ROWS, compress
    from ..files import save
    from ..tables import read_table
    from ..training.learning import choose_columns, learn

    table = read_table(data)
    read = None if inputs is None else _names(inputs, "--inputs")
    columns = choose_columns(table, _names(target, "--target"), read, classify)
    learned = learn(
        table,
        columns,
        hidden=_widths(hidden),
        activation=activation,
        epochs=epochs,
        rate=rate,
        held_out=held_out,
        patience=patience,
        seed=seed,
        progress=False if quiet else None,
    )
    c = None if keep_wide else compress(learned.trained, learned.scaled[:CERTIFICATE_ROWS])
    network = learned.network if c is None else learned.folded(c.network)
    measured, before = (None, None) if c is None else (c.certificate.for_file(), c.original.widths)
    save(network, out, certificate=measured, before=before, columns=columns.to_dict())
    answer = {"file": out, **columns.to_dict(), **learned.to_dict(), **_sizes(learned.network, network)}
    print_json(answer) if as_json else typer.echo(_told(learned, network, out))


def _sizes(wide: RadNet, network: RadNet) -> dict[str, object]:
    both = (wide, network)
    return {"widths": [list(n.widths) for n in both], "parameters": [n.parameter_count for n in both]}


def _told(learned: Learned, network: RadNet, out: str) -> str:
    """The answer for people."""
    wide, result, aside = learned.network, learned.result, learned.held_out
    sizes = f"{wide.parameter_count:,} -> {network.parameter_count:,} parameters"
    judged = f"on {counted(aside, 'row')} held out" if aside else "on the rows it was trained on"
    if learned.columns.classes is None:
        score = f"{learned.score:.4g} root mean square error {judged}; the mean of the target {learned.baseline:.4g}"
    else:
        score = f"{learned.score:.1%} right {judged}; the commonest class {learned.baseline:.1%}"
    rows = {
        "rows": f"{learned.rows:,} to train on, {aside:,} held out",
        "epochs": f"{result.epochs:,}, the best {result.best_epoch:,}, learning rate {learned.rate:.2g}",
        "score": score,
        "network": f"{wide.widths} -> {network.widths}, {sizes}",
        "written to": out,
    }
    return "\n".join(f"{name:<12}{text}" for name, text in rows.items())


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise InvalidValue(f"{option} {text!r}: expected names of columns, separated by commas")
    return names


def _widths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InvalidValue(f"--hidden {text!r}: expected whole numbers, for example 64,64") from error
