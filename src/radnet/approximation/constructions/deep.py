"""What the networks of all constructions have in common."""

from __future__ import annotations

import abc

import torch
from torch import Tensor, nn

from ... import notebook
from ...activations import Identity, RadialActivation, StepReLU
from ...checks import check_features
from ...errors import InvalidValue
from ...network import RadNet
from ...widths import count_parameters

MOST_BYTES = 2**30


class DeepNetwork(notebook.Drawn, nn.Module):
    """What the networks of `approximate` have in common: widths, input checks, the way to a plain `RadNet`.

    All parameters are frozen; ``requires_grad_()`` makes them trainable.
    """

    @property
    @abc.abstractmethod
    def widths(self) -> tuple[int, ...]:
        """``(n, hidden widths, m)``."""

    @abc.abstractmethod
    def partial(self, x: Tensor) -> list[Tensor]:
        """``[F_0(x), F_1(x), ..., F_L(x)]``."""

    @abc.abstractmethod
    def _dense_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer of the network as a plain `RadNet`."""

    @property
    def parameter_count(self) -> int:
        """Number of weights and biases of the network as a plain `RadNet`."""
        return count_parameters(self.widths)

    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def to_radnet(self) -> RadNet:
        """The same network as a plain `RadNet`, with one module for each layer.

        Raises
        ------
        InvalidValue
            If its weights would take more than 1 GB.

        Examples
        --------
        >>> import radnet
        >>> a = radnet.approximate(lambda x: x.sin(), radnet.Box(0, 1), 0.25, lipschitz=1, width="n+m+1")
        >>> a.network.to_radnet().widths
        (1, 3, 3, 3, 1)
        """
        size = self.parameter_count * torch.finfo(self._dtype()).bits // 8
        if size > MOST_BYTES:
            raise InvalidValue(
                f"to_radnet: dense weights of {len(self.widths) - 1} layers would take {size / 2**30:.1f} GB; more "
                "than 1 GB is refused. Use the network as it is, or another width rule"
            )
        weights, biases = zip(*self._dense_layers(), strict=True)
        hidden: list[RadialActivation] = [StepReLU() for _ in weights[1:]]
        net = RadNet.from_parameters(weights, biases, [*hidden, Identity()])
        return net.requires_grad_(False)

    def _columns(self, x: Tensor) -> Tensor:
        """The input as (n, batch)."""
        n = self.widths[0]
        check_features(x, type(self).__name__, n, self._dtype())
        return x.reshape(-1, n).T

    @property
    def made_with(self) -> dict[str, list[int]]:
        """The shapes of the tensors that it is made of, by the names under which it takes them."""
        return {name: list(x.shape) for name, x in self.state_dict().items()}

    def _drawing(self) -> str:
        return notebook.layers(self.widths, [*["StepReLU()"] * (len(self.widths) - 2), "Identity()"])

    def extra_repr(self) -> str:
        """Widths, shortened, and depth."""
        hidden = self.widths[1:-1]
        shown = f"{hidden[0]}" if len(set(hidden)) == 1 else f"{hidden[0]}..{hidden[-1]}"
        return f"inputs={self.widths[0]}, outputs={self.widths[-1]}, hidden layers={len(hidden)}, width={shown}"
