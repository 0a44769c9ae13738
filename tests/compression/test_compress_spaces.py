"""Which spaces an operation keeps, joins or pins, and how wide they end: one small model for each."""

import itertools

import pytest
import torch
from torch import nn

import radnet
from known_models import compressed, normal, widths
from radnet.compression.operations.convolution import padded_with_zeros


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


def test_rewritten_two_linear_layers_in_a_row_are_one_where_that_is_smaller():
    def widths(model, n):
        c = radnet.compress(model.double().eval(), normal(20, n), rewrite=True)
        assert c.certificate.lossless
        return [tuple(m.weight.shape) for m in c.network.modules() if isinstance(m, nn.Linear)]

    def chain(*sizes, **keywords):
        return [nn.Linear(a, b, **keywords) for a, b in itertools.pairwise(sizes)]

    torch.manual_seed(0)
    assert widths(nn.Sequential(*chain(8, 128, 24)), 8) == [(24, 8)]
    assert widths(nn.Sequential(*chain(8, 128, 24, bias=False)), 8) == [(24, 8)]
    assert widths(nn.Sequential(*chain(8, 16), *chain(16, 5, bias=False)), 8) == [(5, 8)]
    assert widths(nn.Sequential(*chain(20, 3, 50, 40, 2)), 20) == [(3, 20), (2, 3)]  # 20 x 2 after 20 x 3 is no more
    assert widths(nn.Sequential(*chain(30, 2, 30), radnet.Squash(), *chain(30, 1)), 30) == [(2, 30), (3, 2), (1, 3)]

    class Fork(nn.Module):
        """What the first layer gives is read twice."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = chain(6, 9, 6) + chain(9, 6)

        def forward(self, x):
            h = self.a(x)
            return self.b(h) + self.c(h)

    assert widths(Fork(), 6) == [(6, 6), (6, 6), (6, 6)]

    class Changed(nn.Module):
        """What the first layer reads is changed in place before the second one runs."""

        def __init__(self):
            super().__init__()
            self.a, self.b = chain(6, 9, 6)

        def forward(self, x):
            h = self.a(x)
            torch.relu_(x[:, :3])
            return self.b(h), x.sum()

    assert widths(Changed(), 6) == [(6, 6)]
    shared = nn.Linear(6, 6)
    assert widths(nn.Sequential(shared, shared, nn.Linear(6, 2)), 6) == [(6, 6), (2, 6)]
    tied = nn.Sequential(*chain(6, 6, 6), radnet.Squash(), *chain(6, 2))
    tied[1].weight = tied[0].weight
    assert widths(tied, 6) == [(6, 6), (6, 6), (2, 6)]


@pytest.mark.parametrize("bias", [True, False])
def test_two_linear_layers_in_a_row_meet_in_as_many_dimensions_as_the_first_reads(bias):
    """The bias of the second takes the constant; where it has none, a coordinate holds it."""
    c = compressed(nn.Sequential(nn.Linear(8, 128), nn.Linear(128, 24, bias=bias)), normal(20, 8))
    assert [c.network[0].out_features, c.network[1].out_features] == [8 if bias else 9, 24]
    between = nn.Sequential(nn.Linear(8, 128), nn.Dropout(), nn.Linear(128, 24)).eval()
    assert compressed(between, normal(20, 8)).network[0].out_features == 8


def compressed_or_nan(model, x):
    """Dividing by zero leaves nothing to compare: only the analysis is asked then."""
    from radnet.compression.pipeline import compress_model

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


# --- values of one stream beside each other


def same_function(model, *inputs, seed=7, **keywords):
    """Compress in float64, compare on fresh inputs of the same shapes to 1e-12 of the largest output."""
    c = compressed(model, *inputs, **keywords)
    fresh = [x if not x.is_floating_point() else normal(*x.shape, seed=seed) for x in inputs]
    with torch.no_grad():
        expected, found = model(*fresh), c.network(*fresh)
    assert (expected - found).abs().max() <= 1e-12 * expected.abs().max()
    return c


class Stages(nn.Module):
    """A residual stream of width 40 at three stages, each the one before and something; ``join`` makes what is read."""

    def __init__(self, join, reads, last=None):
        super().__init__()
        self.stem, self.rho, self.join = nn.Linear(3, 40), radnet.Squash(), join
        self.up = nn.ModuleList(nn.Linear(40, 20) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(20, 40) for _ in range(2))
        self.head = last or nn.Linear(reads, 5)

    def forward(self, x):
        stages = [self.stem(x)]
        for up, down in zip(self.up, self.down, strict=True):
            stages.append(stages[-1] + down(self.rho(up(stages[-1]))))
        return self.head(self.join(*stages))


def side_by_side(*values):
    return torch.cat(values, dim=-1)


@pytest.mark.parametrize(
    ("join", "reads"),
    [
        (lambda a, b, c: side_by_side(a, b), 80),
        (lambda a, b, c: side_by_side(a, b, c), 120),
        (lambda a, b, c: side_by_side(c, a, c, b, a), 200),
        (lambda a, b, c: side_by_side(a, -a, 2 * a), 120),
        (lambda a, b, c: side_by_side(b, -b, 0.5 * c), 120),
        (lambda a, b, c: side_by_side(b - a, a, c - b), 120),
        (lambda a, b, c: side_by_side(side_by_side(a, b), side_by_side(c, a)), 160),
        (lambda a, b, c: side_by_side(a, b) + side_by_side(b, c), 80),
        (lambda a, b, c: 3 * side_by_side(a, b) - side_by_side(c, c), 80),
        (lambda a, b, c: side_by_side(side_by_side(a, b) + side_by_side(b, c), c), 120),
    ],
)
def test_stages_of_a_stream_may_stand_beside_each_other(join, reads):
    """Every part keeps its own multiple of the stream's constants."""
    c = same_function(Stages(join, reads), normal(8, 3))
    assert c.spaces[0].before == 40
    assert c.spaces[0].after <= 16


