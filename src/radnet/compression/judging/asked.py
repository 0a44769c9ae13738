"""Which sizes of its layers a model's own forward reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from ... import __file__ as radnet_file

#: attributes that tell a width
SIZES = ("in_features", "out_features", "in_channels", "out_channels", "embedding_dim")
_OURS = str(Path(radnet_file).parent)


@contextmanager
def watching(layers: dict[str, nn.Module]) -> Iterator[dict[str, set[str]]]:
    """While this lasts, reading a size of one of these layers is noted; their own forwards read none."""
    asked: dict[str, set[str]] = {}
    classes = {path: m.__class__ for path, m in layers.items()}
    try:
        for path, m in layers.items():
            m.__class__ = _watched_class(m.__class__, path, asked)
        yield asked
    finally:
        for path, m in layers.items():
            m.__class__ = classes[path]


def _watched_class(cls: type, path: str, asked: dict[str, set[str]]) -> type:
    def watched(name: str) -> property:
        def read(m: nn.Module) -> object:
            if name not in vars(m):
                raise AttributeError(f"{type(m).__name__!r} object has no attribute {name!r}")
            if not sys._getframe(1).f_code.co_filename.startswith(_OURS):  # a RadNet checks its inputs
                asked.setdefault(path, set()).add(name)
            return vars(m)[name]

        return property(read)

    return type(cls.__name__, (cls,), {name: watched(name) for name in SIZES})
