"""The oracle for random programs: whether a compressed program is the same function as the original.

The verdict is found in float64 at many inputs and shapes. The library's own certificate has no part in it.
"""

import contextlib
import copy
import functools
import math
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import radnet
import radnet.compression  # a library that does not load is no outcome
from program_operations import OPERATIONS
from program_writer import option_value

#: relative rounding of a dtype, and how far a row may be off without any further excuse, as a share of its scale
SHARES = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2}
#: a hidden norm this close to a jump of its profile, or a largest entry this close to the second, decides nothing
NEAR = {torch.float64: 1e-3, torch.float32: 1e-3, torch.bfloat16: 5e-2}
DRAWS = 8


@dataclass(frozen=True)
class Outcome:
    """What became of a program: "lossless", "refused", "raw" or "wrong", and the words for it."""

    seed: int
    dtype: torch.dtype
    verdict: str
    text: str = ""
    way: str = ""  # torch.fx or torch.export
    before: int = 0  # parameters
    after: int = 0
    shapes: int = 0  # shapes of inputs that were compared
    rows: int = 0  # rows that were judged
    skipped: int = 0  # rows at a jump
    at_jump: bool = False  # whether that is where all given rows are; only asked of programs that are refused

    def __str__(self):
        return f"{self.seed} {str(self.dtype).removeprefix('torch.')}: {self.verdict} {self.text}"


