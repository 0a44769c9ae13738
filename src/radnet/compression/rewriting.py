"""A model as an fx GraphModule in which a residual stream grows: where it is added to, zeros are put behind it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx, nn

from ..running import Call
from .program import Step
from .spaces.features import Feature
from .spaces.follow import Analysis
from .spaces.layouts import Layout
from .tracing.fx import ModelTracer, absent


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
    return fx.GraphModule(model, graph)


def _width(layout: Layout, feature: Feature) -> int:
    return sum(run.width for run in layout.runs[feature])


def _pad(feature: Feature, missing: int, shape: tuple[int, ...]) -> list[int]:
    """What `pad` is told: pairs for the axes from the last one back, zeros behind along the features."""
    return [0, 0] * (len(shape) - 1 - feature.dim) + [0, missing]
