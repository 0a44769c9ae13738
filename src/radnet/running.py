"""Run a model without touching it, in its own numbers or in float64.

Everything works on structural copies (`copied`), so that the caller's model is the same at every moment, also for
another thread that uses it meanwhile, and on clones of the inputs. In float64 (`Precision`, `in_float64`) a model is
the function it stands for: parameters, buffers and inputs are float64, and none of them becomes shorter.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from .containers import DEEPEST, contents, put_back
from .errors import InvalidValue
from .modes import Argument, Float64, Mode, Unseen, storage_of
from .surroundings import untouched
from .threads import quietly

# --- inputs


@dataclass(frozen=True, eq=False)
class Call:
    """Arguments of a model, which may be nested, and a word on what they are."""

    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument] = dataclasses.field(default_factory=dict)
    what: str = "the given inputs"
    other_axes: int = 0  # -1 or 1 if its tensors have fewer or more axes than the given ones
    training: bool | None = None  # whether the model is called in training mode; None: in the mode that it is in

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same call with every tensor changed.

        >>> Call((torch.ones(2), 3)).mapped(torch.neg).args
        (tensor([-1., -1.]), 3)
        """

        def change_one(x: Argument) -> Argument:
            return change(x) if isinstance(x, Tensor) else x

        args, kwargs = tree_map(change_one, self.args), tree_map(change_one, dict(self.kwargs))
        return Call(args, kwargs, self.what, training=self.training)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return [x for x in tree_leaves((self.args, dict(self.kwargs))) if isinstance(x, Tensor)]

    @property
    def rows(self) -> int:
        """The length of the first axis of the first tensor that has one; 1 if none has."""
        return next((len(x) for x in self.tensors if x.ndim), 1)

    def with_rows(self, index: Tensor, what: str) -> Call:
        """The given rows of every tensor that has as many as the first; the others stay."""
        rows = self.rows
        return dataclasses.replace(self.mapped(lambda x: x[index] if x.ndim and len(x) == rows else x), what=what)


# --- copies of a model


def copied(
    model: nn.Module, change: Callable[[Tensor], Tensor], buffers: Callable[[Tensor], Tensor] | None = None
) -> Argument:
    """A copy that shares no module and no tensor with the model; its parameters and buffers are ``change`` of them.

    What is shared within the model (tied weights, modules under two names) is shared within the copy. With ``buffers``
    those of the copy are that instead.

    >>> layer = nn.Linear(2, 1)
    >>> copied(layer, torch.Tensor.double).weight.dtype, layer.weight.dtype
    (torch.float64, torch.float32)
    """
    memo: dict[int, Argument] = {}
    kept = []  # ids are only good as long as their objects live
    for m in _outside_scripts(model):
        for p in m._parameters.values():
            if p is not None and id(p) not in memo and type(p) is nn.Parameter:
                memo[id(p)] = nn.Parameter(_changed(p, change), requires_grad=p.requires_grad)
        for b in m._buffers.values():
            if b is not None and id(b) not in memo:
                memo[id(b)] = _changed(b, change if buffers is None else buffers)
        for _, value in attributes(m):  # results of earlier calls: deepcopy refuses tensors that have a history
            if isinstance(value, Tensor) and value.grad_fn is not None and id(value) not in memo:
                memo[id(value)] = _changed(value, change)
                kept.append(value)
    twin = _deep_copy(model, memo)
    _change_scripts(twin, change)
    return twin


def _outside_scripts(model: nn.Module) -> list[nn.Module]:
    """The modules that are no TorchScript: what those show of themselves is made anew every time."""
    return [m for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)]


