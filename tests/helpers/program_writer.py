"""Programs as data, and the writer that puts one together statement by statement."""

import contextlib
import linecache
import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import radnet
from program_operations import CONVOLVED, LAST, LAYERS, OPERATIONS, OPTIONS, VOCABULARY, WIDEST, Impossible

GLOBALS = {
    "torch": torch,
    "nn": nn,
    "F": nn.functional,
    "radnet": radnet,
    "math": math,
    "rescale": radnet.rescaling.rescale,
}
NORMS = (nn.RMSNorm, nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d)

#: the axes of an input of each family; None is a number of features
INPUTS = {
    "rows": ("rows", None),
    "positions": ("rows", "positions", None),
    "image": ("rows", None, "height", "width"),
    "tokens": ("rows", "positions"),
}


@dataclass(frozen=True)
class Input:
    """An argument of forward; a name among its axes is a length that may change, a number one that may not."""

    name: str
    axes: tuple[str | int, ...]
    dtype: str = "float"  # or "tokens", or "bool"

    def draw(self, sizes, rng, extra=None):
        shape = [sizes.get(axis, axis) for axis in self.axes]
        if extra is not None:
            shape.insert(1, extra)
        if self.dtype == "float":
            return torch.randn(shape, generator=rng, dtype=torch.float64)
        if self.dtype == "bool":
            return torch.rand(shape, generator=rng) < 0.7
        return torch.randint(0, VOCABULARY, shape, generator=rng)


@dataclass(frozen=True)
class Statement:
    """Lines of forward, which operation wrote them, and which operations made the values that they read."""

    operation: str
    reads: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """What a random module is made of."""

    seed: int
    sizes: tuple[tuple[str, int], ...]
    inputs: tuple[Input, ...]
    options: tuple[str, ...]  # optional arguments, by name
    parts: tuple[str, ...]
    statements: tuple[Statement, ...]
    result: str
    single: bool  # whether it is written for float32 alone

    @property
    def source(self):
        arguments = ["self", *(x.name for x in self.inputs), *(OPTIONS[name][0] for name in self.options)]
        body = [(s.operation if i == 0 else "", line) for s in self.statements for i, line in enumerate(s.lines)]
        lines = [
            "class Model(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {part}" for part in self.parts),
            "",
            f"    def forward({', '.join(arguments)}):",
            *(f"        {line}  # {name}" if name else f"        {line}" for name, line in body),
            f"        return {self.result}",
        ]
        return "\n".join(lines) + "\n"

    @property
    def pairs(self):
        return {(a, s.operation) for s in self.statements for a in s.reads}

    @property
    def operations(self):
        return {s.operation for s in self.statements}

    def build(self):
        """The module in float64 and in eval mode, always with the same weights."""
        name, source = f"<program {self.seed}>", self.source
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # a traceback quotes it
        scope = {**GLOBALS, "__name__": "programs"}
        exec(compile(source, name, "exec"), scope)  # noqa: S102
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(self.seed)
            model = scope["Model"]().double()
            for m in model.modules():
                if isinstance(m, NORMS) and m.weight is not None:
                    nn.init.uniform_(m.weight, 0.5, 1.5)
                if isinstance(m, NORMS) and getattr(m, "bias", None) is not None:
                    nn.init.normal_(m.bias, std=0.5)
                if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d):
                    nn.init.normal_(m.running_mean, std=0.5)
                    nn.init.uniform_(m.running_var, 0.5, 2)
        return model.eval()

    def draw(self, rng, extra=None, **changes):
        """Inputs of the program's own sizes, or with some of them changed, or with another axis."""
        sizes = {**dict(self.sizes), **changes}
        return tuple(x.draw(sizes, rng, extra) for x in self.inputs)


@dataclass
class Variable:
    """A name in a program while it is written."""

    name: str
    kind: str
    by: str  # the operation that made it last

    def __str__(self):
        return self.name


