"""The training loop: any model, loss and optimizer; targets, checkpoints, resume, several processes.

Paper: "Experiments" trains until a loss is reached, or for a number of epochs. A run that is killed and started again
with the same call goes on from its newest checkpoint and ends with the same bits as one that was never stopped.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..checks import check_count, check_kind, check_number, check_path
from ..errors import Diverged, InvalidType, InvalidValue
from ..network import RadNet
from .bar import bar
from .batches import Loss, Pair, batches_of, check_is_loss, check_loss, check_shapes, generator_of, tensors_of
from .checkpoints import Progress
from .keeping import Due, Keeper
from .losses import is_mse, mse_in_one_pass
from .processes import World
from .result import FitResult
from .schedules import Scheduler
from .validating import Validation


def fit(
    model: nn.Module,
    data: Pair | Iterable[Pair],
    *,
    epochs: int,
    optimizer: Optimizer,
    loss: Loss = nn.functional.mse_loss,
    target: float | None = None,
    max_seconds: float | None = None,
    validation: Pair | Iterable[Pair] | None = None,
    patience: int | None = None,
    scheduler: Scheduler | None = None,
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
    validation : (inputs, targets), or an iterable of such pairs, optional
        Held-out data. Its loss is measured after every epoch, in evaluation mode, and the model ends with the weights
        at which it was smallest.
    patience : int, optional
        Stop after so many epochs in which the loss on the validation data got no smaller.
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
    _check_others(loss, target, max_seconds, checkpoint)
    _check_patience(patience, validation is not None)
    world = World.current()
    keeper = Keeper(checkpoint, model, optimizer, scheduler, generator_of(data), writes=world.rank == 0)
    batches = batches_of(data, model)
    held_out = None if validation is None else Validation(model, validation, loss, patience)
    if held_out is not None:
        held_out.check()
    with keeper.at_work():
        done = keeper.resume(validates=held_out is not None)
        forward = world.wrap(model)
        due = Due(every, every_seconds)
        start = time.monotonic()
        reason = _reason(done, target, held_out)
        with bar(progress if world.rank == 0 else False, epochs, done.epoch) as tick:
            while done.epoch < epochs and reason == "epochs":
                value = _epoch(forward, model, batches, optimizer, loss, world, done.epoch + 1)
                done.rates.append(float(optimizer.param_groups[0]["lr"]))
                done.losses.append(value)
                if held_out is not None:
                    value = held_out.measure(done)
                _next_rate(scheduler, value)
                tick(value)
                reason = _reason(done, target, held_out)
                if (
                    reason == "epochs"
                    and max_seconds is not None
                    and world.agree(time.monotonic() - start >= max_seconds)
                ):
                    reason = "time"
                if due.now(done.epoch):
                    keeper.keep(done)
        keeper.keep(done)
        world.barrier()
    if done.best:
        model.load_state_dict(done.best)
    return FitResult(reason, tuple(done.losses), tuple(done.rates), time.monotonic() - start, tuple(done.validation))


def _epoch(
    forward: nn.Module,
    model: nn.Module,
    batches: Iterable[Pair],
    optimizer: Optimizer,
    loss: Loss,
    world: World,
    epoch: int,
) -> float:
    """One pass over the data; returns the mean loss over its rows, as it was before each step."""
    total, rows = 0.0, 0
    for x, y in tensors_of(batches, model):
        share_x, share_y = world.share(x), world.share(y)
        optimizer.zero_grad()
        # gradients are averaged over the processes: weighted so, that is the gradient on the joint batch
        value = _loss(forward, share_x, share_y, loss, check=rows == 0) * (len(share_x) * world.size / len(x))
        number = world.mean(float(value.detach()))
        if not math.isfinite(number):
            raise Diverged(f"epoch {epoch}: the loss is {number}; {_where_it_exploded(model, x)}")
        value.backward()
        optimizer.step()
        total, rows = total + number * len(x), rows + len(x)
    if rows == 0:
        raise InvalidValue(f"epoch {epoch}: the data gave no rows; is it empty, or a generator, which gives them once?")
    return total / rows


def _loss(forward: nn.Module, x: Tensor, y: Tensor, loss: Loss, *, check: bool) -> Tensor:
    at_once = mse_in_one_pass(forward, x, y) if is_mse(loss) else None
    if at_once is not None:
        return at_once
    outputs = forward(x)
    if check:
        check_shapes(loss, outputs, y)
    value = loss(outputs, y)
    if check:
        check_loss(value)
    return value


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


def _reason(done: Progress, target: float | None, held_out: Validation | None) -> str:
    """Why a run ends here: "epochs" as long as nothing but their number ends it."""
    if target is not None and done.losses and done.losses[-1] <= target:
        return "target"
    return "patience" if held_out is not None and held_out.has_given_up(done) else "epochs"


def _next_rate(scheduler: Scheduler | None, value: float) -> None:
    """One step of the scheduler, which may want to know the loss."""
    if scheduler is None:
        return
    told = (value,) if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) else ()
    try:
        scheduler.step(*told)
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"the scheduler {type(scheduler).__name__} refuses to go on: {error}") from error


def _check_others(loss: Loss, target: float | None, max_seconds: float | None, checkpoint: object) -> None:
    check_is_loss(loss)
    if checkpoint is not None:
        check_path(checkpoint)
    if target is not None:
        check_number("target", target)
    if max_seconds is not None and not check_number("max_seconds", max_seconds) >= 0:
        raise InvalidValue(f"max_seconds={max_seconds!r}: must be at least 0")


def _check_patience(patience: int | None, validates: bool) -> None:
    if patience is None:
        return
    check_count("patience", patience)
    if patience < 1 or not validates:
        raise InvalidValue(
            f"patience={patience!r}: needs at least 1 epoch, and validation=(inputs, targets) to look at"
        )


def _check_arguments(
    model: nn.Module, epochs: int, optimizer: Optimizer, every: int | None, every_seconds: float | None
) -> None:
    check_kind(model, nn.Module, "fit needs a module")
    check_kind(optimizer, Optimizer, "fit needs a torch optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidType("LBFGS evaluates the loss several times a step, which fit does not do; use Adam or SGD")
    check_count("epochs", epochs)
    for name, value in (("every", every), ("every_seconds", every_seconds)):
        if value is not None and not value > 0:
            raise InvalidValue(f"{name}={value!r}: must be positive")
    own = {id(p) for p in model.parameters()}
    if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
        raise InvalidValue("the optimizer holds parameters of another model; build it from model.parameters()")
