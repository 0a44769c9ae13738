"""`RBFNetwork`, the constrained multilayer RBF network, and the two conversions that make it a radial network.

Paper: "Relation to radial basis function networks" (app:rbfns), the constrained multilayer case and its proposition.
Differs: the proof concludes from l = L, but it is F_{L+1} that is G_L (F_L is W_L G_{L-1}); any leading batch shape;
biases may be absent altogether; the rescalings are used as they are, so nothing needs lambda = h/r to be bounded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from .. import notebook
from ..activations import RadialActivation, Shift
from ..checks import as_tensors, check_dtype, check_features, check_kind, check_parameters
from ..choosing import ActivationLike, as_activation
from ..errors import InvalidType, InvalidValue
from ..files import describe, dtype_of, rebuild
from ..initialization import balance, draw_balanced
from ..network import RadNet
from ..origin import accumulation_dtype, less_shift
from ..widths import check_widths

NetworkT = TypeVar("NetworkT", bound="RBFNetwork")


class RBFNetwork(notebook.Drawn, nn.Module):
    """A constrained multilayer RBF network: ``F_l(x) = W_l rho_{l-1}(F_{l-1}(x) + b_{l-1})``, with ``F_0(x) = x``.

    Constrained: each layer has one centre, ``-b_{l-1}``, a local linear model ``W_l`` and no constant term.

    Parameters
    ----------
    widths : sequence of int
        ``(n_0, n_1, ..., n_L)``.
    activation : str, RadialActivation, or a sequence of L of them
        ``rho_0, ..., rho_{L-1}``: a name, a module, or one for each layer. Modules are copied.
    shift : None, float or "trainable"
        Shift of the activations that are given by name.
    bias : bool
        Whether there are biases ``b_0, ..., b_{L-1}``; without them every centre is 0.
    generator : torch.Generator, optional
        For the initial weights, which keep norms level with depth as those of `RadNet` do; ``b_0`` starts at 0.
    device, dtype
        Of the parameters.

    References
    ----------
    app:rbfns, "Constrained multilayer case".

    Examples
    --------
    >>> import torch
    >>> from radnet.rbf import RBFNetwork
    >>> rbfn = RBFNetwork((2, 8, 8, 1), "squash")
    >>> rbfn(torch.zeros(5, 2)).shape, [tuple(b.shape) for b in rbfn.biases]
    (torch.Size([5, 1]), [(2,), (8,), (8,)])
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: ActivationLike | Sequence[ActivationLike] = "shifted_relu",
        *,
        shift: Shift = None,
        bias: bool = True,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n = check_widths(widths)
        check_dtype(dtype, "an RBF network")
        rhos = _activations(activation, len(n) - 1, shift, device, dtype, every=True)
        W = [torch.empty(n_out, n_in, device=device, dtype=dtype) for n_in, n_out in itertools.pairwise(n)]
        b = [torch.empty(n_in, device=device, dtype=dtype) for n_in in n[:-1]] if bias else []
        self._assemble(W, b, rhos)
        self.reset_parameters(generator)

    def _assemble(self, W: Sequence[Tensor], b: Sequence[Tensor], rhos: Sequence[RadialActivation]) -> None:
        self.W = nn.ParameterList(W)
        self.b = nn.ParameterList(b)
        self.rescalings = nn.ModuleList(rhos)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights and biases anew; shifts stay as they are."""
        W, b, rhos = self.weights, self.biases, self.activations
        if W[0].is_meta:
            return
        if b[0] is not None:
            b[0].zero_()
        r = _norm_after(rhos[0], math.sqrt(self.widths[0]), W[0])  # inputs of unit variance
        for i, W_i in enumerate(W[:-1], start=1):
            goal = balance(rhos[i], b[i] is not None, W_i.dtype, W_i.device)
            draw_balanced(W_i, b[i], r, goal, generator)
            r = goal.after
        draw_balanced(W[-1], None, r, None, generator)

    # --- shape and parameters

    @property
    def widths(self) -> tuple[int, ...]:
        """``(n_0, n_1, ..., n_L)``."""
        return (self.weights[0].shape[1], *(W.shape[0] for W in self.weights))

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """``(W_1, ..., W_L)``: the parameters themselves."""
        return tuple(self.W)

    @property
    def biases(self) -> tuple[Tensor | None, ...]:
        """``(b_0, ..., b_{L-1})``: the parameters themselves, or L times None."""
        return tuple(self.b) if len(self.b) else (None,) * len(self.W)

    @property
    def activations(self) -> tuple[RadialActivation, ...]:
        """``(rho_0, ..., rho_{L-1})``."""
        return tuple(cast("list[RadialActivation]", list(self.rescalings)))

    @property
    def has_bias(self) -> bool:
        """Whether there are biases."""
        return len(self.b) > 0

    @property
    def parameter_count(self) -> int:
        """Number of trainable numbers: weights, biases, trainable shifts."""
        return sum(p.numel() for p in self.parameters())

    # --- evaluation

    def forward(self, x: Tensor) -> Tensor:
        """``F_L(x)``; x of shape (..., n_0)."""
        return self.partial(x)[-1]

    def partial(self, x: Tensor) -> list[Tensor]:
        """``[F_0(x), F_1(x), ..., F_L(x)]``, the partial feedforward functions.

        >>> [tuple(F.shape) for F in RBFNetwork((2, 3, 1)).partial(torch.zeros(7, 2))]
        [(7, 2), (7, 3), (7, 1)]
        """
        check_features(x, "RBFNetwork", self.widths[0], self.weights[0].dtype)
        F = [x]
        for W, b, rho in zip(self.weights, self.biases, self.activations, strict=True):
            F.append(nn.functional.linear(rho(F[-1] if b is None else F[-1] + b), W))
        return F

    def extra_repr(self) -> str:
        """Widths and parameter count."""
        return f"widths={self.widths}, parameters={self.parameter_count}"

    @property
    def made_with(self) -> dict[str, object] | None:
        """What a file says of it, so that `radnet.load` makes it again; None if an activation has no name."""
        try:
            described = [describe(rho, i) for i, rho in enumerate(self.activations, start=1)]
        except InvalidValue:
            return None
        dtype = str(self.weights[0].dtype).removeprefix("torch.")
        return {"widths": list(self.widths), "bias": self.has_bias, "dtype": dtype, "activations": described}

    @classmethod
    def of_header(cls: type[NetworkT], said: Mapping[str, Any]) -> NetworkT:
        """A network of the kind that a file describes, whose weights have no values yet."""
        n = check_widths(said["widths"])
        rhos = [rebuild(entry, i, {}, said["dtype"]) for i, entry in enumerate(said["activations"], start=1)]
        return cls(n, rhos, bias=said["bias"], device="meta", dtype=dtype_of(said["dtype"]))

    def _drawing(self) -> str:
        return notebook.layers(self.widths, [f"{rho} before it" for rho in self.activations])

    # --- from parameters

    @classmethod
    def from_parameters(
        cls: type[NetworkT],
        weights: Sequence[Tensor],
        biases: Sequence[Tensor] | None,
        activations: Sequence[ActivationLike],
    ) -> NetworkT:
        """Network with the given parameters, which are copied.

        Parameters
        ----------
        weights : L tensors ``W_1, ..., W_L`` of shapes (n_l, n_{l-1})
        biases : L tensors ``b_0, ..., b_{L-1}`` of shapes (n_l,), or None for a network without biases
        activations : L names or modules, ``rho_0, ..., rho_{L-1}``

        Raises
        ------
        InvalidValue, InvalidType
            Naming the layer (counted from 1), what came and what was needed.

        Examples
        --------
        >>> rbfn = RBFNetwork.from_parameters([2 * torch.eye(2)], [torch.ones(2)], ["step_relu"])
        >>> rbfn(torch.tensor([3.0, 4.0])).tolist()
        [8.0, 10.0]
        """
        W, _ = check_parameters(weights, None)
        b = [] if biases is None else _check_biases(biases, W)
        rhos = _activations(activations, len(W), None, W[0].device, W[0].dtype, every=False)
        rbfn = cls.__new__(cls)
        nn.Module.__init__(rbfn)
        rbfn._assemble(W, b, rhos)
        return rbfn


def to_rbf(net: RadNet) -> RBFNetwork:
    """The constrained multilayer RBF network with the same feedforward function as a radial network.

    Widths ``(n_0, ..., n_L, n_L)``; to the W_l, b_l and rho_l come ``b_0 = 0``, ``rho_0 = id`` and ``W_{L+1} = id``.
    Then ``F_l = W_l G_{l-1}`` for l = 1, ..., L+1, where G are the partial functions of the network, so F_{L+1} = G_L.

    Parameters
    ----------
    net : RadNet
        It is not changed; parameters and activations are copied.

    References
    ----------
    app:rbfns, the proposition, first statement.

    Examples
    --------
    >>> import radnet
    >>> net = radnet.RadNet((2, 5, 1))
    >>> rbfn = radnet.rbf.to_rbf(net)
    >>> x = torch.randn(4, 2)
    >>> rbfn.widths, torch.allclose(rbfn(x), net(x))
    ((2, 5, 1, 1), True)
    """
    check_kind(net, RadNet, "to_rbf needs a RadNet")
    net.check_initialised()
    like = net.weights[0].detach()
    W = [*net.weights, _eye(net.widths[-1], like)]
    b = [like.new_zeros(net.widths[0]), *cast("tuple[Tensor, ...]", net.biases)] if net.has_bias else None
    return RBFNetwork.from_parameters(W, b, ["identity", *net.activations])


def from_rbf(rbfn: RBFNetwork) -> RadNet:
    """The radial network with the same feedforward function as a constrained multilayer RBF network.

    Widths ``(n_0, n_0, ..., n_L)``; ``W~_1 = id``, ``W~_{l+1} = W_l``, ``b~_{l+1} = b_l``, ``b~_{L+1} = 0``,
    ``rho~_{l+1} = rho_l`` and ``rho~_{L+1} = id``. Then ``F_l = W_l G_l``, and ``G_{L+1} = F_L``.

    Parameters
    ----------
    rbfn : RBFNetwork
        It is not changed; parameters and activations are copied.

    References
    ----------
    app:rbfns, the proposition, second statement.

    Examples
    --------
    >>> import radnet
    >>> rbfn = radnet.rbf.RBFNetwork((2, 50, 50, 1), "sigmoid")
    >>> net = radnet.rbf.from_rbf(rbfn)
    >>> net.widths, radnet.compress(net).network.widths
    ((2, 2, 50, 50, 1), (2, 2, 3, 4, 1))
    """
    if not isinstance(rbfn, RBFNetwork):
        raise InvalidType(f"from_rbf needs an RBFNetwork, got {type(rbfn).__name__}; an RBFLayer is as_blocks(layer)")
    like = rbfn.weights[0].detach()
    W = [_eye(rbfn.widths[0], like), *rbfn.weights]
    b = [*rbfn.biases, like.new_zeros(rbfn.widths[-1])] if rbfn.has_bias else None
    return RadNet.from_parameters(W, b, [*rbfn.activations, "identity"])


def _eye(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device)


def _norm_after(rho: RadialActivation, r: float, like: Tensor) -> float:
    """``|rho(v)|`` for |v| = r; r itself where that gives nothing to divide by."""
    norm = torch.full((1,), r, dtype=accumulation_dtype(like.dtype), device=like.device)
    with torch.no_grad():
        after = abs(float(rho.profile(less_shift(norm, None if rho.shift is None else rho.shift.to(norm)))))
    return after if 0 < after < math.inf else r


def _activations(
    given: object,
    count: int,
    shift: Shift,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
    *,
    every: bool,
) -> list[RadialActivation]:
    """rho_0, ..., rho_{L-1}: one for each layer, or (``every``) one for all of them."""
    listed: list[object]
    if isinstance(given, str | RadialActivation) or not isinstance(given, Iterable):
        listed = [given] * (count if every else 1)
    else:
        listed = list(given)
    if len(listed) != count:
        raise InvalidValue(f"got {len(listed)} activations for {count} layers; give one for each, rho_0 first")
    return [as_activation(a, f"layer {i}", shift, device, dtype) for i, a in enumerate(listed, start=1)]


def _check_biases(biases: Iterable[object], W: Sequence[Tensor]) -> list[Tensor]:
    b = as_tensors(biases, "biases")
    if len(b) != len(W):
        raise InvalidValue(f"got {len(W)} weights and {len(b)} biases; give b_0, ..., b_{len(W) - 1}, or None for none")
    for i, (W_i, b_i) in enumerate(zip(W, b, strict=True), start=1):
        if b_i.shape != (W_i.shape[1],):
            raise InvalidValue(
                f"layer {i}: bias b_{i - 1} has shape {tuple(b_i.shape)}; needs ({W_i.shape[1]},), "
                "since it is added to what the layer reads"
            )
        if (b_i.dtype, b_i.device) != (W[0].dtype, W[0].device):
            raise InvalidType(
                f"layer {i}: bias b_{i - 1} is {b_i.dtype} on {b_i.device}, "
                f"but the weight of layer 1 is {W[0].dtype} on {W[0].device}"
            )
    return [b_i.detach().clone() for b_i in b]
