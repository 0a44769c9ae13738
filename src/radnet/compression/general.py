"""Compress any module that has radial parts: explore, trace, fold, follow, bases, surgery on a copy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ..errors import InvalidValue
from ..running import Call, with_same_parameters
from .bases import Layout, SpaceReport, lay_out, reports
from .bounds import Bound, bound
from .exploring import Explored, Explorer
from .exported import export_recorded
from .features import Feature
from .graph import Analysis, Use, double
from .growing import grow
from .memory import Step
from .norms import fold
from .picture import Edge
from .program import trace_recorded
from .ranks import basis_of
from .recording import Log, missing
from .rewriting import rewritten
from .spans import AffineSet
from .surgery import Change, block_widths, changes, install

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
    explored = follower.explored
    programs = follower.programs()
    while fold(follower.model, [step for steps in programs for step in steps]):
        follower.forget()
        programs = follower.programs()
    small = with_same_parameters(follower.model)
    steps = [step for program in programs for step in program]
    parameters = dict(small.named_parameters(remove_duplicate=False))
    hulls = {} if data is None else _hulls([step.made.name for step in steps if step.kind == "input"][:1], data)
    analysis = Analysis(steps, parameters, hulls)
    if rewrite and explored.kept:
        raise InvalidValue(
            f"{type(model).__name__}: its forward leaves tensors on its modules, which a rewritten model, being a "
            "graph, does not; compress it without rewrite. Nothing was changed"
        )
    for feature, why in _asked(analysis, explored):
        analysis.pin(feature, why)
    ties = _ties(small)
    shared = _shared(analysis, ties, parameters)
    half = _stored_in_half(model)
    pinned: set[Feature] = set()
    while True:
        layout = lay_out(analysis, shared, tol, narrow=half)
        if rewrite:
            grow(analysis, layout, shared)
        found = changes(analysis, layout)
        conflicts = dict(_conflicts(analysis, layout, found, ties, parameters))
        if not conflicts.keys() - pinned:  # whatever is left, the certificate will see
            break
        for feature, why in conflicts.items():
            analysis.pin(feature, why)
        pinned |= conflicts.keys()
    change = None if tol is None else bound(analysis, layout, steps, call.tensors)
    install(small, found, analysis, layout)
    wide = rewritten(small, explored.base, programs[0], analysis, layout) if rewrite else small
    edges = tuple(_edges(analysis, layout))
    return Smaller(as_shipped(wide, model), wide, tuple(reports(layout)), follower.way, change, edges, follower)


class Follower:
    """Traces a copy of a model along every way that it is known to take, each once."""

    def __init__(self, explored: Explored, explorer: Explorer, rewrite: bool) -> None:
        self.explored, self.explorer, self.rewrite = explored, explorer, rewrite
        explorer.release()
        self._begin("torch.fx")

    def _begin(self, way: str) -> None:
        self.way, self.model = way, self.explored.precision.copy(self.explorer.model)
        self._found: list[list[Step]] = []
        self._folded = False

    def programs(self) -> list[list[Step]]:
        """The steps along each way: by torch.fx where it sees what runs, by torch.export where it does not."""
        if self.way == "torch.export":
            self._follow(self._exported)
        else:
            try:
                self._follow(self._traced)
            except InvalidValue as error:
                if self.rewrite:
                    raise
                self._turn_to_export(error)
        return [_without_loops(steps, self.explored.looped) for steps in self._found]

    def _turn_to_export(self, why: InvalidValue) -> None:
        self.explorer.climb(self.explored)
        self.explorer.release()
        self._begin("torch.export")
        try:
            self._follow(self._exported)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidValue(f"{why}; nor can torch.export ({type(error).__name__}: {reason})") from why

    def restart(self) -> None:
        """Begin with a fresh copy: along a new way a layer may be another function, and must not have been folded."""
        self._begin(self.way)

    def forget(self) -> None:
        """The copy has changed: norm layers were folded. What runs is no longer what ran in the original."""
        self._found, self._folded = [], True

    def _follow(self, trace: Callable[[Call, Log], list[Step]]) -> None:
        ways = list(zip((self.explored.base, *self.explored.ways), self.explored.logs, strict=True))
        for call, log in ways[len(self._found) :]:
            self._found.append(trace(call, log))

    def _traced(self, call: Call, log: Log) -> list[Step]:
        traced = trace_recorded(self.model, call, self.explored.precision)
        if not self._folded and traced.log != log:
            raise InvalidValue(
                f"{type(self.model).__name__} cannot be traced: while torch.fx looks, its forward does something else "
                "than when it runs"
            )
        return traced.steps

    def _exported(self, call: Call, log: Log) -> list[Step]:
        try:
            traced = export_recorded(self.model, self.explored.precision.inputs(call))
        except Exception:  # it insists on a dtype: follow it in its own
            traced = export_recorded(as_shipped(self.model, self.explorer.model), call, self.model)
        unseen = missing(log, traced.log)
        if not self._folded and unseen:
            raise InvalidValue(f"while it looks, {min(unseen)} does not run, which does otherwise")
        return traced.steps


def as_shipped(wide: nn.Module, model: nn.Module) -> Any:
    """A copy of a changed model whose numbers have the dtypes of the original's of the same name."""
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    dtypes = {name: value.dtype for name, value in tensors}
    out = with_same_parameters(wide)
    originals = dict(model.named_modules(remove_duplicate=False))
    made: dict[int, Tensor] = {}  # what is shared stays shared
    for path, m in out.named_modules():
        for name, value in vars(originals.get(path, m)).items():  # computed from parameters at every call, say
            if isinstance(value, Tensor) and isinstance(vars(m).get(name), Tensor):
                vars(m)[name] = vars(m)[name].to(value.dtype)
        prefix = f"{path}." if path else ""
        for store in (m._parameters, m._buffers):
            for name, value in store.items():
                if value is None:
                    continue
                dtype = dtypes.get(
                    prefix + name, dtypes.get(prefix + "weight", value.dtype)
                )  # a new bias: its weight's
                if id(value) not in made:
                    made[id(value)] = _converted(value, dtype if value.is_floating_point() else value.dtype)
                store[name] = made[id(value)]
    return out


