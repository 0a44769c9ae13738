"""Projected gradient descent: the interpolating space, its maps, and an optimizer that stays in it.

Paper: "Projected gradient descent", "The interpolating space" (prop:qinva-in-int, diag:int), lem:repint, thm:proj-gd.
The space Param^int(n) holds the parameters T whose bottom left block ``T_i[n_red_i:, :1 + n_red_{i-1}]`` (bias column
included) is zero in every layer: entries beyond n_red_i then never receive anything from the ones that count.

    Param(n_red)  --iota_2-->  Param^int(n)  --iota_1-->  Param(n)
                  <---q_2----                <---q_1----

Proj = iota_1 q_1. Projected descent on T is descent on V = q_2(T); what the projection removes of the gradient is what
training the narrow network forgoes. Shifts are trained and never projected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .checks import check_kind
from .errors import InvalidValue
from .network import NetworkT, RadNet, widen
from .widths import check_widths, reduced_widths


class InterpolatingSpace:
    """The subspace Param^int(n) of parameters with a zero block at the bottom left of every layer.

    Parameters
    ----------
    widths : sequence of int
    bias : bool
        Whether the networks have biases.

    References
    ----------
    "The interpolating space"; lem:repint.

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.RadNet((1, 8, 8, 1), activation="sigmoid", init="linear")
    >>> space = radnet.InterpolatingSpace(net.widths)
    >>> T = radnet.compress(net).transformed()
    >>> space.contains(net), space.contains(T)
    (False, True)
    """

    def __init__(self, widths: Sequence[int], bias: bool = True) -> None:
        self.widths = check_widths(widths)
        self.bias = bool(bias)
        self.reduced = reduced_widths(self.widths, self.bias)

    def __repr__(self) -> str:
        return f"InterpolatingSpace(widths={self.widths}, bias={self.bias})"

    # --- the zero block, as views

    def _check(self, net: RadNet, widths: tuple[int, ...]) -> None:
        check_kind(net, RadNet, "the interpolating space needs a RadNet")
        if net.widths != widths or net.has_bias != self.bias:
            raise InvalidValue(
                f"expected a network of widths {widths} with bias={self.bias}, "
                f"got {net.widths} with bias={net.has_bias}"
            )

    def cut(self, weights: Sequence[Tensor | None], biases: Sequence[Tensor | None]) -> list[Tensor]:
        """The bottom left block of each weight and the bottom of each bias, as views; leading axes are kept."""
        blocks = []
        for i, (W, b) in enumerate(zip(weights, biases, strict=True)):
            rows, columns = self.reduced[i + 1], self.reduced[i]
            if W is not None:
                blocks.append(W[..., rows:, :columns])
            if b is not None:
                blocks.append(b[..., rows:])
        return blocks

    def blocks(self, net: RadNet) -> list[Tensor]:
        """The blocks that vanish in this space, as views of the parameters of ``net``."""
        self._check(net, self.widths)
        return [block.detach() for block in self.cut(net.weights, net.biases)]

    def distance(self, net: RadNet) -> float:
        """Distance of the parameters from the space: the norm of the blocks that ought to vanish.

        >>> import radnet
        >>> net = radnet.RadNet((1, 4, 1), init="linear")
        >>> space = InterpolatingSpace(net.widths)
        >>> space.distance(net) > 0, space.distance(space.q_1(net))
        (True, 0.0)
        """
        return _norm(self.blocks(net))

    def contains(self, net: RadNet) -> bool:
        """Whether the blocks are exactly zero."""
        return all(not bool(block.any()) for block in self.blocks(net))

    def project_(self, net: NetworkT) -> NetworkT:
        """Proj: set the blocks to zero, in place. Returns the network; shifts stay as they are."""
        with torch.no_grad():
            for block in self.blocks(net):
                block.zero_()
        return net

    def forgone(self, net: RadNet) -> float:
        """Norm of the gradient that the projection removes.

        A step of size eta forgoes, to first order, ``eta * forgone**2`` of the loss. It is 0 wherever the columns that
        read the blocks vanish (zero padding), so a narrow network widened with ``fill=0`` never notices.

        Raises
        ------
        InvalidValue
            If a gradient is missing: call ``loss.backward()`` first.

        Examples
        --------
        >>> import torch, radnet
        >>> net = radnet.RadNet((1, 2, 1), activation="sigmoid", init="linear")
        >>> space = radnet.InterpolatingSpace((1, 6, 1))
        >>> for fill in (0.0, 1.0):
        ...     wide = radnet.widen(net, (1, 6, 1), fill=fill)
        ...     wide(torch.ones(3, 1)).sum().backward()
        ...     print(space.forgone(wide) > 0)
        False
        True
        """
        self._check(net, self.widths)
        for name, p in net.named_parameters():
            if p.requires_grad and p.grad is None:
                raise InvalidValue(f"{name} has no gradient; call loss.backward() before forgone()")
        grads = [None if b is None else b.grad for b in net.biases]
        return _norm(self.cut([W.grad for W in net.weights], grads))

    # --- the four maps, on networks

    def iota_1(self, T: NetworkT) -> NetworkT:
        """Param^int(n) into Param(n): a copy of T, once it is known to be in the space."""
        self.require(T)
        return self.q_1(T)

    def q_1(self, net: NetworkT) -> NetworkT:
        """Param(n) onto Param^int(n): a copy with the blocks set to zero."""
        self._check(net, self.widths)
        return self.project_(net.with_parameters([W.clone() for W in net.weights], _clones(net.biases)))

    def iota_2(self, V: NetworkT) -> NetworkT:
        """Param(n_red) into Param^int(n): padded with zeros. ``iota_1(iota_2(V))`` is iota(V)."""
        self._check(V, self.reduced)
        return widen(V, self.widths)

    def q_2(self, T: NetworkT) -> NetworkT:
        """Param^int(n) onto Param(n_red): the top left corners. On the space, the same function.

        >>> import torch, radnet
        >>> c = radnet.compress(radnet.RadNet((1, 8, 1)))
        >>> V = radnet.InterpolatingSpace((1, 8, 1)).q_2(c.transformed())
        >>> all(torch.equal(a, b) for a, b in zip(V.merged(), c.network.merged(), strict=True))
        True
        """
        self._check(T, self.widths)
        n = self.reduced
        weights = [W[: n[i + 1], : n[i]].clone() for i, W in enumerate(T.weights)]
        biases = [None if b is None else b[: n[i + 1]].clone() for i, b in enumerate(T.biases)]
        return T.with_parameters(weights, biases)

    def require(self, T: RadNet) -> None:
        """Raise `InvalidValue`, saying by how much, unless T is in the space."""
        if not self.contains(T):
            raise InvalidValue(
                f"the network is not in the interpolating space: the blocks that must vanish have norm "
                f"{self.distance(T):.3g}; use compress(net).transformed(), or space.project_(net), "
                "which changes the function"
            )


class ProjectedOptimizer(Optimizer):
    """Any torch optimizer, with the parameters projected onto the interpolating space after every step.

    With plain SGD this is the paper's gamma_proj. Training T this way is training the compressed network V
    (thm:proj-gd), for every optimizer that works coordinate by coordinate: momentum, Nesterov, Adam. Nothing is
    promised for LBFGS or for clipping by a global norm.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Over parameters of ``network``. Schedulers, parameter groups, ``state_dict`` and closures work as ever.
    network : RadNet
        In the interpolating space, for example ``compress(net).transformed()``.

    Raises
    ------
    InvalidValue
        If the optimizer holds parameters of another network, or the network is not in the space (by how much).

    References
    ----------
    "Projected gradient descent"; thm:proj-gd.

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.RadNet((1, 8, 8, 1), activation="sigmoid", init="linear")
    >>> T = radnet.compress(net).transformed()
    >>> opt = radnet.ProjectedOptimizer(torch.optim.SGD(T.parameters(), lr=0.01), T)
    >>> T(torch.ones(5, 1)).square().mean().backward()
    >>> opt.step()
    >>> radnet.InterpolatingSpace(T.widths).contains(T)
    True
    """

    def __init__(self, optimizer: Optimizer, network: RadNet) -> None:
        check_kind(optimizer, Optimizer, "ProjectedOptimizer wraps a torch optimizer")
        check_kind(network, RadNet, "ProjectedOptimizer needs a RadNet")
        space = InterpolatingSpace(network.widths, network.has_bias)
        space.require(network)
        self.optimizer = optimizer
        self.network = network
        self.space = space
        self._check_groups()
        # The base class would copy the groups; everything it keeps is the inner optimizer's, so it is not initialised.

    def _check_groups(self) -> None:
        own = {id(p) for p in self.network.parameters()}
        for k, group in enumerate(self.optimizer.param_groups):
            for p in group["params"]:
                if id(p) not in own:
                    raise InvalidValue(
                        f"parameter group {k} holds a parameter of shape {tuple(p.shape)} that is not one of this "
                        "network; build the optimizer from network.parameters()"
                    )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of the inner optimizer, then Proj."""
        loss = self.optimizer.step(closure)
        self.space.project_(self.network)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the inner optimizer does."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the inner optimizer; its parameters must be this network's."""
        self.optimizer.add_param_group(param_group)
        try:
            self._check_groups()
        except InvalidValue:
            self.optimizer.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """That of the inner optimizer: a projection has no state."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the inner optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet, or never
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "network": self.network, "space": self.space}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"ProjectedOptimizer({self.optimizer!r})"


def _clones(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if t is None else t.clone() for t in tensors]


def _norm(blocks: Sequence[Tensor]) -> float:
    return math.sqrt(math.fsum(float(torch.linalg.vector_norm(block.double())) ** 2 for block in blocks))
