"""Data that is held out: the loss on it after every epoch, the weights at which it was smallest, when to give up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..errors import Diverged, InvalidValue
from .batches import Loss, Pair, batches_of, check_shapes, tensors_of
from .checkpoints import Progress


class Validation:
    """Measures the loss on held-out data, and keeps the best weights in the progress of a run.

    Parameters
    ----------
    model : nn.Module
    data : (inputs, targets), or an iterable of such pairs
    loss : callable
        A mean over rows.
    patience : int, optional
        Epochs without a smaller loss after which a run gives up.
    """

    def __init__(self, model: nn.Module, data: Pair | Iterable[Pair], loss: Loss, patience: int | None) -> None:
        self.model, self.loss, self.patience = model, loss, patience
        self.batches = batches_of(data, model)

    def check(self) -> None:
        """Refuse data that does not fit the model before anything is trained; batches of a loader are left alone."""
        if isinstance(self.batches, list) and self.batches:
            with torch.no_grad(), _evaluating(self.model):
                for x, y in tensors_of(self.batches[:1], self.model):
                    check_shapes(self.loss, self.model(x), y)

    def measure(self, progress: Progress) -> float:
        """The loss after an epoch; it is noted, and so are the weights if none were better."""
        value = self._value(progress.epoch)
        if value < min(progress.validation, default=math.inf):
            progress.best = {name: x.detach().clone() for name, x in self.model.state_dict().items()}
        progress.validation.append(value)
        return value

    def has_given_up(self, progress: Progress) -> bool:
        """Whether the loss has not become smaller for as many epochs as there is patience."""
        if self.patience is None or not progress.validation:
            return False
        return progress.epoch - progress.best_epoch >= self.patience

    @torch.no_grad()
    def _value(self, epoch: int) -> float:
        total, rows = 0.0, 0
        with _evaluating(self.model):
            for x, y in tensors_of(self.batches, self.model):
                outputs = self.model(x)
                if rows == 0:
                    check_shapes(self.loss, outputs, y)
                total, rows = total + float(self.loss(outputs, y)) * len(x), rows + len(x)
        if rows == 0:
            raise InvalidValue("the validation data gave no rows; is it empty, or a generator, which gives them once?")
        if not math.isfinite(total):
            raise Diverged(
                f"epoch {epoch}: the loss on the validation data is {total}; lower the learning rate, or look for "
                "numbers in it that are not finite"
            )
        return total / rows


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and each part in its own mode afterwards."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode
