"""The certificate again, later: `verify` for models and for files."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .compression import Certificate
from .compression import verify as verify_modules
from .files import load

Model = nn.Module | str | os.PathLike[str]


def verify(
    a: Model, b: Model, inputs: Tensor | Sequence[Tensor], *, generator: torch.Generator | None = None
) -> Certificate:
    """Measure how equal two networks are on the given inputs.

    Parameters
    ----------
    a, b : nn.Module, or the path of a file that `radnet.save` wrote
        The original and the other one; neither is changed.
    inputs : Tensor of shape (rows, ...), or a sequence of tensors
        Floating-point ones in the dtype of the networks; integers (for embeddings) as they are. Several tensors are
        the arguments of the networks, and all floating-point tensors among their outputs are compared.
    generator : torch.Generator, optional
        For the perturbations behind D; by default a fresh one with a fixed seed, so that the same call gives the same.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import torch, radnet, tempfile
    >>> net = radnet.RadNet((2, 32, 1))
    >>> small = radnet.compress(net).network
    >>> radnet.verify(net, small, torch.randn(100, 2)).lossless
    True
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     radnet.save(small, f"{folder}/small.safetensors")
    ...     radnet.verify(net, f"{folder}/small.safetensors", torch.randn(100, 2)).lossless
    True
    """
    first, second = (load(model) if isinstance(model, str | os.PathLike) else model for model in (a, b))
    return verify_modules(first, second, inputs, generator=generator)
