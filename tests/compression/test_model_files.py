"""Small models of any class as files: the same bits in a freshly made model, or a refusal that names the layer."""

import copy
import enum

import pytest
import torch
from torch import nn

import radnet
from known_models import normal
from radnet.compression.guards import Guard
from radnet.compression.judging import exploring, turning
from random_models import FAMILIES, random_model


def twice(model, path, **keywords):
    """A compression, and a freshly made model that has read its file."""
    c = radnet.compress(copy.deepcopy(model), **keywords)
    c.save(path)
    fresh = copy.deepcopy(model)
    radnet.load_into(fresh, path)
    return c.network, fresh


def assert_twins(a, b):
    """The same tensors, flags, ties, dtypes, classes, sizes and guards."""
    x, y = (
        dict((*m.named_parameters(remove_duplicate=False), *m.named_buffers(remove_duplicate=False))) for m in (a, b)
    )
    assert x.keys() == y.keys()
    for name in x:
        assert x[name].dtype == y[name].dtype
        assert x[name].requires_grad == y[name].requires_grad
        assert torch.equal(x[name], y[name])
    shared = [sorted(sorted(k for k in z if z[k] is z[name]) for name in z) for z in (x, y)]
    assert shared[0] == shared[1]
    assert a.state_dict().keys() == b.state_dict().keys()
    said = [[(path, type(m), m.extra_repr()) for path, m in z.named_modules()] for z in (a, b)]
    assert said[0] == said[1]
    guards = [
        [
            (path, type(h), str(h.to_dict()))
            for path, m in z.named_modules()
            for h in m._forward_pre_hooks.values()
            if isinstance(h, Guard)
        ]
        for z in (a, b)
    ]
    assert guards[0] == guards[1]


@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_a_random_model_comes_back_bit_for_bit(family, count, evidence, tmp_path):
    number, smaller = count(2, 40), 0
    for seed in range(family, number * len(FAMILIES), len(FAMILIES)):
        model, rng = random_model(seed)
        x = model.inputs(40, rng)
        small, fresh = twice(model, tmp_path / "m.safetensors", example_inputs=x)
        assert_twins(small, fresh)
        assert torch.equal(small(x), fresh(x))
        smaller += sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    evidence(f"round trips of {FAMILIES[family].__name__}", models=number, smaller=smaller)
    assert smaller


class Choice(enum.Enum):
    PLAIN = 1
    TWICE = 2


class Base(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, hidden), nn.LayerNorm(hidden), nn.Linear(hidden, hidden, bias=False)
        self.rho, self.c = radnet.Squash(), nn.Linear(hidden, 3)
        self.idle = nn.Linear(hidden, 3)

    def forward(self, x, how=Choice.PLAIN, mask=None):
        h = self.rho(self.b(self.norm(self.a(x))))
        if mask is not None and bool(mask.sum() > 1e9):
            return self.idle(h.relu())
        if self.training:
            h = h.abs()
        if x.shape[0] > 10**8:
            h = h.relu()
        return self.c(h) * (2 if how is Choice.TWICE else 1)


X = normal(20, 4).float()


def test_guards_norms_and_biases_come_back(tmp_path):
    small, fresh = twice(Base().eval(), tmp_path / "m.safetensors", example_inputs=X)
    assert_twins(small, fresh)
    assert isinstance(fresh.norm, type(small.norm))
    assert not isinstance(fresh.norm, nn.LayerNorm)
    assert fresh.a.out_features == small.a.out_features < 32
    kinds = {type(h).__name__ for m in fresh.modules() for h in m._forward_pre_hooks.values()}
    assert kinds >= {"KindsGuard", "ModeGuard", "NeverRan", "SizesGuard"}
    for call in (lambda m: m(X), lambda m: m(X, Choice.TWICE), lambda m: m(x=X, how=Choice.PLAIN)):
        assert torch.equal(call(small), call(fresh))
    for call in (lambda m: m(X, "other"), lambda m: m.train()(X)):
        for m in (small, fresh):
            with pytest.raises(radnet.RadNetError, match="not judged with such arguments|in training mode"):
                call(m)


