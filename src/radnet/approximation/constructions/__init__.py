"""The four constructions of the paper, a file each, named after the hidden width it promises.

Each has a function `build` and ends with a `Recipe`, which is all that the rest of the package knows of it; the table
below is the only place that builds with them all (`choosing` knows which of them "auto" compares). `stacked` and
`growing_width` hold the networks themselves.
"""

from . import growing_width, width_max, width_max_plus_1, width_n_plus_m_plus_1
from .construction import Construction, Materials, Recipe

__all__ = ["RECIPES", "Construction", "Materials", "Recipe"]

#: by the name that `approximate` takes as width
RECIPES = {
    recipe.width: recipe
    for recipe in (growing_width.RECIPE, width_n_plus_m_plus_1.RECIPE, width_max_plus_1.RECIPE, width_max.RECIPE)
}
