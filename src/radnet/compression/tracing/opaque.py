"""Radial activations as single operations of an exported program: `torch.export` need not look inside.

Composed so that it can be exported, an activation is some forty operations, and torch.export takes milliseconds for
each. We know what it does; so while we export a copy of a model for ourselves, its activations call one operator, and
in the exported program they are put back in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, fx, nn

from ...activations import RadialActivation
from ..trust import stands_for

_LIBRARY = torch.library.Library("radnet", "FRAGMENT")
_LIBRARY.define("activation(Tensor v, int which) -> Tensor")
torch.library.register_fake("radnet::activation", lambda v, which: torch.empty_like(v), lib=_LIBRARY)


@contextmanager
def as_one_operation(model: nn.Module) -> Iterator[Sequence[nn.Module]]:
    """While this lasts, trusted activations of a model are one operation each; gives them, in their order.

    >>> from radnet.activations import Squash
    >>> model = nn.Sequential(nn.Linear(2, 3), Squash())
    >>> with torch.no_grad(), as_one_operation(model) as activations:
    ...     program = torch.export.export(model, (torch.ones(1, 2),))
    >>> put_back(program.graph, activations)
    >>> [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    ['aten.linear.default', 'Squash()']
    """
    activations = [m for m in model.modules() if stands_for(m, RadialActivation) and _makes_a_new_tensor(m)]
    try:
        for which, m in enumerate(activations):
            m.forward = _calling(which)
        yield activations
    finally:
        for m in activations:
            vars(m).pop("forward", None)


def put_back(graph: fx.Graph, activations: Sequence[nn.Module]) -> None:
    """Have the activations themselves called where a program calls the operator."""
    for node in graph.nodes:
        if node.target is torch.ops.radnet.activation.default:
            v, which = node.args
            node.target, node.args = activations[which], (v,)


def _makes_a_new_tensor(m: nn.Module) -> bool:
    """An `Identity` does not: it gives back its input."""
    return type(m).forward is RadialActivation.forward


def _calling(which: int) -> Callable[[Tensor], Tensor]:
    def forward(v: Tensor) -> Tensor:
        out: Tensor = torch.ops.radnet.activation(v, which)
        return out

    return forward
