"""The constructions of "Universal Approximation" in NumPy, straight from the text, as printed or corrected."""

import numpy as np


def step_relu(z, dtype=np.float64):
    return np.where(np.sqrt((z * z).sum(1, keepdims=True, dtype=dtype)) >= 1, z, dtype(0))


def growing(x, centres, radii, values, A, b):
    """thm:UA-asymp-lin: T_i, S_i and Phi of the appendix."""
    N, n = centres.shape
    z = x
    for i in range(N):
        h = np.sqrt(1 - radii[i] ** 2)
        c = np.pad(centres[i], (0, i))
        z = np.hstack([z - c, np.full((len(x), 1), h)])  # T_i
        z = step_relu(z)
        e = z[:, -1:].copy()
        z[:, -1:] = e - (1 + 1 / h) * e + 1  # S_i
        z[:, :-1] += c
    columns = values - (centres @ A.T + b)
    return z[:, :n] @ A.T + b + z[:, n:] @ columns


def smallest_difference(values):
    """s of thm:UA-n+m+1: the smallest difference of two values that differ."""
    d = np.linalg.norm(values[:, None] - values[None], axis=2)
    return d[d > 0].min()


def width_n_m_1(x, centres, radii, values, A, b, s):
    """thm:UA-n+m+1: (x, y, theta)."""
    n, m = centres.shape[1], values.shape[1]
    v = (values - b) / s
    z = np.hstack([x, np.zeros((len(x), m + 1))])
    for c, r, w in zip(centres, radii, v, strict=True):
        h = np.sqrt(1 - r**2)
        X, y, theta = z[:, :n], z[:, n:-1], z[:, -1:]
        t = step_relu(np.hstack([X - (1 - theta) * c, y - theta * w, (1 - theta) * h]))
        X, y, theta = t[:, :n], t[:, n:-1], t[:, -1:]
        z = np.hstack([X + theta / h * c, y + (1 - theta / h) * w, 1 - theta / h])
    return z[:, :n] @ A.T + b + s * z[:, n:-1]


def width_n_m_1_as_layers(x, centres, radii, values, A, b, s):
    """The same as a network: W z + b of layer i is T_i after the inverse of T_{i-1}, multiplied out."""
    n, m = centres.shape[1], values.shape[1]
    W, shift = np.eye(n + m + 1), np.zeros(n + m + 1)
    z = np.hstack([x, np.zeros((len(x), m + 1))])
    for c, r, w in zip(centres, radii, (values - b) / s, strict=True):
        h = np.sqrt(1 - r**2)
        T, t = np.eye(n + m + 1), np.concatenate([-c, np.zeros(m), [h]])
        T[:, -1] = np.concatenate([c, -w, [-h]])
        z = step_relu(z @ (T @ W).T + (T @ shift + t))
        W, shift = np.eye(n + m + 1), np.concatenate([np.zeros(n), w, [1]])
        W[:, -1] = np.concatenate([c / h, -w / h, [-1 / h]])
    z = z @ W.T + shift
    return z[:, :n] @ A.T + b + s * z[:, n:-1]


def width_max(x, centres, radii, targets, along):
    """thm:UA-bd=n-app for n = m: `along` is what 1/|c - d| is multiplied by: 1 as printed, 1/2 in the proof."""
    z = x
    for c, r in zip(centres, radii, strict=True):
        z = r * step_relu((z - c) / r) + c
    M = len(centres)
    for i in range(M):
        c, d = centres[i], targets[i]
        w = (c - d) / np.linalg.norm(c - d)
        P = [*targets[:i], *centres[i + 1 :]]
        away = [np.linalg.norm((p - d) - ((p - d) @ w) * w) for p in P]
        s = min(away) if away else 1.0
        U = np.eye(len(c)) / s + (along / np.linalg.norm(c - d) - 1 / s) * np.outer(w, w)
        z = np.linalg.solve(U, step_relu((z - d) @ U.T).T).T + d
    return z
