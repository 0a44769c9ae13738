"""What the analysis calls a function of tensors, or a method, as `torch.fx` records it.

The kinds that need a look at several arguments are here for `exported` too, which meets the same operations by other
names.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F  # noqa: N812

Kind = tuple[str, dict[str, Any]]  # what an operation is called, and what has to be known about it
UNKNOWN: Kind = ("unknown", {})
Shapes = dict[fx.Node, tuple[int, ...]]

_ADD = (operator.add, operator.iadd, torch.add, "add", "add_")
_SUB = (operator.sub, operator.isub, torch.sub, "sub", "sub_")
_MUL = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_DIV = (operator.truediv, operator.itruediv, torch.div, torch.true_divide, "div", "div_")
_DROPOUT = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout)
_POOL = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_ADAPTIVE_POOL = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)


def function_kind(node: fx.Node, shapes: Shapes) -> Kind:
    """What the analysis calls a function or a method of a tensor."""
    target = node.target
    if not any(n in shapes for n in node.all_input_nodes):
        return UNKNOWN  # arithmetic with lengths of axes, say
    if target is getattr or target == "size":
        return _size_kind(node)
    if target is operator.getitem:
        (x,) = node.all_input_nodes[:1]
        return _slice_kind(node.args[1], len(shapes[x])) if node.args[0] is x and x in shapes else UNKNOWN
    if target in (torch.cat, torch.concat) and set(node.kwargs) <= {"tensors", "dim"}:
        return "cat", {"dim": argument(node, 1, "dim", 0)}
    if target in (torch.flatten, "flatten"):
        return "flatten", {"start": argument(node, 1, "start_dim", 0), "end": argument(node, 2, "end_dim", -1)}
    if target in ("view", "reshape", torch.reshape):
        return reshape_kind(node, node.args[1:], shapes)
    if target in ("mean", torch.mean):
        return mean_kind(argument(node, 1, "dim"), argument(node, 2, "keepdim", False))
    if target in ("permute", torch.permute):
        return permute_kind(node.args[1:] if len(node.args) > 2 else argument(node, 1, "dims"))
    if target in ("transpose", torch.transpose):
        return permute_kind((argument(node, 1, "dim0"), argument(node, 2, "dim1")), "transpose")
    if target in _DROPOUT and argument(node, 2, "training", True) is False:
        return "same", {}
    if target in _POOL:
        return pool_kind(
            argument(node, 3, "padding", 0),
            argument(node, 5, "count_include_pad", True),
            argument(node, 6, "divisor_override"),
        )
    if target in _ADAPTIVE_POOL:
        return "pool", {"zeros": False}
    if target in ("contiguous", "clone"):
        return "same", {}
    return arithmetic_kind(node)


def arithmetic_kind(node: fx.Node) -> Kind:
    """Sums of two tensors, multiples by a number."""
    target, args = node.target, node.args
    if target in (operator.neg, torch.neg, "neg"):
        return "scale", {"factor": -1.0}
    if node.kwargs or len(args) != 2:
        return UNKNOWN
    tensors = [isinstance(a, fx.Node) for a in args]
    if target in _ADD and all(tensors):
        return "add", {"signs": (1.0, 1.0)}
    if target in _SUB and all(tensors):
        return "add", {"signs": (1.0, -1.0)}
    number: Any = args[0] if tensors[1] else args[1]
    if sum(tensors) != 1 or not isinstance(number, int | float):
        return UNKNOWN
    if target in _MUL:
        return "scale", {"factor": float(number)}
    if target in _DIV and tensors[0] and number:
        return "scale", {"factor": 1 / float(number)}
    return UNKNOWN


def argument(node: fx.Node, at: int, name: str, default: Any = None) -> Any:
    """An argument of a call, by place or by name."""
    return node.args[at] if len(node.args) > at else node.kwargs.get(name, default)


def _size_kind(node: fx.Node) -> Kind:
    """Which axes a program asks the length of: ``x.size(0)``, ``x.shape[0]``; of ``x.device`` and the like none."""
    if node.target is getattr and node.args[1] != "shape":
        return ("size", {"dims": []}) if node.args[1] in ("device", "dtype", "ndim") else UNKNOWN
    dim = argument(node, 1, "dim") if node.target == "size" else None
    if dim is not None:
        return ("size", {"dims": [dim]}) if isinstance(dim, int) else UNKNOWN
    asked = [user.args[1] if user.target is operator.getitem else None for user in node.users]
    return ("size", {"dims": asked}) if all(isinstance(d, int) for d in asked) else UNKNOWN


def _slice_kind(index: Any, ndim: int) -> Kind:
    """``x[:, 0]`` and the like: whole axes, parts of axes, single places."""
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) > ndim or not all(
        isinstance(p, slice) or (isinstance(p, int) and not isinstance(p, bool)) for p in parts
    ):
        return UNKNOWN
    dims = [d for d, part in enumerate(parts) if isinstance(part, slice) and part != slice(None)]
    return "slice", {"dims": dims, "dropped": [d for d, part in enumerate(parts) if isinstance(part, int)]}


def reshape_kind(node: fx.Node, sizes: Any, shapes: Shapes) -> Kind:
    """``x.view(len(x), -1)`` and the like are a flattening; where other sizes are given, features may be cut up."""
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
    x, start = node.args[0], len(sizes) - 1
    if node not in shapes or not isinstance(x, fx.Node) or x not in shapes or start < 0 or sizes[-1] != -1:
        return UNKNOWN
    kept = shapes[x][:start] == shapes[node][:start]
    return ("flatten", {"start": start, "end": -1, "given": True}) if kept else UNKNOWN


def mean_kind(dim: Any, keepdim: Any) -> Kind:
    """A mean over the given axes."""
    dims = list(dim) if isinstance(dim, list | tuple) else [dim]
    known = dims and all(isinstance(d, int) for d in dims)
    return ("mean", {"dims": dims, "keepdim": bool(keepdim)}) if known else UNKNOWN


def permute_kind(dims: Any, kind: str = "permute") -> Kind:
    """Axes in another order: all of them, or two that are exchanged."""
    known = isinstance(dims, list | tuple) and all(isinstance(d, int) for d in dims)
    return (kind, {"dims": list(dims)}) if known else UNKNOWN


def pool_kind(padding: Any, counts_padding: Any, divisor: Any) -> Kind:
    """Means over windows; with a divisor of its own it is not a mean."""
    if divisor is not None:
        return UNKNOWN
    padded = any(padding) if isinstance(padding, list | tuple) else bool(padding)
    return "pool", {"zeros": padded and bool(counts_padding)}
