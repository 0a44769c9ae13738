"""`RBFLayer`: the RBF network with N centres and local linear models.

Paper: "Relation to radial basis function networks", the single layer case (app:rbfns). Differs: lambda sees
``|x + b_i| / width``, and a_i or W_i may be left out. lambda must be finite at 0 (see `kernel_of`).
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..checks import check_dtype, check_features, check_number, check_size
from ..errors import InvalidType, InvalidValue
from ..origin import accumulation_dtype
from ..profiles import identity, identity_slope
from ..rescaling import composed
from .kernels import Kernel, as_kernel

LayerT = TypeVar("LayerT", bound="RBFLayer")


class RBFLayer(nn.Module):
    """An RBF network with N centres: ``F(x) = sum_i (a_i + W_i (x + b_i)) lambda(|x + b_i| / width)``.

    The centres are ``-b_i``. With only the a_i it is the classical RBF network; with the W_i each centre has a local
    linear model. Exactly at a centre the derivative of the norm is taken as 0.

    Parameters
    ----------
    n_in, n_out : int
        n and m.
    count : int
        N, the number of centres.
    kernel : str or callable
        lambda: "gaussian", "multiquadric", "inverse_multiquadric", or any function of a tensor of norms, elementwise
        and finite at 0. Modules are copied and trained along.
    width : float, optional
        By default ``sqrt(n_in)`` for a kernel given by name, the size of an input of unit variance, and 1 for another.
    weights, matrices : bool
        Whether there are a_i, and whether there are W_i.
    generator : torch.Generator, optional
        For the initial parameters: standard normal centres, and outputs of unit variance on such inputs.
    device, dtype
        Of the parameters.

    Attributes
    ----------
    biases : Parameter, shape (N, n)
        The b_i.
    matrices : Parameter, shape (N, m, n), or None
        The W_i.
    weights : Parameter, shape (N, m), or None
        The a_i.

    References
    ----------
    app:rbfns, "Single layer case".

    Examples
    --------
    >>> import torch
    >>> from radnet.rbf import RBFLayer
    >>> layer = RBFLayer.from_centres(torch.zeros(1, 2), 1, width=5.0, matrices=False)
    >>> with torch.no_grad():
    ...     _ = layer.weights.fill_(2.0)
    >>> layer(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()  # 2 and 2/e
    [[2.0], [0.735758900642395]]
    """

    matrices: Tensor | None
    weights: Tensor | None

    def __init__(
        self,
        n_in: int,
        n_out: int,
        count: int,
        kernel: str | Kernel = "gaussian",
        *,
        width: float | None = None,
        weights: bool = True,
        matrices: bool = True,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n, m, N = (check_size(what, k) for what, k in (("n_in", n_in), ("n_out", n_out), ("count", count)))
        check_dtype(dtype, "an RBF layer")
        if not weights and not matrices:
            raise InvalidValue("weights=False, matrices=False: nothing is left of the layer; keep one of them")
        if width is not None and check_number("width", width) <= 0:
            raise InvalidValue(f"width={width!r}: expected a number above 0")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.width = float(width) if width is not None else math.sqrt(n) if isinstance(kernel, str) else 1.0
        self.biases = nn.Parameter(torch.empty(N, n, **place))
        for name, shape in (("matrices", (N, m, n) if matrices else None), ("weights", (N, m) if weights else None)):
            self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape, **place)))
        self.kernel = as_kernel(kernel, self.biases)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters anew, those of the kernel excepted."""
        if self.biases.is_meta:
            return
        N, n = self.biases.shape
        self.biases.normal_(generator=generator)
        r = math.sqrt(2 * n)  # the distance of a standard normal input from such a centre
        at = torch.full((1,), r / self.width, dtype=accumulation_dtype(self.biases.dtype), device=self.biases.device)
        at_r = abs(float(self.kernel(at)))
        terms = N * ((self.matrices is not None) + (self.weights is not None))
        std = 1 / math.sqrt(terms) / (max(at_r, 0.1) if math.isfinite(at_r) else 1.0)
        for parameter, size in ((self.matrices, r), (self.weights, 1.0)):
            if parameter is not None:
                parameter.normal_(std=std / size, generator=generator)

    @classmethod
    def from_centres(
        cls: type[LayerT], centres: Tensor, n_out: int, kernel: str | Kernel = "gaussian", **keywords: Any
    ) -> LayerT:
        """Layer with the given centres ``-b_i``, which are copied; its dtype and device are theirs.

        Parameters
        ----------
        centres : Tensor, shape (N, n)
        n_out, kernel, **keywords
            As for the class.

        Examples
        --------
        >>> RBFLayer.from_centres(torch.eye(3), 2, "multiquadric").centres.tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        if not isinstance(centres, Tensor) or not centres.is_floating_point():
            kind = centres.dtype if isinstance(centres, Tensor) else type(centres).__name__
            raise InvalidType(f"centres: expected a floating-point tensor of shape (N, n), got {kind}")
        if centres.ndim != 2 or 0 in centres.shape:
            raise InvalidValue(f"centres have shape {tuple(centres.shape)}; needs (N, n), one centre a row")
        N, n = centres.shape
        layer = cls(n, n_out, N, kernel, device=centres.device, dtype=centres.dtype, **keywords)
        with torch.no_grad():
            layer.biases.copy_(0 - centres)  # 0 - 0 is 0, where -0 is not
        return layer

    @property
    def centres(self) -> Tensor:
        """``-b_i``, shape (N, n)."""
        return 0 - self.biases.detach()

    @property
    def n_in(self) -> int:
        """n, the number of inputs."""
        return self.biases.shape[1]

    @property
    def n_out(self) -> int:
        """m, the number of outputs."""
        given = self.weights if self.weights is not None else self.matrices
        return 0 if given is None else given.shape[1]

    @property
    def count(self) -> int:
        """N, the number of centres."""
        return self.biases.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """``F(x)``; x of shape (..., n)."""
        check_features(x, "RBFLayer", self.n_in, self.biases.dtype)
        v = x.unsqueeze(-2) + self.biases  # (..., N, n)
        r = composed(v, identity, identity_slope, None, v.ndim - 1)[1]  # norms over the whole range of the dtype
        s = self.kernel(r / self.width).to(v.dtype)  # (..., N, 1)
        terms = []
        if self.matrices is not None:
            terms.append(nn.functional.linear((s * v).flatten(-2), self.matrices.transpose(0, 1).flatten(1)))
        if self.weights is not None:
            terms.append(nn.functional.linear(s.squeeze(-1), self.weights.mT))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def extra_repr(self) -> str:
        """Sizes, kernel, and what is left out."""
        parts = [f"{self.n_in}, {self.n_out}, count={self.count}"]
        if not isinstance(self.kernel, nn.Module):
            parts.append(f"kernel={getattr(self.kernel, '__name__', repr(self.kernel))}")
        parts.append(f"width={self.width:g}")
        parts += [f"{name}=False" for name in ("weights", "matrices") if getattr(self, name) is None]
        return ", ".join(parts)
