"""Lossless compression: `compress` and what it returns.

Paper: "Model compression". `chain` is Algorithm 1, `certificate` what is measured afterwards, `closed_form` the remark
on networks without biases. For any other module: `program` traces it, `norms` folds its norm layers, `graph` finds its
spaces, `spans` what can ever stand in them, `bases` their smallest bases, `surgery` the new layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import torch
from torch import Tensor, nn

from ..errors import InvalidType, InvalidValue
from ..network import NetworkT, RadNet
from .bases import SpaceReport
from .certificate import Certificate, check_mode, verify
from .chain import qr_compress
from .closed_form import ClosedForm, closed_form
from .general import compress_model
from .model import ModelCompression
from .result import Compression, parameter_versions

__all__ = [
    "Certificate",
    "ClosedForm",
    "Compression",
    "ModelCompression",
    "SpaceReport",
    "closed_form",
    "compress",
    "verify",
]

ModelT = TypeVar("ModelT", bound=nn.Module)

#: rows of normal inputs that the certificate is measured on when none are given
CERTIFICATE_ROWS = 256


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
    example_inputs : Tensor of shape (rows, ...), or a sequence of tensors, optional
        What the certificate is measured on, and what other modules are traced with; 256 normal rows by default, where
        the model says how wide they are.
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
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InvalidType(f"generator is a {type(generator).__name__}; expected a torch.Generator")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 <= tol < 1):
        raise InvalidValue(f"tol={tol!r}: expected a number from 0 to 1, for example 1e-6")
    if isinstance(model, RadNet) and data is None and tol is None and not rewrite:
        return _compress_chain(model, example_inputs, generator)
    return _compress_any(model, example_inputs, tol, data, rewrite, generator)


def _compress_chain(model: NetworkT, example_inputs: Any, generator: torch.Generator) -> Compression[NetworkT]:
    _check_model(model)
    x = _certificate_inputs(model, example_inputs, generator).to(model.weights[0].device)
    reduced = qr_compress(model.weights, model.biases)
    network = model.with_parameters(reduced.weights, reduced.biases)
    certificate = verify(model, network, x, generator=generator)
    return Compression(network, certificate, model, reduced, parameter_versions(model))


def _compress_any(
    model: ModelT,
    example_inputs: Any,
    tol: float | None,
    data: Tensor | None,
    rewrite: bool,
    generator: torch.Generator,
) -> ModelCompression[ModelT]:
    if not isinstance(model, nn.Module) or hasattr(model, "_orig_mod"):
        hint = "; give it model._orig_mod" if hasattr(model, "_orig_mod") else ""
        raise InvalidType(f"compress needs an nn.Module, got {type(model).__name__}{hint}")
    check_mode(model, "")
    _check_tensors(model)
    inputs = _inputs_for(model, example_inputs if data is None else data, generator)
    smaller = compress_model(model, inputs, tol=tol, data=data, rewrite=rewrite)
    certificate = _certified(model, smaller.network, inputs, tol, generator)
    if smaller.traced_by == "torch.export":  # which took the number of rows for a constant
        more = _with_another_row(inputs)
        if _runs(model, more):
            _certified(model, smaller.network, more, tol, generator)
    return ModelCompression(
        smaller.network, certificate, model, smaller.spaces, inputs, smaller.traced_by, smaller.bound, smaller.edges
    )


def _certified(
    model: nn.Module, small: nn.Module, inputs: Sequence[Tensor], tol: float | None, generator: torch.Generator
) -> Certificate:
    """The certificate of a smaller model; nothing that is not the same function gets away without a tolerance."""
    try:
        certificate = verify(model, small, inputs, generator=generator)
    except RuntimeError as error:
        raise InvalidValue(
            f"{type(model).__name__}: the smaller model does not run ({error}); its forward relies on the width of a "
            "hidden layer in a way that cannot be seen by tracing it once. Nothing was changed"
        ) from error
    if not certificate.lossless and tol is None:
        raise InvalidValue(
            f"{type(model).__name__}: the smaller model does not give the same outputs ({certificate.rows_failed} of "
            f"{certificate.rows} rows differ, by {certificate.max_gap:.3g}); its forward does something that cannot be "
            "seen by tracing it once. Nothing was changed"
        )
    return certificate


def _with_another_row(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    rows = len(inputs[0])
    return tuple(torch.cat([x, x[:1]]) if x.ndim and len(x) == rows else x for x in inputs)


def _runs(model: nn.Module, inputs: Sequence[Tensor]) -> bool:
    try:
        with torch.no_grad():
            model(*inputs)
    except Exception:  # whatever a model says to inputs of another shape
        return False
    return True


def _inputs_for(model: nn.Module, given: Any, generator: torch.Generator) -> tuple[Tensor, ...]:
    if given is not None:
        inputs = (given,) if isinstance(given, Tensor) else tuple(given)
        return tuple(x.detach() if isinstance(x, Tensor) else x for x in inputs)
    first = next((m for m in model.modules() if not list(m.children()) and list(m.parameters(recurse=False))), None)
    if not isinstance(first, nn.Linear):
        kind = "it has no layers" if first is None else f"its first layer is a {type(first).__name__}"
        raise InvalidValue(
            f"{type(model).__name__}: compress has to run it once, and {kind}, which does not say how large inputs "
            "are; give example_inputs"
        )
    x = torch.randn(CERTIFICATE_ROWS, first.in_features, generator=generator, device=generator.device)
    return (x.to(first.weight),)


def _certificate_inputs(model: RadNet, given: Tensor | None, generator: torch.Generator) -> Tensor:
    first = model.weights[0]
    if given is None:
        drawn = torch.randn(CERTIFICATE_ROWS, first.shape[1], generator=generator, device=generator.device)
        return drawn.to(first.dtype)
    model._check_input(given)
    if given.ndim < 2:
        given = given.unsqueeze(0)
    return given.detach()


def _check_model(model: RadNet) -> None:
    """Say what is wrong with which layer, before anything is computed."""
    model.check_initialised()
    _check_tensors(model, finite=False)
    for i, (layer, rho) in enumerate(zip(model.layers, model.activations, strict=True), start=1):
        if not isinstance(layer, nn.Linear):
            raise InvalidType(f"layer {i}: is a {type(layer).__name__}; compress needs nn.Linear layers in a RadNet")
        if (layer.bias is None) == model.has_bias:
            raise InvalidValue(f"layer {i}: biases must be there in all layers or in none; use zeros")
        for what, value in (("weight", layer.weight), ("bias", layer.bias), ("shift", rho.shift)):
            if value is not None and not bool(value.isfinite().all()):
                raise InvalidValue(f"layer {i}: {what} holds NaN or infinite values; nothing was compressed")


def _check_tensors(model: nn.Module, *, finite: bool = True) -> None:
    """Refuse what has no ordinary numbers; a RadNet says itself which layer holds NaN."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    devices = {p.device: name for name, p in tensors}
    if len(devices) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise InvalidValue(f"the model is on several devices ({where}); move it to one, then compress")
    for name, p in tensors:
        if p.device.type == "meta":
            raise InvalidValue(f"{name} is on the meta device and has no values; load weights, then compress")
        if p.is_complex():
            raise InvalidValue(f"{name} is complex; radial activations rescale by norms of real entries")
        if p.is_sparse or p.is_quantized or p.layout != torch.strided:
            raise InvalidValue(f"{name} is sparse or quantised; compress needs ordinary tensors")
        if finite and p.is_floating_point() and not bool(p.isfinite().all()):
            raise InvalidValue(f"{name} holds NaN or infinite values; nothing was compressed")
