"""Models whose compression is known beforehand, inputs for them, and the widths that are left."""

import copy
import itertools

import torch
from torch import nn

import radnet


def widths(compression):
    """Widths of the spaces that are not outputs."""
    return [s.after for s in compression.spaces if s.why != "it is an output of the model"]


def compressed(model, *inputs, **keywords):
    model = model.double().eval()
    before = copy.deepcopy(model.state_dict())
    c = radnet.compress(model, inputs if len(inputs) > 1 else inputs[0], **keywords)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert type(c.network) is type(model)
    assert c.certificate.lossless
    return c


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Stream(nn.Module):
    """``x + W2 rho(W1 x)``, three times, on a stream of width 64 with hidden 256."""

    def __init__(self, activation):
        super().__init__()
        self.stem, self.act, self.rho = nn.Linear(3, 64), activation, radnet.Squash()
        self.up = nn.ModuleList(nn.Linear(64, 256) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(256, 64) for _ in range(3))
        self.head = nn.Linear(64, 2)

    def forward(self, x):
        x = self.act(self.stem(x))
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(self.rho(up(x)))
        return self.head(x)


def decaying(widths, activation, seed):
    """A network whose layers have singular values that fall off."""
    torch.manual_seed(seed)
    layers = []
    for n, m in itertools.pairwise(widths):
        layer = nn.Linear(n, m).double()
        with torch.no_grad():
            U, S, V = torch.linalg.svd(layer.weight, full_matrices=False)
            layer.weight.copy_(U @ torch.diag(S * 0.3 ** torch.arange(len(S), dtype=torch.float64)) @ V)
        layers += [layer, copy.deepcopy(activation)]
    return nn.Sequential(*layers[:-1]).eval()


class OtherRMSNorm(nn.Module):
    def __init__(self, n, eps, factor=1.0):
        super().__init__()
        self.weight, self.variance_epsilon, self.factor = nn.Parameter(torch.rand(n) + 0.5), eps, factor

    def forward(self, v):
        return self.weight * v * torch.rsqrt(v.square().mean(-1, keepdim=True) * self.factor + self.variance_epsilon)
