"""How fast it is, beside the obvious alternatives: `radnet bench`.

`timing` measures in turns, `baselines` are what we are compared with, `comparisons` and `growth` what is measured,
`report` shows it.
"""
