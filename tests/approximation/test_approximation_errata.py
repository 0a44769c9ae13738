"""Where the printed constructions fail, and that the corrected ones hold (docs/errata.md, numbers 1 to 11)."""

import math

import numpy as np
import pytest
import torch

import printed
import radnet
from radnet.approximation.covers import bound_on_count, bound_on_separated_count
from targets import GAUSS


def grid_in(lo, hi, count):
    """Centres of count equal intervals of [lo, hi]."""
    return lo + (hi - lo) * (np.arange(count) + 0.5) / count


def test_the_corrected_text_in_numpy_agrees_with_the_network():
    """The reference itself: with margins in s and radii, the text gives what radnet's networks give."""
    f = lambda x: np.sin(3 * x)  # noqa: E731
    a = radnet.approximate(lambda x: torch.sin(3 * x), radnet.Box(-1, 1), 0.2, lipschitz=3, width="n+m+1")
    x = np.random.default_rng(0).uniform(-1, 1, (5_000, 1))
    c, r = a.cover.centres, a.cover.radii
    values = a.evaluate(torch.as_tensor(c)).numpy()
    A, b = np.zeros((1, 1)), np.zeros(1)
    ours = a.network(torch.as_tensor(x)).numpy()
    assert (
        np.abs(printed.width_n_m_1(x, c, r, values, A, b, printed.smallest_difference(values) / 2) - ours).max() < 1e-12
    )
    assert np.abs(printed.growing(x, c, r, values, A, b) - ours).max() < 1e-12
    s = printed.smallest_difference(values) / 2
    assert np.abs(printed.width_n_m_1_as_layers(x, c, r, values, A, b, s) - ours).max() < 1e-12
    assert np.abs(f(x) - ours).max() < 0.2


def test_errata_1_the_printed_map_keeps_the_centre_instead_of_moving_it():
    """|U_i(c_i)| = 1, and Step-ReLU keeps what has norm 1."""
    eps = 0.8
    f = lambda x: np.stack([4 + np.sin(x[:, 1]), 4 + np.sin(x[:, 0])], 1)  # noqa: E731
    g = grid_in(-1, 1, 4)
    c = np.stack(np.meshgrid(g, g), axis=-1).reshape(-1, 2)
    r = np.full(16, 0.36)  # half the diagonal of a cell is 0.354, so f is within 0.36 < eps/2 of the value of a ball
    d = f(c) + np.random.default_rng(1).uniform(-0.25, 0.25, c.shape)
    x = np.random.default_rng(0).uniform(-1, 1, (4_000, 2))
    error = {along: np.linalg.norm(printed.width_max(x, c, r, d, along) - f(x), axis=1).max() for along in (1.0, 0.5)}
    assert error[1.0] > 3
    assert error[0.5] < eps
    a = radnet.approximate(
        lambda x: torch.stack([4 + x[:, 1].sin(), 4 + x[:, 0].sin()], 1),
        radnet.Box([-1, -1], [1, 1]),
        eps,
        lipschitz=1,
        width="max",
    )
    assert np.linalg.norm(a.network(torch.as_tensor(x)).numpy() - f(x), axis=1).max() < eps


def test_errata_2_two_balls_a_layer_and_one_ball_and_more_inputs_than_outputs():
    """One ball leaves s_1 a minimum over nothing; n > m needs a projection at the end; n = m = 1 is impossible."""
    one = radnet.approximate(lambda x: 0.1 * x[:, 0], radnet.Box([0, 0], [1, 1]), 0.5, lipschitz=0.1, width="max")
    assert one.network.widths == (2, 2, 2, 1)
    assert one.certificate.check(lambda x: 0.1 * x[:, 0], torch.rand(100, 2, dtype=torch.float64)).holds
    with pytest.raises(radnet.RadNetError, match="monotone"):
        radnet.approximate(torch.sin, radnet.Box(0, 1), 0.5, lipschitz=1, width="max")


def test_errata_3_the_smallest_difference_is_undefined_fragile_and_can_be_a_rounding_error():
    A, b = np.zeros((1, 1)), np.zeros(1)
    with pytest.raises(ValueError, match="zero-size"):
        printed.smallest_difference(np.ones((3, 1)))  # all values agree
    # values a rounding error apart: an even function on a symmetric grid
    f = lambda x: np.exp(-((x - 0.3) ** 2) / 0.5)  # noqa: E731
    c, eps = grid_in(-0.7, 1.3, 40)[:, None], 0.05
    r = np.full(40, 0.026)
    s = printed.smallest_difference(f(c))
    assert 0 < s < 1e-15
    x = np.random.default_rng(0).uniform(-0.7, 1.3, (5_000, 1))
    assert np.abs(printed.width_n_m_1_as_layers(x, c, r, f(c), A, b, s) - f(x)).max() > 10 * eps
    torch_f = lambda x: torch.exp(-((x - 0.3) ** 2) / 0.5)  # noqa: E731
    for width in ("n+m+1", "max+1"):
        a = radnet.approximate(torch_f, radnet.Box(-0.7, 1.3), eps, lipschitz=GAUSS * math.sqrt(2), width=width)
        assert a.certificate.check(torch_f, x).holds
        assert a.certificate.threshold_margin == 2


