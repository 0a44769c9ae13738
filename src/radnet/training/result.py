"""How a training run ended, and its history as a table."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidValue
from ..writing import write_atomically


@dataclass(frozen=True)
class FitResult:
    """How a run ended.

    Attributes
    ----------
    reason : str
        "target" (reached), "patience" (the loss on the validation data got no smaller), "epochs" or "time" (used up
        first).
    losses, rates : tuple of float
        Loss and learning rate of every epoch, those before a resume included.
    seconds : float
        Of this call alone.
    validation : tuple of float
        Loss on the validation data after every epoch; empty without such data.
    """

    reason: str
    losses: tuple[float, ...]
    rates: tuple[float, ...]
    seconds: float
    validation: tuple[float, ...] = ()

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, whose weights the model has: that of the smallest validation loss, or the last."""
        return 1 + self.validation.index(min(self.validation)) if self.validation else self.epochs

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return self.reason == "target"

    @property
    def epochs(self) -> int:
        """Epochs done, those before a resume included."""
        return len(self.losses)

    @property
    def loss(self) -> float:
        """Loss of the last epoch."""
        return self.losses[-1]

    def save_history(self, path: str | os.PathLike[str]) -> None:
        """Write the history as a table: .csv, or .json with the reason and the time."""
        columns = {"epoch": range(1, self.epochs + 1), "loss": self.losses, "rate": self.rates}
        if self.validation:
            columns["validation"] = self.validation
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        if Path(path).suffix == ".json":
            data = {"reason": self.reason, "seconds": self.seconds, "history": rows}
            text = json.dumps(data, indent=1) + "\n"
        elif Path(path).suffix == ".csv":
            buffer = io.StringIO()
            writer = csv.DictWriter(buffer, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            text = buffer.getvalue()
        else:
            raise InvalidValue(f"{path}: a history is written as .csv or .json")
        write_atomically(path, text.encode())
