"""`RadialApproximator`: a network with a guaranteed error at the rows it was given, by construction."""

from __future__ import annotations

import numbers

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ..approximation import Points, approximate
from ..approximation.result import Approximation
from ..errors import InvalidValue
from .arrays import Array

Values = npt.ArrayLike


class RadialApproximator(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The network of `radnet.approximate` for a table: off by less than eps at every row of it, with a certificate.

    Nothing is trained and nothing is chosen by chance. At rows it was not given it is the value of a row near by, and
    far from all of them the mean of the targets; the guarantee is for the given rows alone.

    Parameters
    ----------
    eps : float
        The error allowed at each row, in the Euclidean norm of its targets.
    lipschitz : float, optional
        A claim about the function behind the table. If two rows refute it, `fit` says which.
    width : "growing", "n+m+1" or "auto"
        Which construction of `radnet.approximate`, of those that have a value everywhere.
    max_balls : int
        The largest cover allowed.

    Attributes
    ----------
    approximation_ : radnet.approximation.Approximation
        With ``network``, ``cover``, ``certificate``, ``report()``.
    certificate_ : dict
        The certificate as plain data.

    Examples
    --------
    >>> import numpy as np
    >>> from radnet.estimators import RadialApproximator
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = RadialApproximator(eps=0.2).fit(X, np.sin(X[:, 0]))
    >>> bool(np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.2), model.certificate_["balls"] < 20
    (True, True)
    """

    def __init__(
        self, eps: float = 0.1, lipschitz: float | None = None, *, width: str = "auto", max_balls: int = 20_000
    ) -> None:
        self.eps = eps
        self.lipschitz = lipschitz
        self.width = width
        self.max_balls = max_balls

    approximation_: Approximation
    certificate_: dict[str, object]
    _mean: Array
    _one: bool

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Values, y: Values) -> RadialApproximator:
        """Build the network.

        Raises
        ------
        InvalidValue
            If two rows with the same inputs have targets that no function within eps has, or refute ``lipschitz``.
        """
        if not isinstance(self.eps, numbers.Real) or not 0 < self.eps < np.inf:
            raise InvalidValue(f"RadialApproximator: eps={self.eps!r}: expected a number above 0")
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        table = np.asarray(y, dtype=np.float64)
        self._one = table.ndim == 1
        table = table[:, None] if self._one else table
        rows, values, off = _function(X, table, float(self.eps))
        if self.lipschitz is not None:
            if not isinstance(self.lipschitz, numbers.Real) or not 0 <= float(self.lipschitz) < np.inf:
                raise InvalidValue(
                    f"RadialApproximator: lipschitz={self.lipschitz!r}: expected a number of at least 0, or None"
                )
            _refute(rows, values, float(self.lipschitz))
        self._mean = table.mean(axis=0)
        centred = torch.from_numpy(values - self._mean)
        n, m = rows.shape[1], table.shape[1]
        self.approximation_ = approximate(
            _Lookup(rows, centred),
            Points(rows),
            float(self.eps) - off,
            limit=(np.zeros((m, n)), np.zeros(m)),
            width=self.width,
            max_balls=self.max_balls,
        )
        self.certificate_ = self.approximation_.certificate.to_dict()
        return self

    def predict(self, X: Values) -> Array:
        """The value of the first ball that contains each row, and outside of all the mean of the targets."""
        check_is_fitted(self, "approximation_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        y: Array = self.approximation_.evaluate(torch.tensor(X)).numpy() + self._mean
        return y[:, 0] if self._one else y


class _Lookup:
    """A function on finitely many rows."""

    def __init__(self, rows: Array, values: Tensor) -> None:
        self.place = {row.tobytes(): k for k, row in enumerate(rows + 0.0)}
        self.values = values

    def __call__(self, x: Tensor) -> Tensor:
        return self.values[[self.place[row.tobytes()] for row in x.numpy() + 0.0]]


def _function(X: Array, y: Array, eps: float) -> tuple[Array, Array, float]:
    """Different rows, the middle of the targets of each, and how far the targets are from it at most."""
    rows, inverse = np.unique(X + 0.0, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    low, high = np.full((len(rows), y.shape[1]), np.inf), np.full((len(rows), y.shape[1]), -np.inf)
    np.minimum.at(low, inverse, y)
    np.maximum.at(high, inverse, y)
    middle = low + (high - low) / 2
    off = np.linalg.norm(y - middle[inverse], axis=1)
    worst = int(off.argmax())
    if off[worst] >= 0.9 * eps:
        same = np.flatnonzero(inverse == inverse[worst])
        other = int(same[np.linalg.norm(y[same] - y[worst], axis=1).argmax()])
        raise InvalidValue(
            f"rows {min(worst, other)} and {max(worst, other)} have the same inputs, and targets that differ by "
            f"{float(np.linalg.norm(y[other] - y[worst])):.3g}: no function is within eps={eps:g} of both"
        )
    return rows, middle, float(off[worst])


def _refute(rows: Array, values: Array, lipschitz: float) -> None:
    """Raise if two rows next to each other are further apart in their targets than the claim allows."""
    for start in range(0, len(rows), 256):
        part = slice(start, start + 256)
        distance = np.linalg.norm(rows[part, None] - rows[None], axis=2)
        change = np.linalg.norm(values[part, None] - values[None], axis=2)
        beyond = change > lipschitz * distance * (1 + 1e-9)
        if beyond.any():
            i, j = (int(k) for k in np.argwhere(beyond)[0])
            steep, there, here = change[i, j] / distance[i, j], rows[start + i].tolist(), rows[j].tolist()
            raise InvalidValue(
                f"lipschitz={lipschitz:g} does not hold: from {there} to {here} the targets change by {steep:.3g} "
                "times the distance"
            )
