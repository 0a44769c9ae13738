"""Several processes that train one model together, started by torchrun."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    """The processes that train together: one, unless torchrun started several."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> World:
        """The processes that torchrun started; this one alone without it."""
        distributed = torch.distributed
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or not distributed.is_available():
            return cls()
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(distributed.get_rank(), distributed.get_world_size())

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, with gradients that are averaged over the processes."""
        return model if self.size == 1 else nn.parallel.DistributedDataParallel(model)

    def share(self, batch: Tensor) -> Tensor:
        """The rows of a batch, which all processes have, that fall to this one."""
        return batch if self.size == 1 else batch[self.rank :: self.size]

    def mean(self, value: float) -> float:
        """Over the processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        torch.distributed.all_reduce(total)
        return float(total) / self.size

    def agree(self, mine: bool) -> bool:
        """Whether any process says so."""
        return mine if self.size == 1 else self.mean(float(mine)) > 0

    def barrier(self) -> None:
        """Wait until all processes have come this far."""
        if self.size > 1:
            torch.distributed.barrier()
