"""Damage to what was read from JSON."""

import copy

#: values that do not belong where they are put
ODD = (
    None, True, -1, 0, 2**62, 2**70, 1e308, 0.1, "", "x", "\u0000", [], [[]], {}, {"a": 1}, [1] * 1000, "float64",
    "squash", "9" * 500, [2, 3, 1], {"name": "squash", "shift": "none"},
)  # fmt: skip


def changed(value, rng):
    """A header with something in it replaced, left out or added."""
    value = copy.deepcopy(value)
    places = []

    def visit(node):
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            visit(node[key])

    visit(value)
    for _ in range(rng.choice((1, 1, 2))):
        node, key = rng.choice(places)
        if isinstance(node, dict) and key in node and rng.random() < 0.2:
            del node[key]
        elif isinstance(node, dict) or key < len(node):
            node[key] = copy.deepcopy(rng.choice(ODD))
    return value
