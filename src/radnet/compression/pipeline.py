"""Compress any module that has radial parts: trace, fold, follow, bases, change, install; then it is certified.

    programs = follower.programs()                      trace, fold     (following, tracing, folding)
    analysis = Analysis(steps, ...)                     follow          (spaces.follow, operations)
    layout   = lay_out(analysis, ...)                   bases           (spaces.bases, spaces.growing, spaces.ties)
    found    = changes(analysis, layout)                change          (surgery, operations)
    install(small, found, ...)                          install         (surgery, rewriting)
    certify(model, ...)                                 certify         (certifying, judging)

Each pass returns a value, and none writes into what an earlier one returned. docs/architecture.md draws the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ..errors import InvalidValue
from ..network import NetworkT
from ..running import Call, as_float64, copied, with_same_parameters
from .bounds.bound import Bound, bound
from .certifying import certified, explored_by, run_as_stored
from .chain import qr_compress
from .following import Follower
from .judging.exploring import Explored, Explorer
from .model import ModelCompression
from .operations.ends import Input
from .picture import Edge
from .program import Step
from .reasons import Reason, Why
from .result import Compression, parameter_versions
from .rewriting import rewritten
from .shipping import as_shipped
from .spaces.bases import Layout, SpaceReport, lay_out, reports
from .spaces.coordinates import Change
from .spaces.features import Feature, Pin
from .spaces.follow import Analysis, Hulls
from .spaces.growing import grown
from .spaces.ranks import basis_of
from .spaces.spans import AffineSet, double
from .spaces.ties import conflicts, shared_features, ties_of
from .surgery import changes, install

ModelT = TypeVar("ModelT", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class Smaller(Generic[ModelT]):
    """A smaller copy of a model in the dtype that ships and in float64, and what became of its spaces."""

    network: ModelT
    wide: ModelT
    spaces: tuple[SpaceReport, ...]
    traced_by: str
    bound: Bound | None
    edges: tuple[Edge, ...]
    follower: Follower

    @property
    def explored(self) -> Explored:
        """What is known of the model."""
        return self.follower.explored


def compress_chain(model: NetworkT, call: Call, generator: torch.Generator) -> Compression[NetworkT]:
    """The paper's chain: Algorithm 1, and its certificate."""
    explorer = Explorer(model, generator)
    explored = explored_by(explorer, call)
    explorer.release()
    reduced = qr_compress(model.weights, model.biases)
    network = model.with_parameters(reduced.weights, reduced.biases)
    wide = copied(network, as_float64)
    for layer, W, b in zip(wide.layers, reduced.weights, reduced.biases, strict=True):  # as they were before rounding
        layer.weight = nn.Parameter(W.to(layer.weight.device, copy=True))
        layer.bias = None if b is None else nn.Parameter(b.to(layer.weight.device, copy=True))
    certificate = certified(model, wide, network, explored, None, generator)
    return Compression(network, certificate, model, reduced, parameter_versions(model))


def compress_any(
    model: ModelT,
    call: Call,
    tol: float | None,
    data: Tensor | None,
    rewrite: bool,
    generator: torch.Generator,
) -> ModelCompression[ModelT]:
    """Any model: followed, made smaller and certified, again along another way where it was found to differ."""
    as_stored = run_as_stored(model, call)
    follower = None
    while True:
        smaller = compress_model(
            model, call, tol=tol, data=data, rewrite=rewrite, generator=generator, follower=follower
        )
        explored, follower = smaller.explored, smaller.follower
        try:
            certificate = certified(model, smaller.wide, smaller.network, explored, tol, generator, as_stored)
            break
        except InvalidValue:  # where it differs the model may do something else: follow it there too
            new = [tried for tried in explored.differ if tried.call not in (explored.given.call, *explored.ways)]
            explored.differ = []
            if new:
                explored.add_way(new[0].call, new[0].log)
                follower.restart()
            elif explored.measured - explored.pinned:
                explored.pinned = explored.measured
            else:
                raise
    return ModelCompression(
        smaller.network, certificate, model, smaller.spaces, call.args, smaller.traced_by, smaller.bound, smaller.edges
    )


def compress_model(
    model: ModelT,
    inputs: Sequence[Any] | Call,
    *,
    tol: float | None = None,
    data: Tensor | None = None,
    rewrite: bool = False,
    generator: torch.Generator | None = None,
    follower: Follower | None = None,
) -> Smaller[Any]:
    """A copy of the model with every space in its smallest basis; it is not judged yet.

    With the follower of an earlier try, what that try found out is not found out again.
    """
    call = inputs if isinstance(inputs, Call) else Call(tuple(inputs))
    if follower is None:
        explorer = Explorer(model, generator if generator is not None else torch.Generator().manual_seed(0))
        explored = explorer.explore(call, data=data is not None, exact=tol is None, arguments=not rewrite)
        follower = Follower(explored, explorer, rewrite)
    programs = follower.programs()
    steps = [step for program in programs for step in program]
    _check_rewritable(model, follower.explored, rewrite)
    small = with_same_parameters(follower.model)
    parameters = dict(small.named_parameters(remove_duplicate=False))
    analysis = Analysis(steps, parameters, _hulls(steps, data), lengths=tol is not None, kept=follower.kept)
    pins = list(_asked(analysis, follower.explored))
    layout, found = _laid_out(analysis, small, pins, tol=tol, rewrite=rewrite, half=_stored_in_half(model))
    change = None if tol is None else bound(analysis, layout, steps, call.tensors)
    install(small, found, analysis, layout)
    wide = rewritten(small, follower.explored.base, programs[0], analysis, layout) if rewrite else small
    edges = tuple(_edges(analysis, layout))
    return Smaller(as_shipped(wide, model), wide, tuple(reports(layout)), follower.way, change, edges, follower)


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
    first = next((step.made.name for step in steps if isinstance(step.operation, Input)), None)
    if data is None or first is None:
        return {}
    return {(first, dim): affine_hull(data, dim) for dim in {data.ndim - 1, min(1, data.ndim - 1)}}


def affine_hull(data: Tensor, dim: int = -1) -> AffineSet:
    """The smallest affine set with all vectors along an axis in it."""
    rows = double(data).movedim(dim, -1).reshape(-1, data.shape[dim])
    c = rows.mean(dim=0)
    return AffineSet(rows.shape[1], c, {("data", dim): basis_of((rows - c).mT)})
