"""What `judge` and `verify` call the same function: a thousand right pairs, a thousand wrong ones, and odd outputs."""

import collections
import copy
import dataclasses
from typing import NamedTuple

import pytest
import torch
from torch import nn

import radnet
from program_writer import one_thread
from radnet.compression.judging.judge import judge
from wrong_models import agreement, beyond_rounding, damaged, random_pair

CHUNKS = 4
SHIPPED = (torch.float32, torch.bfloat16, torch.float16)
#: how near a jump a hidden norm has to be for the rounding of weights to matter
NEAR = {torch.float32: 1e-3, torch.bfloat16: 0.6, torch.float16: 0.1}


def judged(pair, small):
    """What the judge says of a small model with float64 weights."""
    shipped = copy.deepcopy(small).to(next(pair.original.parameters()).dtype)
    return judge(pair.original, small, pair.inputs, shipped=shipped)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_wrong_small_model_passes_and_every_right_one_does(chunk, count, evidence):
    passed_though_wrong, right_refused, seen, harmless = [], [], collections.Counter(), 0
    with one_thread():
        for seed in range(chunk, count(12, 1000), CHUNKS):
            pair = random_pair(seed, SHIPPED[seed % 3])
            wrong, what = damaged(pair.small, seed)
            seen[what] += 1
            gap = max(agreement(pair.original, wrong, x) for x in (pair.inputs, pair.more))
            harmless += gap <= 1e-9
            if gap > 1e-9 and judged(pair, wrong).lossless:
                passed_though_wrong.append((seed, what, gap))
            if not (found := judged(pair, pair.small)).lossless:
                right_refused.append((seed, found.failures))
    evidence(
        f"wrong small models before the judge, part {chunk + 1} of {CHUNKS}",
        pairs=sum(seen.values()),
        harmless=harmless,
        passed=len(passed_though_wrong),
        right_refused=len(right_refused),
        **seen,
    )
    assert passed_though_wrong == []
    assert right_refused == []


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_verify_passes_no_rounded_model_that_is_beyond_ten_times_the_drift(chunk, count, evidence):
    passed_though_wrong, right_refused, beyond = [], [], 0
    seeds = range(chunk, count(24, 1000), CHUNKS)
    with one_thread():
        for seed in seeds:
            dtype = SHIPPED[seed % 3]
            pair = random_pair(seed, dtype)
            wrong, what = damaged(pair.small, seed)
            rounded = copy.deepcopy(wrong).to(dtype)
            if beyond_rounding(pair.original, rounded, pair.inputs, NEAR[dtype], 20):
                beyond += 1
                if radnet.verify(pair.original, rounded, pair.inputs).lossless:
                    passed_though_wrong.append((seed, what))
            right = copy.deepcopy(pair.small).to(dtype)
            if not beyond_rounding(pair.original, right, pair.inputs, 0.0, 5):
                found = radnet.verify(pair.original, right, pair.inputs)
                if not found.lossless:
                    right_refused.append((seed, found.failures))
            else:
                right_refused.append((seed, "beyond five times the drift"))
    evidence(
        f"wrong small models before verify, part {chunk + 1} of {CHUNKS}",
        pairs=len(seeds),
        beyond=beyond,
        passed=len(passed_though_wrong),
        right_refused=len(right_refused),
    )
    assert passed_though_wrong == []
    assert right_refused == []


# --- outputs of all kinds


class Function(nn.Module):
    """A function as a model; it has a layer so that it has a dtype."""

    def __init__(self, f):
        super().__init__()
        self.f, self.layer = f, nn.Linear(8, 8)

    def forward(self, x):
        return self.f(x)


class Noted(Function):
    """Leaves what it found on itself."""

    def forward(self, x):
        self.note = self.f(x)
        return x


@dataclasses.dataclass
class Output:
    first: torch.Tensor
    second: torch.Tensor


