"""Which ways a model's Python takes: for the given inputs, for others like them, for arguments that are left out.

Each call is run in float64 and recorded (see `recording`). Calls with another log than the first take another way, and
the model has to be followed along that way as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...activations import RadialActivation
from ...errors import InvalidValue
from ...measuring import DRAWS, TIMES_CONDITIONING
from ...modes import Argument
from ...running import Call, Context, Precision, Ran, copied
from ..operations import has_sizes
from ..recording import Log, Outside, Recorder, called, loops, origins, steps_in
from ..tracing.fx import whole_modules
from ..trust import has_hooks
from .asked import SIZES, watching
from .code import asks_for_sizes, lengths_in, names_of
from .explored import Explored, Tried, other_kind
from .jumps import Norms, near_jump, norms_of, rows_of
from .one_function import check_no_chance, check_same_way, check_settings, differs_in_training
from .options import Outcome, vary
from .repeating import bit_for_bit, changed_by_calls
from .turning import take_turns, vary_lengths
from .variations import ENOUGH, ladder, may_be_many, mixtures, other_inputs, unusual_inputs

#: rows with which a model is traced, if it takes the same way with them
FEW = 3
#: other ways that are followed from the start; along further ones the small model is judged
MOST_WAYS = 3
#: operations that are recorded while other lengths are tried on a model that asks for them, the same on every machine;
#: and seconds after which even so nothing more is tried
EFFORT = 100_000
PATIENCE = 30.0
#: and how many numbers all these runs may make
MOST_MADE = 2**26
#: weights of a chain that is judged on half as many other rows as were given; a larger one on an eighth
SMALL_CHAIN = 2**17
#: while arguments are varied, so many runs' worth of the given call may run; a cheap one counts as one of more rows
RUNS, FEW_ROWS = 40, 32


class Nudges(NamedTuple):
    """A tensor of the original one ulp off, in the precision of the judge: parameters, and inputs and buffers."""

    weights: Callable[[Tensor], Tensor]
    given: Callable[[Tensor], Tensor]


class Explorer:
    """Runs copies of a model."""

    def __init__(self, model: nn.Module, generator: torch.Generator, precision: Precision | None = None) -> None:
        self.model, self.generator = model, generator
        self.precision = Precision() if precision is None else precision
        self._copy: nn.Module | None = None
        self.last = Recorder(model)  # of the last run, whether or not it came to its end
        self.made = 0  # how many numbers that run made in all; none, if it did not

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
        self._check_no_memory(given)
        found = Explored(self.precision, self._few(given), given, layers=self._layers(), ran=called(given.log))
        own = Explorer(self.model, self.generator, Precision(float64=False))
        check_same_way(self.model, own.recorded, found.base, given.log)
        check_no_chance(self.model, partial(self.precision.run, self.copy, found.base))
        with Outside() as outside, self._seen_by_hooks() as seen:
            log = self.recorded(found.base).log
        self._refuse_outside(outside.found)
        if log == given.log:
            found.measured = _origins(log, outside.measured)
            found.kept = _origins(log, seen)
        found.kept |= _origins(given.log, _sides(given.ran))
        found.asked = self._asked_sizes(found.base)
        self._add_told(found.asked, outside.told)
        found.logs.append(given.log)
        for other in self._others(call, found.base, data) if exact else ():
            self.attempt(found, other)
        if exact and arguments:
            vary(self.model, found.base, self.generator, self._allowance(given), partial(self._outcome, found))
        for other in unusual_inputs(found.base) if exact and not data else ():
            self.attempt(found, other, keep=bool(other.other_axes))
        if exact and self.model.training:
            self._try_evaluation(found)
        check_settings(self.model, self.recorded, [found.base, *(tried.call for tried in found.others)])
        if exact and not data:
            vary_lengths(self, found)
        if exact and not data and asks_for_sizes(self.model):
            take_turns(self, found)
        calls = [found.base, *(other.call for other in found.others if not other.call.other_axes), *found.ways]
        found.refused_training = not self.model.training and differs_in_training(self.model, self.recorded, calls)
        return found

    def explore_chain(self, call: Call) -> Explored:
        """The same for a `RadNet` and nothing else: its code is ours, so there is nothing to find out about it.

        What is wanted are outputs to compare, at as few passes through a wide network as will do.
        """
        given = self._first(call)
        found = Explored(self.precision, call, given, layers=self._layers(), ran=called(given.log), logs=[given.log])
        weights = sum(p.numel() for p in self.model.parameters())
        share = 2 if weights <= SMALL_CHAIN else 8
        for other in other_inputs(call, self.generator, rows=max(1, call.rows // share)):
            self.attempt(found, other)
        return found

    @contextmanager
    def _seen_by_hooks(self) -> Iterator[list[Tensor]]:
        """While this lasts, the tensors that hooks of blocks get to see, which must stay as they are, are gathered.

        The layers among them are not followed anyway, and the outputs of the model stay.
        """
        seen: list[Tensor] = []

        def look(module: nn.Module, args: Argument, kwargs: Argument, output: Argument = None) -> None:
            seen.extend(x for x in tree_leaves((args, kwargs, output)) if isinstance(x, Tensor))

        hooked = [m for m in self.copy.modules() if m is not self.copy and has_hooks(m) and list(m.children())]
        handles = [m.register_forward_hook(look, with_kwargs=True) for m in hooked]
        handles += [m.register_forward_pre_hook(look, with_kwargs=True) for m in hooked]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()

    def _layers(self) -> frozenset[str]:
        """The paths of modules with parameters whose calls are recorded."""
        whole = whole_modules(self.copy)
        inner = {f"{path}.{name}" for path, m in whole.items() for name, _ in m.named_modules() if name}
        return frozenset(p for p, m in whole.items() if p not in inner and list(m.parameters(recurse=False)))

    def check_function(self, call: Call) -> None:
        """Refuse a model whose outputs depend on chance, or on earlier calls."""
        self._check_no_memory(self.recorded(call))
        check_no_chance(self.model, partial(self.precision.run, self.copy, call))

    def _others(self, call: Call, base: Call, data: bool) -> Iterator[Call]:
        if data:
            return mixtures(call, self.generator)
        rows = call.rows // 2 if call.rows >= 4 else call.rows + 1
        many = may_be_many(call, lambda: self.made_by_row(base))
        return other_inputs(call, self.generator, rows=max(rows, ENOUGH - call.rows) if many else rows)

    def made_by_row(self, call: Call) -> float:
        """How many numbers a run makes for each row, in all operations together."""
        self._watched(self.copy, call)
        return self.made / call.rows

    def _allowance(self, given: Tried) -> int:
        """How many operations, times rows, may run while arguments are varied; a model that is cheap gets more."""
        rows = given.call.rows
        if may_be_many(given.call, lambda: self.made_by_row(given.call)):
            rows = max(rows, FEW_ROWS)
        return RUNS * rows * len(given.log)

    def _outcome(self, found: Explored, call: Call) -> Outcome:
        """What becomes of a call with other arguments; what it costs is known also where the model raises."""
        before, ways = len(found.others), len(found.ways)
        self.attempt(found, call)
        accepted = len(found.others) > before
        if accepted and len(found.ways) == ways:  # with other sizes it may take a way of its own
            found.alike.append(call)
        differs = accepted and found.others[-1].log != found.logs[0]
        return Outcome(accepted, differs, found.base.rows * (1 + len(self.last.log)))

    def climb(self, found: Explored) -> None:
        """Try many numbers of rows and lengths: for models that ask for them in ways torch.fx cannot see."""
        start, effort, made = time.perf_counter(), 0, 0
        each = self.made_by_row(found.base)
        for call in ladder(found.base, lengths_in(self.model), each, lambda: self.made):
            if effort > EFFORT or made > MOST_MADE or time.perf_counter() - start > PATIENCE:
                break
            effort += self.attempt(found, call, keep=False)
            made += self.made

    def _try_evaluation(self, found: Explored) -> None:
        """Follow a model that is given in training mode in evaluation mode too, if it asks which mode it is in."""
        call = replace(found.base, what="evaluation mode", training=False)
        try:
            tried = self.recorded(call)
        except Exception:
            return
        if tried.log not in found.logs:
            self.attempt(found, call)
        elif "training" in names_of(self.model):
            found.others.append(tried)
            found.add_way(call, tried.log)

    def attempt(self, found: Explored, call: Call, *, keep: bool = True) -> int:
        """Run a call and see whether it takes another way; returns how many operations ran."""
        try:
            tried = self.recorded(call)
        except Exception:  # whatever a model says to inputs of another shape
            return 0
        found.ran |= called(tried.log)
        found.kept |= _origins(tried.log, _sides(tried.ran))
        if keep:
            found.others.append(tried)
        if tried.log in found.logs:
            return len(tried.log)
        logs = [
            log for way, log in zip((found.base, *found.ways), found.logs, strict=True) if not other_kind(call, way)
        ]
        looped = set().union(*(loops(log, tried.log) for log in logs))
        found.looped |= looped
        only_longer = any({name for name, _ in tried.log} <= {name for name, _ in log} for log in logs)
        if looped and only_longer:
            if not keep and found.unexplained(tried.log):
                found.others.append(tried)
            return len(tried.log)
        if len(found.ways) < MOST_WAYS:
            found.add_way(call, tried.log)
        elif not keep and all(tried.log != other.log for other in found.others):
            found.others.append(tried)  # it is not followed unless the judge finds a difference there
        return len(tried.log)

    def _check_no_memory(self, given: Tried) -> None:
        """Refuse a model that gives something else when it is called again, with what it kept of earlier calls."""
        if not given.ran.keeps:
            return
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

    def recorded(
        self, call: Call, *, gradients: bool = False, restore: bool = True, under: Context = nullcontext
    ) -> Tried:
        """Run a call on the copy; raises whatever the model raises."""
        recorder, ran, norms = self._watched(self.copy, call, gradients=gradients, restore=restore, under=under)
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

    def _watched(self, model: nn.Module, call: Call, **options: Argument) -> tuple[Recorder, Ran, list[Norms]]:
        """Run a call, record it, and note the norms that arrive at activations whose profile jumps."""
        recorder, self.made = Recorder(model, self.model), 0
        self.last = recorder
        norms: list[Norms] = []

        def look(m: nn.Module, v: object) -> None:
            if isinstance(m, RadialActivation) and m.jumps and isinstance(v, Tensor) and v.ndim:
                norms.append(Norms(m, norms_of(m, v)))

        with recorder.whole(whole_modules(model), look):
            ran = self.precision.run(model, call, [recorder], **options)
        self.made = recorder.made
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
                asked.setdefault(path, set()).update(name for name in SIZES if name in vars(m))

    def _asked_sizes(self, call: Call) -> dict[str, set[str]]:
        """The sizes of layers that the model's own forward reads: they must not change."""
        layers = {path: m for path, m in self.copy.named_modules() if has_sizes(m)}
        with watching(layers) as asked:
            try:
                self.precision.run(self.copy, call)
            except Exception:
                return {}
        return asked


def _sides(ran: Ran) -> list[Tensor]:
    """What a call leaves on modules, and in lists and dictionaries that it was given."""
    return [x for name, x in ran.tensors.items() if not name.startswith("output")]


def _origins(log: Log, tensors: Iterable[Tensor]) -> set[str]:
    """The paths of the modules that made these tensors; see `origins`."""
    return set().union(*(origins(log, step) for step in steps_in(log, tensors)))
