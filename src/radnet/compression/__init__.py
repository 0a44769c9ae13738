"""Lossless compression: `compress` and what it returns.

Paper: "Model compression". `chain` is Algorithm 1, `certificate` what is measured afterwards, `closed_form` the remark
on networks without biases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InvalidType, InvalidValue
from ..network import NetworkT, RadNet
from .certificate import Certificate, verify
from .chain import qr_compress
from .closed_form import ClosedForm, closed_form
from .result import Compression, parameter_versions

__all__ = ["Certificate", "ClosedForm", "Compression", "closed_form", "compress", "verify"]

#: rows of normal inputs that the certificate is measured on when none are given
CERTIFICATE_ROWS = 256


def compress(
    model: NetworkT,
    example_inputs: Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Compression[NetworkT]:
    """The same function as a network of the reduced widths (thm:mod-comp, thm:withshift).

    Parameters
    ----------
    model : RadNet
        Not changed.
    example_inputs : Tensor, shape (rows, n_0), optional
        What the certificate is measured on; 256 normal rows by default.
    generator : torch.Generator, optional
        For those rows and for the perturbations behind D; by default a fresh one with a fixed seed.

    Returns
    -------
    Compression
        ``.network``, ``.certificate``, ``.report()``, and on request ``.action``, ``.transformed()``, ``.remainder()``.

    Raises
    ------
    InvalidType
        If the model is not a RadNet.
    InvalidValue
        If a parameter is NaN or infinite, or not initialised yet: the message names the layer.

    References
    ----------
    alg:QR-mod-comp.

    Examples
    --------
    >>> import radnet
    >>> c = radnet.compress(radnet.RadNet((1, 8, 16, 8, 1), activation="sigmoid"))
    >>> c.network.widths, c.network.parameter_count, c.certificate.lossless
    ((1, 2, 3, 4, 1), 34, True)
    """
    _check_model(model)
    first = model.weights[0]
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InvalidType(f"generator is a {type(generator).__name__}; expected a torch.Generator")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    x = _certificate_inputs(model, example_inputs, generator).to(first.device)
    reduced = qr_compress(model.weights, model.biases)
    network = model.with_parameters(reduced.weights, reduced.biases)
    certificate = verify(model, network, x, generator=generator)
    return Compression(network, certificate, model, reduced, parameter_versions(model))


def _certificate_inputs(model: RadNet, given: Tensor | None, generator: torch.Generator) -> Tensor:
    first = model.weights[0]
    if given is None:
        drawn = torch.randn(CERTIFICATE_ROWS, first.shape[1], generator=generator, device=generator.device)
        return drawn.to(first.dtype)
    model._check_input(given)
    if given.ndim < 2:
        given = given.unsqueeze(0)
    return given.detach()


def _check_model(model: nn.Module) -> None:
    """Say what is wrong with which layer, before anything is computed."""
    if not isinstance(model, RadNet):
        hint = "; give it model._orig_mod" if hasattr(model, "_orig_mod") else ""
        raise InvalidType(f"compress needs a radnet.RadNet, got {type(model).__name__}{hint}")
    model.check_initialised()
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        if p.device.type == "meta":
            raise InvalidValue(f"{name} is on the meta device and has no values; load weights, then compress")
    for i, (layer, rho) in enumerate(zip(model.layers, model.activations, strict=True), start=1):
        if not isinstance(layer, nn.Linear):
            raise InvalidType(f"layer {i}: is a {type(layer).__name__}; compress needs nn.Linear layers in a RadNet")
        if (layer.bias is None) == model.has_bias:
            raise InvalidValue(f"layer {i}: biases must be there in all layers or in none; use zeros")
        for what, value in (("weight", layer.weight), ("bias", layer.bias), ("shift", rho.shift)):
            if value is not None and not bool(value.isfinite().all()):
                raise InvalidValue(f"layer {i}: {what} holds NaN or infinite values; nothing was compressed")
