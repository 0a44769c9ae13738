"""Models whose forward is easily taken for something else, and what it means to be the same function as one of them.

`same_function` compares two models in float64; `unchanged` holds the model, its inputs and the process to what they
were. A `Case` is a model, the inputs that `compress` is shown, and the inputs at which the result has to be right.
"""

import contextlib
import copy
import dataclasses
import functools
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.parameter import is_lazy

import radnet

# --- the same function


#: of a row's own size, by the dtype a model ships in: what rounding its weights may do
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


def same_function(model, small, *inputs, keywords=None, calls=1, shipped=False):
    """Assert that two models give the same outputs, leave the same in their inputs and on themselves.

    Copies of both run in float64 on copies of the inputs, `calls` times in a row; with `shipped`, or where the first
    one cannot run in float64, in the dtype they have.
    """
    ways = (_as_they_are, _live) if shipped else (_in_float64, _as_they_are, _live)
    for prepare in ways:
        try:
            one = prepare(model, inputs, keywords or {})
            before = {name: fingerprint(value) for name, value in left_on(one[0]).items()}
            wanted = _run(*one, calls)
        except Exception as error:
            reason = error
            continue
        break
    else:
        raise AssertionError(f"the original does not run on these inputs: {reason}") from reason
    found = _run(*prepare(small, inputs, keywords or {}), calls)
    tolerance = TOLERANCES[dtype_of(model)]
    for k in range(calls):
        compare(wanted.outputs[k], found.outputs[k], tolerance, f"output of call {k + 1}" if k else "output")
    compare(wanted.inputs, found.inputs, tolerance, "inputs after the call")
    if prepare is _live:
        return
    there = left_on(found.model)
    for name, value in left_on(wanted.model).items():
        if before.get(name) != fingerprint(value):
            assert name in there, f"{name}: is left on the original, not on the small model"
            compare(value, there[name], tolerance, f"{name} after the call")


@dataclasses.dataclass
class Run:
    model: nn.Module
    inputs: Any
    outputs: list


def _run(model, inputs, keywords, calls):
    outputs = [copied(model(*inputs, **keywords)) for _ in range(calls)]
    return Run(model, (inputs, keywords), outputs)


def _in_float64(model, inputs, keywords):
    def double(x):
        return x.double() if x.is_floating_point() else x

    return copied(model).double(), over_tensors(double, copied(inputs)), over_tensors(double, copied(keywords))


def _as_they_are(model, inputs, keywords):
    return copied(model), copied(inputs), copied(keywords)


def _live(model, inputs, keywords):
    return model, copied(inputs), copied(keywords)


def copied(value):
    """A deep copy, also of tensors that were computed and of modules that hold such."""
    memo = {}
    modules = value.modules() if isinstance(value, nn.Module) else ()
    for held in (*(list(vars(m).values()) for m in modules), list(tensors_in(value))):
        memo |= {id(t): t.detach().clone() for t in held if isinstance(t, torch.Tensor) and not t.is_leaf}
    return copy.deepcopy(value, memo)


def over_tensors(change, value):
    """The same nest of containers with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: over_tensors(change, v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(over_tensors(change, v) for v in value)
    return value


def tensors_in(value):
    found = []
    over_tensors(found.append, value)
    return found


def dtype_of(model):
    return next((p.dtype for p in model.parameters() if p.dtype in TOLERANCES), torch.float32)


def left_on(model):
    """Everything a forward may leave on modules: plain attributes, buffers, parameters."""
    found = {}
    for path, module in model.named_modules():
        for name, value in (*vars(module).items(), *module._buffers.items(), *module._parameters.items()):
            if name not in ("_modules", "_buffers", "_parameters"):
                found[f"{path}.{name}".lstrip(".")] = value
    return found


def compare(a, b, tolerance, where):
    """Assert that two values are equal: tensors row by row, relative to the row of the first, the rest exactly."""
    assert type(a) is type(b), f"{where}: {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, torch.Tensor):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{where}: {a.dtype} {a.shape}, {b.dtype} {b.shape}"
        _compare_tensors(a.detach(), b.detach(), tolerance, where)
    elif isinstance(a, Mapping):
        assert list(a) == list(b), f"{where}: keys {list(a)} and {list(b)}"
        for key in a:
            compare(a[key], b[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), f"{where}: {len(a)} and {len(b)} of them"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            compare(x, y, tolerance, f"{where}[{i}]")
    elif hasattr(a, "__dict__") and not callable(a):
        compare(vars(a), vars(b), tolerance, where)
    elif not callable(a):
        assert a == b, f"{where}: {a!r} and {b!r}"


def _compare_tensors(a, b, tolerance, where):
    if not (a.is_floating_point() or a.is_complex()):
        assert torch.equal(a, b), f"{where}: {int((a != b).sum())} of {a.numel()} entries differ"
        return
    if a.numel() == 0:
        return
    wide = torch.complex128 if a.is_complex() else torch.float64
    if a.is_sparse and b.is_sparse:
        a, b = a.to_dense(), b.to_dense()
    a, b = (v.to(wide).reshape(len(v), -1) if v.ndim else v.to(wide).reshape(1, 1) for v in (a, b))
    alike = (a == b) | (a.isnan() & b.isnan())
    assert bool((alike | (a.isfinite() & b.isfinite())).all()), f"{where}: not finite in different places"
    size = torch.where(a.isfinite(), a.abs(), 0).amax(dim=1)
    size = size.clamp(min=float(size.median()) / 10)  # a row that is small by chance has the rounding of its neighbours
    gap = torch.where(alike, 0, (a - b).abs()).amax(dim=1)
    worst = int((gap - tolerance * size).argmax())
    assert bool((gap <= tolerance * size).all()), (
        f"{where}: row {worst} of {len(a)} differs by {float(gap[worst]):.3g}, its size is {float(size[worst]):.3g}"
    )


# --- nothing else changes


def fingerprint(value, identity=False, seen=()):
    """A value as nested tuples of numbers and bytes; with `identity`, also which objects it is made of."""
    if isinstance(value, torch.Tensor):
        if is_lazy(value) or value.is_nested:
            return (identity and id(value), repr(value))
        grad = None if not value.is_leaf or value.grad is None else fingerprint(value.grad, identity)
        return (identity and id(value), value.requires_grad, str(value.dtype), tuple(value.shape), bits(value), grad)
    if id(value) in seen:
        return "itself"
    seen = (*seen, id(value))
    if isinstance(value, Mapping):
        return tuple((str(key), fingerprint(v, identity, seen)) for key, v in value.items())
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(fingerprint(v, identity, seen) for v in value))
    if isinstance(value, int | float | str | bytes | None | torch.dtype | torch.device):
        return repr(value)
    if isinstance(value, numpy.ndarray):
        return value.tobytes()
    inside = ()
    if hasattr(value, "__dict__") and not isinstance(value, type | types.FunctionType | types.ModuleType):
        inside = fingerprint(vars(value), identity, seen)
    return (type(value).__qualname__, identity and id(value), inside)


def bits(value):
    """The bytes of a tensor; what it prints as if it has no ordinary memory."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            return str(value)
        flat = value.detach().resolve_conj().resolve_neg().contiguous().flatten()
        return flat.view(torch.uint8).numpy().tobytes()


def world():
    """What belongs to the process: settings of torch, random numbers, warnings, hooks of all modules, methods."""
    hooks = torch.nn.modules.module
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random numbers of torch": hash(bits(torch.random.get_rng_state())),
        "random numbers of NumPy": hash(repr(numpy.random.get_state(legacy=False)["state"])),  # noqa: NPY002
        "random numbers of Python": hash(random.getstate()),
        "filters of warnings": list(warnings.filters),
        "recursion limit": sys.getrecursionlimit(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "hooks of all modules": [
            len(getattr(hooks, name)) for name in vars(hooks) if name.startswith("_global_") and name.endswith("hooks")
        ],
        "methods": [m.forward for m in (nn.Linear, nn.LayerNorm, nn.Conv2d, radnet.RadNet, radnet.Squash)]
        + [nn.Module.__call__, nn.Module.__getattr__, nn.Module.__setattr__, F.linear, torch.Tensor.add_],
    }


@contextlib.contextmanager
def unchanged(model, inputs):
    """Assert that the model, its inputs and the process are afterwards as they were, whatever is raised inside."""
    before = (fingerprint(model, identity=True), fingerprint(inputs, identity=True), _classes(model), world())
    try:
        yield
    finally:
        after = (fingerprint(model, identity=True), fingerprint(inputs, identity=True), _classes(model), world())
        assert before[0] == after[0], f"the model is changed: {_difference(before[0], after[0])}"
        assert before[1] == after[1], f"the inputs are changed: {_difference(before[1], after[1])}"
        assert before[2] == after[2], "the classes of the model are changed"
        for name, value in before[3].items():
            assert after[3][name] == value, f"{name}: {value} before, {after[3][name]} after"


def _classes(model):
    if not isinstance(model, nn.Module):
        return []
    return [(type(m), [vars(kind).get("forward") for kind in type(m).__mro__]) for m in model.modules()]


def _difference(a, b, where="it"):
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            if x != y:
                return _difference(x, y, a[0] if a and isinstance(a[0], str) else where)
    if isinstance(a, tuple) and isinstance(b, tuple):
        names = [{part[0] for part in side if isinstance(part, tuple) and part} for side in (a, b)]
        return f"{where}: {str(sorted(map(str, names[0] ^ names[1])) or (len(a), len(b)))[:300]}"
    return f"{where}: {str(a)[:100]} became {str(b)[:100]}"


# --- cases

EITHER = "returned and right, or refused"
RETURNED = "returned and right"
SMALLER = "returned, right and smaller"

#: no input that a certificate may try comes here: what is cut has to be known from the model
LIMIT = 2e4
WIDE = 48


@dataclasses.dataclass(frozen=True)
class Call:
    inputs: tuple
    keywords: dict


