"""Many initialisations of the same network, trained at once: see `radnet.training.ensembles`, where they live."""

from .training.ensembles import Ensemble, fit_ensemble

__all__ = ["Ensemble", "fit_ensemble"]
