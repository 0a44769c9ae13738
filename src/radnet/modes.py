"""What sees every operation that a model runs: float64 throughout, rounding shaken, random numbers of our own."""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .measuring import nudged

#: what a user's forward takes and gives, and what PyTorch's dispatcher hands on: anything
Argument: TypeAlias = Any
SHORT = (torch.float16, torch.bfloat16, torch.float32)


class Traits(NamedTuple):
    """What the schema of an operation says."""

    random: bool  # it draws random numbers
    takes_memory: bool  # it writes into an argument, or what it gives may lie in one
    writes: tuple[tuple[int, str], ...]  # places and names of the arguments that it writes into


@functools.cache
def traits(func: Argument) -> Traits:
    """The traits of an operation; asked for at every call of it, so they are looked up once.

    >>> traits(torch.ops.aten.add_.Tensor)
    Traits(random=False, takes_memory=True, writes=((0, 'self'),))
    """
    marked = [(k, a.name, a.alias_info) for k, a in enumerate(func._schema.arguments) if a.alias_info is not None]
    writes = tuple((k, name) for k, name, info in marked if info.is_write)
    return Traits(torch.Tag.nondeterministic_seeded in func.tags, bool(marked), writes)


def storage_of(x: Tensor) -> int:
    """A number for the memory a tensor lies in; good as long as the tensor lives.

    A tensor that has no memory of its own (sparse, or wrapped by torch.func) gets a number of its own.
    """
    try:
        return int(x.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(x)


class Mode(TorchDispatchMode):
    """Sees every operation while it lasts. Its own work is never compiled, so torch's compiler need not be imported.

    Operations that draw random numbers draw them from a stream of ours, so that the numbers that others draw meanwhile,
    in other threads too, are the ones they would have drawn.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @staticmethod
    def call(func: Argument, args: Argument, kwargs: Argument) -> Argument:
        """Run one operation."""
        if not traits(func).random or any(isinstance(x, torch.Generator) for x in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        with _CHANCE.lock:
            before = torch.get_rng_state()
            torch.set_rng_state(_CHANCE.state)
            try:
                return func(*args, **kwargs)
            finally:
                _CHANCE.state = torch.get_rng_state()
                torch.set_rng_state(before)


class _Chance:
    """Where our own stream of random numbers is, for models that draw some."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = torch.Generator().manual_seed(0).get_state()


_CHANCE = _Chance()


class Unseen(Mode):
    """Nothing but that, so compiled kernels, which draw no numbers, may run."""

    blind = True

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Run one operation."""
        return self.call(func, args, kwargs or {})


class Float64(Mode):
    """While this lasts, nothing is computed in a shorter floating-point dtype than float64.

    Conversions to a shorter dtype become conversions to float64, tensors made in a shorter dtype are made in float64.

    >>> with Float64():
    ...     torch.ones(2).half().dtype
    torch.float64
    """

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Run one operation with the lengthened dtypes."""
        args, kwargs = (tuple(map(_longer, args)), {name: _longer(x) for name, x in (kwargs or {}).items()})
        if traits(func).takes_memory:
            return self.call(func, args, kwargs)
        args, kwargs = _lengthened(args), {name: _lengthened(x) for name, x in kwargs.items()}
        return _lengthened(self.call(func, args, kwargs))


class Shaken(Mode):
    """While this lasts, what every operation gives is one unit in the last place off: up or down, by chance.

    So a computation shows how much rounding there is in it, also where its inputs do not: ``relu(v) - v`` loses digits
    that no change of v brings back. Zeros stay zeros, and infinities stay.

    >>> with Shaken(torch.Generator().manual_seed(0)):
    ...     one = torch.ones(1, dtype=torch.float64) * 1
    >>> abs(float(one) - 1) in (2**-52, 2**-53)
    True
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator
        self.size = 0.0  # of the numbers that occur: the largest median of what an operation gave

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Run one operation and shake what it gives, unless that is its input or a view of it."""
        out = self.call(func, args, kwargs or {})
        return out if traits(func).takes_memory else self._shaken(out)

    def _shaken(self, x: Argument) -> Argument:
        if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided and not x.is_nested:
            exact = (x == 0) | ~x.isfinite()
            sizes = x[~exact].abs()
            self.size = max(self.size, float(sizes.median()) if sizes.numel() else 0.0)
            return torch.where(exact, x, nudged(x, self.generator))
        return type(x)(map(self._shaken, x)) if type(x) in (list, tuple) else x


def _longer(x: Argument) -> Argument:
    return torch.float64 if isinstance(x, torch.dtype) and x in SHORT else x


def _lengthened(x: Argument) -> Argument:
    """Tensors in float64, also in the lists and tuples that operations take and give."""
    if isinstance(x, Tensor):
        return x.to(torch.float64) if x.dtype in SHORT else x
    return type(x)(map(_lengthened, x)) if type(x) in (list, tuple) else x
