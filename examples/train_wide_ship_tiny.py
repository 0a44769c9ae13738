"""Train wide, ship tiny: breast cancer diagnosis from 30 features, a real data set that ships with scikit-learn.

A wide radial network is trained, compressed, and predicts the same label on every row. Beside it, with the same
optimizer and epochs: the narrow radial network trained from scratch, and a ReLU network of about the deployed size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import radnet
from radnet.compression.result import interleaved_times
from radnet.training import fit

WIDE = (30, 768, 768, 2)
EPOCHS = 40


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Standardised features and labels, three quarters to train on."""
    x, y = load_breast_cancer(return_X_y=True)
    parts = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    scale = StandardScaler().fit(parts[0])
    x_train, x_test = (torch.tensor(scale.transform(part), dtype=torch.float32) for part in parts[:2])
    y_train, y_test = (torch.tensor(part, dtype=torch.long) for part in parts[2:])
    return x_train, x_test, y_train, y_test


def train(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Full batch Adam; returns the seconds it took."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    return fit(model, (x, y), epochs=EPOCHS, optimizer=optimizer, loss=nn.functional.cross_entropy).seconds


def relu_network(widths: tuple[int, ...]) -> nn.Sequential:
    """A plain ReLU multilayer perceptron."""
    layers: list[nn.Module] = []
    for i in range(len(widths) - 1):
        layers += [nn.Linear(widths[i], widths[i + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def main() -> dict[str, Any]:
    """Train, compress, compare, print the table."""
    x_train, x_test, y_train, y_test = data()
    generator = torch.Generator().manual_seed(0)
    net = radnet.RadNet(WIDE, "sigmoid", shift="trainable", generator=generator)
    start = time.perf_counter()
    train(net, x_train, y_train)
    seconds = {"wide": time.perf_counter() - start}
    everything = torch.cat([x_train, x_test])
    compression = radnet.compress(net, everything)
    tiny = compression.network
    narrow = radnet.RadNet(tiny.widths, "sigmoid", shift="trainable", generator=generator)
    seconds["narrow"] = train(narrow, x_train, y_train)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        relu = relu_network(tiny.widths)
    seconds["relu"] = train(relu, x_train, y_train)

    def accuracy(model: Callable[[Tensor], Tensor]) -> float:
        with torch.no_grad():
            return float((model(x_test).argmax(1) == y_test).float().mean())

    models: dict[str, tuple[nn.Module, float | None]] = {
        "wide radial, trained": (net, seconds["wide"]),
        "the same, compressed": (tiny, None),
        "narrow radial, from scratch": (narrow, seconds["narrow"]),
        "ReLU, deployed size": (relu, seconds["relu"]),
    }
    print(f"{'':<29}{'parameters':>11}{'trained in':>12}{'one row':>10}{'test accuracy':>15}")
    rows = {}
    for name, (model, took) in models.items():
        size = sum(p.numel() for p in model.parameters())
        _, row_time = interleaved_times(partial(net, x_test[:1]), partial(model, x_test[:1]))
        trained = "-" if took is None else f"{took:.1f} s"
        print(f"{name:<29}{size:>11,}{trained:>12}{row_time * 1e6:>7.0f} µs{accuracy(model):>15.3f}")
        rows[name] = {"parameters": size, "accuracy": accuracy(model)}
    with torch.no_grad():
        changed = int((net(everything).argmax(1) != tiny(everything).argmax(1)).sum())
    ratio = rows["wide radial, trained"]["parameters"] / rows["the same, compressed"]["parameters"]
    print(f"\n{ratio:.0f} times fewer parameters, labels changed on {len(everything)} rows: {changed}")
    print(compression.certificate)
    return {"rows": rows, "ratio": ratio, "changed": changed, "compression": compression}


if __name__ == "__main__":
    main()
