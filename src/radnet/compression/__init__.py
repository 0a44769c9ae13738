"""Lossless compression: `compress` and what it returns.

Paper: "Model compression". `chain` is Algorithm 1, `closed_form` the remark on networks without biases. For any other
module `pipeline` is the way: it names the files in the order in which a model meets them, and docs/architecture.md
draws it. `operations` is the place to teach it a layer, `register` the door for layers of your own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import torch
from torch import Tensor, nn

from ..errors import InvalidValue, RadNetError
from ..network import NetworkT
from .arguments import CERTIFICATE_ROWS, check_model, check_options, inputs_for, is_chain
from .closed_form import ClosedForm, closed_form
from .judging.certificate import Certificate
from .judging.given import undisturbed
from .judging.judge import verify
from .model import ModelCompression
from .operations import register, unregister
from .pipeline import Wish, compress_any, compress_chain
from .program import Operation, Step
from .reasons import Reason
from .result import Compression
from .spaces.layouts import SpaceReport

__all__ = [
    "CERTIFICATE_ROWS",
    "Certificate",
    "ClosedForm",
    "Compression",
    "ModelCompression",
    "Operation",
    "Reason",
    "SpaceReport",
    "Step",
    "closed_form",
    "compress",
    "register",
    "unregister",
    "verify",
]

ModelT = TypeVar("ModelT", bound=nn.Module)


@overload
def compress(  # type: ignore[overload-overlap]
    model: NetworkT,
    example_inputs: Tensor | None = None,
    *,
    tol: None = None,
    data: None = None,
    rewrite: Literal[False] = False,
    generator: torch.Generator | None = None,
) -> Compression[NetworkT]: ...
@overload
def compress(
    model: ModelT,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    tol: float | None = None,
    data: Tensor | None = None,
    rewrite: bool = False,
    generator: torch.Generator | None = None,
) -> ModelCompression[ModelT]: ...
def compress(
    model: Any,
    example_inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    tol: float | None = None,
    data: Tensor | None = None,
    rewrite: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """The same function with smaller layers (thm:mod-comp, thm:withshift, and beyond chains).

    Parameters
    ----------
    model : RadNet, or any nn.Module with radial parts
        Not changed. For a RadNet this is the paper's algorithm; of another module a copy comes back in which every
        hidden space that can take another basis has its smallest one.
    example_inputs : Tensor of shape (rows, ...), or a tuple with one entry for each argument, optional
        What the certificate is measured on, and what other modules are traced with; 256 normal rows by default, where
        the model says how wide they are. Equality is also judged on other inputs like them (``certificate.tried``).
    tol : float, optional
        Directions of a space whose singular value is below this share of its largest are left out. What that can do
        to the outputs is bounded where every profile on the way is Lipschitz (``.bound``); what it did is measured.
    data : Tensor, shape (rows, n), optional
        All inputs that matter: what holds on their affine hull is enough. The certificate is measured on them.
    rewrite : bool
        Return an fx GraphModule instead of your own class: a residual stream then grows along the way, with zeros put
        behind it where it is added to. Under an untouched forward it has one width throughout.
    generator : torch.Generator, optional
        For normal rows and for the perturbations behind D; by default a fresh one with a fixed seed.

    Returns
    -------
    Compression or ModelCompression
        ``.network``, ``.certificate``, ``.report()``; for a RadNet, on request, ``.action``, ``.transformed()`` and
        ``.remainder()``; for other modules ``.spaces``.

    Raises
    ------
    InvalidType
        If the model is not a module.
    InvalidValue
        If a parameter is NaN or infinite, or not initialised yet; if the model is in training mode and that matters;
        if it cannot be traced. The message names the place.

    References
    ----------
    alg:QR-mod-comp.

    Examples
    --------
    >>> import radnet
    >>> c = radnet.compress(radnet.RadNet((1, 8, 16, 8, 1), activation="sigmoid"))
    >>> c.network.widths, c.network.parameter_count, c.certificate.lossless
    ((1, 2, 3, 4, 1), 34, True)
    >>> block = nn.Sequential(nn.Conv2d(1, 64, 3), radnet.Squash(dim=1), nn.Conv2d(64, 2, 3))
    >>> radnet.compress(block, torch.randn(4, 1, 8, 8)).network[0]
    Conv2d(1, 10, kernel_size=(3, 3), stride=(1, 1))
    """
    check_options(tol, data, generator)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    with undisturbed():
        try:
            check_model(model)
            call = inputs_for(model, example_inputs if data is None else data, generator)
            if data is None and tol is None and not rewrite and is_chain(model):
                return compress_chain(model, call, generator)
            return compress_any(Wish(model, call, tol, data, rewrite, generator))
        except RadNetError:
            raise
        except Exception as error:
            raise InvalidValue(
                f"{type(model).__name__}: something that compress did not expect ({type(error).__name__}: {error}); "
                "nothing was changed. This should not happen, please report it"
            ) from error
