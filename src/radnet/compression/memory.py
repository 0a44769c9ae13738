"""Operations that write into tensors which are there already, and who shares memory with those."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence

from torch import fx, nn

from .operations import UNKNOWN, arithmetic_kind

IN_PLACE = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
)  # fmt: skip
_ARITHMETIC = ("aten.add_.Tensor", "aten.sub_.Tensor", "aten.mul_.Tensor", "aten.div_.Tensor")
_FRESH = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)

Sources = Callable[[fx.Node], Sequence[fx.Node]]  # whose memory a node may give back


def changed_in_place(module: fx.GraphModule) -> set[fx.Node]:
    """Nodes whose tensor some operation writes into, with all that share its memory."""
    changed: set[fx.Node] = set()
    for node in module.graph.nodes:
        inplace = (
            _writes_into_its_first(node)
            or (node.op == "call_function" and node.kwargs.get("inplace"))
            or (node.op == "call_function" and "out" in node.kwargs)
            or (node.op == "call_module" and getattr(module.get_submodule(str(node.target)), "inplace", False))
        )
        if inplace:
            changed |= overwritten(node, node.all_input_nodes, lambda n: _sources(n, module))
    return changed


def overwritten(node: fx.Node, written: Sequence[fx.Node], sources: Sources) -> set[fx.Node]:
    """What an operation in place leaves with other values than were computed there.

    None, for sums and multiples as in ``x += y``, if nobody looks at what was there before: then it does not matter
    where the result is put.
    """
    if node.op != "call_module" and (arithmetic_kind(node) != UNKNOWN or str(node.target) in _ARITHMETIC):
        earlier = set(itertools.takewhile(lambda n: n is not node, node.graph.nodes))
        before = sharing(written[:1], lambda n: sources(n) if n in earlier else ())
        ours = all(n.op not in ("placeholder", "get_attr") for n in before)
        if ours and all(user in earlier or user is node for n in before for user in n.users):
            return set()
    return sharing([node, *written], sources)


def _writes_into_its_first(node: fx.Node) -> bool:
    """Whether it is an operator like ``+=`` or a method like ``add_``."""
    name = str(node.target)
    method = node.op == "call_method" and name.endswith("_") and not name.startswith("__")
    return method or (node.op == "call_function" and node.target in IN_PLACE)


def _sources(node: fx.Node, module: fx.GraphModule) -> Sequence[fx.Node]:
    """Whose memory a node may give back: we know only of layers and of arithmetic that they make their own."""
    if _writes_into_its_first(node):
        return node.all_input_nodes[:1]
    if node.op == "call_module":
        return () if type(module.get_submodule(str(node.target))) in _FRESH else node.all_input_nodes
    if node.op not in ("call_method", "call_function"):
        return ()
    return node.all_input_nodes if arithmetic_kind(node) == UNKNOWN else ()


def sharing(nodes: Sequence[fx.Node], sources: Sources) -> set[fx.Node]:
    """The nodes, and everything that may share memory with one of them."""
    found: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        n = todo.pop()
        if n in found or n.op == "output":
            continue
        found.add(n)
        todo += [*sources(n), *(user for user in n.users if n in sources(user))]
    return found
