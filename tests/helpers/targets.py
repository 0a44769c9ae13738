"""Functions to approximate, with Lipschitz constants and limits that were worked out by hand."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch

import radnet

GAUSS = math.sqrt(2 / math.e) * (1 + 1e-12)  # the largest slope of exp(-r^2)
BUMP = 8 / (3 * math.sqrt(3)) * (1 + 1e-12)  # of max(0, 1 - r^2)^2, at r = 1/sqrt(3)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    f: Callable
    domain: object
    lipschitz: float
    quick: float
    full: tuple
    limit: tuple | None = None
    widest: tuple = ()  # eps for width "max", at most 500 balls

    def __repr__(self):
        return self.name


def bump(x):
    return (1 - x.square().sum(1)).clamp(min=0) ** 2


A22, b22 = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64), torch.tensor([1.0, -2.0], dtype=torch.float64)
CASES = [
    Case(
        "gaussian 1-1", lambda x: torch.exp(-(x**2)), radnet.Box(-3, 3), GAUSS, 0.02, (0.5, 0.02, 1.3e-4), ([[0]], [0])
    ),
    Case(
        "gaussian 2-1",
        lambda x: torch.exp(-x.square().sum(1)),
        radnet.Box([-3, -3], [3, 3]),
        GAUSS,
        0.25,
        (0.5, 0.25, 0.03),
        ([[0, 0]], [0]),
        (0.5, 0.2),
    ),
    Case(
        "gaussian 3-1",
        lambda x: torch.exp(-x.square().sum(1)),
        radnet.Box([-2] * 3, [2] * 3),
        GAUSS,
        0.5,
        (0.5, 0.15),
        ([[0, 0, 0]], [0]),
        (0.6,),
    ),
    Case(
        "bump on a line 1-1",
        lambda x: 2 * x[:, 0] + 1 + bump(x),
        radnet.Box(-1.25, 1.25),
        2 + BUMP,
        0.1,
        (0.5, 0.1, 0.001),
        ([[2]], [1]),
    ),
    Case(
        "bumps on a plane 2-2",
        lambda x: x @ A22.T + b22 + torch.stack([bump(x), -bump(x)], 1),
        radnet.Ball([0, 0], 1.0625),
        float(torch.linalg.matrix_norm(A22, 2)) + math.sqrt(2) * BUMP,
        0.4,
        (0.5, 0.1),
        (A22, b22),
        (0.5,),
    ),
    Case(
        "a constant 2-3",
        lambda x: np.tile([1.0, -2.0, 0.5], (len(x), 1)),
        radnet.Box([-1, 0], [1, 1]),
        0.0,
        0.5,
        (0.5, 2e-3),
        (np.zeros((3, 2)), [1.0, -2.0, 0.5]),
        (0.5, 2e-3),
    ),
    Case("a kink 1-1", lambda x: x.abs(), radnet.Box(-1, 1), 1.0, 0.05, (0.5, 0.05, 2e-3)),
    Case(
        "kinks 2-1",
        lambda x: x.abs().sum(1),
        radnet.Box([-1, -0.5], [1, 0.5]),
        math.sqrt(2) * (1 + 1e-12),
        0.2,
        (0.5, 0.2, 0.05),
        None,
        (0.5, 0.2),
    ),
    Case(
        "an even function on a symmetric grid 1-1",
        lambda x: torch.cos(3 * x),
        radnet.Box(-2, 2),
        3.0,
        0.05,
        (0.5, 0.05, 0.005),
    ),
    Case(
        "an even function on a symmetric grid 2-2",
        lambda x: torch.stack([torch.cos(x).sum(1), torch.cos(x).prod(1)], 1),
        radnet.Box([-2, -2], [2, 2]),
        math.sqrt(2) * (1 + 1e-12),
        0.4,
        (0.5, 0.1),
        None,
        (0.5,),
    ),
    Case("plateaus 1-1", lambda x: (3 * torch.sin(2 * x)).clamp(-1, 1), radnet.Box(0, 5), 6.0, 0.2, (0.5, 0.1, 0.01)),
    Case(
        "flatter than eps 2-1",
        lambda x: 0.01 * torch.sin(x.sum(1)),
        radnet.Box([0, 0], [3, 3]),
        0.0142,
        0.1,
        (0.5, 0.1, 0.005),
        None,
        (0.1,),
    ),
    Case(
        "a curve 1-3",
        lambda x: torch.cat([x.cos(), x.sin(), x / 3], 1),
        radnet.Box(0, 6),
        math.sqrt(10) / 3 * (1 + 1e-12),
        0.2,
        (0.5, 0.1, 0.005),
        None,
        (0.5, 0.05),
    ),
    Case(
        "3-2 on a ball",
        lambda x: torch.stack([x[:, 0].sin() + x[:, 1] / 2, x[:, 2].cos()], 1),
        radnet.Ball([1, 0, -1], 1.5),
        math.sqrt(1.25) * (1 + 1e-12),
        0.6,
        (0.6, 0.25),
        None,
        (0.8,),
    ),
    Case("3-3", lambda x: x.sin(), radnet.Box([0] * 3, [1, 2, 3]), 1.0, 0.6, (0.6, 0.25), None, (0.8,)),
    Case(
        "1-2 with an offset",
        lambda x: torch.cat([x.sin() + 50, x.cos() - 20], 1),
        radnet.Box(100, 104),
        1.0,
        0.2,
        (0.5, 0.02),
        None,
        (0.2,),
    ),
]


def arguments(case: Case, rule: str) -> dict:
    limit = case.limit if rule in ("growing", "n+m+1") else None
    return {"lipschitz": case.lipschitz, "width": rule, "limit": limit}
