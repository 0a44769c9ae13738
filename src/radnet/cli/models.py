"""Models for commands: from files of ours, or made by a factory of the user's and filled from a file."""

from __future__ import annotations

from torch import nn

from ..approximation import Approximation
from ..errors import InvalidType, InvalidValue, RadNetError
from ..expressions import imported_function
from ..files import header_of
from ..reading import reading
from ..saving import load, load_into
from ..shards import key_of
from ..streaming import COMPRESSED_ALREADY


def model_of(path: str, factory: str | None, *, fresh: bool = False) -> nn.Module:
    """The model in a file; with a factory, a model that it makes, with the tensors of the file.

    Parameters
    ----------
    path : str
    factory : str, optional
        MODULE:FACTORY.
    fresh : bool
        Whether a model that was compressed before is refused.
    """
    with reading(path):
        key = key_of(path)
    if fresh and key in ("radnet", "radnet-model") and header_of(path, key).get("certificate") is not None:
        raise InvalidValue(f"{path}: {COMPRESSED_ALREADY}")
    if factory is not None:
        made = made_by(factory)
        load_into(made, path)
        return made.eval()
    if key not in ("radnet", "radnet-approximation"):
        raise InvalidValue(f"{path}: to say what its tensors belong to, give --model MODULE:FACTORY")
    found = load(path)
    return found.network if isinstance(found, Approximation) else found


def made_by(text: str) -> nn.Module:
    """What a factory, or a class, makes without arguments."""
    module, _, name = text.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidValue(f"--model {text}: expected MODULE:FACTORY, for example my_models:make")
    factory = imported_function(module, name)
    try:
        made = factory()
    except RadNetError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidValue(f"--model {text}: the factory fails ({type(error).__name__}: {error})") from error
    if not isinstance(made, nn.Module):
        raise InvalidType(f"--model {text}: the factory makes a {type(made).__name__}; expected a module")
    return made
