"""What `compress` returns is the same function: at shapes it was not shown, whatever forward does, in every dtype.

Each case is a model of `trust_models`. It passes if the result is the same function at all inputs of the case, those
that `compress` has not seen included, or if it is refused; some must be returned, some must get smaller.
"""

import copy
import math
import re
import types

import pytest
import torch
from torch import nn

import radnet
from trust_models import (
    CASES,
    EITHER,
    HALVES,
    SMALLER,
    UNEQUAL,
    cases,
    compare,
    copied,
    fingerprint,
    normal,
    same_function,
    unchanged,
)

#: none of these models draws a number, all of them can be copied and run on what is given
FALSE_REASONS = re.compile("random|cannot be copied|does not run on the given inputs|data pointer|FakeTensor")


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def given_to_compress(inputs):
    return inputs[0] if len(inputs) == 1 and isinstance(inputs[0], torch.Tensor) else inputs


def judge(case):
    """Compress the model of a case; what comes back is the same function, or the refusal is allowed."""
    with case.around():
        model = case.made()
        refusal = None
        with unchanged(model, case.given):
            try:
                c = radnet.compress(model, given_to_compress(case.given))
            except radnet.RadNetError as error:
                refusal = error
        if refusal is not None:
            assert case.must == EITHER, f"refused: {refusal}"
            assert not FALSE_REASONS.search(str(refusal)), f"refused for what is not so: {refusal}"
            case.compare(model, copied(model))  # the model does run at all these inputs
            return
        assert c.certificate.lossless
        case.compare(model, c.network)
        with unchanged(model, case.given):
            assert "lossless" in c.report()
        if case.must == SMALLER:
            assert parameters(c.network) < parameters(model)


# --- the cases


#: loops that take many seconds to be unrolled; others like them are quicker
SLOW = ("recursion_over_halves", "as_many_blocks_as_steps", "recurrence_over_a_list")


@pytest.mark.parametrize("case", cases("shapes"), ids=str)
def test_it_is_the_same_function_at_shapes_and_arguments_that_were_not_shown(case, count):
    if str(case) in SLOW and count(0, 1) == 0:
        pytest.skip("at full counts only")
    judge(case)


@pytest.mark.parametrize("case", cases("in place"), ids=str)
def test_it_is_the_same_function_when_something_is_written_in_place(case):
    judge(case)


@pytest.mark.parametrize("case", cases("networks"), ids=str)
def test_a_network_is_taken_for_what_it_does_not_for_what_its_class_is(case):
    judge(case)


@pytest.mark.parametrize("case", cases("forwards"), ids=str)
def test_a_forward_is_taken_for_what_it_does_not_for_what_it_seems(case):
    judge(case)


@pytest.mark.parametrize("case", cases("side outputs"), ids=str)
def test_what_leaves_by_an_attribute_is_an_output(case):
    judge(case)


def test_every_kind_has_its_cases():
    names = [(case.kind, case.name) for case in CASES]
    assert len(set(names)) == len(names)
    for kind in ("shapes", "in place", "networks", "forwards", "side outputs"):
        assert len(cases(kind)) >= 20
        assert any(case.must != EITHER for case in cases(kind))


# --- range

SIZES = (1.0, 10.0, 100.0, 1000.0, 3000.0)


def compressed_or_refused(model, x):
    with unchanged(model, x):
        try:
            return radnet.compress(model, x)
        except radnet.RadNetError as error:
            return error


@pytest.mark.parametrize("name", HALVES)
def test_in_float16_the_small_model_is_finite_wherever_the_original_is(name):
    torch.manual_seed(0)
    model, x = HALVES[name]().eval(), normal(64, 3).half()
    c = compressed_or_refused(model, x)
    if isinstance(c, radnet.RadNetError):
        assert name != "one layer", f"refused: {c}"
        return
    with torch.no_grad():
        for k in SIZES:
            a, b = model(k * x), c.network(k * x)
            lost = int((a.isfinite() & ~b.isfinite()).any(dim=1).sum())
            assert lost == 0, f"at {k:g} x: {lost} rows of {len(x)} overflow in the small model only"
    same_function(model, c.network, x)
    same_function(model, c.network, 100 * x)


