"""Compress any module that has radial parts: trace, fold, follow, bases, change, install; then it is certified.

    programs = follower.programs()                      trace, fold     (programs, tracing, folding)
    analysis = Analysis(steps, ...)                     follow          (spaces.follow, operations)
    layout   = lay_out(analysis, ...)                   bases           (spaces.bases, spaces.growing, spaces.ties)
    found    = changes(analysis, layout)                change          (surgery, operations)
    install(small, found, ...)                          install         (surgery, rewriting)
    certified(model, ...)                               certify         (certifying, judging)

Each pass returns a value, and none writes into what an earlier one returned. docs/architecture.md draws the way.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ..errors import InvalidValue
from ..modes import Argument
from ..network import NetworkT
from ..running import Call, Ran, as_float64, copied, with_same_parameters
from .bounds.bound import Bound, bound
from .certifying import certified, explored_chain, run_as_stored
from .chain import ReducedChain, qr_compress
from .guards import AxesGuard, Guard, ModeGuard, NeverRan, SizesGuard, axes_of, parameters_of
from .judging.certificate import Certificate
from .judging.code import asking_for, asks_for_kinds, names_of, reads
from .judging.explored import Explored
from .judging.exploring import Explorer
from .kinds import KindsGuard
from .model import ModelCompression
from .operations import has_sizes
from .operations.ends import Input
from .picture import Edge
from .program import Step
from .programs import Follower
from .reasons import Reason, Why
from .result import Compression, parameter_versions
from .rewriting import rewritten
from .shipping import as_shipped
from .spaces.bases import lay_out
from .spaces.coordinates import Change
from .spaces.features import Feature, Pin
from .spaces.follow import Analysis, Hulls
from .spaces.growing import grown
from .spaces.layouts import Layout, SpaceReport, reports
from .spaces.ranks import basis_of
from .spaces.spans import AffineSet, double
from .spaces.ties import conflicts, shared_features, ties_of
from .storage import remember_shapes
from .surgery import changes, install

ModelT = TypeVar("ModelT", bound=nn.Module)
#: what code names that asks how many axes a tensor has
_COUNTING = frozenset({"dim", "ndim", "ndimension"})
#: where layers keep the width of what they write
_WRITTEN = ("out_features", "out_channels", "embedding_dim")


@dataclass(frozen=True, eq=False)
class Smaller(Generic[ModelT]):
    """A smaller copy of a model in the dtype that ships and in float64, and what became of its spaces."""

    network: ModelT
    wide: ModelT
    spaces: tuple[SpaceReport, ...]
    traced_by: str
    bound: Bound | None
    edges: tuple[Edge, ...]


def compress_chain(model: NetworkT, call: Call, generator: torch.Generator) -> Compression[NetworkT]:
    """The paper's chain: Algorithm 1, and its certificate."""
    explorer = Explorer(model, generator)
    explored = explored_chain(explorer, model, call)
    explorer.release()
    reduced = qr_compress(model.weights, model.biases)
    network = model.with_parameters(reduced.weights, reduced.biases)
    wide = _before_rounding(network, reduced) if explored.precision.float64 else network
    certificate = certified(model, wide, network, explored, None, generator)
    return Compression(network, certificate, model, reduced, parameter_versions(model))


def _before_rounding(network: NetworkT, reduced: ReducedChain) -> NetworkT:
    """The small network in float64, with the weights that QR gave."""
    wide: NetworkT = copied(network, as_float64)
    for layer, W, b in zip(wide.layers, reduced.weights, reduced.biases, strict=True):
        device = next(layer.parameters()).device
        layer.register_parameter("weight", nn.Parameter(W.to(device, copy=True)))
        layer.register_parameter("bias", None if b is None else nn.Parameter(b.to(device, copy=True)))
    return wide


@dataclass(frozen=True, eq=False)
class Wish(Generic[ModelT]):
    """What is to be compressed, and how: the arguments of `compress`."""

    model: ModelT
    call: Call
    tol: float | None = None
    data: Tensor | None = None
    rewrite: bool = False
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))


def compress_any(wish: Wish[ModelT]) -> ModelCompression[ModelT]:
    """A model of any kind: followed, made smaller, certified; again along another way where it was found to differ."""
    as_stored = run_as_stored(wish.model, wish.call)
    follower = follower_of(wish)
    while True:
        try:
            smaller, certificate = _attempt(wish, follower, as_stored)
            break
        except InvalidValue as error:  # where it differs the model may do something else: follow it there too
            if not _knows_more(follower):
                raise _blamed(error, wish, follower, as_stored) from error
    limits = _guarded(smaller, certificate.limits, wish, follower.explored)
    remember_shapes(smaller.network, wish.model)
    return ModelCompression(
        smaller.network,
        dataclasses.replace(certificate, limits=limits),
        wish.model,
        smaller.spaces,
        wish.call.args,
        smaller.traced_by,
        smaller.bound,
        smaller.edges,
    )


