"""Whether a model is one function: it draws nothing, and does the same in every dtype and mode that it may be run in.

Whether earlier calls change what it gives is in `repeating`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence, Set
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
from .repeating import bit_for_bit, but_for_rounding

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
    """Refuse a model that runs other operations in float64 than in its own dtype, or with gradients than without.

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
    if where:
        raise _two_functions(model, where)


def _two_functions(model: nn.Module, where: str) -> InvalidValue:
    return InvalidValue(f"{type(model).__name__}: {where}, so there are two functions to keep. Nothing was changed")


def check_settings(model: nn.Module, record: Record, calls: Sequence[Call]) -> None:
    """Refuse a model that gives something else under a setting of PyTorch that its code asks for, along any way."""
    for what, options in _asked_for(model, calls[0]):
        for call in calls:
            if not _same_outputs(partial(record, **options), call, record(call).ran):
                raise _two_functions(model, f"{what} its forward does something else than otherwise")


def _same_operations(own: Record, call: Call, log: Log) -> bool:
    """Whether the same operations run; how often not: a profile is tried out to see whether it is being trained."""
    try:
        return essence(own(call).log).keys() == essence(log).keys()
    except Exception:  # writing into inputs that have gradients, say
        return True


def _same_outputs(record: Record, call: Call, plain: Ran) -> bool:
    """Whether a run gives what another one gave, but for rounding: in float64 nothing is computed in a short dtype."""
    try:
        there = record(call).ran.tensors
    except Exception:  # inference mode does not let everything be done
        return True
    before = plain.tensors
    return there.keys() == before.keys() and all(
        x.shape == there[name].shape and x.dtype == there[name].dtype and but_for_rounding(x, there[name].detach())
        for name, x in before.items()
    )


def _asked_for(model: nn.Module, call: Call) -> Iterator[tuple[str, dict[str, Context | bool]]]:
    """The settings of PyTorch that the code of a model asks for, and how a run is made under them."""
    names = names_of(model)
    if any(name.startswith(("is_grad", "requires_grad")) for name in names):
        yield "with gradients", {"gradients": True}
    if any(name.startswith("is_inference") for name in names):
        yield "in inference mode", {"under": torch.inference_mode}
    if any(name.startswith(("is_autocast", "get_autocast")) for name in names):
        device = next((x.device.type for x in call.tensors), "cpu")
        yield "under autocast", {"under": partial(torch.autocast, device, dtype=torch.bfloat16)}


def differs_in_training(model: nn.Module, record: Record, calls: Sequence[Call]) -> bool:
    """Whether a model that was given in evaluation mode does more in training mode than drop at random.

    Only one whose own code asks for the mode can; if it does not run there, nobody knows.
    """
    if "training" not in names_of(model):
        return False
    dropout = [path for path, m in model.named_modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    dropping = {f"module {path}" for path in dropout}  # in evaluation mode it does nothing, which is not recorded
    return any(_differs_there(record, call, dropping) for call in calls)


def _differs_there(record: Record, call: Call, dropping: Set[str]) -> bool:
    try:
        given = record(replace(call, training=False))
    except Exception:
        return False  # it does not take such a call
    try:
        there = record(replace(call, training=True))
    except Exception:
        return True
    if not there.ran.keeps and there.ran.found.keys() != given.ran.found.keys():
        return True
    ran = {name for name, _ in there.log}
    if not any(name in dropping or name.startswith(RANDOM) for name in ran):
        return there.log != given.log
    other = essence(there.log).keys() ^ essence(given.log).keys()
    return any(name not in dropping and not name.startswith(RANDOM) for name in other)
