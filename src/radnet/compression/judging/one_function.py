"""Whether a model is one function: it draws nothing, and does the same in every dtype and mode that it may be run in.

Whether earlier calls change what it gives is in `repeating`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from ...errors import InvalidValue
from ...running import Call, Context, Ran
from ..recording import Log, essence
from .code import names_of
from .explored import Tried
from .repeating import bit_for_bit

#: operations that drop at random, or normalise by what they see, in training mode
RANDOM = (
    "aten.bernoulli", "aten.native_dropout", "aten.rand", "aten.normal", "aten.uniform", "aten.dropout",
    "aten.alpha_dropout", "aten.feature_", "aten.new_", "aten.native_batch_norm", "aten._native_batch_norm",
    "aten.batch_norm",
)  # fmt: skip
Record = Callable[..., Tried]  # runs a call on a copy of the model, and records it


def check_no_chance(model: nn.Module, run: Callable[[], Ran]) -> None:
    """Refuse a model whose runs do not give the same outputs twice."""
    first, second = (run().tensors for _ in range(2))
    if _draws_elsewhere(run) or any(
        name not in second or x.shape != second[name].shape or not bit_for_bit(x, second[name])
        for name, x in first.items()
    ):
        raise InvalidValue(
            f"{type(model).__name__}: its forward draws random numbers, so there is no function to keep; call eval(), "
            "or give them as an argument. Nothing was changed"
        )


def _draws_elsewhere(run: Callable[[], Ran]) -> bool:
    """Whether a run moves the random numbers of Python or of NumPy; each time, as other threads may draw some."""
    for _ in range(3):
        before = random.getstate(), _numpys_state()
        run()
        if before == (random.getstate(), _numpys_state()):
            return False
    return True


def _numpys_state() -> tuple[bytes, object]:
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return np.asarray(keys).tobytes(), rest


def check_same_way(model: nn.Module, own: Record, call: Call, log: Log) -> None:
    """Refuse a model that does something else in float64, with gradients, in inference mode or under autocast.

    Parameters
    ----------
    model : nn.Module
    own : callable
        Runs it in its own numbers.
    call : Call
    log : Log
        Of its run in float64, without gradients.
    """
    where = ""
    if essence(own(call).log) != essence(log):
        where = "in float64 its forward does something else than in its own dtype"
    elif not _same_operations(partial(own, gradients=True), call, log):
        where = "with gradients its forward does something else than without"
    for what, under in _asked_for(model, call):
        if not _same_operations(partial(own, under=under), call, log):
            where = f"{what} its forward does something else than otherwise"
    if where:
        raise InvalidValue(f"{type(model).__name__}: {where}, so there are two functions to keep. Nothing was changed")


def _same_operations(own: Record, call: Call, log: Log) -> bool:
    """Whether the same operations run; how often not: a profile is tried out to see whether it is being trained."""
    try:
        return essence(own(call).log).keys() == essence(log).keys()
    except Exception:  # writing into inputs that have gradients, say
        return True


def _asked_for(model: nn.Module, call: Call) -> Iterator[tuple[str, Context]]:
    """The settings of PyTorch that the code of a model asks for."""
    names = names_of(model)
    if any(name.startswith("is_inference") for name in names):
        yield "in inference mode", torch.inference_mode
    if any(name.startswith(("is_autocast", "get_autocast")) for name in names):
        device = next((x.device.type for x in call.tensors), "cpu")
        yield "under autocast", partial(torch.autocast, device, dtype=torch.bfloat16)


def differs_in_training(model: nn.Module, record: Record, given: Tried) -> bool:
    """Whether a model that was given in evaluation mode does more in training mode than drop at random."""
    dropout = [path for path, m in model.named_modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    dropping = {f"module {path}" for path in dropout}  # in evaluation mode it does nothing, which is not recorded
    try:
        there = record(replace(given.call, training=True))
    except Exception:
        return False
    if not there.ran.keeps and there.ran.found.keys() != given.ran.found.keys():
        return True
    if not any(name.startswith(RANDOM) for name, _ in there.log):
        ran, before = ([name for name, _ in log if name not in dropping] for log in (there.log, given.log))
        return ran != before
    other = essence(there.log).keys() ^ essence(given.log).keys()
    return any(name not in dropping and not name.startswith(RANDOM) for name in other)