def _converted(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in another dtype; a parameter is one again, of its own class."""
    if not isinstance(value, nn.Parameter):
        return value.detach().to(dtype, copy=True)
    if type(value) is nn.Parameter:
        return nn.Parameter(value.detach().to(dtype, copy=True), requires_grad=value.requires_grad)
    twin: Tensor = copy.deepcopy(value)
    twin.data = twin.data.to(dtype)
    return twin


def _stored_in_half(model: nn.Module) -> Any:
    """Whether hidden numbers are float16, where a coordinate may overflow that no entry did."""
    half = any(p.dtype == torch.float16 for p in model.parameters())
    return (lambda feature: True) if half else None


def _without_loops(steps: Sequence[Step], looped: set[str]) -> list[Step]:
    """The steps with those of modules that are called in a loop of varying length as unknown ones.

    What can stand there would have to be a fixed point of the loop; so nothing is said of it, and it stays as it is.
    """
    why = {"why": "is called in a loop whose length depends on the inputs"}
    return [
        Step("unknown", step.name, step.inputs, step.output, options=why) if step.path in looped else step
        for step in steps
    ]


def _asked(analysis: Analysis, explored: Explored) -> Iterator[tuple[Feature, str]]:
    """Features whose width the model's forward reads, or that it leaves on a module."""
    for use in analysis.uses:
        path = use.step.path or ""
        for name in sorted(explored.asked.get(path, ())):
            feature = use.reads if name.startswith("in_") else use.writes
            if feature is not None:
                yield feature, f"forward asks for {path}.{name}"
    made = [(use.step.path or "", use.writes) for use in analysis.uses]
    made += [(step.path or "", out) for step, _, _, out in analysis.radial]
    for path, out in made:
        if path in explored.kept and out is not None:
            yield out, f"what {path} gives, or something made of it, is kept on the model"
        if path in explored.pinned and out is not None:
            yield out, f"forward asks for the shape of what {path} gives, or of something made of it"


def _edges(analysis: Analysis, layout: Layout) -> Iterator[Edge]:
    for use in analysis.uses:
        reads, writes = (
            () if feature is None else tuple(dict.fromkeys(run.space for run in layout.runs[feature]))
            for feature in (use.reads, use.writes)
        )
        yield Edge(use.step.name, reads, writes)


def _hulls(names: Sequence[str], data: Tensor) -> dict[tuple[str, int], AffineSet]:
    """What can stand along the last axis of an input, and along its channels if it is a picture."""
    return {(name, dim): affine_hull(data, dim) for name in names for dim in {data.ndim - 1, min(1, data.ndim - 1)}}


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
