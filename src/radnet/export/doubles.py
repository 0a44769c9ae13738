"""What torch's ONNX exporter does to float64: constants and attributes are rounded to float32; here they are not.

An attribute of an ONNX operator (the alpha of LeakyRelu, the epsilon of LayerNormalization) is a float32, so operators
that have one are written out in others beforehand. A number in the code, 0.1, becomes a constant that torch rounds to
float32 and makes long again; the number it was is still in the exported program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    import onnx_ir as ir

_aten = torch.ops.aten
#: operations that ONNX has as an operator with attributes
_WRITTEN_OUT = (
    _aten.native_layer_norm,
    _aten.native_group_norm,
    _aten._fused_rms_norm,
    _aten.rms_norm,
    _aten._scaled_dot_product_flash_attention_for_cpu,
    _aten.leaky_relu,
    _aten.elu,
    _aten.celu,
    _aten.selu,
    _aten.hardtanh,
    _aten.hardswish,
    _aten.hardsigmoid,
    _aten.softplus,
    _aten.softshrink,
    _aten.hardshrink,
    _aten.threshold,
)


def written_out(program: ExportedProgram) -> ExportedProgram:
    """The program without operations that ONNX could only say in float32."""
    from torch._decomp import get_decompositions

    table = torch.export.default_decompositions()
    table.update(get_decompositions(list(_WRITTEN_OUT)))
    table[_aten._native_batch_norm_legit_no_training.default] = _batch_norm
    out: ExportedProgram = program.run_decompositions(table)
    return out


def _batch_norm(
    x: Tensor, gain: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """BatchNorm in evaluation mode; torch's own way of writing it out writes statistics."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    y = (x - mean.view(shape)) / (var + eps).sqrt().view(shape)
    y = y if gain is None else y * gain.view(shape)
    y = y if bias is None else y + bias.view(shape)
    return y, x.new_empty(0), x.new_empty(0)


def restore(made: torch.onnx.ONNXProgram, program: ExportedProgram) -> None:
    """Put the numbers of the program in the places of what float32 made of them, before anything is folded."""
    import onnx_ir as ir

    numbers = {x for node in program.graph.nodes for x in tree_leaves((node.args, node.kwargs)) if isinstance(x, float)}
    rounded: dict[float, set[float]] = {}
    for x in numbers:
        with np.errstate(over="ignore"):
            rounded.setdefault(float(np.float32(x)), set()).add(x)
    for node in made.model.graph:
        value = (
            node.inputs[0].const_value if node.op_type in ("Cast", "CastLike") and node.inputs[0] is not None else None
        )
        if value is None and node.op_type in ("Cast", "CastLike") and node.inputs[0] is not None:
            value = ir.convenience.get_const_tensor(node.inputs[0])
        if value is None or value.dtype != ir.DataType.FLOAT or value.size != 1 or not _gives_doubles(node):
            continue
        array = value.numpy()
        meant = rounded.get(float(array.reshape(())), set())
        if meant and max(meant) - min(meant) <= 4 * np.finfo(np.float64).eps * abs(max(meant)):
            whole = ir.tensor(np.full(array.shape, min(meant), dtype=np.float64))
            constant = ir.node("Constant", [], {"value": whole})
            made.model.graph.insert_before(node, constant)
            node.replace_input_with(0, constant.outputs[0])


def _gives_doubles(node: ir.Node) -> bool:
    """Whether a cast makes float64 of what it gets."""
    import onnx_ir as ir

    if node.op_type == "Cast":
        return bool(node.attributes["to"].as_int() == ir.DataType.DOUBLE)
    like = node.inputs[1] if node.op_type == "CastLike" else None
    return like is not None and like.dtype == ir.DataType.DOUBLE
