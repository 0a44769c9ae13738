"""`RadialClassifier`: classes from rows of numbers."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from torch import Tensor

from ..errors import InvalidValue
from .arrays import Array
from .learner import RadialLearner, Values
from .parameters import check_parameters
from .training import RowLoss, cross_entropy


class RadialClassifier(ClassifierMixin, RadialLearner):  # type: ignore[misc]
    """A network of radial blocks that tells classes apart, with scikit-learn's interface.

    The parameters are those of `RadialRegressor`; the loss is the cross entropy. One class alone is predicted for
    every row.

    Attributes
    ----------
    classes_ : array
        And those of `RadialRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from radnet.estimators import RadialClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RadialClassifier(hidden=(30,), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95), model.predict_proba(X[:2]).shape
    (True, (2, 3))
    """

    def partial_fit(
        self, X: Values, y: Values, classes: Values | None = None, sample_weight: Values | None = None
    ) -> RadialClassifier:
        """One pass over some rows; the first call names all classes, or has them in y."""
        with self._all_or_nothing():
            check_parameters(type(self).__name__, self.get_params(deep=False))
            first = not self._is_there()
            rows = self._rows(X, y, sample_weight, reset=first)
            if first:
                self._announced = None if classes is None else unique_labels(classes)
            elif classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
                raise InvalidValue(f"classes={classes!r}: the first call had {self.classes_.tolist()}")
            self._partial(*rows, first=first)
            self._announced = None
            return self

    def predict(self, X: Values) -> Array:
        """The likeliest class of each row."""
        found: Array = self.classes_[self._outputs(X).argmax(axis=1)] if hasattr(self, "classes_") else self._outputs(X)
        return found

    def predict_proba(self, X: Values) -> Array:
        """The probability of each class, in the order of ``classes_``."""
        z = self._outputs(X).astype(np.float64)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        found: Array = e / e.sum(axis=1, keepdims=True)
        return found

    def predict_log_proba(self, X: Values) -> Array:
        """Its logarithm, finite also where the probability underflows."""
        z = self._outputs(X).astype(np.float64)
        z = z - z.max(axis=1, keepdims=True)
        found: Array = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        return found

    def _targets(self, y: Array, weight: Array, *, first: bool) -> tuple[Tensor, int, RowLoss]:
        check_classification_targets(y)
        if first:
            announced = getattr(self, "_announced", None)
            self.classes_ = unique_labels(y) if announced is None else announced
        place = np.searchsorted(self.classes_, y)
        place = np.minimum(place, len(self.classes_) - 1)
        if unknown := set(np.asarray(y)[self.classes_[place] != y].tolist()):
            known = self.classes_.tolist()
            raise InvalidValue(f"y has classes {sorted(unknown)}, of which the network knows nothing: it has {known}")
        return torch.from_numpy(place.astype(np.int64)), len(self.classes_), cross_entropy
