"""Parameters and modules that serve in several places: they change in one way or not at all."""

import pytest
import torch
from torch import nn

import radnet
from known_models import compressed, normal, widths


class Pair(nn.Module):
    """Two layers on three inputs, tied as told, with functions behind them and a sum or a join at the end."""

    def __init__(self, f, g, together):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 16), nn.Linear(3, 16), nn.Linear(16, 2)
        self.rho, self.f, self.g, self.together = radnet.Squash(), f, g, together
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.together(self, self.f(self.a(x)), self.g(self.b(x)))


def test_tied_layers_that_write_one_space_change_together():
    c = compressed(Pair(nn.Identity(), nn.Identity(), lambda self, u, v: self.c(self.rho(u + 2 * v))), normal(6, 3))
    assert widths(c) == [5]  # three directions, and the constants of both, which must be in the basis
    assert c.network.a.weight is c.network.b.weight
    assert c.network.a.weight.shape == (5, 3)


class Apart(nn.Module):
    """Two layers with one tensor between them, each with a space of its own; the second is followed by g."""

    def __init__(self, tied, g):
        super().__init__()
        self.a, self.b, self.rho, self.g = nn.Linear(3, 16), nn.Linear(3, 16), radnet.Squash(), g
        self.c, self.d = nn.Linear(16, 2), nn.Linear(16, 2)
        setattr(self.b, tied, getattr(self.a, tied))

    def forward(self, x):
        return self.c(self.rho(self.a(x))) + self.d(self.g(self.b(x)))


@pytest.mark.parametrize(
    ("tied", "g"), [("weight", nn.Tanh()), ("bias", nn.Tanh()), ("weight", radnet.Squash()), ("bias", nn.ReLU())]
)
def test_tied_layers_in_two_spaces_have_one_answer_or_none(tied, g):
    """One of the spaces cannot change, or both can, but not in the same way."""
    c = compressed(Apart(tied, g), normal(6, 3))
    assert getattr(c.network.a, tied) is getattr(c.network.b, tied)
    assert c.network.a.weight.shape == (16, 3)
    assert c.spaces[0].why == f"a.{tied} and b.{tied} serves in places that need different bases"


def test_a_bias_that_two_spaces_share_is_the_first_direction_of_both():
    c = compressed(Apart("bias", radnet.Squash()), normal(6, 3))
    assert c.network.a.bias is c.network.b.bias
    assert widths(c) == [4, 4]
    expected = torch.zeros(4, dtype=torch.float64)
    expected[0] = c.original.a.bias.detach().norm()
    torch.testing.assert_close(c.network.a.bias.detach(), expected, rtol=1e-14, atol=1e-14)


def test_tied_layers_of_which_one_cannot_change_stay():
    model = Pair(nn.Identity(), nn.Tanh(), lambda self, u, v: self.c(self.rho(u)) + self.c(self.rho(v)))
    c = compressed(model, normal(6, 3))
    assert c.network.a.weight is c.network.b.weight
    assert c.network.a.weight.shape == (16, 3)


def test_a_parameter_that_is_added_in_two_places_is_one_parameter():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.rho = nn.Linear(3, 16), nn.Linear(3, 16), radnet.Squash()
            self.p, self.c = nn.Parameter(torch.randn(16)), nn.Linear(16, 2)

        def forward(self, x):
            return self.c(self.rho(self.a(x) + self.p)) + self.c(self.rho(self.b(x) + self.p))

    c = compressed(Twice(), normal(6, 3))
    assert c.network.p.shape == (c.spaces[0].after,)
    assert c.spaces[0].after < 16


