"""The experiments of the paper, and two it leaves open: one file each, frozen settings, seeds in, plain data out.

Every experiment has ``Settings`` (each value with its place in the paper), ``Trial`` (plain data) and
``trial(settings, seed, tell)``, which runs one trial and tells what share of it is done. `plan` lists the trials,
`runner` runs them in processes of their own, `report` sets ours beside the paper's, `page` makes the page.
"""
