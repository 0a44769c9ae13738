"""What `predict` of a fitted `RadialClassifier` takes beside scikit-learn's `MLPClassifier` of the same size.

Breast cancer, its rows repeated to a thousand; the hidden layer of `MLPClassifier` has as many units as give it the
parameters of ours.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import finish, interleave, show

from radnet.estimators import RadialClassifier

ROWS = {"1,000 rows": (1000, 1), "one row": (1, 100)}
SCIKIT = "MLPClassifier, scaled"


def repeated(model: Any, rows: Any, calls: int) -> None:
    """So many predictions."""
    for _ in range(calls):
        model.predict(rows)


def main() -> None:
    """Both fitted for a moment, then `predict` in turns."""
    X, y = load_breast_cancer(return_X_y=True)
    ours = RadialClassifier(epochs=20, random_state=0).fit(X, y)
    units = round((ours.n_parameters_ - 1) / (X.shape[1] + 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = make_pipeline(StandardScaler(), MLPClassifier((units,), max_iter=20, random_state=0)).fit(X, y)
        bare = MLPClassifier((units,), max_iter=20, random_state=0).fit(X, y)
    size = sum(a.size for a in (*bare.coefs_, *bare.intercepts_))
    models: dict[str, Any] = {"RadialClassifier": ours, SCIKIT: theirs, "MLPClassifier": bare}
    data: dict[str, Any] = {"parameters": {"RadialClassifier": ours.n_parameters_, "MLPClassifier": size}}
    for name, (count, calls) in ROWS.items():
        rows = np.resize(X, (count, X.shape[1]))

        times = interleave({key: partial(repeated, m, rows, calls) for key, m in models.items()}, rounds=200)
        show(f"predict, {name} x {calls}, {ours.n_parameters_:,} and {size:,} parameters", times, "MLPClassifier")
        data[name] = times
    finish(data)


if __name__ == "__main__":
    main()
