"""Trials, from the plan to the file each leaves: `plan`, `runner`, the `worker` it starts, the `folder` of a run."""
