"""Training: one run (`fit`), many in one set of tensors (`fit_ensemble`), many in processes (`run_trials`).

`loop` is the run itself; `batches` its data, `losses` its mean square error, `keeping` and `checkpoints` its file,
`processes` the others that train with it, `bar` what is seen of it, `result` what comes out.
"""

from .batches import Loss
from .ensembles import Ensemble, fit_ensemble
from .loop import fit
from .losses import mse
from .result import FitResult
from .trials import run_trials

__all__ = ["Ensemble", "FitResult", "Loss", "fit", "fit_ensemble", "mse", "run_trials"]
