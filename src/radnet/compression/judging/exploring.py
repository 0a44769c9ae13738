"""Which ways a model's Python takes: for the given inputs, for others like them, for arguments that are left out.

Each call is run in float64 and recorded (see `recording`). Calls with another log than the first take another way, and
the model has to be followed along that way as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ... import __file__ as radnet_file
from ...activations import RadialActivation
from ...errors import InvalidValue
from ...measuring import DRAWS, TIMES_CONDITIONING
from ...running import Call, Precision, Ran, copied
from ..operations import has_sizes
from ..recording import Log, Outside, Recorder, essence, loops, origins, steps_in
from ..tracing.fx import whole_modules
from .jumps import near_jump, norms_of, rows_of
from .repeating import bit_for_bit, changed_by_calls
from .variations import (
    LADDER,
    lengths_of,
    mixtures,
    numbers_in_code,
    other_arguments,
    other_inputs,
    unusual_inputs,
    with_lengths,
    with_rows,
)

#: rows with which a model is traced, if it takes the same way with them
FEW = 3
#: other ways that are followed from the start; along further ones the small model is judged
MOST_WAYS = 3
#: operations that are recorded while other lengths are tried on a model that asks for them, the same on every machine;
#: and seconds after which even so nothing more is tried
EFFORT = 100_000
PATIENCE = 30.0
#: and how many numbers the inputs may have for that
LARGEST = 2**18
#: attributes that tell a width
_SIZES = ("in_features", "out_features", "in_channels", "out_channels", "embedding_dim")


_OURS = str(Path(radnet_file).parent)


class Nudges(NamedTuple):
    """A tensor of the original one ulp off, in the precision of the judge: parameters, and inputs and buffers."""

    weights: Callable[[Tensor], Tensor]
    given: Callable[[Tensor], Tensor]


class Norms(NamedTuple):
    """The norms that arrived at an activation."""

    rho: RadialActivation
    r: Tensor


class Tried(NamedTuple):
    """A call, what the original gave, which of its rows came near a jump of an activation, and what ran."""

    call: Call
    ran: Ran
    at_jump: Tensor
    log: Log


@dataclass(eq=False)
class Explored:
    """What is known of a model before it is traced."""

    precision: Precision
    base: Call  # to be traced with
    given: Tried
    others: list[Tried] = field(default_factory=list)  # other calls that the model accepts
    ways: list[Call] = field(default_factory=list)  # those among them that take another way
    looped: set[str] = field(default_factory=set)  # modules called as often as an axis is long, or an argument says
    # modules whose results, or what is made of them, are asked for their shapes; are left on the model; must not change
    measured: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    pinned: set[str] = field(default_factory=set)
    differ: list[Tried] = field(default_factory=list)  # calls at which a small model was found to differ
    asked: dict[str, set[str]] = field(default_factory=dict)  # sizes of layers that forward reads, by path
    logs: list[Log] = field(default_factory=list)  # of the base and of the ways

    def add_way(self, call: Call, log: Log) -> None:
        """Have the model followed with this call as well."""
        self.ways.append(call)
        self.logs.append(log)


class Explorer:
    """Runs copies of a model."""

    def __init__(self, model: nn.Module, generator: torch.Generator) -> None:
        self.model, self.generator = model, generator
        self.precision = Precision()
        self._copy: nn.Module | None = None

    @property
    def copy(self) -> nn.Module:
        """The copy that runs, made when it is needed."""
        if self._copy is None:
            self._copy = self.precision.copy(self.model)
        return self._copy

    def release(self) -> None:
        """Let go of the copy: a wide model in float64 is large."""
        self._copy = None

    def explore(self, call: Call, *, data: bool = False, exact: bool = True, arguments: bool = True) -> Explored:
        """Run the given call and, unless a tolerance makes them pointless, others like it, with other arguments too.

        Raises
        ------
        InvalidValue
            If the model writes into its parameters, or what it does depends on earlier calls.
        """
        given = self._first(call)
        if given.ran.keeps:
            self._check_no_memory(given)
        found = Explored(self.precision, self._few(given), given)
        self._check_same_way(found.base, given.log)
        self._check_no_chance(found.base)
        with Outside() as outside:
            log = self.recorded(found.base).log
        self._refuse_outside(outside.found)
        if log == given.log:
            found.measured = set().union(*(origins(log, step) for step in steps_in(log, outside.measured)))
        sides = [x for name, x in given.ran.tensors.items() if not name.startswith("output")]
        found.kept = set().union(*(origins(given.log, step) for step in steps_in(given.log, sides)))
        found.asked = self._asked_sizes(found.base)
        self._add_told(found.asked, outside.told)
        found.logs.append(given.log)
        for other in self._others(call, found.base, data, arguments) if exact else ():
            self._try(found, other)
        for other in unusual_inputs(found.base) if exact and not data else ():
            self._try(found, other, keep=other.other_axes)
        return found

    def _check_no_chance(self, call: Call) -> None:
        """Refuse a model that does not give the same outputs twice."""
        first, second = (self.precision.run(self.copy, call).tensors for _ in range(2))
        if any(
            name not in second or x.shape != second[name].shape or not bit_for_bit(x, second[name])
            for name, x in first.items()
        ):
            raise InvalidValue(
                f"{type(self.model).__name__}: its forward draws random numbers, so there is no function to keep; call "
                "eval(), or give them as an argument. Nothing was changed"
            )

    def _check_same_way(self, call: Call, log: Log) -> None:
        """Refuse a model that takes another way in its own numbers than in float64, or with gradients than without."""
        own = Explorer(self.model, self.generator)
        own.precision = Precision(float64=False)
        where = ""
        if essence(own.recorded(call).log) != essence(log):
            where = "in float64 its forward does something else than in its own dtype"
        elif not self._same_with_gradients(own, call, log):
            where = "with gradients its forward does something else than without"
        if where:
            raise InvalidValue(
                f"{type(self.model).__name__}: {where}, so there are two functions to keep. Nothing was changed"
            )

    @staticmethod
    def _same_with_gradients(own: Explorer, call: Call, log: Log) -> bool:
        """Whether the same operations run; how often not: a profile is tried out to see whether it is being trained."""
        try:
            return essence(own.recorded(call, gradients=True).log).keys() == essence(log).keys()
        except Exception:  # writing into inputs that have gradients, say
            return True

    def _others(self, call: Call, base: Call, data: bool, arguments: bool) -> Iterator[Call]:
        yield from mixtures(call, self.generator) if data else other_inputs(call, self.generator)
        if arguments:
            yield from other_arguments(self.model, base, self.generator)

    def climb(self, found: Explored) -> None:
        """Try many numbers of rows and lengths: for models that ask for them in ways torch.fx cannot see."""
        start, effort = time.perf_counter(), 0
        for call in self._ladder(self.model, found.base):
            if effort > EFFORT or time.perf_counter() - start > PATIENCE:
                break
            effort += self._try(found, call, keep=False)

    @staticmethod
    def _ladder(model: nn.Module, base: Call) -> Iterator[Call]:
        numbers = sum(x.numel() for x in base.tensors)
        asked = {k + d for k in numbers_in_code(model) for d in (0, 1)}
        for k in sorted({*LADDER, *asked}):
            if k * numbers <= LARGEST * base.rows:
                yield with_rows(base, k)
        for n in lengths_of(base):
            for k in sorted({n - 1, 2 * n + 1, 3 * n, *LADDER, *asked} - {-1, 0}):
                if n and numbers * (k / n) ** 2 <= LARGEST:
                    yield from with_lengths(base, n, k)

    def _try(self, found: Explored, call: Call, *, keep: bool = True) -> int:
        """Run a call and see whether it takes another way; returns how many operations ran."""
        try:
            tried = self.recorded(call)
        except Exception:  # whatever a model says to inputs of another shape
            return 0
        if keep:
            found.others.append(tried)
        if tried.log in found.logs:
            return len(tried.log)
        looped = loops(found.logs[0], tried.log)
        found.looped |= looped
        only_longer = {name for name, _ in tried.log} <= {name for name, _ in found.logs[0]}
        if looped and only_longer:
            return len(tried.log)
        if len(found.ways) < MOST_WAYS:
            found.add_way(call, tried.log)
        elif not keep and all(tried.log != other.log for other in found.others):
            found.others.append(tried)  # it is not followed unless the judge finds a difference there
        return len(tried.log)

    def _check_no_memory(self, given: Tried) -> None:
        """Refuse a model that gives something else when it is called again, with what it kept of earlier calls."""
        why = changed_by_calls(self.model, self.precision, given.call, given.ran, bit_for_bit)
        if why is not None:
            raise InvalidValue(
                f"{type(self.model).__name__}: what its forward does depends on what earlier calls left on it{why}, so "
                "it is no function of its inputs; give the state as an argument. Nothing was changed"
            )

    def _first(self, call: Call) -> Tried:
        """Run the given call in float64, or if that does not go, in the model's own numbers."""
        try:
            return self.recorded(call)
        except InvalidValue:
            raise
        except Exception:
            self.precision = Precision(float64=False)
            self.release()
            return self.recorded(call)

    def recorded(self, call: Call, *, gradients: bool = False, restore: bool = True) -> Tried:
        """Run a call on the copy; raises whatever the model raises."""
        recorder, ran, norms = self._watched(self.copy, call, gradients=gradients, restore=restore)
        self._refuse_outside(recorder.outside)
        if recorder.met:
            raise InvalidValue(
                f"{type(self.model).__name__}: a copy of it uses {min(recorder.met)} of the model that it was made "
                "from, so a function that stands on it closes over that model; make it a method, or take the layers "
                "as arguments. Nothing was changed"
            )
        if recorder.written:
            raise InvalidValue(
                f"{type(self.model).__name__}: its forward writes into its parameter {sorted(recorder.written)[0]}, so "
                "it is another function after every call. Nothing was changed"
            )
        at_jump = torch.zeros(call.rows, dtype=torch.bool)
        for rho, r in norms:
            if len(r) == call.rows:
                at_jump |= rows_of(near_jump(rho, r))
        return Tried(call, ran, at_jump, recorder.log)

    def _watched(self, model: nn.Module, call: Call, **options: bool) -> tuple[Recorder, Ran, list[Norms]]:
        """Run a call, record it, and note the norms that arrive at activations whose profile jumps."""
        recorder = Recorder(model, self.model)
        norms: list[Norms] = []

        def look(m: nn.Module, v: object) -> None:
            if isinstance(m, RadialActivation) and m.jumps and isinstance(v, Tensor) and v.ndim:
                norms.append(Norms(m, norms_of(m, v)))

        with recorder.whole(whole_modules(model), look):
            ran = self.precision.run(model, call, [recorder], **options)
        return recorder, ran, norms

    def with_rounded_weights(self, tried: Tried, nudges: Nudges) -> Tried:
        """The same with more rows at a jump: where ten times what one ulp of the weights does moves a norm across.

        Two models that are the same function up to the rounding of their weights need not agree there.
        """
        call = tried.call
        norms = self._watched(self.copy, call)[2]
        moved = [torch.zeros_like(r) for _, r in norms]
        for _ in range(DRAWS if norms else 0):
            other = copied(self.model, nudges.weights, nudges.given)
            near = self._watched(other, call.mapped(nudges.given))[2]
            for most, (_, before), (_, after) in zip(moved, norms, near, strict=False):
                if after.shape == before.shape:
                    torch.maximum(most, (after - before).abs(), out=most)
        at_jump = tried.at_jump.clone()
        for (rho, r), most in zip(norms, moved, strict=True):
            if len(r) == call.rows:
                at_jump |= rows_of(near_jump(rho, r, TIMES_CONDITIONING * most))
        return tried._replace(at_jump=at_jump)

    def _refuse_outside(self, found: set[str]) -> None:
        if found:
            raise InvalidValue(
                f"{type(self.model).__name__}: its forward takes numbers out of PyTorch (by {min(found)}), where "
                "nobody sees what becomes of them. Nothing was changed"
            )

    def _few(self, given: Tried) -> Call:
        """A few rows of the call, if the model takes the same way with them."""
        call = given.call
        if call.rows <= FEW + 1:
            return call
        few = call.with_rows(torch.arange(FEW), call.what)
        try:
            return few if self.recorded(few).log == given.log else call
        except Exception:
            return call

    def _add_told(self, asked: dict[str, set[str]], told: Sequence[Tensor]) -> None:
        """Sizes of layers that forward reads off their weights: ``len(self.a.weight)``."""
        shapes = {id(x) for x in told}
        for path, m in self.copy.named_modules():
            if has_sizes(m) and any(id(p) in shapes for p in m.parameters(recurse=False)):
                asked.setdefault(path, set()).update(name for name in _SIZES if name in vars(m))

    def _asked_sizes(self, call: Call) -> dict[str, set[str]]:
        """The sizes of layers that the model's own forward reads: they must not change."""
        layers = {path: m for path, m in self.copy.named_modules() if has_sizes(m)}
        with _watching(layers) as asked:
            try:
                self.precision.run(self.copy, call)
            except Exception:
                return {}
        return asked


@contextmanager
def _watching(layers: dict[str, nn.Module]) -> Iterator[dict[str, set[str]]]:
    """While this lasts, reading a size of one of these layers is noted; their own forwards read none."""
    asked: dict[str, set[str]] = {}
    classes = {path: m.__class__ for path, m in layers.items()}
    try:
        for path, m in layers.items():
            m.__class__ = _watched_class(m.__class__, path, asked)
        yield asked
    finally:
        for path, m in layers.items():
            m.__class__ = classes[path]


def _watched_class(cls: type, path: str, asked: dict[str, set[str]]) -> type:
    def watched(name: str) -> property:
        def read(m: nn.Module) -> object:
            if name not in vars(m):
                raise AttributeError(f"{type(m).__name__!r} object has no attribute {name!r}")
            if not sys._getframe(1).f_code.co_filename.startswith(_OURS):  # a RadNet checks its inputs
                asked.setdefault(path, set()).add(name)
            return vars(m)[name]

        return property(read)

    return type(cls.__name__, (cls,), {name: watched(name) for name in _SIZES})


def shapes_tried(found: Explored) -> Sequence[str]:
    """What the calls were, in words."""
    return tuple(dict.fromkeys(tried.call.what for tried in found.others))
