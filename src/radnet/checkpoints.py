"""Checkpoints of a training run: model, optimizer, scheduler, generator and history in one safetensors file.

The same rules as for networks (`radnet.files`): a JSON header with a version, atomic writes, no pickle. Floats go
through JSON and back without losing a bit.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.optim import Optimizer

from .errors import InvalidValue
from .files import open_safetensors, write_atomically

FORMAT = 1
_KEY = "radnet-checkpoint"


@dataclass
class Progress:
    """Where a run stands: epochs done, and the loss and learning rate of each of them."""

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.losses)


def write_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: Optimizer,
    progress: Progress,
    *,
    scheduler: Any = None,
    generator: torch.Generator | None = None,
) -> None:
    """Write everything a run needs to go on as if it had never stopped."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    state = optimizer.state_dict()
    header: dict[str, Any] = {
        "format": FORMAT,
        "epoch": progress.epoch,
        "groups": state["param_groups"],
        "numbers": {},
        "scheduler": None if scheduler is None else _plain(scheduler.state_dict(), "the scheduler"),
    }
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                header["numbers"][f"{index}.{key}"] = value
    tensors["history.losses"] = torch.tensor(progress.losses, dtype=torch.float64)
    tensors["history.rates"] = torch.tensor(progress.rates, dtype=torch.float64)
    if generator is not None:
        tensors["generator"] = generator.get_state()
    text = json.dumps(_plain(header, "the optimizer"))
    # copies, since parameters may share storage (tied weights), which a safetensors file cannot
    write_atomically(
        path, to_bytes({k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}, {_KEY: text})
    )


def read_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: Optimizer,
    *,
    scheduler: Any = None,
    generator: torch.Generator | None = None,
) -> Progress:
    """Put a run back to where its checkpoint stands; nothing is changed unless everything fits.

    Raises
    ------
    InvalidValue
        If the file is damaged, of another version, or of a model with other parameters.
    """
    with open_safetensors(path) as file:
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise InvalidValue(f"{path}: not a radnet checkpoint")
        header = json.loads(text)
        if header.get("format") != FORMAT:
            raise InvalidValue(f"{path}: checkpoint format {header.get('format')!r}; this radnet reads {FORMAT}")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    _check_fits(path, weights, model.state_dict())
    groups = header["groups"]
    own = optimizer.state_dict()["param_groups"]
    if [len(g["params"]) for g in groups] != [len(g["params"]) for g in own]:
        raise InvalidValue(f"{path}: the checkpoint is of an optimizer with other parameter groups")
    if (generator is None) != ("generator" not in tensors) or (scheduler is None) != (header["scheduler"] is None):
        raise InvalidValue(
            f"{path}: the run was started with another generator or scheduler; resume it as it was started"
        )
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    for name, value in header["numbers"].items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    model.load_state_dict(weights)
    optimizer.load_state_dict({"state": state, "param_groups": [_tuples(group) for group in groups]})
    if scheduler is not None:
        scheduler.load_state_dict(header["scheduler"])
    if generator is not None:
        generator.set_state(tensors["generator"])
    return Progress(tensors["history.losses"].tolist(), tensors["history.rates"].tolist())


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete the temporary files of writes that were cut off."""
    target = Path(path)
    for leftover in target.parent.glob(f".{target.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _check_fits(path: Any, weights: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    if set(weights) != set(own):
        odd = ", ".join(sorted(set(weights) ^ set(own)))
        raise InvalidValue(f"{path}: the checkpoint is of another model (different parameters: {odd})")
    for name, value in own.items():
        if weights[name].shape != value.shape:
            raise InvalidValue(
                f"{path}: the checkpoint is of other widths: {name} has shape {tuple(weights[name].shape)}, "
                f"the model needs {tuple(value.shape)}"
            )


def _plain(value: Any, what: str) -> Any:
    """The value if it is plain data; anything else cannot be stored without pickle."""
    try:
        json.dumps(value)
    except TypeError as error:
        raise InvalidValue(f"{what} has state that is not plain data and cannot be checkpointed ({error})") from error
    return value


def _tuples(group: dict[str, Any]) -> dict[str, Any]:
    """JSON makes lists of tuples; optimizers expect tuples (betas), and a list of parameters."""
    return {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
