"""All that a model can do, one operation a class: the place to teach compression a layer.

A class has everything that is known about its operation (see `Operation`): how it is recognised in a model, by torch.fx
and by torch.export, what it does to spans and constants, how far it stretches an error, how its parameters change
basis, why it pins. To teach compression an operation, write such a class in a file here: the files of this folder are
looked through. Outside the package, `register` it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import TypeVar

from torch import Tensor, nn

from ...activations import RadialActivation
from ...errors import InvalidType, InvalidValue
from ..program import FunctionCall, Operation, Unknown
from ..rms_norms import rms_norm
from ..trust import class_of, distrust, trust, why_not
from .norm import Norm


def _built_in() -> Iterator[type[Operation]]:
    """The operations that the files of this folder define."""
    for file in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        for value in vars(importlib.import_module(f".{file}", __name__)).values():
            if isinstance(value, type) and issubclass(value, Operation) and value.__module__ == f"{__name__}.{file}":
                yield value


#: every operation that is known
BUILT_IN: tuple[type[Operation], ...] = tuple(_built_in())
_registered: list[type[Operation]] = []
for _kind in BUILT_IN:
    for _cls in _kind.classes:
        trust(_cls, _kind.calls)

OperationT = TypeVar("OperationT", bound=type[Operation])


def operations() -> Iterator[type[Operation]]:
    """All operations, those that were registered first, the newest of them before the others."""
    yield from reversed(_registered)
    yield from BUILT_IN


def register(operation: OperationT) -> OperationT:
    """Teach `compress` an operation of your own: a subclass of `Operation`. Also as a decorator.

    The layers in its ``classes`` are one step from then on, whatever they do inside, and are taken for what the class
    says. Nothing is believed for that: every compression is still judged against the original, and one that fails says
    which registered operation it was.

    Examples
    --------
    >>> import radnet
    >>> from dataclasses import dataclass
    >>> class Halve(nn.Module):
    ...     def forward(self, x):
    ...         return x / 2 if bool(x.isfinite().all()) else x
    >>> @radnet.compression.register
    ... @dataclass(frozen=True)
    ... class Halving(radnet.compression.Operation):
    ...     classes = (Halve,)
    ...
    ...     @classmethod
    ...     def of_module(cls, module):
    ...         return cls()
    ...
    ...     def follow(self, step, analysis):
    ...         feature = analysis.arriving(step)
    ...         return None if feature is None else analysis.scaled(feature, 0.5)
    >>> model = nn.Sequential(nn.Linear(2, 64), Halve(), radnet.Squash(), nn.Linear(64, 1))
    >>> radnet.compress(model).network[0]
    Linear(in_features=2, out_features=3, bias=True)
    >>> radnet.compression.unregister(Halving)
    """
    if not isinstance(operation, type) or not issubclass(operation, Operation):
        raise InvalidType(f"register needs a subclass of radnet.compression.Operation, got {operation!r}")
    missing = sorted(getattr(operation, "__abstractmethods__", ()))
    if missing:
        raise InvalidType(f"{operation.__name__} has no {' and no '.join(missing)}; an operation says what it does")
    if not (operation.classes or operation.functions or operation.atens):
        raise InvalidValue(f"{operation.__name__}: say what it is, in classes, functions or atens")
    for cls in operation.classes:
        if not isinstance(cls, type) or not issubclass(cls, nn.Module):
            raise InvalidType(f"{operation.__name__}: classes has {cls!r}, which is no class of modules")
        trust(cls, operation.calls)
    if operation not in _registered:
        _registered.append(operation)
    return operation


def unregister(operation: type[Operation]) -> None:
    """Forget an operation that was registered; no error if it was not."""
    if operation in _registered:
        _registered.remove(operation)
        for cls in set(operation.classes) - {cls for kind in operations() for cls in kind.classes}:
            distrust(cls)


def is_registered(operation: Operation) -> bool:
    """Whether an operation is of a class that was registered, not built in."""
    return type(operation) in _registered


# --- recognised


def operation_of_module(m: nn.Module) -> Operation:
    """What a module is, if it may be taken for what its class says (see `trust`)."""
    for kind in operations():
        if kind.classes and class_of(m, kind.classes) is not None:
            return kind.of_module(m) or Unknown(module=m)
    if rms_norm(m) is not None:
        return Norm(m)
    near = next((cls for kind in operations() for cls in kind.classes if isinstance(m, cls)), None)
    cause = None if near is None else why_not(m, near)
    return Unknown(module=m) if cause is None else Unknown(cause, m)


def resize(m: nn.Module) -> None:
    """Have a layer of a known class show the sizes that its weight has, whoever has hooks on it."""
    for kind in operations():
        if kind.classes and isinstance(m, kind.classes) and isinstance(getattr(m, "weight", None), Tensor):
            operation = kind.of_module(m)
            if operation is not None:
                operation.resize(m)
            return


def operation_of_function(call: FunctionCall) -> Operation:
    """What a function or a method of a tensor is, as torch.fx shows it."""
    if not any(call.tensor(n) is not None for n in call.node.all_input_nodes):
        return Unknown()  # arithmetic with lengths of axes, say
    found = (kind.of_function(call) for kind in operations() if call.target in kind.functions)
    return next((operation for operation in found if operation is not None), Unknown())


def operation_of_aten(call: FunctionCall) -> Operation:
    """What an operation of torch.export is."""
    found = (kind.of_aten(call) for kind in operations() if call.aten in kind.atens)
    return next((operation for operation in found if operation is not None), Unknown())


def layer_of_aten(name: str) -> tuple[type[Operation], int, int] | None:
    """The layer that torch.export shows by this operation, and where its input and its weight stand."""
    for kind in operations():
        if name in kind.layer_atens:
            return (kind, *kind.layer_atens[name])
    return None


def known_module(m: nn.Module) -> bool:
    """Whether it may be taken for a layer of a class that is known."""
    return any(kind.classes and class_of(m, kind.classes) is not None for kind in operations())


def has_sizes(m: nn.Module) -> bool:
    """Whether it is a layer that keeps its sizes beside its parameters, as numbers that a forward may read."""
    sized = (kind for kind in operations() if kind.resize is not Operation.resize)
    return any(class_of(m, kind.classes) is not None for kind in sized)


def work_of(m: nn.Module, output: Tensor) -> int:
    """How many multiplications a layer took for this output, whatever else runs when it is called."""
    weight = m._parameters.get("weight")
    kind = next((kind for kind in operations() if isinstance(m, kind.classes)), None)
    return 0 if kind is None or weight is None else kind.work(weight, output)


def whole_module(m: nn.Module) -> bool:
    """Modules that are one step, however many operations they are made of."""
    several = (kind for kind in operations() if kind.several or (kind in _registered and not kind.layer_atens))
    return (
        isinstance(m, RadialActivation)
        or any(kind.classes and class_of(m, kind.classes) is not None for kind in several)
        or rms_norm(m) is not None
    )
