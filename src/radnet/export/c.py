"""A network as one C99 header: weights and forward pass, no heap, no library but libm.

Numbers are written in hexadecimal, so they are the network's to the last bit. Sums, norms and profiles are computed in
double, which no float can drive out of range; in a network of doubles, vectors whose squares leave the range
are scaled.
"""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from .. import __version__
from ..activations import (
    Identity,
    RadialActivation,
    RadialGaussian,
    RadialSigmoid,
    RadialSin,
    RadialSwish,
    RadialTanh,
    ShiftedReLU,
    Squash,
    StepReLU,
)
from ..checks import check_positive
from ..compression.replacements import RMSRescaling, own_eps
from ..errors import InvalidType, InvalidValue
from ..writing import write_atomically
from .plan import AddKept, Affine, Keep, Plan, Rescaling, plan_of

#: bytes of weights that are written unless somebody asks for more: compilers take their time for them
MOST_BYTES = 2**22
_TYPES = {torch.float32: "float", torch.float64: "double"}
#: names that C, its headers or the functions themselves have already
_TAKEN = re.compile(
    r"auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|main|register|"
    r"restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|"
    r"\w|kept|rows|[A-Z][A-Z0-9_]*|\w+_t|"
    r"(a?(cos|sin|tan)h?|atan2|exp|exp2|expm1|frexp|ilogb|ldexp|log|log10|log1p|log2|logb|modf|scalbl?n|cbrt|fabs|hypot|pow|"
    r"sqrt|erfc?|[lt]gamma|ceil|floor|nearbyint|l?l?rint|l?l?round|trunc|fmod|remainder|remquo|copysign|nan|nextafter|"
    r"nexttoward|fdim|fmax|fmin|fma|finite|drem|significand|scalb|lgamma_r|exp10|pow10)[fl]?|(is|fp|to)\w+|signbit|gamma|"
    r"j[01n]|y[01n]|signgam|asm|typeof|linux|unix|i386|"
    # what is in stdio.h, stdlib.h, string.h and time.h, which stand beside this header more often than not
    r"v?[fs]?n?(printf|scanf)|(put|get)(s|c|char|env)|f(open|close|read|write|flush|seek|tell|puts?c?|gets?c?|eof|error|ree)|"
    r"remove|rename|tmp(file|nam)|rewind|perror|ungetc|set(v?buf|env)|std(in|out|err)|errno|[cm]alloc|realloc|free|abort|"
    r"_?exit|at(exit|of|oi|oll?)|l?l?(abs|div)|s?rand|random|qsort|bsearch|system|(mem|str|wcs|mb)\w+|r?index|clock|time|"
    r"difftime|mktime|[cg]m?time|localtime|assert|signal|raise|setjmp|longjmp|read|write|open|close|link|pipe|sleep",
    re.ASCII,
)