def test_stages_beside_each_other_cost_the_stream_nothing():
    alone = same_function(Stages(lambda a, b, c: c, 40), normal(8, 3))
    joined = same_function(Stages(lambda a, b, c: side_by_side(a, b, c), 120), normal(8, 3))
    assert [s.after for s in joined.spaces] == [s.after for s in alone.spaces]


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b, c: side_by_side(a, b)[:, 1:],
        lambda a, b, c: side_by_side(a, b).mean(1),
        lambda a, b, c: side_by_side(a[:, :2], b[:, 1:3]),
        lambda a, b, c: side_by_side(a, b).transpose(0, 1),
        lambda a, b, c: side_by_side(a, b) + side_by_side(c, b)[:, :1],
    ],
)
def test_positions_of_stages_beside_each_other(join):
    c = same_function(Stages(join, 80), normal(8, 5, 3))
    assert c.spaces[0].after <= 16


def test_a_layer_that_reads_two_joins_reads_them_alike():
    class Twice(Stages):
        def forward(self, x):
            a = self.stem(x)
            b = a + self.down[0](self.rho(self.up[0](a)))
            return self.head(side_by_side(a, b)) + 2 * self.head(side_by_side(b, b - 2 * a))

    c = same_function(Twice(None, 80), normal(8, 3))
    assert c.spaces[0].after < 40


