"""What `approximate` returns: a network, its cover and its certificate; and how it is read from a file again."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..checks import check_features
from . import storage
from .certificate import Certificate
from .constructions.construction import Outside
from .constructions.deep import DeepNetwork
from .covers import Cover
from .domains import Array, Domain
from .rechecking import Recheck, recheck
from .targets import Function


@dataclass(frozen=True, eq=False)
class Approximation:
    """A network, the cover it was made from, and its certificate.

    Attributes
    ----------
    network : StackedNetwork or GrowingNetwork
        With ``widths``, ``partial`` and ``to_radnet()``.
    cover : Cover
    certificate : Certificate
    domain : Box, Ball or Points, or None
        None only in files of earlier versions, which did not store it.
    formula : str or None
        f as a text, if it was given as a formula (`radnet.expressions.parse_formula`).
    """

    network: DeepNetwork
    cover: Cover
    certificate: Certificate
    outputs: Array
    outside: Outside
    domain: Domain | None = None
    formula: str | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """F(x) by the network, in its dtype, in which the certificate holds; returned in the dtype of x.

        Examples
        --------
        >>> import torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> a(torch.ones(5, 1)).dtype
        torch.float32
        """
        check_features(x, "an approximation", self.certificate.widths[0])
        own: Tensor = next(self.network.parameters())
        y: Tensor = self.network(x.to(own))
        return y.to(x)

    def evaluate(self, x: Tensor) -> Tensor:
        """The same function by its closed form: the value of the first ball that contains x, by a k-d tree.

        Computed in float64 and returned in the dtype of x. It differs from the network by rounding, and for points
        that are within rounding of a sphere.

        Examples
        --------
        >>> import torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> x = torch.linspace(0, 3, 7, dtype=torch.float64).unsqueeze(1)
        >>> bool((a.evaluate(x) - a.network(x)).abs().max() < 1e-12)
        True
        """
        n = self.certificate.widths[0]
        check_features(x, "evaluate", n)
        points = x.detach().cpu().double().reshape(-1, n).numpy()
        ball = self.cover.tree.first(points)
        y = self.outputs[np.maximum(ball, 0)]
        out = np.flatnonzero(ball < 0)
        if len(out):
            with np.errstate(invalid="ignore", over="ignore"):
                y[out] = self.outside(points[out])
        return torch.from_numpy(y).reshape(*x.shape[:-1], y.shape[1]).to(dtype=x.dtype, device=x.device)

    def recheck(self, f: Function | None = None, *, points: int | None = None, seed: int | None = None) -> Recheck:
        """Measure again what the certificate says, for one that was read from a file: whoever wrote it may be wrong.

        Parameters
        ----------
        f : function, optional
            The function that was approximated; by default the formula, if there is one. Without either, only the
            network is compared with its closed form, and the result says so.
        points : int, optional
            How many random points of a box or a ball are looked at: by default 10,000, fewer in more than 400
            dimensions. Of a finite domain all are. A file of an earlier version, which does not say what its domain is,
            has but the points at which f was evaluated, and the result says so.
        seed : int, optional
            For the same random points again; by default nobody knows beforehand which they are.

        Raises
        ------
        NotEnoughMemory
            If there is not enough memory.
        InvalidValue
            If the formula in the file is none, or the parts of the file do not fit together.

        Examples
        --------
        >>> import torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> a.recheck(torch.sin).holds, a.recheck(torch.cos).holds
        (True, False)
        >>> a.recheck().against
        'its closed form alone: f is neither given nor in the file'
        """
        return recheck(self, f, points, seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write network, cover and certificate to a safetensors file, atomically; `radnet.approximation.load` reads it.

        Examples
        --------
        >>> import os, tempfile, torch, radnet
        >>> a = radnet.approximate(torch.sin, radnet.Box(0, 3), 0.1, lipschitz=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     a.save(os.path.join(folder, "sine.safetensors"))
        ...     again = radnet.approximation.load(os.path.join(folder, "sine.safetensors"))
        >>> again
        Approximation(width='max+1', balls=16, bound=0.09999, eps=0.1)
        """
        storage.save(self, path)

    def report(self) -> str:
        """The certificate as a table a person reads."""
        return self.certificate.report()

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON: the certificate, and f if it was given as a formula."""
        return {**self.certificate.to_dict(), "formula": self.formula}

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()

    def __repr__(self) -> str:
        c = self.certificate
        return f"Approximation(width={c.width!r}, balls={c.balls}, bound={c.bound:.4g}, eps={c.eps:g})"


def load(path: str | os.PathLike[str]) -> Approximation:
    """Read an approximation written by `Approximation.save`: checked, never unpickled.

    Its certificate is what the writer of the file recorded, and says so; `Approximation.recheck` measures it again.

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If it is damaged, or not an approximation.
    """
    return Approximation(*storage.read(path))
