"""Which spaces an operation keeps, joins or pins, and how wide they end: one small model for each."""

import pytest
import torch
from torch import nn

import radnet
from radnet.compression.graph import padded_with_zeros
from test_compress_any import compressed, normal, widths


class Tokens(nn.Module):
    """Rows of 5 positions: three numbers each, a layer of 16, an activation, something, a layer that reads."""

    def __init__(self, f, rho=None, n=16):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), rho or radnet.Squash(), nn.Linear(n, 2)
        self.f = f

    def forward(self, x):
        return self.b(self.f(self.rho(self.a(x))))


class Pictures(nn.Module):
    """Pictures of one channel: a convolution with 16 channels, an activation, something, a convolution that reads."""

    def __init__(self, f, rho=None, reader=None, pad=0):
        super().__init__()
        self.a, self.rho = nn.Conv2d(1, 16, 2, padding=pad), rho or radnet.Squash(dim=1)
        self.b = reader or nn.Conv2d(16, 2, 1)
        self.f = f

    def forward(self, x):
        return self.b(self.f(self.rho(self.a(x))))


class Along(nn.Module):
    """An activation along another axis, between two functions."""

    def __init__(self, before, rho, after):
        super().__init__()
        self.before, self.along, self.after = before, rho, after

    def forward(self, x):
        return self.after(self.along(self.before(x)))


def itself(x):
    return x


turned = Along(lambda x: x.transpose(1, 2), radnet.Squash(dim=1), lambda x: x.transpose(-1, 1))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.permute(1, 0, 2),
        lambda x: x.permute(0, 2, 1).permute(0, -1, 1),
        lambda x: x.transpose(0, 1),
        turned,
        lambda x: x[:, 1:],
        lambda x: x[:, 0],
        lambda x: x[0],
        lambda x: x[0, -1:],
        lambda x: x[:, :, :],
        lambda x: x.mean(1),
        lambda x: x.mean(-2, keepdim=True),
        lambda x: x.mean((0, 1), True),
        lambda x: x.flatten(0, 1),
        lambda x: x.flatten(0, 1).flatten(0, 0),
        lambda x: x.view(x.size(0), x.shape[1], -1),
        lambda x: x.clone(),
        lambda x: nn.functional.dropout(x, training=False),
        lambda x: 3 * x - x / 2,
        lambda x: x - x.transpose(0, 1).transpose(1, 0),
        lambda x: x[:, 1:] - x[:, :-1],
        lambda x: x - x.mean(1, keepdim=True),
        lambda x: x[:1] + x,
        lambda x: x + x[:, :1],
        lambda x: x + x[0],
        lambda x: x[0] - x,
    ],
)
def test_what_moves_or_mixes_positions_leaves_features_alone(f):
    assert widths(compressed(Tokens(f), normal(6, 5, 3))) == [4]


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda x: x[:, :, ::1], "getitem (lambda x: x[:, :, ::1]) does not commute"),
        (lambda x: x[:, :, 0].unsqueeze(2).expand(-1, -1, 16), "getitem"),
        (lambda x: x + x.mean(-1, keepdim=True), "mean"),
        (lambda x: x.flatten(1).unflatten(1, (5, 16)), "flatten"),
        (lambda x: x.view(-1, 16), "view"),
        (lambda x: x / 0.0, "truediv"),
        (lambda x: x * float("inf"), "mul"),
        (lambda x: x + 1, "add"),
        (lambda x: torch.cat([x, x], dim=1), "joins it along another axis"),
        (lambda x: x + torch.ones(16, dtype=torch.float64), "add"),
        (radnet.Squash(dim=1), "f (Squash) does not commute"),
        (lambda x: x + torch.tanh(x), "tanh"),
    ],
)
def test_what_takes_features_apart_pins_them_and_says_so(f, reason):
    (pinned, _) = compressed_or_nan(Tokens(f), normal(6, 5, 3)).spaces
    assert pinned.after == 16
    assert reason in pinned.why


@pytest.mark.parametrize("f", [lambda x: x * x.shape[2], lambda x: x / x.size(-1), lambda x: x[: x.size()[-1]]])
def test_a_program_that_asks_how_many_features_there_are_keeps_them(f):
    (pinned, _) = compressed(Tokens(f), normal(6, 5, 3)).spaces
    assert pinned.after == 16
    assert pinned.why.endswith(" asks for its length")