def call(*inputs, **keywords):
    return Call(inputs, keywords)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, what `compress` is shown of it, and where the result has to be the same function."""

    kind: str
    name: str
    build: Callable[[], nn.Module]
    given: tuple
    others: tuple[Call, ...] = ()
    must: str = EITHER
    calls: int = 1
    around: Callable[[], Any] = contextlib.nullcontext
    with_gradients: bool = False
    in_both_dtypes: bool = False
    scales: tuple[float, ...] = (1e-2, 1e2, 1e6)

    def __str__(self):
        return self.name

    def made(self):
        torch.manual_seed(len(self.name))
        return self.build().eval()

    def calls_to_compare(self) -> Iterator[Call]:
        """What was shown, the same shapes at other sizes, and what was not shown."""
        yield call(*self.given)
        for k, scale in enumerate(self.scales):
            generator = torch.Generator().manual_seed(k)

            def drawn(x, scale=scale, generator=generator):
                if not x.is_floating_point():
                    return x
                return (scale * torch.randn(x.shape, generator=generator)).to(x)

            yield call(*over_tensors(drawn, self.given))
        yield from self.others

    def compare(self, model, small):
        for at in self.calls_to_compare():
            for shipped in (False, True) if self.in_both_dtypes else (False,):
                for gradients in (False, True) if self.with_gradients else (False,):
                    with torch.set_grad_enabled(gradients):
                        same_function(model, small, *at.inputs, keywords=at.keywords, calls=self.calls, shipped=shipped)


CASES: list[Case] = []


def built(kind, given, *others, name=None, **settings):
    """Decorator: a function that builds a model, as a case."""

    def add(build):
        CASES.append(Case(kind, name or build.__name__, build, given, others, **settings))
        return build

    return add


def forward(kind, given, *others, parts=None, name=None, **settings):
    """Decorator: a function as the forward of a model with a 3 -> 48 layer a, a Squash rho, a head b, and `parts`."""

    def add(function):
        built(kind, given, *others, name=name or function.__name__, **settings)(lambda: model_of(function, parts))
        return function

    return add


def model_of(function, parts=None):
    """A model with this forward and these parts, given as functions that make them."""
    model = type(function.__name__, (nn.Module,), {"forward": function})()
    everything = {"a": lambda: nn.Linear(3, WIDE), "rho": radnet.Squash, "b": lambda: nn.Linear(WIDE, 2)}
    for name, make in {**everything, **(parts or {})}.items():
        setattr(model, name, make())
    return model


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def linear(*widths, **keywords):
    return lambda: nn.Linear(*widths, **keywords)


def cut(v):
    return v.clamp(-LIMIT, LIMIT)


def chain(*middle, widths=(3, WIDE, 2)):
    return nn.Sequential(nn.Linear(widths[0], widths[1]), *middle, nn.Linear(widths[1], widths[2]))


def cases(kind):
    return [case for case in CASES if case.kind == kind]


# --- shapes and arguments that were not shown

ROWS = normal(8, 3)
STEPS = normal(8, 4, 3)


def steps(length, rows=8):
    return call(normal(rows, length, 3, seed=length))


class Recurrent(nn.Module):
    def __init__(self, n=64):
        super().__init__()
        self.wx, self.wh, self.rho, self.head = (
            nn.Linear(3, n),
            nn.Linear(n, n),
            radnet.ShiftedReLU(0.1),
            nn.Linear(n, 1),
        )
        nn.init.orthogonal_(self.wh.weight)

    def forward(self, x):
        h = self.rho(self.wx(x[:, 0]))
        for t in range(1, x.shape[1]):
            h = self.rho(self.wx(x[:, t]) + self.wh(h))
        return self.head(h)


@built("shapes", (STEPS,), steps(12), steps(1), steps(5, rows=1), must=RETURNED)
def recurrence_over_the_length():
    return Recurrent()


@built("shapes", (list(normal(2, 8, 3)),), call(list(normal(7, 8, 3))), call([normal(8, 3)]))
def recurrence_over_a_list():
    class OverList(Recurrent):
        def forward(self, xs):
            return super().forward(torch.stack(xs, dim=1))

    return OverList()


@forward(
    "shapes",
    (normal(4, 2, 3),),
    steps(1),
    steps(12),
    parts={"gates": linear(WIDE + 3, WIDE), "new": linear(WIDE + 3, WIDE)},
)
def gated_recurrence(self, x):
    h = self.rho(self.a(x[:, 0]))
    for t in range(1, x.shape[1]):
        both = torch.cat([x[:, t], h], dim=-1)
        z = torch.sigmoid(self.gates(both))
        h = (1 - z) * h + z * self.rho(self.new(both))
    return self.b(h)


@forward("shapes", (normal(8, 1, 3),), steps(5), steps(2), must=RETURNED)
def largest_entry_if_longer_than_one(self, x):
    h = self.rho(self.a(x))
    h = h.amax(1) if h.shape[1] > 1 else h[:, 0]
    return self.b(h)


class ReluIf(nn.Module):
    """A relu that depends on the shape of the input."""

    def __init__(self, condition):
        super().__init__()
        self.a, self.rho, self.b, self.condition = nn.Linear(3, WIDE), radnet.Squash(), nn.Linear(WIDE, 2), condition

    def forward(self, x):
        h = self.rho(self.a(x))
        return self.b(torch.relu(h) if self.condition(x) else h)


def _unpacked(x):
    rows, _ = x.shape
    return rows > 32


def _by_a_comparison_of_shapes(x):
    return x.shape != (8, 3)


RELU_IF = {
    "more than 32 rows": (lambda x: len(x) > 32, ROWS, call(normal(64, 3)), RETURNED),
    "more than 100 rows": (lambda x: len(x) > 100, ROWS, call(normal(128, 3)), EITHER),
    "a single row": (lambda x: x.shape[0] == 1, ROWS, call(normal(1, 3)), EITHER),
    "more than 64 steps": (lambda x: x.size(1) > 64, STEPS, steps(65), EITHER),
    "an odd length": (lambda x: x.shape[-2] % 2, STEPS, steps(7), EITHER),
    "three axes": (lambda x: x.ndim > 2, ROWS, steps(4), EITHER),
    "one axis": (lambda x: x.dim() == 1, ROWS, call(normal(3)), EITHER),
    "more than 100 elements": (lambda x: x.numel() > 100, ROWS, call(normal(64, 3)), EITHER),
    "a shape that was unpacked": (_unpacked, ROWS, call(normal(40, 3)), EITHER),
    "a shape that was compared": (_by_a_comparison_of_shapes, ROWS, call(normal(40, 3)), EITHER),
    "memory with gaps": (lambda x: not x.is_contiguous(), ROWS, call(normal(3, 8).t()), EITHER),
    "strides of an expanded row": (lambda x: x.stride(0) == 0, ROWS, call(normal(1, 3).expand(8, 3)), EITHER),
}
for _name, (_condition, _given, _other, _must) in RELU_IF.items():
    CASES.append(Case("shapes", f"relu if {_name}", functools.partial(ReluIf, _condition), (_given,), (_other,), _must))


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.rho = nn.Linear(3, 64), nn.Linear(64, 2), radnet.Squash()
        self.up = nn.ModuleList(nn.Linear(64, 32) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(32, 64) for _ in range(3))

    def forward(self, x, depth: int = 3):
        h = self.a(x)
        for up, down in list(zip(self.up, self.down, strict=True))[:depth]:
            h = h + down(self.rho(up(h)))
        return self.b(h)


@built("shapes", (ROWS,), *(call(ROWS, k) for k in range(4)), call(ROWS, depth=2), must=RETURNED)
def depth_as_an_argument():
    return Depth()


@built("shapes", (ROWS,), *(call(ROWS, k) for k in range(4)))
def depth_by_a_range():
    class Ranged(Depth):
        def forward(self, x, depth: int = 2):
            h = self.a(x)
            for k in range(depth):
                h = h + self.down[k](self.rho(self.up[k](h)))
            return self.b(h)

    return Ranged()


@built("shapes", (normal(8, 1, 3),), steps(2), steps(3))
def as_many_blocks_as_steps():
    class AsLong(Depth):
        def forward(self, x):
            return super().forward(x.sum(1), x.shape[1])

    return AsLong()


@forward("shapes", (ROWS,), call(ROWS, True), call(ROWS, sharp=True))
def relu_by_a_flag(self, x, sharp=False):
    h = self.rho(self.a(x))
    return self.b(h.relu() if sharp else h)


@forward("shapes", (ROWS,), call(ROWS, "max"), call(ROWS, mode="max"))
def relu_by_a_word(self, x, mode="mean"):
    h = self.rho(self.a(x))
    if mode == "max":
        h = h.relu()
    return self.b(h)


@forward("shapes", (ROWS,), call(ROWS, -3.0), call(ROWS, factor=0.0))
def factor_as_an_argument(self, x, factor=1.0):
    return self.b(self.a(x) * factor)


@forward(
    "shapes",
    (ROWS,),
    call(ROWS, (normal(8, 1) > 0).float()),
    call(ROWS, mask=(normal(8, 1, seed=1) > 0).float()),
    must=RETURNED,
)
def mask_that_comes_later(self, x, mask=None):
    h = self.a(x)
    if mask is not None:
        h = h * mask
    return self.b(self.rho(h))


@forward("shapes", (ROWS,), call(ROWS, normal(8, 5)), call(ROWS, y=normal(8, 5)), parts={"c": linear(5, WIDE)})
def second_input_that_comes_later(self, x, y=None):
    h = self.a(x)
    if y is not None:
        h = h + self.c(y)
    return self.b(self.rho(h))


@forward("shapes", (ROWS,), call(ROWS, normal(8, 3, seed=1)), call(*(normal(8, 3, seed=k) for k in range(5))))
def any_number_of_inputs(self, *xs):
    h = self.a(xs[0])
    for x in xs[1:]:
        h = h + self.rho(self.a(x))
    return self.b(h)


@forward("shapes", (ROWS,), call(ROWS, extra=normal(8, WIDE)))
def extra_keywords(self, x, **more):
    h = self.rho(self.a(x))
    for name in more:
        h = (h.relu() if name == "extra" else h) + 0
    return self.b(h)


@built("shapes", (ROWS,), steps(5), steps(1), call(normal(2, 3, 4, 3)))
def squash_along_axis_1():
    return chain(radnet.Squash(dim=1))


@built("shapes", (STEPS,), call(normal(2, 3, 4, 3)))
def squash_along_axis_minus_two_and_one():
    return chain(radnet.Squash(dim=2), radnet.Squash(dim=-1))


@built("shapes", (normal(8, 1, 3),), call(ROWS), call(normal(1, 1, 3)))
def flatten_of_one_position():
    return chain(radnet.Squash(), nn.Flatten(1))


@built("shapes", (STEPS,), call(normal(1, 4, 3)), call(normal(17, 4, 3)), must=RETURNED)
def flatten_of_four_positions():
    return nn.Sequential(nn.Linear(3, WIDE), radnet.Squash(), nn.Flatten(1), nn.Linear(4 * WIDE, 2))


@built("shapes", (STEPS,), steps(7), call(normal(3, 1, 3)))
def flatten_of_rows_and_positions():
    return chain(radnet.Squash(), nn.Flatten(0, 1))


@built("shapes", (STEPS,), steps(7), call(ROWS), must=SMALLER)
def layers_on_the_last_axis():
    return chain(radnet.Squash())


def pictures(*size):
    return call(normal(4, 1, *size))


@built("shapes", pictures(8, 8).inputs, pictures(12, 9), pictures(3, 3), must=SMALLER)
def means_of_pictures():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3), radnet.Squash(dim=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 2)
    )


@built("shapes", pictures(8, 8).inputs, pictures(9, 9), pictures(5, 12))
def pools_with_windows_that_stick_out():
    # divided by 4 always: at 8 x 8 all windows are full, at 9 x 9 the last ones hold zeros
    pool = nn.AvgPool2d(2, ceil_mode=True, divisor_override=4)
    return nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), pool, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 2))


@built("shapes", pictures(8, 8).inputs, pictures(9, 9), pictures(5, 12))
def pools_that_count_their_padding():
    pool = nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True)
    return nn.Sequential(nn.Conv2d(1, 24, 3), pool, nn.Conv2d(24, 24, 1), radnet.Squash(dim=1), nn.Flatten(2))


@built("shapes", pictures(8, 8).inputs, pictures(2, 3), pictures(11, 5))
def padded_convolutions():
    layers = (nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 48, 3, padding=1), radnet.Squash(dim=1))
    return nn.Sequential(*layers, nn.Conv2d(48, 2, 1))


@forward("shapes", (STEPS,), steps(1), steps(9), must=SMALLER)
def last_position(self, x):
    return self.b(self.rho(self.a(x))[:, -1])


@forward("shapes", (STEPS,), steps(1), steps(6))
def fourth_position_or_the_last(self, x):
    h = self.rho(self.a(x))
    return self.b(h[:, 3] if x.shape[1] > 3 else h[:, -1].abs())


@forward("shapes", (STEPS,), steps(16), steps(1), parts={"pos": lambda: nn.Parameter(torch.randn(16, WIDE))})
def positions_up_to_the_length(self, x):
    return self.b(self.rho(self.a(x) + self.pos[: x.shape[1]]))


@forward("shapes", (STEPS,), steps(16), steps(1), parts={"pos": lambda: nn.Embedding(16, WIDE)})
def embedded_positions(self, x):
    return self.b(self.rho(self.a(x) + self.pos(torch.arange(x.shape[1]))))


@forward("shapes", (STEPS,), steps(12), steps(1), parts={"c": linear(WIDE, WIDE)})
def sums_over_a_loop(self, x):
    total = self.a(x[:, 0])
    for k in range(1, x.shape[1]):
        total = total + self.a(x[:, k])
    return self.b(self.rho(self.c(total)))


@forward("shapes", (STEPS,), steps(12), steps(1), parts={"c": linear(WIDE, WIDE)})
def multiples_by_the_length(self, x):
    return self.b(self.c(self.a(x.mean(1)) * x.shape[1]))


@forward("shapes", (STEPS,), steps(12), steps(1), parts={"c": linear(WIDE, WIDE)})
def means_by_hand(self, x):
    return self.b(self.rho(self.c(self.a(x).sum(1) / x.shape[1])))


@forward("shapes", (normal(4, 2, 3),), steps(1), steps(8), steps(2), parts={"c": linear(WIDE, WIDE)})
def recursion_over_halves(self, x):
    def folded(h):
        if h.shape[1] == 1:
            return h[:, 0]
        half = h.shape[1] // 2
        return self.rho(self.c(folded(h[:, :half]) + folded(h[:, half:])))

    return self.b(folded(self.a(x)))


@forward("shapes", (STEPS,), steps(1), steps(8), steps(2), parts={"c": linear(WIDE, WIDE)})
def halves_while_there_are_two(self, x):
    h = self.a(x)
    while h.shape[1] > 1:
        h = self.rho(self.c(h[:, ::2] + h[:, 1::2]))
    return self.b(h[:, 0])


@forward("shapes", (normal(8, 6, 3),), steps(3), steps(1), parts={"c": linear(WIDE, WIDE)})
def zeros_up_to_six_positions(self, x):
    h = F.pad(self.a(x), (0, 0, 0, 6 - x.shape[1]))
    return self.b(self.c(h).sum(1))


@forward("shapes", (STEPS,), steps(9), steps(2))
def middle_position(self, x):
    h = self.rho(self.a(x))
    return self.b(h[:, x.shape[1] // 2] - h[:, 0])


@forward("shapes", (normal(8, 12),), call(normal(2, 12)), call(normal(3, 24)))
def rows_regrouped(self, x):
    return self.b(self.rho(self.a(x.view(-1, 4, 3))))


@forward("shapes", (STEPS,), steps(1), steps(9))
def softmax_over_positions(self, x):
    h = self.rho(self.a(x))
    w = torch.softmax(h @ h.transpose(1, 2) / WIDE**0.5, dim=-1)
    return self.b(w @ h)


@forward("shapes", (torch.arange(8) % 5,), call(torch.tensor([9, 9, 3])), parts={"a": lambda: nn.Embedding(10, WIDE)})
def words_that_were_not_shown(self, words):
    return self.b(self.rho(self.a(words)))


# --- in place


def no_gradients(function):
    """out= and writing into leaves are allowed without gradients only."""

    def inside(h):
        with torch.no_grad():
            function(h)

    return inside


def _foreach_below(h):
    torch._foreach_clamp_max_([h], LIMIT)


def _foreach_multiples(h):
    torch._foreach_mul_([h], [torch.linspace(0, 1, WIDE).to(h)])


def _of_numpy(h):
    array = h.detach().numpy()
    numpy.clip(array, -LIMIT, LIMIT, out=array)


def _new_data(h):
    h.data = h.clamp(-LIMIT, LIMIT)


def _by_mask(h):
    h[h > LIMIT] = LIMIT


def _first_column(h):
    h[:, 0] = 1.0


def _first_columns(h):
    h[:, 3:7] = 0


def _columns_doubled(h):
    h[:, :3] *= 2


def _half_of_them(h):
    h.chunk(2, dim=-1)[0].relu_()


def _one_by_one(h):
    for column in h.unbind(-1)[:3]:
        column.relu_()


def _per_entry(h):
    h *= torch.linspace(0, 1, WIDE).to(h)


def _by_operator(h):
    h **= 2


#: what is done to a hidden value h in place; what the line returns is not used
IN_PLACE = {
    "torch.clamp_": lambda h: torch.clamp_(h, -LIMIT, LIMIT),
    "torch.clamp_max_": lambda h: torch.clamp_max_(h, LIMIT),
    "Tensor.clamp_": lambda h: h.clamp_(-LIMIT, LIMIT),
    "Tensor.clamp_ by its class": lambda h: torch.Tensor.clamp_(h, -LIMIT, LIMIT),
    "aten.clamp_": lambda h: torch.ops.aten.clamp_.default(h, -LIMIT, LIMIT),
    "F.hardtanh_": lambda h: F.hardtanh_(h, -LIMIT, LIMIT),
    "F.relu_": F.relu_,
    "F.relu with inplace given by position": lambda h: F.relu(h, True),
    "F.leaky_relu_": lambda h: F.leaky_relu_(h, 0.5),
    "F.elu with inplace": lambda h: F.elu(h, inplace=True),
    "torch.relu_": torch.relu_,
    "torch.threshold_": lambda h: torch.threshold_(h, -LIMIT, 0.0),
    "F.threshold_": lambda h: F.threshold_(h, -LIMIT, 0.0),
    "torch._foreach_clamp_max_": _foreach_below,
    "torch._foreach_mul_ by a vector": _foreach_multiples,
    "torch.clamp out=": no_gradients(lambda h: torch.clamp(h, -LIMIT, LIMIT, out=h)),
    "torch.add out=": no_gradients(lambda h: torch.add(h, h.abs(), out=h)),
    "torch.sub out=": no_gradients(lambda h: torch.sub(h, h.roll(1, -1), out=h)),
    "data.clamp_": lambda h: h.data.clamp_(-LIMIT, LIMIT),
    "data set": _new_data,
    "detach().clamp_": lambda h: h.detach().clamp_(-LIMIT, LIMIT),
    "numpy": _of_numpy,
    "a slice.clamp_": lambda h: h[:, :3].clamp_(-LIMIT, LIMIT),
    "a part.relu_": _half_of_them,
    "columns.relu_": _one_by_one,
    "a view.clamp_": lambda h: h.view(-1, 4, WIDE // 4).clamp_(-LIMIT, LIMIT),
    "the transpose.clamp_": lambda h: h.t().clamp_(-LIMIT, LIMIT),
    "the diagonal.zero_": lambda h: h.diagonal().zero_(),
    "entries set by a mask": _by_mask,
    "a column set": _first_column,
    "columns set": _first_columns,
    "columns doubled": _columns_doubled,
    "index_fill_": lambda h: h.index_fill_(1, torch.tensor([0, 5]), 0.0),
    "index_add_": lambda h: h.index_add_(1, torch.tensor([0]), h[:, 1:2]),
    "scatter_": lambda h: h.scatter_(1, torch.zeros(len(h), 1, dtype=torch.long), 0.0),
    "masked_fill_": lambda h: h.masked_fill_(h > LIMIT, LIMIT),
    "copy_": lambda h: h.copy_(h.clamp(-LIMIT, LIMIT)),
    "set_": no_gradients(lambda h: h.set_(h.clamp(-LIMIT, LIMIT))),
    "mul_ by a vector": _per_entry,
    "power": _by_operator,
    "addcmul_": lambda h: h.addcmul_(h, h, value=1e-3),
    "renorm_": lambda h: h.renorm_(2, 1, 1.0),
    "nn.init": lambda h: nn.init.constant_(h[:, :3], 0.5),
}


class InPlace(nn.Module):
    """A hidden value that something is done to, and then read by its old name."""

    def __init__(self, change):
        super().__init__()
        self.a, self.c, self.rho, self.b = nn.Linear(3, WIDE), nn.Linear(WIDE, 64), radnet.Squash(), nn.Linear(64, 2)
        self.change = change

    def forward(self, x):
        h = self.a(x)
        self.change(h)
        return self.b(self.rho(self.c(h)))


for _name, _change in IN_PLACE.items():
    CASES.append(Case("in place", _name, lambda change=_change: InPlace(change), (normal(16, 3),)))

MORE = {"c": linear(WIDE, 64), "d": linear(3, WIDE), "b": linear(64, 2), "e": linear(WIDE, 2)}


@forward("in place", (normal(16, 3),), must=RETURNED, parts={"c": linear(WIDE, 64), "b": linear(64, 2)})
def guarded_by_clamp_(self, x):
    h = self.a(x)
    torch.clamp_(h, -10, 10)
    return self.b(self.rho(self.c(h)))


@forward("in place", (normal(16, 3),), must=RETURNED, parts=MORE)
def cut_between_two_readers(self, x):
    x = F.hardtanh(x, -1e4, 1e4)
    p = self.a(x)
    x.clamp_(-10, 10)
    q = self.d(x)
    return self.b(self.rho(self.c(p + q)))


@forward("in place", (normal(16, 3),), parts=MORE)
def an_input_cut_between_two_readers(self, x):
    p = self.a(x)
    x.clamp_(-LIMIT, LIMIT)
    return self.b(self.rho(self.c(p + self.d(x))))


@forward("in place", (normal(16, 3),), parts=MORE)
def an_input_that_is_normalised(self, x):
    x.sub_(0.5).div_(0.25)
    return self.b(self.rho(self.c(self.a(x))))


@forward("in place", (normal(16, 3),), must=RETURNED)
def an_input_that_is_normalised_in_one_line(self, x):
    return self.b(self.rho(self.a(x.sub_(0.5).div_(0.25))))


@forward("in place", ([normal(16, 3)],))
def an_input_in_a_list(self, xs):
    xs[0] = xs[0].clamp(-LIMIT, LIMIT)
    return self.b(self.rho(self.a(xs[0])))


@forward("in place", (normal(16, 3),), parts={**MORE, "relu": lambda: nn.ReLU(inplace=True)})
def relu_module_between_two_readers(self, x):
    h = self.a(x)
    p = self.c(h)
    q = self.c(self.relu(h))
    return self.b(self.rho(p + q))


@forward("in place", (normal(16, 3),), parts={**MORE, "tanh": lambda: nn.Hardtanh(-LIMIT, LIMIT, inplace=True)})
def hardtanh_module_before_the_old_name(self, x):
    h = self.a(x)
    old = h
    self.tanh(h)
    return self.b(self.rho(self.c(old)))


@forward("in place", (normal(16, 3),), parts=MORE)
def sum_into_a_value_with_a_second_name(self, x):
    h = self.a(x)
    old = h
    h += self.d(x)
    return self.b(self.rho(self.c(h))) + self.e(old)


@forward("in place", (normal(16, 3),), parts=MORE)
def sum_into_a_value_with_a_reader_before(self, x):
    h = self.a(x)
    before = self.e(h)
    h += self.d(x)
    return self.b(self.rho(self.c(h))) + before


@forward("in place", (normal(16, 3),), parts=MORE)
def sum_into_a_value_with_a_view(self, x):
    h = self.a(x)
    seen = h.view(len(x), WIDE)
    h.add_(self.d(x), alpha=0.5)
    return self.b(self.rho(self.c(seen)))


@forward("in place", (normal(16, 3),), parts={**MORE, "held": lambda: nn.Parameter(torch.randn(WIDE))})
def sum_into_an_expanded_copy(self, x):
    h = torch.zeros(len(x), WIDE).to(x)
    h += self.a(x)
    h[:, :] += self.held
    return self.b(self.rho(self.c(h)))


@forward("in place", (normal(16, 3),), parts=MORE)
def an_empty_tensor_that_is_filled(self, x):
    h = torch.empty_like(self.a(x))
    h.copy_(self.a(x))
    torch.clamp_(h, -LIMIT, LIMIT)
    return self.b(self.rho(self.c(h)))


@forward("in place", (normal(16, 3),), parts=MORE)
def a_tuple_of_the_value(self, x):
    kept = (self.a(x), None)
    kept[0].clamp_(-LIMIT, LIMIT)
    return self.b(self.rho(self.c(kept[0])))


class CutsWhatItGets(radnet.Squash):
    def forward(self, v):
        v.clamp_(-LIMIT, LIMIT)
        return super().forward(v)


class KeepsItsProfileInPlace(radnet.RadialActivation):
    def profile(self, r):
        return r.mul_(0.5).clamp_(max=LIMIT)


@forward("in place", (normal(16, 3),), parts={**MORE, "rho": CutsWhatItGets})
def an_activation_that_cuts_what_it_gets(self, x):
    h = self.a(x)
    k = self.rho(h)
    return self.b(self.rho(self.c(k))) + self.e(h)


@forward("in place", (normal(16, 3),), parts={**MORE, "rho": KeepsItsProfileInPlace})
def a_profile_in_place(self, x):
    h = self.a(x)
    return self.b(self.rho(self.c(self.rho(h)))) + self.e(h)


@built("in place", (normal(16, 3),))
def a_module_of_its_own_that_cuts():
    class Cut(nn.Module):
        def forward(self, v):
            return v.clamp_(-LIMIT, LIMIT)

    return chain(Cut(), radnet.Squash())


@built("in place", (normal(16, 3),))
def a_sequence_of_modules_in_place():
    return chain(nn.Threshold(-LIMIT, 0.0, inplace=True), radnet.Squash(), nn.ReLU6(inplace=True))


@forward("in place", (normal(16, 3),), parts=MORE, calls=2)
def a_weight_that_is_cut(self, x):
    with torch.no_grad():
        self.a.weight.clamp_(-0.3, 0.3)
    return self.b(self.rho(self.c(self.a(x))))


@forward("in place", (normal(16, 3),), parts=MORE, calls=2)
def a_weight_within_its_limits(self, x):
    self.c.weight.data.clamp_(-0.145, 0.145)  # nothing is cut at 48 wide, where |w| < 1/sqrt(48)
    return self.b(self.rho(self.c(self.a(x))))


@forward("in place", (normal(16, 3),), parts={**MORE, "gain": lambda: nn.Parameter(2 * torch.ones(WIDE))}, calls=2)
def a_gain_that_is_cut(self, x):
    with torch.no_grad():
        self.gain.clamp_(max=1.5)
    return self.b(self.rho(self.c(self.a(x) * self.gain)))


class Buffered(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.register_buffer("held", torch.zeros(*shape))


@forward("in place", (normal(16, 3),), parts={"log": lambda: Buffered(WIDE)}, calls=2)
def a_buffer_that_is_added_to(self, x):
    h = self.rho(self.a(x))
    self.log.held.add_(h.detach().mean(0))
    return self.b(h)


@forward("in place", (normal(16, 3),), parts={"log": lambda: Buffered(WIDE)}, calls=2)
def a_buffer_that_is_added_to_and_read(self, x):
    h = self.a(x)
    self.log.held.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    return self.b(self.rho(h - self.log.held))


@forward("in place", (torch.arange(8) % 5,), parts={"a": lambda: nn.Embedding(10, WIDE, max_norm=1.0)}, calls=2)
def an_embedding_that_renormalises(self, words):
    return self.b(self.rho(self.a(words)))


# --- networks whose layers, activations or forward are not a RadNet's

SHOWN = (normal(16, 3),)


def network(kind=radnet.RadNet, activation="shifted_relu", widths=(3, WIDE, WIDE, 2)):
    return kind(widths, activation, init="linear")


class OwnForwardActivation(radnet.RadialActivation):
    def profile(self, r):
        return r

    def forward(self, v):
        return super().forward(v.clamp(-10, 10))


class OwnForward(radnet.RadNet):
    def forward(self, x):
        for layer, rho in zip(self.layers, self.rescalings, strict=True):
            x = rho(layer(x).clamp(-10, 10))
        return x


class OwnForwardLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x).clamp(-10, 10)


class PlainLinear(nn.Linear):
    """Only a name."""


class PlainSquash(radnet.Squash):
    """Only a name."""


class PlainNetwork(radnet.RadNet):
    """A name, and one more method."""

    def norms(self, x):
        return [v.norm(dim=-1) for v in self.partial(x)]


class WithSkips(radnet.RadNet):
    def forward(self, x):
        h = self.rescalings[0](self.layers[0](x))
        h = h + self.rescalings[1](self.layers[1](h))
        return self.layers[2](h)


class CutsItsInput(radnet.RadNet):
    def forward(self, x):
        return super().forward(cut(x))


class OwnCall(radnet.RadNet):
    def __call__(self, x):
        return super().__call__(cut(x))


class OwnCallLinear(nn.Linear):
    def __call__(self, x):
        return cut(super().__call__(x))


class OwnCallSquash(radnet.Squash):
    def __call__(self, v):
        return super().__call__(cut(v))


class OwnWeights(radnet.RadNet):
    """Says other weights than it uses."""

    @property
    def weights(self):
        return tuple(2 * W for W in super().weights)


class OwnActivations(radnet.RadNet):
    """Says other activations than it uses."""

    @property
    def activations(self):
        return tuple(radnet.Identity() for _ in self.rescalings)


class PlainOrOwn(radnet.RadNet):
    """Inherits forward, but the layers that forward reads are others."""

    def __getattr__(self, name):
        value = super().__getattr__(name)
        return (
            nn.ModuleList(nn.Sequential(m, nn.Hardtanh(-LIMIT, LIMIT)) for m in value)
            if name == "rescalings"
            else value
        )


def cut_output(m, args, out):
    return cut(out)


def cut_output_and_look_at_keywords(m, args, keywords, out):
    return cut(out)


def cut_output_in_place(m, args, out):
    out.clamp_(-LIMIT, LIMIT)


def cut_input(m, args):
    return (cut(args[0]),)


def cut_weight(m, args):
    m.weight.data.clamp_(-0.14, 0.14)


def set_forward(m, function):
    """A forward of this very object."""
    m.forward = types.MethodType(function, m)


def tie(net):
    net.layers[2].weight = net.layers[1].weight


class Cutting(nn.Module):
    def forward(self, w):
        return w.clamp(-0.1, 0.1)


parametrizations, register_parametrization = (
    torch.nn.utils.parametrizations,
    torch.nn.utils.parametrize.register_parametrization,
)

#: what is done to a network of three layers after it is built
DONE_TO = {
    "a hook on a layer": lambda net: net.layers[0].register_forward_hook(cut_output),
    "a pre-hook on a layer": lambda net: net.layers[1].register_forward_pre_hook(cut_input),
    "a hook on an activation": lambda net: net.rescalings[0].register_forward_hook(cut_output),
    "a hook with keywords": lambda net: net.rescalings[0].register_forward_hook(
        cut_output_and_look_at_keywords, with_kwargs=True
    ),
    "a pre-hook on an activation": lambda net: net.rescalings[1].register_forward_pre_hook(cut_input),
    "a hook on the network": lambda net: net.register_forward_hook(cut_output),
    "a pre-hook on the network": lambda net: net.register_forward_pre_hook(cut_input),
    "a hook in place": lambda net: net.layers[0].register_forward_hook(cut_output_in_place),
    "a pre-hook on a weight": lambda net: net.layers[1].register_forward_pre_hook(cut_weight),
    "a layer with a forward of its own": lambda net: net.layers.__setitem__(0, OwnForwardLinear(3, WIDE)),
    "a layer with a call of its own": lambda net: net.layers.__setitem__(1, OwnCallLinear(WIDE, WIDE)),
    "an activation with a call of its own": lambda net: net.rescalings.__setitem__(1, OwnCallSquash()),
    "blocks": lambda net: net.rescalings.__setitem__(0, radnet.Squash(blocks=4)),
    "an axis": lambda net: net.rescalings.__setitem__(0, radnet.Squash(dim=0)),
    "nn.ReLU": lambda net: net.rescalings.__setitem__(0, nn.ReLU()),
    "a sequence": lambda net: net.rescalings.__setitem__(0, nn.Sequential(radnet.Squash(), nn.ReLU6())),
    "a forward set on a layer": lambda net: set_forward(net.layers[0], lambda m, x: cut(nn.Linear.forward(m, x))),
    "a forward set on an activation": lambda net: set_forward(net.rescalings[0], lambda m, v: cut(v)),
    "a forward set on the network": lambda net: set_forward(net, lambda m, x: cut(radnet.RadNet.forward(m, x))),
    "a profile set on an activation": lambda net: setattr(net.rescalings[0], "profile", torch.tanh),
    "a profile of all rows together": lambda net: net.rescalings.__setitem__(0, radnet.Radial(lambda r: r / r.max())),
    "a dim set on an activation": lambda net: setattr(net.rescalings[1], "dim", 0),
    "weight_norm": lambda net: parametrizations.weight_norm(net.layers[1]),
    "orthogonal": lambda net: parametrizations.orthogonal(net.layers[1]),
    "spectral_norm": lambda net: parametrizations.spectral_norm(net.layers[1]),
    "a parametrization that cuts": lambda net: register_parametrization(net.layers[1], "weight", Cutting()),
    "a parametrized bias": lambda net: register_parametrization(net.layers[0], "bias", Cutting()),
}


class Done:
    """A network with something done to it, by itself or in a model."""

    def __init__(self, change, nested):
        self.change, self.nested = change, nested

    def __call__(self):
        net = network(widths=(3, WIDE, WIDE, WIDE if self.nested else 2))
        self.change(net)
        return nn.Sequential(net, radnet.Squash(), nn.Linear(WIDE, 2)) if self.nested else net


for _name, _change in DONE_TO.items():
    _calls = 2 if _name == "a pre-hook on a weight" else 1
    CASES.append(Case("networks", _name, Done(_change, nested=False), SHOWN, calls=_calls))
    CASES.append(Case("networks", f"{_name}, inside a model", Done(_change, nested=True), SHOWN, calls=_calls))


def _hooked():
    net = network()
    net.layers[0].register_forward_hook(lambda m, args, out: out.clamp(-10, 10))
    return net


def _replaced(place, layer, widths=(3, WIDE, WIDE, 2)):
    net = network(widths=widths)
    place(net, layer)
    return net


def _in_a_model(kind):
    return nn.Sequential(network(kind, widths=(3, WIDE, WIDE, WIDE)), nn.Linear(WIDE, 2))


NETWORKS = {
    "a hook that cuts at 10": (_hooked, RETURNED),
    "an activation that cuts at 10": (lambda: network(activation=OwnForwardActivation()), RETURNED),
    "a subclass that cuts at 10": (lambda: network(OwnForward), RETURNED),
    "a layer that cuts at 10": (lambda: Done(DONE_TO["a layer with a forward of its own"], False)(), RETURNED),
    "a subclass that cuts at 10 inside a model": (lambda: _in_a_model(OwnForward), RETURNED),
    "blocks put in": (lambda: Done(DONE_TO["blocks"], False)(), RETURNED),
    "a network inside a model": (lambda: _in_a_model(radnet.RadNet), SMALLER),
    "a subclass that inherits": (lambda: network(PlainNetwork), SMALLER),
    "a subclass that inherits inside a model": (lambda: _in_a_model(PlainNetwork), SMALLER),
    "an activation that inherits": (lambda: network(activation=PlainSquash()), SMALLER),
    "a layer that inherits": (
        lambda: _replaced(lambda net, m: net.layers.__setitem__(0, m), PlainLinear(3, WIDE)),
        SMALLER,
    ),
    "a subclass that cuts its input": (lambda: network(CutsItsInput), EITHER),
    "a subclass that cuts its input inside a model": (lambda: _in_a_model(CutsItsInput), EITHER),
    "a subclass with a call of its own": (lambda: network(OwnCall), EITHER),
    "a subclass with a call of its own inside a model": (lambda: _in_a_model(OwnCall), EITHER),
    "a subclass with skips": (lambda: network(WithSkips), EITHER),
    "a subclass with skips inside a model": (lambda: _in_a_model(WithSkips), EITHER),
    "a subclass that says other weights": (lambda: network(OwnWeights), EITHER),
    "a subclass that says other activations": (lambda: network(OwnActivations), EITHER),
    "a subclass with a getattr of its own": (lambda: network(PlainOrOwn), EITHER),
    "a subclass with a getattr of its own inside a model": (lambda: _in_a_model(PlainOrOwn), EITHER),
    "tied layers": (lambda: _replaced(lambda net, _: tie(net), None, (3, WIDE, WIDE, WIDE, 2)), EITHER),
    "tied layers inside a model": (
        lambda: nn.Sequential(
            _replaced(lambda net, _: tie(net), None, (3, WIDE, WIDE, WIDE, WIDE)), nn.Linear(WIDE, 2)
        ),
        EITHER,
    ),
    "one layer twice": (
        lambda: _replaced(lambda net, _: net.layers.__setitem__(2, net.layers[1]), None, (3, WIDE, WIDE, WIDE, 2)),
        EITHER,
    ),
}
for _name, (_build, _must) in NETWORKS.items():
    CASES.append(Case("networks", _name, _build, SHOWN, must=_must))


@built("networks", SHOWN, call(normal(4, 5, 3)))
def axis_1_in_a_network():
    return Done(lambda net: net.rescalings.__setitem__(1, radnet.Squash(dim=1)), nested=False)()


@built("networks", SHOWN)
def a_parametrized_shift():
    net = network(activation=radnet.Squash(shift="trainable"))
    register_parametrization(net.rescalings[0], "shift", Cutting())
    with torch.no_grad():
        net.rescalings[0].parametrizations.shift.original.fill_(0.4)
    return net


INNER = {"net": lambda: network(widths=(3, WIDE, WIDE, WIDE))}


@forward("networks", SHOWN, parts=INNER)
def partial_functions_inside_a_model(self, x):
    return self.b(self.net(x)) + self.net.partial(x)[1].relu()[:, :2]


@forward("networks", SHOWN, parts=INNER)
def layers_of_a_network_called_from_outside(self, x):
    return self.b(self.net(x)) + self.net.layers[0](x).relu()[:, :2]


@forward("networks", SHOWN, parts=INNER)
def weights_of_a_network_read_from_outside(self, x):
    return self.b(self.net(x)) * self.net.weights[1].abs().sum()


@forward("networks", SHOWN, parts=INNER)
def widths_of_a_network_as_numbers(self, x):
    return self.b(self.net(x)) / self.net.widths[1]


# --- forwards that are not what they seem


class CutIf(nn.Module):
    """A hidden value that is cut, if a question about it is answered so; while a model is traced it may not be."""

    def __init__(self, question):
        super().__init__()
        self.a, self.rho, self.b, self.question = nn.Linear(3, WIDE), radnet.Squash(), nn.Linear(WIDE, 2), question

    def forward(self, x):
        h = self.a(x)
        if self.question(h):
            h = cut(h)
        return self.b(self.rho(h))


def _is_a_number(h):
    try:
        float(h.detach().sum())
    except Exception:
        return False
    return True


def _can_be_iterated(h):
    try:
        for _ in h:
            break
    except Exception:
        return False
    return True


def _has_a_length(h):
    try:
        return len(h) >= 0
    except Exception:
        return False


def _is_copied(h):
    return copy.copy(h) is not None and isinstance(h.tolist(), list)


CUT_IF = {
    "type(h) is Tensor": lambda h: type(h) is torch.Tensor,
    "torch.is_tensor(h)": torch.is_tensor,
    "h is no Proxy": lambda h: not isinstance(h, torch.fx.Proxy),
    "its class is named Tensor": lambda h: h.__class__.__name__ == "Tensor",
    "it has not some attribute": lambda h: not hasattr(h, "nowhere"),
    "it has no node": lambda h: getattr(h, "node", None) is None,
    "it has no __torch_function__ of its own": lambda h: not torch.overrides.has_torch_function((h,)),
    "it is a number": _is_a_number,
    "it can be iterated": _can_be_iterated,
    "it has a length": _has_a_length,
    "it gives a list": _is_copied,
    "its shape is a torch.Size": lambda h: isinstance(h.shape, torch.Size),
    "torch.jit is not tracing": lambda h: not torch.jit.is_tracing(),
    "torch is not compiling": lambda h: not torch.compiler.is_compiling(),
    "torch is not exporting": lambda h: len(h) >= 0 and not torch.compiler.is_exporting(),
    "torch is neither": lambda h: len(h) >= 0 and not torch.compiler.is_compiling(),
    "it is not fake": lambda h: len(h) >= 0 and not isinstance(h, torch._subclasses.FakeTensor),
    "torch.fx is not tracing": lambda h: not torch.fx._symbolic_trace.is_fx_tracing(),
    "it is not float64": lambda h: h.dtype != torch.float64,
    "it is float64": lambda h: h.dtype == torch.float64,
    "gradients are off": lambda h: not torch.is_grad_enabled(),
    "gradients are on": lambda h: torch.is_grad_enabled(),
    "it needs gradients": lambda h: h.requires_grad,
    "its first row is large": lambda h: float(h[0].abs().max()) > LIMIT,
}
for _name, _question in CUT_IF.items():
    _settings = {"with_gradients": "gradients" in _name, "in_both_dtypes": "float64" in _name}
    CASES.append(Case("forwards", f"cut if {_name}", functools.partial(CutIf, _question), SHOWN, **_settings))


@forward("forwards", SHOWN, must=RETURNED)
def cut_if_isinstance_tensor(self, x):
    h = self.a(x)
    if isinstance(h, torch.Tensor):
        h = h.clamp(-10, 10)
    return self.b(self.rho(h))


@forward("forwards", SHOWN)
def where_a_row_is_large(self, x):
    h = self.a(x)
    return self.b(self.rho(torch.where(x[:, :1].abs() > LIMIT, h.relu(), h)))


@forward("forwards", SHOWN, in_both_dtypes=True)
def relu_unless_the_weight_is_float64(self, x):
    h = self.a(x)
    return self.b(self.rho(h if self.a.weight.dtype == torch.float64 else h.relu()))


SMALL_TOO = (1e-6, 1e-3, 1.0, 1e2, 1e6)


class RMSNormBase(nn.Module):
    def __init__(self, n=WIDE):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.linspace(0.5, 1.5, n)), 1e-12


def rms(x):
    return x.pow(2).mean(-1, keepdim=True)


def _counts_its_calls(m, x):
    m.calls = getattr(m, "calls", 0) + 1
    return x * torch.rsqrt(rms(x) + m.eps) / m.calls


#: forwards of classes named RMSNorm, without the gain
NORMS = {
    "takes the larger of eps": lambda m, x: x / rms(x).clamp(min=m.eps).sqrt(),
    "adds eps outside the root": lambda m, x: x / (rms(x).sqrt() + m.eps),
    "has another eps": lambda m, x: x * torch.rsqrt(rms(x) + 1e-13),
    "has no eps at all": lambda m, x: x * torch.rsqrt(rms(x)),
    "cuts what comes out": lambda m, x: (x * torch.rsqrt(rms(x) + m.eps)).clamp(-2.0, 2.0),
    "cuts what comes in": lambda m, x: cut(x) * torch.rsqrt(rms(cut(x)) + m.eps),
    "divides by the largest": lambda m, x: x / (x.abs().amax(-1, keepdim=True) + m.eps),
    "subtracts the mean": lambda m, x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(rms(x) + m.eps),
    "adds one to the gain": lambda m, x: (1 + 1 / m.weight) * x * torch.rsqrt(rms(x) + m.eps),
    "looks at half of it": lambda m, x: x * torch.rsqrt(rms(x[..., : WIDE // 2]) + m.eps),
    "looks at all rows": lambda m, x: x * torch.rsqrt(rms(x) + m.eps + 1e-9 * x.abs().amax() ** 2),
    "leaves large rows alone": lambda m, x: x * torch.where(rms(x) > LIMIT**2, 1.0, torch.rsqrt(rms(x) + m.eps)),
    "leaves small rows alone": lambda m, x: x * torch.where(rms(x) < 1e-8, 1.0, torch.rsqrt(rms(x) + m.eps)),
    "cuts without gradients": lambda m, x: cut(x) if not torch.is_grad_enabled() else x * torch.rsqrt(rms(x) + m.eps),
    "counts its calls": _counts_its_calls,
    "computes in float32": lambda m, x: (x.float() * torch.rsqrt(rms(x.float()) + m.eps)).to(x.dtype),
    "is what it says": lambda m, x: x * torch.rsqrt(rms(x) + m.eps),
}


def norm_model(function):
    kind = type("RMSNorm", (RMSNormBase,), {"forward": lambda self, x: self.weight * function(self, x)})
    return nn.Sequential(nn.Linear(3, WIDE, bias=False), kind(), nn.Linear(WIDE, 2))


for _name, _function in NORMS.items():
    _settings = {"with_gradients": "gradients" in _name, "calls": 2 if "calls" in _name else 1, "scales": SMALL_TOO}
    _must = RETURNED if _name == "takes the larger of eps" else EITHER
    _build = functools.partial(norm_model, _function)
    CASES.append(Case("forwards", f"RMSNorm that {_name}", _build, SHOWN, must=_must, **_settings))


def subclass_of(kind, *args, **keywords):
    """A part of the library of torch that does the same to what is cut before."""

    def own(self, x, *more):
        return cut(super(type(self), self).forward(cut(x), *more))

    return type(kind.__name__, (kind,), {"forward": own})(*args, **keywords)


def named(kind, *args, **keywords):
    """A subclass that inherits everything."""
    return type(f"My{kind.__name__}", (kind,), {})(*args, **keywords)


def changed(model, part, change):
    change(model[part])
    return model


class OwnCallImpl(nn.Linear):
    def _call_impl(self, *args, **keywords):
        return cut(super()._call_impl(*args, **keywords))


class OwnConvForward(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return cut(super()._conv_forward(x, weight, bias))


class Signs(nn.Embedding):
    def forward(self, words):
        return super().forward(words).sign()


class OwnBlocks(radnet.Squash):
    """Whatever it is told, four blocks."""

    @property
    def blocks(self):
        return 4

    @blocks.setter
    def blocks(self, value):
        pass


def _wrapped(m):
    old = m.forward  # as libraries do that move weights about: the method of this very layer, in a closure
    m.forward = lambda x: cut(old(x))


def last(layer, activation=radnet.Squash):
    return nn.Sequential(nn.Linear(3, WIDE), activation(), layer)


S, R = nn.Sequential, radnet.ShiftedReLU
PARTS = {
    "a forward set on an activation": lambda: changed(chain(R()), 1, lambda m: set_forward(m, lambda m, v: cut(v))),
    "a forward set on the model": lambda: _own_sequence(),
    "a forward that wraps the old one": lambda: changed(chain(R()), 0, _wrapped),
    "a forward set on a norm": lambda: changed(
        chain(nn.LayerNorm(WIDE)), 1, lambda m: set_forward(m, lambda m, x: nn.LayerNorm.forward(m, cut(x)))
    ),
    "a forward set on a dropout": lambda: changed(
        chain(nn.Dropout(), R()), 1, lambda m: set_forward(m, lambda m, x: cut(x))
    ),
    "a norm with a hook": lambda: changed(
        chain(nn.LayerNorm(WIDE)), 1, lambda m: m.register_forward_pre_hook(cut_input)
    ),
    "a hook before a norm": lambda: changed(
        chain(nn.LayerNorm(WIDE)), 0, lambda m: m.register_forward_hook(cut_output)
    ),
    "a hook before a batch norm": lambda: changed(
        chain(nn.BatchNorm1d(WIDE), R()), 0, lambda m: m.register_forward_hook(cut_output)
    ),
    "a hook on an identity": lambda: changed(
        chain(nn.Identity(), R()), 1, lambda m: m.register_forward_hook(cut_output)
    ),
    "a layer with a call of its own": lambda: S(OwnCallLinear(3, WIDE), R(), nn.Linear(WIDE, 2)),
    "a layer with a call_impl of its own": lambda: S(OwnCallImpl(3, WIDE), R(), nn.Linear(WIDE, 2)),
    "an activation with a call of its own": lambda: chain(OwnCallSquash()),
    "an activation with blocks of its own": lambda: chain(OwnBlocks()),
    "a subclass of Identity": lambda: chain(subclass_of(nn.Identity), R()),
    "a subclass of Dropout": lambda: chain(subclass_of(nn.Dropout, 0.5), R()),
    "a subclass of BatchNorm1d": lambda: chain(subclass_of(nn.BatchNorm1d, WIDE), R()),
    "a subclass of LayerNorm": lambda: chain(subclass_of(nn.LayerNorm, WIDE)),
    "a subclass of RMSNorm": lambda: chain(subclass_of(nn.RMSNorm, WIDE, eps=1e-6)),
    "a subclass of ShiftedReLU": lambda: chain(subclass_of(R)),
    "a subclass of radnet.Identity": lambda: chain(subclass_of(radnet.Identity), R()),
    "a subclass of Linear": lambda: S(subclass_of(nn.Linear, 3, WIDE), R(), nn.Linear(WIDE, 2)),
    "a subclass of Linear that reads": lambda: last(subclass_of(nn.Linear, WIDE, 2), R),
    "a subclass of Flatten": lambda: chain(subclass_of(nn.Flatten), R()),
    "a subclass of Sequential": lambda: chain(subclass_of(nn.Sequential, R())),
}


def _own_sequence():
    model = chain(R())
    set_forward(model, lambda m, x: m[2](m[1](cut(m[0](x)))))
    return model


for _name, _build in PARTS.items():
    CASES.append(Case("forwards", _name, _build, SHOWN, scales=SMALL_TOO))

INHERITING = {
    "Linear": lambda: S(PlainLinear(3, WIDE), PlainSquash(), PlainLinear(WIDE, 2)),
    "LayerNorm": lambda: chain(named(nn.LayerNorm, WIDE)),
    "RMSNorm": lambda: chain(named(nn.RMSNorm, WIDE, eps=1e-6)),
    "Identity": lambda: chain(named(nn.Identity), radnet.Squash()),
    "Sequential": lambda: S(named(nn.Sequential, nn.Linear(3, WIDE), radnet.Squash()), nn.Linear(WIDE, 2)),
}
for _name, _build in INHERITING.items():
    CASES.append(Case("forwards", f"a {_name} that inherits", _build, SHOWN, must=SMALLER))


@built("forwards", SHOWN, must=RETURNED)
def a_forward_set_on_a_layer_of_a_model():
    model = chain(radnet.Squash())
    set_forward(model[0], lambda self, x: F.linear(x, self.weight, self.bias).clamp(-10, 10))
    return model


@built("forwards", pictures(6, 6).inputs)
def a_subclass_of_conv2d():
    return S(subclass_of(nn.Conv2d, 1, 24, 3), radnet.Squash(dim=1), nn.Conv2d(24, 2, 1))


@built("forwards", pictures(6, 6).inputs)
def a_subclass_of_conv2d_with_a_hidden_method():
    return S(OwnConvForward(1, 24, 3), radnet.Squash(dim=1), nn.Conv2d(24, 2, 1))


@built("forwards", pictures(6, 6).inputs)
def a_subclass_of_pooling():
    pool = subclass_of(nn.AdaptiveAvgPool2d, 1)
    return S(nn.Conv2d(1, 24, 3), radnet.ShiftedReLU(dim=1), pool, nn.Flatten(), nn.Linear(24, 2))


@built("forwards", (torch.arange(8) % 5,))
def a_subclass_of_embedding():
    return S(Signs(10, WIDE), radnet.Squash(), nn.Linear(WIDE, 2))


@contextlib.contextmanager
def hook_of_all_modules(register, hook):
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def patched(owner, name, change):
    """An attribute of a class or module of torch, changed for a while."""
    own, old = name in vars(owner), getattr(owner, name)
    setattr(owner, name, change(old))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, old)
        else:
            delattr(owner, name)


def _cut_linear(m, args, out):
    return cut(out) if isinstance(m, nn.Linear) else None


def _cut_before_radial(m, args):
    return (cut(args[0]),) if isinstance(m, radnet.RadialActivation) else None


def _cut_after(old):
    return lambda *args, **keywords: cut(old(*args, **keywords))


modules = torch.nn.modules.module
AROUND = {
    "a hook after all modules": lambda: hook_of_all_modules(modules.register_module_forward_hook, _cut_linear),
    "a hook before all": lambda: hook_of_all_modules(modules.register_module_forward_pre_hook, _cut_before_radial),
    "Linear.forward replaced": lambda: patched(nn.Linear, "forward", _cut_after),
    "F.linear replaced": lambda: patched(F, "linear", _cut_after),
    "ShiftedReLU.forward replaced": lambda: patched(R, "forward", _cut_after),
    "RadialActivation.forward replaced": lambda: patched(radnet.RadialActivation, "forward", _cut_after),
}
for _name, _around in AROUND.items():
    CASES.append(Case("forwards", _name, lambda: chain(R()), SHOWN, around=_around))
    CASES.append(Case("forwards", f"{_name}, RadNet", network, SHOWN, around=_around))


class CutTensor(torch.Tensor):
    """A tensor whose products are cut."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        out = super().__torch_function__(function, types, args, kwargs or {})
        return cut(out.as_subclass(torch.Tensor)) if function is F.linear else out

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = nn.Parameter(self.detach().clone().as_subclass(CutTensor))
        return memo[id(self)]


