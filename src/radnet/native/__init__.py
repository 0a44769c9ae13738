"""Compiled kernels for small and for large tensors; optional, see docs/architecture.md."""
