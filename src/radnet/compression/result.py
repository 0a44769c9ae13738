"""What `compress` gives back: the small network, its certificate, and on request Q, T and U.

Paper: thm:mod-comp (the network), "Projected gradient descent" (Q, T = Q^-1.(W,b), U = T - iota(V)).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

import torch
from torch import Tensor

from .. import notebook
from ..errors import StaleResult
from ..files import save
from ..linalg import pad
from ..network import NetworkT, RadNet
from ..running import copied
from ..symmetry import OrthogonalAction
from ..wording import times_fewer
from .chain import ReducedChain, complete_bases, transform
from .judging.certificate import Certificate
from .picture import Edge, draw

Row = tuple[str, str, str, str]  # of a report: a name, before, after, a remark


@dataclass(frozen=True, eq=False, repr=False)
class Compression(Generic[NetworkT]):
    """A compressed network and what is known about it.

    Attributes
    ----------
    network : RadNet
        The small network: same class, same function.
    certificate : Certificate
        Measured gaps.
    original : RadNet
        The network that was compressed; not a copy.
    """

    network: NetworkT
    certificate: Certificate
    original: NetworkT
    _reduced: ReducedChain = field(repr=False)
    _versions: tuple[tuple[int, int], ...] | None = field(repr=False)

    @cached_property
    def action(self) -> OrthogonalAction:
        """Q of Algorithm 1, the n_i x n_i matrices completed on first use.

        >>> import torch, radnet
        >>> c = radnet.compress(radnet.RadNet((1, 8, 1)))
        >>> [tuple(Q.shape) for Q in c.action.matrices]
        [(8, 8)]
        """
        return OrthogonalAction(self.original.widths, complete_bases(self._reduced))

    def transformed(self) -> NetworkT:
        """``T = Q^-1 . (W, b)`` with exact zeros where the theory has them; the same function once more.

        >>> import torch, radnet
        >>> T = radnet.compress(radnet.RadNet((1, 8, 1))).transformed()
        >>> bool((T.weights[0][2:] == 0).all())
        True
        """
        net = self.original
        if parameter_versions(net) != self._versions:
            raise StaleResult(
                "the network has changed since it was compressed; Q^-1.(W, b) would mix old and new: compress it again"
            )
        matrices = [Q.to(net.weights[0].device) for Q in self.action.matrices]
        return net.with_parameters(*transform(net.weights, self._reduced, matrices))

    def remainder(self) -> tuple[Tensor, ...]:
        """``U = T - iota(V)`` as merged matrices, so that ``iota(V) + U = T`` to the last bit."""
        T, V = self.transformed().merged(), self.network.merged()
        return tuple((T_i - pad(V_i, *T_i.shape)).detach() for T_i, V_i in zip(T, V, strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the small network with its certificate; `radnet.load` reads it."""
        save(self.network, path, certificate=self.certificate.for_file(), before=self.original.widths)

    def picture(self) -> str:
        """The widths before and after, as SVG.

        >>> import radnet
        >>> "64 → 4" in radnet.compress(radnet.RadNet((3, 64, 2))).picture()
        True
        """
        layers = zip(self._names(), self.original.widths, self.network.widths, strict=True)
        edges = [Edge(f"layer {i + 1}", (i,), (i + 1,)) for i in range(len(self.original.widths) - 1)]
        return draw([(name, a, b, "") for name, a, b in layers], edges)

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON: widths and sizes before and after, the certificate.

        >>> import radnet
        >>> radnet.compress(radnet.RadNet((1, 8, 16, 8, 1))).to_dict()["widths"]
        [[1, 8, 16, 8, 1], [1, 2, 3, 4, 1]]
        """
        nets, size = (self.original, self.network), self.network.weights[0].element_size()
        return {
            "model": type(self.original).__name__,
            "widths": [list(net.widths) for net in nets],
            "parameters": [net.parameter_count for net in nets],
            "bytes": [net.parameter_count * size for net in nets],
            "certificate": self.certificate.for_file(),
        }

    def __repr__(self) -> str:
        a, b = (", ".join(map(str, net.widths)) for net in (self.original, self.network))
        return f"Compression(({a}) -> ({b}), {self.certificate.verdict})"

    def _repr_svg_(self) -> str:
        return notebook.alone(self.picture())

    def _repr_html_(self) -> str:
        rows = self._rows()
        return self.certificate.html(notebook.table(rows[0], rows[1:]), self.picture())

    def report(self, timing: bool = False) -> str:
        """A table for people: widths, parameters and bytes before and after, the gaps, and wall time if asked for.

        >>> import torch, radnet
        >>> print(radnet.compress(radnet.RadNet((1, 8, 16, 8, 1))).report())  # doctest: +ELLIPSIS
        layer              before     after
        input                   1         1
        hidden 1                8         2
        hidden 2               16         3
        hidden 3                8         4
        output                  1         1
        parameters            305        34  (9.0 times fewer)
        bytes               1,220       136
        <BLANKLINE>
        lossless, on 256 inputs
        ...
        """
        rows = self._rows()
        if timing:
            rows += [self._timed_row(count) for count in (1, 256)]
        return "\n".join([*in_columns(rows, least=(14, 10, 10)), "", str(self.certificate)])

    def _names(self) -> list[str]:
        return ["input", *(f"hidden {i}" for i in range(1, len(self.original.widths) - 1)), "output"]

    def _rows(self) -> list[Row]:
        before, after = self.original.widths, self.network.widths
        rows = [("layer", "before", "after", "")]
        rows += [(name, f"{a:,}", f"{b:,}", "") for name, a, b in zip(self._names(), before, after, strict=True)]
        a, b = self.original.parameter_count, self.network.parameter_count
        size = self.network.weights[0].element_size()
        rows.append(("parameters", f"{a:,}", f"{b:,}", times_fewer(a, b)))
        rows.append(("bytes", f"{a * size:,}", f"{b * size:,}", ""))
        return rows

    def __getstate__(self) -> dict[str, object]:
        fresh = parameter_versions(self.original) == self._versions
        return {**vars(self), "_versions": self._versions if fresh else None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        if self._versions is not None:  # the copy is of parameters that had not changed
            vars(self)["_versions"] = parameter_versions(self.original)

    def _timed_row(self, rows: int) -> Row:
        x = torch.randn(rows, self.original.widths[0], generator=torch.Generator().manual_seed(0))
        x = x.to(self.original.weights[0])
        original, network = (copied(net, torch.clone) for net in (self.original, self.network))
        a, b = interleaved_times(lambda: original(x), lambda: network(x))
        return timed_row(rows, a, b)


def parameter_versions(net: RadNet) -> tuple[tuple[int, int], ...]:
    """Changes whenever a parameter, a shift or an activation is changed in place or replaced."""
    tensors = (*net.parameters(), *net.buffers())
    versions = tuple((id(p), 0 if p.is_inference() else p._version) for p in tensors)
    return (*versions, *((id(rho), 0) for rho in net.activations))


def in_columns(rows: Sequence[Row], least: tuple[int, int, int]) -> list[str]:
    """Lines of a table: columns as wide as their longest entry asks for, and at least so wide.

    >>> in_columns([("", "before", "after", ""), ("bytes", "1,234,567", "89", "much less")], least=(6, 8, 8))
    ['          before   after', 'bytes  1,234,567      89  much less']
    """
    a, b, c = (max(low, 1 + max(len(row[i]) for row in rows)) for i, low in enumerate(least))
    return [f"{name:<{a}}{before:>{b}}{after:>{c}}  {note}".rstrip() for name, before, after, note in rows]


def timed_row(rows: int, a: float, b: float) -> Row:
    """The row of a table that tells two times in seconds, for a batch of so many rows."""
    return (f"µs, batch {rows}", f"{a * 1e6:,.0f}", f"{b * 1e6:,.0f}", f"({a / b:.1f} times faster)")


def interleaved_times(a: Callable[[], object], b: Callable[[], object], runs: int = 15) -> tuple[float, float]:
    """Median seconds of two things without gradients, run in turns so that noise hits both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad():
        for run in range(runs + 2):
            for run_once, seconds in zip((a, b), times, strict=True):
                start = time.perf_counter()
                run_once()
                if run >= 2:  # the first two warm up
                    seconds.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])
