"""Random programs: modules whose forward is a random sequence of statements.

A program is data (`program_writer.Program`): inputs, parts, statements, a result. Its source is real Python, so that a
tracer meets genuine code, and the same seed gives the same program with the same weights. Every statement is made by a
named operation (`program_operations`), and each program is built around pairs of them, so that all pairs occur.
`program_oracle.check` says what `compress` makes of one.

    python tests/helpers/programs.py 7               source and outcome of program 7
    python tests/helpers/programs.py --run 0 300     outcomes of many

Kinds of values, by their axes: "rows" (rows, n), "positions" (rows, positions, n), "channels" (rows, n, positions),
"image" (rows, n, height, width), and "tokens" (rows, positions), which are integers.
"""

import argparse
import collections
import contextlib
import random
import sys
import textwrap

import torch

from program_operations import BY_EXPORT, LAST, OPERATIONS, ORDINARY, PAIRS, PAIRS_BY_EXPORT, Impossible, between
from program_oracle import check
from program_writer import Program, Writer, one_thread

#: which families of inputs a value of a kind can come from
FAMILIES = {
    "rows": ("rows", "rows", "positions", "tokens", "image"),
    "positions": ("positions", "positions", "tokens", "image"),
    "channels": ("positions", "tokens", "image"),
    "image": ("image",),
    "tokens": ("tokens",),
}
#: the first step from a kind towards another one
TOWARDS = {
    ("tokens", "positions"): ["embedding"],
    ("tokens", "rows"): ["embedding"],
    ("tokens", "channels"): ["embedding"],
    ("positions", "rows"): ["mean_over_positions", "position_taken", "flatten", "sum_over_positions"],
    ("positions", "channels"): ["transposed"],
    ("channels", "rows"): ["mean_over_positions", "flatten"],
    ("channels", "positions"): ["transposed"],
    ("image", "rows"): ["mean_over_positions", "flatten"],
    ("image", "positions"): ["patches"],
    ("image", "channels"): ["last_axis_taken"],
    ("rows", "positions"): ["unsqueezed"],
    ("rows", "channels"): ["unsqueezed"],
}
#: what most models are made of
CORE = ("linear", "linear_without_bias", "conv", "conv_1x1", "radial", "radial_shift", "residual", "add", "embedding")


def planned(seed, by_export=False):
    """The three pairs that a program is built around."""
    everything = PAIRS_BY_EXPORT if by_export else PAIRS
    step = 7919  # a prime that divides neither length: neighbours have nothing in common, and in the end all occur
    return [everything[(3 * seed + i) * step % len(everything)] for i in range(3)]


def program(seed, by_export=False):
    """The program with this number."""
    for attempt in range(50):
        try:
            return _written(random.Random(f"{seed} {by_export} {attempt}"), seed, planned(seed, by_export), by_export)
        except Impossible:
            continue
    raise RuntimeError(f"no program {seed} (by_export={by_export}) around {planned(seed, by_export)}")


def dtype_of(p):
    """The dtype in which the tests look at a program."""
    return torch.float32 if p.single else (torch.float32, torch.bfloat16, torch.float64)[p.seed % 3]


def _written(rng, seed, pairs, by_export):
    kinds = [rng.choice([k for k, to in OPERATIONS[a].kinds.items() if to in between(a, b)]) for a, b in pairs]
    common = [family for family in FAMILIES[kinds[0]] if all(family in FAMILIES[kind] for kind in kinds)]
    lengths = {"rows": (6, 16), "positions": (2, 5), "height": (4, 6), "width": (4, 6)}
    w = Writer(rng, rng.random() < 0.08, {axis: rng.randint(*limits) for axis, limits in lengths.items()})
    last = w.begin(rng.choice(common or FAMILIES[kinds[0]]))
    last = _first(w, last, seed, by_export) if rng.random() < 0.7 else last
    for (a, b), kind in zip(pairs, kinds, strict=True):
        last = _brought(w, _fill(w, last, by_export), kind)
        last = w.apply(b, w.apply(a, last))
        if rng.random() < 0.6:  # something follows that lets what came before shrink
            last = _layer(w, last, 1.0)
    last = _fill(w, last, by_export)
    result = _result(w, last)
    if not set(pairs) <= {(a, s.operation) for s in w.statements for a in s.reads}:
        raise Impossible
    parts = (w.sizes.items(), w.inputs, w.options, w.parts, w.statements)
    return Program(seed, *(tuple(part) for part in parts), result, w.single)


