"""Compressing (784, 4096, 4096, 10) beside the algorithm as printed, and what the small network saves."""

from __future__ import annotations

from functools import partial

import torch
from timing import finish, interleave, show
from torch import Tensor

import radnet
from radnet.compression.chain import qr_compress

WIDTHS = (784, 4096, 4096, 10)


def printed_algorithm(net: radnet.RadNet) -> list[Tensor]:
    """Algorithm 1 with complete matrices Q_i, in float64."""
    A = net.merged()[0].detach().double()
    small = []
    for W, b in zip(net.weights[1:], net.biases[1:], strict=True):
        Q, R = torch.linalg.qr(A, mode="complete")
        k = min(A.shape)
        small.append(R[:k])
        inc = torch.eye(Q.shape[0], k, dtype=torch.float64)
        A = torch.cat([torch.as_tensor(b).detach().double().unsqueeze(1), W.detach().double() @ Q @ inc], dim=1)
    return [*small, A]


def main() -> None:
    net = radnet.RadNet(WIDTHS, "shifted_relu", generator=torch.Generator().manual_seed(0))
    times = interleave(
        {
            "radnet, thin QR": lambda: qr_compress(net.weights, net.biases),
            "radnet, with certificate": lambda: radnet.compress(net),
            "as printed, complete QR": lambda: printed_algorithm(net),
        },
        rounds=5,
        warmup=1,
    )
    show(f"compressing {WIDTHS}", times, "radnet, thin QR")
    compression = radnet.compress(net)
    small = compression.network
    inference = {}
    for rows in (1, 256):
        x = torch.randn(rows, WIDTHS[0], generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            pair = interleave({"compressed": partial(small, x), "original": partial(net, x)}, rounds=25, warmup=3)
        show(
            f"inference, batch {rows}, {net.parameter_count:,} against {small.parameter_count:,} parameters",
            pair,
            "compressed",
        )
        inference[f"batch {rows}"] = pair
    print(compression.certificate)
    finish({"compression": times, "inference": inference, "certificate": compression.certificate.to_dict()})


if __name__ == "__main__":
    main()
