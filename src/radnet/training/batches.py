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
    if not isinstance(data, Iterable):
        raise InvalidType(
            f"data is a {type(data).__name__}; expected a pair (inputs, targets), or batches of such pairs"
        )
    return cast("Iterable[Pair]", data)


def tensors_of(batches: Iterable[Pair], model: nn.Module) -> Iterator[Batch]:
    """The batches as tensors; what is neither tensor nor array is left to the model and the loss."""
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InvalidType(
                f"a batch is a {type(batch).__name__}; expected pairs of inputs and targets, or one pair as a tuple"
            )
        pair = _as_tensors(batch, model) if _is_pair(batch) else cast("Batch", batch)
        if not isinstance(pair[0], Tensor) or pair[0].ndim == 0 or len(pair[0]):
            yield pair


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

    x, y = tensor(pair[0]), tensor(pair[1])
    if x.ndim and y.ndim and len(x) != len(y):
        raise InvalidValue(f"{len(x):,} rows of inputs and {len(y):,} of targets; give a target for each row")
    return x, y


def check_shapes(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Refuse N targets in a row beside N outputs in a column, and the reverse: all would be compared with all.

    With a loss that compares entry by entry, all other shapes that are not the same are refused, too.
    """
    a, b = (tuple(getattr(part, "shape", ())) for part in (outputs, targets))
    n = max(*a, *b, 0)
    if {a, b} == {(n,), (n, 1)}:
        if n < 2 or _row_by_row(loss, outputs, targets):
            return
        how = "targets.unsqueeze(1)" if len(a) == 2 else "targets.squeeze(1)"
        raise InvalidValue(
            f"the outputs have shape {a}, the targets {b}: the loss would compare each output with all targets; "
            f"give fit targets of shape {a}, for example {how}"
        )
    if a != b and (loss in _ENTRY_BY_ENTRY or type(loss) in _ENTRY_BY_ENTRY):
        raise InvalidValue(f"the outputs have shape {a}, the targets {b}; this loss compares entry by entry")


#: losses of torch that compare each entry with one, and would make entries where there are too few
_ENTRY_BY_ENTRY = (
    *(nn.functional.mse_loss, nn.functional.l1_loss, nn.functional.smooth_l1_loss, nn.functional.huber_loss),
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss),
)


def check_is_loss(loss: object) -> None:
    """Whether it can be called with outputs and targets."""
    if isinstance(loss, type) or not callable(loss):
        what = (
            f"the class {loss.__name__}; did you mean {loss.__name__}()?" if isinstance(loss, type) else "not callable"
        )
        raise InvalidType(f"the loss is {what}")


def check_loss(value: object) -> None:
    """Whether a loss is one number that can be made smaller."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InvalidType(f"the loss gave {got}; expected one number as a tensor, such as nn.MSELoss() gives")
    if not value.requires_grad:
        raise InvalidValue("the loss has no gradient: are all parameters frozen, or is something detached on the way?")


def _row_by_row(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether a loss of two rows is the mean of their losses, for rows of these shapes and targets that are met."""
    row = torch.arange(2, device=outputs.device)
    a, b = (row.to(like.dtype).reshape(-1, *like.shape[1:]) for like in (outputs, targets))
    try:
        alone = [float(loss(a[i : i + 1], b[i : i + 1])) for i in range(2)]
        return math.isclose(float(loss(a, b)), sum(alone) / 2, rel_tol=1e-2, abs_tol=1e-6)
    except Exception:
        return False
