"""What radnet is compared with: the paper's text in plain PyTorch and NumPy, ReLU networks, and floors.

A floor is the least that has to be done: nobody who does the work can be faster.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..network import RadNet

Matrix = npt.NDArray[np.float64]


def naive_squash(v: Tensor) -> Tensor:
    """``v * (h(r)/r)`` as one writes it down first; NaN at v = 0 included.

    >>> naive_squash(torch.tensor([[0.6, 0.8]]))
    tensor([[0.3000, 0.4000]])
    """
    r: Tensor = v.norm(dim=-1, keepdim=True)
    return v * ((r * r / (r * r + 1)) / r)


def relu_network(widths: Sequence[int], activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """The ReLU network of these widths, or one with another pointwise activation.

    >>> len(relu_network((2, 3, 1)))
    3
    """
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1])


class AsThePaperSays(nn.Module):
    """A radial network as its text is read: linear layer, norm, radial sigmoid, quotient, product; a sample a row.

    >>> net = RadNet((2, 3, 1), "sigmoid")
    >>> bool(torch.allclose(AsThePaperSays(net)(torch.ones(1, 2)), net(torch.ones(1, 2))))
    True
    """

    def __init__(self, net: RadNet) -> None:
        super().__init__()
        self.layers = copy.deepcopy(net.layers)

    def forward(self, x: Tensor) -> Tensor:
        """Layer by layer."""
        *hidden, last = self.layers
        for layer in hidden:
            v = layer(x)
            r = v.norm(dim=1, keepdim=True)
            x = torch.sigmoid(r) / r * v
        out: Tensor = last(x)
        return out


def _merged(net: RadNet) -> list[Matrix]:
    return [A.detach().double().numpy() for A in net.merged()]


def complete_qr(net: RadNet) -> list[Matrix]:
    """Algorithm 1 as it is printed, with complete matrices Q_i, by NumPy.

    >>> [A.shape for A in complete_qr(RadNet((2, 8, 8, 1)))]
    [(3, 3), (4, 4), (1, 5)]
    """
    first, *rest = _merged(net)
    A, small = first, []
    for W in rest:
        Q, R = np.linalg.qr(A, mode="complete")
        k = min(A.shape)
        small.append(R[:k])
        inc = np.eye(Q.shape[0], k)
        A = np.concatenate([W[:, :1], W[:, 1:] @ Q @ inc], axis=1)
    return [*small, A]


def floor_of_compression(net: RadNet) -> list[Tensor]:
    """One thin QR and one product a layer, in float64, and nothing else.

    >>> [tuple(A.shape) for A in floor_of_compression(RadNet((2, 8, 8, 1)))]
    [(3, 3), (4, 4), (1, 5)]
    """
    first, *rest = (A.detach().double() for A in net.merged())
    A, small = first, []
    for W in rest:
        Q, R = torch.linalg.qr(A)
        small.append(R)
        A = torch.cat([W[:, :1], W[:, 1:] @ Q], dim=1)
    return [*small, A]
