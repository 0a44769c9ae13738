"""Many initialisations of the same network, trained at once in one set of tensors.

Paper: "Experiments" repeats every run over ten initialisations. For narrow networks the time goes into calls, not into
arithmetic, so ten runs in tensors with one axis more cost little more than one. Each network follows the trajectory of
its own run, to rounding, under any optimizer that works coordinate by coordinate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..activations import RadialActivation
from ..checks import check_count
from ..descent import InterpolatingSpace
from ..errors import Diverged, InvalidType, InvalidValue
from ..network import NetworkT, RadNet
from ..rescaling import rescale_axis
from .batches import Loss
from .result import FitResult


class Ensemble(nn.Module):
    """Networks of the same widths and activations as one module: inputs (rows, n_0), outputs (networks, rows, n_L).

    Parameters
    ----------
    nets : sequence of RadNet
        Copied; `write_back` puts the trained parameters into them.

    Examples
    --------
    >>> import torch, radnet
    >>> nets = [radnet.RadNet((2, 5, 1), "sigmoid") for _ in range(3)]
    >>> both = Ensemble(nets)(torch.ones(4, 2))
    >>> both.shape, torch.allclose(both[1], nets[1](torch.ones(4, 2)))
    (torch.Size([3, 4, 1]), True)
    """

    def __init__(self, nets: Sequence[RadNet]) -> None:
        super().__init__()
        _check_alike(nets)
        self.activations = list(nets[0].activations)  # for their profiles; the shifts are stacked below
        self.has_bias = nets[0].has_bias
        depth = len(nets[0].weights)

        def stacked(tensors: list[Tensor]) -> nn.Parameter:
            return nn.Parameter(torch.stack([t.detach() for t in tensors]))

        self.weights = nn.ParameterList(stacked([net.weights[i] for net in nets]) for i in range(depth))
        biases = [[b for b in (net.biases[i] for net in nets) if b is not None] for i in range(depth)]
        self.biases = nn.ParameterList(stacked([b.unsqueeze(0) for b in column]) for column in biases if column)
        self.shifts = nn.ParameterDict()
        for i, rho in enumerate(self.activations):
            if rho.shift is not None:
                values = stacked([t.reshape(1, 1) for t in (net.activations[i].shift for net in nets) if t is not None])
                self.shifts[str(i)] = values.requires_grad_(isinstance(rho.shift, nn.Parameter))

    def forward(self, x: Tensor) -> Tensor:
        """All networks on the same inputs."""
        v = x.expand(len(self.weights[0]), *x.shape)
        for i, (W, rho) in enumerate(zip(self.weights, self.activations, strict=True)):
            v = torch.baddbmm(self.biases[i], v, W.mT) if self.has_bias else v @ W.mT
            shift = self.shifts.get(str(i))
            v = rescale_axis(v, rho.profile, rho.slope, shift, v.ndim - 1, closed=rho._closed, formula=rho._formula())
        return v

    @torch.no_grad()
    def write_back(self, nets: Sequence[RadNet], only: Sequence[int] | None = None) -> None:
        """Copy the parameters into the networks (all of them, or the ones of these numbers)."""
        for s in range(len(nets)) if only is None else only:
            for i in range(len(self.weights)):
                nets[s].weights[i].copy_(self.weights[i][s])
                bias, shift = nets[s].biases[i], nets[s].activations[i].shift
                if bias is not None:
                    bias.copy_(self.biases[i][s, 0])
                if shift is not None:
                    shift.copy_(self.shifts[str(i)][s].reshape(()))


def fit_ensemble(
    nets: Sequence[NetworkT],
    data: tuple[Tensor, Tensor],
    *,
    epochs: int,
    optimizer: Callable[[list[nn.Parameter]], Optimizer],
    loss: Loss = nn.functional.mse_loss,
    target: float | None = None,
    project: bool = False,
) -> list[FitResult]:
    """Train networks of the same widths in place, all at once, on one full batch.

    Parameters
    ----------
    nets : sequence of RadNet
    data : (inputs, targets)
    epochs : int
    optimizer : callable
        Makes the optimizer from a list of parameters, for example ``lambda p: torch.optim.SGD(p, lr=0.01)``. It must
        work coordinate by coordinate (SGD, momentum, Adam); clipping by a global norm would mix the networks.
    loss : callable
    target : float, optional
        A network stays as it is after the first epoch whose loss is at most this; the others go on.
    project : bool
        Project onto the interpolating space after every step, as `ProjectedOptimizer` does.

    Returns
    -------
    list of FitResult
        One for each network; ``seconds`` is that of the whole ensemble.

    Examples
    --------
    >>> import torch, radnet
    >>> nets = [radnet.RadNet((1, 4, 1), "sigmoid") for _ in range(3)]
    >>> x = torch.linspace(-1, 1, 20).unsqueeze(1)
    >>> results = fit_ensemble(nets, (x, x * x), epochs=5, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    >>> [r.epochs for r in results]
    [5, 5, 5]
    """
    check_count("epochs", epochs)
    x, y = data
    ensemble = Ensemble(nets)
    blocks: list[Tensor] = []
    if project:
        space = InterpolatingSpace(nets[0].widths, nets[0].has_bias)
        for net in nets:
            space.require(net)
        biases = list(ensemble.biases) or [None] * len(ensemble.weights)
        blocks = [block.detach() for block in space.cut(list(ensemble.weights), biases)]
    opt = optimizer([p for p in ensemble.parameters() if p.requires_grad])
    losses_of = torch.vmap(loss, in_dims=(0, None))
    history: list[list[float]] = [[] for _ in nets]
    running = set(range(len(nets)))
    start = time.monotonic()
    for epoch in range(1, epochs + 1):
        opt.zero_grad()
        losses = losses_of(ensemble(x), y)
        losses.sum().backward()
        opt.step()
        for block in blocks:
            block.zero_()
        values = losses.detach().double()
        if not bool(values.isfinite().all()):
            raise Diverged(f"epoch {epoch}: the loss of network {int((~values.isfinite()).nonzero()[0])} is not finite")
        numbers = values.tolist()
        for s in running:
            history[s].append(numbers[s])
        arrived = [s for s in running if target is not None and numbers[s] <= target]
        ensemble.write_back(nets, arrived)
        running.difference_update(arrived)
        if not running:
            break
    ensemble.write_back(nets, sorted(running))
    seconds = time.monotonic() - start
    rate = float(opt.param_groups[0]["lr"])
    return [
        FitResult("epochs" if s in running else "target", tuple(h), (rate,) * len(h), seconds)
        for s, h in enumerate(history)
    ]


def _check_alike(nets: Sequence[RadNet]) -> None:
    if not nets:
        raise InvalidValue("an ensemble needs at least one network")
    for s, net in enumerate(nets):
        if not isinstance(net, RadNet):
            raise InvalidType(f"network {s} is a {type(net).__name__}; an ensemble needs RadNets")
        first = nets[0]
        if (net.widths, net.has_bias) != (first.widths, first.has_bias):
            raise InvalidValue(f"network {s} has widths {net.widths}, network 0 has {first.widths}; they must be alike")
        if [_settings(rho) for rho in net.activations] != [_settings(rho) for rho in first.activations]:
            raise InvalidValue(f"network {s} has other activations than network 0; they must be alike")


def _settings(rho: RadialActivation) -> tuple[object, ...]:
    """All that two activations must share; the values of their shifts may differ."""
    return type(rho), type(rho.shift), getattr(rho, "b", None), getattr(rho, "h", None)
