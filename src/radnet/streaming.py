"""From file to file: a network that is larger than memory is compressed layer by layer.

Algorithm 1 looks at one layer after the other, and the layers lie in the mapped file, so that what is held is the small
network, one basis and a few rows of a layer in float64. The result is that of `radnet.compress`, to the bit. The
certificate follows the same rule (decision 0004): inputs go through the original layer by layer in float64, and where a
row is beyond 64 eps, once more with every weight an ulp off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .activations import RadialActivation
from .compression.arguments import CERTIFICATE_ROWS
from .compression.chain import ReducedChain, reduced_layers
from .compression.judging.certificate import Certificate
from .compression.judging.jumps import near_jump, norms_of, rows_of
from .compression.judging.variations import other_inputs
from .errors import InvalidValue
from .files import FORMAT, KEY, NOT_OURS, check_announced, check_finite, freeze, rebuild, save
from .linalg import ROWS_AT_ONCE, matmul64
from .measuring import DRAWS, TIMES_CONDITIONING, ULPS, gap_by_rows, nudged
from .network import RadNet
from .reading import reading
from .running import Call
from .shards import Stored, check_seal, opened
from .widths import count_parameters
from .wording import times_fewer

#: says what is being done, and how far it is
Tell = Callable[[str, float], None]
COMPRESSED_ALREADY = "holds a model that is compressed already; there is nothing more to take away"
_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class StreamedCompression:
    """What `compress_file` did: the small network, which is in the file too, its certificate, the widths before."""

    network: RadNet
    certificate: Certificate
    widths: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON."""
        both, bias = (self.widths, self.network.widths), self.network.has_bias
        counts, size = [count_parameters(n, bias) for n in both], self.network.weights[0].element_size()
        return {
            "widths": [list(n) for n in both],
            "parameters": counts,
            "bytes": [count * size for count in counts],
            "certificate": self.certificate.for_file(),
        }

    def report(self) -> str:
        """For people: the widths before and after, and the gaps."""
        before, after = (count_parameters(n, self.network.has_bias) for n in (self.widths, self.network.widths))
        lines = [
            f"widths      {self.widths} -> {self.network.widths}",
            f"parameters  {before:,} -> {after:,} {times_fewer(before, after)}".rstrip(),
        ]
        return "\n".join([*lines, "", str(self.certificate)])


def compress_file(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    inputs: Tensor | None = None,
    tell: Tell = lambda what, share: None,
) -> StreamedCompression:
    """Compress the network in a file, or in several with an index, and write the small one.

    Parameters
    ----------
    source : str or path
        A file that `radnet.save` wrote, or an index (``.safetensors.index.json``).
    out : str or path
    inputs : Tensor of shape (rows, n), optional
        What the certificate is measured on; 256 normal rows by default.
    tell : callable, optional
        Called with what is being done and how far it is.

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If it is damaged, holds something else, or the small network is not the same function; nothing is written then.

    Examples
    --------
    >>> import os, tempfile, radnet
    >>> from radnet.streaming import compress_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wide, small = (os.path.join(folder, name) for name in ("wide.safetensors", "small.safetensors"))
    ...     radnet.save(radnet.RadNet((2, 64, 64, 1)), wide)
    ...     c = compress_file(wide, small)
    ...     radnet.load(small).widths, c.certificate.lossless
    ((2, 3, 4, 1), True)
    """
    with reading(source), opened(source, KEY, FORMAT, NOT_OURS) as stored:
        header = stored.header
        check_announced(source, header, stored.layouts)
        if header.get("certificate") is not None:
            raise InvalidValue(f"{source}: {COMPRESSED_ALREADY}")
        if header["dtype"] == "float16":  # a coordinate may overflow that no entry did: see decision 0011
            raise InvalidValue(
                f"{source}: float16 is not compressed from file to file; use radnet.compress(radnet.load(...))"
            )
        chain = _Chain(stored, tell)
        chain.check(source)
        rhos = chain.activations()
        generator = torch.Generator().manual_seed(0)
        x = chain.rows(generator) if inputs is None else inputs
        layers = [(W, b) for W, b, _ in reduced_layers(chain.weights, chain.biases)]
        reduced = ReducedChain([W for W, _ in layers], [b for _, b in layers], [])  # the bases are not kept
        dtype = chain.weights[0].dtype
        network = RadNet.from_parameters(
            [W.to(dtype) for W in reduced.weights],
            None if reduced.biases[0] is None else [b.to(dtype) for b in reduced.biases if b is not None],
            rhos,
        ).eval()
        freeze(network, header, source)
        certificate = _certified(chain, reduced, network, x, generator)
    if not certificate.lossless:
        why = "; ".join(certificate.failures) or certificate.verdict
        raise InvalidValue(f"{source}: the smaller network does not give the same outputs ({why}); nothing was written")
    widths = tuple(header["widths"])
    save(network, out, certificate=certificate.for_file(), before=widths, columns=header.get("columns"))
    return StreamedCompression(network, certificate, widths)