def _cut_products(layer):
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(CutTensor))


class WeightAsProperty(nn.Linear):
    def __init__(self, *widths):
        super().__init__(*widths)
        raw = self.weight
        del self._parameters["weight"]
        self.raw = raw

    @property
    def weight(self):
        return self.raw.clamp(-0.1, 0.1)

    @weight.setter
    def weight(self, value):
        self.register_parameter("raw", value)


class WeightByGetattr(nn.Linear):
    def __init__(self, *widths):
        super().__init__(*widths)
        nn.init.uniform_(self._parameters["weight"], -0.5, 0.5)

    def __getattr__(self, name):
        value = super().__getattr__(name)
        return value.clamp(-0.1, 0.1) if name == "weight" else value


WEIGHTS = {
    "a weight of a class of its own": lambda: changed(chain(R()), 0, _cut_products),
    "a weight of a class of its own, RadNet": lambda: Done(lambda net: _cut_products(net.layers[1]), False)(),
    "a weight as a property": lambda: S(WeightAsProperty(3, WIDE), R(), nn.Linear(WIDE, 2)),
    "a weight as a property, RadNet": lambda: Done(
        lambda net: net.layers.__setitem__(1, WeightAsProperty(WIDE, WIDE)), False
    )(),
    "a weight by getattr": lambda: S(WeightByGetattr(3, WIDE), R(), nn.Linear(WIDE, 2)),
    "a weight by getattr, RadNet": lambda: Done(
        lambda net: net.layers.__setitem__(1, WeightByGetattr(WIDE, WIDE)), False
    )(),
}
for _name, _build in WEIGHTS.items():
    CASES.append(Case("forwards", _name, _build, SHOWN))

