"""Right and deliberately wrong small models, and how far apart two models are as functions of float64.

Nothing here asks the library whether two models are equal: gaps and drifts are found by code of its own.
"""

import copy
import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import radnet
from program_oracle import by_rows, run, watching
from programs import program
from random_models import random_model

#: operations that are another function in another dtype, or that no small model keeps
DEPENDS_ON_DTYPE = {"to_float", "rms_norm", "one_hot"}


@dataclass(frozen=True)
class Pair:
    """A model in the dtype that ships, its small form in float64, and inputs."""

    original: nn.Module
    small: nn.Module
    inputs: tuple[torch.Tensor, ...]
    more: tuple[torch.Tensor, ...]  # inputs that no judge is given


def random_pair(seed, dtype):
    """A model in a dtype, and what compress makes of it in float64."""
    if seed % 3:
        model, rng = random_model(seed)
        inputs, more = (model.inputs(16, rng),), (model.inputs(16, rng),)
    else:
        p = next(p for p in map(program, range(seed, seed + 10_000)) if _fits(p))
        model, rng = p.build(), torch.Generator().manual_seed(seed)
        inputs, more = p.draw(rng), p.draw(rng)
    original = model.to(dtype)
    inputs, more = (tuple(x.to(dtype) if x.is_floating_point() else x for x in xs) for xs in (inputs, more))
    exact = copy.deepcopy(original).double()
    return Pair(original, radnet.compress(exact, in_float64(inputs)).network, inputs, more)


def _fits(p):
    return not (p.single or p.options or p.operations & DEPENDS_ON_DTYPE or "kept" in p.operations)


def in_float64(inputs):
    return tuple(x.double() if x.is_floating_point() else x for x in inputs)


# --- damage


def _bias_moved(model, rng):
    b = _entry([p for p in _biases(model) if bool(p.any())], rng)
    i = rng.choice(b.nonzero().flatten().tolist())
    b[i] += 1e-4 * b[i].abs()


def _constant_lost(model, rng):
    _entry([p for p in _biases(model) if bool(p.any())], rng).zero_()


def _columns_swapped(model, rng):
    W = _entry([p for p in _weights(model) if p.shape[1] > 1], rng)
    i, j = rng.sample(range(W.shape[1]), 2)
    W[:, [i, j]] = W[:, [j, i]]


def _head_moved(model, rng):
    W = _weights(model)[-1]
    i, j = rng.randrange(W.shape[0]), rng.randrange(W.shape[1])
    W[i, j] *= 1 + 1e-3


def _sign_flipped(model, rng):
    W = _entry(_weights(model), rng)
    W[rng.randrange(W.shape[0]), rng.randrange(W.shape[1])] *= -1


def _other_eps(model, rng):
    norm = _entry([m for m in model.modules() if isinstance(getattr(m, "eps", None), float) and _is_norm(m)], rng)
    norm.eps = 2 * norm.eps + 1e-3


def _shift_moved(model, rng):
    shifts = [m.shift for m in model.modules() if isinstance(m, radnet.RadialActivation) and m.shift is not None]
    _entry(shifts, rng).add_(1e-3)


DAMAGES = {
    "a bias moved by 1e-4 of its size": _bias_moved,
    "a constant lost": _constant_lost,
    "two columns swapped": _columns_swapped,
    "a weight of the head moved by a thousandth": _head_moved,
    "a sign flipped": _sign_flipped,
    "another eps": _other_eps,
    "a shift moved": _shift_moved,
}


class Unfit(Exception):
    """There is nothing in this model that could be damaged so."""


def _is_norm(m):
    # torch's batch norm in eval mode has an eps as well; a norm of another library's has one of its own
    return "Norm" in type(m).__name__ or isinstance(m, radnet.RadialActivation)


def _biases(model):
    return [m.bias for m in model.modules() if isinstance(getattr(m, "bias", None), nn.Parameter)]


def _weights(model):
    return [p for p in model.parameters() if p.ndim >= 2 and p.numel()]


def _entry(choices: list[Any], rng):
    if not choices:
        raise Unfit
    return rng.choice(choices)


def damaged(small, seed):
    """A wrong small model, and what is wrong with it."""
    rng = random.Random(seed)
    wrong = copy.deepcopy(small)
    for name in rng.sample(list(DAMAGES), len(DAMAGES)):
        try:
            with torch.no_grad():
                DAMAGES[name](wrong, rng)
        except (Unfit, IndexError):
            continue
        return wrong, name
    raise RuntimeError(f"nothing can be damaged in {small}")


# --- gaps and drifts


def gaps(a, b, inputs, near):
    """For each output the rows' gaps and scales in float64; rows near a jump of the original have gap 0."""
    wide = in_float64(inputs)
    first, second = copy.deepcopy(a).double(), copy.deepcopy(b).double()
    rows = len(wide[0])
    with watching(first, rows, near) as unsure:
        f = run(first, wide, {})
    g = run(second, wide, {})
    found = {}
    for name, x in f.items():
        F, G = by_rows(x, rows), by_rows(g[name], rows)
        sure = ~unsure if len(F) == rows else (~unsure).all().reshape(1)
        same = (F == G) | (F.isnan() & G.isnan())
        gap = torch.where(same | ~sure.unsqueeze(1), 0.0, (F - G).abs()).nan_to_num(nan=math.inf)
        scale = torch.where(F.isfinite(), F, 0.0).abs()
        found[name] = (gap.amax(1), scale.amax(1)) if F.shape[1] else (torch.zeros(len(F)), torch.zeros(len(F)))
    return found


def agreement(a, b, inputs):
    """The largest gap of a row as a share of its scale."""
    worst = 0.0
    for gap, scale in gaps(a, b, inputs, 1e-9).values():
        size = torch.where(scale > 0, scale, scale.median().clamp(min=1e-300))
        worst = max(worst, float((gap / size).max()))
    return worst


def drift(model, inputs, draws, seed):
    """For each output, how far its rows move when weights and inputs move by one ulp of their dtype; in float64."""
    rng = torch.Generator().manual_seed(seed)

    def moved(x):
        x = x.detach()
        if not x.is_floating_point():
            return x
        up = torch.rand(x.shape, generator=rng) < 0.5
        return torch.nextafter(x, torch.where(up, torch.inf, -torch.inf).to(x.dtype)).double()

    rows = len(inputs[0])
    f = run(copy.deepcopy(model).double(), in_float64(inputs), {})
    found = {name: torch.zeros(len(by_rows(x, rows)), dtype=torch.float64) for name, x in f.items()}
    for _ in range(draws):
        off = copy.deepcopy(model)
        steps = {name: moved(p) for name, p in off.named_parameters()}
        off = off.double()
        with torch.no_grad():
            for name, p in off.named_parameters():
                p.copy_(steps[name])
        for name, x in run(off, tuple(moved(x) for x in inputs), {}).items():
            change = (by_rows(x, rows) - by_rows(f[name], rows)).abs().nan_to_num(nan=0.0)
            if change.shape[1]:
                found[name] = torch.maximum(found[name], change.amax(1))
    return found


def beyond_rounding(a, b, inputs, near, factor):
    """Whether some row of some output differs by more than `factor` times D, the drift of the original."""
    D = drift(a, inputs, 16, seed=1)
    tiny = 64 * torch.finfo(torch.float64).eps
    return any(
        bool((gap > torch.maximum(factor * D[name], tiny * scale)).any())
        for name, (gap, scale) in gaps(a, b, inputs, near).items()
    )
