"""Checkpoints of a training run: model, optimizer, scheduler, generator and history in one safetensors file.

The same rules as for networks (`radnet.files`): a JSON header with a version, atomic writes, no pickle. Floats go
through JSON and back without losing a bit.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import InvalidValue
from ..reading import FLOATS, Header, Layout, check_fits, pack, part_of, reading, some_of, unpack
from ..writing import write_atomically
from .schedules import Scheduler, check_schedule

FORMAT = 3  # 1 had no checksum and no state of torch's global generators, 2 no validation
_KEY = "radnet-checkpoint"
#: how the names of tensors begin
_PARTS = ("model", "optimizer", "history", "generator", "random", "best")
_NO_HISTORY = "{}: the history of losses and rates is missing or damaged"

Path = str | os.PathLike[str]
#: the state of an optimizer, as torch has it
State = dict[str, Any]
PlainT = TypeVar("PlainT")


@dataclass
class Progress:
    """Where a run stands: epochs done, the loss and learning rate of each of them; with validation its loss too.

    ``best`` are the weights after the epoch with the smallest loss on the validation data.
    """

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.losses)

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, after which the loss on the validation data was smallest."""
        return 1 + self.validation.index(min(self.validation))


def write_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    progress: Progress,
    *,
    scheduler: Scheduler | None = None,
    generator: torch.Generator | None = None,
    began: Mapping[str, Tensor] | None = None,
) -> None:
    """Write everything a run needs to go on as if it had never stopped.

    ``began`` are the `random_states` with which it began: torch's global generators are part of it if it has drawn from
    them since, as dropout does.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    state = optimizer.state_dict()
    header: Header = {
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
    if progress.validation:
        tensors["history.validation"] = torch.tensor(progress.validation, dtype=torch.float64)
        tensors |= {f"best.{name}": value for name, value in progress.best.items()}
    if generator is not None:
        tensors["generator"] = generator.get_state()
    now = random_states(model)
    if began is not None and any(not torch.equal(now[device], value) for device, value in began.items()):
        tensors |= {f"random.{device}": value for device, value in now.items()}
    write_atomically(path, pack(tensors, _KEY, _plain(header, "the optimizer")))


def read_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    *,
    scheduler: Scheduler | None = None,
    generator: torch.Generator | None = None,
    validates: bool | None = None,
) -> Progress:
    """Put a run back to where its checkpoint stands; nothing is changed unless everything fits.

    ``validates``: whether the run has validation data, if that is to be compared.

    Raises
    ------
    InvalidValue
        If the file is damaged, of another version, or of a model with other parameters.
    """
    with reading(path):
        announced = partial(
            _check_announced, path, model=model, optimizer=optimizer, scheduler=scheduler, generator=generator
        )
        header, tensors = unpack(path, _KEY, FORMAT, "not a radnet checkpoint", announced)
        progress = _history(path, tensors)
        if validates is not None and progress.epoch and validates != bool(progress.validation):
            with_or_not = "with" if progress.validation else "without"
            raise InvalidValue(
                f"{path}: the run was started {with_or_not} validation data; resume it as it was started"
            )
        weights = part_of(tensors, "model")
        for name, value in model.state_dict().items():
            check_fits(weights[name], value, f"{path}: {name}")
            if progress.best:
                check_fits(progress.best[name], value, f"{path}: best.{name}")
        state = _optimizer_state(path, header, part_of(tensors, "optimizer"), optimizer)
        if scheduler is not None:
            _check_alike(header["scheduler"], scheduler.state_dict(), f"{path}: the scheduler")
            check_schedule(path, scheduler, header["scheduler"], optimizer, state["param_groups"])
        if generator is not None:
            _check_random(path, tensors["generator"], generator.device)
        random = part_of(tensors, "random")
        for device, value in random.items():
            _check_random(path, value, torch.device(device))
        # from here on nothing can fail
        optimizer.load_state_dict(state)  # first: it takes memory, and what follows is copied in place
        model.load_state_dict(weights)
        if scheduler is not None:
            scheduler.load_state_dict(header["scheduler"])
        if generator is not None:
            generator.set_state(tensors["generator"])
        for device, value in random.items():
            _set_random_state(device, value)
    return progress


# --- what torch's global generators have got to; dropout draws from them


def cuda_devices(model: nn.Module) -> list[int]:
    """The devices besides the CPU that a model is on."""
    return sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})


def random_states(model: nn.Module) -> dict[str, Tensor]:
    """The states of the global generators that a model may draw from, by device."""
    return {"cpu": torch.get_rng_state()} | {f"cuda:{i}": torch.cuda.get_rng_state(i) for i in cuda_devices(model)}


def _set_random_state(device: str, state: Tensor) -> None:
    if device == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)


def _check_random(path: Path, state: Tensor, device: torch.device) -> None:
    try:
        torch.Generator(device).set_state(state)
    except (RuntimeError, TypeError) as error:
        raise InvalidValue(f"{path}: the state of a random generator is damaged ({error})") from error


# --- checks


def _check_announced(
    path: Path,
    header: Header,
    found: Mapping[str, Layout],
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: Scheduler | None,
    generator: torch.Generator | None,
) -> None:
    """The tensors in the file, none of which was read yet, against the header and the run that is to go on."""
    history = part_of(found, "history")
    if history.keys() - {"validation"} != {"losses", "rates"} or any(
        x.dtype != torch.float64 or len(x.shape) != 1 for x in history.values()
    ):
        raise InvalidValue(_NO_HISTORY.format(path))
    if any(x.shape != (header.get("epoch"),) for x in history.values()):
        raise InvalidValue(f"{path}: the history does not have as many epochs as the header says")
    _check_weights(path, part_of(found, "model"), model.state_dict())
    if "validation" in history:
        _check_weights(path, part_of(found, "best"), model.state_dict())
    elif part_of(found, "best"):
        raise InvalidValue(f"{path}: it holds the best weights of a run without validation; it is damaged")
    if (generator is None) != ("generator" not in found) or (scheduler is None) != (header.get("scheduler") is None):
        raise InvalidValue(
            f"{path}: the run was started with another generator or scheduler; resume it as it was started"
        )
    _check_optimizer(path, header, part_of(found, "optimizer"), optimizer)
    random, devices = part_of(found, "random"), random_states(model)
    if random and random.keys() != devices.keys():
        raise InvalidValue(f"{path}: the run was on other devices ({some_of(random)}); resume it where it was started")
    states = [(x, devices[device]) for device, x in random.items()]
    if generator is not None:
        states.append((found["generator"], generator.get_state()))
    if any(x.dtype != own.dtype or x.shape != tuple(own.shape) for x, own in states):
        raise InvalidValue(f"{path}: the state of a random generator is damaged (it is of another kind or size)")
    odd = [name for name in found if name.partition(".")[0] not in _PARTS]
    if odd:
        raise InvalidValue(f"{path}: it holds {some_of(odd)}, which is no part of a checkpoint")


def _history(path: Path, tensors: dict[str, Tensor]) -> Progress:
    found = part_of(tensors, "history")
    if not all(bool(x.isfinite().all()) for x in found.values()):
        raise InvalidValue(_NO_HISTORY.format(path))
    validation = found["validation"].tolist() if "validation" in found else []
    return Progress(found["losses"].tolist(), found["rates"].tolist(), validation, part_of(tensors, "best"))


def _check_weights(path: Path, weights: Mapping[str, Layout], own: dict[str, Tensor]) -> None:
    if set(weights) != set(own):
        odd = some_of(set(weights) ^ set(own))
        raise InvalidValue(f"{path}: the checkpoint is of another model (different parameters: {odd})")
    for name, value in own.items():
        if weights[name].shape != tuple(value.shape):
            raise InvalidValue(
                f"{path}: the checkpoint is of other widths: {name} has shape {weights[name].shape}, "
                f"the model needs {tuple(value.shape)}"
            )
        if weights[name].dtype != value.dtype:
            raise InvalidValue(f"{path}: {name} is {weights[name].dtype}; the model has {value.dtype}")


def _check_optimizer(path: Path, header: Header, moments: Mapping[str, Layout], optimizer: Optimizer) -> None:
    """Groups and settings like those of the optimizer, and a parameter for every part of the state."""
    own, groups = optimizer.state_dict()["param_groups"], header.get("groups")
    if not isinstance(groups, list) or [_size(g) for g in groups] != [len(g["params"]) for g in own]:
        raise InvalidValue(f"{path}: the checkpoint is of an optimizer with other parameter groups")
    _check_alike([_tuples(g) for g in groups], own, f"{path}: the optimizer")
    parameters = dict(
        zip(
            (str(i) for group in own for i in group["params"]),
            (p for group in optimizer.param_groups for p in group["params"]),
            strict=True,
        )
    )
    for name in (*moments, *_numbers(header)):
        index, _, key = name.partition(".")
        if not key or index not in parameters:
            raise InvalidValue(f"{path}: the state of the optimizer has a part {name!r}, which belongs to no parameter")
        if name in moments:
            _check_moment(path, name, moments[name], parameters[index])


def _optimizer_state(path: Path, header: Header, tensors: dict[str, Tensor], optimizer: Optimizer) -> State:
    """The state of an optimizer, once a copy of it has taken a step from there."""
    state: dict[int, State] = {}
    for name, value in (*tensors.items(), *_numbers(header).items()):
        index, _, key = name.partition(".")
        if isinstance(value, Tensor) and value.dtype in FLOATS and not bool(value.isfinite().all()):
            raise InvalidValue(f"{path}: optimizer.{name} holds NaN or infinite values")
        state.setdefault(int(index), {})[key] = value
    found = {"state": state, "param_groups": [_tuples(group) for group in header["groups"]]}
    try:
        _try_a_step(optimizer, found)
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidValue(
            f"{path}: the optimizer cannot go on from the state in the file ({type(error).__name__}: {error})"
        ) from error
    return found


def _numbers(header: Header) -> State:
    """What the state of the optimizer has besides tensors."""
    numbers = header.get("numbers")
    return numbers if isinstance(numbers, dict) else {}


def _size(group: object) -> int:
    return len(group["params"]) if isinstance(group, dict) and isinstance(group.get("params"), list) else -1


def _check_moment(path: Path, name: str, value: Layout, p: Tensor) -> None:
    """A number, or a tensor of the parameter's shape, in which some axes may have length 1."""
    fits = math.prod(value.shape) == 1 or (
        len(value.shape) == p.ndim and all(a in (1, b) for a, b in zip(value.shape, p.shape, strict=True))
    )
    if not fits:
        raise InvalidValue(f"{path}: optimizer.{name} has shape {value.shape}, its parameter {tuple(p.shape)}")
    if value.dtype not in FLOATS and value.dtype not in (torch.int64, torch.int32, torch.bool):
        raise InvalidValue(f"{path}: optimizer.{name} is {value.dtype}; that is no state of an optimizer")


