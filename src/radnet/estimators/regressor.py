"""`RadialRegressor`: numbers from rows of numbers."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from torch import Tensor

from ..errors import InvalidValue
from .arrays import Array, Scales, moved_outputs
from .learner import RadialLearner, Values
from .parameters import check_parameters
from .training import RowLoss, squared


class RadialRegressor(RegressorMixin, RadialLearner):  # type: ignore[misc]
    """A network of radial blocks for regression, with scikit-learn's interface.

    Columns and targets are brought to mean 0 and variance 1 inside. What is kept after `fit` are arrays and plain
    values; predictions take no PyTorch.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers.
    block_size : int or None
        Entries of a block, which divides every width; None makes each layer one block.
    profile : str
        "sin", "squash", "gaussian", ...: a name as in `radnet.RadNet`.
    shift, scale : None, float, "trainable" or "per_block"
        As in `radnet.RadialActivation`.
    optimizer : str
        "adam", "adamw", "nadam" or "sgd".
    learning_rate : float or "auto"
        "auto" looks for one (`radnet.training.find_rate`).
    schedule : str
        "cosine" ends at a rate of 0, "constant" stays.
    epochs, batch_size : int or "auto"
        Up to 256 rows are one batch, 128 beyond; by default there are 1,500 steps, but 20 to 500 epochs.
    weight_decay : float
    validation_fraction : float
        Share of the rows that are held out, if there are 200 or more: the weights that are best on them are kept, and
        training ends after ``patience`` epochs without better ones.
    patience : int
    restarts : int
        How many networks are trained, of which the best is kept.
    compress : bool
        Whether blocks wider than what reaches them are made as narrow (`radnet.compress`); the certificate is kept.
    warm_start : bool
        Whether `fit` goes on from the network that is there.
    random_state : int, RandomState or None
    verbose : bool, optional
        A progress bar on stderr; by default on a terminal.

    Attributes
    ----------
    layers_ : list of dict
        Weights, biases, blocks, shifts and scales of each layer, for scaled columns.
    loss_curve_, validation_curve_ : list of float
    n_iter_, best_epoch_, learning_rate_, n_parameters_, n_features_in_, feature_names_in_
    certificate_ : dict or None
        What was measured when the network was compressed; None if nothing could shrink.

    Examples
    --------
    >>> import numpy as np
    >>> from radnet.estimators import RadialRegressor
    >>> X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    >>> y = np.sin(X[:, 0] * X[:, 1])
    >>> model = RadialRegressor(hidden=(60,), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: Values, y: Values, sample_weight: Values | None = None) -> RadialRegressor:
        """One pass over some rows; columns and targets are scaled by all rows so far."""
        with self._all_or_nothing():
            check_parameters(type(self).__name__, self.get_params(deep=False))
            first = not self._is_there()
            return self._partial(*self._rows(X, y, sample_weight, reset=first), first=first)

    def predict(self, X: Values) -> Array:
        """The outputs, of the shape that the targets had: (rows,) or (rows, outputs)."""
        out = self._outputs(X)
        y: Array = out * self._y_scales.size + self._y_scales.mean
        return y[:, 0] if self._one else y

    def _targets(self, y: Array, weight: Array, *, first: bool) -> tuple[Tensor, int, RowLoss]:
        table = self._table(y, first=first)
        if first:
            self._one, self._y_scales = np.ndim(y) == 1, Scales.of(table, weight)
        return torch.from_numpy((table - self._y_scales.mean) / self._y_scales.divisor), table.shape[1], squared

    def _table(self, y: Array, *, first: bool) -> Array:
        """Targets as a table of finite numbers, with as many columns as the network has outputs if there is one."""
        y = np.asarray(y, dtype=np.float64)
        if not np.isfinite(y).all():
            row = int(np.argwhere(~np.isfinite(y))[0][0])
            what = "NaN" if np.isnan(y[row]).any() else "infinity"
            raise InvalidValue(f"Input y contains {what} at row {row}")
        table: Array = y[:, None] if y.ndim == 1 else y
        if not first and table.shape[1] != len(self._y_scales.mean):
            raise InvalidValue(f"y has {table.shape[1]} outputs; the network has {len(self._y_scales.mean)}")
        return table

    def _take_in_targets(self, y: Array, weight: Array, share: float) -> None:
        new = self._y_scales.joined(Scales.of(self._table(y, first=False), weight), share)
        self.layers_, self._y_scales = moved_outputs(self.layers_, self._y_scales, new), new

    def _output_scales(self) -> Scales:
        return self._y_scales
