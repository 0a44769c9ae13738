"""Networks as folders of the Hugging Face Hub: config.json, model.safetensors, and a card that says what was measured.

`save_pretrained` and `from_pretrained` take every model that `radnet.save` takes. A RadNet may also be a `HubRadNet`,
which is one with the hub's own methods (``huggingface_hub.PyTorchModelHubMixin``), ``push_to_hub`` among them. The
tensors are a file of `radnet.save` in either case, so that `radnet.load` reads it as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from torch import nn

from . import files
from .checks import check_path, is_whole
from .compression import Compression, ModelCompression
from .compression.judging.certificate import Measured, plain_data
from .compression.storage import KEY as MODEL
from .compression.storage import save_model
from .compression.trust import stands_for
from .errors import InvalidType, InvalidValue, MissingFile, MissingPackage, RadNetError
from .files import ActivationSource
from .network import RadNet
from .saving import load, load_into, save
from .widths import count_parameters
from .writing import check_target, write_atomically

try:
    from huggingface_hub import ModelCard, PyTorchModelHubMixin, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
except ImportError as error:
    raise MissingPackage("radnet.hub needs huggingface_hub: pip install 'radnet[hub]'") from error

PAPER = "https://arxiv.org/abs/2107.02550"
TENSORS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
Compressed = Compression[RadNet] | ModelCompression[nn.Module]
NetworkT = TypeVar("NetworkT", bound="HubRadNet")


class HubRadNet(RadNet, PyTorchModelHubMixin, library_name="radnet", paper_url=PAPER, tags=["radial-networks"]):
    """A `RadNet` with ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``.

    Examples
    --------
    >>> import tempfile, radnet
    >>> from radnet.hub import HubRadNet
    >>> c = radnet.compress(radnet.RadNet((2, 64, 1)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     HubRadNet.of(c).save_pretrained(folder)
    ...     HubRadNet.from_pretrained(folder).widths
    (2, 3, 1)
    """

    certificate: Mapping[str, object] | None = None
    widths_before: tuple[int, ...] | None = None

    @classmethod
    def of(cls: type[NetworkT], made: Compression[RadNet] | RadNet) -> NetworkT:
        """A network with the hub's methods, from a compression or another network, which is not changed."""
        if isinstance(made, Compression):
            net = cls._around(made.network)
            net.certificate, net.widths_before = made.certificate.for_file(), made.original.widths
            return net
        if not isinstance(made, RadNet):
            raise InvalidType(f"HubRadNet.of needs a RadNet or a compression of one, got a {type(made).__name__}")
        if not stands_for(made, RadNet):
            raise InvalidValue(f"this {type(made).__name__} has hooks or a forward of its own, which would be lost")
        return cls._around(made)

    @classmethod
    def _around(cls: type[NetworkT], net: RadNet) -> NetworkT:
        """The same layers in an object of this class."""
        twin = cls.from_parameters(net.weights, net.biases if net.has_bias else None, net.activations)
        for p, own in zip(net.parameters(), twin.parameters(), strict=True):
            own.requires_grad_(p.requires_grad)
        return twin.train(net.training)

    def _save_pretrained(self, save_directory: Path) -> None:
        files.save(self, save_directory / TENSORS, certificate=self.certificate, before=self.widths_before)
        _write(save_directory / CONFIG, json.dumps(_config_of(self), indent=2))
        _write(save_directory / CARD, str(self.generate_model_card()))

    @classmethod
    def _from_pretrained(  # the names and kinds of arguments are the hub's
        cls: type[NetworkT],
        *,
        model_id: str,
        map_location: str = "cpu",
        strict: bool = True,
        **options: object,
    ) -> NetworkT:
        asked = {k: v for k, v in options.items() if k in _DOWNLOADING}
        path = _tensors(model_id, **asked)
        net = cls._around(files.load(path, device=map_location)).eval()
        net.certificate, net.widths_before = compressed_as(path)
        return net

    @classmethod
    def from_pretrained(cls: type[NetworkT], *args: object, **kwargs: object) -> NetworkT:
        """Read a network; as the hub's own method, whose errors about what is there are `RadNetError`."""
        where = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        if not isinstance(where, str | os.PathLike):
            raise InvalidType(f"{where!r}: expected a folder, or a repository, owner/name")
        try:
            return super().from_pretrained(*cast("Any", args), **cast("Any", kwargs))
        except HFValidationError as error:
            raise MissingFile(f"{where}: no such folder, and no name of a repository ({error})") from error
        except (ValueError, AttributeError) as error:
            if isinstance(error, RadNetError):
                raise
            raise InvalidValue(f"{where}: its {CONFIG} is damaged ({error})") from error

    def generate_model_card(self, *args: object, **kwargs: object) -> ModelCard:
        """The card: widths before and after, and what the certificate says."""
        return ModelCard(card(self, self.certificate, self.widths_before))


_DOWNLOADING = ("revision", "cache_dir", "force_download", "local_files_only", "token")


def save_pretrained(
    model: nn.Module | Compressed,
    folder: str | os.PathLike[str],
    *,
    certificate: Measured | None = None,
    widths_before: Sequence[int] | None = None,
    with_card: bool = True,
) -> None:
    """Write a folder as the Hub has them: config.json, model.safetensors and a card.

    Parameters
    ----------
    model : nn.Module, or what `compress` gives
        Any model that `radnet.save` takes.
    folder : str or path
        Made if it is not there; files of these names in it are replaced.
    certificate : what `radnet.verify` gives, or plain data, optional
        For a model that is given without one.
    widths_before : sequence of int, optional
        The widths of the network that was compressed, for the card.
    with_card : bool
        A card says what was measured, so it needs a certificate; False writes none.

    Raises
    ------
    InvalidValue
        If a card is wanted and there is no certificate.

    Examples
    --------
    >>> import os, tempfile, radnet
    >>> c = radnet.compress(radnet.RadNet((2, 64, 1)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     radnet.hub.save_pretrained(c, folder)
    ...     sorted(os.listdir(folder)), radnet.hub.from_pretrained(folder).widths
    (['README.md', 'config.json', 'model.safetensors'], (2, 3, 1))
    """
    said = plain_data(certificate)
    before = None if widths_before is None else _widths(widths_before)
    network, parameters = model, None
    if isinstance(model, Compression | ModelCompression):
        said, network = said or model.certificate.for_file(), model.network
        before = model.original.widths if isinstance(model.original, RadNet) else before
        parameters = sum(p.numel() for p in model.original.parameters())
    if not isinstance(network, nn.Module):
        raise InvalidType(f"save_pretrained needs a module or a compression, got a {type(model).__name__}")
    if with_card and said is None:
        raise InvalidValue(
            f"{type(network).__name__}: a card says what was measured, and there is no certificate; give what compress "
            "gives, or certificate=radnet.verify(original, model, inputs), or with_card=False"
        )
    config = json.dumps(_config_of(network), indent=2)
    words = card(network, said, before, parameters) if with_card else None
    folder = _folder(folder)
    for name in (TENSORS, CONFIG, CARD):
        check_target(folder / name)
    if words is None and _is_our_card(folder / CARD):
        raise InvalidValue(f"{folder / CARD}: is the card of another model; remove it, or write one for this")
    if said is None or isinstance(model, Compression | ModelCompression):
        save(model, folder / TENSORS)
    elif isinstance(network, RadNet) and stands_for(network, RadNet):
        files.save(network, folder / TENSORS, certificate=said, before=before)
    else:
        save_model(network, folder / TENSORS, certificate=said)
    _write(folder / CONFIG, config)
    if words is not None:
        _write(folder / CARD, words)


def _widths(given: object) -> tuple[int, ...]:
    """Widths, if they are some."""
    if not isinstance(given, Sequence) or len(given) < 2 or not all(is_whole(n) and n > 0 for n in given):
        raise InvalidValue(f"widths_before={given!r}: expected the widths of the network before, as (2, 64, 1)")
    return tuple(given)


def _folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made if it is not there."""
    check_path(folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InvalidValue(f"{folder}: no folder can be made there ({error})") from error
    return Path(folder)


def _is_our_card(path: Path) -> bool:
    return path.is_file() and b"library_name: radnet" in path.read_bytes()[:1000]


def from_pretrained(
    where: str | os.PathLike[str],
    model: nn.Module | None = None,
    *,
    activations: Mapping[str, ActivationSource] | None = None,
    revision: str | None = None,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> nn.Module:
    """Read a model from a folder, or from the Hub.

    Parameters
    ----------
    where : str or path
        A folder, or a repository, ``owner/name``.
    model : nn.Module, optional
        A freshly made model of your own class, which is filled and given back; not needed for models of ours.
    activations : mapping, optional
        As `radnet.load` takes it: for each activation with a profile of your own its name and the profile.
    revision, local_files_only, token
        As ``huggingface_hub.hf_hub_download`` takes them.

    Raises
    ------
    MissingFile
        If there is no such folder or repository, or nothing of ours in it.
    InvalidValue
        If it is damaged, or a model of a class of your own and none was given.
    """
    check_path(where)
    if model is not None and not isinstance(model, nn.Module):
        raise InvalidType(f"model={model!r:.60}: expected a freshly made module, to be filled")
    path = _tensors(os.fspath(where), revision=revision, local_files_only=local_files_only, token=token)
    if model is not None:
        load_into(model, path)
        return model
    found = load(path, activations)
    return found if isinstance(found, nn.Module) else found.network


def compressed_as(path: str | os.PathLike[str]) -> tuple[Mapping[str, object] | None, tuple[int, ...] | None]:
    """What a file says of how its model was compressed: the certificate, and the widths before."""
    found = [files.header_of(path, key) for key in (files.KEY, MODEL)]
    certificate = next((h["certificate"] for h in found if isinstance(h.get("certificate"), dict)), None)
    before = found[0].get("before")
    if not isinstance(before, list) or not all(is_whole(n) and n > 0 for n in before):
        return certificate, None
    return certificate, tuple(before)


def _tensors(where: str, **options: object) -> str:
    """The path of the tensors: in a folder, or downloaded."""
    if os.path.isdir(where):
        path = os.path.join(where, TENSORS)
        if not os.path.isfile(path):
            raise MissingFile(f"{where}: has no {TENSORS}")
        return path
    try:
        return str(hf_hub_download(where, TENSORS, **cast("Any", options)))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MissingFile(f"{where}: no such folder, and no such repository could be reached ({first})") from error


def _write(path: Path, text: str) -> None:
    write_atomically(path, (text.rstrip("\n") + "\n").encode())


def _config_of(model: nn.Module) -> dict[str, object]:
    """What a model is, for config.json; of a RadNet with named activations, what its class is called with."""
    said: dict[str, object] = {"library_name": "radnet", "architectures": [type(model).__name__]}
    if not isinstance(model, RadNet):
        return said
    entries = [files.describe(rho, i) for i, rho in enumerate(model.activations, start=1)]
    return {**said, "widths": list(model.widths), "bias": model.has_bias, "activations": entries}


def card(
    model: nn.Module,
    certificate: Mapping[str, object] | None,
    before: tuple[int, ...] | None,
    parameters: int | None = None,
) -> str:
    """A model card: what it is, how large it was and is, what was measured, how to read it."""
    count = sum(p.numel() for p in model.parameters())
    lines = ["---", "library_name: radnet", "tags:", "- radial-networks", "- model-compression", "---", ""]
    lines += [f"# {type(model).__name__}", "", f"A radial neural network ([the paper]({PAPER})).", ""]
    lines += ["| | before | now |", "|---|---|---|"]
    if isinstance(model, RadNet):
        lines.append(f"| widths | {before or 'not known'} | {model.widths} |")
    if parameters is None and before is not None:
        parameters = count_parameters(before, _has_bias(model))
    was = "not known" if parameters is None else f"{parameters:,}"
    lines += [f"| parameters | {was} | {count:,} |", ""]
    if certificate is not None:
        verdict = "The same function" if certificate.get("lossless") else "**Not the same function**"
        lines += [
            f"{verdict} as before it was compressed, on {certificate.get('rows')} inputs:",
            "",
            "| largest gap in float64 | in the shipped dtype | largest output |",
            "|---|---|---|",
            f"| {_number(certificate, 'max_gap64')} | {_number(certificate, 'max_gap')} ({certificate.get('dtype')}) "
            f"| {_number(certificate, 'scale')} |",
            "",
        ]
    if type(model).__module__.startswith("radnet"):
        how = ["net = radnet.hub.from_pretrained(folder)"]
    else:
        how = [f"model = {type(model).__name__}()", "radnet.hub.from_pretrained(folder, model)"]
    lines += ["```python", "import radnet", "", *how, "```"]
    return "\n".join(lines) + "\n"


def _has_bias(model: nn.Module) -> bool:
    return model.has_bias if isinstance(model, RadNet) else True


def _number(certificate: Mapping[str, object], name: str) -> str:
    value = certificate.get(name)
    return f"{value:.3g}" if isinstance(value, int | float) else "not finite"
