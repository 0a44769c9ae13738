"""The same thing over many seeds, in parallel: see `radnet.training.trials`, where it lives."""

from .training.trials import run_trials

__all__ = ["run_trials"]
