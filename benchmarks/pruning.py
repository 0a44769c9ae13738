"""The same trained network made smaller in three ways: by its spans, by a structured pruner, by principal components.

The network of ``examples/compress_digits.py``. torch-pruning (`pip install torch-pruning`) removes the channels with
the smallest weights until as few parameters are left; principal components rotate the channels and keep those with the
largest variance over the training images, which only radial activations allow. No retraining.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from timing import finish
from torch import Tensor, nn

import radnet


def example() -> Any:
    path = Path(__file__).parent.parent / "examples" / "compress_digits.py"
    spec = importlib.util.spec_from_file_location("compress_digits", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def by_components(model: Any, x: Tensor, channels: tuple[int, int]) -> nn.Module:
    """Rotate the channels of both convolutions to their principal components over x, and keep the first."""
    small: Any = copy.deepcopy(model)
    with torch.no_grad():
        for layer, keep, reader in ((small[0][0], channels[0], small[2][0]), (small[2][0], channels[1], small[4])):
            states = small[: 1 if layer is small[0][0] else 3](x).movedim(1, -1).flatten(0, -2).double()
            _, vectors = torch.linalg.eigh(states.mT @ states)  # about 0: a norm is taken
            U = vectors[:, -keep:].float()
            layer.weight = nn.Parameter(torch.einsum("oi...,oj->ji...", layer.weight, U))
            layer.bias = nn.Parameter(U.mT @ layer.bias)
            if isinstance(reader, nn.Linear):
                W = reader.weight.reshape(len(reader.weight), -1, 16)
                reader.weight = nn.Parameter(torch.einsum("oik,ij->ojk", W, U).flatten(1))
            else:
                reader.weight = nn.Parameter(torch.einsum("oi...,ij->oj...", reader.weight, U))
    result: nn.Module = small
    return result


def by_pruning(model: nn.Module, x: Tensor, size: int) -> nn.Module:
    """Remove channels of small weight until no more than so many parameters are left."""
    import torch_pruning

    warnings.filterwarnings("ignore", message="Unwrapped parameters")  # the shifts: numbers, nothing to prune
    for percent in range(2, 98, 2):
        small: Any = copy.deepcopy(model)
        pruner = torch_pruning.pruner.BasePruner(
            small, x[:4], importance=torch_pruning.importance.MagnitudeImportance(p=2), pruning_ratio=percent / 100,
            ignored_layers=[small[-1]],
        )  # fmt: skip
        pruner.step()
        if parameters(small) <= size:
            break
    result: nn.Module = small
    return result


def main() -> None:
    if importlib.util.find_spec("torch_pruning") is None:
        sys.exit("this benchmark needs torch-pruning: pip install -c constraints.txt torch-pruning")
    digits = example()
    torch.manual_seed(0)
    x, y = digits.digits()
    train, test, labels = x[:1300], x[1300:], y[1300:]
    model = digits.make_model()
    digits.train(model, train, y[:1300], 12)
    model.eval()
    c: Any = radnet.compress(model, test)
    widths = (c.network[0][0].out_channels, c.network[2][0].out_channels)
    size = parameters(c.network)
    half = (widths[0] // 2, widths[1] // 2)
    rivals = {
        "original": model,
        "radnet.compress": c.network,
        "pruned, as small": by_pruning(model, train, size),
        "components, as small": by_components(model, train, widths),
        "pruned, half of that": by_pruning(model, train, size // 2),
        "components, half the channels": by_components(model, train, half),
    }
    found = {}
    with torch.no_grad():
        truth = model(test).argmax(dim=1)
        for name, rival in rivals.items():
            guess = rival(test).argmax(dim=1)
            found[name] = {
                "parameters": parameters(rival),
                "accuracy": float((guess == labels).float().mean()),
                "predictions_changed": int((guess != truth).sum()),
            }
            count, accuracy, changed = found[name].values()
            print(f"{name:<32}{count:>8,}{accuracy:>9.3f}{changed:>6} of {len(test)}")
    finish({"rivals": found})


if __name__ == "__main__":
    main()
