"""10,000 hidden layers of width 4 on 10,000 points: an nn.Sequential, the stacked network, the closed form."""

from __future__ import annotations

import torch
from timing import finish, interleave, show
from torch import Tensor, nn

import radnet

SLOPE = 0.8578  # of exp(-r^2), rounded up


def gaussian(x: Tensor) -> Tensor:
    return torch.exp(-x.square().sum(1))


class Step(nn.Module):
    """Step-ReLU as one would write it by hand."""

    def forward(self, v: Tensor) -> Tensor:
        """v, or 0 if it is shorter than 1."""
        keep: Tensor = torch.linalg.vector_norm(v, dim=-1, keepdim=True) >= 1
        return v * keep


def main() -> None:
    a = radnet.approximate(gaussian, radnet.Box([-3, -3], [3, 3]), 0.032, lipschitz=SLOPE, width="n+m+1")
    plain = a.network.to_radnet()
    sequential = nn.Sequential(*(m for layer in plain.layers for m in (layer, Step())))[:-1]
    modules = nn.Sequential(*(m for pair in zip(plain.layers, plain.rescalings, strict=True) for m in pair))
    x = 6 * torch.rand(10_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 3
    a.evaluate(x[:1])  # the tree is built on first use
    with torch.no_grad():
        worst = {
            "stacked": float((a.network(x) - sequential(x)).abs().max()),
            "closed form": float((a.evaluate(x) - sequential(x)).abs().max()),
        }
        times = interleave(
            {
                "nn.Sequential": lambda: sequential(x),
                "the same, radnet.StepReLU": lambda: modules(x),
                "stacked network": lambda: a.network(x),
                "closed form": lambda: a.evaluate(x),
            },
            rounds=5,
            warmup=1,
        )
    depth = a.certificate.hidden_layers
    show(f"{depth} hidden layers of width {a.network.widths[1]}, 10,000 points, float64", times, "nn.Sequential")
    base = times["nn.Sequential"]["median_ms"]
    ratios = {name: base / t["median_ms"] for name, t in times.items()}
    for name in ("stacked network", "closed form"):
        print(f"  {name}: {ratios[name]:.1f} times faster than nn.Sequential")
    print(f"  largest differences of the outputs: {worst}")
    finish({"hidden_layers": depth, "times": times, "times_faster": ratios, "differences": worst})


if __name__ == "__main__":
    main()
