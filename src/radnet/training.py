"""The training loop: any model, loss and optimizer; targets, checkpoints, resume, several processes.

Paper: "Experiments" trains until a loss is reached, or for a number of epochs. A run that is killed and started again
with the same call goes on from its newest checkpoint and ends with the same bits as one that was never stopped.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .checkpoints import Progress, cuda_devices, random_states, read_checkpoint, write_checkpoint
from .errors import Diverged, InvalidType, InvalidValue
from .network import RadNet
from .writing import exclusively, remove_leftovers, write_atomically

Batch = tuple[Tensor, Tensor]
Pair = tuple[Tensor | npt.NDArray[np.generic], Tensor | npt.NDArray[np.generic]]
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FitResult:
    """How a run ended.

    Attributes
    ----------
    reason : str
        "target" (reached), "epochs" or "time" (used up first).
    losses, rates : tuple of float
        Loss and learning rate of every epoch, those before a resume included.
    seconds : float
        Of this call alone.
    """

    reason: str
    losses: tuple[float, ...]
    rates: tuple[float, ...]
    seconds: float

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
        rows = [
            {"epoch": i, "loss": a, "rate": b} for i, (a, b) in enumerate(zip(self.losses, self.rates, strict=True), 1)
        ]
        if Path(path).suffix == ".json":
            data = {"reason": self.reason, "seconds": self.seconds, "history": rows}
            text = json.dumps(data, indent=1) + "\n"
        elif Path(path).suffix == ".csv":
            buffer = io.StringIO()
            writer = csv.DictWriter(buffer, ["epoch", "loss", "rate"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            text = buffer.getvalue()
        else:
            raise InvalidValue(f"{path}: a history is written as .csv or .json")
        write_atomically(path, text.encode())


def fit(
    model: nn.Module,
    data: Pair | Iterable[Pair],
    *,
    epochs: int,
    optimizer: Optimizer,
    loss: Loss = nn.functional.mse_loss,
    target: float | None = None,
    max_seconds: float | None = None,
    scheduler: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | None = None,
    every_seconds: float | None = None,
    progress: bool | None = None,
) -> FitResult:
    """Train a model in place, until a target loss, a number of epochs or a time is reached.

    Parameters
    ----------
    model : nn.Module
    data : (inputs, targets), or an iterable of such pairs
        Two tensors are one full batch; a DataLoader gives several batches an epoch. Arrays become tensors on the device
        of the model, floating-point ones in its dtype.
    epochs : int
        At most this many, those before a resume included.
    optimizer : torch.optim.Optimizer
        Over the parameters of the model; a ProjectedOptimizer is one.
    loss : callable
        Of predictions and targets; a mean over rows (several processes rely on that).
    target : float, optional
        Stop after the first epoch whose loss is at most this. Not reaching it is a result, not an error.
    max_seconds : float, optional
        Stop after the epoch in which this call has taken so long.
    scheduler : learning rate scheduler, optional
        Stepped after every epoch.
    checkpoint : path, optional
        Where the run is kept. If the file is there already, the run goes on from it.
    every, every_seconds : optional
        How often it is written (default: every 60 seconds), and at the end.
    progress : bool, optional
        A bar on stderr; by default if stderr is a terminal.

    Returns
    -------
    FitResult

    Raises
    ------
    InvalidValue
        If targets of shape (N,) meet outputs of shape (N, 1), or the other way round, and the loss does not see to it.
    Diverged
        If the loss is not finite: says the epoch and the layer; the last good checkpoint stays.

    Examples
    --------
    >>> import torch, radnet
    >>> from radnet.training import fit
    >>> net = radnet.RadNet((1, 6, 1), activation="sigmoid", generator=torch.Generator().manual_seed(0))
    >>> x = torch.linspace(-3, 3, 50).unsqueeze(1)
    >>> result = fit(net, (x, torch.exp(-x * x)), epochs=200, optimizer=torch.optim.Adam(net.parameters(), lr=0.05),
    ...              target=0.02)
    >>> result.reached
    True
    """
    _check_arguments(model, epochs, optimizer, every, every_seconds)
    world = _World.current()
    generator = _generator_of(data)
    if isinstance(data, tuple) and _is_pair(data):
        data = [_tensors(data, model)]
    extras = {"scheduler": scheduler, "generator": generator}
    with _held(checkpoint if world.rank == 0 else None), _own_chance(model, checkpoint is not None):
        done, began = Progress(), random_states(model)
        if checkpoint is not None and Path(checkpoint).is_file():
            done = read_checkpoint(checkpoint, model, optimizer, **extras)
        forward = world.wrap(model)
        due = _Due(every, every_seconds)
        start = time.monotonic()
        reason = "target" if _reached(done.losses, target) else "epochs"
        with _bar(progress if world.rank == 0 else False, epochs, done.epoch) as tick:
            while done.epoch < epochs and reason == "epochs":
                value = _epoch(forward, model, data, optimizer, loss, world, done.epoch + 1)
                done.rates.append(float(optimizer.param_groups[0]["lr"]))
                done.losses.append(value)
                if scheduler is not None:
                    scheduler.step()
                tick(value)
                if _reached(done.losses, target):
                    reason = "target"
                elif max_seconds is not None and world.agree(time.monotonic() - start >= max_seconds):
                    reason = "time"
                if checkpoint is not None and world.rank == 0 and due.now(done.epoch):
                    write_checkpoint(checkpoint, model, optimizer, done, began=began, **extras)
        if checkpoint is not None and world.rank == 0:
            write_checkpoint(checkpoint, model, optimizer, done, began=began, **extras)
        world.barrier()
    return FitResult(reason, tuple(done.losses), tuple(done.rates), time.monotonic() - start)


@contextmanager
def _held(checkpoint: str | os.PathLike[str] | None) -> Iterator[None]:
    """While this lasts, no other process writes the checkpoint."""
    if checkpoint is None:
        yield
        return
    remove_leftovers(checkpoint)
    with exclusively(checkpoint, f"{checkpoint}: another fit is at work on this checkpoint; wait, or give another"):
        yield


def _own_chance(model: nn.Module, resumable: bool) -> AbstractContextManager[None]:
    """A run that may be resumed draws from torch's global generators, and puts them back when it is done."""
    if not resumable:
        return nullcontext()
    forked: AbstractContextManager[None] = torch.random.fork_rng(devices=cuda_devices(model))
    return forked