@pytest.mark.parametrize("activation", [nn.Identity(), radnet.Squash(), radnet.ShiftedReLU()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norms_near_the_end_of_a_dtype_are_finite_in_the_small_model_too(activation, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1024), activation, nn.Linear(1024, 2)).to(dtype).eval()
    x = normal(64, 3).to(dtype)
    c = radnet.compress(model, x)
    assert parameters(c.network) < parameters(model)
    with torch.no_grad():
        for k in (1e-36, 1e-20, 1e20, 1e36):  # all norms are finite, most of their squares are not
            a, b = model(k * x), c.network(k * x)
            assert bool((b.isfinite() | ~a.isfinite()).all()), f"at {k:g} x"


NORMS_WITHOUT_EPS = {
    "alone": lambda: nn.Sequential(nn.Linear(3, 64, bias=False), nn.RMSNorm(64), nn.Linear(64, 2)),
    "with a bias": lambda: nn.Sequential(nn.Linear(3, 64), nn.RMSNorm(64), nn.Linear(64, 2)),
    "without a gain": lambda: nn.Sequential(
        nn.Linear(3, 64, bias=False), nn.RMSNorm(64, elementwise_affine=False), nn.Linear(64, 2)
    ),
    "twice": lambda: nn.Sequential(
        nn.Linear(3, 64, bias=False), nn.RMSNorm(64), nn.Linear(64, 64, bias=False), nn.RMSNorm(64), nn.Linear(64, 2)
    ),
    "read by a relu": lambda: nn.Sequential(nn.Linear(3, 64, bias=False), nn.RMSNorm(64), nn.ReLU(), nn.Linear(64, 2)),
}


@pytest.mark.parametrize("name", NORMS_WITHOUT_EPS)
@pytest.mark.parametrize("start", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("then", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_norm_without_eps_has_that_of_the_dtype_it_is_cast_to(name, start, then):
    torch.manual_seed(0)
    model, x = NORMS_WITHOUT_EPS[name]().to(start).eval(), normal(32, 3)
    c = radnet.compress(model, x.to(start))
    a, b = copy.deepcopy(model).to(then), copy.deepcopy(c.network).to(then)
    tolerance = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.3}[then]
    with torch.no_grad():
        for k in (1e-3, 1.0, 30.0):
            z = (k * x).to(then)
            compare(a(z), b(z), tolerance, f"at {k:g} x")


@pytest.mark.parametrize("name", UNEQUAL)
def test_a_feature_of_another_size_does_not_drown_the_rest(name):
    torch.manual_seed(0)
    model = UNEQUAL[name]().eval()
    c = radnet.compress(model, normal(64, 2))
    for size in (1.0, 1e5, 1e7):
        z = torch.stack([size * normal(64), normal(64, seed=1)], dim=1)
        with torch.no_grad():
            exact, a, b = copy.deepcopy(model).double()(z.double()), model(z), c.network(z)
        scale = float(exact.abs().max())
        of_a, of_b = (float((v - exact).abs().max()) / scale for v in (a, b))
        assert of_b <= 32 * max(of_a, torch.finfo(torch.float32).eps), f"at {size:g}: {of_a:.1e} became {of_b:.1e}"


@pytest.mark.parametrize("size", [1e-6, 1e3, 1e6])
def test_weights_of_very_different_sizes_keep_their_digits(size):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), radnet.Squash(), nn.Linear(64, 2)).eval()
    with torch.no_grad():
        model[0].weight[:, 0] *= size
        model[0].bias *= 1e-3
    x = normal(64, 4)
    c = radnet.compress(model, x)
    assert parameters(c.network) < parameters(model)
    same_function(model, c.network, x)
    same_function(model, c.network, torch.cat([x[:, :1] / size, x[:, 1:]], dim=1))


# --- the judge can fail


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).eval()


def leaving(name, factor=1.0):
    def forward(self, x):
        setattr(self, name, factor * x)
        return x

    return type("Leaves", (nn.Module,), {"forward": forward})()


def writing(factor):
    def forward(self, x):
        return x.mul_(factor).clone() / factor

    return type("Writes", (nn.Module,), {"forward": forward})()


def counting(step):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + step
        return x if self.calls < 2 else 2 * x

    return type("Counts", (nn.Module,), {"forward": forward})()


def giving(function):
    return type("Gives", (nn.Module,), {"forward": lambda self, x: function(x)})()


DIFFERENT = {
    "a bias that is a thousandth off": (linear, lambda: moved(linear()), "output: row"),
    "another shape": (lambda: giving(lambda x: x), lambda: giving(lambda x: x[:, :2]), "torch.Size"),
    "another dtype": (lambda: giving(lambda x: x), lambda: giving(lambda x: x.float()), "float64"),
    "a list for a tuple": (lambda: giving(lambda x: (x,)), lambda: giving(lambda x: [x]), "tuple and list"),
    "another key": (lambda: giving(lambda x: {"a": x}), lambda: giving(lambda x: {"b": x}), "keys"),
    "a small row beside a large one": (
        lambda: giving(lambda x: x * torch.tensor([[1e9], [1.0], [1.0]])),
        lambda: giving(lambda x: x * torch.tensor([[1e9], [1.0], [1.1]])),
        "row 2",
    ),
    "nan for a number": (lambda: giving(lambda x: x), lambda: giving(lambda x: x * math.nan), "not finite"),
    "integers": (lambda: giving(lambda x: x.argmax(1)), lambda: giving(lambda x: x.argmin(1)), "entries differ"),
    "complex numbers": (lambda: giving(torch.fft.fft), lambda: giving(lambda x: torch.fft.fft(1.1 * x)), "row"),
    "inside a nest": (
        lambda: giving(lambda x: {"a": [(x, 1)]}),
        lambda: giving(lambda x: {"a": [(2 * x, 1)]}),
        r"output\['a'\]\[0\]\[0\]",
    ),
    "inside an object": (
        lambda: giving(lambda x: types.SimpleNamespace(h=x)),
        lambda: giving(lambda x: types.SimpleNamespace(h=2 * x)),
        r"output\['h'\]",
    ),
    "another number left": (lambda: leaving("aux"), lambda: leaving("aux", 1.1), "aux after the call"),
    "nothing left": (lambda: leaving("aux"), lambda: giving(lambda x: x), "aux: is left"),
    "another input": (lambda: writing(2.0), lambda: writing(3.0), "inputs after the call"),
}