@pytest.mark.parametrize(
    "f",
    [
        lambda h: h.transpose(0, 1),
        lambda h: h.permute(1, 0, 2),
        lambda h: h[:, 1:],
        lambda h: h[:, 0],
        lambda h: h.mean(1),
        lambda h: h.flatten(0, 1),
        lambda h: h.clone(),
        lambda h: -2 * h,
        lambda h: 3 * h - h.mean(1, keepdim=True),
    ],
)
def test_constants_go_along(f):
    """No activation between two layers: the constant is neither lost nor counted twice on the way."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 16), nn.Linear(16, 2), nn.Linear(16, 2)

        def forward(self, x):
            h = self.a(x)
            return self.b(f(h)).mean() + self.c(h)

    c = compressed(Two(), normal(6, 5, 3))
    assert c.spaces[0].after == 4


def compressed_or_nan(model, x):
    """Dividing by zero leaves nothing to compare: only the analysis is asked then."""
    from radnet.compression.general import compress_model

    return compress_model(model.double().eval(), (x,))


def test_other_positions_are_other_vectors():
    """``h - h^T``: if both were taken for the same vector, nothing would be left of the difference."""

    class Difference(nn.Module):
        def __init__(self, f, bias):
            super().__init__()
            self.a, self.rho, self.b, self.f = nn.Linear(3, 16), radnet.Squash(), nn.Linear(20, 2), f
            self.mid = nn.Linear(16, 20, bias=bias)

        def forward(self, x):
            return self.b(self.rho(self.mid(self.f(self.a(x)))))

    for f in (
        lambda h: h - h.transpose(0, 1),
        lambda h: h.permute(1, 0, 2) - h,
        lambda h: h[:, 1:] - h[:, :-1],
        lambda h: h[:, 0] - h[:, 1],
        lambda h: h - h.mean(1, keepdim=True),
        lambda h: h[:1] - h,
        lambda h: h - h[0],
        lambda h: h.transpose(0, 1).flatten(0, 1) - h.flatten(0, 1),
    ):
        c = compressed(Difference(f, bias=True), normal(5, 5, 3))
        assert widths(c)[1] == 4  # the constant of a is gone, that of the layer between is there
        assert widths(compressed(Difference(f, bias=False), normal(5, 5, 3)))[1] == 3


def test_parts_of_sequences_of_sequences():
    """Axes before the features are joined, features stay."""
    model = nn.Sequential(nn.Linear(3, 16), nn.Flatten(1, 2), radnet.Squash(), nn.Flatten(0, 1), nn.Linear(16, 2))
    assert widths(compressed(model, normal(4, 2, 5, 3))) == [4]


def test_a_pool_along_the_features_pins_them():
    c = compressed(nn.Sequential(nn.Linear(3, 16), radnet.Squash(), nn.AvgPool1d(2), nn.Linear(8, 2)), normal(4, 5, 3))
    assert c.spaces[0].after == 16
    assert c.spaces[0].why == "2 (AvgPool1d) does not commute with a change of basis"


def test_the_axis_of_features_is_followed_wherever_it_goes():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.along, self.conv, self.c = (
                nn.Linear(2, 20), radnet.Squash(dim=1), nn.Conv1d(20, 30, 1), nn.Linear(30, 2),
            )  # fmt: skip

        def forward(self, x):
            h = self.along(self.a(x).permute(0, 2, 1))  # (rows, features, positions)
            return self.c(self.along(self.conv(h[:, :, 1:])).transpose(1, 2)[:, 0])

    assert widths(compressed(Turned(), normal(6, 4, 2))) == [3, 4]


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (nn.AvgPool2d(2), 5),
        (nn.AvgPool2d(2, padding=1), 5),
        (nn.AvgPool2d(2, padding=1, count_include_pad=False), 5),
        (nn.AdaptiveAvgPool2d(2), 5),
        (nn.Dropout2d(), 5),
        (lambda x: x.mean((2, 3), keepdim=True), 5),
        (lambda x: x[:, :, 1:, ::2], 5),
        (lambda x: x.transpose(2, 3), 5),
        (lambda x: x - nn.functional.avg_pool2d(x, 3, 1, 1), 5),
        (nn.MaxPool2d(2), 16),
    ],
)
def test_pools_and_parts_of_pictures_keep_the_channels(f, expected):
    c = compressed(Pictures(f), normal(6, 1, 6, 6))
    assert widths(c)[0] == expected


@pytest.mark.parametrize("counted", [True, False])
def test_a_constant_that_is_averaged_with_padding_is_not_constant(counted):
    """conv, average over zeros, activation: the bias is halved at the edge."""
    layers = [nn.Conv1d(1, 16, 1), nn.AvgPool1d(2, padding=1, count_include_pad=counted), radnet.Squash(dim=1)]
    c = compressed(nn.Sequential(*layers, nn.Conv1d(16, 2, 1)), normal(6, 1, 8))
    assert widths(c) == [2]
    layers[2:] = [nn.Conv1d(16, 20, 1), radnet.Squash(dim=1), nn.Conv1d(20, 2, 1)]
    c = compressed(nn.Sequential(*layers), normal(6, 1, 8))
    assert widths(c) == [2, 3 if counted else 2]  # the constant of the first is a direction, or adds to the second's


def test_flattened_channels_are_read_as_channels_of_each_position():
    x = normal(6, 1, 4, 4)
    for f in (nn.Flatten(), lambda x: x.view(x.shape[0], -1), lambda x: x.reshape(x.size(0), -1)):
        c = compressed(Pictures(f, reader=nn.Linear(16 * 9, 2)), x)
        assert widths(c) == [5]
        assert c.network.b.in_features == 5 * 9
    c = compressed(Pictures(lambda x: x.flatten(2), reader=nn.Conv1d(16, 2, 1)), x)
    assert widths(c) == [5]
    whole = Pictures(Along(lambda x: x.flatten(1), radnet.Squash(), itself), reader=nn.Linear(16 * 9, 2))
    assert widths(compressed(whole, x)) == [5]
    for f, shape in (
        (lambda x: x.flatten(1, 2), (6, 48, 3)),
        (lambda x: x.view(6, 16, 9), (6, 16, 9)),
        (lambda x: x.view(x.size(0), 16, -1), (6, 16, 9)),
        (Along(lambda x: x.flatten(1), radnet.Squash(blocks=2), lambda x: x.unflatten(1, (16, 9))), (6, 16, 9)),
    ):
        c = compressed(Pictures(f, reader=nn.Conv1d(shape[1], 2, 1)), x)
        assert widths(c)[0] == 16


def test_a_flattened_constant_is_read_at_every_position():
    """conv, flatten, linear, activation: the bias of the convolution arrives once for each position."""
    layers = [nn.Conv2d(1, 16, 2), nn.Flatten(), nn.Linear(16 * 4, 30), radnet.Squash(), nn.Linear(30, 2)]
    c = compressed(nn.Sequential(*layers), normal(6, 1, 3, 3))
    assert widths(c) == [5, 17]  # four taps and the constant; four positions of four taps, and the constant
    no_bias = [nn.Conv2d(1, 16, 2, bias=False), nn.Flatten(), nn.Linear(64, 30, bias=False), radnet.Squash()]
    assert widths(compressed(nn.Sequential(*no_bias, nn.Linear(30, 2)), normal(6, 1, 3, 3))) == [4, 16]


def test_a_layer_along_another_axis_pins():
    class Across(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho, self.mix, self.b = (
                nn.Conv1d(2, 16, 1), radnet.Squash(dim=1), nn.Linear(8, 5), nn.Conv1d(16, 2, 1),
            )  # fmt: skip

        def forward(self, x):
            return self.b(self.mix(self.rho(self.a(x))))

    c = compressed(Across(), normal(6, 2, 8))
    assert c.spaces[0].why == "mix (Linear) mixes its positions"
    assert c.network.mix.weight.shape == (5, 8)

    class Unbatched(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Conv1d(6, 2, 1)

        def forward(self, x):
            return self.b(self.rho(self.a(x)))

    c = compressed(Unbatched(), normal(6, 3))
    assert c.spaces[0].why == "b reads another axis than the one that is followed"
    c = compressed(nn.Sequential(nn.Linear(3, 16), radnet.Squash(), nn.Conv1d(5, 2, 1)), normal(6, 5, 3))
    assert c.spaces[0].why == "2 reads another axis than the one that is followed"


class WithParameter(nn.Module):
    def __init__(self, parameter, before=False):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)
        self.p, self.before = parameter, before

    def forward(self, x):
        h = self.a(x)
        return self.b(self.rho(self.p + h if self.before else h + self.p))


@pytest.mark.parametrize("before", [False, True])
def test_parameters_that_are_added_bring_the_dimension_of_their_rows(before):
    x = normal(6, 5, 3)
    for shape, expected in (((16,), 4), ((5, 16), 8), ((1, 1, 16), 4), ((6, 5, 16), 16), ((2, 1, 1, 16), 5)):
        torch.manual_seed(0)
        c = compressed(WithParameter(nn.Parameter(torch.randn(shape)), before), x)
        assert widths(c) == [expected]  # three directions, the constant of the sum, differences of rows
        assert c.network.p.shape == (*shape[:-1], expected)
    c = compressed(WithParameter(nn.Parameter(torch.randn(16), requires_grad=False), before), x)
    assert not c.network.p.requires_grad
    c = compressed(WithParameter(nn.Parameter(torch.tensor(0.5)), before), x)
    assert c.spaces[0].after == 16
    assert "adds something that is not followed" in c.spaces[0].why
    c = compressed(WithParameter(nn.Parameter(torch.ones(1)), before), x)
    assert "adds something of another shape" in c.spaces[0].why


def test_an_embedding_brings_the_dimension_of_its_rows():
    class Words(nn.Module):
        def __init__(self, rank):
            super().__init__()
            self.words, self.rho, self.b = nn.Embedding(9, 16), radnet.Squash(), nn.Linear(16, 2)
            with torch.no_grad():
                self.words.weight.copy_((torch.randn(9, rank) * 9).round() @ (torch.randn(rank, 16) * 9).round())

        def forward(self, i):
            return self.b(self.rho(self.words(i)))

    torch.manual_seed(0)
    i = torch.arange(9).reshape(3, 3)
    c = compressed(Words(3), i)
    assert widths(c) == [3]
    assert c.network.words.weight.shape == (9, 3)
    assert c.network.words.embedding_dim == 3


def test_a_module_in_several_places_must_be_followed_in_all_of_them():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho, self.c = nn.Linear(16, 20), radnet.Squash(), nn.Linear(20, 2)
            self.first, self.second = nn.Linear(3, 16), nn.Linear(3, 16)

        def forward(self, x):
            followed, other = self.rho(self.first(x)), torch.tanh(self.second(x))
            return self.c(self.rho(self.a(followed))) + self.c(self.rho(self.a(other)))

    c = compressed(Again(), normal(6, 3))
    assert c.spaces[0].after == 16
    assert c.spaces[0].why == "a is used in several places, and not all of them are followed"
    assert c.spaces[2].after == 17  # what is written is followed in both places: all of 16 directions and the bias


@pytest.mark.parametrize(("n", "m", "expected"), [(8, 8, 7), (10, 20, 10), (3, 5, 1)])
def test_parts_that_are_joined_both_ways_and_added_are_pieces_of_one_space(n, m, expected):
    class Crossed(nn.Module):
        """All that meets in the sum lives in R^gcd(n, m)."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.rho = nn.Linear(3, n), nn.Linear(3, m), nn.Linear(n + m, 2), radnet.Squash()

        def forward(self, x):
            a, b = self.a(x), self.b(x)
            return self.c(self.rho(torch.cat([a, b], dim=1) + torch.cat([b, a], dim=1)))

    assert widths(compressed(Crossed(), normal(6, 3))) == [expected]


