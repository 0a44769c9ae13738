"""The four constructions: the sup error is below eps, where and in the dtypes in which the certificate says so."""

import math

import numpy as np
import pytest
import torch

import radnet
from radnet.approximation.domains import Box
from targets import CASES, GAUSS, Case, arguments

RULES = ("growing", "n+m+1", "max+1", "max")


def applies(case: Case, rule: str) -> bool:
    return rule != "max" or bool(case.widest)


def trying_points(a, domain, count, rng):
    """A grid, random points, points a rounding error off the spheres, centres, the boundary."""
    n = domain.dimension
    side = max(2, round(count ** (1 / n)))
    axes = [np.linspace(lo, hi, side) for lo, hi in zip(domain.lower, domain.upper, strict=True)]
    grid = domain.nearest(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, n))
    v = rng.standard_normal((count // 4, n))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    i = rng.integers(len(a.cover), size=count // 4)
    off = 1 + rng.integers(-8, 9, size=(count // 4, 1)) * 10.0 ** rng.integers(-16, -5, size=(count // 4, 1))
    spheres = domain.nearest(a.cover.centres[i] + a.cover.radii[i, None] * v * off)
    parts = [
        grid,
        domain.sample(count, rng),
        spheres,
        domain.boundary(count // 10, rng),
        domain.nearest(a.cover.centres),
    ]
    return torch.as_tensor(np.concatenate(parts))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_error_is_below_eps_in_both_precisions_and_far_out(case, rule, count, evidence):
    if not applies(case, rule):
        pytest.skip("max(n, m) = 1")
    rng = np.random.default_rng(3)
    wanted = case.full if rule != "max" else case.widest
    for eps in wanted if count(0, 1) else (case.quick if rule != "max" else case.widest[0],):
        a = radnet.approximate(case.f, case.domain, eps, **arguments(case, rule))
        n, m, N, c = case.domain.dimension, a.certificate.widths[-1], len(a.cover), a.certificate
        hidden = {
            "growing": list(range(n + 1, n + N + 1)),
            "n+m+1": [n + m + 1] * N,
            "max+1": [max(n, m) + 1] * N,
            "max": [max(n, m)] * 2 * N,
        }[rule]
        assert a.network.widths == (n, *hidden, m) == c.widths
        assert (c.balls, c.hidden_layers) == (N, len(hidden))
        assert c.bound < eps
        assert c.proven
        assert (20_000 if rule != "max" else 500) >= N
        points = trying_points(a, case.domain, count(2_000, 100_000), rng)
        seen = c.check(case.f, points)
        assert seen.holds, seen
        assert seen.worst <= c.bound
        closed = torch.as_tensor(np.asarray(case.f(points))).reshape(len(points), -1)
        assert float((a.evaluate(points) - closed).norm(dim=1).max()) <= c.bound
        afar = {}
        for dtype in (torch.float64, torch.float32):
            reach = c.reach[str(dtype).removeprefix("torch.")]
            if not c.holds_in(dtype):
                continue
            a.network.to(dtype)
            if dtype == torch.float32:
                lower = c.check(case.f, points)
                assert lower.holds, (dtype, lower)
            if case.limit is not None and rule in ("growing", "n+m+1") and reach > 0:
                v = rng.standard_normal((2_000, n))
                size = np.exp(rng.uniform(math.log(case.domain.radius * 0.5), math.log(min(reach, 1e30)), (2_000, 1)))
                y = case.domain.centre + v / np.linalg.norm(v, axis=1, keepdims=True) * size * 0.9
                y = y[np.linalg.norm(y, axis=1) <= reach]
                far = c.check(case.f, y)
                assert far.holds, (dtype, reach, far)
                afar[str(dtype)] = float(reach)
        if case.limit is not None and rule in ("growing", "n+m+1"):
            assert c.reach["float64"] >= 1e6
        few = {1: 500, 2: 10_000, 3: 0}[n] if rule != "max" else {1: 0, 2: 100, 3: 0}[n]
        if few >= N:
            assert c.holds_in(torch.float32)
        evidence(
            "sup error below eps",
            case=case.name, rule=rule, eps=eps, balls=N, points=len(points), worst=seen.worst, bound=c.bound,
            float32=c.holds_in(torch.float32), reach=afar,
        )  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", [case for case in CASES if case.widest], ids=repr)
def test_network_stacked_evaluation_and_closed_form_agree_off_the_spheres(case, rule, count, evidence):
    eps = {"growing": case.full[0], "max": case.widest[0]}.get(rule, case.quick)
    a = radnet.approximate(case.f, case.domain, eps, **arguments(case, rule))
    points = trying_points(a, case.domain, count(2_000, 100_000), np.random.default_rng(4))
    outside = torch.as_tensor(case.domain.centre) + 2.5 * (points - torch.as_tensor(case.domain.centre))
    x = torch.cat([points, outside[::7]])
    near = a.cover.near_a_sphere(x.numpy())
    x = x[~near]
    plain, stacked, closed = a.network.to_radnet()(x), a.network(x), a.evaluate(x)
    scale = float(closed.abs().max())
    bound = 64 * torch.finfo(torch.float64).eps * scale + (1e-9 * scale if rule == "max" else 0)
    assert float((plain - stacked).abs().max()) <= bound
    assert float((closed - stacked).abs().max()) <= bound
    assert torch.equal(a.network.partial(x[:50])[-1], a.network(x[:50]))
    evidence("three evaluations agree", case=case.name, rule=rule, points=len(points), excluded=int(near.sum()))


@pytest.mark.parametrize("rule", RULES)
def test_the_partial_functions_are_those_of_the_plain_network(rule):
    case = CASES[1]
    a = radnet.approximate(case.f, case.domain, 0.5, **arguments(case, rule))
    x = torch.as_tensor(case.domain.sample(200, np.random.default_rng(0)))
    plain, own = a.network.to_radnet().partial(x), a.network.partial(x)
    assert len(plain) == len(own) == len(a.network.widths)
    for F, G in zip(plain, own, strict=True):
        assert F.shape == G.shape
        assert torch.allclose(F, G, rtol=1e-12, atol=1e-12)


def test_growing_states_are_those_of_the_proposition():
    """prop:FN: x outside the balls so far, c_j + e_j in the first ball j that contains it."""
    case = CASES[1]
    a = radnet.approximate(case.f, case.domain, 0.5, **arguments(case, "growing"))
    x = torch.as_tensor(case.domain.sample(500, np.random.default_rng(0)))
    inside = (x[:, None] - torch.as_tensor(a.cover.centres)).norm(dim=2) < torch.as_tensor(a.cover.radii)
    C, factor = torch.as_tensor(a.cover.grid), 2.0 ** torch.as_tensor(a.cover.levels).double()
    for i, F in enumerate(a.network.partial(x)[1:-1]):
        z = F.clone()  # G_i = S_i rho_i T_i G_{i-1}: undo T_i, in scaled coordinates
        z[:, :2] = F[:, :2] / factor[i] + C[i]
        z[:, 2 + i] = 1 - 2 * F[:, 2 + i]
        first = torch.where(inside[:, : i + 1].any(1), inside[:, : i + 1].double().argmax(1), -1)
        G = torch.zeros_like(z)
        G[:, :2] = torch.where((first >= 0)[:, None], C[first.clamp(min=0)], a.cover.scale * x)
        taken = (first >= 0).nonzero().squeeze(1)
        G[taken, 2 + first[taken]] = 1
        assert torch.allclose(z, G, atol=1e-9)


def test_auto_takes_the_fewest_parameters():
    for case in CASES:
        a = radnet.approximate(case.f, case.domain, case.quick, lipschitz=case.lipschitz, limit=case.limit)
        rules = ("growing", "n+m+1") if case.limit is not None else RULES[:3]
        each = {
            rule: radnet.approximate(case.f, case.domain, case.quick, **arguments(case, rule)).certificate.parameters
            for rule in rules
        }
        assert a.certificate.parameters <= min(each.values()) * 1.05, (case.name, each)


def local_bound_of_the_gaussian(lo, hi):
    """The largest |2 x exp(-x^2)| on an interval."""
    slope = lambda x: 2 * x.abs() * torch.exp(-x * x)  # noqa: E731
    peak = 1 / math.sqrt(2)
    at_peak = ((lo <= peak) & (hi >= peak)) | ((lo <= -peak) & (hi >= -peak))
    return torch.where(at_peak, GAUSS, torch.maximum(slope(lo), slope(hi)) * (1 + 1e-12)).squeeze(1)


@pytest.mark.parametrize("rule", ["auto", *RULES[:3]])
def test_adaptive_covers_need_a_third_of_the_balls(rule, evidence):
    f = CASES[0].f
    lattice = radnet.approximate(f, Box(-6, 6), 0.01, lipschitz=GAUSS, width=rule)
    adaptive = radnet.approximate(f, Box(-6, 6), 0.01, lipschitz=local_bound_of_the_gaussian, width=rule)
    assert len(adaptive.cover) * 3 <= len(lattice.cover)
    assert adaptive.certificate.bound < 0.01
    x = trying_points(adaptive, Box(-6, 6), 20_000, np.random.default_rng(0))
    assert adaptive.certificate.check(f, x).holds
    evidence("adaptive against lattice", rule=rule, adaptive=len(adaptive.cover), lattice=len(lattice.cover))


def local_bound_in_the_plane(lo, hi):
    """The largest 2 r exp(-r^2) over the distances r of a box from 0."""
    near = torch.maximum(lo, -hi).clamp(min=0).norm(dim=1)
    far = torch.maximum(lo.abs(), hi.abs()).norm(dim=1)
    slope = lambda r: 2 * r * torch.exp(-r * r)  # noqa: E731
    peak = 1 / math.sqrt(2)
    return torch.where((near <= peak) & (far >= peak), GAUSS, torch.maximum(slope(near), slope(far)) * (1 + 1e-12))


@pytest.mark.parametrize("domain", [Box([-3, -3], [3, 3]), radnet.Ball([0.5, 0], 2.5)], ids=repr)
@pytest.mark.parametrize(
    "claim",
    [
        {"lipschitz": local_bound_in_the_plane},
        {"modulus": lambda r: GAUSS * r},
        {"modulus": lambda r: 2 * math.sqrt(r)},
        {},
    ],
    ids=["local", "modulus", "root", "samples"],
)
@pytest.mark.parametrize("rule", RULES)
def test_every_kind_of_claim_gives_a_cover_and_an_error_below_eps(domain, claim, rule, count):
    f = CASES[1].f
    eps = {"lipschitz": 0.4, "modulus": 0.4}.get(next(iter(claim), ""), 0.6 if rule != "max" else 0.8)
    if "modulus" in claim and claim["modulus"](1) == 2:
        eps = 1.2
    a = radnet.approximate(f, domain, eps, width=rule, **claim)
    assert a.certificate.proven == bool(claim)
    assert ("samples" in a.certificate.rests_on) == (not claim)
    x = trying_points(a, domain, count(2_000, 50_000), np.random.default_rng(1))
    assert a.certificate.check(f, x).holds
    inner = type(a.cover.tree)(a.cover.centres, a.cover.inner * (1 + 1e-9) + a.cover.slack)
    assert (inner.first(x.numpy()) >= 0).all()
    if rule == "max":
        assert a.cover.separation > 1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_finite_sample_needs_no_claim_and_is_certain(rule, n, generator):
    if rule == "max" and n == 1:
        pytest.skip("max(n, m) = 1")
    x = torch.randn(400, n, generator=generator, dtype=torch.float64)
    f = lambda x: torch.sin(3 * x).sum(1)  # noqa: E731
    a = radnet.approximate(f, radnet.Points(x), 0.3, width=rule)
    assert a.certificate.proven
    assert a.certificate.scope == "the given points"
    assert a.certificate.check(f, x).holds
    assert float((a.evaluate(x).squeeze(1) - f(x)).abs().max()) < 0.3


def test_float32_networks_are_built_and_hold(generator):
    for case in CASES:
        for rule in RULES[:3]:
            a = radnet.approximate(case.f, case.domain, case.quick, dtype=torch.float32, **arguments(case, rule))
            assert all(p.dtype == torch.float32 for p in a.network.parameters())
            x = trying_points(a, case.domain, 500, np.random.default_rng(0))
            assert a.certificate.check(case.f, x).holds, (case, rule)
            assert a.certificate.holds_in(torch.float32)


def test_float32_with_an_adaptive_cover(generator):
    f = CASES[0].f
    a = radnet.approximate(
        f, Box(-6, 6), 0.02, lipschitz=local_bound_of_the_gaussian, width="max+1", dtype=torch.float32
    )
    assert a.certificate.check(f, trying_points(a, Box(-6, 6), 20_000, np.random.default_rng(0))).holds


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e5, 1e30])
@pytest.mark.parametrize("rule", ["growing", "n+m+1", "max+1", "max"])
def test_domains_of_any_size_work(scale, rule):
    f = lambda x: torch.sin(x.sum(1) / scale)  # noqa: E731
    domain = Box([0, 0], [3 * scale, 2 * scale])
    a = radnet.approximate(f, domain, 0.5, lipschitz=math.sqrt(2) / scale * (1 + 1e-12), width=rule)
    assert a.certificate.check(f, trying_points(a, domain, 500, np.random.default_rng(0))).holds


def test_results_are_the_same_bits_twice():
    case = CASES[1]
    for rule in RULES:
        a, b = (radnet.approximate(case.f, case.domain, 0.5, **arguments(case, rule)) for _ in range(2))
        assert all(torch.equal(p, q) for p, q in zip(a.network.parameters(), b.network.parameters(), strict=True))


def test_approximation_changes_no_global_state():
    state = torch.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    radnet.approximate(torch.sin, Box(0, 1), 0.2, lipschitz=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


def test_s_after_t_is_the_inclusion():
    """lem:ST: layer i + 1 of the network is T_{i+1} S_i, so after T_i it is T_{i+1} of (z, 0), wherever z is."""
    A, c = torch.tensor([[0.3, -0.2]]).double(), torch.tensor([1.0]).double()
    f = lambda x: torch.exp(-(x**2).sum(1, keepdim=True)) + x @ A.T + c  # noqa: E731
    a = radnet.approximate(f, Box([-3, -3], [3, 3]), 0.5, lipschitz=GAUSS + 0.37, limit=(A, c), width="growing")
    n, N, L = 2, len(a.cover), lambda x: x @ A.numpy().T + c.numpy()
    assert N > 3

    def T(i, z):  # with h = 1/2, at which a ball has radius sqrt(3)/2
        moved = math.sqrt(3) / 2 * (z[:, :n] - a.cover.centres[i]) / a.cover.radii[i]
        return np.hstack([moved, z[:, n:], np.full((len(z), 1), 0.5)])

    columns = a.outputs - L(a.cover.centres)
    network, rng = a.network.to_radnet(), np.random.default_rng(0)
    layers = [(W.numpy(), b.numpy()) for W, b in zip(network.weights, network.biases, strict=True)]
    x = 5 * rng.standard_normal((50, n))
    assert np.allclose(x @ layers[0][0].T + layers[0][1], T(0, x), rtol=1e-12, atol=1e-10)
    for i, (W, b) in enumerate(layers[1:]):
        z = 5 * rng.standard_normal((50, n + i))
        included = np.hstack([z, np.zeros((50, 1))])
        last = i + 1 == N  # that layer is Phi S_N
        expected = L(z[:, :n]) + included[:, n:] @ columns if last else T(i + 1, included)
        assert np.allclose(T(i, z) @ W.T + b, expected, rtol=1e-12, atol=1e-10), i


@pytest.mark.parametrize("rule", ["n+m+1", "max+1"])
def test_states_of_bounded_width_are_points_or_values(rule):
    """The claim in the proof of thm:UA-n+m+1: (x, 0, 0) before a ball, (0, V_j, 1) after the first ball j."""
    case = CASES[4]
    a = radnet.approximate(case.f, case.domain, 0.5, lipschitz=case.lipschitz, width=rule)
    x = torch.as_tensor(case.domain.sample(300, np.random.default_rng(0)))
    inside = (x[:, None] - torch.as_tensor(a.cover.centres)).norm(dim=2) < torch.as_tensor(a.cover.radii)
    values = torch.as_tensor(a.outputs)
    for i, F in enumerate(a.network.partial(x)[1:-1]):
        theta = F[:, -1]
        taken = inside[:, : i + 1].any(1)
        first = inside[:, : i + 1].double().argmax(1)
        assert torch.equal(theta, torch.where(taken, 0.0, 0.5).double())
        # what is taken is V_j - V_i exactly: whole even numbers, equal for equal values
        difference = F[taken, -3:-1]
        assert torch.equal(difference, difference.round())
        step = float((values[1:] - values[0]).abs().max() / (F[:, -3:-1][taken].abs().max() or 1)) if i else 0
        same = (values[first[taken]] - values[i]).abs().max(1).values < 1e-12
        assert torch.equal(difference.abs().max(1).values == 0, same), step


def test_states_of_width_max_go_to_centres_and_then_to_targets():
    """lem:Gi, lem:Hi and what follows: x to c_j in the first M layers, c_j to d_j in the others, one at a time."""
    case = CASES[4]
    a = radnet.approximate(case.f, case.domain, 0.5, lipschitz=case.lipschitz, width="max")
    M, C = len(a.cover), torch.as_tensor(a.cover.grid)
    x = torch.as_tensor(case.domain.sample(300, np.random.default_rng(0)))
    inside = (x[:, None] - torch.as_tensor(a.cover.centres)).norm(dim=2) < torch.as_tensor(a.cover.radii)
    assert inside.any(1).all()
    states = a.network.partial(x)[1:-1]
    factor = 2.0 ** torch.as_tensor(a.cover.levels).double()
    for i in range(M):
        taken = inside[:, : i + 1].any(1)
        first = inside[:, : i + 1].double().argmax(1)
        expected = torch.where(taken[:, None], C[first], a.cover.scale * x)
        assert torch.allclose(states[i] / factor[i] + C[i], expected, atol=1e-9)
    first, d = inside.double().argmax(1), torch.as_tensor(a.outside.d)
    for i in range(M):
        norms = states[M + i].norm(dim=1)
        assert torch.equal(norms == 0, first == i)  # c_i is sent to d_i, and nothing else is
        assert (norms[first != i] >= 1).all()
    assert torch.allclose(a.network(x), torch.as_tensor(a.outputs)[first], atol=1e-9)
    assert float((torch.as_tensor(a.outputs)[first] - case.f(x)).norm(dim=1).max()) < 0.5
    assert d.shape == C.shape


def random_problem(rng):
    """A linear or periodic function with its exact Lipschitz constant on a box or a ball of any size, somewhere."""
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    W = torch.from_numpy(rng.standard_normal((m, n)))
    size, offset = 10.0 ** rng.uniform(-3, 3), rng.choice([0, 0, 1, 10]) * rng.standard_normal(n)
    low, high = (offset - rng.uniform(0.1, 1, n)) * size, (offset + rng.uniform(0.1, 1, n)) * size
    domain = Box(low, high) if rng.random() < 0.6 else radnet.Ball(offset * size, rng.uniform(0.3, 1) * size)
    constant = float(np.linalg.norm(W.numpy(), 2)) / size * (1 + 1e-12)
    added = float(rng.choice([0, 0, 1e3, 1e6]))
    linear = rng.random() < 0.5
    f = lambda x: ((x / size) @ W.T if linear else torch.sin((x / size) @ W.T)) + added  # noqa: E731
    claims = (
        {"lipschitz": constant},
        {"lipschitz": lambda lo, hi: np.full(len(lo), constant)},
        {"modulus": lambda r: constant * r},
    )
    rule = str(rng.choice(["auto", *RULES]))
    limit = None
    if linear and rule in ("auto", "growing", "n+m+1") and rng.random() < 0.5:
        limit = (W / size, torch.full((m,), added, dtype=torch.float64))
    eps = constant * size * float(rng.choice([0.3, 0.5, 0.8, 2.0]))
    return f, domain, eps, {**claims[rng.integers(3)], "width": rule, "limit": limit, "max_balls": 300}


def test_a_random_attack_finds_no_violation(count, evidence):
    rng, built, refused = np.random.default_rng(20), 0, 0
    for _ in range(count(25, 500)):
        f, domain, eps, keywords = random_problem(rng)
        dtype = torch.float32 if rng.random() < 0.3 else torch.float64
        try:
            a = radnet.approximate(f, domain, eps, dtype=dtype, **keywords)
        except radnet.RadNetError:
            refused += 1
            continue
        built += 1
        c, x = a.certificate, trying_points(a, domain, 1_000, rng)
        if dtype == torch.float64:
            clear = x[~a.cover.near_a_sphere(x.numpy())]
            gap = float((a.network(clear) - a.evaluate(clear)).norm(dim=1).max())
            assert gap <= 2 * c.rounding + 1e-12 * float(f(clear).norm(dim=1).max())
        for own in (torch.float64, torch.float32)[dtype == torch.float32 :]:
            if not c.holds_in(own):
                continue
            a.network.to(own)
            name = str(own).removeprefix("torch.")
            of_f = 64 * torch.finfo(torch.float64).eps * float(f(x).norm(dim=1).max())
            assert c.check(f, x).worst <= c.bounds[name] * (1 + 1e-9) + of_f, (own, keywords, domain)
            if c.reach[name] > 0:
                v = rng.standard_normal((200, domain.dimension))
                size = 0.99 * min(c.reach[name], 1e300) * 10.0 ** -rng.uniform(0, 9, (200, 1))
                v *= size / np.linalg.norm(v, axis=1, keepdims=True)
                far = torch.as_tensor(v[a.cover.tree.first(v) < 0]).to(own)
                A, b = keywords["limit"]
                limit = far.double() @ A.T + b
                rounding = 16 * torch.finfo(torch.float64).eps * limit.norm(dim=1)
                assert ((a.network(far).double() - limit).norm(dim=1) <= 0.0201 * eps + rounding).all()
    assert built >= 0.5 * (built + refused)
    evidence("random attack", problems=built, refused=refused)