def export_c(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    name: str = "network",
    dtype: torch.dtype | None = None,
    max_bytes: int = MOST_BYTES,
) -> int:
    """Write a network as a C99 header that needs nothing but libm.

    Parameters
    ----------
    model : nn.Module
        A `RadNet`, an ``nn.Sequential`` of linear layers and radial activations (`BlockRadialMLP` is one), or a
        `ResidualRadialMLP`; compressed or not. What it does in evaluation mode is written.
    path : str or path
        Written at once or not at all.
    name : str
        Of the C function ``void name(const float *x, float *y)``, and what all other names begin with.
    dtype : torch.dtype, optional
        float32 or float64; by default that of the parameters.
    max_bytes : int
        A network with more bytes of weights is refused.

    Returns
    -------
    int
        Bytes of weights.

    Raises
    ------
    InvalidType
        If it has a layer that has no such form, or an activation with a profile of its own; the error names it.
    InvalidValue
        If the name cannot be used in C, the dtype is another, or the weights take more than ``max_bytes``.

    Examples
    --------
    >>> import tempfile, radnet
    >>> from radnet.export import export_c
    >>> small = radnet.compress(radnet.RadNet((2, 64, 64, 1), "squash")).network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_c(small, os.path.join(folder, "network.h"))
    120
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w{0,40}", name, re.ASCII) or _TAKEN.fullmatch(name):
        raise InvalidValue(
            f"name {name!r}: expected a name for a function of C that is free: more than one letter, and none of C's"
        )
    most = check_positive("max_bytes", max_bytes)
    plan = plan_of(model, dtype)
    size = plan.parameters * torch.finfo(plan.dtype).bits // 8
    if size > most:
        raise InvalidValue(f"{type(model).__name__}: its weights take {size:,} bytes, above max_bytes={most:,}")
    write_atomically(path, _Header(plan, name).text().encode())
    return size


class _Header:
    """The text of a header."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.name, self.type = plan, name, _TYPES[plan.dtype]
        self.rescalings: dict[str, str] = {}  # the functions for activations, as text, and their names

    def text(self) -> str:
        """All of it."""
        statements = list(self._forward())
        counter = ["int i;"] if any("(i = 0;" in line for line in statements) else []
        forward = "\n".join(f"    {line}" for line in (*self._buffers(), *counter, *statements))
        guard = f"RADNET_{self.name.upper()}_H"
        parts = [
            self._comment(),
            f"#ifndef {guard}\n#define {guard}\n\n#include <float.h>\n#include <math.h>\n#include <stddef.h>",
            f"enum {{ {self.name}_inputs = {self.plan.widths[0]}, {self.name}_outputs = {self.plan.widths[-1]} }};",
            "\n".join(self._arrays()),
            self._filled(_AFFINE),
            *(body.replace("RHO", name) for body, name in self.rescalings.items()),
            f"static inline void {self.name}(const {self.type} *x, {self.type} *y)\n{{\n{forward}\n}}",
            self._filled(_ROWS),
            "#endif",
        ]
        return "\n\n".join(parts) + "\n"

    def _filled(self, text: str, **more: str) -> str:
        words = {"NAME": self.name, "TYPE": self.type, **more}
        for word in ("SCALED", "PROFILE"):  # which have words of the others in them
            text = text.replace(word, words.pop(word, word))
        return re.sub("|".join(words), lambda found: words[found[0]], text)

    def _comment(self) -> str:
        n, m = self.plan.widths[0], self.plan.widths[-1]
        affine = [step.W.shape[0] for step in self.plan.steps if isinstance(step, Affine)]
        widths = textwrap.shorten(", ".join(map(str, (n, *affine))), 80, placeholder=" ...")
        return (
            f"/* A radial network of widths ({widths}), {self.plan.parameters:,} numbers, by radnet {__version__}.\n\n"
            f"       {self.type} x[{n}], y[{m}];\n"
            f"       {self.name}(x, y);             one row\n"
            f"       {self.name}_rows(x, y, rows);  many, one after the other\n\n"
            "   x and y must not overlap. Nothing is kept between calls, so threads may share it. Link with -lm. */"
        )

    def _arrays(self) -> Iterator[str]:
        affine = [step for step in self.plan.steps if isinstance(step, Affine)]
        for k, step in enumerate(affine, start=1):
            for letter, x in (("W", step.W), ("b", step.b)):
                if x is not None:
                    yield self._array(self.type, f"{letter}{k}", x.flatten().tolist())
        for k, rescaling in enumerate((step for step in self.plan.steps if isinstance(step, Rescaling)), start=1):
            for letter, numbers in _varying(rescaling).items():
                yield self._array("double", f"{letter}{k}", numbers)

    def _array(self, kind: str, name: str, numbers: Sequence[float]) -> str:
        suffix = "f" if kind == "float" else ""
        text = ", ".join(_number(value, suffix) for value in numbers)
        body = textwrap.indent(textwrap.fill(text, 116, break_on_hyphens=False), "    ")
        return f"static const {kind} {self.name}_{name}[{len(numbers)}] = {{\n{body}\n}};"

    def _buffers(self) -> Iterator[str]:
        """Where x is between layers, and where it is kept."""
        widest, layers = max(self.plan.widths[1:]), sum(isinstance(step, Affine) for step in self.plan.steps)
        for name, number in (("v", min(layers - 1, 2)), ("kept", _depth(self.plan))):
            if number:
                yield f"{self.type} {name}[{number}][{widest}];"

    def _forward(self) -> Iterator[str]:
        """The statements of the forward pass: x goes to and fro between two buffers, and in the end to y."""
        steps, widths = self.plan.steps, self.plan.widths
        last = max(k for k, step in enumerate(steps) if isinstance(step, Affine))
        here, layer, depth = "x", 0, 0
        for k, step in enumerate(steps):
            n = widths[k]
            if isinstance(step, Affine):
                layer += 1
                there = "y" if k == last else f"v[{(layer - 1) % 2}]"
                bias = "NULL" if step.b is None else f"{self.name}_b{layer}"
                yield f"{self.name}_affine({self.name}_W{layer}, {bias}, {here}, {there}, {n}, {widths[k + 1]});"
                here = there
            elif isinstance(step, Rescaling):
                yield from self._rescale(step, here)
            elif isinstance(step, Keep):
                yield f"for (i = 0; i < {n}; i++) kept[{depth}][i] = {here}[i];"
                depth += 1
            else:
                depth -= 1
                yield f"for (i = 0; i < {n}; i++) {here}[i] += kept[{depth}][i];"

    def _rescale(self, step: Rescaling, here: str) -> Iterator[str]:
        rho, first = self._rescaling(step), step.sizes[0]
        arrays = [f"{self.name}_{letter}{self._which(step)}" for letter in _varying(step)]
        if len(step.sizes) == 1:
            yield f"{rho}({here}, {first});"
        elif len(set(step.sizes)) == 1:
            more = "".join(f", {array}[i]" for array in arrays)
            yield f"for (i = 0; i < {len(step.sizes)}; i++) {rho}({here} + i * {first}, {first}{more});"
        else:
            for k, size in enumerate(step.sizes):
                more = "".join(f", {array}[{k}]" for array in arrays)
                yield f"{rho}({here} + {sum(step.sizes[:k])}, {size}{more});"

    def _which(self, step: Rescaling) -> int:
        """The number of an activation among all."""
        return 1 + [other for other in self.plan.steps if isinstance(other, Rescaling)].index(step)

    def _rescaling(self, step: Rescaling) -> str:
        """The name of the function for an activation; those that are alike share one.

        What differs from block to block is an argument.
        """
        written = _PROFILES.get(type(step.rho))
        if written is None or "profile" in vars(step.rho):
            known = ", ".join(cls.__name__ for cls in _PROFILES)
            raise InvalidType(
                f"{step.where}: a {type(step.rho).__name__} has a profile that is Python; in C there are {known}"
            )
        inside = _SCALED if self.type == "double" else ""
        varying = _varying(step)
        t, floor, s = step.shifts[0], step.floors[0], step.scales[0]
        name = f"{self.name}_rho{len(self.rescalings) + 1}"
        words = {
            "SHIFT": " - t" if "t" in varying else "" if t == 0 else f" - {_number(t)}",
            "FLOOR": "l" if "l" in varying else _number(floor) if floor else "0",
            "TIMES": "c * " if "c" in varying else "" if s == 1 else f"{_number(s)} * ",
            "MORE": "".join(f", double {letter}" for letter in varying),
            "PROFILE": written(step.rho, self.plan.dtype),
        }
        body = self._filled(_RESCALE, SCALED=inside, **words)
        return self.rescalings.setdefault(body, name)