def test_errata_3_at_the_exact_minimum_rounding_decides(count):
    """With s as printed two values are exactly 1 apart, and some networks return the value of another ball."""
    A, b, rng, wrong, corrected = np.zeros((1, 1)), np.zeros(1), np.random.default_rng(0), 0, 0
    trials = count(60, 400)
    for _ in range(trials):
        c, r = grid_in(0, 1, 6)[:, None], np.full(6, 0.09)
        values = rng.standard_normal((6, 1))
        s = printed.smallest_difference(values)
        wrong += np.abs(printed.width_n_m_1(c, c, r, values, A, b, s) - values).max() > 1e-9
        corrected += np.abs(printed.width_n_m_1(c, c, r, values, A, b, s / 2) - values).max() > 1e-9
    assert wrong > 0.02 * trials
    assert corrected == 0


def test_errata_4_the_values_on_k_are_not_enough():
    """A point outside K but inside a ball gets the value of the ball."""
    f = lambda x: np.maximum(0, 1 - np.abs(x))  # noqa: E731
    eps, c, r = 0.4, np.array([[-0.3], [0.3]]), np.array([0.8, 0.8])
    on_k = np.linspace(-0.6, 0.6, 1001)[:, None]
    for centre in c:  # the lemma holds: f(B cap K) is within eps of f(c)
        assert np.abs(f(on_k) - f(centre)).max() < eps
    x = np.linspace(-2, 2, 4001)[:, None]
    assert np.abs(printed.growing(x, c, r, f(c), np.zeros((1, 1)), np.zeros(1)) - f(x)).max() > 0.69
    torch_f = lambda x: (1 - x.abs()).clamp(min=0)  # noqa: E731
    for width in ("growing", "n+m+1"):
        a = radnet.approximate(torch_f, radnet.Box(-0.6, 0.6), eps, lipschitz=1, limit=([[0]], [0]), width=width)
        assert a.certificate.check(torch_f, x).holds


def test_errata_5_radii_above_1_and_tiny_ones():
    A, b = np.zeros((1, 1)), np.zeros(1)
    with np.errstate(invalid="ignore"):
        large = printed.growing(np.zeros((1, 1)), np.zeros((1, 1)), np.array([1.5]), np.ones((1, 1)), A, b)
    assert not np.isfinite(large).all()  # sqrt(1 - r^2) is imaginary
    r = np.float32(1.7e-4)
    h = np.sqrt(np.float32(1) - r * r)
    at_the_centre = np.array([[0, h]], dtype=np.float32)
    assert (
        printed.step_relu(at_the_centre, np.float32) == at_the_centre
    ).all()  # not even its centre falls into the ball
    for size in (1e4, 1e-4):
        f = lambda x: torch.sin(x / size)  # noqa: B023, E731
        for width in ("growing", "n+m+1", "max+1"):
            a = radnet.approximate(
                f, radnet.Box(0, 3 * size), 0.1, lipschitz=1 / size, width=width, dtype=torch.float32
            )
            x = 3 * size * torch.rand(2_000, 1, generator=torch.Generator().manual_seed(0))
            assert a.certificate.check(f, x).holds


def test_errata_6_the_column_is_f_minus_l_and_the_affine_map_of_the_main_text_is_off_by_l_of_0():
    A, b = np.array([[2.0]]), np.array([3.0])
    c, value = np.array([[0.5]]), np.array([[1.0]])
    right = printed.growing(c, c, np.array([0.3]), value, A, b)
    # "the unique affine map with x -> L(x) and e_i -> f(c_i) - L(c_i)" sends c + e to L(c) + (f(c) - L(c)) - L(0)
    as_printed = (c @ A.T + b) + (value - (c @ A.T + b)) - b
    assert right == pytest.approx(value)
    assert as_printed == pytest.approx(value - b)


def test_errata_7_the_packing_lemma_does_not_put_centres_in_k():
    """K = [-1, -0.1] u [0.1, 1] and r = 0.5: the ball of radius r/2 around 0 lies in B_{r/2}(K), but 0 is not in K."""
    in_k = lambda x: (np.abs(x) >= 0.1) & (np.abs(x) <= 1)  # noqa: E731
    k = np.concatenate([np.linspace(-1, -0.1, 901), np.linspace(0.1, 1, 901)])
    ball = np.linspace(-0.2499, 0.2499, 999)
    assert (np.abs(ball[:, None] - k).min(1) < 0.25).all()
    assert not in_k(0.0)
    # ties: equal spacings divided by the radius round to both sides of 1
    c = grid_in(0, 1, 10)
    assert (np.abs(np.diff(c)) / 0.1 < 1).any()
    for domain in (radnet.Box([0, 0], [1, 1]), radnet.Ball([0, 0], 1), radnet.Points(k)):
        m = (lambda x: torch.cat([x, x], 1)) if domain.dimension == 1 else (lambda x: x)
        a = radnet.approximate(m, domain, 0.4, lipschitz=1.5, width="max")
        d = np.linalg.norm(a.cover.centres[:, None] - a.cover.centres, axis=2) + 1e9 * np.eye(len(a.cover))
        assert (d >= a.cover.radii[:, None] * (1 + 1e-5)).all()
        assert (domain.distance(a.cover.samples) < 1e-12).all()


