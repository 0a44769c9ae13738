"""One door for files: `save`, `load` and `load_into`, for networks, approximations and models of any class.

Which format a file has is told by its header: `radnet.files` for a RadNet, `radnet.approximation` for an approximation,
and for a module of any other class its tensors with the sizes of its layers. None of them holds code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import torch
from torch import nn

from . import files, models
from .approximation import Approximation
from .approximation import load as load_approximation
from .approximation.constructions.deep import DeepNetwork
from .approximation.constructions.growing_width import GrowingNetwork
from .approximation.constructions.stacked import StackedNetwork
from .compression import Compression, ModelCompression
from .compression.storage import KEY, load_model_into, save_model
from .compression.trust import stands_for
from .errors import InvalidType, InvalidValue
from .files import ActivationSource
from .network import RadNet
from .rbf import RBFNetwork
from .reading import Header, reading
from .shards import is_index, key_of


def save(
    model: nn.Module | Approximation | Compression[RadNet] | ModelCompression[nn.Module], path: str | os.PathLike[str]
) -> None:
    """Write a network, a model of any class, an approximation or a compression, atomically; an old file is replaced.

    Parameters
    ----------
    model : nn.Module, Approximation, or what `compress` gives
        A RadNet and an Approximation are read again by `load`; any other module by ``load_into(MyModel(), path)``,
        which gives the layers of a freshly made model the sizes in the file. Activations of a RadNet that are made from
        a function of your own need a name: ``Radial(h, name="mine")``. With a compression its certificate is kept.
    path : str or path
        Usually ends in .safetensors. A RadNet is written into several files of at most 2 GB, and an index that names
        them, if it ends in .safetensors.index.json.

    Raises
    ------
    InvalidType
        If it is none of these.
    InvalidValue
        If an activation has no name by which it could be found again, or a parameter is not finite.

    Examples
    --------
    >>> import os, tempfile, torch, radnet
    >>> net = radnet.RadNet((2, 5, 1), activation="squash", shift=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.safetensors")
    ...     radnet.save(net, path)
    ...     again = radnet.load(path)
    >>> torch.equal(net(torch.ones(3, 2)), again(torch.ones(3, 2)))
    True
    """
    if isinstance(model, RadNet) and stands_for(model, RadNet):
        files.save(model, path)
    elif isinstance(model, nn.Module):
        save_model(model, path)
    elif isinstance(model, Approximation | Compression | ModelCompression):
        model.save(path)
    else:
        raise InvalidType(f"save needs a module, an approximation or a compression, got {type(model).__name__}")


def load(
    path: str | os.PathLike[str],
    activations: Mapping[str, ActivationSource] | None = None,
    *,
    device: torch.device | str = "cpu",
) -> nn.Module | Approximation:
    """Read a RadNet, an approximation or another model of ours; it is in eval mode, whatever it was in when written.

    Models of ours are those of `radnet.models`, `radnet.rbf.RBFNetwork` and the networks of approximations, compressed
    or not.

    Parameters
    ----------
    path : str or path
    activations : mapping, optional
        For each named activation of a RadNet that is not built in: its profile h, or its class.
    device : torch.device or str

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If the file is damaged, or holds a model of a class of your own (the message says what to call).

    Examples
    --------
    >>> import os, tempfile, torch, radnet
    >>> net = radnet.RadNet((2, 5, 1), radnet.Radial(torch.tanh, name="tanh"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.safetensors")
    ...     radnet.save(net, path)
    ...     again = radnet.load(path, activations={"tanh": torch.tanh})
    >>> again.widths, again.activations[0]
    ((2, 5, 1), Radial(h=tanh))
    """
    if is_index(path):
        return files.load(path, activations, device=device)
    with reading(path):
        key = key_of(path)
    if key == "radnet-approximation":
        return load_approximation(path)
    if key == KEY:
        return _made_again(path)
    return files.load(path, activations, device=device)


def load_into(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill a freshly made model from a file; nothing is changed unless everything fits.

    Of a file that `save` made of a compressed model, or ``c.save(path)``, the layers get their new sizes first: names,
    hooks and shared weights stay, norm layers that were folded go, biases that were added come, and what the small
    model refuses it refuses again. The model is in eval mode then. Of any other safetensors file the tensors are
    copied into a model that has them all.

    Raises
    ------
    InvalidValue
        If the file is damaged, or was made from another class or another version of it: the layer and both shapes.

    Examples
    --------
    >>> import os, tempfile, torch, radnet
    >>> from torch import nn
    >>> def make():
    ...     return nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2))
    >>> c = radnet.compress(make())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "small.safetensors")
    ...     c.save(path)
    ...     model = make()
    ...     radnet.load_into(model, path)
    >>> model[0], torch.equal(model(torch.ones(1, 3)), c.network(torch.ones(1, 3)))
    (Linear(in_features=3, out_features=4, bias=True), True)
    """
    with reading(path):
        key = key_of(path)
    if key == KEY:
        load_model_into(model, path)
    else:
        files.load_into(model, path)


def _with_shapes(kind: type[DeepNetwork]) -> Callable[[Header], nn.Module]:
    return lambda said: kind(**{name: torch.empty(shape, device="meta") for name, shape in said.items()})


#: classes of ours that are made again from what a file says of them
_MADE: dict[str, Callable[[Header], nn.Module]] = {
    "radnet.models.RadialConv2d": lambda said: models.RadialConv2d(**said),
    "radnet.models.ResidualRadialMLP": lambda said: models.ResidualRadialMLP(**said),
    "radnet.models.BlockRadialMLP": models.BlockRadialMLP.of_header,
    "radnet.models.CoordinateNet": models.CoordinateNet.of_header,
    "radnet.rbf.network.RBFNetwork": RBFNetwork.of_header,
    f"{StackedNetwork.__module__}.StackedNetwork": _with_shapes(StackedNetwork),
    f"{GrowingNetwork.__module__}.GrowingNetwork": _with_shapes(GrowingNetwork),
}


def _made_again(path: str | os.PathLike[str]) -> nn.Module:
    """A model of a class of ours from its file; nothing large is made before sizes are compared."""
    with reading(path):
        header = files.header_of(path, KEY)
        name, said = header.get("class"), header.get("made_with")
        make = _MADE.get(name) if isinstance(name, str) else None
        if make is None or not isinstance(said, dict):
            raise InvalidValue(f"{path}: holds a {name}; make one and give it to radnet.load_into(model, path)")
        try:
            with torch.device("meta"):
                model = make(said)
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError, OverflowError) as error:
            raise InvalidValue(f"{path}: the header is damaged: no {name} can be made so ({error})") from error
    load_model_into(model, path)
    return model
