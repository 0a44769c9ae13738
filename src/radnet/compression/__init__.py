"""Lossless compression: `compress` and what it returns.

Paper: "Model compression". `chain` is Algorithm 1, `judging` judges what comes out, `closed_form` is the remark on
networks without biases. For any other module: `exploring` runs copies of it on the given inputs and on `variations` of
them and keeps what ran (`recording`), `program` and `exported` trace it, `memory` follows what is written in place,
`trust` decides which modules are what they seem, `norms` folds norm layers, `graph` finds the spaces, `spans` what can
ever stand in them, `bases` their smallest bases, `surgery` the new layers. `general` is the way through all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import torch
from torch import Tensor, nn

from ..activations import RadialActivation
from ..errors import InvalidType, InvalidValue, RadNetError
from ..network import NetworkT, RadNet
from ..running import Call, Ran, as_float64, copied, run
from .bases import SpaceReport
from .certificate import Certificate
from .chain import qr_compress
from .closed_form import ClosedForm, closed_form
from .exploring import Explored, Explorer
from .general import compress_model
from .given import as_call, check_inputs, check_mode, does_not_run, undisturbed
from .judging import judge, verify
from .model import ModelCompression
from .result import Compression, parameter_versions
from .trust import stands_for

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
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InvalidType(f"generator is a {type(generator).__name__}; expected a torch.Generator")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 <= tol < 1):
        raise InvalidValue(f"tol={tol!r}: expected a number from 0 to 1, for example 1e-6")
    if data is not None and not isinstance(data, Tensor):
        raise InvalidType(f"data is a {type(data).__name__}; expected a tensor with a row for each input")
    _check_model(model)
    with undisturbed():
        call = _inputs_for(model, example_inputs if data is None else data, generator)
        try:
            if data is None and tol is None and not rewrite and is_chain(model):
                return _compress_chain(model, call, generator)
            return _compress_any(model, call, tol, data, rewrite, generator)
        except RadNetError:
            raise
        except Exception as error:
            raise InvalidValue(
                f"{type(model).__name__}: something that compress did not expect ({type(error).__name__}: {error}); "
                "nothing was changed. This should not happen, please report it"
            ) from error


def is_chain(model: nn.Module) -> bool:
    """Whether a model is the paper's chain and nothing else, so that Algorithm 1 is all there is to do.

    In float16 it is not: there a coordinate may overflow that no entry did, which the general way looks after.
    """
    if not stands_for(model, RadNet):
        return False
    layers, rescalings = list(model.layers), list(model.rescalings)  # type: ignore[arg-type]
    linear = all(stands_for(layer, nn.Linear) and layer.weight.dtype != torch.float16 for layer in layers)
    radial = all(stands_for(rho, RadialActivation) and rho.blocks is None and rho.dim == -1 for rho in rescalings)
    return linear and radial and len(layers) == len(rescalings) and len({layer.bias is None for layer in layers}) == 1


def _compress_chain(model: NetworkT, call: Call, generator: torch.Generator) -> Compression[NetworkT]:
    explorer = Explorer(model, generator)
    explored = _explored(explorer, call)
    explorer.release()
    reduced = qr_compress(model.weights, model.biases)
    network = model.with_parameters(reduced.weights, reduced.biases)
    wide = copied(network, as_float64)
    for layer, W, b in zip(wide.layers, reduced.weights, reduced.biases, strict=True):  # as they were before rounding
        layer.weight = nn.Parameter(W.to(layer.weight.device, copy=True))
        layer.bias = None if b is None else nn.Parameter(b.to(layer.weight.device, copy=True))
    certificate = _certified(model, wide, network, explored, None, generator)
    return Compression(network, certificate, model, reduced, parameter_versions(model))


def _explored(explorer: Explorer, call: Call) -> Explored:
    try:
        return explorer.explore(call)
    except InvalidValue:
        raise
    except Exception as error:
        raise does_not_run(explorer.model, call, error) from error


def _compress_any(
    model: ModelT,
    call: Call,
    tol: float | None,
    data: Tensor | None,
    rewrite: bool,
    generator: torch.Generator,
) -> ModelCompression[ModelT]:
    as_stored = _check_runs(model, call)
    follower = None
    while True:
        options: Any = {"tol": tol, "data": data, "rewrite": rewrite, "generator": generator, "follower": follower}
        smaller = compress_model(model, call, **options)
        explored, follower = smaller.explored, smaller.follower
        try:
            certificate = _certified(model, smaller.wide, smaller.network, explored, tol, generator, as_stored)
            break
        except InvalidValue:  # where it differs the model may do something else: follow it there too
            new = [tried for tried in explored.differ if tried.call not in (explored.given.call, *explored.ways)]
            explored.differ = []
            if new:
                explored.add_way(new[0].call, new[0].log)
                follower.restart()
            elif explored.measured - explored.pinned:
                explored.pinned = explored.measured
            else:
                raise
    return ModelCompression(
        smaller.network, certificate, model, smaller.spaces, call.args, smaller.traced_by, smaller.bound, smaller.edges
    )


def _check_runs(model: nn.Module, call: Call) -> Ran:
    """What the model gives in its own dtype."""
    try:
        found = run(copied(model, torch.clone), call)
    except RadNetError:
        raise
    except Exception as error:
        raise does_not_run(model, call, error) from error
    if not any(x.is_floating_point() or x.is_complex() for x in found.tensors.values()):
        raise InvalidType(f"{type(model).__name__} gives no floating-point tensor; there is nothing to compare")
    return found


def _certified(
    model: nn.Module,
    wide: nn.Module,
    small: nn.Module,
    explored: Explored,
    tol: float | None,
    generator: torch.Generator,
    as_stored: Ran | None = None,
) -> Certificate:
    """The certificate of a smaller model; nothing that is not the same function gets away without a tolerance."""
    name = type(model).__name__
    try:
        known: Any = {"explored": explored, "as_stored": as_stored, "generator": generator}
        certificate = judge(model, wide, explored.given.call, shipped=small, **known)
    except Exception as error:
        raise InvalidValue(
            f"{name}: the smaller model does not run ({error}); its forward relies on the width of a hidden layer in a "
            "way that cannot be seen by tracing it once. Nothing was changed"
        ) from error
    overflows = isinstance(model, RadNet) and not certificate.failures  # F itself is not finite; it is told, not hidden
    if certificate.lossless or tol is not None or (overflows and certificate.rows_judged):
        return certificate
    if certificate.rows_judged == 0:
        raise InvalidValue(
            f"{name}: every input lies at a jump of an activation, where no two runs need agree; give other "
            "example_inputs. Nothing was changed"
        )
    if not certificate.rows_failed and certificate.rows_at_jump > certificate.rows / 2:
        raise InvalidValue(f"{name}: {certificate.failures[0]}; give other example_inputs. Nothing was changed")
    raise InvalidValue(
        f"{name}: the smaller model does not give the same outputs ({certificate.rows_failed} of {certificate.rows} "
        f"rows differ, by {certificate.max_gap64:.3g}; {'; '.join(certificate.failures[:1])}); its forward does "
        "something that cannot be seen by tracing it once. Nothing was changed"
    )


def _inputs_for(model: nn.Module, given: Any, generator: torch.Generator) -> Call:
    if given is not None:
        if isinstance(model, RadNet) and isinstance(given, Tensor) and given.ndim == 1:
            given = given.unsqueeze(0)
        call = as_call(given)
        check_inputs(call)
        return call
    first = next((m for m in model.modules() if not list(m.children()) and list(m.parameters(recurse=False))), None)
    if not isinstance(first, nn.Linear):
        kind = "it has no layers" if first is None else f"its first layer is a {type(first).__name__}"
        raise InvalidValue(
            f"{type(model).__name__}: compress has to run it once, and {kind}, which does not say how large inputs "
            "are; give example_inputs"
        )
    x = torch.randn(CERTIFICATE_ROWS, first.in_features, generator=generator, device=generator.device)
    return Call((x.to(first.weight),))


def _check_model(model: Any) -> None:
    """Say what is wrong with which layer, before anything is computed."""
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidType(f"{type(model).__name__} is TorchScript; compress the module it was made from")
    if not isinstance(model, nn.Module) or hasattr(model, "_orig_mod"):
        hint = "; give it model._orig_mod" if hasattr(model, "_orig_mod") else ""
        raise InvalidType(f"compress needs an nn.Module, got {type(model).__name__}{hint}")
    if isinstance(model, RadNet):
        _check_layers(model)
    check_mode(model, "")
    _check_tensors(model)


def _check_layers(model: RadNet) -> None:
    """A RadNet that is none any more says which of its layers is not one of its layers."""
    if len(model.layers) != len(model.rescalings):
        raise InvalidValue(f"{len(model.layers)} layers and {len(model.rescalings)} activations: a RadNet has as many")
    for i, layer in enumerate(model.layers, start=1):
        if not isinstance(layer, nn.Linear):
            raise InvalidType(f"layer {i}: is a {type(layer).__name__}; compress needs nn.Linear layers in a RadNet")
        if (layer.bias is None) == model.has_bias:
            raise InvalidValue(f"layer {i}: biases must be there in all layers or in none; use zeros")
    model.check_initialised()


def _check_tensors(model: nn.Module) -> None:
    """Refuse what has no ordinary numbers."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    devices = {p.device: name for name, p in tensors}
    if len(devices) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise InvalidValue(f"the model is on several devices ({where}); move it to one, then compress")
    for name, p in tensors:
        where = _layer_of(model, name)
        if p.device.type == "meta":
            raise InvalidValue(f"{name} is on the meta device and has no values; load weights, then compress")
        if p.is_complex():
            raise InvalidValue(f"{name} is complex; radial activations rescale by norms of real entries")
        if p.is_sparse or p.is_quantized or p.layout != torch.strided:
            raise InvalidValue(f"{name} is sparse or quantised; compress needs ordinary tensors")
        if p.numel() == 0:
            raise InvalidValue(f"{name} has shape {tuple(p.shape)}: a layer of width 0 has nothing to compress")
        if p.is_floating_point() and p.element_size() == 1:
            raise InvalidValue(
                f"{name} is {p.dtype}, in which nothing can be computed; convert it to float16 or longer"
            )
        if p.is_floating_point() and not bool(p.detach().isfinite().all()):
            raise InvalidValue(f"{where} holds NaN or infinite values; nothing was compressed")


def _layer_of(model: nn.Module, name: str) -> str:
    """A parameter's name; in a RadNet the layer as the paper counts them."""
    parts = name.split(".")
    if isinstance(model, RadNet) and len(parts) == 3 and parts[1].isdigit():
        return f"layer {int(parts[1]) + 1}: {parts[2]}"
    return name
