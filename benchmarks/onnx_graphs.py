"""ONNX: an exported network beside a graph of the same network by hand, and a compressed model beside its original.

In onnxruntime on one thread, in turns, in one process. Bounds: 1.3 of the graph by hand at batch 1 and 256; the
convolutional network of `examples/compress_digits.py` at least 1.8 times faster compressed, at batch 256. (At batch 1
it takes some 25 microseconds, most of which are the calls of its nodes; the figure is told, and not bounded.)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from timing import finish, interleave, show

import radnet

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from compress_digits import make_model

WIDTHS = (30, 31, 32, 2)
BY_HAND, FASTER = 1.3, 1.8


def session(source: bytes | str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(source, options)


def by_hand(net: radnet.RadNet) -> bytes:
    """The graph somebody would write: six nodes for a squashing function, ``v (r / (r^2 + 1))``."""
    nodes, constants, x = [], [], "x"
    constants.append(numpy_helper.from_array(np.array([-1], dtype=np.int64), "last"))
    constants.append(numpy_helper.from_array(np.array(1, dtype=np.float32), "one"))
    constants.append(numpy_helper.from_array(np.array(1e-12, dtype=np.float32), "least"))
    layers = list(zip(net.weights, net.biases, strict=True))
    for i, (W, b) in enumerate(layers):
        assert b is not None
        constants.append(numpy_helper.from_array(W.detach().numpy(), f"W{i}"))
        constants.append(numpy_helper.from_array(b.detach().numpy(), f"b{i}"))
        last = i == len(layers) - 1
        v = "y" if last else f"v{i}"
        nodes.append(helper.make_node("Gemm", [x, f"W{i}", f"b{i}"], [v], transB=1))
        if last:
            break
        nodes += [
            helper.make_node("ReduceL2", [v, "last"], [f"n{i}"], keepdims=1),
            helper.make_node("Max", [f"n{i}", "least"], [f"r{i}"]),
            helper.make_node("Mul", [f"r{i}", f"r{i}"], [f"q{i}"]),
            helper.make_node("Add", [f"q{i}", "one"], [f"p{i}"]),
            helper.make_node("Div", [f"r{i}", f"p{i}"], [f"s{i}"]),
            helper.make_node("Mul", [v, f"s{i}"], [f"x{i}"]),
        ]
        x = f"x{i}"
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDTHS[0]])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", WIDTHS[-1]])
    graph = helper.make_graph(nodes, "network", [given], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


def runner(network: Any, x: torch.Tensor) -> Callable[[], object]:
    feed = {network.get_inputs()[0].name: x.numpy()}
    return lambda: network.run(None, feed)


def main() -> int:
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.onnx")
        net = radnet.RadNet(WIDTHS, "squash", generator=generator).eval()
        radnet.export_onnx(net, path)
        ours, hand = session(path), session(by_hand(net))
        for rows in (1, 256):
            x = torch.randn(rows, WIDTHS[0], generator=generator)
            gap = np.abs(runner(ours, x)()[0] - runner(hand, x)()[0]).max()  # type: ignore[index]
            assert gap < 1e-5
            times = interleave({"by hand": runner(hand, x), "exported": runner(ours, x)}, rounds=3000, warmup=100)
            show(f"{WIDTHS}, batch {rows}", times, "by hand")
            found[f"by hand, batch {rows}"] = times["exported"]["median_ms"] / times["by hand"]["median_ms"]
        torch.manual_seed(0)
        images = torch.rand(64, 1, 8, 8, generator=generator)
        model = make_model().eval()
        radnet.export_onnx(model, path, images)
        wide = session(path)
        radnet.export_onnx(radnet.compress(model, images), path)
        small = session(path)
        for rows in (1, 256):
            x = torch.rand(rows, 1, 8, 8, generator=generator)
            times = interleave({"original": runner(wide, x), "compressed": runner(small, x)}, rounds=300, warmup=20)
            show(f"the digits, batch {rows}", times, "original")
            found[f"digits, batch {rows}"] = times["original"]["median_ms"] / times["compressed"]["median_ms"]
    finish({"onnx": found})
    slower = any(ratio > BY_HAND for name, ratio in found.items() if name.startswith("by hand"))
    return int(slower or found["digits, batch 256"] < FASTER)


if __name__ == "__main__":
    sys.exit(main())
