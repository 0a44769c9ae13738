"""What the analysis calls a function of tensors, or a method, as `torch.fx` records it.

The kinds that need a look at several arguments are here for `exported` too, which meets the same operations by other
names.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F  # noqa: N812

from .memory import Watched

Kind = tuple[str, dict[str, Any]]  # what an operation is called, and what has to be known about it
UNKNOWN: Kind = ("unknown", {})


@dataclass(frozen=True, eq=False)
class Operation:
    """A function or method of a graph that has run; numbers that the graph computed are there as numbers."""

    node: fx.Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    ran: Watched

    @classmethod
    def of(cls, node: fx.Node, ran: Watched) -> Operation:
        """The operation of a node; operands that are tensors stay nodes."""

        def number(n: fx.Node) -> Any:
            found = ran.results.get(n)
            return found if isinstance(found, bool | int | float | str | torch.dtype | torch.device) else n

        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), number)
        return cls(node, tuple(args), dict(kwargs), ran)

    @property
    def target(self) -> Any:
        """The function, or the name of the method."""
        return self.node.target

    def tensor(self, x: Any) -> Tensor | None:
        """What a node made, if it is a tensor."""
        found = self.ran.results.get(x) if isinstance(x, fx.Node) else None
        return found if isinstance(found, Tensor) else None

    @property
    def floating(self) -> bool:
        """Whether its first operand and its result are floating point and of one shape."""
        x, y = self.tensor(self.args[0] if self.args else None), self.tensor(self.node)
        return (
            x is not None and y is not None and x.is_floating_point() and y.is_floating_point() and x.shape == y.shape
        )


_ADD = (operator.add, operator.iadd, torch.add, "add", "add_")
_SUB = (operator.sub, operator.isub, torch.sub, "sub", "sub_")
_MUL = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_DIV = (operator.truediv, operator.itruediv, torch.div, torch.true_divide, "div", "div_")
_DROPOUT = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout)
_CONVERSIONS = (
    "contiguous", "clone", "float", "double", "half", "bfloat16", "to", "type", "type_as", "detach", "cpu", "data",
    torch.clone, torch.detach,
)  # fmt: skip
_POOL = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_ADAPTIVE_POOL = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)


def function_kind(op: Operation) -> Kind:
    """What the analysis calls a function or a method of a tensor."""
    target, args = op.target, op.args
    if not any(op.tensor(n) is not None for n in op.node.all_input_nodes):
        return UNKNOWN  # arithmetic with lengths of axes, say
    if target is getattr or target == "size":
        return _size_kind(op)
    if target is operator.getitem:
        x = op.tensor(args[0])
        return UNKNOWN if x is None else _slice_kind(args[1], x.ndim)
    if target in (torch.cat, torch.concat) and set(op.kwargs) <= {"tensors", "dim"}:
        return "cat", {"dim": argument(op, 1, "dim", 0)}
    if target in (torch.flatten, "flatten"):
        return flatten_kind(argument(op, 1, "start_dim", 0), argument(op, 2, "end_dim", -1))
    if target in ("view", "reshape", torch.reshape):
        return reshape_kind(op, args[1:])
    if target in ("mean", torch.mean) and set(op.kwargs) <= {"dim", "keepdim"}:
        return mean_kind(argument(op, 1, "dim"), argument(op, 2, "keepdim", False))
    if target in ("permute", torch.permute):
        return permute_kind(args[1:] if len(args) > 2 else argument(op, 1, "dims"))
    if target in ("transpose", torch.transpose):
        return permute_kind((argument(op, 1, "dim0"), argument(op, 2, "dim1")), "transpose")
    if target in _DROPOUT and argument(op, 2, "training", True) is False:
        return "same", {}
    if target in _POOL:
        return pool_kind(
            _POOL.index(target) + 1,
            argument(op, 3, "padding", 0),
            argument(op, 5, "count_include_pad", True),
            argument(op, 6, "divisor_override"),
        )
    if target in _ADAPTIVE_POOL:
        return adaptive_kind(_ADAPTIVE_POOL.index(target) + 1)
    if target in _CONVERSIONS and op.floating:  # rounding is not part of the function a model stands for
        return "same", {}
    return arithmetic_kind(op)


def arithmetic_kind(op: Operation) -> Kind:
    """Sums of two tensors, multiples by a number that stands in the program (one that was computed may change)."""
    target, args = op.target, op.node.args
    if target in (operator.neg, torch.neg, "neg", torch.negative, "negative"):
        return "scale", {"factor": -1.0}
    if op.kwargs or len(args) != 2:
        return UNKNOWN
    tensors = [op.tensor(a) is not None for a in args]
    if target in _ADD and all(tensors):
        return "add", {"signs": (1.0, 1.0)}
    if target in _SUB and all(tensors):
        return "add", {"signs": (1.0, -1.0)}
    number: Any = args[0] if tensors[1] else args[1]
    if sum(tensors) != 1 or isinstance(number, bool) or not isinstance(number, int | float):
        return UNKNOWN
    if target in _MUL:
        return "scale", {"factor": float(number)}
    if target in _DIV and tensors[0] and number:
        return "scale", {"factor": 1 / float(number)}
    return UNKNOWN


def argument(op: Operation, at: int, name: str, default: Any = None) -> Any:
    """An argument of a call, by place or by name."""
    return op.args[at] if len(op.args) > at else op.kwargs.get(name, default)


def _size_kind(op: Operation) -> Kind:
    """Which axes a program asks the length of: ``x.size(0)``, ``x.shape[0]``; of ``x.device`` and the like none."""
    if op.target is getattr and op.args[1] != "shape":
        if op.args[1] == "data" and op.floating:
            return "same", {}
        return ("size", {"dims": []}) if op.args[1] in ("device", "dtype", "ndim") else UNKNOWN
    dim = argument(op, 1, "dim") if op.target == "size" else None
    if dim is not None:
        return ("size", {"dims": [dim]}) if isinstance(dim, int) else UNKNOWN
    asked = [user.args[1] if user.target is operator.getitem else None for user in op.node.users]
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


def flatten_kind(start: Any, end: Any) -> Kind:
    """Axes from start to end become one."""
    known = isinstance(start, int) and isinstance(end, int)
    return ("flatten", {"start": start, "end": end}) if known else UNKNOWN


def reshape_kind(op: Operation, sizes: Any) -> Kind:
    """``x.view(len(x), -1)`` and the like are a flattening; where other sizes are given, features may be cut up."""
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
    x, y, start = op.tensor(op.args[0]), op.tensor(op.node), len(sizes) - 1
    if x is None or y is None or start < 0 or start >= x.ndim or sizes[-1] != -1:
        return UNKNOWN
    kept = x.shape[:start] == y.shape[:start]
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


def pool_kind(axes: int, padding: Any, counts_padding: Any, divisor: Any) -> Kind:
    """Means over windows of so many axes; with a divisor of its own it is not a mean."""
    if divisor is not None:
        return UNKNOWN
    padded = any(padding) if isinstance(padding, list | tuple) else bool(padding)
    return "pool", {"zeros": padded and bool(counts_padding), "axes": axes}


def adaptive_kind(axes: int) -> Kind:
    """Means over windows that cover everything."""
    return "pool", {"zeros": False, "axes": axes}
