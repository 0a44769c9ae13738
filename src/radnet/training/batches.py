"""The data of a training run: pairs of tensors or arrays, one batch or many, and whether outputs fit targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeGuard, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..errors import InvalidType, InvalidValue

Batch = tuple[Tensor, Tensor]
Part = Tensor | npt.NDArray[np.generic]
Pair = tuple[Part, Part]
#: of predictions and targets; a mean over rows
Loss = Callable[[Tensor, Tensor], Tensor]


def generator_of(data: object) -> torch.Generator | None:
    """The generator of its own that shuffles the data, if it has one."""
    generator: torch.Generator | None = getattr(data, "generator", None)
    if generator is None:
        generator = getattr(getattr(data, "sampler", None), "generator", None)
    return generator


def batches_of(data: Pair | Iterable[Pair], model: nn.Module) -> Iterable[Pair]:
    """The batches of every epoch: two tensors or arrays are one, which is converted once."""
    if isinstance(data, tuple) and _is_pair(data):
        return [_as_tensors(data, model)]
    return cast("Iterable[Pair]", data)


def tensors_of(batches: Iterable[Pair], model: nn.Module) -> Iterator[Batch]:
    """The batches as tensors; what is neither tensor nor array is left to the model and the loss."""
    for batch in batches:
        yield _as_tensors(batch, model) if _is_pair(batch) else cast("Batch", batch)


def _is_pair(data: object) -> TypeGuard[Pair]:
    return isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(p, Tensor | np.ndarray) for p in data)


def _as_tensors(pair: Pair, model: nn.Module) -> Batch:
    """Tensors as they are; arrays on the device of the model, floating-point ones in its dtype."""
    like = next(model.parameters())

    def tensor(part: Part) -> Tensor:
        if isinstance(part, Tensor):
            return part
        if part.dtype.kind not in "fiub":
            raise InvalidType(f"fit needs arrays of numbers, got one of dtype {part.dtype}")
        copied = torch.from_numpy(np.array(part, order="C"))
        return copied.to(like.device, like.dtype if copied.is_floating_point() else copied.dtype)

    return tensor(pair[0]), tensor(pair[1])


def check_shapes(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
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
