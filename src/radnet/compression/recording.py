"""What a model does when it runs, operation by operation, as PyTorch's dispatcher sees it.

`Recorder.log` is the same for every run of one program, whatever the lengths of axes: two calls with different logs
took different ways through the model's Python. `Writes` notes which memory an operation writes into, from the
operation's own schema and not from its name.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .. import __file__ as radnet_file
from ..modes import Argument, Mode, storage_of, traits

#: operations whose whole numbers are lengths or places along an axis, which may differ between runs of one program
_SIZED = (
    "view", "reshape", "expand", "slice", "narrow", "split", "repeat", "zeros", "ones", "full", "empty", "arange",
    "rand", "pad", "as_strided", "unflatten", "linspace", "one_hot", "eye", "tril", "triu", "pool", "upsample",
    "roll", "chunk", "unfold", "fold", "select", "scalar_tensor", "index", "scatter", "gather", "size",
)  # fmt: skip
_SILENT = ("aten.detach", "aten.alias", "aten.lift_fresh", "profiler.", "prim.device")
#: operations that show at every scale of the inputs, so that a run with and one without them give different outputs;
#: of these there may be more or fewer in runs of one program
_HARMLESS = (
    "aten.to.", "aten._to_copy", "aten.clone", "aten.contiguous", "aten.view", "aten._unsafe_view", "aten.reshape",
    "aten.t.", "aten.transpose", "aten.permute", "aten.expand", "aten.unsqueeze", "aten.squeeze", "aten.slice",
    "aten.select", "aten.split", "aten.unbind", "aten.flatten", "aten.scalar_tensor", "aten.empty", "aten.full",
    "aten.zeros", "aten.ones", "aten.arange", "aten._assert", "aten.sym_", "aten._local_scalar_dense", "aten.item",
    "aten.copy_", "aten.narrow", "aten.chunk", "aten.is_", "aten.fill", "aten.resolve", "aten.dropout", "aten.addmm",
    "aten.mm.", "aten.matmul", "aten.linear", "aten.bmm", "aten.add", "aten.sub", "aten.rsub", "aten.mul", "aten.div",
    "aten.mean", "aten.cat", "aten.stack", "aten.neg", "aten.linalg_vector_norm", "aten.aminmax", "aten.tanh_backward",
    "aten.pow", "aten.square", "aten.sum", "aten.sqrt", "aten.rsqrt", "aten.reciprocal",
)  # fmt: skip
_LIBRARIES = tuple(str(Path(file).parent) + os.sep for file in (torch.__file__, radnet_file))
_ON_THE_WAY = (torch._tensor.__file__, torch.overrides.__file__)  # from a function to the modes that see it
#: ways out of PyTorch: what is done with numbers there is not seen
_OUTSIDE = ("numpy", "__array__", "data_ptr", "__dlpack__")


Look = Callable[[nn.Module, Argument], None]  # gets a module and its first argument
Log = list[tuple[str, tuple[Hashable, ...]]]  # an entry: the name of an operation, and its operands


class Recorder(Mode):
    """Notes every operation that runs: its name, who made its operands, its other arguments.

    With ``original``, the model that this one is a copy of, also which parameters of that are used.
    """

    def __init__(self, model: nn.Module, original: nn.Module | None = None) -> None:
        super().__init__()
        others = () if original is None else original.named_parameters()
        self.foreign = {storage_of(p): name for name, p in others}
        self.met: set[str] = set()  # parameters of the original that were used
        self.names = {storage_of(p): name for name, p in model.named_parameters()}
        self.log: Log = []
        self.made = 0  # how many numbers all results together have
        self.written: set[str] = set()  # parameters that were written into
        self.outside: set[str] = set()  # how tensors were given other memory behind PyTorch's back
        self.muted = False  # inside a module that is one entry
        self._inside: tuple[str, str] | None = None

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Note one operation and run it."""
        kwargs = kwargs or {}
        out = self.call(func, args, kwargs)
        if self.muted:
            return out
        name = str(func)
        if name.startswith(_SILENT):
            if isinstance(out, Tensor) and args and hasattr(args[0], "_radnet_step"):  # another name for the same value
                out._radnet_step = args[0]._radnet_step  # type: ignore[attr-defined]
            return out
        written = list(written_arguments(func, args, kwargs))
        for argument in written:
            if storage_of(argument) in self.names:
                self.written.add(self.names[storage_of(argument)])
        self._note(name, (*args, *kwargs.values()), [out, written])
        return out

    def _note(self, name: str, operands: tuple[Argument, ...], out: Argument) -> None:
        sized = any(word in name for word in _SIZED)
        self.log.append((name, tuple(self._seen(x, sized) for x in operands)))
        for x in _tensors(out):
            x._radnet_step = (self, len(self.log), storage_of(x))  # type: ignore[attr-defined]
            with torch._C.DisableTorchFunction():  # it is not forward that asks
                self.made += x.numel()

    def mute(self, inside: tuple[str, str] | None) -> None:
        """The next operation belongs to a call of a module that is one entry, by its path and a key; or to none."""
        if inside is not None and inside != self._inside:
            self.log.append((f"module {inside[0]}", ()))
        self._inside, self.muted = inside, inside is not None

    @contextmanager
    def whole(self, modules: Mapping[str, nn.Module], look: Look | None = None) -> Iterator[None]:
        """While this lasts, a call of one of these modules is one entry, whatever it does inside; ``look`` sees it."""
        try:
            for path, m in modules.items():
                m.forward = self._as_one(path, m, look)
            yield
        finally:
            for m in modules.values():
                vars(m).pop("forward", None)

    def _as_one(self, path: str, m: nn.Module, look: Look | None) -> Callable[..., Argument]:
        forward = m.forward

        def call(*args: Argument, **kwargs: Argument) -> Argument:
            outer, self.muted = self.muted, True
            if look is not None:
                look(m, args[0] if args else next(iter(kwargs.values()), None))
            try:
                out = forward(*args, **kwargs)
            finally:
                self.muted = outer
            if not outer and not any(out is x for x in (*args, *kwargs.values())):  # else nothing was done
                self._note(f"module {path}", (*args, *kwargs.values()), out)
            return out

        return call

    def _seen(self, x: Argument, sized: bool) -> Hashable:
        if isinstance(x, Tensor):
            if storage_of(x) in self.names:
                return self.names[storage_of(x)]
            if storage_of(x) in self.foreign:
                self.met.add(self.foreign[storage_of(x)])
            run, step, storage = getattr(x, "_radnet_step", (None, None, None))
            if run is self and storage != storage_of(x):  # somebody has given it other memory meanwhile
                self.outside.add("data")
            return (step if run is self else "given"), x.is_floating_point()
        if isinstance(x, list | tuple):
            return () if sized and all(isinstance(k, int) for k in x) else tuple(self._seen(y, sized) for y in x)
        if isinstance(x, bool | float | str) or x is None:
            return x
        if isinstance(x, int):
            return "length" if sized else x
        return type(x).__name__


