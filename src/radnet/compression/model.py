"""What `compress` gives back for a model of any kind: the small copy, its certificate, its spaces, a report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from .. import notebook
from ..modes import Argument
from ..running import Call, copied, run
from ..wording import times_fewer
from .bounds.bound import Bound
from .judging.certificate import Certificate
from .operations import work_of
from .picture import Edge, draw
from .result import Row, in_columns, interleaved_times, timed_row
from .spaces.layouts import SpaceReport
from .storage import save_model

ModelT = TypeVar("ModelT", bound=nn.Module)


@dataclass(frozen=True, eq=False, repr=False)
class ModelCompression(Generic[ModelT]):
    """A compressed model and what is known about it.

    Attributes
    ----------
    network : nn.Module
        The small model: the user's own class, with smaller layers.
    certificate : Certificate
        Measured gaps.
    original : nn.Module
        The model that was compressed; not a copy.
    spaces : tuple of SpaceReport
        For each space of hidden features its width before and after, and why it is not smaller.
    inputs : tuple of Tensor
        What the certificate was measured on.
    traced_by : str
        "torch.fx", or "torch.export" where the first cannot follow the model.
    bound : Bound, optional
        With a tolerance: how far it can move an output, or why that cannot be said.
    edges : tuple of Edge
        Each layer with the spaces it reads and writes.
    """

    network: ModelT
    certificate: Certificate
    original: ModelT
    spaces: tuple[SpaceReport, ...]
    inputs: tuple[Argument, ...]
    traced_by: str
    bound: Bound | None = None
    edges: tuple[Edge, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the small model with its certificate; ``radnet.load_into(MyModel(), path)`` reads it.

        A freshly made model is compared with the original when it is read: one of another version is refused.
        """
        save_model(self.network, path, original=self.original, certificate=self.certificate)

    def picture(self) -> str:
        """The spaces with their widths and the layers between them, as SVG.

        >>> import radnet
        >>> c = radnet.compress(nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2)))
        >>> "64 → 4" in c.picture()
        True
        """
        return draw([(s.space, s.before, s.after, s.why) for s in self.spaces], self.edges)

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON: the spaces, the sizes before and after, the certificate.

        >>> import radnet
        >>> c = radnet.compress(nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2)))
        >>> c.to_dict()["parameters"]
        [386, 26]
        """
        return {
            "model": type(self.original).__name__,
            "spaces": [
                {"space": s.space, "before": s.before, "after": s.after, "why": s.why, "along": list(s.along)}
                for s in self.spaces
            ],
            "parameters": [parameters(self.original), parameters(self.network)],
            "bytes": [stored_bytes(self.original), stored_bytes(self.network)],
            "traced_by": self.traced_by,
            "bound": None if self.bound is None else str(self.bound),
            "certificate": self.certificate.for_file(),
        }

    def __repr__(self) -> str:
        a, b = parameters(self.original), parameters(self.network)
        name = type(self.original).__name__
        return f"ModelCompression({name}, {a:,} -> {b:,} parameters, {self.certificate.verdict})"

    def _repr_svg_(self) -> str:
        return notebook.alone(self.picture())

    def _repr_html_(self) -> str:
        rows = self._rows()
        said = [] if self.bound is None else [str(self.bound)]
        return self.certificate.html(notebook.table(rows[0], rows[1:]), self.picture(), notebook.lines(said))

    def report(self, timing: bool = False) -> str:
        """A table for people: spaces, parameters, bytes and multiply-adds before and after, the gaps; time if asked.

        >>> import torch, radnet
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        >>> print(radnet.compress(model).report())  # doctest: +ELLIPSIS
        space                         before     after  why not smaller
        0                                 64         4
        2                                 64        64  3 (ReLU) does not commute with a change of basis
        4                                  2         2  it is an output of the model
        parameters                     4,546       ...
        """
        rows = self._rows()
        if timing:
            for count in (1, 256):
                with suppress(Exception):  # not every model takes these rows beside its other arguments
                    rows.append(self._timed_row(count))
        table = in_columns(rows, least=(28, 8, 10))
        if parameters(self.original) == parameters(self.network):
            table.append("nothing could be taken away; the last column says why")
        said = [] if self.bound is None else [f"  {self.bound}"]
        return "\n".join([*table, "", str(self.certificate), *said])

    def _rows(self) -> list[Row]:
        rows = [("space", "before", "after", "why not smaller")]
        for s in self.spaces:
            name = s.space if len(s.space) <= 26 else s.space[:23] + "..."
            grows = f"grows: {', '.join(map(str, s.along))}" if len(s.along) > 1 else ""
            rows.append((name, f"{s.before:,}", f"{s.after:,}", s.why or grows))
        for what, measure in (("parameters", parameters), ("bytes", stored_bytes), ("multiply-adds a row", self._work)):
            a, b = measure(self.original), measure(self.network)
            rows.append((what, f"{a:,}", f"{b:,}", times_fewer(a, b)))
        return rows

    def _work(self, model: nn.Module) -> int:
        return multiply_adds(model, self.inputs) // Call(tuple(self.inputs)).rows

    def _timed_row(self, rows: int) -> Row:
        call = Call(tuple(self.inputs))
        batch = call.with_rows(torch.arange(rows) % call.rows, "").mapped(torch.clone).args
        original, network = (copied(m, torch.clone) for m in (self.original, self.network))
        a, b = interleaved_times(lambda: original(*batch), lambda: network(*batch))
        return timed_row(rows, a, b)


def parameters(model: nn.Module) -> int:
    """Numbers in the parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters())


def stored_bytes(model: nn.Module) -> int:
    """Bytes of the parameters, shared ones once."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def multiply_adds(model: nn.Module, inputs: Sequence[Argument]) -> int:
    """Multiplications in linear and convolutional layers, for these inputs; counted on a copy.

    >>> multiply_adds(nn.Linear(3, 5), [torch.zeros(2, 3)])
    30
    """
    twin = copied(model, torch.clone)
    with _counting(twin) as counts:
        run(twin, Call(tuple(inputs)))
    return sum(counts)


@contextmanager
def _counting(model: nn.Module) -> Iterator[list[int]]:
    counts: list[int] = []

    def count(m: nn.Module, _: object, output: object) -> None:
        counts.append(work_of(m, output) if isinstance(output, Tensor) else 0)

    parts = [m for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)]  # those take no hooks
    handles = [m.register_forward_hook(count) for m in parts]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()
