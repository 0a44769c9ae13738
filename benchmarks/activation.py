"""The activation, forward and backward, beside the obvious alternatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from timing import finish, interleave, show
from torch import Tensor

import radnet
from radnet import profiles
from radnet.rescaling import composed


def autograd_composition(v: Tensor) -> Tensor:
    """What one writes down first; NaN gradients at v = 0 included."""
    r: Tensor = v.norm(dim=-1, keepdim=True)
    return torch.sigmoid(r) * v / r


def step(f: Callable[[Tensor], Tensor], v: Tensor, gy: Tensor) -> None:
    torch.autograd.grad(f(v), v, gy)


def main() -> None:
    results = {}
    for rows, n, rounds in ((4096, 256, 60), (121, 6, 400)):
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(rows, n, generator=generator, requires_grad=True)
        gy = torch.randn(rows, n, generator=generator)
        rho = radnet.RadialSigmoid()
        forms: dict[str, Callable[[Tensor], Tensor]] = {
            "radnet": rho,
            "radnet, compiled": torch.compile(rho),
            "radnet, composed form": lambda v: composed(v, profiles.sigmoid, profiles.sigmoid_slope, None, 1)[0],
            "autograd composition": autograd_composition,
            "F.relu": F.relu,
            "F.layer_norm": partial(F.layer_norm, normalized_shape=(n,)),
            "F.rms_norm": partial(F.rms_norm, normalized_shape=(n,)),
        }

        times = interleave({name: partial(step, f, v, gy) for name, f in forms.items()}, rounds, warmup=5)
        show(f"radial sigmoid, forward and backward, {rows} x {n}, float32", times, "radnet")
        results[f"{rows}x{n}"] = times
    finish({"activation": results})


if __name__ == "__main__":
    main()
