"""Tables of data in files: CSV, NumPy's .npz and Parquet, as columns with names.

A column holds numbers or text. What a cell should not be is told with its row and its column, and only for columns that
are used: a table may have others. The same limits and refusals as for arrays (`radnet.arrays`).
"""

from __future__ import annotations

import csv
import importlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .arrays import LARGEST, Numbers, read_npz
from .errors import InvalidValue, MissingPackage, printable
from .reading import enough_memory, reading, regular_file, some_of

Cells = Sequence[str] | Numbers
#: columns of a table, and different labels of a class
MOST_COLUMNS, MOST_CLASSES = 100_000, 1_000


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of the same length, by name.

    Attributes
    ----------
    path : str
        The file, for messages.
    columns : dict
        Numbers, or the texts of the cells.
    named : bool
        Whether the names are those of the file; otherwise columns are counted from 1.
    lines : sequence of int, optional
        Where the rows stand in the file, for messages; by default they are counted from 1.
    """

    path: str
    columns: Mapping[str, Cells]
    named: bool = True
    lines: Sequence[int] | None = None

    @property
    def names(self) -> list[str]:
        """Of the columns, in their order."""
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def numbers(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Columns as a matrix of numbers, shape (rows, columns)."""
        self.check(names)
        return np.stack([self._numbers(name) for name in names], axis=1)

    def labels(self, name: str) -> list[str]:
        """The cells of a column as texts; whole numbers without a point."""
        self.check([name])
        cells = self.columns[name]
        if isinstance(cells, np.ndarray):
            return [str(int(x)) if float(x).is_integer() else str(float(x)) for x in self._numbers(name)]
        for row, text in enumerate(cells):
            if not text.strip():
                raise self.error(row, name, "is empty")
        return [text.strip() for text in cells]

    def check(self, names: Sequence[str]) -> None:
        """Raise, unless there are such columns."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            other = [sign for sign in (";", "\t") if any(sign in name for name in self.columns)]
            hint = f" Are its cells separated by {other[0]!r}? Separate them by commas" if other else ""
            raise InvalidValue(
                f"{self.path}: there is no column '{printable(missing[0], 60)}'; it has {some_of(self.columns)}.{hint}"
            )

    def _numbers(self, name: str) -> npt.NDArray[np.float64]:
        cells = self.columns[name]
        if isinstance(cells, np.ndarray):
            found = cells.astype(np.float64)
        else:
            found = np.array([self._number(row, name, text) for row, text in enumerate(cells)])
        odd = np.flatnonzero(~np.isfinite(found))
        if len(odd):
            raise self.error(int(odd[0]), name, f"is {found[odd[0]]}; expected a finite number")
        return found

    def _number(self, row: int, name: str, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            if not text.strip():
                raise self.error(row, name, "is empty") from None
            what = f"is '{printable(text, 40)}', which is no number; leave the column out, or make numbers of it"
            raise self.error(row, name, what) from None

    def error(self, row: int, name: str, problem: str) -> InvalidValue:
        """A problem with one cell, to be raised."""
        line = row + 1 if self.lines is None else self.lines[row]
        return InvalidValue(f"{self.path}: row {line}, column {printable(name, 60)}: {problem}")


def read_table(path: str | os.PathLike[str]) -> Table:
    """A table from a .csv, .npz or .parquet file.

    Of a CSV file the first row holds the names if not all of it are numbers. Of an .npz file every array of one axis is
    a column, and one of two axes a column for each entry of its rows: x becomes x.1, x.2, ...

    Raises
    ------
    MissingFile
        If there is no such file.
    InvalidValue
        If it is damaged, empty, or its rows or columns are not of the same length.
    MissingPackage
        If it is a Parquet file and pyarrow is not installed.
    """
    readers = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}
    kind = Path(path).suffix.lower()
    if kind not in readers:
        raise InvalidValue(f"{path}: expected a .csv, .npz or .parquet file")
    with reading(path):
        regular_file(path)
        table = readers[kind](str(path))
    if not table.columns or not len(table):
        raise InvalidValue(f"{path}: the table is empty")
    if len(table.columns) > MOST_COLUMNS:
        raise InvalidValue(f"{path}: {len(table.columns):,} columns; at most {MOST_COLUMNS:,} are read")
    return table


def _csv(path: str) -> Table:
    if os.path.getsize(path) > LARGEST:
        raise InvalidValue(f"{path}: more than {LARGEST:,} bytes")
    try:
        with enough_memory(path):
            text = Path(path).read_text(encoding="utf-8-sig")
            rows = [(number, row) for number, row in _rows(text) if any(cell.strip() for cell in row)]
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path}: the text is not UTF-8 ({error}); save the table as UTF-8") from error
    except csv.Error as error:
        raise InvalidValue(f"{path}: not a CSV file, or damaged ({error})") from error
    if not rows:
        raise InvalidValue(f"{path}: the table is empty")
    width = len(rows[0][1])
    for number, row in rows:
        if len(row) != width:
            raise InvalidValue(f"{path}: row {number} has {len(row)} cells, the first one {width}")
    named = not all(map(_is_number, rows[0][1]))
    names = [cell.strip() for cell in rows[0][1]] if named else [str(k) for k in range(1, width + 1)]
    _check_names(path, names)
    body = rows[1:] if named else rows
    columns = {name: [row[k] for _, row in body] for k, name in enumerate(names)}
    return Table(path, columns, named, [number for number, _ in body])


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for row in reader:
        yield reader.line_num, row


def _is_number(text: str) -> bool:
    """Whether it is one as Python writes them: infinities, and what is no number but stands for one, too."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _npz(path: str) -> Table:
    found: list[tuple[str, Cells]] = []
    for name, array in read_npz(path).items():
        if array.ndim == 1:
            found.append((name, array))
        elif array.ndim == 2:
            found += [(f"{name}.{k}", array[:, k - 1]) for k in range(1, array.shape[1] + 1)]
        else:
            raise InvalidValue(f"{path}: {printable(name, 60)} has {array.ndim} axes; a table has columns or matrices")
    _check_names(path, [name for name, _ in found])
    columns = dict(found)
    _check_lengths(path, columns)
    return Table(path, columns)