def _reached(losses: list[float], target: float | None) -> bool:
    return target is not None and bool(losses) and losses[-1] <= target


def _epoch(
    forward: nn.Module, model: nn.Module, data: Any, optimizer: Optimizer, loss: Loss, world: _World, epoch: int
) -> float:
    """One pass over the data; returns the mean loss over its rows, as it was before each step."""
    total, rows = 0.0, 0
    for x, y in _batches(data, model):
        share_x, share_y = world.share(x), world.share(y)
        optimizer.zero_grad()
        outputs = forward(share_x)
        if rows == 0:
            _check_shapes(loss, outputs, share_y)
        # gradients are averaged over the processes: weighted so, that is the gradient on the joint batch
        value = loss(outputs, share_y) * (len(share_x) * world.size / len(x))
        number = world.mean(float(value.detach()))
        if not math.isfinite(number):
            raise Diverged(f"epoch {epoch}: the loss is {number}; {_where_it_exploded(model, x)}")
        value.backward()
        optimizer.step()
        total, rows = total + number * len(x), rows + len(x)
    if rows == 0:
        raise InvalidValue(f"epoch {epoch}: the data gave no rows; is the loader empty?")
    return total / rows


def _batches(data: Any, model: nn.Module) -> Iterator[Batch]:
    for batch in data:
        yield _tensors(batch, model) if _is_pair(batch) else batch


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(p, Tensor | np.ndarray) for p in data)


def _tensors(pair: Any, model: nn.Module) -> Batch:
    """Tensors as they are; arrays on the device of the model, floating-point ones in its dtype."""
    like = next(model.parameters())

    def tensor(part: Any) -> Tensor:
        if isinstance(part, Tensor):
            return part
        if part.dtype.kind not in "fiub":
            raise InvalidType(f"fit needs arrays of numbers, got one of dtype {part.dtype}")
        copied = torch.from_numpy(np.array(part, order="C"))
        return copied.to(like.device, like.dtype if copied.is_floating_point() else copied.dtype)

    return tensor(pair[0]), tensor(pair[1])


def _check_shapes(loss: Loss, outputs: Any, targets: Any) -> None:
    """Refuse N targets in a row beside N outputs in a column, and the reverse: all would be compared with all."""
    a, b = (tuple(getattr(part, "shape", ())) for part in (outputs, targets))
    n = max(*a, *b, 0)
    if n < 2 or {a, b} != {(n,), (n, 1)} or _row_by_row(loss, outputs, targets):
        return
    how = "targets.unsqueeze(1)" if len(a) == 2 else "targets.squeeze(1)"
    raise InvalidValue(
        f"the outputs have shape {a}, the targets {b}: the loss would compare each output with all targets; "
        f"give fit targets of shape {a}, for example {how}"
    )


