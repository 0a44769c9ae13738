"""Operations that write into tensors which are there already, and who shares memory with those."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence

from torch import fx, nn

from .operations import UNKNOWN, arithmetic_kind

_INPLACE = (
    operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
    operator.ipow, operator.imatmul, operator.iand, operator.ior, operator.ixor,
)  # fmt: skip
_ARITHMETIC = ("aten.add_.Tensor", "aten.sub_.Tensor", "aten.mul_.Tensor", "aten.div_.Tensor")
_FRESH = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)


def changed_in_place(module: fx.GraphModule) -> set[fx.Node]:
    """Nodes whose tensor some operation writes into, with all that share its memory."""
    changed: set[fx.Node] = set()
    for node in module.graph.nodes:
        inplace = (
            (node.op == "call_method" and str(node.target).endswith("_") and not str(node.target).startswith("__"))
            or (node.op == "call_function" and node.target in _INPLACE)
            or (node.op == "call_function" and node.kwargs.get("inplace"))
            or (node.op == "call_function" and "out" in node.kwargs)
            or (node.op == "call_module" and getattr(module.get_submodule(str(node.target)), "inplace", False))
        )
        if inplace:
            changed |= overwritten(node, node.all_input_nodes, lambda n: _may_be_view(n, module))
    return changed


def overwritten(node: fx.Node, written: Sequence[fx.Node], may_be_view: Callable[[fx.Node], bool]) -> set[fx.Node]:
    """What an operation in place leaves with other values than were computed there.

    None, for sums and multiples as in ``x += y``, if nobody looks at what was there before: then it does not matter
    where the result is put.
    """
    if node.op != "call_module" and (arithmetic_kind(node) != UNKNOWN or str(node.target) in _ARITHMETIC):
        earlier = set(itertools.takewhile(lambda n: n is not node, node.graph.nodes))
        before = sharing(written[:1], lambda n: n in earlier and may_be_view(n))
        ours = all(n.op not in ("placeholder", "get_attr") for n in before)
        if ours and all(user in earlier or user is node for n in before for user in n.users):
            return set()
    return sharing([node, *written], may_be_view)


def _may_be_view(node: fx.Node, module: fx.GraphModule) -> bool:
    """Whether a node may give back the memory it was given: we know only of some layers that they do not."""
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))) not in _FRESH
    return node.op in ("call_method", "call_function")


def sharing(nodes: Sequence[fx.Node], may_be_view: Callable[[fx.Node], bool]) -> set[fx.Node]:
    """The nodes, and everything that may share memory with one of them."""
    found: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        n = todo.pop()
        if n in found or n.op == "output":
            continue
        found.add(n)
        if may_be_view(n):
            todo += n.all_input_nodes
        todo += [user for user in n.users if may_be_view(user)]
    return found