def _parquet(path: str) -> Table:
    try:
        pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    except ImportError as error:
        raise MissingPackage(f"{path}: a Parquet file needs pyarrow: pip install 'radnet[tables]'") from error
    try:
        with enough_memory(path):
            described = parquet.read_metadata(path)
            if described.num_rows * described.num_columns * 8 > LARGEST:
                raise ValueError(f"it announces {described.num_rows:,} rows of {described.num_columns:,} columns")
            found = parquet.read_table(path)
            columns = {name: _cells(found.column(k).to_pylist()) for k, name in enumerate(found.column_names)}
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidValue(f"{path}: not a Parquet file, or damaged ({error})") from error
    _check_names(path, found.column_names)
    _check_lengths(path, columns)
    return Table(path, columns)


def _cells(values: list[object]) -> Cells:
    """The values of a column: numbers where it holds numbers and nothing is missing, else texts."""
    if all(isinstance(x, bool | int | float) for x in values):
        return np.array(values, dtype=np.float64)
    return ["" if x is None else str(x) for x in values]


def _check_names(path: str, names: Sequence[str]) -> None:
    twice = [name for k, name in enumerate(names) if name in names[:k]] if len(set(names)) < len(names) else []
    if twice or "" in names:
        problem = f"two columns are called '{printable(twice[0], 60)}'" if twice else "a column has no name"
        raise InvalidValue(f"{path}: {problem}; give each a name of its own")


def _check_lengths(path: str, columns: Mapping[str, Cells]) -> None:
    lengths = {len(cells): name for name, cells in columns.items()}
    if len(lengths) > 1:
        (a, first), (b, second) = list(lengths.items())[:2]
        raise InvalidValue(
            f"{path}: {printable(first, 60)} has {a:,} rows, {printable(second, 60)} {b:,}; a table has as many in all"
        )