@dataclass
class Writer:
    """A program while it is written. Statements are run at once: shapes are known, and all that is written runs."""

    rng: random.Random
    single: bool
    sizes: dict[str, int]
    inputs: list[Input] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    unread: dict[str, None] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self):
        self.dtype = torch.float32 if self.single else torch.float64
        self.me = nn.Module().eval()
        self.scope: dict[str, Any] = {**GLOBALS, "self": self.me}

    def name(self, letter):
        self.number += 1
        return f"{letter}{self.number}"

    def coin(self, p=0.5):
        return self.rng.random() < p

    def shape(self, v):
        return tuple(self.scope[v.name].shape)

    def others(self, v):
        """The shape of a value but for its features."""
        shape = list(self.shape(v))
        del shape[axis(v)]
        return shape

    def input(self, letter, axes, dtype="float"):
        """The name of an input of forward; one that is there already serves again."""
        for x in self.inputs:
            if (x.name[0], x.axes, x.dtype) == (letter, axes, dtype):
                return x.name
        x = Input(self.name(letter) if self.inputs else letter, axes, dtype)
        self.inputs.append(x)
        value = x.draw(self.sizes, torch.Generator().manual_seed(0))
        self.scope[x.name] = value.to(self.dtype) if value.is_floating_point() else value
        return x.name

    def begin(self, family):
        """A first value: an input of a family."""
        axes = tuple(self.rng.randint(2, 5) if axis is None else axis for axis in INPUTS[family])
        name = self.input("z" if self.inputs else "x", axes, "tokens" if family == "tokens" else "float")
        self.variables.append(Variable(name, family, "input"))
        return self.variables[-1]

    def part(self, source, name=None):
        """A part of the module, or another line of its __init__."""
        name = self.name("m") if name is None else name
        self.parts.append(f"self.{name} = {source}")
        exec(self.parts[-1], self.scope)  # noqa: S102
        self.me.to(self.dtype).eval()
        return f"self.{name}"

    def mixing(self, v, n, m, bias=None):
        """A layer from n to m features that reads a value position by position."""
        bias = "" if (self.coin(0.75) if bias is None else bias) else ", bias=False"
        if v.kind in LAST:
            return self.part(f"nn.Linear({n}, {m}{bias})")
        return self.part(f"nn.Conv{dimensions(v)}d({n}, {m}, 1{bias})")

    def add(self, operation, v, lines, made, kind, reads=()):
        """Run lines and note them: what they make is `made`, a name or a variable that is there."""
        exec("\n".join(lines), self.scope)  # noqa: S102
        name = str(made)
        if not isinstance(self.scope[name], Tensor) or self.scope[name].numel() == 0:
            raise Impossible
        everything = [v, *(u for u in reads if u is not v)]
        self.statements.append(Statement(operation, tuple(dict.fromkeys(u.by for u in everything)), tuple(lines)))
        for u in everything:
            self.unread.pop(u.name, None)
        self.unread[name] = None
        if isinstance(made, Variable):
            made.by = operation
            return made
        self.variables.append(Variable(name, kind, operation))
        return self.variables[-1]

    def apply(self, name, v):
        """Let an operation write; if it cannot, nothing is left of it."""
        before = self.remembered()
        try:
            return self._apply(name, v)
        except (Impossible, RuntimeError, ValueError, IndexError, TypeError) as error:
            self.recall(before)
            raise Impossible from error

    def _apply(self, name, v):
        rule = OPERATIONS[name]
        if v.kind not in rule.kinds:
            raise Impossible
        fields, text, kind = Fields(self, v), self.rng.choice(rule.texts), rule.kinds[v.kind]
        is_expression = not rule.in_place and "{y}" not in text
        lines = text.format_map(fields).split("\n")
        if "{y}" in text:
            made = fields["y"]
        elif rule.in_place:
            made = v
        else:
            made = v if kind == v.kind and self.coin(0.3) else fields["y"]
        if is_expression:
            lines = [f"{made} = {lines[0]}"]
        result = self.add(name, v, lines, made, kind, fields.reads)
        self._check(result)
        return result

    def _check(self, v):
        n = math.prod(self.shape(v)[1:])
        if self.scope[v.name].ndim != {"rows": 2, "tokens": 2, "image": 4}.get(v.kind, 3) or n > 1500:
            raise Impossible
        if v.kind != "tokens" and self.shape(v)[axis(v)] > (WIDEST if v.kind != "rows" else 3 * WIDEST):
            raise Impossible

    def remembered(self):
        lists = [list(x) for x in (self.inputs, self.options, self.parts, self.statements)]
        return lists, [(v, replace(v)) for v in self.variables], dict(self.scope), dict(self.unread), self.number

    def recall(self, before):
        (self.inputs, self.options, self.parts, self.statements), kept, self.scope, self.unread, self.number = before
        self.variables = [v for v, _ in kept]
        for v, old in kept:
            v.by = old.by


def axis(v):
    return -1 if v.kind in LAST else 1


def dimensions(v):
    return 2 if v.kind == "image" else 1


