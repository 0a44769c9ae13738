"""Random models of every shape that `compress` claims to know, and some parts that it does not."""

import torch
from torch import nn

import radnet


def activation(rng, dim=-1, blocks=None):
    kinds = [
        radnet.Squash,
        radnet.ShiftedReLU,
        radnet.RadialSigmoid,
        radnet.StepReLU,
        lambda **k: radnet.Radial(torch.tanh, **k),
    ]
    kind = kinds[int(torch.randint(len(kinds), (), generator=rng))]
    shift = [None, 0.3][int(torch.randint(2, (), generator=rng))]
    return kind(dim=dim, blocks=blocks, shift=shift)


def number(rng, low, high):
    return int(torch.randint(low, high + 1, (), generator=rng))


def coin(rng, p=0.5):
    return float(torch.rand((), generator=rng)) < p


class Chain(nn.Module):
    """Linear layers, radial activations, now and then something pointwise or a norm layer."""

    def __init__(self, rng):
        super().__init__()
        n = self.n = number(rng, 1, 5)
        parts = []
        for _ in range(number(rng, 1, 4)):
            m = number(rng, 1, 40)
            parts.append(nn.Linear(n, m, bias=coin(rng, 0.8)))
            what = number(rng, 0, 9)
            if what == 0:
                parts.append(nn.ReLU())
            elif what == 1:
                parts.append(nn.RMSNorm(m, eps=1e-3))
                nn.init.uniform_(parts[-1].weight, 0.5, 1.5)
            elif what == 2 and m > 1:
                parts.append(nn.LayerNorm(m, eps=1e-2))
                nn.init.uniform_(parts[-1].weight, 0.5, 1.5)
                nn.init.normal_(parts[-1].bias)
            elif what == 3:
                parts += [nn.BatchNorm1d(m), activation(rng)]
                nn.init.normal_(parts[-2].running_mean)
                nn.init.uniform_(parts[-2].running_var, 0.5, 2)
            elif what == 4:
                parts += [nn.Dropout(), activation(rng)]
            elif what == 5 and m % 2 == 0:
                parts.append(activation(rng, blocks=2))
            else:
                parts.append(activation(rng))
            n = m
        parts.append(nn.Linear(n, number(rng, 1, 4)))
        self.layers = nn.Sequential(*parts)

    def forward(self, x):
        return self.layers(x)

    def inputs(self, rows, rng):
        return torch.randn(rows, self.n, generator=rng, dtype=torch.float64)


class Residual(nn.Module):
    """A stream that is written several times."""

    def __init__(self, rng):
        super().__init__()
        self.n, m = number(rng, 1, 4), number(rng, 6, 40)
        self.stem = nn.Linear(self.n, m, bias=coin(rng))
        self.act = activation(rng) if coin(rng) else nn.Identity()
        depth = number(rng, 1, 3)
        self.norms = nn.ModuleList(nn.RMSNorm(m, eps=1e-2) if coin(rng, 0.3) else nn.Identity() for _ in range(depth))
        widths = [number(rng, 1, 50) for _ in range(depth)]
        self.up = nn.ModuleList(nn.Linear(m, k, bias=coin(rng)) for k in widths)
        self.down = nn.ModuleList(nn.Linear(k, m, bias=coin(rng)) for k in widths)
        self.rho = nn.ModuleList(activation(rng) for _ in widths)
        self.sign = 1.0 if coin(rng) else -0.5
        self.head = nn.Linear(m, 2)
        self.reuse = coin(rng, 0.2)

    def forward(self, x):
        x = self.act(self.stem(x))
        for norm, up, rho, down in zip(self.norms, self.up, self.rho, self.down, strict=True):
            x = x + self.sign * down(rho(up(norm(x))))
            if self.reuse:
                x = x - down(rho(up(norm(x))))
        return self.head(x)

    def inputs(self, rows, rng):
        return torch.randn(rows, self.n, generator=rng, dtype=torch.float64)


