"""Where a program begins and ends: inputs of the model, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

from ..bounds.lengths import Size
from ..bounds.sizes import Sizes
from ..program import Operation, Step
from ..reasons import Reason, Why
from ..spaces.follow import Analysis


@dataclass(frozen=True)
class Input(Operation):
    """An argument of the model. Anything may stand there, unless `compress` was given ``data``."""

    def follow(self, step: Step, analysis: Analysis) -> None:
        """An input has no basis of its own."""
        if step.output is not None:
            analysis.given(step.output)

    def size(self, step: Step, sizes: Sizes) -> Size:
        """As long as the longest given row."""
        return sizes.input(step.made)


@dataclass(frozen=True)
class Output(Operation):
    """What the model returns: it stays as it is."""

    def follow(self, step: Step, analysis: Analysis) -> None:
        """Pin what is returned."""
        for feature in analysis.inputs(step):
            analysis.pin(feature, Why(Reason.OUTPUT))