@pytest.mark.parametrize("table", ["embedding", "parameter", "both"])
def test_tables_in_a_stream_whose_stages_stand_beside_each_other(table):
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.p = nn.Embedding(4, 40), nn.Parameter(torch.randn(40))
            self.up, self.down, self.rho = nn.Linear(40, 20), nn.Linear(20, 40), radnet.Squash()
            self.head = nn.Linear(120, 5, bias=False)

        def forward(self, i):
            h = self.words(i)
            g = h - 3 * self.p if table != "embedding" else 2 * h
            k = g + self.down(self.rho(self.up(g)))
            return self.head(side_by_side(h if table != "parameter" else g, g, k))

    torch.manual_seed(0)
    c = same_function(Tables(), torch.arange(4).reshape(2, 2))
    assert c.spaces[0].after < 20


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("flat", [False, True])
def test_stages_of_pictures_beside_each_other_under_zeros_or_flattened(padding, flat):
    class Pictures(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.up, self.down = nn.Conv2d(1, 30, 1), nn.Conv2d(30, 9, 1), nn.Conv2d(9, 30, 1)
            self.rho, self.read = radnet.Squash(dim=1), nn.Conv2d(90, 12, 3, padding=padding)
            self.head = nn.Linear(90 * 25, 4)

        def forward(self, x):
            h = self.stem(x)
            g = h + self.down(self.rho(self.up(h)))
            joined = torch.cat([h, g, g - 3 * h], dim=1)
            return self.head(torch.cat([joined], dim=1).flatten(1)) if flat else self.read(joined)

    c = same_function(Pictures(), normal(4, 1, 5, 5))
    assert c.spaces[0].after <= 8


def test_a_mark_that_cancels_is_not_divided_by():
    """``0.1 h + 0.2 h - 0.3 h`` leaves rounding of the mark, and a constant that has to be read all the same."""

    class Cancels(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.more, self.head = nn.Linear(2, 30), nn.Linear(2, 30), nn.Linear(60, 3)

        def forward(self, x):
            h = self.stem(x)
            return self.head(side_by_side(h, 0.1 * h + 0.2 * h - 0.3 * h + self.more(x)))

    same_function(Cancels(), normal(8, 2))


# --- columns of very different sizes, and columns that are only rounding


def test_a_short_column_counts_as_much_as_a_long_one():
    for size in (1e-3, 1e-9, 1e-12, 1e-30):
        model = nn.Sequential(nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)).double()
        with torch.no_grad():
            model[0].weight[:, 1] *= size
        assert widths(same_function(model, normal(6, 3))) == [4]


def test_short_columns_survive_layers_that_make_them_long_again():
    """Two layers with nothing between: 1e-12, then 1e12 for the direction that was short."""
    torch.manual_seed(0)
    first, second = nn.Linear(2, 12, bias=False).double(), nn.Linear(12, 20, bias=False).double()
    with torch.no_grad():
        direction = torch.linalg.qr(torch.randn(12, 2, dtype=torch.float64))[0]
        first.weight.copy_(direction * torch.tensor([1.0, 1e-12], dtype=torch.float64))
        second.weight.copy_(torch.randn(20, 2, dtype=torch.float64) * torch.tensor([1.0, 1e12]) @ direction.mT)
    model = nn.Sequential(first, second, radnet.Squash(), nn.Linear(20, 2)).double().eval()
    from radnet.compression.pipeline import compress_model

    small = compress_model(model, (normal(6, 2),)).network
    assert [small[0].out_features, small[1].out_features] == [2, 2]
    x = normal(9, 2, seed=3)
    with torch.no_grad():
        expected, found = model(x), small(x)
    assert (expected - found).abs().max() <= 1e-3 * expected.abs().max()  # second loses twelve digits by itself


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e6])
def test_a_product_that_vanishes_costs_no_dimension(size):
    """W2 W1 = 0 up to rounding for two of three inputs."""
    torch.manual_seed(1)
    first, second = nn.Linear(3, 40, bias=False).double(), nn.Linear(40, 50).double()
    with torch.no_grad():
        first.weight.mul_(size)
        Q = torch.linalg.qr(first.weight[:, :2])[0]
        second.weight.sub_(second.weight @ Q @ Q.mT)
    c = same_function(nn.Sequential(first, second, radnet.Squash(), nn.Linear(50, 2)), normal(6, 3))
    assert widths(c)[1] == 2  # one input and the bias


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda a, b: a - a / 3 - 2 * a / 3 + b, 2),
        (lambda a, b: 0.1 * a + 0.2 * a - 0.3 * a + b, 2),
        (lambda a, b: (a + b) - a, 2),
        (lambda a, b: a * 1e-9 + b, 5),
        (lambda a, b: a * 1e-12 + b, 5),
    ],
)
def test_what_cancels_costs_no_dimension_and_what_is_small_does(f, expected):
    class Cancels(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 40), nn.Linear(1, 40)
            self.mid, self.rho, self.head = nn.Linear(40, 30), radnet.Squash(), nn.Linear(30, 2)

        def forward(self, x):
            return self.head(self.rho(self.mid(f(self.a(x), self.b(x[:, :1])))))

    torch.manual_seed(2)
    assert widths(compressed(Cancels(), normal(6, 3)))[1] == expected


def test_tiny_pieces_of_a_rank_are_not_mixed_with_large_ones():
    """More columns than the space has room for, of sizes 1 and 1e-12: both stay in the span to their last digits."""
    from radnet.compression.spaces.spans import AffineSet, Part

    torch.manual_seed(3)
    U = torch.linalg.qr(torch.randn(12, 4, dtype=torch.float64))[0]
    M = torch.cat([U[:, :2] @ torch.randn(2, 9).double(), 1e-12 * U[:, 2:] @ torch.randn(2, 9).double()], dim=1)
    (part,) = AffineSet(12, None, {"s": Part(12, M)}).limited("new", False).pieces.values()
    assert part.width == 4
    T = part.matrix()
    torch.testing.assert_close(T @ T.mT, M @ M.mT)
    short = T[:, T.norm(dim=0) < 1e-9] * 1e12
    outside = short - U[:, 2:] @ (U[:, 2:].mT @ short)
    assert short.shape[1] == 2
    assert outside.norm() <= 1e-13 * short.norm()


# --- transposed convolutions

UPWARD = ({}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2}, {"bias": False})