#: numbers that are others in a smaller model, by which a hidden value is multiplied
NUMBERS = {
    "out_features": lambda m, x, h: m.a.out_features**-0.5,
    "in_features of the reader": lambda m, x, h: 1 / m.b.in_features,
    "the shape of a weight": lambda m, x, h: m.a.weight.shape[0] ** -0.5,
    "the length of a bias": lambda m, x, h: len(m.a.bias) ** -0.5,
    "the size of a hidden value": lambda m, x, h: h.size(-1) ** -0.5,
    "the elements of a hidden value": lambda m, x, h: h.numel() / x.numel(),
    "the number of parameters": lambda m, x, h: sum(p.numel() for p in m.parameters()),
    "the number of parts": lambda m, x, h: len(list(m.children())),
    "an attribute that stays": lambda m, x, h: m.dim**-0.5,
    "the sum of a weight": lambda m, x, h: m.a.weight.sum(),
    "the norm of a weight": lambda m, x, h: m.a.weight.norm() + m.a.bias.norm(),
    "the largest of a bias": lambda m, x, h: float(m.a.bias.abs().max()),
    "a weight in the state": lambda m, x, h: m.state_dict()["a.weight"].abs().max(),
    "what a layer prints": lambda m, x, h: len(repr(m)),
    "the bytes of the model": lambda m, x, h: sum(p.nbytes for p in m.parameters()),
    "the name of its class": lambda m, x, h: len(type(m).__name__),
}


