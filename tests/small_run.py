"""All six experiments in a few seconds: settings too small to mean anything, but every step of a real run."""

SMALL = {
    1: ({}, 3),
    2: ({"initialisations": 2, "epochs": 20}, 1),
    3: ({"per_axis": 9, "epochs": 45, "loss": 0.2}, 2),
    4: ({"epochs": 3, "copies": 6, "train": 12}, 2),
    5: ({"depths": (2, 4), "per_axis": 5, "epochs": 3}, 2),
    6: ({"hidden": (8, 8), "train": 50, "test": 50, "epochs": 3}, 2),
}
