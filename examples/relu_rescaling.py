"""For comparison: the symmetry of ReLU networks is rescaling by positive numbers, not rotation.

A pointwise ReLU commutes with positive diagonal matrices, so ``(g_i W_i g_{i-1}^-1, g_i b_i)`` is the same function for
positive diagonal g_i. A rotation in place of g_i changes it. For a radial network it is the other way round.
"""

from __future__ import annotations

import copy
import itertools

import torch
from torch import Tensor, nn

import radnet


def relu_network(widths: tuple[int, ...], generator: torch.Generator) -> nn.Sequential:
    """A plain ReLU multilayer perceptron in float64."""
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(widths):
        layer = nn.Linear(n_in, n_out, dtype=torch.float64)
        with torch.no_grad():
            for p in layer.parameters():
                p.normal_(generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def change_basis(model: nn.Sequential, matrices: list[Tensor]) -> nn.Sequential:
    """``g . (W, b)``: the formulas of the orthogonal action, for any invertible matrices."""
    moved = copy.deepcopy(model)
    linear = [m for m in moved if isinstance(m, nn.Linear)]
    with torch.no_grad():
        for layer, following, g in zip(linear[:-1], linear[1:], matrices, strict=True):
            layer.weight.copy_(g @ layer.weight)
            layer.bias.copy_(g @ layer.bias)
            following.weight.copy_(following.weight @ torch.linalg.inv(g))
    return moved


def main() -> dict[str, float]:
    """How far each change of basis moves each kind of network."""
    generator = torch.Generator().manual_seed(0)
    widths = (3, 8, 8, 2)
    x = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    positive = [torch.diag(torch.rand(n, generator=generator, dtype=torch.float64) + 0.5) for n in widths[1:-1]]
    rotations = list(radnet.OrthogonalAction.random(widths, generator).matrices)
    relu = relu_network(widths, generator)
    radial = copy.deepcopy(relu)
    for i in (1, 3):
        radial[i] = radnet.Squash()
    gaps = {
        f"{name} network, {change}": radnet.testing.functional_gap(model, change_basis(model, g), x).max
        for name, model in (("ReLU", relu), ("radial", radial))
        for change, g in (("positive rescaling", positive), ("rotation", rotations))
    }
    for case, gap in gaps.items():
        print(f"{case:<36} moves the function by {gap:.1e}")
    return gaps


if __name__ == "__main__":
    main()