def _asked_from() -> str:
    """The file of the code that called the function that a mode sees now."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _ON_THE_WAY:
        frame = frame.f_back
    return frame.f_code.co_filename


class Outside(TorchFunctionMode):
    """Notes the functions that lead out of PyTorch. (A model may ask whether such a mode is on: not for every run.)"""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.measured: list[Tensor] = []  # tensors that were asked for their shapes
        self.told: list[Tensor] = []  # those that were by the user's own code

    def __torch_function__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Note one function and call it."""
        name = getattr(func, "__name__", "")
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if name in ("size", "__len__", "numel") or (name == "__get__" and attribute == "shape"):
            self.measured += _tensors(args)
            if not _asked_from().startswith(_LIBRARIES):
                self.told += _tensors(args)
        if name in _OUTSIDE or (name == "__set__" and attribute == "data"):
            self.found.add("data" if name == "__set__" else name)
        return func(*args, **(kwargs or {}))


def steps_in(log: Log, tensors: Iterable[Tensor]) -> set[int]:
    """The entries of a log, counted from 1, that made these tensors; those that were made elsewhere are left out."""
    made = (getattr(x, "_radnet_step", None) for x in tensors)
    return {step for run, step, _ in filter(None, made) if run.log is log}


def origins(log: Log, step: int) -> set[str]:
    """The paths of the modules, as entries of a log, that the result of a step was made from without others between.

    >>> origins([("module a", (("given", True),)), ("aten.relu", ((1, True),))], 2)
    {'a'}
    """
    found: set[str] = set()
    todo = [step]
    while todo:
        name, operands = log[todo.pop() - 1]
        if name.startswith("module "):
            found.add(name.removeprefix("module "))
            continue
        nested: list[Argument] = list(operands)
        while nested:
            x = nested.pop()
            if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], int) and isinstance(x[1], bool):
                todo.append(x[0])
            elif isinstance(x, tuple):
                nested += x
    return found