def moved(model):
    with torch.no_grad():
        model[1].bias[0] *= 1.001
    return model


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_functions_are_told_apart(name):
    one, other, message = DIFFERENT[name]
    same_function(one(), one(), normal(3, 3))
    with pytest.raises(AssertionError, match=message):
        same_function(one(), other(), normal(3, 3))


def test_a_second_call_is_compared():
    same_function(counting(1), counting(1), normal(3, 3), calls=2)
    same_function(giving(lambda x: x), counting(1), normal(3, 3))
    with pytest.raises(AssertionError, match="call 2"):
        same_function(giving(lambda x: x), counting(1), normal(3, 3), calls=2)


def test_the_size_of_a_row_is_its_own():
    a = torch.tensor([[1.0, 0.0], [1e-3, 0.0], [1.0, 2.0]])
    with pytest.raises(AssertionError, match="row 1"):
        compare(a, a + torch.tensor([[0.0, 0.0], [0.0, 2e-4], [0.0, 0.0]]), 1e-3, "it")


CHANGES = {
    "a weight": (lambda m, x: m[0].weight.data.mul_(1.0001), "the model is changed: weight"),
    "a flag": (lambda m, x: m.train(), "the model is changed: training"),
    "requires_grad": (lambda m, x: m[0].weight.requires_grad_(False), "the model is changed"),
    "a gradient": (lambda m, x: m(x).sum().backward(), "the model is changed"),
    "a hook": (lambda m, x: m[1].register_forward_hook(print), "the model is changed: _forward_hooks"),
    "an attribute": (lambda m, x: setattr(m, "more", 1), "the model is changed: Sequential: .*more"),
    "a part": (lambda m, x: m.__setitem__(0, copy.deepcopy(m[0])), "the model is changed"),
    "an input": (lambda m, x: x.add_(1), "the inputs are changed"),
    "random numbers": (lambda m, x: torch.rand(1), "random numbers of torch"),
    "the default dtype": (lambda m, x: torch.set_default_dtype(torch.float64), "default dtype"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name):
    change, message = CHANGES[name]
    model, x = linear(), normal(4, 3)
    with unchanged(model, x):
        copy.deepcopy(model)(x.clone())
    try:
        with pytest.raises(AssertionError, match=message), unchanged(model, x):
            change(model, x)
    finally:
        torch.set_default_dtype(torch.float32)


def test_fingerprints_see_values_and_identity():
    x = normal(3)
    assert fingerprint([x, {"a": 1}]) == fingerprint([x.clone(), {"a": 1}])
    assert fingerprint(x, identity=True) != fingerprint(x.clone(), identity=True)
    assert fingerprint(x) != fingerprint(x + 1e-6)
    assert fingerprint(x) != fingerprint(x.double())


class ManyWays(nn.Module):
    """More ways than are followed from the start: those of an optional argument, and one for many rows."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)

    def forward(self, x, scale=None, shift=None, gate=None, power=None):
        h = self.rho(self.a(x))
        h = h.clamp(-20.0, 20.0) if isinstance(h, torch.Tensor) and h.shape[0] > 30 else h
        y = self.b(h.relu() if h.shape[0] > 30 else h)
        y = y if scale is None else scale * y.relu()
        y = y if shift is None else shift + y.tanh()
        y = y if gate is None else gate * y.sigmoid()
        return y if power is None else y.exp() - power


def test_a_way_that_is_found_late_is_judged_all_the_same():
    torch.manual_seed(0)
    model = ManyWays().double().eval()
    small = radnet.compress(model, torch.randn(6, 3, dtype=torch.float64)).network
    for rows in (1, 6, 29, 31, 40, 100):
        x = torch.randn(rows, 3, dtype=torch.float64)
        torch.testing.assert_close(small(x), model(x), rtol=1e-9, atol=1e-12)
