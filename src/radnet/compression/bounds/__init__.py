"""How far a tolerance can move the outputs: lengths and errors followed from step to step (docs/bounds.md)."""