class _Layers(Sequence[Tensor]):
    """The weights of a network where they lie; looking at one says how far one has got."""

    def __init__(self, stored: Stored, tell: Tell) -> None:
        self.stored, self.tell = stored, tell

    def __len__(self) -> int:
        return len(self.stored.header["widths"]) - 1

    def __getitem__(self, i):  # type: ignore[no-untyped-def]  # no slices
        self.tell(f"layer {i + 1} of {len(self)}", i / len(self))
        W = self.stored.tensors[f"layers.{i}.weight"]
        return W.clone() if W.dtype == torch.float64 else W  # where it lies in the file, products have other bits


class _Chain:
    """A network in a file: its layers one by one, and its activations."""

    def __init__(self, stored: Stored, tell: Tell) -> None:
        self.stored, self.tell, self.header = stored, tell, stored.header
        self.weights = _Layers(stored, tell)
        tensors, depth = stored.tensors, len(self.weights)
        names = [f"layers.{i}.bias" for i in range(depth)]
        self.biases = [tensors[name].clone() if self.header["bias"] else None for name in names]

    def check(self, path: str | os.PathLike[str]) -> None:
        """Numbers that are finite, and the checksum; a few rows at a time."""
        self.tell("checking the file", 0.0)
        for name, x in self.stored.tensors.items():
            for part in x.split(ROWS_AT_ONCE) if x.ndim else (x,):
                check_finite({name: part})
        check_seal(path, self.stored, KEY)

    def activations(self) -> list[RadialActivation]:
        """With the shifts of the file."""
        rhos = []
        for i, entry in enumerate(self.header["activations"]):
            rho = rebuild(entry, i + 1, {}, self.header["dtype"])
            if rho.shift is not None:
                rho.shift.data.copy_(self.stored.tensors[f"rescalings.{i}.shift"])
            rhos.append(rho)
        return rhos

    def rows(self, generator: torch.Generator) -> Tensor:
        """Normal inputs, those that `compress` draws."""
        x = torch.randn(CERTIFICATE_ROWS, self.header["widths"][0], generator=generator)
        return x.to(self.weights[0].dtype)