class Branches(nn.Module):
    """Two paths that are added or joined, one of them perhaps pinned."""

    def __init__(self, rng):
        super().__init__()
        self.n, m = number(rng, 1, 4), number(rng, 2, 30)
        k = m if coin(rng) else number(rng, 2, 30)
        self.a, self.b = nn.Linear(self.n, m), nn.Linear(self.n, k)
        self.join = m != k or coin(rng)
        pick = [nn.Identity(), activation(rng), nn.Tanh()]
        self.f, self.g = pick[number(rng, 0, 2)], pick[number(rng, 0, 2)]
        total = m + k if self.join else m
        self.rho = activation(rng) if coin(rng) else nn.Identity()
        self.c = nn.Linear(total, number(rng, 2, 60))
        self.last = activation(rng)
        self.head = nn.Linear(self.c.out_features, 3)
        self.extra = nn.Parameter(torch.randn(total)) if coin(rng) else None

    def forward(self, x):
        u, v = self.f(self.a(x)), self.g(self.b(x))
        y = torch.cat([u, v], dim=-1) if self.join else u + v
        if self.extra is not None and not self.join:
            y = y + self.extra
        return self.head(self.last(self.c(self.rho(y))))

    def inputs(self, rows, rng):
        return torch.randn(rows, self.n, generator=rng, dtype=torch.float64)


class Convolutions(nn.Module):
    """Convolutions with channel norms, strides, padding, pooling, shortcuts; then a linear layer."""

    def __init__(self, rng):
        super().__init__()
        self.n = number(rng, 1, 2)
        a, b = number(rng, 2, 24), number(rng, 2, 40)
        self.first = nn.Conv2d(self.n, a, 3, padding=number(rng, 0, 1), bias=coin(rng))
        self.norm = nn.BatchNorm2d(a) if coin(rng, 0.3) else nn.Identity()
        if coin(rng, 0.3) and isinstance(self.norm, nn.BatchNorm2d):
            nn.init.normal_(self.norm.running_mean)
        self.rho = activation(rng, dim=1)
        kernel = (1, 3)[number(rng, 0, 1)]
        same = coin(rng, 0.4)
        self.second = nn.Conv2d(
            a,
            a if same else b,
            kernel,
            padding="same" if same else number(rng, 0, 1),
            stride=1 if same else number(rng, 1, 2),
        )
        self.same = same
        self.rho2 = activation(rng, dim=1) if coin(rng, 0.8) else nn.ReLU()
        self.pool = [nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Identity(), nn.AvgPool2d(2, padding=1)][
            number(rng, 0, 3)
        ]
        with torch.no_grad():
            size = self._features(torch.zeros(1, self.n, 8, 8)).shape[1]
        self.head = nn.Linear(size, 3)

    def _features(self, x):
        x = self.rho(self.norm(self.first(x)))
        y = self.second(x)
        return torch.flatten(self.pool(self.rho2(x + y if self.same else y)), 1)

    def forward(self, x):
        return self.head(self._features(x))

    def inputs(self, rows, rng):
        return torch.randn(rows, self.n, 8, 8, generator=rng, dtype=torch.float64)


class Tokens(nn.Module):
    """An embedding, positions, a residual block, and a head that may share the embedding's weights."""

    def __init__(self, rng):
        super().__init__()
        self.vocabulary, n = number(rng, 2, 9), number(rng, 4, 30)
        self.embedding = nn.Embedding(self.vocabulary, n)
        self.positions = nn.Parameter(torch.randn(5, n)) if coin(rng) else None
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n, bias=coin(rng))
        self.rho = activation(rng)
        self.final = nn.RMSNorm(n, eps=1e-2, elementwise_affine=False) if coin(rng) else nn.Identity()
        self.head = nn.Linear(n, self.vocabulary, bias=False)
        if coin(rng):
            self.head.weight = self.embedding.weight
        self.average = coin(rng)

    def forward(self, i):
        x = self.embedding(i)
        if self.positions is not None:
            x = x + self.positions
        x = self.final(x + self.down(self.rho(self.up(x))))
        return self.head(x.mean(dim=1) if self.average else x)

    def inputs(self, rows, rng):
        return torch.randint(0, self.vocabulary, (rows, 5), generator=rng)


FAMILIES = (Chain, Residual, Branches, Convolutions, Tokens)


def random_model(seed):
    """A model in float64 and in eval mode, the same for the same seed, and a generator for its inputs."""
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = FAMILIES[seed % len(FAMILIES)](rng).double().eval()
    return model, rng