def test_errata_8_the_printed_bound_on_the_number_of_balls_is_false():
    as_printed = lambda n, R, eps: math.ceil(R * math.sqrt(n) / (2 * eps)) ** n  # noqa: E731
    # f = x on [0, 1], eps = 1/2: one ball does not do, wherever its centre is
    assert as_printed(1, 1, 0.5) == 1
    centres = np.linspace(0, 1, 100_001)
    assert np.maximum(centres, 1 - centres).min() >= 0.5
    assert bound_on_count(1, 1, 0.5) == 2
    assert as_printed(2, 0, 0.1) == 0  # R = 0: no ball at all
    assert bound_on_count(2, 0, 0.1) >= 1
    # eps/R = 2 in nine dimensions: one ball, but of radius 3/2, and radii are below 1
    assert as_printed(9, 0.5, 1) == 1
    assert math.sqrt(9) / 2 > 1
    rng = np.random.default_rng(0)
    for _ in range(300):  # the corrected bound: cubes that fit balls of radius below min(eps/R, 1)
        n, R, eps = int(rng.integers(1, 6)), 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-2, 0)
        cubes = round(bound_on_count(n, R, eps) ** (1 / n))
        assert math.sqrt(n) / (2 * cubes) < min(eps / R, 1)


@pytest.mark.parametrize(
    ("n", "R", "eps"), [(1, 1.0, 0.05), (1, 3.0, 0.2), (2, 1.0, 0.1), (2, 1.0, 0.4), (3, 1.0, 0.3)]
)
def test_covers_stay_below_the_bounds(n, R, eps):
    f = lambda x: R * torch.sin(x)  # noqa: E731
    cube = radnet.Box([0] * n, [1] * n)
    a = radnet.approximate(f, cube, eps, lipschitz=R, width="growing")
    assert len(a.cover) <= bound_on_count(n, R, 0.97 * eps)
    if n > 1:
        b = radnet.approximate(f, cube, eps, lipschitz=R, width="max")
        assert len(b.cover) <= bound_on_separated_count(n, R, 0.75 * eps)


def test_errata_9_a_differentiable_function_on_a_compact_set_need_not_be_lipschitz():
    """x^2 sin(1/x^2) is differentiable on [-1, 1]; its slopes grow without bound. And K has to be convex."""
    f = lambda x: x**2 * np.sin(x**-2.0)  # noqa: E731
    k = np.arange(10, 2000)
    x, y = (1 / np.sqrt(np.pi * (k + h)) for h in (0.25, -0.25))
    slopes = np.abs(f(x) - f(y)) / np.abs(x - y)
    assert slopes[-1] > 10 * slopes[0]
    # on K = [0, 1] u [1.01, 2] the function that is 0 and then 1 has slope 0 everywhere and Lipschitz constant 100
    points = radnet.Points([0.0, 1.0, 1.01, 2.0])
    with pytest.raises(radnet.RadNetError, match="refuted by two points"):
        radnet.approximate(lambda x: (x > 1.005).double(), points, 0.1, lipschitz=0.5)


def test_errata_10_there_are_n_hidden_layers():
    a = radnet.approximate(torch.sin, radnet.Box(0, 1), 0.25, lipschitz=1, width="growing")
    assert len(a.network.widths) == len(a.cover) + 2
    x, c, r = np.array([[0.5]]), np.array([0.2]), 0.3  # |T(x)|^2 is |x - c|^2 + h^2, not |x - c| + h^2
    assert np.hypot(x - c, np.sqrt(1 - r**2)).item() == pytest.approx(1)


def test_errata_11_far_out_the_limit_holds_up_to_rounding_that_grows():
    f = lambda x: x + torch.exp(-(x**2))  # noqa: E731
    for width in ("growing", "n+m+1"):
        a = radnet.approximate(f, radnet.Box(-3, 3), 0.02, lipschitz=1 + GAUSS, limit=([[1]], [0]), width=width)
        far = torch.linspace(0.5e6, 1e6, 500, dtype=torch.float64).unsqueeze(1)
        assert len(a.cover) > 200
        assert a.certificate.reach["float64"] >= 1e6
        assert a.certificate.check(f, far).worst < 1e-6
        a.network.float()
        assert a.certificate.check(f, far).worst > 0.02  # not in float32, and the certificate does not say so
        assert a.certificate.reach["float32"] < 1e5
