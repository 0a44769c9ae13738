"""Compress any module that has radial parts: analysis, bases, surgery on a copy, certificate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from ..errors import InvalidValue
from .bases import Layout, SpaceReport, lay_out, reports
from .bounds import Bound, bound
from .exported import trace_exported
from .features import Feature
from .graph import Analysis, Use, double
from .growing import grow
from .norms import fold
from .picture import Edge
from .program import Step, trace
from .rewriting import rewritten
from .spans import AffineSet, basis_of
from .surgery import Change, block_widths, changes, install

ModelT = TypeVar("ModelT", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class Smaller(Generic[ModelT]):
    """A smaller copy of a model, and what became of its spaces."""

    network: ModelT
    spaces: tuple[SpaceReport, ...]
    traced_by: str
    bound: Bound | None
    edges: tuple[Edge, ...]


def compress_model(
    model: ModelT,
    inputs: Sequence[Tensor],
    *,
    tol: float | None = None,
    data: Tensor | None = None,
    rewrite: bool = False,
) -> Smaller[Any]:
    """A copy of the model with every space in its smallest basis; nothing is measured yet."""
    small = copy.deepcopy(model)
    follow, way = (trace, "torch.fx") if rewrite else _way_to_trace(small, inputs)
    steps = follow(small, inputs)
    while fold(small, steps):
        steps = follow(small, inputs)
    parameters = dict(small.named_parameters(remove_duplicate=False))
    first = next((step.made.name for step in steps if step.kind == "input"), "")
    analysis = Analysis(steps, parameters, {} if data is None else _hulls(first, data))
    ties = _ties(small)
    shared = _shared(analysis, ties, parameters)
    pinned: set[Feature] = set()
    while True:
        layout = lay_out(analysis, shared, tol)
        if rewrite:
            grow(analysis, layout, shared)
        found = changes(analysis, layout)
        conflicts = dict(_conflicts(analysis, layout, found, ties, parameters))
        if not conflicts.keys() - pinned:  # whatever is left, the certificate will see
            break
        for feature, why in conflicts.items():
            analysis.pin(feature, why)
        pinned |= conflicts.keys()
    change = None if tol is None else bound(analysis, layout, steps, inputs)
    install(small, found, analysis, layout)
    network = rewritten(small, analysis, layout) if rewrite else small
    return Smaller(network, tuple(reports(layout)), way, change, tuple(_edges(analysis, layout)))


def _edges(analysis: Analysis, layout: Layout) -> Iterator[Edge]:
    for use in analysis.uses:
        reads, writes = (
            () if feature is None else tuple(dict.fromkeys(run.space for run in layout.runs[feature]))
            for feature in (use.reads, use.writes)
        )
        yield Edge(use.step.name, reads, writes)


def _way_to_trace(model: nn.Module, inputs: Sequence[Tensor]) -> tuple[Callable[..., list[Step]], str]:
    """torch.fx where it can follow the model, torch.export where it cannot."""
    try:
        trace(model, inputs)
    except InvalidValue as error:
        try:
            trace_exported(model, inputs)
        except Exception as second:
            raise InvalidValue(f"{error}; nor can torch.export ({type(second).__name__})") from error
        return trace_exported, "torch.export"
    return trace, "torch.fx"


def _hulls(name: str, data: Tensor) -> dict[tuple[str, int], AffineSet]:
    """What can stand along the last axis of an input, and along its channels if it is a picture."""
    return {(name, dim): affine_hull(data, dim) for dim in {data.ndim - 1, min(1, data.ndim - 1)}}


def affine_hull(data: Tensor, dim: int = -1) -> AffineSet:
    """The smallest affine set with all vectors along an axis in it."""
    rows = double(data).movedim(dim, -1).reshape(-1, data.shape[dim])
    c = rows.mean(dim=0)
    return AffineSet(rows.shape[1], c, {("data", dim): basis_of((rows - c).mT)})


def _names(use: Use) -> dict[str, str]:
    """Parameter names of a use, and what they are in a `Change`."""
    path = use.step.path or ""
    if use.step.kind == "parameter":
        return {path: "weight"}
    return {f"{path}.weight": "weight", f"{path}.bias": "bias"}


def _ties(model: nn.Module) -> list[list[str]]:
    """Names of parameters that are one and the same tensor."""
    by_id: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        by_id.setdefault(id(p), []).append(name)
    return [names for names in by_id.values() if len(names) > 1]


def _shared(analysis: Analysis, ties: list[list[str]], parameters: Mapping[str, Tensor]) -> set[Feature]:
    """Features of parameters that serve in several places: all must change in the same way."""
    count: dict[str, int] = {}
    for use in analysis.uses:
        for name in _names(use):
            count[name] = count.get(name, 0) + 1
    tied = {name for names in ties for name in names}
    found: set[Feature] = set()
    for use in analysis.uses:
        if any(count[name] > 1 or name in tied for name in _names(use) if name in parameters):
            found |= {f for f in (use.reads, use.writes) if f is not None}
    return found


def _conflicts(
    analysis: Analysis, layout: Layout, found: list[Change], ties: list[list[str]], parameters: Mapping[str, Tensor]
) -> Iterator[tuple[Feature, str]]:
    """Parameters that would have to become two different things at once."""
    new: dict[str, list[Tensor]] = {}
    for change in found:
        for name, attribute in _names(change.use).items():
            value = getattr(change, attribute)
            if value is not None and name in parameters:
                new.setdefault(name, []).append(value)
    for use in analysis.uses:  # a place where nothing changes wants the tensor as it is
        if not any(use is change.use for change in found):
            for name in _names(use):
                if name in new:
                    new[name].append(double(parameters[name]))
    for names in [*ties, *([name] for name in new)]:
        wanted = [value for name in names for value in new.get(name, [])]
        if wanted and any(name not in new for name in names):
            wanted.append(double(parameters[names[0]]))
        if any(not _close(wanted[0], value) for value in wanted[1:]):
            for use in analysis.uses:
                if set(_names(use)) & set(names):
                    for feature in (use.reads, use.writes):
                        if feature is not None:
                            yield feature, f"{' and '.join(names)} serves in places that need different bases"
    places: dict[str, list[tuple[Feature, list[int]]]] = {}
    for step, feature, blocks, _ in analysis.radial:
        if len(blocks) > 1:
            sizes = block_widths(blocks, feature, layout.runs[feature])
            places.setdefault(step.path or "", []).append((feature, sizes))
    for path, found_there in places.items():
        if any(sizes != found_there[0][1] for _, sizes in found_there):
            for feature, _ in found_there:
                yield feature, f"{path} is used in places that need blocks of different sizes"


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(
        (a - b).abs().max() <= 1e-11 * max(float(a.abs().max()), 1e-300) if a.numel() else True
    )