class ByNumber(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.a, self.rho, self.b, self.number, self.dim = nn.Linear(3, WIDE), R(), nn.Linear(WIDE, 2), number, WIDE

    def forward(self, x):
        h = self.rho(self.a(x))
        return self.b(h * self.number(self, x, h))


for _name, _number in NUMBERS.items():
    _must = {"out_features": RETURNED, "an attribute that stays": SMALLER}.get(_name, EITHER)
    CASES.append(Case("forwards", f"times {_name}", functools.partial(ByNumber, _number), SHOWN, must=_must))


@forward("forwards", SHOWN)
def a_weight_beside_the_output(self, x):
    return self.b(self.rho(self.a(x))), self.a.weight.abs().sum(), self.a.bias


@forward("forwards", SHOWN)
def a_weight_in_other_hands(self, x):
    return self.b(self.rho(F.linear(x, self.a.weight.clamp(-0.5, 0.5), self.a.bias))) + self.b(self.rho(self.a(x)))


@forward("forwards", SHOWN)
def a_layer_with_other_weights(self, x):
    return self.b(self.rho(torch.func.functional_call(self.a, {"weight": 2 * self.a.weight.abs()}, (x,))))


@forward("forwards", SHOWN)
def forwards_called_directly(self, x):
    return self.b.forward(self.rho.forward(self.a.forward(x)))


# --- what leaves by an attribute

HEADS = {"head": linear(WIDE, 7)}


@forward("side outputs", SHOWN, parts=HEADS, must=RETURNED)
def an_attribute_of_the_model(self, x):
    h = self.rho(self.a(x))
    self.aux = self.head(h)
    return self.b(h)


@forward("side outputs", SHOWN)
def the_hidden_value_itself(self, x):
    self.hidden = self.a(x)
    return self.b(self.rho(self.hidden))


@forward("side outputs", SHOWN)
def a_detached_copy(self, x):
    h = self.rho(self.a(x))
    self.seen = h.detach().clone()
    return self.b(h)


@forward("side outputs", SHOWN)
def a_number_of_every_entry(self, x):
    h = self.rho(self.a(x))
    self.usage = (h > 0).float().mean(0)
    return self.b(h)


@forward("side outputs", SHOWN)
def a_sum_over_the_entries(self, x):
    h = self.rho(self.a(x))
    self.penalty = h.abs().sum()
    return self.b(h)


@forward("side outputs", SHOWN, parts={"kept": list}, calls=2)
def a_list_that_grows(self, x):
    h = self.rho(self.a(x))
    self.kept.append(h)
    return self.b(h)


@forward("side outputs", SHOWN, parts={"kept": dict, **HEADS}, calls=2)
def a_dictionary(self, x):
    h = self.rho(self.a(x))
    self.kept["head"], self.kept["before"] = self.head(h), {"h": h}
    return self.b(h)


@forward("side outputs", SHOWN)
def an_attribute_of_a_part(self, x):
    h = self.rho(self.a(x))
    self.a.last = h
    return self.b(h)


class Log:
    def __init__(self):
        self.values = []


@forward("side outputs", SHOWN, parts={"log": Log}, calls=2)
def an_object_of_ones_own(self, x):
    h = self.rho(self.a(x))
    self.log.values.append(h.mean(0))
    return self.b(h)


@built("side outputs", SHOWN)
def an_attribute_left_by_a_part():
    class Remembers(nn.Module):
        def forward(self, v):
            self.seen = v
            return v

    return chain(Remembers(), radnet.Squash(), Remembers())


@built("side outputs", SHOWN)
def an_attribute_left_by_an_activation():
    class Remembers(radnet.Squash):
        def forward(self, v):
            self.seen = super().forward(v)
            return self.seen

    return chain(Remembers())


@built("side outputs", SHOWN)
def norms_left_by_a_profile():
    class Remembers(radnet.RadialActivation):
        def profile(self, r):
            self.norms = r
            return r / (1 + r)

    return chain(Remembers())


@built("side outputs", SHOWN)
def an_attribute_left_by_a_network():
    class Remembers(radnet.RadNet):
        def forward(self, x):
            self.hidden = self.rescalings[0](self.layers[0](x))
            return super().forward(x)

    return network(Remembers)


@built("side outputs", SHOWN)
def an_attribute_left_by_a_network_in_a_model():
    class Remembers(radnet.RadNet):
        def forward(self, x):
            self.hidden = self.partial(x)
            return self.hidden[-1]

    return nn.Sequential(network(Remembers, widths=(3, WIDE, WIDE, WIDE)), nn.Linear(WIDE, 2))


@built("side outputs", SHOWN)
def an_attribute_left_by_a_hook():
    def remember(m, args, out):
        m.seen = out

    model = chain(radnet.Squash())
    model[0].register_forward_hook(remember)
    return model


@built("side outputs", SHOWN)
def an_attribute_left_by_a_hook_of_a_network():
    def remember(m, args, out):
        m.seen = out

    net = network()
    net.layers[0].register_forward_hook(remember)
    return net


@forward("side outputs", SHOWN, parts={"log": lambda: Buffered(16, WIDE)}, calls=2)
def a_buffer_that_is_set(self, x):
    h = self.rho(self.a(x))
    self.log.held = h.detach()
    return self.b(h)


@forward("side outputs", SHOWN, parts={"log": lambda: Buffered(WIDE)}, calls=2)
def a_mean_that_runs(self, x):
    h = self.rho(self.a(x))
    self.log.held = 0.9 * self.log.held + 0.1 * h.detach().mean(0)
    return self.b(h)


@forward("side outputs", SHOWN, parts={"w": linear(WIDE, WIDE), "state": lambda: None}, calls=3)
def a_hidden_state_between_calls(self, x):
    h = self.a(x)
    if self.state is not None:
        h = h + self.w(self.state)
    self.state = self.rho(h)
    return self.b(self.state)


@forward("side outputs", SHOWN, parts={"cache": lambda: None}, calls=3)
def a_cache_that_grows(self, x):
    h = self.rho(self.a(x))
    self.cache = h if self.cache is None else torch.cat([self.cache, h])
    return self.b(self.cache.mean(0, keepdim=True) + h)


@forward("side outputs", SHOWN, parts={"calls": lambda: 0}, calls=3)
def another_name_each_time(self, x):
    h = self.rho(self.a(x))
    self.calls += 1
    setattr(self, f"hidden_{self.calls}", h)
    return self.b(h)


@forward("side outputs", SHOWN, parts={"calls": lambda: 0}, calls=3)
def another_function_at_the_third_call(self, x):
    h = self.rho(self.a(x))
    self.calls += 1
    return self.b(h if self.calls < 3 else h.relu())


@forward("side outputs", SHOWN)
def past_the_module(self, x):
    h = self.rho(self.a(x))
    object.__setattr__(self, "hidden", h)
    self.__dict__["also"] = (h, [h])
    return self.b(h)


@dataclasses.dataclass
class Kept:
    h: torch.Tensor
    logits: torch.Tensor


@forward("side outputs", SHOWN, parts=HEADS)
def a_dataclass(self, x):
    h = self.rho(self.a(x))
    self.kept = Kept(h, self.head(h))
    return self.b(h)


@forward("side outputs", SHOWN, parts=HEADS)
def an_attribute_beside_torch_export(self, x):
    h = self.rho(self.a(x))
    self.aux = self.head(h)
    return self.b(h) * (1.0 if len(x) else 2.0)


@forward("side outputs", SHOWN)
def outputs_in_a_dataclass(self, x):
    h = self.rho(self.a(x))
    return Kept(h, self.b(h))


@forward("side outputs", SHOWN, parts=HEADS)
def outputs_in_a_nest(self, x):
    h = self.rho(self.a(x))
    return {"out": self.b(h), "more": [(self.head(h), {"h": h}), None, "words", 3]}


# --- range


def half(*layers):
    return nn.Sequential(*layers).half()


def with_bias(layer, value):
    with torch.no_grad():
        layer.bias.fill_(value)
    return layer


def _stream(self, x):
    h = self.a(x)
    return self.b(h + self.d(self.rho(self.u(h))))


def _sum_of_two(self, x):
    return self.b(self.rho(self.a(x) + self.d(x)))


def _joined(self, x):
    return self.b(torch.cat([self.rho(self.a(x)), self.rho(self.d(x))], dim=-1))


TWO = {"a": linear(3, 4096), "d": linear(3, 4096), "b": linear(4096, 2)}

#: models in float16 with hidden vectors whose norm passes 65,504 long before their entries do
HALVES = {
    "one layer": lambda: half(nn.Linear(3, 4096), radnet.Squash(), nn.Linear(4096, 2)),
    "no biases": lambda: half(nn.Linear(3, 4096, bias=False), radnet.Squash(), nn.Linear(4096, 2, bias=False)),
    "a network": lambda: radnet.RadNet((3, 4096, 2), "squash", init="linear").half(),
    "a deep network": lambda: radnet.RadNet((3, 512, 512, 2), "shifted_relu", init="linear").half(),
    "no activation": lambda: half(nn.Linear(3, 4096), nn.Linear(4096, 2)),
    "shifted ReLU": lambda: half(nn.Linear(3, 1024), radnet.ShiftedReLU(), nn.Linear(1024, 2)),
    "blocks": lambda: half(nn.Linear(3, 4096), radnet.Squash(blocks=4), nn.Linear(4096, 2)),
    "RMSNorm": lambda: half(nn.Linear(3, 4096), nn.RMSNorm(4096, eps=1e-3), nn.Linear(4096, 2)),
    "LayerNorm": lambda: half(nn.Linear(3, 4096), nn.LayerNorm(4096), nn.Linear(4096, 2)),
    "a convolution": lambda: half(
        nn.Unflatten(1, (3, 1)), nn.Conv1d(3, 2048, 1), radnet.Squash(dim=1), nn.Conv1d(2048, 2, 1), nn.Flatten()
    ),
    "a large bias": lambda: half(with_bias(nn.Linear(3, 4096), 2000.0), radnet.Squash(), nn.Linear(4096, 2)),
    "a stream": lambda: model_of(_stream, {**TWO, "u": linear(4096, 8), "d": linear(8, 4096)}).half(),
    "a sum": lambda: model_of(_sum_of_two, TWO).half(),
    "joined": lambda: model_of(_joined, {**TWO, "b": linear(8192, 2)}).half(),
}


def _halves_of(layer):
    """Each half of a layer's outputs reads its own input; the first half is left out by whoever reads it."""
    with torch.no_grad():
        n = layer.out_features // 2
        layer.weight[:n, 1] = 0
        layer.weight[n:, 0] = 0
    return layer


def _reads_second_half(layer):
    with torch.no_grad():
        layer.weight[:, : layer.in_features // 2] = 0
    return layer


def _unequal(widths, activation):
    net = radnet.RadNet(widths, activation, init="linear")
    _halves_of(net.layers[0])
    _reads_second_half(net.layers[1])
    return net


def _unequal_model(activation, *, bias=True):
    first, second = _halves_of(nn.Linear(2, 64, bias=bias)), _reads_second_half(nn.Linear(64, 1, bias=bias))
    return nn.Sequential(first, activation, second)


#: models of two inputs, of which the second has to be seen beside a first one of any size
UNEQUAL = {
    "a network": lambda: _unequal((2, 64, 1), "shifted_relu"),
    "a network with an identity": lambda: _unequal((2, 64, 1), "identity"),
    "a network with a sigmoid": lambda: _unequal((2, 64, 1), "sigmoid"),
    "a deeper network": lambda: _unequal((2, 64, 64, 1), "shifted_relu"),
    "a model": lambda: _unequal_model(radnet.ShiftedReLU()),
    "a model without biases": lambda: _unequal_model(radnet.ShiftedReLU(), bias=False),
    "a linear model": lambda: _unequal_model(nn.Identity()),
    "blocks": lambda: _unequal_model(radnet.Squash(blocks=2)),
}