def _row_by_row(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether a loss of two rows is the mean of their losses, for rows of these shapes and targets that are met."""
    row = torch.arange(2, device=outputs.device)
    a, b = (row.to(like.dtype).reshape(-1, *like.shape[1:]) for like in (outputs, targets))
    try:
        alone = [float(loss(a[i : i + 1], b[i : i + 1])) for i in range(2)]
        return math.isclose(float(loss(a, b)), sum(alone) / 2, rel_tol=1e-2, abs_tol=1e-6)
    except Exception:
        return False


@torch.no_grad()
def _where_it_exploded(model: nn.Module, x: Tensor) -> str:
    """The first layer whose parameters or outputs are not finite, else the one with the largest norm."""
    for name, p in model.named_parameters():
        if not bool(p.isfinite().all()):
            return f"{name} is not finite any more; lower the learning rate"
    if not isinstance(model, RadNet):
        return "all parameters are still finite; lower the learning rate"
    norms = [float(F.double().norm(dim=-1).max()) for F in model.partial(x)[1:]]
    worst = max(range(len(norms)), key=lambda i: math.inf if math.isnan(norms[i]) else norms[i])
    return f"layer {worst + 1} has norms up to {norms[worst]:.3g}; lower the learning rate"


def _check_arguments(model: Any, epochs: Any, optimizer: Any, every: Any, every_seconds: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidType(f"fit needs a module, got {type(model).__name__}")
    if not isinstance(optimizer, Optimizer):
        raise InvalidType(f"fit needs a torch optimizer, got {type(optimizer).__name__}")
    if not isinstance(epochs, int) or epochs < 1:
        raise InvalidValue(f"epochs={epochs!r}: at least 1 is needed")
    for name, value in (("every", every), ("every_seconds", every_seconds)):
        if value is not None and not value > 0:
            raise InvalidValue(f"{name}={value!r}: must be positive")
    own = {id(p) for p in model.parameters()}
    if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
        raise InvalidValue("the optimizer holds parameters of another model; build it from model.parameters()")


def _generator_of(data: Any) -> torch.Generator | None:
    """The generator of its own that shuffles the data, if it has one."""
    generator: torch.Generator | None = getattr(data, "generator", None)
    if generator is None:
        generator = getattr(getattr(data, "sampler", None), "generator", None)
    return generator


class _Due:
    """Whether it is time for a checkpoint."""

    def __init__(self, every: int | None, every_seconds: float | None) -> None:
        self.every = every
        self.every_seconds = 60.0 if every is None and every_seconds is None else every_seconds
        self.last = time.monotonic()

    def now(self, epoch: int) -> bool:
        late = self.every_seconds is not None and time.monotonic() - self.last >= self.every_seconds
        if late or (self.every is not None and epoch % self.every == 0):
            self.last = time.monotonic()
            return True
        return False


@dataclass(frozen=True)
class _World:
    """The processes that train together: one, unless torchrun started several."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> _World:
        distributed = torch.distributed
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or not distributed.is_available():
            return cls()
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(distributed.get_rank(), distributed.get_world_size())

    def wrap(self, model: nn.Module) -> nn.Module:
        return model if self.size == 1 else nn.parallel.DistributedDataParallel(model)

    def share(self, batch: Tensor) -> Tensor:
        """The rows of a batch, which all processes have, that fall to this one."""
        return batch if self.size == 1 else batch[self.rank :: self.size]

    def mean(self, value: float) -> float:
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        torch.distributed.all_reduce(total)
        return float(total) / self.size

    def agree(self, mine: bool) -> bool:
        """Whether any process says so."""
        return mine if self.size == 1 else self.mean(float(mine)) > 0

    def barrier(self) -> None:
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def _bar(wanted: bool | None, total: int, done: int) -> Iterator[Callable[[float], None]]:
    """A bar on stderr with the loss and the pace."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda value: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("loss {task.fields[loss]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, completed=done, loss="-", pace="")

        def tick(value: float) -> None:
            pace = bar.tasks[0].speed
            bar.update(task, advance=1, loss=f"{value:.3e}", pace=f"{pace:.0f} epochs/s" if pace else "")

        yield tick