def _try_a_step(optimizer: Optimizer, state: State) -> None:
    """Let a copy of the optimizer take a step, from copies of the parameters, with gradients of zero."""
    twin = copy.deepcopy(optimizer)
    twin.load_state_dict(copy.deepcopy(state))
    for group in twin.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    twin.step()


def _check_alike(found: object, own: object, what: str) -> None:
    """The same names and kinds of values: numbers for numbers, lists of as many for lists."""
    if isinstance(own, dict) and isinstance(found, dict):
        if {str(key) for key in found} != {str(key) for key in own}:
            raise InvalidValue(f"{what} in the file has other settings")
        for key, value in own.items():
            _check_alike(found.get(key, found.get(str(key))), value, f"{what}, {key}")
    elif isinstance(own, list | tuple) and isinstance(found, list | tuple):
        if len(found) == len(own):
            for a, b in zip(found, own, strict=True):
                _check_alike(a, b, what)
    elif _kind(found) != _kind(own) and not (own is None or found is None):
        raise InvalidValue(f"{what} is {found!r} in the file, where {own!r} would fit")


def _kind(value: object) -> str:
    return "number" if isinstance(value, int | float | bool) else type(value).__name__


def _plain(value: PlainT, what: str) -> PlainT:
    """The value if it is plain data; anything else cannot be stored without pickle."""
    try:
        json.dumps(value)
    except TypeError as error:
        raise InvalidValue(f"{what} has state that is not plain data and cannot be checkpointed ({error})") from error
    return value


def _tuples(group: State) -> State:
    """JSON makes lists of tuples; optimizers expect tuples (betas), and a list of parameters."""
    return {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