class Named(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Holder:
    def __init__(self, held):
        self.held = held


MASK = torch.arange(8) > 5
KINDS = {
    "beside a huge output": lambda x, y: (y, 1e9 * x),
    "in a dictionary beside a huge output": lambda x, y: {"huge": 1e9 * x, "small": y},
    "in nested lists": lambda x, y: [x, [x, [y, x]]],
    "in a dataclass": lambda x, y: Output(x, y),
    "in a named tuple": lambda x, y: Named(x, y),
    "held by an object": lambda x, y: (x, Holder(y)),
    "held by an object in a dictionary": lambda x, y: {"x": x, "held": [Holder((x, y))]},
    "beside a mask of -1e9": lambda x, y: y.masked_fill(MASK, -1e9),
    "beside a mask of -inf": lambda x, y: y.masked_fill(MASK, -torch.inf),
    "beside a mask of NaN": lambda x, y: y.masked_fill(MASK, torch.nan),
    "complex": lambda x, y: (x, torch.fft.fft(y)),
    "complex and alone": lambda x, y: torch.complex(x, y),
    "integers": lambda x, y: (x, y.argmax(1)),
    "truth values": lambda x, y: (x, y > 0.5),
    "with another number of rows": lambda x, y: (x, y[1:] + y[:-1]),
    "without rows": lambda x, y: (x, y.sum(0)),
    "a scalar": lambda x, y: (x, y.sum()),
    "beside the input itself": lambda x, y: (x, y),
    "a small multiple": lambda x, y: (x, 1e-20 * y),
    "one row of many": lambda x, y: torch.cat([x[:-1], y[-1:]]),
    "one entry of many": lambda x, y: torch.cat([x, x, x, y[:, :1]], 1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_verify_looks_at_outputs(kind, dtype):
    form, x = KINDS[kind], torch.randn(64, 8, dtype=dtype)
    sine = Function(lambda x: form(x, x.sin())).to(dtype)
    again = Function(lambda x: form(x, (torch.pi / 2 - x.double()).cos().to(x.dtype))).to(dtype)
    cosine = Function(lambda x: form(x, x.cos())).to(dtype)
    assert radnet.verify(sine, copy.deepcopy(sine), x).lossless
    assert not radnet.verify(sine, cosine, x).lossless
    if kind not in ("integers", "truth values"):  # those may hang on the last digit
        assert radnet.verify(sine, again, x).lossless


def test_verify_looks_at_what_is_left_on_a_module():
    x = torch.randn(64, 8)
    assert radnet.verify(Noted(torch.sin), Noted(torch.sin), x).lossless
    assert not radnet.verify(Noted(torch.sin), Noted(torch.cos), x).lossless


def test_verify_looks_at_every_row_for_itself():
    x = torch.randn(64, 8)
    x[0] *= 1e8
    assert radnet.verify(Function(lambda x: 3 * x), Function(lambda x: x + x + x), x).lossless
    assert not radnet.verify(Function(lambda x: x), Function(lambda x: torch.where(x.abs() < 10, 0 * x, x)), x).lossless


@pytest.mark.parametrize(
    ("f", "g"),
    [
        (lambda x: x.masked_fill(MASK, -torch.inf), lambda x: x.masked_fill(~MASK, -torch.inf)),
        (lambda x: x.masked_fill(MASK, torch.inf), lambda x: x.masked_fill(MASK, -torch.inf)),
        (lambda x: x.masked_fill(MASK, torch.nan), lambda x: x.masked_fill(MASK, torch.inf)),
        (lambda x: x, lambda x: x.masked_fill(MASK, torch.nan)),
    ],
)
def test_infinities_and_nan_stand_in_the_same_places(f, g):
    x = torch.randn(64, 8)
    assert radnet.verify(Function(f), Function(f), x).lossless
    assert not radnet.verify(Function(f), Function(g), x).lossless


@pytest.mark.parametrize(
    ("dtype", "f", "g"),
    [
        (torch.bfloat16, torch.tanh, lambda x: x / (1 + x.abs())),
        (torch.bfloat16, torch.tanh, lambda x: 1.05 * torch.tanh(x)),
        (torch.float16, lambda x: x, lambda x: 1.05 * x),
        (torch.float16, torch.sin, lambda x: x.sin() + 0.02),
    ],
)
def test_short_dtypes_excuse_no_other_function(dtype, f, g):
    x = torch.randn(64, 8).to(dtype)
    assert radnet.verify(Function(f).to(dtype), Function(f).to(dtype), x).lossless
    assert not radnet.verify(Function(f).to(dtype), Function(g).to(dtype), x).lossless


def test_a_noisy_head_in_bfloat16_is_another_function(generator):
    a = nn.Sequential(nn.Linear(8, 16), radnet.Squash(), nn.Linear(16, 10)).bfloat16()
    b, x = copy.deepcopy(a), torch.randn(256, 8, generator=generator).bfloat16()
    noise = torch.randn(10, 16, generator=generator).bfloat16()
    with torch.no_grad():
        b[2].weight.add_(0.3 * b[2].weight.abs().mean() * noise)
    assert radnet.verify(a, copy.deepcopy(a), x).lossless
    assert not radnet.verify(a, b, x).lossless


def test_where_every_row_is_at_a_jump_nothing_is_certified():
    unit = radnet.Radial(torch.ones_like)
    a, b = (nn.Sequential(unit, radnet.StepReLU(), nn.Linear(8, 2)) for _ in range(2))
    found = radnet.verify(a, b, torch.randn(64, 8))
    assert not found.lossless


def test_how_near_a_jump_counts_is_measured_by_one_ulp_of_the_weights():
    """64 eps of bfloat16 would be one half."""
    a = nn.Sequential(nn.Linear(8, 8), radnet.StepReLU(), nn.Linear(8, 2)).bfloat16()
    with torch.no_grad():
        a[0].weight.copy_(torch.eye(8))
        a[0].bias.zero_()
    x = nn.functional.normalize(torch.randn(32, 8, generator=torch.Generator().manual_seed(0)))
    for norm, rows in ((1.4, 0), (1.0, 32)):
        assert radnet.verify(a, copy.deepcopy(a), (norm * x).bfloat16()).rows_at_jump == rows


@pytest.mark.parametrize(("width", "given", "others"), [(4, 2, 126), (4, 20, 108), (4, 300, 150), (300, 20, 10)])
def test_enough_rows_are_judged_where_they_cost_little(width, given, others):
    model = nn.Sequential(nn.Linear(width, 12), radnet.Squash(), nn.Linear(12, 2))
    certificate = radnet.compress(model, torch.randn(given, width)).certificate
    assert certificate.tried[0] == f"{others} rows, scaled, fresh and zero"
    assert certificate.rows_judged >= given + others


def test_verify_leaves_inputs_that_a_model_writes_into():
    x = torch.randn(64, 8)
    before = x.clone()
    same, other = Function(lambda x: x.mul_(2)), Function(lambda x: x.mul_(3))
    assert radnet.verify(same, Function(lambda x: x + x), x).lossless
    assert not radnet.verify(same, other, x).lossless
    assert torch.equal(x, before)


def test_an_output_may_be_its_input():
    x = torch.randn(64, 8)
    assert radnet.verify(Function(lambda x: (x, x.sin())), Function(lambda x: (x.clone(), x.sin())), x).lossless
    assert not radnet.verify(Function(lambda x: (x, x.sin())), Function(lambda x: (x.neg_(), -x.sin())), x).lossless


class Masked(nn.Module):
    """Where a mask of zeros and ones is 1, a layer counts; the mask is an input or a buffer."""

    def __init__(self, mask=None):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("mask", mask)

    def forward(self, x, mask=None):
        mask = self.mask if mask is None else mask
        return self.layer(x).masked_fill(mask == 1, 0.0)


@pytest.mark.parametrize("given", [False, True])
def test_a_mask_that_forward_compares_with_a_number_excuses_nothing(given):
    mask, x = (torch.rand(64, 8) < 0.3).float(), torch.randn(64, 8)
    mask[:, 0] = 1
    right = Masked(None if given else mask)
    wrong = copy.deepcopy(right)
    wrong.layer.weight.data.mul_(1.02)
    inputs = (x, mask) if given else x
    assert radnet.verify(right, copy.deepcopy(right), inputs).lossless
    assert not radnet.verify(right, wrong, inputs).lossless
    assert not judge(right, copy.deepcopy(wrong).double(), inputs, shipped=wrong).lossless


def test_a_comparison_that_one_ulp_turns_over_excuses_nothing_in_float64():
    def turned(x):
        return torch.where(x.sum(1, keepdim=True) * 3 == x.sum(1, keepdim=True) + 2 * x.sum(1, keepdim=True), x, -x)

    right, wrong, x = Function(turned), Function(torch.sin), torch.randn(64, 8)
    assert judge(right, copy.deepcopy(right), x).lossless
    assert not judge(right, wrong, x).lossless


def test_digits_that_cancel_inside_the_original_are_not_asked_of_the_small_one():
    def cancelling(Q):
        def f(x):
            v = x @ Q
            return (v * 100 + v / v.norm(dim=-1, keepdim=True) - v * 100) @ Q.T

        return Function(f).double()

    one = torch.eye(8, dtype=torch.float64)
    x, Q = torch.randn(64, 8, dtype=torch.float64), torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    found = judge(cancelling(one), cancelling(Q), x)
    assert found.lossless, found.failures
    assert found.rows_ill_conditioned > 32
    assert not judge(cancelling(one), cancelling(Q + 1e-6), x).lossless


def test_rows_on_which_rounding_decides_are_not_judged_and_the_others_are():
    def turned(noise, last=1.0):
        def f(x):
            v = noise(x)
            return torch.where(x[:, :1] > 1.5, v / (v.norm(dim=1, keepdim=True) + 1e-300), last * x)

        return Function(f).double()

    one, other = turned(lambda x: x * 0.3 - x * 0.1 - x * 0.2), turned(lambda x: x * 0.3 - x * 0.2 - x * 0.1)
    x = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    few = int((x[:, 0] > 1.5).sum())
    found = judge(one, other, x)
    assert found.lossless, found.failures
    assert 0 < found.rows_at_jump <= few < 32
    assert not judge(one, turned(lambda x: x * 0.3 - x * 0.2 - x * 0.1, 1 + 1e-8), x).lossless
    many = x.abs() + 2
    assert any("rounding alone moves" in failure for failure in judge(one, other, many).failures)


class Whole(nn.Module):
    """A number, its whole part, and no rows at all."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, 1, bias=False)
        self.a.weight.data.fill_(0.1)

    def forward(self, x):
        return self.a(x), self.a(x).floor().long(), x[:0]


def test_whole_numbers_that_one_ulp_turns_over_are_excused_and_outputs_without_rows_do_no_harm():
    model, x = Whole(), torch.tensor([[30.0], [1.0], [2.0], [3.0]])
    moved = copy.deepcopy(model)
    moved.a.weight.data = torch.nextafter(moved.a.weight.data, torch.zeros(1, 1))
    assert [int(m(x)[1][0]) for m in (model, moved)] == [3, 2]
    found = radnet.verify(model, moved, x)
    assert found.lossless
    assert found.conditioning == float("inf")
    moved.a.weight.data.fill_(0.09)
    assert not radnet.verify(model, moved, x).lossless


class Twice(nn.Module):
    """A quotient that is not finite for one row of inputs, and beside it a number that always is."""

    def __init__(self, bias):
        super().__init__()
        self.a = nn.Linear(1, 1)
        self.a.weight.data.fill_(1.0)
        self.a.bias.data.fill_(bias)

    def forward(self, x):
        return 1 / self.a(x), self.a(x) + x


def test_a_row_that_is_not_finite_in_one_output_counts_whatever_the_others_are():
    found = radnet.verify(Twice(0.0), Twice(0.25), torch.tensor([[0.0], [1.0], [-0.25], [3.0]]))
    assert not found.lossless
    assert found.rows_not_finite == 2
