"""A training run to be killed, or started under torchrun: CHECKPOINT HISTORY [EPOCHS]."""

import json
import sys
from pathlib import Path

import torch

import radnet
from radnet.training import fit

if __name__ == "__main__":
    checkpoint, history = sys.argv[1:3]
    epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 150
    generator = torch.Generator().manual_seed(0)
    net = radnet.RadNet(
        (1, 6, 7, 1), "sigmoid", shift="trainable", init="linear", generator=generator, dtype=torch.float64
    )
    x = (-3 + torch.arange(121, dtype=torch.float64) / 20).unsqueeze(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    result = fit(net, (x, torch.exp(-x * x)), epochs=epochs, optimizer=optimizer, checkpoint=checkpoint, every=1)
    Path(history).write_text(json.dumps({"losses": result.losses, "rates": result.rates}))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
