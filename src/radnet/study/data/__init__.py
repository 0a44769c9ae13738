"""The data sets of the study, in two halves.

The first half has been looked at: defaults were chosen on some of it, and what was built was tried on the rest. The
second half is set aside; nothing in the library was chosen by it.
"""

from __future__ import annotations

from ...errors import InvalidValue
from ..dataset import DataSet
from .fields import FIELDS
from .formulas import FORMULAS
from .motions import MOTIONS
from .tables import TABLES

DATA: tuple[DataSet, ...] = (*TABLES, *FORMULAS, *MOTIONS, *FIELDS)


def named(name: str) -> DataSet:
    """The data set of a name.

    >>> named("iris").classes
    3
    """
    for data in DATA:
        if data.name == name:
            return data
    raise InvalidValue(f"there is no data set {name!r}; there are {', '.join(sorted(d.name for d in DATA))}")