class _Pass:
    """Runs inputs through the layers of a file: in float64, in its own dtype, or in float64 with all weights moved."""

    def __init__(self, chain: _Chain, rhos: Sequence[RadialActivation]) -> None:
        self.chain, self.rhos = chain, rhos

    def __call__(self, x: Tensor, moved: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """What the network gives, and which rows come near a jump on the way."""
        at_jump = torch.zeros(len(x), dtype=torch.bool)
        for (W, b), rho in zip(self._layers(moved), self.rhos, strict=True):
            if x.dtype == torch.float64:
                x = self._product(W, x, moved)
                x = x if b is None else x + b.to(x)
            else:
                x = nn.functional.linear(x, W, b)
            if rho.jumps:
                at_jump |= rows_of(near_jump(rho, norms_of(rho, x)))
            x = rho(x)
        return x, at_jump

    def _layers(self, moved: torch.Generator | None) -> Iterator[tuple[Tensor, Tensor | None]]:
        for i, b in enumerate(self.chain.biases):
            yield self.chain.weights[i], b if b is None or moved is None else nudged(b.double(), moved)

    @staticmethod
    def _product(W: Tensor, x: Tensor, moved: torch.Generator | None) -> Tensor:
        if moved is None:
            return matmul64(W, x.mT.contiguous()).mT.contiguous()
        parts = [nudged(part.double(), moved) @ x.mT for part in W.split(ROWS_AT_ONCE)]
        return torch.cat(parts).mT.contiguous()


@torch.no_grad()
def _certified(
    chain: _Chain, reduced: ReducedChain, network: RadNet, x: Tensor, generator: torch.Generator
) -> Certificate:
    """The rule of decision 0004: each row within 64 eps of its size, or 10 times what one ulp does to the original."""
    if x.ndim != 2 or x.shape[1] != chain.header["widths"][0]:
        raise InvalidValue(f"inputs of shape {tuple(x.shape)}; needs (rows, {chain.header['widths'][0]})")
    others = [c for c in other_inputs(Call((x,)), generator, rows=max(1, len(x) // 8)) if c.args[0].ndim == 2]
    others = [c for c in others if c.args[0].shape[1] == x.shape[1]]
    every = torch.cat([x, *(c.args[0] for c in others)]).double()
    rhos = chain.activations()
    wide = _Pass(chain, [rho.double() for rho in chain.activations()])
    small = RadNet.from_parameters(
        reduced.weights,
        None if reduced.biases[0] is None else [b for b in reduced.biases if b is not None],
        [rho.double() for rho in chain.activations()],
    )
    F, at_jump = wide(every)
    gap = gap_by_rows(F, small(every))
    allowed = ULPS * _EPS * gap.scale
    judged = ~at_jump & F.isfinite().any(dim=1)
    D = torch.zeros_like(gap.rows)
    beyond = judged & ~(gap.rows <= allowed)
    excused = int(beyond.sum())
    draws = torch.Generator().manual_seed(1)
    for _ in range(DRAWS if bool(beyond.any()) else 0):
        near, _ = wide(nudged(every, draws), draws)
        D = torch.maximum(D, (near - F).abs().amax(dim=1))
        allowed = torch.maximum(allowed, TIMES_CONDITIONING * D)
        beyond = judged & ~(gap.rows <= allowed)
        if not bool(beyond.any()):
            break
    own, _ = _Pass(chain, rhos)(x)
    G = network(x)
    shipped = gap_by_rows(own, G).rows
    n, scale, eps = len(x), float(own.abs().max()), torch.finfo(own.dtype).eps
    lost = own.isfinite().all(dim=1) & ~G.isfinite().all(dim=1)
    worst = int(torch.where(beyond, gap.rows, -1.0).argmax())
    failures = [f"row {worst} differs by {float(gap.rows[worst]):.3g}, allowed {float(allowed[worst]):.3g}"]
    return Certificate(
        rows=n,
        dtype=str(own.dtype).removeprefix("torch."),
        max_gap=float(shipped.max()),
        mean_gap=float((own - G).abs().mean()),
        max_gap64=float(gap.rows[:n].max()),
        mean_gap64=float((F[:n] - small(every[:n])).abs().mean()),
        scale=scale,
        ulps=float(shipped.max()) / (eps * scale) if scale else 0.0,
        conditioning=float(D.max()),
        rows_at_jump=int(at_jump[:n].sum()),
        rows_ill_conditioned=excused - int(beyond.sum()),
        rows_failed=int((beyond[:n] | lost).sum()),
        rows_not_finite=int((~own.isfinite().all(dim=1)).sum()),
        rows_judged=int(judged.sum()),
        rounding=float((own.double() - F[:n]).abs().max()),
        tried=tuple(c.what for c in others),
        failures=tuple(failures) if bool(beyond.any()) else (),
    )
