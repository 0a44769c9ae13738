"""Draw the profiles of the paper (its figure of radial rescaling functions in one dimension)."""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch

import radnet


def main(path: str = "activations.png") -> None:
    """Each profile as the odd function it is on the line."""
    x = torch.linspace(-2.1, 2.1, 801).unsqueeze(1)
    figure, axes = plt.subplots(figsize=(7, 4))
    for rho in (radnet.StepReLU(), radnet.Squash(), radnet.ShiftedReLU(), radnet.RadialSigmoid()):
        y = rho(x)
        jumps = torch.cat([torch.zeros(1), y.diff(dim=0).abs().squeeze(1)]) > 0.4
        y[jumps] = torch.nan  # do not draw a line through a jump
        axes.plot(x.squeeze(1).numpy(), y.squeeze(1).numpy(), label=repr(rho))
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set_xlabel("v")
    axes.set_title("radial rescaling on the line: h(|v|) v/|v|")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
