"""Shorter weights in an ONNX graph: half precision, or 8-bit integers with one scale for each output.

A matrix is kept short and made long again by one node before it is used, so every operator computes as before, in the
dtype of the model. Biases, shifts and tables of other kinds stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidValue

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: the axis along which the outputs of a layer lie in its second input; -1 is the last
_AXES = {"MatMul": -1, "Conv": 0, "ConvTranspose": 1}


def shortened(proto: ModelProto, weights: str) -> ModelProto:
    """The same graph with its matrices in float16 or int8.

    Raises
    ------
    InvalidValue
        If it has none, if they are too large for float16, or float64, which has no 8-bit form in ONNX.
    """
    import onnx
    from onnx import helper, numpy_helper

    short = onnx.ModelProto()
    short.CopyFrom(proto)
    graph = short.graph
    axes = dict(_matrices(graph.node))
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    found = [x for x in graph.initializer if x.name in axes and x.data_type in floats]  # tables of indices stay
    if not found:
        kinds = ", ".join(("Gemm", *_AXES, "Gather"))
        raise InvalidValue(f"weights={weights!r}: the graph has no matrix of weights that is used by one of {kinds}")
    nodes = []
    for x in found:
        W, name = numpy_helper.to_array(x), x.name
        if not np.isfinite(W).all():
            raise InvalidValue(f"{name}: has numbers that are not finite, which shorter weights do not keep")
        kept = f"{name}.{weights}"
        if weights == "float16":
            nodes.append(helper.make_node("Cast", [kept], [name], to=x.data_type))
            added = [numpy_helper.from_array(_halves(W, name), kept)]
        else:
            axis = axes[name] % W.ndim
            q, scale = _bytes(W, axis, name)
            nodes.append(helper.make_node("DequantizeLinear", [kept, f"{kept}.scale"], [name], axis=axis))
            added = [numpy_helper.from_array(q, kept), numpy_helper.from_array(scale, f"{kept}.scale")]
        graph.initializer.remove(x)
        graph.initializer.extend(added)
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return short


def _matrices(nodes: list[NodeProto]) -> list[tuple[str, int]]:
    """The names of matrices of weights, and along which axis their outputs lie."""
    found = []
    for node in nodes:
        if node.op_type == "Gemm":
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            found.append((node.input[1], 0 if transposed else 1))
        elif node.op_type in _AXES:
            found.append((node.input[1], _AXES[node.op_type]))
        elif node.op_type == "Gather":
            found.append((node.input[0], 0))
    return found


def _halves(W: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        half = W.astype(np.float16)
    if not np.isfinite(half).all():
        raise InvalidValue(f"{name}: has numbers up to {abs(W).max():.3g}; float16 ends at 65,504")
    return half


def _bytes(W: np.ndarray, axis: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Integers from -127 to 127 and one scale for each entry of an axis."""
    if W.dtype != np.float32:
        raise InvalidValue(f'{name}: is {W.dtype}; 8-bit weights are for float32 (weights="float16" takes others)')
    others = tuple(k for k in range(W.ndim) if k != axis)
    scale = abs(W).max(axis=others, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.rint(W / scale).clip(-127, 127).astype(np.int8), scale.reshape(-1)
