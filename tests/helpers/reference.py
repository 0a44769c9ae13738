"""The paper's text in NumPy, on its own: no radnet, no torch, float64, one row at a time where that is how it reads."""

import numpy as np

PROFILES = {
    "step_relu": lambda r: r if r >= 1 else 0.0,
    "squash": lambda r: r**2 / (r**2 + 1),
    "shifted_relu": lambda r: max(0.0, r - 0.5),
    "sigmoid": lambda r: 1 / (1 + np.exp(-r)),
    "identity": lambda r: r,
    "tanh": np.tanh,
    "sin": np.sin,
    "gaussian": lambda r: r * np.exp(-(r**2) / 2),
    "swish": lambda r: r / (1 + np.exp(-r)),
}


def rescale(h, v, t=0.0):
    """h^(n,t)(v) = h(|v| - t) v/|v|, and 0 at 0."""
    r = np.sqrt(np.sum(v**2))
    return np.zeros_like(v) if r == 0 else h(r - t) / r * v


def partial_feedforward(weights, biases, profiles, shifts, x):
    """[F_0(x), ..., F_L(x)] for one input x."""
    F = [x]
    for W, b, h, t in zip(weights, biases, profiles, shifts, strict=True):
        F.append(rescale(h, W @ F[-1] + b, t))
    return F


def qr_decomp(A):
    """Complete QR with a non-negative diagonal, the sign of 0 counting as +1."""
    Q, R = np.linalg.qr(A, mode="complete")
    signs = np.ones(Q.shape[1])
    diagonal = np.diagonal(R)
    signs[: len(diagonal)] = np.where(diagonal < 0, -1, 1)
    return Q * signs, R * signs[:, None]


def qr_compress(weights, biases):
    """Algorithm 1 line by line, with complete matrices Q_i; returns Q, W_red, b_red."""
    L = len(weights)
    Qs, W_red, b_red = [], [], []
    A = np.column_stack([biases[0], weights[0]])
    for i in range(L - 1):
        Q, R = qr_decomp(A)
        n_red = min(A.shape)
        R = R[:n_red]
        Qs.append(Q)
        b_red.append(R[:, 0])
        W_red.append(R[:, 1:])
        inc = np.eye(Q.shape[0])[:, :n_red]
        A = np.column_stack([biases[i + 1], weights[i + 1] @ Q @ inc])
    b_red.append(A[:, 0])
    W_red.append(A[:, 1:])
    return Qs, W_red, b_red
