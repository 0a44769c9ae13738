"""RBF networks: the constrained multilayer ones, which radial networks are, and those with N centres, which are blocks.

Paper: "Relation to radial basis function networks" (app:rbfns). `network` has the multilayer networks and both halves
of the proposition, `layer` the single layer with N centres, `kernels` what its lambda may be, `blocks` its block form.
"""

from .blocks import as_blocks, compress_blocks
from .kernels import kernel_of
from .layer import RBFLayer
from .network import RBFNetwork, from_rbf, to_rbf

__all__ = ["RBFLayer", "RBFNetwork", "as_blocks", "compress_blocks", "from_rbf", "kernel_of", "to_rbf"]
