"""The four constructions of the paper, a file each, named after the hidden width it promises.

Each has a function `build` that takes balls and values and returns a `Construction`: the network, and what is known
about its rounding. `stacked` and `growing_width` hold the networks themselves.
"""