def called(log: Log) -> set[str]:
    """The paths of the modules that are entries of a log.

    >>> called([("module a", ()), ("aten.relu", ())])
    {'a'}
    """
    return {name.removeprefix("module ") for name, _ in log if name.startswith("module ")}


def loops(first: Log, second: Log) -> set[str]:
    """The paths of modules that are called a different number of times in two runs, and more than once in one.

    >>> loops([("module a", ()), ("module b", ())], [("module a", ()), ("module b", ()), ("module b", ())])
    {'b'}
    """
    a, b = (Counter(name for name, _ in log if name.startswith("module ")) for log in (first, second))
    return {name.removeprefix("module ") for name in a | b if a[name] != b[name] and max(a[name], b[name]) > 1}


def grown_by(first: Log, second: Log) -> Counter[str]:
    """By how much more, or less, of each operation ran the second time.

    >>> grown_by([("aten.mm", ())], [("aten.mm", ()), ("aten.mm", ()), ("aten.relu", ())])
    Counter({'aten.mm': 1, 'aten.relu': 1})
    """
    more = Counter(name for name, _ in second)
    more.subtract(name for name, _ in first)
    return Counter({name: count for name, count in more.items() if count})


def proportional(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    """Whether two counts are multiples of each other.

    >>> proportional({"mm": 4, "add": 2}, {"mm": -6, "add": -3}), proportional({"mm": 4}, {"mm": 2, "relu": 1})
    (True, False)
    """
    if a.keys() != b.keys():
        return False
    return all(a[name] * b[other] == b[name] * a[other] for name in a for other in list(a)[:1])


def essence(log: Log) -> Counter[str]:
    """How often every operation ran that can do more than move or combine numbers linearly.

    By it the log of a run is compared with that of another kind of run (in another dtype, of an exported program),
    where copies, views and the ways to multiply matrices differ.
    """
    return Counter(name for name, _ in log if not name.startswith(_HARMLESS))


#: functions that radial profiles are made of, and that are tried out on a number of their own in some runs
_PROFILES = ("aten.tanh", "aten.sigmoid", "aten.exp", "aten.log1p", "aten.sin", "aten.cos", "aten.erf", "aten.silu")


def missing(log: Log, other: Log) -> set[str]:
    """Operations of a run that do not run as often in another one; of profiles, that do not run in it at all."""
    a, b = essence(log), essence(other)
    return {name for name in a if a[name] > b[name] and not (b[name] and name.startswith(_PROFILES))}


def _tensors(x: Argument) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, list | tuple):
        for part in x:
            yield from _tensors(part)


def written_arguments(func: Argument, args: Argument, kwargs: Argument) -> Iterator[Tensor]:
    """The tensors that an operation writes into, by its schema.

    >>> import torch
    >>> x = torch.zeros(2)
    >>> list(written_arguments(torch.ops.aten.add_.Tensor, (x, x), {}))
    [tensor([0., 0.])]
    """
    for k, name in traits(func).writes:
        yield from _tensors(args[k] if k < len(args) else kwargs.get(name))


class Writes(Mode):
    """Notes which memory is written into; `taken` gives it and starts anew."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Note what one operation writes into, and run it."""
        kwargs = kwargs or {}
        self.storages.update(storage_of(x) for x in written_arguments(func, args, kwargs))
        return self.call(func, args, kwargs)

    def taken(self) -> set[int]:
        """What was written into since the last time."""
        found, self.storages = self.storages, set()
        return found
