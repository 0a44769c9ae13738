"""What `tol=` can do to the outputs: `bound` is the answer, `sizes` the way; each operation has its own part of it."""