def test_sizes_that_are_refused_are_refused_again(tmp_path, monkeypatch):
    monkeypatch.setattr(turning, "TURN_RUN", 0)
    monkeypatch.setattr(exploring.Explorer, "attempt", lambda *args, **kwargs: 0)

    class Long(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho, self.c = nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 3)

        def forward(self, x):
            h = self.rho(self.a(x))
            return self.c(h.relu() if x.shape[0] * x.shape[1] > 20_000 else h)

    _, fresh = twice(Long().eval(), tmp_path / "m.safetensors", example_inputs=normal(4, 5, 4).float())
    with pytest.raises(radnet.RadNetError, match=r"x.shape\[0\] \* x.shape\[1\] > 20000"):
        fresh(normal(300, 100, 4).float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_and_flags_are_those_of_the_small_model(dtype, tmp_path):
    model = nn.Sequential(nn.Linear(3, 24), radnet.ShiftedReLU(shift="trainable"), nn.Linear(24, 2)).to(dtype).eval()
    model[0].weight.requires_grad_(False)
    c = radnet.compress(model, torch.randn(20, 3, dtype=dtype))
    c.save(tmp_path / "m.safetensors")
    fresh = nn.Sequential(nn.Linear(3, 24), radnet.ShiftedReLU(shift="trainable"), nn.Linear(24, 2))
    radnet.load_into(fresh, tmp_path / "m.safetensors")
    assert_twins(c.network, fresh)


def test_hooks_of_the_fresh_model_stay_and_it_is_in_eval_mode(tmp_path):
    def make():
        return nn.Sequential(nn.Linear(3, 24), radnet.Squash(), nn.Linear(24, 2))

    radnet.save(radnet.compress(make()).network, tmp_path / "m.safetensors")
    seen, fresh = [], make()
    fresh[0].register_forward_hook(lambda m, args, out: seen.append(out.shape))
    layer = fresh[0]
    radnet.load_into(fresh, tmp_path / "m.safetensors")
    fresh(torch.ones(5, 3))
    assert (fresh[0] is layer, seen, fresh.training) == (True, [(5, 4)], False)


def test_a_compressed_radnet_is_a_network_file_with_a_certificate(tmp_path):
    c = radnet.compress(radnet.RadNet((2, 32, 1)))
    c.save(tmp_path / "n.safetensors")
    again = radnet.load(tmp_path / "n.safetensors")
    assert again.widths == (2, 3, 1)
    assert torch.equal(again(torch.ones(3, 2)), c.network(torch.ones(3, 2)))
    header, _ = radnet.reading.unpack(tmp_path / "n.safetensors", "radnet", 2, "")
    assert header["certificate"]["lossless"] is True


def test_load_opens_approximations_and_names_what_opens_the_others(tmp_path):
    a = radnet.approximate(torch.sin, radnet.Box(0, 1), 0.4, lipschitz=1)
    radnet.save(a, tmp_path / "a.safetensors")
    assert type(radnet.load(tmp_path / "a.safetensors")) is type(a)
    radnet.save(nn.Linear(2, 1), tmp_path / "m.safetensors")
    with pytest.raises(
        radnet.RadNetError, match=r"holds a torch.*Linear; make one and give it to radnet.load_into\(model, path\)"
    ):
        radnet.load(tmp_path / "m.safetensors")
    with pytest.raises(radnet.RadNetError, match="save needs a module, an approximation or a compression, got int"):
        radnet.save(3, tmp_path / "x.safetensors")


OURS = {
    "residual": (lambda: radnet.models.ResidualRadialMLP(3, 2, width=16, hidden=32, depth=2, shift=0.25), (3,)),
    "blocks": (lambda: radnet.models.BlockRadialMLP((3, 24, 24, 2), block=8, activation="sigmoid"), (3,)),
    "convolution": (lambda: radnet.models.RadialConv2d(1, 16, 3, padding=1, shift="trainable"), (1, 5, 5)),
    "RBF network": (lambda: radnet.rbf.RBFNetwork((3, 8, 2), ["squash", "sigmoid"], shift="trainable"), (3,)),
    "RBF network without biases": (lambda: radnet.rbf.RBFNetwork((3, 8, 2), bias=False).double(), (3,)),
    "stacked": (lambda: radnet.approximate(torch.sin, radnet.Box(0, 1), 0.4, lipschitz=1).network, (1,)),
    "growing": (
        lambda: radnet.approximate(torch.sin, radnet.Box(0, 1), 0.4, lipschitz=1, width="growing").network,
        (1,),
    ),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("compressed", [False, True])
def test_models_of_ours_are_read_by_load(name, compressed, tmp_path):
    make, shape = OURS[name]
    model = make()
    x = torch.randn(6, *shape).to(next(model.parameters()))
    if compressed and not name.startswith(("stacked", "growing")):
        c = radnet.compress(model.eval(), x)
        c.save(tmp_path / "m.safetensors")
        model = c.network
    else:
        radnet.save(model, tmp_path / "m.safetensors")
    again = radnet.load(tmp_path / "m.safetensors")
    assert type(again) is type(model)
    assert not again.training
    assert torch.equal(again(x), model.eval()(x))
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize(
    "said",
    [
        {"widths": [10**9] * 3, "block": 1},
        {"widths": "x"},
        {"nonsense": 1},
        {"widths": [3, 24, 24, 2], "block": 8, "activation": "sigmoid", "shift": {}},
        [],
        None,
    ],
)
def test_what_a_file_says_of_a_model_of_ours_is_not_believed(said, tmp_path):
    path = tmp_path / "m.safetensors"
    radnet.save(radnet.models.BlockRadialMLP((3, 24, 24, 2), block=8), path)
    header, tensors = radnet.reading.unpack(path, "radnet-model", 2, "")
    path.write_bytes(radnet.reading.pack(tensors, "radnet-model", {**header, "made_with": said}))
    with pytest.raises(radnet.RadNetError, match=r"m\.safetensors"):
        radnet.load(path)


class Renamed(Base):
    pass


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Base(48), r"whose a.bias has shape \(32,\); that of this Base has shape \(48,\)"),
        (lambda: nn.Linear(4, 32), "has, or lacks,"),
        (Renamed, "it holds a .*Base, not a .*Renamed"),
    ],
    ids=["another width", "another class", "another name"],
)
def test_a_model_of_another_version_is_refused_and_not_changed(make, said, tmp_path):
    radnet.compress(Base().eval(), X).save(tmp_path / "m.safetensors")
    model = make()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(radnet.RadNetError, match=said):
        radnet.load_into(model, tmp_path / "m.safetensors")
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not model._forward_pre_hooks


