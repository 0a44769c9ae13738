"""`RadNet`, the paper's radial neural network, with shifts, partial feedforward functions and merged parameters.

Paper: "Radial neural networks" (widths, F_i, F), "Radial neural networks with shifts", "Merging widths and biases"
(eq:ext-map, eq:feedforward-merged). Differs: any leading batch shape, and biases may be absent altogether.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from . import fused, notebook
from .activations import RadialActivation, Shift
from .checks import as_tensors, check_dtype, check_features, check_kind, check_number, check_parameters, is_traced
from .choosing import ActivationLike, as_activation
from .errors import InvalidType, InvalidValue
from .initialization import balance, draw_balanced, draw_like_linear
from .linalg import pad
from .widths import check_widths

INITIALISATIONS = ("stable", "linear")
NetworkT = TypeVar("NetworkT", bound="RadNet")


class RadNet(notebook.Drawn, nn.Module):
    """A radial neural network: ``F_i(x) = rho_i(W_i F_{i-1}(x) + b_i)`` for i = 1, ..., L, with ``F_0(x) = x``.

    Parameters
    ----------
    widths : sequence of int
        ``(n_0, n_1, ..., n_L)``: input, hidden, output.
    activation : str, RadialActivation, or a sequence of L - 1 of them
        Of the hidden layers: "step_relu", "squash", "shifted_relu", "sigmoid", "identity", "sin", "gaussian", "tanh",
        "swish", a module, or one for each. Modules are copied, so every layer has a shift of its own.
    output : str or RadialActivation
        Activation of the last layer.
    shift : None, float or "trainable"
        Shift of the hidden activations that are given by name.
    bias : bool
        Whether the layers have biases.
    init : "stable" or "linear"
        "stable" keeps hidden norms level with depth for inputs of unit variance; "linear" is that of ``nn.Linear``.
    generator : torch.Generator, optional
        For the initial weights; torch's global one by default.
    device, dtype
        Of the parameters.

    References
    ----------
    "Radial neural networks".

    Examples
    --------
    >>> import torch, radnet
    >>> net = radnet.RadNet((1, 6, 7, 1), activation="sigmoid", shift="trainable")
    >>> net(torch.zeros(5, 1)).shape, net.parameter_count
    (torch.Size([5, 1]), 71)
    >>> net.widths
    (1, 6, 7, 1)
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: ActivationLike | Sequence[ActivationLike] = "shifted_relu",
        *,
        output: ActivationLike = "identity",
        shift: Shift = None,
        bias: bool = True,
        init: str = "stable",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n = check_widths(widths)
        check_dtype(dtype, "a radial network")
        hidden = _hidden_activations(activation, len(n) - 2, shift, device, dtype)
        last = as_activation(output, f"output layer {len(n) - 1}", None, device, dtype)
        place = device if device is not None else torch.get_default_device()
        layers = [
            nn.utils.skip_init(nn.Linear, n_in, n_out, bias=bias, device=place, dtype=dtype)
            for n_in, n_out in itertools.pairwise(n)
        ]
        self._assemble(layers, [*hidden, last])
        self.reset_parameters(init, generator)

    def _assemble(self, layers: Sequence[nn.Linear], activations: Sequence[RadialActivation]) -> None:
        self.layers = nn.ModuleList(layers)
        self.rescalings = nn.ModuleList(activations)

    @torch.no_grad()
    def reset_parameters(self, init: str = "stable", generator: torch.Generator | None = None) -> None:
        """Draw the weights and biases anew; shifts stay as they are.

        Parameters
        ----------
        init : "stable" or "linear"
            "stable" keeps hidden norms level with depth, "linear" is the law of ``nn.Linear``.
        generator : torch.Generator, optional
        """
        if init not in INITIALISATIONS:
            raise InvalidValue(f"init={init!r}: expected one of {', '.join(INITIALISATIONS)}")
        r = math.sqrt(self.widths[0])  # inputs of unit variance
        for layer, rho in zip(self._linears(), self.activations, strict=True):
            if layer.weight.device.type == "meta":
                continue
            if init == "linear":
                draw_like_linear(layer.weight, layer.bias, generator)
                continue
            last = rho is self.activations[-1]
            goal = balance(rho, layer.bias is not None, layer.weight.dtype, layer.weight.device)
            draw_balanced(layer.weight, layer.bias, r, None if last else goal, generator)
            r = goal.after

    # --- shape and parameters

    def _linears(self) -> list[nn.Linear]:
        return cast("list[nn.Linear]", list(self.layers))

    @property
    def widths(self) -> tuple[int, ...]:
        """``(n_0, n_1, ..., n_L)``."""
        layers = self._linears()
        return (layers[0].in_features, *(layer.out_features for layer in layers))

    @property
    def activations(self) -> tuple[RadialActivation, ...]:
        """``(rho_1, ..., rho_L)``."""
        return tuple(cast("list[RadialActivation]", list(self.rescalings)))

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """``(W_1, ..., W_L)``: the parameters themselves."""
        return tuple(layer.weight for layer in self._linears())

    @property
    def biases(self) -> tuple[Tensor | None, ...]:
        """``(b_1, ..., b_L)``: the parameters themselves, or L times None."""
        return tuple(layer.bias for layer in self._linears())

    @property
    def has_bias(self) -> bool:
        """Whether the layers have biases."""
        return self._linears()[0].bias is not None

    @property
    def parameter_count(self) -> int:
        """Number of trainable numbers: weights, biases, trainable shifts."""
        self.check_initialised()
        return sum(p.numel() for p in self.parameters())

    def check_initialised(self) -> None:
        """Raise `InvalidValue`, naming the layer, if a parameter is lazy and has no values yet."""
        for i, (layer, rho) in enumerate(zip(self.layers, self.rescalings, strict=True), start=1):
            for name, p in (*layer.named_parameters(), *rho.named_parameters()):
                if is_lazy(p):
                    raise InvalidValue(f"layer {i}: {name} is not initialised yet; run the network on a batch first")

    def merged(self) -> tuple[Tensor, ...]:
        """``A_i = [b_i W_i]`` for each layer; without biases the first column is 0 (`from_merged` makes it a bias).

        >>> net = RadNet((2, 3, 1))
        >>> [tuple(A.shape) for A in net.merged()]
        [(3, 3), (1, 4)]
        """
        self.check_initialised()
        return tuple(
            torch.cat([W.new_zeros(W.shape[0], 1) if b is None else b.unsqueeze(1), W], dim=1)
            for W, b in zip(self.weights, self.biases, strict=True)
        )

    # --- evaluation

    def forward(self, x: Tensor) -> Tensor:
        """``F(x) = F_L(x)``; x of shape (..., n_0)."""
        self._check_input(x)
        at_once = fused.forward(self._part("layers"), self._part("rescalings"), x) if isinstance(x, Tensor) else None
        if at_once is not None:
            return at_once
        for layer, rho in zip(self.layers, self.rescalings, strict=True):
            x = rho(layer(x))
        return x

    def partial(self, x: Tensor) -> list[Tensor]:
        """``[F_0(x), F_1(x), ..., F_L(x)]``, the partial feedforward functions.

        >>> [tuple(F.shape) for F in RadNet((2, 3, 1)).partial(torch.zeros(7, 2))]
        [(7, 2), (7, 3), (7, 1)]
        """
        self._check_input(x)
        F = [x]
        for layer, rho in zip(self.layers, self.rescalings, strict=True):
            F.append(rho(layer(F[-1])))
        return F

    def _part(self, name: str) -> nn.ModuleList:
        """``self.layers`` or ``self.rescalings``, without the long way that attributes of modules go."""
        found = self._modules.get(name)
        elsewhere = found is None or name in self.__dict__ or hasattr(type(self), name)
        return cast("nn.ModuleList", getattr(self, name) if elsewhere else found)

    def _check_input(self, x: Tensor) -> None:
        first = getattr(self._part("layers"), "_modules", {}).get("0")
        if type(x) is Tensor and type(first) is nn.Linear and not is_traced():  # what is looked at below, in short
            weight = first._parameters.get("weight")
            if weight is not None and x.dtype == weight.dtype and x.ndim and x.shape[-1] == first.in_features:
                return
        lazy = isinstance(self.layers[0], LazyModuleMixin)
        if (lazy and isinstance(x, Tensor)) or isinstance(x, Proxy):  # this call gives it its shape; torch.fx traces
            return
        W: object = None if lazy else self._linears()[0].weight  # of a quantised layer, a method
        check_features(x, "RadNet", self.widths[0], W.dtype if isinstance(W, Tensor) else None)

    def extra_repr(self) -> str:
        """Widths and parameter count."""
        lazy = any(is_lazy(p) for p in self.parameters())
        return f"widths={self.widths}, parameters={'not initialised' if lazy else self.parameter_count}"

    def _drawing(self) -> str:
        return notebook.layers(self.widths, [str(rho) for rho in self.activations])

    # --- from parameters

    @classmethod
    def from_parameters(
        cls: type[NetworkT],
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None] | None,
        activations: Sequence[ActivationLike],
    ) -> NetworkT:
        """Network with the given parameters, which are copied.

        Parameters
        ----------
        weights : L tensors of shapes (n_i, n_{i-1})
        biases : L tensors of shape (n_i,), or None for a network without biases
        activations : L names or modules, the last layer's included

        Raises
        ------
        InvalidValue, InvalidType
            Naming the layer (counted from 1, as in the paper), what came and what was needed.

        Examples
        --------
        >>> net = RadNet.from_parameters([torch.eye(2)], [torch.ones(2)], ["step_relu"])
        >>> net(torch.tensor([3.0, 4.0])).tolist()
        [4.0, 5.0]
        """
        W, b = check_parameters(weights, biases)
        if not isinstance(activations, Iterable):
            raise InvalidType(
                f"activations is a {type(activations).__name__}; give one for each layer, the last included"
            )
        activations = activations if isinstance(activations, str | RadialActivation) else list(activations)
        if isinstance(activations, str | RadialActivation) or len(activations) != len(W):
            count = 1 if isinstance(activations, str | RadialActivation) else len(activations)
            raise InvalidValue(f"got {count} activations for {len(W)} layers; give one for each, the last included")
        rhos = [
            as_activation(a, f"layer {i}", None, W[0].device, W[0].dtype) for i, a in enumerate(activations, start=1)
        ]
        net = cls.__new__(cls)
        nn.Module.__init__(net)
        net._assemble([linear_around(W_i, b_i) for W_i, b_i in zip(W, b, strict=True)], rhos)
        return net

    @classmethod
    def from_merged(cls: type[NetworkT], matrices: Sequence[Tensor], activations: Sequence[ActivationLike]) -> NetworkT:
        """Network with the merged parameters ``A_i = [b_i W_i]``, which are copied.

        >>> net = RadNet((2, 3, 1))
        >>> again = RadNet.from_merged(net.merged(), net.activations)
        >>> all(torch.equal(a, b) for a, b in zip(net.merged(), again.merged(), strict=True))
        True
        """
        A = as_tensors(matrices, "merged matrices")
        for i, A_i in enumerate(A, start=1):
            if A_i.ndim != 2 or A_i.shape[1] < 2:
                raise InvalidValue(f"layer {i}: merged matrix [b W] has shape {tuple(A_i.shape)}; needs (n, 1 + n_in)")
        return cls.from_parameters([A_i[:, 1:] for A_i in A], [A_i[:, 0] for A_i in A], activations)

    def with_parameters(self: NetworkT, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> NetworkT:
        """Copy of this network (class, activations, flags) with other weights and biases, of other widths if need be.

        The parameters are cast to the dtype and device of the ones they replace and keep their ``requires_grad``.
        """
        layers = []
        for old, W, b in zip(self._linears(), weights, biases, strict=True):
            copied = [None if p is None else p.detach().to(old.weight, copy=True) for p in (W, b)]  # nothing is shared
            layer = linear_around(cast("Tensor", copied[0]), copied[1], like=old)
            layer.weight.requires_grad_(old.weight.requires_grad)
            if layer.bias is not None and old.bias is not None:
                layer.bias.requires_grad_(old.bias.requires_grad)
            layers.append(layer)
        # the memo stands in for the old layers, so that the wide weights are never copied
        memo: dict[int, object] = {id(self.layers): nn.ModuleList(layers).train(self.layers.training)}
        for value in vars(self).values():  # deepcopy refuses tensors that have a history
            if isinstance(value, Tensor) and value.grad_fn is not None:
                memo[id(value)] = value.detach().clone()
        return copy.deepcopy(self, memo)


def widen(
    net: NetworkT, widths: Sequence[int], fill: float = 0.0, generator: torch.Generator | None = None
) -> NetworkT:
    """The same function as a wider network: the exact inclusion of parameter spaces.

    ``W_i`` sits in the top left corner, so the new hidden entries are always 0. The columns that read them are free:
    ``fill > 0`` draws them from N(0, fill^2), so that training can leave the narrow subspace.

    Parameters
    ----------
    net : RadNet
    widths : sequence of int
        As long as ``net.widths``, with the same input and output, nowhere smaller.
    fill : float
        Standard deviation of the free columns.
    generator : torch.Generator, optional

    Examples
    --------
    >>> net = RadNet((2, 3, 1))
    >>> x = torch.randn(5, 2)
    >>> torch.allclose(widen(net, (2, 9, 1), fill=0.1)(x), net(x))
    True
    """
    check_kind(net, RadNet, "widen needs a RadNet")
    net.check_initialised()
    n, old = check_widths(widths), net.widths
    if len(n) != len(old) or n[0] != old[0] or n[-1] != old[-1] or any(a < b for a, b in zip(n, old, strict=True)):
        raise InvalidValue(
            f"widths {n}: cannot widen a network of widths {old}; keep its depth, its input {old[0]} and "
            f"output {old[-1]}, and make no layer smaller"
        )
    if check_number("fill", fill) < 0:
        raise InvalidValue(f"fill={fill!r}: expected a number that is not negative")
    weights, biases = [], []
    for i, (W, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        wide = pad(W.detach(), n[i + 1], n[i])
        if fill > 0 and n[i] > old[i]:
            device = generator.device if generator is not None else W.device
            drawn = torch.randn(n[i + 1], n[i] - old[i], generator=generator, dtype=torch.float64, device=device)
            wide[:, old[i] :] = (fill * drawn).to(W)
        weights.append(wide)
        biases.append(None if b is None else pad(b.detach().unsqueeze(1), n[i + 1], 1).squeeze(1))
    return net.with_parameters(weights, biases)


def linear_around(W: Tensor, b: Tensor | None, like: nn.Linear | None = None) -> nn.Linear:
    """nn.Linear around given tensors, without drawing weights first; with the hooks and the mode of another one."""
    layer = nn.Linear(W.shape[1], W.shape[0], bias=b is not None, device="meta", dtype=W.dtype)
    if type(like) is nn.Linear:
        kept = {
            name: value.copy() for name, value in vars(like).items() if name.endswith(("_hooks", "_hooks_with_kwargs"))
        }
        vars(layer).update(kept)
    if like is not None:
        layer.train(like.training)
    layer.weight = nn.Parameter(W.detach().contiguous())
    if b is not None:
        layer.bias = nn.Parameter(b.detach().contiguous())
    return layer


def _hidden_activations(
    activation: ActivationLike | Sequence[ActivationLike],
    count: int,
    shift: Shift,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> list[RadialActivation]:
    if isinstance(activation, Sequence) and not isinstance(activation, str):
        if len(activation) != count:
            raise InvalidValue(f"got {len(activation)} activations for {count} hidden layers; give one name or {count}")
        given: list[ActivationLike] = list(activation)
    else:
        given = [activation] * max(count, 1)
    found = [as_activation(a, f"layer {i}", shift, device, dtype) for i, a in enumerate(given, start=1)]
    return found[:count]