class NearTies(TorchDispatchMode):
    """Notes rows in which an argmax was decided by next to nothing."""

    def __init__(self, note, near):
        super().__init__()
        self.note, self.near = note, near

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.argmax.default and len(args) > 1 and args[0].shape[args[1]] > 1:
            two = args[0].topk(2, args[1]).values
            first, second = two.select(args[1], 0), two.select(args[1], 1)
            self.note((first - second) <= self.near * first.abs().clamp(min=1e-300))
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def watching(model, rows, near, ties=True):
    """While the model runs: rows whose value hangs on the last digits, since something jumps there."""
    found = torch.zeros(rows, dtype=torch.bool)

    def note(close):
        if close.ndim and len(close) == rows:
            found.logical_or_(close.reshape(rows, -1).any(1))
        elif bool(close.any()):
            found.fill_(True)

    def look(rho, inputs):
        v = inputs[0]
        n = v.shape[rho.dim]
        sizes = rho.blocks if isinstance(rho.blocks, tuple) else [n // (rho.blocks or 1)] * (rho.blocks or 1)
        t = 0.0 if rho.shift is None else float(rho.shift)
        norms = torch.cat([part.norm(dim=rho.dim, keepdim=True) for part in v.split(sizes, rho.dim)], rho.dim)
        for jump in rho.jumps:
            note((norms - t - jump).abs() < near * max(1.0, abs(t + jump)))
        if float(rho.profile(torch.tensor(-t, dtype=torch.float64)).abs()) > 1e-12:  # then the origin is a jump, too
            note(norms < 1e-6)

    radial = [m for m in model.modules() if isinstance(m, radnet.RadialActivation)]
    handles = [m.register_forward_pre_hook(look) for m in radial]
    try:
        with NearTies(note, near) if ties else contextlib.nullcontext():
            yield found
    finally:
        for handle in handles:
            handle.remove()


def leaves(value, name="output"):
    """All tensors in a nest of tuples, lists and dictionaries, by name."""
    if isinstance(value, Tensor):
        return {name: value}
    if isinstance(value, dict):
        return {k: t for key, x in value.items() for k, t in leaves(x, f"{name}[{key!r}]").items()}
    if isinstance(value, list | tuple):
        return {k: t for i, x in enumerate(value) for k, t in leaves(x, f"{name}[{i}]").items()}
    raise TypeError(f"{name} is a {type(value).__name__}")


def run(model, inputs, options):
    """What a model returns and what it leaves on its modules; the inputs stay as they are."""
    with torch.no_grad():
        found = leaves(model(*(x.clone() for x in inputs), **options))
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                found[f"{path}.{name}"] = value
    return {name: value.clone() for name, value in found.items()}


def forget(model):
    """Remove what a run left on the modules."""
    for module in model.modules():
        for name in [name for name, value in vars(module).items() if isinstance(value, Tensor)]:
            delattr(module, name)
    return model


def by_rows(value, rows):
    value = value.double()
    return value.reshape(rows, -1) if value.ndim and len(value) == rows else value.reshape(1, -1)


def one_ulp_off(model, dtype, rng):
    """A copy in which every parameter has moved by one unit in the last place of a dtype, up or down."""
    off = forget(copy.deepcopy(model))
    with torch.no_grad():
        for p in off.parameters():
            short = p.to(dtype)
            up = torch.rand(p.shape, generator=rng) < 0.5
            target = torch.where(up, torch.inf, -torch.inf).to(dtype)
            p.add_((torch.nextafter(short, target).double() - short.double()).to(p.dtype))
    return off


class Comparison:
    """Original and small model as functions in float64, compared row by row."""

    def __init__(self, model, small, dtype, share, operations, rng):
        self.a, self.b = forget(copy.deepcopy(model)), forget(copy.deepcopy(small))
        self.dtype, self.share, self.rng = dtype, share, rng
        #: programs are made of numbers around one; what is smaller may be the rest of a cancellation
        self.rounding = 1e-6 if "to_float" in operations else 1e-15
        self.mixes, self.ties = any(OPERATIONS[name].mixes for name in operations), "one_hot" in operations
        self.moved = None
        self.shapes = self.rows = self.skipped = 0

    def at(self, inputs, options, what):
        """A sentence about where the two differ, or None."""
        rows = len(inputs[0])
        forget(self.a), forget(self.b)
        try:
            with watching(self.a, rows, NEAR[self.dtype], self.ties) as unsure:
                f = run(self.a, inputs, options)
        except Exception:
            return None  # the original does not take such inputs
        try:
            g = run(self.b, inputs, options)
        except Exception as error:
            return f"{what}: only the small one raises {type(error).__name__}: {error}"
        if self.mixes and bool(unsure.any()):
            unsure.fill_(True)
        if f.keys() != g.keys():
            return f"{what}: {sorted(f.keys() ^ g.keys())} in one of them only"
        self.shapes += 1
        self.rows += int((~unsure).sum())
        self.skipped += int(unsure.sum())
        for name, value in f.items():
            other = g[name]
            if value.shape != other.shape or value.dtype != other.dtype:
                return f"{what}: {name} is {tuple(value.shape)} {value.dtype}, not {tuple(other.shape)} {other.dtype}"
            judged = ~unsure if by_rows(value, rows).shape[0] == rows else (~unsure).all().reshape(1)
            if (beyond := self._beyond(by_rows(value, rows), by_rows(other, rows), judged)) is None:
                continue
            D = self._drift(name, value, inputs, options)
            gap = (by_rows(value, rows) - by_rows(other, rows)).abs().nan_to_num(nan=math.inf).amax(1)
            bad = beyond & ~(gap <= 10 * D + self.share * by_rows(value, rows).abs().amax(1) + self.rounding)
            if bad.any():
                i = int(bad.nonzero()[0])
                scale = by_rows(value, rows)[i].abs().max()
                return f"{what}: {name} row {i} differs by {gap[i]:.2g}, its scale is {scale:.2g}, D {D[i]:.2g}"
        return None

    def _beyond(self, f, g, judged):
        if f.shape[1] == 0:
            return None
        same = (f == g) | (f.isnan() & g.isnan())
        gap = torch.where(same, 0.0, (f - g).abs()).nan_to_num(nan=math.inf).amax(1)
        beyond = judged & ~(gap <= self.share * torch.where(f.isfinite(), f, 0.0).abs().amax(1))
        return beyond if beyond.any() else None

    def _drift(self, name, value, inputs, options):
        if self.moved is None:
            self.moved = [one_ulp_off(self.a, self.dtype, self.rng) for _ in range(DRAWS)]
        rows = len(inputs[0])
        found = [by_rows(run(forget(m), inputs, options)[name], rows) for m in self.moved]
        return torch.stack([(x - by_rows(value, rows)).abs().nan_to_num(nan=0.0).amax(1) for x in found]).amax(0)


def variants(program, given, rng):
    """Inputs to compare on, and words for them."""
    yield given, "the given inputs"
    yield program.draw(rng), "fresh inputs"
    for factor in (1e-3, 1e2, 1e3, 0.0):
        yield tuple(factor * x if x.is_floating_point() else x for x in program.draw(rng)), f"inputs times {factor:g}"
    sizes = dict(program.sizes)
    for rows in (1, 2 * sizes["rows"], 3, 40):
        yield program.draw(rng, rows=rows), f"{rows} rows"
    named = {axis for x in program.inputs for axis in x.axes if isinstance(axis, str)} - {"rows"}
    for axis in sorted(named):
        for n in (sizes[axis] + 1, sizes[axis] - 1, 3 * sizes[axis]):
            yield program.draw(rng, **{axis: n}), f"{axis} {n} instead of {sizes[axis]}"
    yield program.draw(rng, extra=2), "another axis"


def check(program, dtype, rewrite=False):
    """Compress a program in a dtype, and compare what comes back with the original.

    What `rewrite=True` makes has no optional arguments any more, so there they are not given.
    """
    model, rng = program.build().to(dtype), torch.Generator().manual_seed(program.seed)
    given = tuple(x.to(dtype) if x.is_floating_point() else x for x in program.draw(rng))
    outcome = functools.partial(Outcome, program.seed, dtype)
    before = sum(p.numel() for p in model.parameters())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            c = radnet.compress(model, tuple(x.clone() for x in given), rewrite=rewrite)
    except radnet.RadNetError as error:
        return outcome("refused", str(error), before=before, at_jump=_all_at_jump(program, model, given))
    except Exception as error:
        return outcome("raw", f"{type(error).__name__}: {error}", before=before)
    after = sum(p.numel() for p in c.network.parameters())
    compared = _compared(program, dtype, model, c.network, rng)
    text = _difference(program, compared, given, rng, not rewrite)
    found = outcome("wrong" if text else "lossless", text or "", getattr(c, "traced_by", ""), before, after)
    return replace(found, shapes=compared.shapes, rows=compared.rows, skipped=compared.skipped)


def _all_at_jump(program, model, given):
    """Whether every given row lies at a jump."""
    exact = forget(copy.deepcopy(model))
    if not program.single:
        exact, given = exact.double(), tuple(x.double() if x.is_floating_point() else x for x in given)
    with watching(exact, len(given[0]), NEAR[torch.float64]) as unsure:
        run(exact, given, {})
    return bool(unsure.all())


def _compared(program, dtype, model, small, rng):
    if program.single:  # it runs in float32 only
        return Comparison(model, small, torch.float32, 1e-4, program.operations, rng)
    short = "to_float" in program.operations
    share = max(SHARES[dtype], SHARES[torch.float32] if short else 0.0)
    return Comparison(
        forget(copy.deepcopy(model)).double(),
        forget(copy.deepcopy(small)).double(),
        dtype,
        share,
        program.operations,
        rng,
    )


def _difference(program, compared, given, rng, takes_options):
    dtype = next((p.dtype for p in compared.a.parameters()), torch.float64)

    def cast(values):
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in values)

    for inputs, what in variants(program, given, rng):
        if text := compared.at(cast(inputs), {}, what):
            return text
    for name in program.options if takes_options else ():
        if text := compared.at(cast(given), {name: option_value(name, dtype)}, f"{name} given"):
            return text
    return None
