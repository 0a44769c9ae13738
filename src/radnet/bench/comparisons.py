"""What is compared, and what is claimed of it: every ratio that the documentation states comes from here."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..activations import Squash, StepReLU
from ..compression import compress
from ..compression.chain import qr_compress
from ..models import BlockRadialMLP
from ..network import RadNet
from ..training import mse
from ..widths import count_parameters, reduced_widths
from .baselines import AsThePaperSays, complete_qr, floor_of_compression, naive_squash, relu_network
from .timing import Run, Times

SMALL, WIDE = (30, 31, 32, 2), (30, 512, 512, 512, 1)
EXPERIMENT_3 = (2, 16, 64, 128, 16, 2)
#: runs that are radnet's
OURS = frozenset(
    {
        *("squash", "no row is 0", "half are", "radial", "wide radial, compressed", "compressed", "blocks"),
        *("reduced", "full", "reduced, compiled", "compress", "without certificate"),
    }
)


class Claim(NamedTuple):
    """One time divided by another is at most, or at least, a number; some hold with, some without compiled kernels."""

    text: str
    of: str
    beside: str
    at_most: float = float("inf")
    at_least: float = 0.0
    native: bool | None = None

    def applies(self, native: bool) -> bool:
        """Whether it is about a package with, or without, compiled kernels."""
        return self.native is None or self.native == native

    def ratio(self, times: Mapping[str, Times]) -> float | None:
        """What was measured, if both were."""
        if self.of not in times or self.beside not in times:
            return None
        return times[self.of].median_ms / times[self.beside].median_ms

    def holds(self, ratio: float) -> bool:
        """Whether the ratio is within the bounds."""
        return self.at_least <= ratio <= self.at_most


@dataclass(frozen=True)
class Comparison:
    """Runs that are timed in turns, and what is claimed of their times."""

    name: str
    against: str
    runs: Callable[[], Mapping[str, Run]]
    claims: tuple[Claim, ...] = ()
    rounds: int = 100
    warmup: int = 5
    repeats: int = 1
    slow: bool = False  # left out of a quick look


def _without_gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Run:
    @torch.no_grad()
    def one() -> Tensor:
        return run(x)

    return one


def _both_ways(run: Callable[[Tensor], Tensor], shape: tuple[int, int]) -> Run:
    v = torch.randn(shape, requires_grad=True)
    g = torch.randn(shape)

    def one() -> None:
        v.grad = None
        run(v).backward(g)

    return one


# --- without a gradient


def _activation(rows: int) -> dict[str, Run]:
    v = torch.randn(rows, 64)
    return {
        "squash": _without_gradient(Squash(), v),
        "naive": _without_gradient(naive_squash, v),
        "layer_norm": _without_gradient(partial(nn.functional.layer_norm, normalized_shape=(64,)), v),
        "relu": _without_gradient(nn.functional.relu, v),
    }


def _step_relu() -> dict[str, Run]:
    v = torch.randn(64, 64)
    half = v.clone()
    half[::2] = 0
    return {"no row is 0": _without_gradient(StepReLU(), v), "half are": _without_gradient(StepReLU(), half)}


def _networks(rows: int) -> dict[str, Run]:
    x = torch.randn(rows, 30)
    networks: dict[str, Callable[[Tensor], Tensor]] = {
        "radial": RadNet(SMALL, "squash"),
        "ReLU": relu_network(SMALL),
        "wide radial, compressed": compress(RadNet(WIDE, "squash")).network,
        "wide ReLU": relu_network(WIDE),
    }
    return {name: _without_gradient(net, x) for name, net in networks.items()}


def _blocks(rows: int) -> dict[str, Run]:
    """What is trained by default, (8, 16 blocks of 3, 16 blocks of 3, 1), beside pointwise networks of its widths."""
    x, widths = torch.randn(rows, 8), (8, 48, 48, 1)
    networks: dict[str, nn.Module] = {
        "blocks": BlockRadialMLP(8, [(16, 3), (16, 3)], 1),
        "ReLU": relu_network(widths),
        "GELU": relu_network(widths, nn.GELU),
    }
    return {name: _without_gradient(net, x) for name, net in networks.items()}


def _inference(widths: tuple[int, ...], rows: int) -> dict[str, Run]:
    net = RadNet(widths, "squash", init="linear")
    small, x = compress(net).network, torch.randn(rows, widths[0])
    return {"original": _without_gradient(net, x), "compressed": _without_gradient(small, x)}


# --- training


def _activation_both_ways(shape: tuple[int, int]) -> dict[str, Run]:
    n = (shape[1],)
    return {
        "squash": _both_ways(Squash(), shape),
        "relu": _both_ways(nn.functional.relu, shape),
        "layer_norm": _both_ways(partial(nn.functional.layer_norm, normalized_shape=n), shape),
        "rms_norm": _both_ways(partial(nn.functional.rms_norm, normalized_shape=n), shape),
    }


def _step(loss: Callable[[], Tensor], parameters: Iterator[nn.Parameter]) -> Run:
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def one() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return one


def _plainly(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(x), y)


def _experiment_3() -> dict[str, Run]:
    axis = -3 + torch.arange(121) / 20
    x = torch.cartesian_prod(axis, axis)
    y = torch.exp(-x * x)
    full = RadNet(EXPERIMENT_3, "sigmoid", init="linear", generator=torch.Generator().manual_seed(0))
    small, runs = compress(full, x[:64]).network, {}
    for name, net in (("reduced", small), ("full", full)):
        text = AsThePaperSays(net)
        runs[f"{name}, the paper's text"] = _step(partial(_plainly, text, x, y), text.parameters())
        runs[name] = _step(partial(mse, net, x, y), net.parameters())
    if shutil.which("c++"):
        text = AsThePaperSays(small)
        runs["reduced, compiled text"] = _step(partial(_plainly, torch.compile(text), x, y), text.parameters())
        twin = copy.deepcopy(small)
        runs["reduced, compiled"] = _step(partial(_plainly, torch.compile(twin), x, y), twin.parameters())
    return runs


def _beside_relu(n: int) -> dict[str, Run]:
    widths, x, y = (64, n, n, 10), torch.randn(256, 64), torch.randn(256, 10)
    relu, net = relu_network(widths), RadNet(widths, "squash")
    return {
        "ReLU": _step(partial(_plainly, relu, x, y), relu.parameters()),
        "radial": _step(partial(mse, net, x, y), net.parameters()),
    }


# --- compression


def _compression(widths: tuple[int, ...]) -> dict[str, Run]:
    net = RadNet(widths, "squash", init="linear")
    return {
        "compress": partial(compress, net),
        "without certificate": lambda: qr_compress(net.weights, net.biases),
        "floor": partial(floor_of_compression, net),
        "as printed": partial(complete_qr, net),
    }


LARGE = (784, 8192, 8192, 10)


#: how many times fewer numbers it has when it is compressed; a part of that inference must gain
_BYTES = count_parameters(LARGE) / count_parameters(reduced_widths(LARGE))


def _without_gradients() -> tuple[Comparison, ...]:
    """What runs without a gradient."""
    return (
        *(
            Comparison(
                f"squashing function alone, {rows} x 64, no gradient", "layer_norm", partial(_activation, rows),
                (
                    Claim("at most 2 of F.layer_norm", "squash", "layer_norm", at_most=2, native=True),
                    Claim("at most 1.5 of the naive composition", "squash", "naive", at_most=1.5, native=False),
                ),
                rounds=2000, warmup=100,
            )
            for rows in (1, 64)
        ),
        Comparison("Step-ReLU, 64 x 64, no gradient", "no row is 0", _step_relu, rounds=2000, warmup=100),
        *(
            Comparison(
                f"networks {SMALL} and {WIDE}, batch {rows}", "ReLU", partial(_networks, rows),
                (
                    Claim("at most 1.5 of ReLU", "radial", "ReLU", at_most=1.5, native=True),
                    Claim("at most 2.5 of ReLU", "radial", "ReLU", at_most=2.5, native=False),
                    Claim(
                        f"compressed, {gain} times faster than wide ReLU", "wide ReLU", "wide radial, compressed",
                        at_least=gain, native=True,
                    ),
                    Claim("compressed, no slower than wide ReLU", "wide ReLU", "wide radial, compressed", at_least=1),
                ),
                rounds=500, warmup=50,
            )
            for rows, gain in ((1, 2), (256, 10))
        ),
        *(
            Comparison(
                f"BlockRadialMLP of (8, 16 x 3, 16 x 3, 1), batch {rows}", "ReLU", partial(_blocks, rows),
                rounds=500, warmup=50,
            )
            for rows in (1, 256)
        ),
    )  # fmt: skip


def _both_ways_of_activations() -> tuple[Comparison, ...]:
    """Activations with their gradients."""
    return (
        *(
            Comparison(
                f"squashing function, forward and backward, {shape[0]} x {shape[1]}", "relu",
                partial(_activation_both_ways, shape),
                (
                    Claim("at most 1.3 of F.relu", "squash", "relu", at_most=1.3, native=True),
                    Claim("at most 0.65 of F.layer_norm", "squash", "layer_norm", at_most=0.65, native=True),
                    Claim("at most 0.35 of F.rms_norm", "squash", "rms_norm", at_most=0.35, native=True),
                    Claim("at most 1.4 of F.layer_norm", "squash", "layer_norm", at_most=1.4, native=False),
                ),
                rounds=100 if shape[1] < 1024 else 12, repeats=3 if shape[1] < 1024 else 1, slow=shape[1] > 1024,
            )
            for shape in ((4096, 256), (4096, 4096))
        ),
        Comparison(
            "squashing function, forward and backward, 64 x 64", "relu", partial(_activation_both_ways, (64, 64)),
            (Claim("at most 3 of F.relu", "squash", "relu", at_most=3, native=True),), rounds=500, warmup=50,
        ),
    )  # fmt: skip


def _training_steps() -> tuple[Comparison, ...]:
    """Training steps."""
    return (
        Comparison(
            "a training step of experiment 3, 14,641 samples", "reduced", _experiment_3,
            (
                Claim("reduced, 15 times its text", "reduced, the paper's text", "reduced", at_least=15, native=True),
                Claim("full, 2.5 times its text", "full, the paper's text", "full", at_least=2.5, native=True),
                Claim("full against reduced, 20 times", "full", "reduced", at_least=20, native=True),
                Claim("reduced, 2 times its text", "reduced, the paper's text", "reduced", at_least=2, native=False),
                Claim(
                    "reduced and compiled, 3 times its text", "reduced, the paper's text", "reduced, compiled",
                    at_least=3, native=False,
                ),
            ),
            rounds=8, warmup=1, repeats=10,
        ),
        *(
            Comparison(
                f"a training step of (64, {n}, {n}, 10), batch 256", "ReLU", partial(_beside_relu, n),
                (Claim("at most 1.3 of ReLU", "radial", "ReLU", at_most=1.3),), rounds=20, repeats=5, slow=n > 512,
            )
            for n in (256, 1024)
        ),
    )  # fmt: skip


def _compressions() -> tuple[Comparison, ...]:
    """Compression, and what it gives."""
    return (
        *(
            Comparison(
                f"compressing {widths}", "compress", partial(_compression, widths),
                (
                    Claim("8 times faster than as printed", "as printed", "compress", at_least=8),
                    Claim("at most 2.0 of the floor", "compress", "floor", at_most=2.0),
                    Claim("without certificate, at most 1.3 of the floor", "without certificate", "floor", at_most=1.3),
                ) if widths == LARGE else (),
                rounds=2 if widths == LARGE else 3, warmup=0, slow=widths == LARGE,
            )
            for widths in ((784, 1024, 1024, 10), LARGE)
        ),
        *(
            Comparison(
                f"inference of {LARGE}, batch {rows}", "compressed", partial(_inference, LARGE, rows),
                (
                    Claim(
                        f"at least 70 % of the {_BYTES:.0f} times that bytes predict", "original", "compressed",
                        at_least=0.7 * _BYTES,
                    ),
                ),
                rounds=10, repeats=5, slow=True,
            )
            for rows in (1, 256)
        ),
    )  # fmt: skip


def comparisons() -> tuple[Comparison, ...]:
    """All of them, in the order in which they are shown."""
    return *_without_gradients(), *_both_ways_of_activations(), *_training_steps(), *_compressions()