def _varying(step: Rescaling) -> dict[str, Sequence[float]]:
    """What differs from block to block: shifts t, floors l, scales c."""
    each = {"t": step.shifts, "l": step.floors, "c": step.scales}
    return {letter: numbers for letter, numbers in each.items() if len(set(numbers)) > 1}


def _depth(plan: Plan) -> int:
    """How many vectors are remembered at a time."""
    depth = most = 0
    for step in plan.steps:
        depth += isinstance(step, Keep)
        most = max(most, depth)
        depth -= isinstance(step, AddKept)
    return most


def _number(value: float, suffix: str = "") -> str:
    """A number of C, to the last bit.

    >>> _number(0.1), _number(-2.0, "f")
    ('0x1.999999999999ap-4', '-0x1p+1f')
    """
    return re.sub(r"\.?0*p", "p", float(value).hex(), count=1) + suffix


def _rms(rho: RadialActivation, dtype: torch.dtype) -> str:
    if not isinstance(rho, RMSRescaling):
        raise InvalidType(f"{type(rho).__name__}: is no RMSRescaling")
    root = math.sqrt(rho.n)
    return f"{_number(root)} * x / hypot(x, {_number(root * math.sqrt(own_eps(rho.eps, dtype)))})"


def _shifted(rho: RadialActivation, dtype: torch.dtype) -> str:
    b = _number(rho.b) if isinstance(rho, ShiftedReLU) else "0"
    return f"x >= {b} ? x - {b} : 0"