def _guarded(
    smaller: Smaller[ModelT], other_axes: Sequence[str], wish: Wish[ModelT], explored: Explored
) -> tuple[str, ...]:
    """Have the small model refuse what it is not known to be the same for; what that is, in words."""
    network, original, call = smaller.network, wish.model, wish.call
    names = parameters_of(network)
    shrank = any(space.after < space.before for space in smaller.spaces)
    guards: list[Guard] = []
    limits = list(other_axes)
    counted = shrank and not _COUNTING.isdisjoint(names_of(original))
    if explored.refused_axes or counted:
        axes = axes_of(names, call.args, call.kwargs)
        guards.append(AxesGuard(names, axes, explored.refused_axes, counted=counted))
    for c, path in explored.refused_sizes if shrank else ():
        guards.append(sizes := SizesGuard(names, axes_of(names, c.args, c.kwargs), path))
        limits.append(f"sizes with {sizes.words}")
    if shrank and explored.refused_training:
        guards.append(ModeGuard(asking_for(network, "training")))
        limits.append("training mode")
    if shrank and wish.tol is None and not wish.rewrite and asks_for_kinds(original, call.args, call.kwargs):
        judged = [explored.given.call, *(tried.call for tried in explored.others), *explored.ways]
        unread = [name for name in inspect.signature(original.forward).parameters if not reads(original, name)]
        guards.append(KindsGuard(network, [(c.args, c.kwargs) for c in judged], unread))
    for guard in guards:
        guard.stand_before(network)
    modules = dict(network.named_modules())  # a rewritten model has not all of them
    idle = [layer for layer in explored.idle() if shrank and layer in modules]
    for layer in idle:
        NeverRan(layer).stand_before(modules[layer])
    return (*limits, *(f"calls of {layer}, which never ran" for layer in idle))


def _attempt(wish: Wish[ModelT], follower: Follower, as_stored: Ran) -> tuple[Smaller[ModelT], Certificate]:
    smaller = made_smaller(wish, follower)
    return smaller, certified(
        wish.model, smaller.wide, smaller.network, follower.explored, wish.tol, wish.generator, as_stored
    )


def _knows_more(follower: Follower) -> bool:
    """Whether a failed attempt showed a way of the model that was not followed, or a shape that must not change."""
    explored = follower.explored
    differ, explored.differ = explored.differ, []
    known = len(explored.ways)
    for tried in differ:
        if tried.call not in (explored.given.call, *explored.ways) and tried.log not in explored.logs[known + 1 :]:
            explored.add_way(tried.call, tried.log)
    if len(explored.ways) > known:
        follower.restart()
    elif explored.measured - explored.pinned:
        explored.pinned = explored.measured
    else:
        return False
    return True


def _blamed(error: InvalidValue, wish: Wish[ModelT], follower: Follower, as_stored: Ran) -> InvalidValue:
    """The error, with the registered operation that it is the fault of: the one without whose word all is well."""
    for operation, paths in follower.registered().items():
        follower.distrusted = frozenset({operation})
        follower.restart()
        try:
            _attempt(wish, follower, as_stored)
        except InvalidValue:
            continue
        where = ", ".join(sorted(paths))
        return InvalidValue(f"{error}. Without the registered operation {operation.__name__} (at {where}) it does")
    return error


def follower_of(wish: Wish[ModelT]) -> Follower:
    """What is found out about a model before it is traced, and what will trace it."""
    explorer = Explorer(wish.model, wish.generator)
    explored = explorer.explore(
        wish.call, data=wish.data is not None, exact=wish.tol is None, arguments=not wish.rewrite
    )
    return Follower(explored, explorer, wish.rewrite)


def compress_model(model: ModelT, inputs: Sequence[Argument] | Call) -> Smaller[ModelT]:
    """A copy of the model with every space in its smallest basis; it is not judged."""
    wish = Wish(model, inputs if isinstance(inputs, Call) else Call(tuple(inputs)))
    return made_smaller(wish, follower_of(wish))


