"""Approximations as files: the tensors of the network, the cover and the certificate in one safetensors file."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..files import check_finite
from ..reading import Header, pack, part_of, reading, unpack
from ..threads import quietly
from ..writing import write_atomically
from .certificate import Certificate
from .constructions.construction import Outside
from .constructions.deep import DeepNetwork
from .constructions.growing_width import GrowingNetwork
from .constructions.stacked import StackedNetwork
from .constructions.width_max import Moved
from .covers import Cover
from .domains import Array, Ball, Box, Domain, Points
from .fields import check_announced
from .targets import Limit

if TYPE_CHECKING:
    from .result import Approximation

FORMAT = 2  # 1 had no checksum
_KEY = "radnet-approximation"
_NOT_ONE = "not an approximation written by radnet"
_NETWORKS: dict[str, type[DeepNetwork]] = {"stacked": StackedNetwork, "growing": GrowingNetwork}
_OUTSIDES: dict[str, type[Limit] | type[Moved]] = {"limit": Limit, "moved": Moved}
_COVER = ("centres", "radii", "inner", "outer", "samples", "grid", "levels")
_COVER_NUMBERS = ("scale", "unit", "pitch", "slack", "bits", "kind")


def save(a: Approximation, path: str | os.PathLike[str]) -> None:
    """Write it, atomically."""
    state: dict[str, Tensor] = {f"network.{k}": v for k, v in a.network.state_dict().items()}
    state |= {f"cover.{name}": _tensor(getattr(a.cover, name)) for name in _COVER}
    state |= {f"outside.{name}": _tensor(value) for name, value in a.outside.arrays().items()}
    state["outputs"] = _tensor(a.outputs)
    header = {
        "format": FORMAT,
        "network": next(name for name, kind in _NETWORKS.items() if isinstance(a.network, kind)),
        "outside": next(name for name, kind in _OUTSIDES.items() if isinstance(a.outside, kind)),
        "cover": {name: getattr(a.cover, name) for name in _COVER_NUMBERS},
        "certificate": a.certificate.to_dict(),
        "domain": _described(a.domain),
        "formula": a.formula,
    }
    if isinstance(a.domain, Points):
        state["domain.x"] = _tensor(a.domain.x)
    write_atomically(path, pack(state, _KEY, header))


class Stored(NamedTuple):
    """What a file holds: the fields of an `Approximation`, in their order."""

    network: DeepNetwork
    cover: Cover
    certificate: Certificate
    outputs: Array
    outside: Outside
    domain: Domain | None
    formula: str | None


def read(path: str | os.PathLike[str]) -> Stored:
    """Read what `save` wrote, checked."""
    with reading(path):
        header, state = unpack(path, _KEY, FORMAT, _NOT_ONE, partial(check_announced, path))
        check_finite(state)
        with quietly():  # torch warns of shapes that are refused below
            return _built(path, header, state)


def _built(path: str | os.PathLike[str], header: Header, state: dict[str, Tensor]) -> Stored:
    try:
        network = _NETWORKS[header["network"]](**part_of(state, "network")).eval()
        fields: Header = {k: v.numpy() for k, v in part_of(state, "cover").items()}
        cover = Cover(**fields, **header["cover"])
        parts: Header = {k: v.numpy() for k, v in part_of(state, "outside").items()}
        outside = _OUTSIDES[header["outside"]](**parts)
        outputs: Array = state["outputs"].numpy()
        certificate = Certificate(
            **_revive(header["certificate"]),
            widths=network.widths,
            recorded=True,
            _network=network,
            _cover=cover,
        )
        domain, formula = _domain(header.get("domain"), part_of(state, "domain")), header.get("formula")
        network(torch.zeros(1, network.widths[0], dtype=next(network.parameters()).dtype))
        outside(np.zeros((1, network.widths[0]))) + outputs[:1]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, ArithmeticError) as error:
        raise InvalidValue(f"{path}: the file does not hold what its header announces ({error})") from error
    if certificate.parameters != network.parameter_count:
        raise InvalidValue(f"{path}: the certificate is that of another network")
    _check_room(path, cover)
    if domain is not None and domain.dimension != network.widths[0]:
        raise InvalidValue(f"{path}: the domain has {domain.dimension} coordinates, the network {network.widths[0]}")
    return Stored(network, cover, certificate, outputs, outside, domain, formula)


def _check_room(path: str | os.PathLike[str], cover: Cover) -> None:
    """On either side of every sphere there is the room that arithmetic needs, or what is near a sphere is anything."""
    room = np.minimum(cover.radii - cover.inner, cover.outer - cover.radii)
    rounding = 2.0 ** (2 - cover.bits) * cover.radii  # of the scale, in which the radii are powers of two
    if not ((cover.inner >= 0) & (cover.radii > 0) & (cover.slack <= room + rounding)).all():
        raise InvalidValue(
            f"{path}: the cover leaves less room between its inner, own and outer radii than its slack of "
            f"{cover.slack:.3g}"
        )


def _described(domain: Domain | None) -> dict[str, object] | None:
    """A domain as plain data; the points of a sample are a tensor of their own."""
    if isinstance(domain, Box):
        return {"kind": "box", "lo": domain.lower.tolist(), "hi": domain.upper.tolist()}
    if isinstance(domain, Ball):
        return {"kind": "ball", "centre": domain.centre.tolist(), "radius": domain.radius}
    return None if domain is None else {"kind": "points"}


def _domain(data: Header | None, tensors: dict[str, Tensor]) -> Domain | None:
    """The domain again; files of earlier versions have none."""
    if data is None:
        return None
    if data["kind"] == "box":
        return Box(data["lo"], data["hi"])
    return Ball(data["centre"], data["radius"]) if data["kind"] == "ball" else Points(tensors["x"])


def _tensor(value: Array) -> Tensor:
    return torch.from_numpy(np.array(value))


def _revive(data: Header) -> Header:
    """JSON has no infinity; a bound that is missing is one."""
    bounds = {name: math.inf if value is None else float(value) for name, value in data["bounds"].items()}
    margin = data["threshold_margin"]
    return {**data, "bounds": bounds, "threshold_margin": math.inf if margin is None else margin}
