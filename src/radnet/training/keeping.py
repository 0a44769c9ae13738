"""The checkpoint of a run: who may write it, when it is written, and how a run goes on from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from ..writing import exclusively, remove_leftovers
from .checkpoints import Progress, cuda_devices, random_states, read_checkpoint, write_checkpoint
from .schedules import Scheduler

_SECONDS = 60.0  # between checkpoints, where nothing is said of it


class Keeper:
    """Keeps a run in a file, if there is one, and brings it back from there.

    Parameters
    ----------
    path : path or None
    model, optimizer, scheduler, generator
        What makes up the run.
    writes : bool
        Whether it is for this process to write; all of them read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Scheduler | None,
        generator: torch.Generator | None,
        *,
        writes: bool,
    ) -> None:
        self.path, self.writes = path, writes
        self.model, self.optimizer = model, optimizer
        self.scheduler, self.generator = scheduler, generator
        self.began = random_states(model)

    def resume(self, *, validates: bool = False) -> Progress:
        """Where the run stands: at its beginning, or where its file has it."""
        if self.path is None or not Path(self.path).is_file():
            return Progress()
        return read_checkpoint(
            self.path,
            self.model,
            self.optimizer,
            scheduler=self.scheduler,
            generator=self.generator,
            validates=validates,
        )

    def keep(self, progress: Progress) -> None:
        """Write the run as it is now."""
        if self.path is not None and self.writes:
            write_checkpoint(
                self.path,
                self.model,
                self.optimizer,
                progress,
                scheduler=self.scheduler,
                generator=self.generator,
                began=self.began,
            )

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While this lasts, no other process writes the file, and torch's global generators are the run's own.

        A run that may be resumed draws from these generators; they are put back when it is done.
        """
        if self.path is None:
            yield
            return
        with _held(self.path) if self.writes else nullcontext(), _forked(self.model):
            yield


@contextmanager
def _held(path: str | os.PathLike[str]) -> Iterator[None]:
    remove_leftovers(path)
    with exclusively(path, f"{path}: another fit is at work on this checkpoint; wait, or give another"):
        yield


def _forked(model: nn.Module) -> AbstractContextManager[None]:
    forked: AbstractContextManager[None] = torch.random.fork_rng(devices=cuda_devices(model))
    return forked


class Due:
    """Whether it is time for a checkpoint."""

    def __init__(self, every: int | None, every_seconds: float | None) -> None:
        self.every = every
        self.every_seconds = _SECONDS if every is None and every_seconds is None else every_seconds
        self.last = time.monotonic()

    def now(self, epoch: int) -> bool:
        """After this epoch."""
        late = self.every_seconds is not None and time.monotonic() - self.last >= self.every_seconds
        if late or (self.every is not None and epoch % self.every == 0):
            self.last = time.monotonic()
            return True
        return False