def made_smaller(wish: Wish[ModelT], follower: Follower) -> Smaller[ModelT]:
    """A copy of the model with every space in its smallest basis; it is not judged yet.

    With the follower of an earlier try, what that try found out is not found out again.
    """
    model, tol, rewrite = wish.model, wish.tol, wish.rewrite
    programs = follower.programs()
    steps = [step for program in programs for step in program]
    _check_rewritable(model, follower.explored, rewrite)
    small: ModelT = with_same_parameters(follower.model)
    parameters = dict(small.named_parameters(remove_duplicate=False))
    analysis = Analysis(steps, parameters, _hulls(steps, wish.data), lengths=tol is not None, kept=follower.kept)
    pins = list(_asked(analysis, follower.explored))
    layout, found = _laid_out(analysis, small, pins, tol=tol, rewrite=rewrite, half=_stored_in_half(model))
    change = None if tol is None else bound(analysis, layout, steps, wish.call.tensors)
    install(small, found, analysis, layout)
    wide: Any = rewritten(small, follower.explored.base, programs[0], analysis, layout) if rewrite else small
    edges = tuple(_edges(analysis, layout))
    spaces = (*reports(layout), *_in_loops(model, follower.explored.looped))
    return Smaller(as_shipped(wide, model), wide, spaces, follower.way, change, edges)


def _in_loops(model: nn.Module, looped: Collection[str]) -> Iterator[SpaceReport]:
    """The layers that are not followed because they are called in a loop of varying length."""
    for path, m in model.named_modules():
        if path in looped and has_sizes(m):
            n, why = next(size for name, size in vars(m).items() if name in _WRITTEN), Why(Reason.LOOP, path)
            yield SpaceReport(path, n, n, str(why), (), why.reason)


def _laid_out(
    analysis: Analysis,
    small: nn.Module,
    pins: Sequence[Pin],
    *,
    tol: float | None,
    rewrite: bool,
    half: Callable[[Feature], bool] | None,
) -> tuple[Layout, list[Change]]:
    """Bases, and what they make of the parameters; what would have to become two things at once is pinned."""
    ties, parameters = ties_of(small), dict(small.named_parameters(remove_duplicate=False))
    shared = shared_features(analysis, ties, parameters)
    known: set[tuple[bytes, Why]] = set()
    while True:
        layout = lay_out(analysis, shared, tol, narrow=half, pins=pins)
        layout = grown(analysis, layout, shared) if rewrite else layout
        found = changes(analysis, layout)
        new = {(pin.entries.tobytes(), pin.why): pin for pin in conflicts(analysis, layout, found, ties, parameters)}
        if not new.keys() - known:  # whatever is left, the certificate will see
            return layout, found
        pins, known = [*pins, *new.values()], known | new.keys()


def _check_rewritable(model: nn.Module, explored: Explored, rewrite: bool) -> None:
    if rewrite and explored.kept:
        raise InvalidValue(
            f"{type(model).__name__}: its forward leaves tensors on its modules, which a rewritten model, being a "
            "graph, does not; compress it without rewrite. Nothing was changed"
        )


def _stored_in_half(model: nn.Module) -> Callable[[Feature], bool] | None:
    """Whether hidden numbers are float16, where a coordinate may overflow that no entry did."""
    half = any(p.dtype == torch.float16 for p in model.parameters())
    return (lambda feature: True) if half else None


def _asked(analysis: Analysis, explored: Explored) -> Iterator[Pin]:
    """Features whose width the model's forward reads, or that it leaves on a module."""
    for use in analysis.uses:
        path = use.step.path or ""
        for name in sorted(explored.asked.get(path, ())):
            feature = use.reads if name.startswith("in_") else use.writes
            if feature is not None:
                yield Pin(feature.entries, Why(Reason.SIZE_ASKED, f"{path}.{name}"))
    made = [(use.step.path or "", use.writes) for use in analysis.uses]
    made += [(use.step.path or "", use.makes) for use in analysis.radial]
    for path, out in made:
        if path in explored.kept and out is not None:
            yield Pin(out.entries, Why(Reason.MADE_AND_KEPT, path))
        if path in explored.pinned and out is not None:
            yield Pin(out.entries, Why(Reason.SHAPE_ASKED, path))


def _edges(analysis: Analysis, layout: Layout) -> Iterator[Edge]:
    for use in analysis.uses:
        reads, writes = (
            () if feature is None else tuple(dict.fromkeys(run.space for run in layout.runs[feature]))
            for feature in (use.reads, use.writes)
        )
        yield Edge(use.step.name, reads, writes)


def _hulls(steps: Sequence[Step], data: Tensor | None) -> Hulls:
    """What can stand along the last axis of the first input, and along its channels if it is a picture."""
    if data is None:
        return {}
    first = next(step.made.name for step in steps if isinstance(step.operation, Input))
    return {(first, dim): affine_hull(data, dim) for dim in {data.ndim - 1, min(1, data.ndim - 1)}}


def affine_hull(data: Tensor, dim: int = -1) -> AffineSet:
    """The smallest affine set with all vectors along an axis in it."""
    rows = double(data).movedim(dim, -1).reshape(-1, data.shape[dim])
    c = rows.mean(dim=0)
    return AffineSet(rows.shape[1], c, {("data", dim): basis_of((rows - c).mT)})
