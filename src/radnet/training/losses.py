"""The mean square error of a network, in one pass over the samples where there is a kernel for that."""

from __future__ import annotations

from torch import Tensor, nn

from .. import fused
from ..columns import Columns
from ..network import RadNet
from .batches import Loss


def mse(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """``F.mse_loss(model(x), y)``, the same function; faster for a small `RadNet`.

    A compiled kernel takes a few samples at a time through the layers and back, so loss and gradients come from one
    pass. Any other model, and a network with a part that the kernel does not know, is evaluated first.

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.RadNet((1, 4, 1), "sigmoid", generator=torch.Generator().manual_seed(0))
    >>> x = torch.linspace(-1, 1, 100).unsqueeze(1)
    >>> loss = mse(net, x, x.square())
    >>> loss.backward()
    >>> bool(torch.isclose(loss, torch.nn.functional.mse_loss(net(x), x.square())))
    True
    """
    at_once = mse_in_one_pass(model, x, y)
    return nn.functional.mse_loss(model(x), y) if at_once is None else at_once


def mse_in_one_pass(model: nn.Module, x: object, y: object) -> Tensor | None:
    """The same, or None if the model has to be evaluated first."""
    net = model.network if isinstance(model, Columns) else model
    if (
        not isinstance(net, RadNet)
        or type(net).forward is not RadNet.forward
        or type(model) not in (type(net), Columns)
    ):
        return None
    if not fused.is_itself(net) or not fused.is_itself(model):
        return None
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not x.ndim:
        return None
    return fused.mean_square(net.layers, net.rescalings, x, y)


def is_mse(loss: Loss) -> bool:
    """Whether a loss is torch's mean square error, as a function or as a module.

    >>> is_mse(nn.MSELoss()), is_mse(nn.MSELoss(reduction="sum"))
    (True, False)
    """
    if loss is nn.functional.mse_loss:
        return True
    return type(loss) is nn.MSELoss and loss.reduction == "mean" and fused.is_itself(loss)
