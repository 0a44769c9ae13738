"""Parameters that serve in several places, and modules that are used in several: all must change in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

from ..reasons import Reason, Why
from .coordinates import Change, block_widths
from .features import Feature, Pin
from .follow import Analysis, Rescaled, Use
from .layouts import Layout
from .spans import double

#: new tensors that differ by less than this share of their size are the same
SAME = 1e-11


def names_of(use: Use) -> dict[str, str]:
    """Parameter names of a use in the model, and what they are in a `Change`."""
    path = use.step.path or ""
    return {f"{path}.{name}".rstrip("."): name for name in use.step.operation.parameters}


def ties_of(model: nn.Module) -> list[list[str]]:
    """Names of parameters that are one and the same tensor."""
    by_id: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        by_id.setdefault(id(p), []).append(name)
    return [names for names in by_id.values() if len(names) > 1]


def shared_features(
    analysis: Analysis, ties: Sequence[Sequence[str]], parameters: Mapping[str, Tensor]
) -> set[Feature]:
    """Features of parameters that serve in several places: all must change in the same way."""
    count: dict[str, int] = {}
    for use in analysis.uses:
        for name in names_of(use):
            count[name] = count.get(name, 0) + 1
    tied = {name for names in ties for name in names}
    found: set[Feature] = set()
    for use in analysis.uses:
        if any(count[name] > 1 or name in tied for name in names_of(use) if name in parameters):
            found |= {f for f in (use.reads, use.writes) if f is not None}
    return found


def conflicts(
    analysis: Analysis,
    layout: Layout,
    found: Sequence[Change],
    ties: Sequence[Sequence[str]],
    parameters: Mapping[str, Tensor],
) -> Iterator[Pin]:
    """What must stay, because a parameter or a module would have to become two different things at once."""
    new: dict[str, list[Tensor]] = {}
    for change in found:
        for name, attribute in names_of(change.use).items():
            value = change.tensors.get(attribute)
            if value is not None and name in parameters:
                new.setdefault(name, []).append(value)
    for use in analysis.uses:  # a place where nothing changes wants the tensor as it is
        if not any(use is change.use for change in found):
            for name in names_of(use):
                if name in new:
                    new[name].append(double(parameters[name]))
    for names in [*ties, *([name] for name in new)]:
        wanted = [value for name in names for value in new.get(name, [])]
        if wanted and any(name not in new for name in names):
            wanted.append(double(parameters[names[0]]))
        if any(not _close(wanted[0], value) for value in wanted[1:]):
            for use in analysis.uses:
                if set(names_of(use)) & set(names):
                    for feature in (use.reads, use.writes):
                        if feature is not None:
                            yield Pin(feature.entries, Why(Reason.TIED, " and ".join(names)))
    yield from _unequal_blocks(analysis, layout)


def _unequal_blocks(analysis: Analysis, layout: Layout) -> Iterator[Pin]:
    """Activations that would need blocks of different sizes in different places."""
    places: dict[str, list[tuple[Rescaled, list[int]]]] = {}
    for use in analysis.radial:
        if len(use.blocks) > 1:
            sizes = block_widths(use.blocks, layout.runs[use.reads])
            places.setdefault(use.step.path or "", []).append((use, sizes))
    for path, found in places.items():
        if any(sizes != found[0][1] for _, sizes in found):
            for use, _ in found:
                yield Pin(use.reads.entries, Why(Reason.BLOCKS, path))


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(
        (a - b).abs().max() <= SAME * max(float(a.abs().max()), 1e-300) if a.numel() else True
    )
