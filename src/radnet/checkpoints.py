"""Checkpoints of a training run: see `radnet.training.checkpoints`, where they live."""

from .training.checkpoints import Progress, read_checkpoint, write_checkpoint

__all__ = ["Progress", "read_checkpoint", "write_checkpoint"]