def _change_scripts(twin: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Change the tensors of TorchScript parts, which copy themselves."""
    scripts = [m for m in twin.modules() if isinstance(m, torch.jit.ScriptModule)]
    for x in {storage_of(x): x for m in scripts for x in (*m.parameters(), *m.buffers())}.values():
        x.data = _changed(x, change)


def with_same_parameters(model: nn.Module) -> Argument:
    """A copy that shares no module with the model, and no buffer, which forward may write into, but all parameters.

    For a model that is known not to write into its parameters, or to put others in their places.
    """
    return _deep_copy(model, {id(p): p for p in model.parameters()})


def _deep_copy(model: nn.Module, memo: dict[int, Argument]) -> Argument:
    try:
        with quietly():
            twin = copy.deepcopy(model, memo)
    except Exception as error:
        raise InvalidValue(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}), and measuring works on "
            "copies; take out of the model what copy.deepcopy refuses"
        ) from error
    shared = {id(m) for m in model.modules()} & {id(m) for m in twin.modules()}
    if shared:
        raise InvalidValue(f"{type(model).__name__} cannot be copied: its __deepcopy__ gives parts of itself")
    return twin


def _changed(value: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    value = value.detach()
    found = change(value)
    shared = found is value or storage_of(found) == storage_of(value)
    return found.clone() if shared else found


def as_float64(value: Tensor) -> Tensor:
    """In float64 if it is floating point; as it is otherwise."""
    return value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone()


def attributes(m: nn.Module) -> Iterator[tuple[str, Argument]]:
    """What a module keeps beside parameters, buffers and parts, containers opened: names and values."""
    for name, value in vars(m).items():
        if name not in _TORCHS_OWN:
            yield from opened(name, value, DEEPEST)


_TORCHS_OWN = frozenset(vars(nn.Module()))


_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)


def _slots(value: object) -> list[str]:
    """The names of the slots of an object that hold something."""
    slots = [getattr(cls, "__slots__", ()) for cls in type(value).__mro__]
    names = [key for own in slots for key in ([own] if isinstance(own, str) else own)]
    return [key for key in dict.fromkeys(names) if not key.startswith("__") and hasattr(value, key)]


def opened(name: str, value: Argument, depth: int) -> Iterator[tuple[str, Argument]]:
    """A value, or if it is a container what is in it."""
    if isinstance(value, Tensor | nn.Module) or depth == 0:
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from opened(f"{name}[{key!r}]", part, depth - 1)
    elif isinstance(value, list | tuple | deque):
        names = getattr(value, "_fields", range(len(value)))
        for key, part in zip(names, value, strict=False):
            yield from opened(f"{name}.{key}" if isinstance(key, str) else f"{name}[{key}]", part, depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from opened(f"{name}.{f.name}", getattr(value, f.name, None), depth - 1)
    elif isinstance(value, complex):
        yield name, torch.tensor(value, dtype=torch.complex128)
    elif isinstance(value, set | frozenset):
        for key, part in enumerate(sorted(value, key=_in_some_order)):
            yield from opened(f"{name}[{key}]", part, depth - 1)
    elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, type):
        for key, part in {**vars(value), **{key: getattr(value, key) for key in _slots(value)}}.items():
            yield from opened(f"{name}.{key}", part, depth - 1)
    elif hasattr(value, "__slots__") and not callable(value) and not isinstance(value, (type, *_PLAIN)):
        for key in _slots(value):
            yield from opened(f"{name}.{key}", getattr(value, key), depth - 1)
    else:
        yield name, value


def _in_some_order(value: Argument) -> tuple[str, float]:
    """By which the members of a set are sorted, so that those of two models come in the same order."""
    if isinstance(value, Tensor):
        numbers = value.detach()[value.isfinite()] if value.is_floating_point() else value.detach()
        return f"tensor {tuple(value.shape)}", float(numbers.double().sum())
    return f"{type(value).__name__} {value!r}", 0.0


# --- evaluation


class Ran(NamedTuple):
    """What a call of a model gave: its outputs and the tensors it left on its modules, by name; numbers too."""

    found: dict[str, Argument]
    keeps: bool = False  # whether something on its modules, or outside, is another than before

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Only the tensors."""
        return {name: value for name, value in self.found.items() if isinstance(value, Tensor)}


Context = Callable[[], contextlib.AbstractContextManager[Argument]]


def run(
    model: nn.Module,
    call: Call,
    modes: Sequence[Mode] = (),
    *,
    gradients: bool = False,
    restore: bool = True,
    under: Context = contextlib.nullcontext,
) -> Ran:
    """Call a copy of a model on copies of the inputs; ``modes`` see every operation, and ``under`` lasts meanwhile.

    With ``restore`` the copy is afterwards what it was before: buffers that forward writes into, tensors and lists that
    it keeps, so that every call starts from the same state.

    >>> list(run(nn.Linear(2, 1), Call((torch.ones(3, 2),))).found)
    ['output']
    """
    with under():
        call = call.mapped(lambda x: x.detach().clone().requires_grad_(gradients and x.is_floating_point()))
    given = {id(x) for x in call.tensors}
    around = restored(model) if restore else contextlib.nullcontext(lambda: False)
    with torch.set_grad_enabled(gradients), around as changed_outside:
        before, plain = _state(model), _plain(model)
        with contextlib.ExitStack() as stack:
            for mode in modes or (Unseen(),):
                stack.enter_context(mode)
            with in_mode(model, call), under():
                output = model(*call.args, **call.kwargs)
        found = dict(opened("output", output, DEEPEST))
        found.update(_left_in(call, before=given))
        for name, (value, version) in _state(model).items():
            if name not in before or before[name][0] is not value or before[name][1] != version:
                found[name] = value.detach().clone()
                vars(found[name]).update(vars(value))  # what a mode has noted on it
        keeps = (
            changed_outside()
            or _plain(model) != plain
            or any(not name.startswith(("output", "argument")) for name in found)
        )
    return Ran(dict(_ordinary(found)), keeps)


def _left_in(call: Call, before: set[int]) -> Iterator[tuple[str, Argument]]:
    """The tensors that a call has left in lists and dictionaries which it was given."""
    given = [(f"argument {k}", value) for k, value in enumerate(call.args)]
    given += [(f"argument {name}", value) for name, value in call.kwargs.items()]
    for name, value in given:
        if isinstance(value, list | dict):
            parts = opened(name, value, DEEPEST)
            yield from ((where, x) for where, x in parts if isinstance(x, Tensor) and id(x) not in before)


def _ordinary(found: dict[str, Argument]) -> Iterator[tuple[str, Argument]]:
    """Sparse tensors with their zeros, nested ones as their parts: what can be compared."""
    for name, x in found.items():
        if not isinstance(x, Tensor) or (x.layout == torch.strided and not x.is_nested):
            yield name, x
            continue
        parts = {f"{name}[{k}]": part for k, part in enumerate(x.unbind())} if x.is_nested else {name: x.to_dense()}
        for part in parts.values():
            vars(part).update(vars(x))  # what a mode has noted on it
        yield from parts.items()


@contextlib.contextmanager
def in_mode(model: nn.Module, call: Call) -> Iterator[None]:
    """The model in training mode, or in evaluation mode, if that is how it is called."""
    others = [m for m in model.modules() if call.training is not None and m.training is not call.training]
    try:
        for m in others:
            m.training = not m.training
        yield
    finally:
        for m in others:
            m.training = not m.training


@contextlib.contextmanager
def restored(model: nn.Module) -> Iterator[Callable[[], bool]]:
    """Afterwards the modules keep what they kept before, their buffers hold what they held, and see `untouched`.

    The value says whether anything outside of the model is another now.
    """
    kept = [(m, dict(vars(m)), dict(m._buffers), contents(_own(m))) for m in _outside_scripts(model)]
    buffers = [(b, b.detach().clone(), b._version) for b in model.buffers()]
    try:
        with untouched(model) as changed:
            yield changed
    finally:
        for m, attributes_before, buffers_before, containers in kept:
            vars(m).clear()
            vars(m).update(attributes_before)
            m._buffers.clear()
            m._buffers.update(buffers_before)
            for container, items in containers:
                put_back(container, items)
        with torch.no_grad():
            for b, value, version in buffers:
                if b._version != version:
                    b.copy_(value)


def _own(m: nn.Module) -> list[Argument]:
    """What a module keeps beside parameters, buffers and parts."""
    return [value for name, value in vars(m).items() if name not in _TORCHS_OWN]


def _state(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """The tensors that stand on modules beside their parameters, each with the number of times it was written into."""
    found: dict[str, tuple[Tensor, int]] = {}
    for path, m in model.named_modules():
        for name, value in (*m._buffers.items(), *attributes(m)):
            if isinstance(value, Tensor):
                found[f"{path}.{name}" if path else name] = value, -1 if value.is_inference() else value._version
    return found


def _plain(model: nn.Module) -> list[Argument]:
    """The numbers and words that stand on modules, and the names of what else does."""
    own = [(path, *pair) for path, m in model.named_modules() for pair in attributes(m)]
    return [(path, name, v if isinstance(v, bool | int | float | str) else None) for path, name, v in own]


def run_in_float64(model64: nn.Module, call: Call, modes: Sequence[Mode] = ()) -> Ran:
    """Call a copy whose tensors are float64 (`copied` with `as_float64`) on the inputs in float64."""
    return run(model64, call.mapped(as_float64), (Float64(), *modes))


@dataclass(frozen=True)
class Precision:
    """In which numbers a model is evaluated: float64, or its own where float64 does not run."""

    float64: bool = True

    def copy(self, model: nn.Module) -> Argument:
        """A copy of the model with its numbers in this precision."""
        return copied(model, as_float64 if self.float64 else torch.clone)

    def inputs(self, call: Call) -> Call:
        """The inputs in this precision."""
        return call.mapped(as_float64 if self.float64 else torch.clone)

    def modes(self) -> tuple[Mode, ...]:
        """What has to last while a copy runs."""
        return (Float64(),) if self.float64 else ()

    def run(
        self,
        copy: nn.Module,
        call: Call,
        modes: Sequence[Mode] = (),
        *,
        gradients: bool = False,
        restore: bool = True,
        under: Context = contextlib.nullcontext,
    ) -> Ran:
        """Call a copy that `copy` made; see `run`."""
        inputs, modes = self.inputs(call), (*self.modes(), *modes)
        return run(copy, inputs, modes, gradients=gradients, restore=restore, under=under)


def in_float64(module: nn.Module) -> Callable[..., Argument]:
    """The module as a function in float64; the module itself is not changed.

    >>> layer = nn.Linear(2, 1)
    >>> in_float64(layer)(torch.zeros(1, 2)).dtype, layer.weight.dtype
    (torch.float64, torch.float32)
    """
    wide = copied(module, as_float64)

    def call(*args: Argument, **kwargs: Argument) -> Argument:
        inputs = Call(args, kwargs).mapped(as_float64)
        with Float64(), torch.no_grad(), untouched(wide):
            return wide(*inputs.args, **inputs.kwargs)

    return call