def test_what_is_joined_with_something_that_cannot_change_shrinks_all_the_same():
    class Skip(nn.Module):
        """``[rho(a(x)); x; tanh(b(x))]``, read together."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.rho = nn.Linear(3, 16), nn.Linear(3, 5), radnet.Squash()
            self.c, self.d = nn.Linear(24, 40), nn.Linear(40, 2)

        def forward(self, x):
            h = torch.cat([self.rho(self.a(x)), x, torch.tanh(self.b(x))], dim=1)
            return self.d(self.rho(self.c(h)))

    c = compressed(Skip(), normal(6, 3))
    found = {s.space: (s.after, s.why) for s in c.spaces}
    assert found["a"] == (4, "")
    assert found["x"] == (3, "x is not followed")
    assert found["tanh"] == (5, "tanh is not followed")
    assert found["c"] == (4 + 3 + 5 + 1, "")
    assert c.network.c.in_features == 12
    positions = compressed(
        nn.Sequential(nn.Linear(3, 16), radnet.Squash(), Joined(1), nn.Linear(16, 2)), normal(6, 5, 3)
    )
    assert positions.spaces[0].after == 16
    assert positions.spaces[0].why.endswith(" joins it along another axis")


class Joined(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.cat([x, x], dim=self.dim)


def test_parts_under_one_norm_keep_what_is_theirs():
    """A norm over a concatenation mixes nothing: each part has its own directions and its own piece of the constant."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 26), nn.Linear(4, 5), nn.Linear(31, 27)
            self.g, self.rho, self.head = radnet.RadialSigmoid(), radnet.Squash(), nn.Linear(27, 3)

        def forward(self, x):
            h = torch.cat([self.a(x), self.g(self.b(x))], dim=1)
            return self.head(self.rho(self.c(self.rho(h))))

    assert widths(compressed(Normed(), normal(6, 4))) == [5, 5, 11]