#: h(x) in C, where x is the norm less the shift, as a double
_PROFILES: dict[type[RadialActivation], Callable[[RadialActivation, torch.dtype], str]] = {
    Identity: lambda rho, dtype: "x",
    StepReLU: lambda rho, dtype: "x >= 1 ? x : 0",
    Squash: lambda rho, dtype: "fabs(x) < 1e100 ? x * x / (x * x + 1) : 1",
    ShiftedReLU: _shifted,
    RadialSigmoid: lambda rho, dtype: "1 / (1 + exp(-x))",
    RMSRescaling: _rms,
    RadialSin: lambda rho, dtype: "sin(x)",
    RadialGaussian: lambda rho, dtype: "fabs(x) < 64 ? x * exp(-0.5 * x * x) : 0",
    RadialTanh: lambda rho, dtype: "tanh(x)",
    RadialSwish: lambda rho, dtype: "x / (1 + exp(-x))",
}

_AFFINE = """\
/* y = W x + b for n entries of x and m of y; four sums at a time, which processors do side by side, in double */
static inline void NAME_affine(const TYPE *W, const TYPE *b, const TYPE *x, TYPE *y, int n, int m)
{
    int i, j;
    for (i = 0; i < m; i++, W += n) {
        double s0 = b ? b[i] : 0, s1 = 0, s2 = 0, s3 = 0;
        for (j = 0; j + 4 <= n; j += 4) {
            s0 += (double)W[j] * x[j];
            s1 += (double)W[j + 1] * x[j + 1];
            s2 += (double)W[j + 2] * x[j + 2];
            s3 += (double)W[j + 3] * x[j + 3];
        }
        for (; j < n; j++)
            s0 += (double)W[j] * x[j];
        y[i] = (s0 + s1) + (s2 + s3);
    }
}"""

_RESCALE = """\
/* v <- h(|v| - t) v/|v|, and 0 at 0 */
static inline void RHO(TYPE *v, int nMORE)
{
    double s = 0, r, x, f;
    int i;
    for (i = 0; i < n; i++)
        s += (double)v[i] * v[i];
SCALED    r = sqrt(s);
    if (r <= FLOOR) {
        for (i = 0; i < n; i++)
            v[i] = 0;
        return;
    }
    x = rSHIFT;
    f = TIMES(PROFILE) / r;
    for (i = 0; i < n; i++)
        v[i] = (TYPE)(f * v[i]);
}"""

_SCALED = """\
    if (!(s > 1e-280 && s < 1e280)) { /* the squares, or nearly, are out of range */
        double m = 0, q = 0;
        int e;
        for (i = 0; i < n; i++)
            m = fabs(v[i]) > m ? fabs(v[i]) : m;
        if (m > 0 && m <= DBL_MAX && !(s != s)) {
            frexp(m, &e);
            for (i = 0; i < n; i++)
                v[i] = ldexp(v[i], -e), q += v[i] * v[i];
            q = sqrt(q);
            r = ldexp(q, e) > DBL_MAX ? DBL_MAX : ldexp(q, e);
            x = rSHIFT;
            f = r <= FLOOR ? 0 : TIMES(PROFILE);
            for (i = 0; i < n; i++)
                v[i] = f * (v[i] / q);
            return;
        }
    }
"""

_ROWS = """\
static inline void NAME_rows(const TYPE *x, TYPE *y, size_t rows)
{
    for (; rows; rows--, x += NAME_inputs, y += NAME_outputs)
        NAME(x, y);
}"""