class Fields(dict):
    """What the fields of an operation's text stand for; each is found out when it is first asked for."""

    def __init__(self, writer, v):
        super().__init__(v=v, axis=axis(v), d=dimensions(v), vocabulary=VOCABULARY)
        self.writer, self.value, self.reads = writer, v, []

    def __missing__(self, name):
        self[name] = getattr(self, f"_{name}")()
        return self[name]

    # names

    def _y(self):
        return self.writer.name("v")

    _a = _b = _y

    def _kept(self):
        return self.writer.name("kept")

    # numbers and words

    def _n(self):
        return self.writer.shape(self.value)[axis(self.value)]

    def _k(self):
        return self.writer.rng.randint(4, 24)

    def _c(self):
        return self.writer.rng.choice(["0.5", "2", "-1.5", "3.0"])

    def _far(self):
        """Where something is cut off: among ordinary values, or far beyond them."""
        return self.writer.rng.choice(["0.5", "20.0", "20.0"])

    def _some(self):
        if self["n"] < 3:
            raise Impossible
        return self.writer.rng.randint(2, self["n"] - 1)

    def _dots(self):
        return "...," if self.value.kind in LAST else ":,"

    def _positions(self):
        return {"positions": "1", "channels": "-1", "image": "(2, 3)"}[self.value.kind]

    def _length(self):
        return 1 if self.value.kind == "positions" else -1

    def _steps(self):
        return self.writer.shape(self.value)[self["length"]]

    def _ndim(self):
        return len(self.writer.shape(self.value))

    def _leading(self):
        return f"{self.value}.size(0)" + (f", {self.value}.shape[1]" if self.value.kind == "positions" else "")

    def _ones(self):
        return {"channels": ", 1", "image": ", 1, 1"}.get(self.value.kind, "")

    def _back(self):
        return "" if self.writer.single else f".to({self.value}.dtype)"

    def _dtype(self):
        return "" if self.writer.single else f", dtype={self.value}.dtype"

    def _blocks(self):
        n = self["n"]
        return self.writer.rng.choice([*(k for k in (2, 3) if n % k == 0 and n > k), (1, n - 1) if n > 2 else 1])

    def _profile(self):
        bounded = ["Squash(", "RadialSigmoid(", "Radial(torch.tanh, "]
        return self.writer.rng.choice([*bounded, "ShiftedReLU(", "ShiftedReLU(0.1, ", "Radial(torch.log1p, "])

    def _activation(self):
        return self.writer.rng.choice(["squash", "shifted_relu", "sigmoid"])

    def _option(self):
        return Options(self.writer)

    # other values

    def _u(self):
        """Another value of the same shape: one that is there, or a new one made from one that is there."""
        w, v = self.writer, self.value
        found = [u for u in w.variables if u is not v and u.kind == v.kind and w.shape(u) == w.shape(v)]
        if found and w.coin(0.7):
            u = w.rng.choice(found)
        else:
            near = w.rng.choice([u for u in w.variables if u.kind == v.kind and w.others(u) == w.others(v)])
            name, layer = w.name("v"), w.mixing(v, w.shape(near)[axis(near)], self["n"])
            u = w.add(
                "conv_1x1" if v.kind in CONVOLVED else "linear", near, [f"{name} = {layer}({near})"], name, v.kind
            )
        self.reads.append(u)
        return u

    def _near(self):
        """A value that differs in its features at most."""
        w, v = self.writer, self.value
        u = w.rng.choice([u for u in w.variables if u.kind == v.kind and w.others(u) == w.others(v)])
        self.reads.append(u)
        return u

    def _axes(self):
        """The axes of the value but its features, as an input has them."""
        w = self.writer
        rows, *positions = w.others(self.value)
        if rows != w.sizes["rows"]:
            raise Impossible
        return ("rows", *("positions" if n == w.sizes["positions"] else n for n in positions))

    def _ids(self):
        return self.writer.input("i", self["axes"], "tokens")

    def _mask(self):
        return self.writer.input("b", self["axes"], "bool")

    def _more(self):
        return self.writer.input("y", (*self["axes"], 2))

    # parts

    def _new(self):
        return Parts(self)

    def _rho(self):
        profile = "StepReLU(" if self.writer.coin(0.1) else self["profile"]
        return self.writer.part(f"radnet.{profile}dim={axis(self.value)})")

    def _up(self):
        return self.writer.mixing(self.value, self["n"], self["k"])

    def _down(self):
        return self.writer.mixing(self.value, self["k"], self["n"])

    def _square(self):
        return self.writer.mixing(self.value, self["n"], self["n"])

    def _wide(self):
        return self.writer.mixing(self.value, self["k"], self["k"])

    def _tied(self):
        w = self.writer
        a, b = (w.part(f"nn.Linear({self['n']}, {self['k']}, bias={w.coin()})") for _ in range(2))
        w.part(f"{a}.weight", f"{b.removeprefix('self.')}.weight")
        return a, b


class Parts:
    """New parts by the names of the table of layers; the same name is the same part."""

    def __init__(self, fields):
        self._fields = fields

    def __getattr__(self, name):
        fields = self._fields
        if name == "Seven":
            part = fields.writer.mixing(fields.value, fields["n"], 7)
        else:
            part = fields.writer.part(LAYERS[name].format_map(fields))
        setattr(self, name, part)
        return part


class Options:
    """Optional arguments of forward."""

    def __init__(self, writer):
        self._writer = writer

    def __getattr__(self, name):
        w = self._writer
        if name not in w.options:
            w.options.append(name)
            declared = OPTIONS[name][0]
            exec(f"{name} = {declared.partition('=')[2]}", w.scope)  # noqa: S102
        return name


def option_value(name, dtype):
    """Another value than the default of an optional argument."""
    return eval(OPTIONS[name][1], {"torch": torch, "dtype": dtype})  # noqa: S307


@contextlib.contextmanager
def one_thread():
    """Programs are small: more threads than one only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
