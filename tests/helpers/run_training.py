"""A training run to be killed, or started under torchrun: CHECKPOINT HISTORY [EPOCHS] [--dropout].

With --dropout the network draws from the global generator, and a DataLoader shuffles with one of its own.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import radnet
from radnet.training import fit

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("history")
    parser.add_argument("epochs", type=int, nargs="?", default=150)
    parser.add_argument("--dropout", action="store_true")
    given = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    net = radnet.RadNet(
        (1, 6, 7, 1), "sigmoid", shift="trainable", init="linear", generator=generator, dtype=torch.float64
    )
    x = (-3 + torch.arange(121, dtype=torch.float64) / 20).unsqueeze(1)
    data, model = (x, torch.exp(-x * x)), net
    if given.dropout:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Dropout(0.1), net, nn.Dropout(0.1))
        data = DataLoader(TensorDataset(*data), batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    result = fit(model, data, epochs=given.epochs, optimizer=optimizer, checkpoint=given.checkpoint, every=1)
    Path(given.history).write_text(json.dumps({"losses": result.losses, "rates": result.rates}))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