def test_a_layer_of_another_class_is_named(tmp_path):
    model = Base().eval()
    radnet.save(radnet.compress(model, X).network, tmp_path / "m.safetensors")
    other = Base()
    other.rho = radnet.StepReLU()
    with pytest.raises(radnet.RadNetError, match="rho is a radnet.activations.Squash; in the model it is a"):
        radnet.load_into(other, tmp_path / "m.safetensors")


def test_not_finite_numbers_are_not_written(tmp_path):
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    with pytest.raises(radnet.RadNetError, match="weight holds NaN or infinite values"):
        radnet.save(model, tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()


# --- what a fresh attack found


def three_layers():
    return nn.Sequential(nn.Linear(3, 24), nn.RMSNorm(24), nn.Linear(24, 16), radnet.Squash(), nn.Linear(16, 2))


def small_file(tmp_path, make=None):
    """A file of a small model, and a maker of fresh ones."""
    make = make or (
        lambda: nn.Sequential(nn.Linear(3, 24), nn.RMSNorm(24), nn.Linear(24, 16), radnet.Squash(), nn.Linear(16, 2))
    )
    path = tmp_path / "m.safetensors"
    radnet.compress(make(), torch.randn(20, 3)).save(path)
    return path, make


def test_a_state_besides_tensors_is_refused_by_name(tmp_path):
    class Stateful(nn.Linear):
        def get_extra_state(self):
            return {"scale": 3}

        def set_extra_state(self, state):
            pass

    with pytest.raises(radnet.RadNetError, match="1 has a state besides its tensors"):
        radnet.save(nn.Sequential(nn.Linear(2, 2), Stateful(2, 1)), tmp_path / "m.safetensors")


def test_a_network_with_a_forward_of_its_own_is_no_radnet_file(tmp_path):
    class Mine(radnet.RadNet):
        def forward(self, x):
            return 2 * super().forward(x)

    net = Mine((2, 8, 1))
    radnet.save(net, tmp_path / "m.safetensors")
    again = Mine((2, 8, 1))
    radnet.load_into(again, tmp_path / "m.safetensors")
    assert torch.equal(again(torch.ones(1, 2)), net(torch.ones(1, 2)))
    with pytest.raises(radnet.RadNetError, match="load_into"):
        radnet.load(tmp_path / "m.safetensors")


def test_a_model_that_nobody_compressed_fits_only_its_own_shapes(tmp_path):
    radnet.save(nn.Linear(3, 4), tmp_path / "m.safetensors")
    with pytest.raises(radnet.RadNetError, match=r"whose bias has shape \(4,\); that of this Linear has shape \(8,\)"):
        radnet.load_into(nn.Linear(3, 8), tmp_path / "m.safetensors")


def test_who_holds_a_parameter_holds_it_still(tmp_path):
    path, make = small_file(tmp_path)
    fresh = make()
    held, optimizer = fresh[0].weight, torch.optim.SGD(fresh[0].parameters(), lr=0.1)
    radnet.load_into(fresh, path)
    assert held is fresh[0].weight
    assert optimizer.param_groups[0]["params"][0] is held
    assert held.shape == (4, 3)


def test_a_class_may_move_to_another_file(tmp_path):
    first = type("Block", (nn.Linear,), {"__module__": "__main__"})
    second = type("Block", (nn.Linear,), {"__module__": "serving"})
    radnet.save(nn.Sequential(first(3, 2)), tmp_path / "m.safetensors")
    fresh = nn.Sequential(second(3, 2))
    radnet.load_into(fresh, tmp_path / "m.safetensors")


@pytest.mark.parametrize("call", ["save", "load_into"])
def test_parameters_without_shapes_are_refused(call, tmp_path):
    path = tmp_path / "m.safetensors"
    radnet.save(nn.Linear(3, 2), path)
    with pytest.raises(radnet.RadNetError, match="is not initialised yet; run the model once first"):
        radnet.save(nn.LazyLinear(2), path) if call == "save" else radnet.load_into(nn.LazyLinear(2), path)


def test_what_cannot_be_read_again_is_not_written(tmp_path):
    model = nn.Linear(2, 1)
    model.register_buffer("q", torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(radnet.RadNetError, match="q is sparse, quantised, torch.complex64"):
        radnet.save(model, tmp_path / "m.safetensors")


def forged(path, change):
    """The file with another header, sealed again."""
    header, tensors = radnet.reading.unpack(path, "radnet-model", 2, "")
    header, tensors = copy.deepcopy(header), dict(tensors)
    change(header, tensors)
    path.write_bytes(radnet.reading.pack(tensors, "radnet-model", header))


def guard(code="n[0] > 3", at="", axes=2):
    refuses = {"axes": {"input": axes}, "path": [[code, True]]}
    return lambda h, t: h["guards"].append({"at": at, "guard": "SizesGuard", "refuses": refuses})


def with_bias(value):
    def change(header, tensors):
        tensors["2.bias"] = value
        header["tensors"]["2.bias"] = {"parameter": True, "flag": True}

    return change


FORGERIES = {
    "a child of what is replaced": lambda h, t: h["modules"].update({"1.x": {"class": "Identity"}}),
    "a guard on what is replaced": guard(at="1"),
    "a root that is replaced": lambda h, t: h["modules"].update({"": {"class": "Identity"}}),
    "a bias of whole numbers": with_bias(torch.ones(4, dtype=torch.int64)),
    "a bias of another shape": with_bias(torch.ones(9)),
    "code": guard("__import__('os')"),
    "a place that is not there": guard("n[ 99 ] > 1"),
    "half a place": guard("n[0.5] > 1"),
    "a call of sizes": guard("n(1) > 1"),
    "many signs": guard("-" * 1900 + "n[0] > 1"),
    "towers of powers": guard("(((n[0]**3)**3)**3)**3 > 1"),
    "infinity": guard("int(1e999) > n[0]"),
    "many axes": guard(axes=2**40),
    "no kinds": lambda h, t: h["guards"].append(
        {"at": "", "guard": "KindsGuard", "refuses": {"judged": [], "unread": []}}
    ),
    "no such guard": lambda h, t: h["guards"].append({"at": "", "guard": "Popen", "refuses": {}}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused_and_nothing_changes(name, tmp_path):
    def make():
        return nn.Sequential(
            nn.Linear(3, 24), nn.RMSNorm(24), nn.Linear(24, 16, bias=False), radnet.Squash(), nn.Linear(16, 2)
        )

    path, _ = small_file(tmp_path, make)
    forged(path, FORGERIES[name])
    fresh = make()
    parts, before = list(fresh), {k: v.clone() for k, v in fresh.state_dict().items()}
    with pytest.raises(radnet.RadNetError, match=str(path)):
        radnet.load_into(fresh, path)
    assert all(a is b for a, b in zip(parts, fresh, strict=True))
    assert all(torch.equal(before[k], v) for k, v in fresh.state_dict().items())
    assert not fresh._forward_pre_hooks


@pytest.mark.parametrize("code", ["n[0] > 3 #", "n[0] % (n[0] - n[0]) > 1"])
def test_a_comparison_that_says_nothing_does_no_harm(code, tmp_path):
    path, make = small_file(tmp_path)
    forged(path, guard(code))
    fresh = make()
    radnet.load_into(fresh, path)
    assert fresh(torch.ones(2, 3)).shape == (2, 2)


def test_a_layer_with_a_hook_shows_its_new_sizes(tmp_path):
    path, make = small_file(tmp_path)
    fresh = make()
    fresh[0].register_forward_hook(lambda m, args, out: None)
    radnet.load_into(fresh, path)
    assert fresh[0].out_features == 4


def test_a_certificate_with_infinities_is_kept(tmp_path):
    import dataclasses

    c = radnet.compress(three_layers(), torch.randn(20, 3))
    endless = dataclasses.replace(c, certificate=dataclasses.replace(c.certificate, ulps=float("inf")))
    endless.save(tmp_path / "m.safetensors")
    header, _ = radnet.reading.unpack(tmp_path / "m.safetensors", "radnet-model", 2, "")
    assert header["certificate"]["ulps"] is None
    assert header["certificate"]["lossless"] is True
