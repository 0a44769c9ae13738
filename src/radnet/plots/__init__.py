"""The paper's pictures, and those of our own experiments; each function draws on an Axes of matplotlib's."""

from .approximation import collapse, cover, graph
from .experiments import bars, convergence, grid_of_images, heat
from .networks import activation_map, activations, network_diagram, orthogonal_descent

__all__ = [
    "activation_map",
    "activations",
    "bars",
    "collapse",
    "convergence",
    "cover",
    "graph",
    "grid_of_images",
    "heat",
    "network_diagram",
    "orthogonal_descent",
]
