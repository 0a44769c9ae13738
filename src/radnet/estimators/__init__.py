"""scikit-learn estimators: `RadialRegressor`, `RadialClassifier`, `RadialApproximator`.

Needs ``pip install 'radnet[sklearn]'``.
"""

from ..errors import MissingPackage

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise MissingPackage("radnet.estimators needs scikit-learn: pip install 'radnet[sklearn]'") from error

from .approximator import RadialApproximator as RadialApproximator
from .classifier import RadialClassifier as RadialClassifier
from .regressor import RadialRegressor as RadialRegressor

__all__ = ["RadialApproximator", "RadialClassifier", "RadialRegressor"]
