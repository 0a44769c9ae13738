"""The contestants that are no networks: a linear model and boosted trees, searched with as many trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .networks import Knobs

#: an estimator of scikit-learn's
Estimator = Any


@dataclass(frozen=True)
class Reference:
    """A contestant: a name, and how it is made for numbers or classes."""

    name: str
    about: str
    build: Callable[[Knobs, bool, int], Estimator]


def linear(knobs: Knobs, classify: bool, seed: int) -> Estimator:
    """Ridge or logistic regression, on standardised columns."""
    from sklearn.linear_model import LogisticRegression, Ridge

    weight = knobs.between(1e-3, 1e3)
    return LogisticRegression(C=1 / weight, max_iter=2000) if classify else Ridge(alpha=weight)


def trees(knobs: Knobs, classify: bool, seed: int) -> Estimator:
    """Gradient boosting on histograms."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    return kind(
        learning_rate=0.05 * 10**knobs.rate,
        max_leaf_nodes=knobs.hidden_layers(7, 15, 31, 63),
        l2_regularization=knobs.between(1e-4, 10.0),
        max_iter=100,
        early_stopping=False,
        random_state=seed,
    )


REFERENCES = (
    Reference("linear", "ridge or logistic regression", linear),
    Reference("trees", "gradient-boosted trees, 100 rounds", trees),
)
