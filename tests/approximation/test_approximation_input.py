"""What `approximate` refuses, and that it says where, what and what to do."""

import math
import types

import numpy as np
import pytest
import torch

import radnet
from radnet import Ball, Box, Points

UNIT = Box(0, 1)
KINDS = ["one", "local", "samples"]


@pytest.mark.parametrize("eps", [0, -1.0, math.nan, math.inf])
def test_eps_must_be_positive(eps):
    with pytest.raises(ValueError, match=r"eps=.*must be a positive number"):
        radnet.approximate(torch.sin, UNIT, eps, lipschitz=1)


@pytest.mark.parametrize("eps", ["0.1", None, True])
def test_eps_must_be_a_number(eps):
    with pytest.raises(TypeError, match="eps must be a number"):
        radnet.approximate(torch.sin, UNIT, eps, lipschitz=1)


@pytest.mark.parametrize(
    ("lo", "hi", "message"),
    [
        ([], [], "empty"),
        (1, 0, "inverted"),
        ([0, 1], [1, 0], "coordinate 1 runs from 1.0 to 0.0, which is inverted"),
        (0, math.inf, "must be bounded"),
        (math.nan, 1, "must be bounded"),
        ([0, 2], [1, 2], "coordinate 1 .* a single point"),
        ([0, 0], [1], "lo has 2 coordinates and hi has 1"),
        (-1.7e308, 1.7e308, "not a finite number"),
        ([[0]], [[1]], r"shape \(1, 1\)"),
    ],
)
def test_boxes_that_make_no_sense(lo, hi, message):
    with pytest.raises(ValueError, match=message):
        Box(lo, hi)


def test_other_domains_that_make_no_sense():
    with pytest.raises(TypeError, match="real numbers"):
        Box("a", 1)
    for radius in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="must be a positive number"):
            Ball([0, 0], radius)
    with pytest.raises(ValueError, match="not finite"):
        Ball([0, math.nan], 1)
    with pytest.raises(ValueError, match="centre is empty"):
        Ball([], 1)
    with pytest.raises(ValueError, match="at least one point"):
        Points(np.empty((0, 2)))
    with pytest.raises(ValueError, match=r"point 1 is \[nan\]"):
        Points([0.0, math.nan])
    with pytest.raises(TypeError, match="Box, a Ball or Points"):
        radnet.approximate(torch.sin, (0, 1), 0.1, lipschitz=1)


def raising(x):
    raise ZeroDivisionError("no")


