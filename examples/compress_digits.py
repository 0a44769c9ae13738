"""A convolutional network on real 8x8 digits: train it, compress it, and not one prediction changes."""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

import radnet
from radnet.models import RadialConv2d


def make_model() -> nn.Sequential:
    return nn.Sequential(
        RadialConv2d(1, 32, 3, "squash", shift="trainable", padding=1),
        nn.AvgPool2d(2),
        RadialConv2d(32, 128, 3, "squash", shift="trainable", padding=1),
        nn.Flatten(),
        nn.Linear(128 * 16, 10),
    )


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 images, shuffled, with pixels from 0 to 1."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(data.images).float().unsqueeze(1)[order] / 16
    return x, torch.from_numpy(data.target).long()[order]


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


def main(epochs: int = 12) -> dict[str, Any]:
    torch.manual_seed(0)
    x, y = digits()
    model = make_model()
    train(model, x[:1300], y[:1300], epochs)
    model.eval()
    c = radnet.compress(model, x[1300:])
    with torch.no_grad():
        before, after = model(x[1300:]).argmax(dim=1), c.network(x[1300:]).argmax(dim=1)
    accuracy = float((before == y[1300:]).float().mean())
    print(c.report(timing=True))
    print(f"\naccuracy {accuracy:.3f}, predictions changed: {int((before != after).sum())} of {len(after)}")
    first: Any = c.network[0]
    changed = int((before != after).sum())
    return {"accuracy": accuracy, "changed": changed, "channels": first[0].out_channels, "compression": c}


if __name__ == "__main__":
    main()