@pytest.mark.parametrize("options", UPWARD, ids=str)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_transposed_convolution_needs_a_direction_for_each_tap_and_channel(dims, options):
    """Three channels arrive (two and a constant), each of 2^dims taps reaches a position or not."""
    conv, up = getattr(nn, f"Conv{dims}d"), getattr(nn, f"ConvTranspose{dims}d")
    layers = (
        conv(2, 40, 1),
        radnet.Squash(dim=1),
        up(40, 64, 2, **options),
        radnet.RadialSigmoid(dim=1),
        conv(64, 2, 1),
    )
    model = nn.Sequential(*layers).double().eval()
    c = radnet.compress(model, normal(6, 2, *[5] * dims))
    assert [s.after for s in c.spaces] == [3, 3 * 2**dims + (options != {"bias": False}), 2]
    assert (c.network[2].in_channels, c.network[2].out_channels) == (3, c.spaces[1].after)
    assert all(p.is_contiguous() for p in c.network.parameters())
    for shape in ([6] * dims, [1] * dims):
        x = normal(3, 2, *shape)
        assert torch.allclose(c.network(x), model(x), rtol=0, atol=1e-12)


def test_constants_that_transposed_convolutions_read_are_not_taken_for_uniform():
    """Without an activation between, readers add the constant of a stream; here it does not reach everywhere."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 40, 1), nn.ConvTranspose2d(40, 30, 3, stride=2), nn.Conv2d(30, 2, 3, padding=1))
    c = radnet.compress(nn.Sequential(*layers).double(), normal(4, 2, 4, 4))
    assert c.certificate.lossless
    assert c.spaces[0].after == 3
    twice = nn.Sequential(nn.ConvTranspose2d(2, 20, 2), nn.ConvTranspose2d(20, 20, 2, stride=2), radnet.Squash(dim=1))
    assert radnet.compress(twice.double(), normal(4, 2, 4, 4)).certificate.lossless


def test_a_transposed_convolution_reads_channels_and_nothing_else():
    c = radnet.compress(nn.Sequential(nn.Linear(4, 8), nn.ConvTranspose1d(3, 2, 2)).double(), normal(6, 3, 4))
    assert c.spaces[0].reason is radnet.compression.Reason.OTHER_AXIS
    assert c.spaces[0].why == "1 reads another axis than the one that is followed"


def test_a_transposed_convolution_of_an_unbatched_input_writes_rows():
    model = nn.Sequential(nn.ConvTranspose1d(2, 8, 2), radnet.Squash(), nn.Linear(8, 2)).double()
    c = radnet.compress(model, normal(2, 7))
    assert c.certificate.lossless
    assert c.network[0].out_channels == 8
    assert torch.allclose(c.network(normal(2, 7)), model(normal(2, 7)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("by_export", [False, True], ids=["torch.fx", "torch.export"])
@pytest.mark.parametrize(
    "convert",
    [
        lambda h, w: h.to(w.dtype),
        lambda h, w: h.to(w.device),
        lambda h, w: h.to(w),
        lambda h, w: h.type_as(w),
        lambda h, w: h.to(dtype=w.dtype, device=w.device),
    ],
    ids=["dtype", "device", "to", "type_as", "both"],
)
def test_to_ask_a_weight_for_its_dtype_is_no_use_of_it(convert, by_export):
    class Converts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.rho = nn.Linear(4, 24), nn.Linear(24, 24), nn.Linear(24, 3), radnet.Squash()

        def forward(self, x):
            if by_export and x.ndim != 2:
                raise ValueError("rows, please")
            return self.c(self.rho(self.b(convert(self.rho(self.a(x)), self.b.weight))))

    torch.manual_seed(0)
    small = radnet.compress(Converts().eval(), torch.randn(8, 4))
    assert small.traced_by == ("torch.export" if by_export else "torch.fx")
    assert [space.after for space in small.spaces] == [5, 6, 3]


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, 2), (torch.float32, 3)])
def test_where_a_coordinate_may_overflow_no_constant_is_kept_in_one(dtype, expected):
    """Two linear layers: in float16 the entries that vary stay, and the constant goes on as a bias."""
    model = nn.Sequential(nn.Linear(2, 16), nn.Linear(16, 3, bias=False))
    with torch.no_grad():
        model[0].weight[2:] = 0
        model[0].bias.zero_()[5] = 0.5
    c = radnet.compress(model.to(dtype), normal(8, 2).to(dtype))
    assert c.network[0].out_features == expected
    assert c.certificate.lossless


def test_a_space_in_which_nothing_stands_keeps_one_entry():
    """Of no width at all there is no layer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2))
    with torch.no_grad():
        for p in model[0].parameters():
            p.zero_()
    c = compressed(model, normal(8, 3))
    assert c.network[0].out_features == 1
    assert c.certificate.lossless