class Counter:
    """Another value at every call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (raising, "f raised ZeroDivisionError .no. for a float64 tensor of shape"),
        (lambda x: x.sum(), "expected .*one row a point"),
        (lambda x: x.repeat(1, 1, 2), "expected .*one row a point"),
        (lambda x: x[:3], "f returned shape"),
        (lambda x: x[:, :0], "f returned shape"),
        (lambda x: torch.where(x > 0.5, math.nan, x), r"f returned \[nan\] at x = "),
        (lambda x: 1 / (x * 0), r"f returned \[inf\] at x = "),
        (Counter(), "not deterministic: at x = "),
    ],
)
def test_functions_that_cannot_be_approximated(f, message):
    with pytest.raises(ValueError, match=message):
        radnet.approximate(f, UNIT, 0.1, lipschitz=1)


def test_functions_of_the_wrong_type():
    with pytest.raises(TypeError, match="f must be callable"):
        radnet.approximate(3, UNIT, 0.1, lipschitz=1)
    with pytest.raises(TypeError, match="real numbers are needed"):
        radnet.approximate(lambda x: x.to(torch.complex128), UNIT, 0.1, lipschitz=1)


def test_a_refuted_lipschitz_constant_names_the_two_points():
    with pytest.raises(ValueError, match=r"lipschitz=1 is refuted by two points: f\(\[.*\]\) = .* differ by"):
        radnet.approximate(lambda x: 3 * x, UNIT, 0.1, lipschitz=1)
    with pytest.raises(ValueError, match="refuted by two points"):
        radnet.approximate(lambda x: 3 * x, UNIT, 0.1, lipschitz=lambda lo, hi: torch.ones(len(lo)))
    with pytest.raises(ValueError, match="modulus is refuted by two points"):
        radnet.approximate(lambda x: 3 * x, UNIT, 0.1, modulus=lambda r: r)
    radnet.approximate(lambda x: 3 * x, UNIT, 0.1, lipschitz=3)  # the exact constant is not refuted by rounding
    radnet.approximate(lambda x: 3 * x + 1e6, UNIT, 0.1, lipschitz=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lipschitz": -1}, "at least 0"),
        ({"lipschitz": math.inf}, "finite"),
        ({"lipschitz": math.nan}, "at least 0"),
        ({"lipschitz": 1, "modulus": lambda r: r}, "not both"),
        ({"lipschitz": lambda lo, hi: torch.ones(3)}, "expected one number a box"),
        ({"lipschitz": lambda lo, hi: -torch.ones(len(lo))}, "lipschitz returned -1.0 on the box"),
        ({"lipschitz": lambda lo, hi: 1 / 0}, "lipschitz raised ZeroDivisionError"),
        ({"modulus": lambda r: -1.0}, "non-negative"),
        ({"modulus": lambda r: 1.0 + r}, "tends to 0"),
        ({"lipschitz": 1, "width": "narrow"}, "growing, n.m.1, max.1, max, auto"),
        ({"lipschitz": 1, "dtype": torch.float16}, "torch.float64 or torch.float32"),
        ({"lipschitz": 1, "max_balls": 0}, "positive whole number"),
        ({"lipschitz": 1, "width": "max"}, r"max\(n, m\) >= 2"),
        ({"lipschitz": 1, "limit": (1, 2, 3)}, "pair"),
        ({"lipschitz": 1, "limit": ([[1, 2]], [0])}, r"f needs \(1, 1\) and \(1,\)"),
        ({"lipschitz": 1, "limit": ([[math.nan]], [0])}, "finite"),
        ({"lipschitz": 1, "limit": ([[1]], [0]), "width": "max+1"}, "knows the domain only"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message):
    with pytest.raises(radnet.RadNetError, match=message):
        radnet.approximate(torch.sin, UNIT, 0.1, **arguments)


def test_arguments_of_the_wrong_type():
    with pytest.raises(TypeError, match="lipschitz must be a number"):
        radnet.approximate(torch.sin, UNIT, 0.1, lipschitz="1")
    with pytest.raises(TypeError, match="modulus must be a function"):
        radnet.approximate(torch.sin, UNIT, 0.1, modulus=1)


def test_a_limit_that_is_off_says_where():
    f = lambda x: torch.exp(-(x**2))  # noqa: E731
    with pytest.raises(ValueError, match=r"at the boundary of the domain, at x = \[-?1.0\], f is 0.36"):
        radnet.approximate(f, Box(-1, 1), 0.1, lipschitz=1, limit=([[0]], [0]))
    with pytest.raises(ValueError, match="outside the domain, at x = "):
        radnet.approximate(lambda x: torch.sin(math.pi * x), Box(-1, 1), 0.1, lipschitz=4, limit=([[0]], [0]))


@pytest.mark.parametrize("width", ["auto", "growing", "max"])
@pytest.mark.parametrize(
    "claim",
    [{"lipschitz": 1.5}, {"lipschitz": lambda lo, hi: torch.full((len(lo),), 1.5)}, {}],
    ids=["one", "local", "samples"],
)
def test_too_many_balls_says_how_many_and_which_eps_would_fit(width, claim):
    f = lambda x: torch.sin(x)  # noqa: E731
    domain = Box([0, 0], [5, 5]) if claim else Box([0, 0], [2, 2])
    with pytest.raises(ValueError, match=r"takes .*balls, more than max_balls=60; eps=.* would fit") as raised:
        radnet.approximate(f, domain, 0.15, width=width, max_balls=60, **claim)
    eps = float(str(raised.value).split("eps=")[2].split(" ")[0])
    assert len(radnet.approximate(f, domain, eps, width=width, max_balls=60, **claim).cover) <= 60


@pytest.mark.parametrize("first", range(21))
def test_the_eps_that_would_fit_is_the_first_and_few_are_planned_for(first, monkeypatch):
    from radnet.approximation import choosing
    from radnet.approximation.covers import TooManyBalls

    planned = []

    def plan(problem, width):
        planned.append(problem.eps)
        if problem.eps not in values[first:]:
            raise TooManyBalls(math.inf)

    def replace(problem, eps):
        return types.SimpleNamespace(eps=eps)

    monkeypatch.setattr(choosing, "make_plan", plan)
    monkeypatch.setattr(choosing, "replace", replace)
    values = choosing._rising(0.1)
    assert len(values) == 20
    found = choosing._first_that_fits(None, "max+1", values)
    assert found == (values[first] if first < 20 else None)
    assert len(planned) == len(set(planned)) <= (first + 1 if first < 6 else 12)


def test_a_jump_that_no_eps_considered_allows_is_told_after_few_plans():
    calls = []

    def f(x):
        calls.append(len(x))
        return 1e7 * (x > 0.5).double()

    with pytest.raises(ValueError, match="takes very many balls, more than max_balls=20,000; no eps was found"):
        radnet.approximate(f, UNIT, 0.1)
    assert calls.count(4096) == 1  # how far f spreads is sampled once, not for every eps


def test_float32_says_when_it_is_too_coarse():
    with pytest.raises(ValueError, match="below what float32 can do"):
        radnet.approximate(lambda x: torch.sin(x) + 1e6, Box(0, 1), 0.01, lipschitz=1, dtype=torch.float32)


@pytest.mark.parametrize("width", ["growing", "n+m+1"])
def test_networks_refuse_inputs_of_the_wrong_kind(width):
    a = radnet.approximate(torch.sin, UNIT, 0.2, lipschitz=1, width=width)
    for call in (a.network, a.evaluate):
        with pytest.raises(ValueError, match="the last dimension must be 1"):
            call(torch.zeros(3, 2, dtype=torch.float64))
        with pytest.raises(TypeError, match="tensor"):
            call([0.0])
        with pytest.raises(TypeError, match="floating-point"):
            call(torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(TypeError, match="the parameters are torch.float64"):
        a.network(torch.zeros(3, 1))
    with pytest.raises(ValueError, match="expected .count, 1."):
        a.certificate.check(torch.sin, torch.zeros(3, 2))


def test_a_nan_stays_a_nan():
    for width in ("growing", "n+m+1", "max+1"):
        a = radnet.approximate(torch.sin, UNIT, 0.2, lipschitz=1, width=width)
        x = torch.tensor([[math.nan], [0.5]], dtype=torch.float64)
        for y in (a.network(x), a.evaluate(x)):
            assert y[0].isnan().all()
            assert y[1].isfinite().all()


def test_to_radnet_refuses_more_than_a_gigabyte():
    a = radnet.approximate(torch.sin, Box(0, 6), 0.004, lipschitz=1, width="growing")
    assert a.certificate.parameters * 8 > 2**30
    assert sum(p.numel() for p in a.network.parameters()) < 10 * len(a.cover)
    with pytest.raises(ValueError, match="would take .* GB; more than 1 GB is refused"):
        a.network.to_radnet()
    x = torch.linspace(0, 6, 100, dtype=torch.float64).unsqueeze(1)
    assert float((a.network(x) - x.sin()).abs().max()) < 0.004


# --- what looked like a guarantee and was none


def test_a_modulus_that_decreases_is_refused():
    """|sin x - sin y| <= |2 sin(|x - y|/2)| is true, and says nothing about smaller distances."""
    with pytest.raises(ValueError, match="modulus: it falls from"):
        radnet.approximate(torch.sin, Box(-6, 6), 0.1, modulus=lambda r: abs(2 * math.sin(r / 2)))


@pytest.mark.parametrize("width", ["growing", "n+m+1"])
def test_the_bound_holds_outside_the_balls_too(width):
    f = lambda x: 0.9 + 0 * x[:, 0]  # noqa: E731
    a = radnet.approximate(f, Box(-1, 1), 1.0, lipschitz=0, limit=([[0.0]], [0.0]), width=width)
    assert 0.9 <= a.certificate.check(f, torch.tensor([[5.0]])).worst <= a.certificate.bound < 1
    with pytest.raises(ValueError, match="outside the domain"):
        radnet.approximate(
            lambda x: 0.99 + 0 * x[:, 0], Box(-1, 1), 1.0, lipschitz=0, limit=([[0.0]], [0.0]), width=width
        )


@pytest.mark.parametrize("width", ["growing", "n+m+1", "max+1"])
@pytest.mark.parametrize(("size", "value"), [(1.0, 1e39), (1e-39, 1.0), (1e40, 1.0), (1.0, 1e-41)])
def test_nothing_is_promised_beyond_the_range_of_float32(width, size, value):
    f = lambda x: value * torch.sin(3 * x / size)  # noqa: E731
    arguments = {"lipschitz": 3 * value / size * (1 + 1e-12), "width": width}
    a = radnet.approximate(f, Box(0, size), 0.1 * value, **arguments)
    assert a.certificate.check(f, torch.linspace(0, size, 500, dtype=torch.float64).unsqueeze(1)).holds
    assert not a.certificate.holds_in(torch.float32)
    with pytest.raises(ValueError, match="below what float32 can do"):
        radnet.approximate(f, Box(0, size), 0.1 * value, dtype=torch.float32, **arguments)


@pytest.mark.parametrize(
    ("domain", "eps", "scale"),
    [
        (Points(np.linspace(0, 1, 50)), 1e-202, 1e-200),
        (Box(0, 1e160), 0.1, 1.0),
        (Box(0, 1e-155), 0.1, 1.0),
        (Box(0, 1), 0.1, 1e200),
        (Box([0, 0], [1, 1e-300]), 0.1, 1.0),
        (Box(0, 1), 10**400, 1.0),
    ],
)
def test_sizes_whose_squares_are_no_numbers_are_refused(domain, eps, scale):
    with pytest.raises(ValueError, match="must be between|can be worked with|positive number"):
        radnet.approximate(lambda x: scale * torch.sin(9 * x[:, 0]), domain, eps, lipschitz=1e99)


def test_values_too_small_for_float32_do_no_harm():
    f = lambda x: torch.exp(-(x**2))  # noqa: E731
    for width in ("growing", "n+m+1", "max+1"):
        a = radnet.approximate(f, Box(-12, 12), 0.1, lipschitz=0.8578, width=width)
        assert a.certificate.holds_in(torch.float32)
        a.network.float()
        assert a.certificate.check(f, torch.linspace(-12, 12, 2_000).unsqueeze(1)).holds


def test_every_one_of_many_points_counts():
    n = 120_000
    x = np.arange(n) / n
    f = lambda x: (((x * n - 77_777).abs() < 0.1) * 0.3).double()  # noqa: E731
    a = radnet.approximate(f, Points(x), 1.0, width="max+1")
    assert a.certificate.check(f, x[:, None]).worst <= a.certificate.bound


def test_an_f_that_works_in_place_harms_nobody():
    a = radnet.approximate(lambda x: x.sin_(), Box(0, 6), 0.1, lipschitz=1)
    x = torch.linspace(0, 6, 500, dtype=torch.float64).unsqueeze(1)
    before = x.clone()
    assert a.certificate.check(lambda x: x.sin_(), x).holds
    assert torch.equal(x, before)


@pytest.mark.parametrize("m", [2, 3])
def test_one_ball_of_width_max(m):
    f = lambda x: 0.01 * x.repeat(1, m)  # noqa: E731
    a = radnet.approximate(f, Box(0, 1), 1.0, lipschitz=0.02, width="max")
    assert a.certificate.check(f, torch.rand(100, 1)).holds


@pytest.mark.parametrize(
    "claim", [{"lipschitz": 1.5}, {"lipschitz": lambda lo, hi: 1.5}, {}], ids=["one", "local", "samples"]
)
@pytest.mark.parametrize("flat", [1e-6, 1e-15])
def test_flat_boxes_are_covered(claim, flat):
    f = lambda x: x.sum(1)  # noqa: E731
    a = radnet.approximate(f, Box([0, 0], [1, flat]), 0.1, **claim)
    x = torch.rand(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, flat])
    assert a.certificate.check(f, x).holds
    assert len(a.cover) < 60


def test_a_domain_far_from_0_is_refused_at_once():
    with pytest.raises(radnet.RadNetError, match="below what float64 can do here.*move the domain closer to 0"):
        radnet.approximate(lambda x: 0 * x + (x > 1e16 + 4), Box(1e16, 1e16 + 8), 0.1, lipschitz=lambda lo, hi: 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modulus": lambda r: None}, "modulus.* raised TypeError"),
        ({"lipschitz": lambda lo, hi: [[1], [1, 2]]}, "lipschitz raised ValueError"),
        ({"lipschitz": 1, "dtype": []}, "float64"),
        ({"lipschitz": 1, "limit": (1j, 0)}, "not real numbers"),
        ({"lipschitz": 10**400}, "finite number"),
    ],
)
def test_odd_arguments_are_refused_in_our_words(arguments, message):
    with pytest.raises(radnet.RadNetError, match=message):
        radnet.approximate(torch.sin, UNIT, 0.1, **arguments)


def test_values_of_other_types_are_taken_or_refused_in_our_words():
    a = radnet.approximate(lambda x: x.to(torch.bfloat16), Box(0, 1), 0.2, modulus=lambda r: r + 0.01)
    assert a.certificate.bound < 0.2
    with pytest.raises(radnet.RadNetError, match="f raised ValueError"):
        radnet.approximate(lambda x: [[1.0], [1.0, 2.0]], UNIT, 0.1)
    with pytest.raises(radnet.RadNetError, match="points must be"):
        a.certificate.check(torch.sin, "abc")
    with pytest.raises(radnet.RadNetError, match="f raised"):
        a.certificate.check(raising, torch.zeros(3, 1))


def test_separated_covers_of_points_are_found(count):
    f = lambda x: torch.stack([torch.sin(5 * x[:, 0]), x[:, 1] ** 2], 1)  # noqa: E731
    for seed in range(count(5, 30)):
        x = np.random.default_rng(seed).random((60, 2))
        assert radnet.approximate(f, Points(x), 0.3, width="max").certificate.check(f, x).holds


@pytest.mark.parametrize("d", [9, 20, 30, 100, 1000])
def test_too_many_dimensions_are_refused_at_once_with_a_true_number(d):
    with pytest.raises(
        ValueError, match=r"takes about .* balls, more than max_balls=20,000; eps=.* would fit"
    ) as caught:
        radnet.approximate(lambda x: x[:, :1], radnet.Box([0] * d, [1] * d), 0.5, lipschitz=1.0)
    count = str(caught.value).split("about ")[1].split(" balls")[0].replace(",", "")
    log = float(count[3:]) if count.startswith("10^") else math.log10(int(count))
    assert math.log10(20_000) < log <= d * math.log10(math.ceil(math.sqrt(d)) + 1)
    fits = float(str(caught.value).split("eps=")[2].split(" ")[0])
    if d < 100:
        assert (
            len(radnet.approximate(lambda x: x[:, :1], radnet.Box([0] * d, [1] * d), fits, lipschitz=1.0).cover)
            <= 20_000
        )


def test_six_dimensions_that_fit_are_built():
    a = radnet.approximate(lambda x: x[:, :1], radnet.Box([0] * 6, [1] * 6), 0.5, lipschitz=1.0)
    assert len(a.cover) <= 729
    x = torch.rand(500, 6, dtype=torch.float64)
    assert float((a.network(x) - x[:, :1]).abs().max()) < 0.5


def test_no_more_balls_than_anybody_could_want():
    with pytest.raises(ValueError, match="more than 10,000,000 balls are not built"):
        radnet.approximate(torch.sin, radnet.Box(0, 1), 0.1, lipschitz=1, max_balls=10**15)
