"""Training: one run (`fit`), many in one set of tensors (`fit_ensemble`), many in processes (`run_trials`).

`loop` is the run itself; `batches` its data, `losses` its mean square error, `validating` the data that is held out,
`keeping` and `checkpoints` its file, `processes` the others that train with it, `bar` what is seen of it, `result` what
comes out. `rates` finds a learning rate to start with; `learning` goes from a table of data to a network.
"""

from .batches import Loss
from .ensembles import Ensemble, fit_ensemble
from .loop import fit
from .losses import mse
from .rates import RateSearch, find_rate
from .result import FitResult
from .trials import run_trials

__all__ = ["Ensemble", "FitResult", "Loss", "RateSearch", "find_rate", "fit", "fit_ensemble", "mse", "run_trials"]