def test_an_activation_with_blocks_must_have_the_same_blocks_everywhere():
    class Blocks(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a, self.b, self.rho = nn.Linear(3, 16), nn.Linear(n, 16), radnet.Squash(blocks=2)
            self.c, self.d = nn.Linear(16, 2), nn.Linear(16, 2)

        def forward(self, x):
            return self.c(self.rho(self.a(x))) + self.d(self.rho(self.b(x[:, : self.b.in_features])))

    c = compressed(Blocks(3), normal(6, 3))
    assert widths(c) == [4, 4, 4, 4]
    assert c.network.rho.blocks == 2
    c = compressed(Blocks(2), normal(6, 3))
    assert c.network.rho.blocks in (2, (8, 8))
    reasons = {space.why for space in c.spaces[:-1]}
    assert "rho is used in places that need blocks of different sizes" in reasons


def test_sizes_of_blocks_are_kept_as_they_were_given():
    for blocks, expected in ((2, 2), ((8, 8), (4, 4)), ((4, 12), (4, 4))):
        model = nn.Sequential(nn.Linear(3, 16), radnet.Squash(blocks=blocks), nn.Linear(16, 2))
        assert compressed(model, normal(6, 3)).network[1].blocks == expected
    uneven = nn.Sequential(nn.Linear(3, 16), radnet.Squash(blocks=2), nn.Linear(16, 2)).double()
    with torch.no_grad():
        uneven[0].weight[8:, 2] = 0
    assert compressed(uneven, normal(6, 3)).network[1].blocks == (4, 3)


def test_a_layer_that_reads_a_constant_grows_a_bias_and_says_whether_it_trains():
    class Skip(nn.Module):
        """The stream carries a constant; the first reader has no bias, and reads it at every place."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.rho = (
                nn.Linear(3, 16), nn.Linear(16, 20, bias=False), nn.Linear(20, 2, bias=False), radnet.Squash(),
            )  # fmt: skip

        def forward(self, x):
            return self.c(self.rho(self.b(self.a(x))))

    c = compressed(Skip(), normal(6, 3))
    assert widths(c) == [4, 4]
    names = [name for name, _ in c.network.named_parameters()]
    assert set(names) >= {"a.weight", "a.bias", "b.weight", "c.weight"}


@pytest.mark.parametrize("grad", [True, False])
def test_new_parameters_are_like_those_they_replace(grad):
    model = nn.Sequential(nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)).float().eval()
    for p in model.parameters():
        p.requires_grad_(grad)
    small = radnet.compress(model).network
    assert all(isinstance(p, nn.Parameter) for p in small.parameters())
    assert {p.requires_grad for p in small.parameters()} == {grad}
    assert {p.dtype for p in small.parameters()} == {torch.float32}
    assert (small[0].in_features, small[0].out_features, small[2].in_features) == (3, 4, 4)
    conv = nn.Sequential(nn.Conv2d(1, 16, 2), radnet.Squash(dim=1), nn.Conv2d(16, 2, 1)).eval()
    small = radnet.compress(conv, torch.randn(4, 1, 5, 5)).network
    assert (small[0].in_channels, small[0].out_channels, small[2].in_channels, small[2].out_channels) == (1, 5, 5, 2)
    assert repr(small[2]) == "Conv2d(5, 2, kernel_size=(1, 1), stride=(1, 1))"


# --- streams that grow


class Pictures(nn.Module):
    """A residual stream of pictures: a convolution of one tap, then ``x + W2 rho(W1 x)`` twice."""

    def __init__(self, last=None):
        super().__init__()
        self.stem, self.rho, self.head = nn.Conv2d(1, 40, 1), radnet.Squash(dim=1), last or nn.Conv2d(40, 2, 1)
        self.up = nn.ModuleList(nn.Conv2d(40, 50, 1) for _ in range(2))
        self.down = nn.ModuleList(nn.Conv2d(50, 40, 1) for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(self.rho(up(x)))
        return self.head(x)


def test_a_stream_of_pictures_grows_along_its_channels():
    model = Pictures().double().eval()
    c = radnet.compress(model, normal(5, 1, 4, 4), rewrite=True)
    assert c.spaces[0].along == (2, 4, 8)
    assert [s.after for s in c.spaces[1:3]] == [2, 4]
    pads = [node.args[1] for node in c.network.graph.nodes if node.target is nn.functional.pad]
    assert pads == [[0, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, 4]]
    assert radnet.verify(model, c.network, normal(7, 1, 3, 6, seed=2)).lossless
    plain = radnet.compress(model, normal(5, 1, 4, 4))
    assert plain.spaces[0].along == (8,)


def test_a_stream_that_meets_an_edge_of_zeros_does_not_grow_but_stays_right():
    model = Pictures(last=nn.Conv2d(40, 2, 3, padding=1)).double().eval()
    c = radnet.compress(model, normal(5, 1, 4, 4), rewrite=True)
    assert c.certificate.lossless
    assert radnet.verify(model, c.network, normal(7, 1, 5, 5, seed=2)).lossless


def test_parts_of_a_concatenation_and_shared_layers_do_not_grow():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.up, self.down = nn.Linear(2, 30), nn.Linear(30, 20), nn.Linear(20, 30)
            self.rho, self.head = radnet.Squash(), nn.Linear(60, 2)

        def forward(self, x):
            x = self.a(x)
            y = x + self.down(self.rho(self.up(x)))
            y = y + self.down(self.rho(self.up(y)))
            return self.head(torch.cat([y, x], dim=1))

    model = Joined().double().eval()
    c = radnet.compress(model, normal(9, 2), rewrite=True)
    assert c.certificate.lossless
    assert all(len(space.along) == 1 for space in c.spaces)