def test_joined_parts_may_be_read_again_by_themselves():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = nn.Linear(2, 12), nn.Linear(3, 14), nn.Linear(26, 9), nn.Linear(12, 9)
            self.rho, self.e = radnet.Squash(), nn.Linear(9, 1)

        def forward(self, x):
            a, b = self.rho(self.a(x[:, :2])), self.rho(self.b(x))
            return self.e(self.rho(self.c(torch.cat((a, b), -1)) - self.d(a)))

    c = compressed(Joined(), normal(6, 3))
    assert widths(c)[:2] == [3, 4]
    assert c.network.c.in_features == 7
    assert c.network.d.in_features == 3


@pytest.mark.parametrize(
    ("conv", "expected"),
    [
        (nn.Conv1d(1, 1, 3, padding=1), True),
        (nn.Conv2d(1, 1, 3, padding=(0, 1)), True),
        (nn.Conv2d(1, 1, 3), False),
        (nn.Conv1d(1, 1, 3, padding="same"), True),
        (nn.Conv1d(1, 1, 1, padding="same"), False),
        (nn.Conv1d(1, 1, 3, padding="valid"), False),
        (nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect"), False),
        (nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"), False),
    ],
)
def test_zeros_beyond_the_edge(conv, expected):
    assert padded_with_zeros(conv) is expected


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular", "replicate"])
@pytest.mark.parametrize("padding", [1, "same", 0])
def test_convolutions_see_what_their_padding_shows_them(mode, padding):
    """Two convolutions with nothing between: the first one's bias is a constant, except beyond an edge of zeros."""
    first, second = (nn.Conv1d(n, m, 3, padding=padding, padding_mode=mode) for n, m in ((1, 12), (12, 20)))
    c = compressed(nn.Sequential(first, second, radnet.Squash(dim=1), nn.Conv1d(20, 2, 1)), normal(6, 1, 9))
    edge = mode == "zeros" and padding != 0
    assert widths(c) == [4, 13 if edge else 10]


@pytest.mark.parametrize("geometry", [{"stride": 2}, {"dilation": 2}, {"stride": 2, "padding": 2}, {"dilation": 3}])
def test_strides_and_dilations_of_every_kind_of_convolution(geometry):
    for conv, n in ((nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3)):
        layers = [conv(1, 20, 2, **geometry), radnet.Squash(dim=1), conv(20, 2, 1)]
        c = compressed(nn.Sequential(*layers), normal(3, 1, *[7] * n))
        assert widths(c) == [2**n + 1]


def test_two_convolutions_with_other_geometry_see_other_neighbours():
    class Two(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.a, self.b = nn.Conv1d(1, 20, 3, padding=1), nn.Conv1d(1, 20, 3, padding=dilation, dilation=dilation)
            self.rho, self.mid, self.c = radnet.Squash(dim=1), nn.Conv1d(20, 30, 1), nn.Conv1d(30, 2, 1)

        def forward(self, x):
            return self.c(self.rho(self.mid(self.a(x) - self.b(x))))

    same, other = (widths(compressed(Two(d), normal(4, 1, 9))) for d in (1, 2))
    assert same == [7, 4]  # both write the first, each with three taps, and the constant; their difference has three
    assert other == [7, 7]


def test_constants_along_a_stream_cost_one_dimension_together():
    class Biased(nn.Module):
        """Five biases on a stream that has one direction."""

        def __init__(self):
            super().__init__()
            self.stem, self.rho = nn.Linear(1, 32), radnet.Squash()
            self.more = nn.ParameterList(nn.Parameter(torch.randn(32)) for _ in range(5))
            self.read = nn.ModuleList(nn.Linear(32, 3) for _ in range(5))

        def forward(self, x):
            x, out = self.stem(x), 0.0
            for p, read in zip(self.more, self.read, strict=True):
                x = x - 2 * p
                out = read(x) if isinstance(out, float) else out + read(x)
            return out

    c = compressed(Biased(), normal(6, 1))
    assert c.spaces[0].after == 2
    assert c.network.stem.out_features == 2
