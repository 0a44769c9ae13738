"""The paper's pictures, and our own; each function draws on the Axes that it is given, or on new ones."""

from .approximation import collapse, cover, graph
from .experiments import bars, convergence, grid_of_images, heat
from .networks import activation_map, activations, network_diagram, orthogonal_descent, width_bars

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
    "width_bars",
]
