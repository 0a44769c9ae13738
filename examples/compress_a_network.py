"""Train a wide radial network for a moment, compress it, and see that not one prediction changes."""

from __future__ import annotations

import torch

import radnet


def main() -> radnet.compression.Compression[radnet.RadNet]:
    """Is a point inside or outside a circle?"""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator)
    labels = (x.norm(dim=1) > 1.2).long()
    net = radnet.RadNet((2, 256, 256, 2), activation="sigmoid", shift="trainable", generator=generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
    compression = radnet.compress(net, x)
    print(compression.report())
    with torch.no_grad():
        before, after = net(x).argmax(dim=1), compression.network(x).argmax(dim=1)
    print(f"\naccuracy {(before == labels).float().mean():.3f}, predictions changed: {int((before != after).sum())}")
    return compression


if __name__ == "__main__":
    main()
