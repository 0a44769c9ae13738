"""Covers of a domain by balls: how they are found, one way a file, and how a network places them.

`lattices`: one radius, for a function with one bound. `subdivision`: radii that adapt, for one with a bound on every
box. `greedy`: from samples alone, and farthest points where balls must keep apart. `pruning` takes away what is not
needed, `trees` finds the balls around a point, `cover` is what all of them become.
"""

from .counts import TooManyBalls, bound_on_count, bound_on_separated_count
from .cover import Balls, Cover, Ruler, place

__all__ = ["Balls", "Cover", "Ruler", "TooManyBalls", "bound_on_count", "bound_on_separated_count", "place"]
