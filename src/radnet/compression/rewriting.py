"""A model as an fx GraphModule: where a residual stream grows zeros are put behind it, and linear layers are merged.

Two linear layers in a row are one, ``W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)``, where that has fewer weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import fx, nn

from ..running import Call
from .program import Step
from .spaces.features import Feature
from .spaces.follow import Analysis
from .spaces.layouts import Layout
from .spaces.spans import double
from .tracing.fx import ModelTracer, absent
from .trust import stands_for


def rewritten(
    model: nn.Module, call: Call, steps: Sequence[Step], analysis: Analysis, layout: Layout
) -> fx.GraphModule:
    """The graph of the model, whose layers have their new sizes, with padding before sums of different widths.

    Parameters
    ----------
    model : nn.Module
        With its new layers.
    call : Call
        The inputs the steps were traced with.
    steps : sequence of Step
        Of the model before.
    """
    tracer = ModelTracer()
    graph = tracer.trace(model, absent(model, call))
    made = [step.output for step in steps if step.output is not None]
    features = {value.name: feature for value in made if (feature := analysis.of.get(value)) is not None}
    shapes = {value.name: value.shape for value in made}
    for node in list(graph.nodes):
        feature = features.get(node.name)
        if feature is None or len(feature.made_of) < 2 or len(layout.runs[feature]) > 1:
            continue
        wanted = _width(layout, feature)
        for part in node.all_input_nodes:
            own = features.get(part.name)
            missing = 0 if own is None else wanted - _width(layout, own)
            if own is not None and missing > 0:
                zeros = _pad(own, missing, shapes[part.name])
                with graph.inserting_before(node):
                    padded = graph.call_function(torch.nn.functional.pad, (part, zeros))
                node.replace_input_with(part, padded)
    _merge_linear(model, graph)
    return fx.GraphModule(model, graph)


def _merge_linear(model: nn.Module, graph: fx.Graph) -> None:
    """Put one layer in the place of two in a row that serve here alone, as often as that is smaller."""
    modules = dict(model.named_modules())
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    used = Counter(id(p) for m in model.modules() for p in m._parameters.values() if p is not None)

    def layer(node: object) -> nn.Linear | None:
        """The linear layer that is called at a node, if it is called there alone."""
        if not isinstance(node, fx.Node) or node.op != "call_module" or calls[node.target] > 1:
            return None
        m = modules[str(node.target)]
        own = isinstance(m, nn.Linear) and stands_for(m, nn.Linear) and all(used[id(p)] == 1 for p in m.parameters())
        return m if own and isinstance(m, nn.Linear) else None

    for node in list(graph.nodes):
        second = layer(node)
        before = node.args[0] if second is not None and len(node.args) == 1 and not node.kwargs else None
        first = layer(before)
        if second is None or first is None or not isinstance(before, fx.Node) or len(before.users) > 1:
            continue
        n, k, m = first.in_features, first.out_features, second.out_features
        if n * m >= n * k + k * m:
            continue
        with torch.no_grad():
            W1, W2 = double(first.weight), double(second.weight)
            b = torch.zeros(m, dtype=torch.float64) if second.bias is None else double(second.bias)
            b = b if first.bias is None else b + W2 @ double(first.bias)
            like = second.weight
            second.weight = nn.Parameter((W2 @ W1).to(like), requires_grad=like.requires_grad)
            if first.bias is not None or second.bias is not None:
                second.bias = nn.Parameter(b.to(like), requires_grad=like.requires_grad)
        second.in_features = n
        before.target = node.target  # where the first one stood: later, what it reads may have been changed in place
        node.replace_all_uses_with(before)
        graph.erase_node(node)


def _width(layout: Layout, feature: Feature) -> int:
    return sum(run.width for run in layout.runs[feature])


def _pad(feature: Feature, missing: int, shape: tuple[int, ...]) -> list[int]:
    """What `pad` is told: pairs for the axes from the last one back, zeros behind along the features."""
    return [0, 0] * (len(shape) - 1 - feature.dim) + [0, missing]