def _first(w, v, seed, by_export):
    """One operation on what a layer makes of the input, which is as large as the input and could do with less room."""
    names = BY_EXPORT if by_export else ORDINARY
    name = names[seed % len(names)]
    v = _brought(w, _layer(w, v, 0.0), w.rng.choice(list(OPERATIONS[name].kinds)))
    return _layer(w, w.apply(name, v), 0.8)


def _layer(w, v, p):
    """A layer, and with a probability a radial activation."""
    layer = "embedding" if v.kind == "tokens" else "linear" if v.kind in LAST else "conv_1x1"
    v = w.apply(layer, v)
    return w.apply("radial", v) if w.coin(p) else v


def _fill(w, last, by_export):
    """Now and then another statement."""
    if w.coin(0.4):
        return last
    allowed = CORE if w.coin(0.6) else [name for name, o in OPERATIONS.items() if by_export or not o.by_export]
    v = last if w.coin(0.8) else w.rng.choice(w.variables)
    names = [name for name in allowed if v.kind in OPERATIONS[name].kinds]
    with contextlib.suppress(Impossible):
        return w.apply(w.rng.choices(names, [OPERATIONS[name].weight for name in names])[0], v)
    return last


def _brought(w, last, kind):
    """A value of a kind: the last one, another one, or what leads there."""
    if last.kind == kind:
        return last
    there = [v for v in w.variables if v.kind == kind]
    if there and (w.coin(0.3) or (last.kind, kind) not in TOWARDS):
        return w.rng.choice(there)
    if (last.kind, kind) not in TOWARDS:  # nothing leads there: another input
        last = w.begin(w.rng.choice(FAMILIES[kind]))
    while last.kind != kind:
        last = w.apply(w.rng.choice(TOWARDS[last.kind, kind]), last)
    return last


def _result(w, last):
    """What is returned: mostly what a head makes of the last value, and of everything that nothing has read yet."""

    def head(v):
        if v.kind == "tokens" or w.coin(0.1):
            return str(v)
        n = w.shape(v)[-1 if v.kind in LAST else 1]
        return f"{w.mixing(v, n, w.rng.randint(1, 4))}({v})"

    wanted = [last, *(v for v in w.variables if v.name in w.unread and v is not last)]
    if w.coin(0.15):
        wanted.append(w.rng.choice(w.variables))
    first, *others = (head(v) for v in wanted)
    if not others:
        return w.rng.choice([first, first, first, f"({first},)", f"{{'only': {first}}}"])
    rest = ", ".join(others)
    named = ", ".join(f"'{chr(ord('b') + i)}': {text}" for i, text in enumerate(others))
    forms = [f"({first}, {rest})", f"{{'a': {first}, {named}}}", f"[{first}, ({rest},)]"]
    return w.rng.choice([*forms, f"{{'a': ({first},), 'b': [{rest}]}}"])


def main(arguments):
    parser = argparse.ArgumentParser(description="What compress makes of random programs.")
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--run", type=int, nargs=2, metavar=("FROM", "TO"), help="many programs, and a summary")
    parser.add_argument("--dtype", help="float32, bfloat16 or float64; by default what the tests take")
    parser.add_argument("--export", action="store_true", help="programs that torch.fx cannot follow")
    parser.add_argument("--rewrite", action="store_true", help="compress(..., rewrite=True)")
    chosen = parser.parse_args(arguments)
    seen = collections.Counter()
    for seed in range(*chosen.run) if chosen.run else [chosen.seed]:
        p = program(seed, chosen.export)
        with one_thread():
            found = check(p, getattr(torch, chosen.dtype) if chosen.dtype else dtype_of(p), chosen.rewrite)
        seen[found.verdict] += 1
        seen["smaller"] += found.verdict == "lossless" and found.after < found.before
        if not chosen.run:
            sys.stdout.write(f"{p.source}\n{found}\n")
        elif found.verdict != "lossless":
            sys.stdout.write(textwrap.shorten(str(found), 300) + "\n")
    sys.stdout.write(f"{dict(seen)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
