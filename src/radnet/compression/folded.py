"""What stands in a small model where a layer was that its neighbours have taken over."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FoldedBatchNorm(nn.Identity):
    """Gives its input back, where a BatchNorm1d was whose scale and shift the layer before has taken over.

    BatchNorm1d takes axis 1 for the channels, so with another number of axes it is another function, which is in the
    small model no more: there this raises.

    Parameters
    ----------
    axes : int
        How many the inputs have.

    Examples
    --------
    >>> FoldedBatchNorm(2)(torch.ones(1, 2))
    tensor([[1., 1.]])
    """

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The input, if it has as many axes as the BatchNorm1d was folded for."""
        torch._assert(input.ndim == self.axes, f"a BatchNorm1d was folded for inputs of {self.axes} axes alone")
        return input

    def extra_repr(self) -> str:
        """The number of axes."""
        return f"axes={self.axes}"
