"""Around the constructions: covers, the tree, files, formulas, the command, pictures."""

import dataclasses
import itertools
import json
import math

import matplotlib.figure
import numpy as np
import pytest
import torch

import radnet
from radnet import plots
from radnet.approximation import load
from radnet.approximation.constructions import RECIPES
from radnet.approximation.covers import Balls, Ruler, place
from radnet.approximation.covers.lattices import lattice_cover
from radnet.approximation.covers.pruning import prune
from radnet.approximation.covers.trees import BallTree
from radnet.cli import main
from radnet.expressions import parse_function
from radnet.reading import pack, unpack
from targets import CASES, GAUSS, arguments

# --- constructions


@pytest.mark.parametrize("width", [*RECIPES, "made up"])
def test_a_construction_is_what_its_recipe_says_and_nobody_else_knows_it(width, tmp_path, monkeypatch):
    recipe = RECIPES.get(width, dataclasses.replace(RECIPES["n+m+1"], width=width))
    monkeypatch.setitem(RECIPES, width, recipe)
    f, K = (lambda x: torch.exp(-x.square().sum(1))), radnet.Box([-3, -3], [3, 3])
    a = radnet.approximate(f, K, 0.5, lipschitz=0.86, width=width)
    hidden = a.network.widths[1:-1]
    assert len(hidden) == recipe.layers * len(a.cover)
    assert (
        hidden == tuple(range(3, 3 + len(hidden))) if width == "growing" else {*hidden} == {recipe.hidden_width(2, 1)}
    )
    assert a.certificate.check(f, K.sample(1000, np.random.default_rng(0))).holds
    a.save(tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors").recheck(f).holds
    limit = ([[0, 0]], [0])
    if recipe.everywhere:
        far = radnet.approximate(f, K, 0.5, lipschitz=0.86, width=width, limit=limit)
        assert far.certificate.scope.startswith("all of R^2")
    else:
        with pytest.raises(ValueError, match="knows the domain only and has no limit"):
            radnet.approximate(f, K, 0.5, lipschitz=0.86, width=width, limit=limit)


def test_a_file_whose_construction_is_unknown_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    radnet.approximate(torch.sin, radnet.Box(0, 1), 0.25, lipschitz=1).save(path)
    header, tensors = unpack(path, "radnet-approximation", 2, "")
    header["certificate"]["width"] = "wide"
    path.write_bytes(pack(tensors, "radnet-approximation", header))
    with pytest.raises(radnet.RadNetError, match="the certificate is that of another network"):
        load(path)


# --- trees and covers


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_the_tree_finds_what_comparing_all_finds(n, spread, count):
    rng = np.random.default_rng(n)
    for _ in range(count(5, 40)):
        N = int(rng.integers(1, 400))
        c = rng.standard_normal((N, n))
        r = 10 ** rng.uniform(-1 - spread / 2, -1 + spread / 2, N) * 3
        x = np.concatenate([2 * rng.standard_normal((300, n)), c, 1e200 * rng.standard_normal((3, n))])
        with np.errstate(over="ignore"):
            d = np.linalg.norm(x[:, None] - c[None], axis=2)
        inside = d < r
        tree = BallTree(c, r)
        assert (tree.first(x) == np.where(inside.any(1), inside.argmax(1), -1)).all()
        point, ball, found = tree.pairs(x)
        assert set(zip(point.tolist(), ball.tolist(), strict=True)) == set(
            zip(*map(np.ndarray.tolist, np.nonzero(inside)), strict=True)
        )
        assert np.allclose(found, d[point, ball])


def test_the_tree_takes_no_points_and_no_numbers():
    tree = BallTree(np.zeros((1, 2)), np.ones(1))
    assert tree.first(np.empty((0, 2))).shape == (0,)
    assert tree.first(np.array([[math.nan, 0.0]])).tolist() == [-1]


def dense(domain, rng, count=20_000):
    return np.concatenate([domain.sample(count, rng), domain.boundary(2_000, rng)])


DOMAINS = [
    radnet.Box(0, 1),
    radnet.Box([0, 0], [3, 1]),
    radnet.Box([0] * 3, [1, 2, 0.1]),
    radnet.Ball([1, 1], 2),
    radnet.Ball([0] * 3, 1),
]


@pytest.mark.parametrize("separated", [False, True])
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("radius", [0.9, 0.3, 0.13])
def test_lattices_cover_their_domain(domain, radius, separated):
    balls = lattice_cover(domain, radius, 100_000, separated=separated)
    x = dense(domain, np.random.default_rng(0))
    assert (BallTree(balls.centres, balls.radii * (1 + 1e-9)).first(x) >= 0).all()
    if not separated:
        assert (domain.distance(balls.centres) < 1e-12).all()
    assert len(prune(domain, balls.centres, balls.radii)) == len(balls.centres)


def test_thin_lattices_beat_cubic_ones():
    """Far from the boundary A_n* needs 23 % fewer balls in the plane and 46 % fewer in space."""
    for n, r, share in ((2, 0.01, 0.80), (3, 0.05, 0.70)):
        balls = lattice_cover(radnet.Box([0] * n, [1] * n), r, 100_000)
        cubic = math.ceil(math.sqrt(n) / (2 * r)) ** n
        assert len(balls.centres) < share * cubic


def test_redundant_balls_are_removed_and_no_others():
    box = radnet.Box([0, 0], [1, 1])
    c = np.array([[0.5, 0.5], [0.2, 0.2], [0.8, 0.8], [0.5, 0.5]])
    kept = prune(box, c, np.array([0.75, 0.1, 0.1, 0.75]))
    assert len(kept) == 1
    line = radnet.Box(0, 1)
    x = np.linspace(0.05, 0.95, 50)[:, None]
    kept = prune(line, x, np.full(50, 0.11))
    assert len(kept) == 5
    spans = [(x[i, 0] - 0.11, x[i, 0] + 0.11) for i in kept]
    assert spans[0][0] <= 0
    assert spans[-1][1] >= 1
    assert all(b[0] <= a[1] for a, b in itertools.pairwise(spans))


@pytest.mark.parametrize("bits", [24, 53])
@pytest.mark.parametrize("values", [0.0, 5_000.0])
def test_going_from_centre_to_centre_is_exact_up_to_one_pitch(bits, values):
    """The claim at the top of covers.py, in NumPy: the drift does not grow with the number of balls."""
    dtype = np.float32 if bits == 24 else np.float64
    rng = np.random.default_rng(0)
    domain = radnet.Box([-3, 1], [5, 2])
    balls = Balls(domain.sample(3_000, rng), np.zeros(3_000, np.int64), 0.2, "lattice")
    ruler = Ruler(bits=bits, unit=0.866, terms=4, reach=domain.reach, values=values)
    cover = place(balls, domain, 0.05, ruler)
    assert cover is not None
    assert (np.abs(cover.grid.astype(dtype).astype(np.float64) - cover.grid) == 0).all()
    x = domain.sample(500, rng).astype(dtype)
    C = cover.grid.astype(dtype)
    z = dtype(cover.scale) * x - C[0]
    worst = 0.0
    V = 2 * rng.integers(-int(values) // 2 - 1, int(values) // 2 + 1, (3_000, 2)).clip(
        -int(values) // 2, int(values) // 2
    )
    for i in range(1, 3_000):
        shift = (V[i - 1] - V[i]).astype(dtype)
        z = (z + ((C[i - 1] - C[i]) - shift)) + shift  # in the worst order
        exact = cover.scale * x.astype(np.float64) - cover.grid[i]
        worst = max(worst, float(np.abs(z - exact).max()))
    assert worst <= 1.5 * cover.pitch
    assert 3 * cover.pitch / cover.scale <= cover.slack
    bound = 2.0**24 if bits == 24 else 2.0**53
    assert float(np.abs(cover.grid / cover.pitch).max()) < bound


def test_a_ruler_that_is_too_coarse_is_refused():
    domain = radnet.Box(0, 1)
    balls = Balls(domain.sample(10, np.random.default_rng(0)), np.zeros(10, np.int64), 1e-6, "lattice")
    assert place(balls, domain, 1e-3, Ruler(24, 0.866, 4, 1.0, 0.0)) is None
    assert place(balls, domain, 1e-3, Ruler(53, 0.866, 4, 1.0, 0.0)) is not None


# --- modules


@pytest.mark.parametrize("rule", ["growing", "n+m+1", "max+1", "max"])
def test_networks_behave_as_modules(rule):
    case = CASES[1]
    a = radnet.approximate(case.f, case.domain, 0.5, **arguments(case, rule))
    x = torch.as_tensor(case.domain.sample(64, np.random.default_rng(0)))
    y = a.network(x)
    assert a.network(x.reshape(4, 16, 2)).shape == (4, 16, 1)
    assert torch.allclose(a.network(x[0]), y[0], atol=1e-9)
    assert a.network(x[:0]).shape == (0, 1)
    assert a.evaluate(x.reshape(4, 16, 2)).shape == (4, 16, 1)
    again = type(a.network)(**{k: torch.zeros_like(v) for k, v in a.network.state_dict().items()})
    again.load_state_dict(a.network.state_dict())
    assert torch.equal(again(x), y)
    assert not any(p.requires_grad for p in a.network.parameters())
    assert a.network.parameter_count == a.network.to_radnet().parameter_count == a.certificate.parameters
    assert torch.equal(torch.nn.Sequential(a.network, torch.nn.Identity())(x), y)
    assert a.evaluate(x[:0]).shape == (0, 1)
    assert a.network.partial(x[:0])[-1].shape == (0, 1)
    u = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(a.network(u).sum(), u)
    assert gradient.abs().max() < 1e-9  # constant in every ball
    assert torch.allclose(a.network(u), y, atol=1e-9)


def test_stacked_networks_of_any_weights_are_radial_networks(generator):
    """Not only those of the constructions: dense weights, arrows, training mode."""
    from radnet.approximation import StackedNetwork

    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    for arrows in (False, True):
        W = draw(6, 3, 3)
        if arrows:
            W = torch.diag_embed(draw(6, 3)) + torch.nn.functional.pad(draw(6, 3, 1), (2, 0))
        net = StackedNetwork(draw(3, 2), W, draw(7, 3), draw(2, 3), draw(2))
        assert net._has_arrows() == arrows
        x = draw(200, 2)
        plain = net.to_radnet()
        assert torch.allclose(net(x), plain(x), atol=1e-12)
        assert all(torch.allclose(F, G, atol=1e-12) for F, G in zip(net.partial(x), plain.partial(x), strict=True))
        net.requires_grad_()
        net(x).sum().backward()
        plain.requires_grad_()
        plain(x).sum().backward()
        assert torch.allclose(net.hidden.grad[0], plain.weights[1].grad, atol=1e-9)


# --- files


@pytest.mark.parametrize("rule", ["growing", "n+m+1", "max+1", "max"])
def test_a_saved_approximation_comes_back(rule, tmp_path):
    case = CASES[1]
    a = radnet.approximate(case.f, case.domain, 0.5, **arguments(case, rule))
    path = tmp_path / "a.safetensors"
    a.save(path)
    b = load(path)
    x = torch.as_tensor(np.concatenate([case.domain.sample(300, np.random.default_rng(0)), 9 + np.zeros((1, 2))]))
    assert torch.equal(a.network(x), b.network(x))
    assert torch.equal(a.evaluate(x), b.evaluate(x))
    assert a.certificate == b.certificate
    assert b.certificate.check(case.f, x[:-1]).holds
    assert b.report().startswith(a.report())


def test_files_that_are_not_approximations_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(tmp_path / "none.safetensors")
    radnet.save(radnet.RadNet((2, 3, 1)), tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match="not an approximation"):
        load(tmp_path / "net.safetensors")
    a = radnet.approximate(torch.sin, radnet.Box(0, 1), 0.3, lipschitz=1)
    a.save(tmp_path / "a.safetensors")
    from safetensors.torch import save_file

    key = "radnet-approximation"
    header, state = unpack(tmp_path / "a.safetensors", key, 2, "")
    damaged = {
        "lacks": ({k: v for k, v in state.items() if k != "network.hidden"}, "does not hold what its header announces"),
        "nan": ({**state, "outputs": state["outputs"] * math.nan}, "outputs holds NaN"),
        "shape": ({**state, "outputs": state["outputs"][:-1].clone()}, "outputs has shape"),
        "weights": ({**state, "network.last": torch.ones(1, 7, dtype=torch.float64)}, "do not fit together"),
    }
    for name, (content, message) in damaged.items():
        (tmp_path / f"{name}.safetensors").write_bytes(pack(content, key, header))
        with pytest.raises(ValueError, match=message):
            load(tmp_path / f"{name}.safetensors")
    for name, text, message in (("v", '{"format": 99}', "file format 99"), ("j", "{", "the header is damaged")):
        save_file(state, tmp_path / f"{name}.safetensors", metadata={key: text})
        with pytest.raises(ValueError, match=message):
            load(tmp_path / f"{name}.safetensors")


# --- formulas and the command


def test_formulas_are_computed():
    x = torch.tensor([[1.0, 2.0], [-0.5, 0.25]], dtype=torch.float64)
    a, b = x.unbind(1)
    expected = {
        "x1 + 2*x2": a + 2 * b,
        "exp(-x**2)": torch.exp(-a * a),
        "-r": -x.norm(dim=1),
        "max(0, 1 - abs(x1))": (1 - a.abs()).clamp(min=0),
        "where(x1 > 0, 1, x2)": torch.where(a > 0, torch.ones_like(a), b),
        "2**x1 / pi": 2**a / math.pi,
        "clamp(x2, 0, 1)": b.clamp(0, 1),
        "3": torch.full_like(a, 3),
    }
    for text, value in expected.items():
        assert torch.allclose(parse_function(text)(x).squeeze(1), value), text
    assert torch.allclose(parse_function("sin(x1), x2")(x), torch.stack([a.sin(), b], 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x1 +", "is not a formula"),
        ("__import__('os').system('true')", "is not one of the functions"),
        ("x1.data", "not allowed"),
        ("open('f')", "is not one of the functions"),
        ("[x1 for _ in x]", "not allowed"),
        ("'a'", "not allowed"),
        ("sin(x1, out=x1)", "is not one of the functions"),
        ("True", "not allowed"),
        ("y", "not allowed"),
        ("x0", "not allowed"),
        ("nowhere.at:all", "cannot be imported"),
        ("math:pi", "is not a function"),
    ],
)
def test_formulas_that_are_not_arithmetic_are_refused(text, message):
    with pytest.raises(radnet.RadNetError, match=message):
        parse_function(text)
    with pytest.raises(radnet.RadNetError, match="there is no x3"):
        parse_function("x3")(torch.zeros(2, 2))


def test_the_command_writes_a_network_with_its_certificate(tmp_path, capsys):
    out = str(tmp_path / "gauss.safetensors")
    command = [
        "approximate",
        "exp(-x1**2 - x2**2)",
        "--box=-3:3,-3:3",
        "--eps",
        "0.3",
        "--lipschitz",
        str(GAUSS),
        "--limit",
        "0,0;0",
    ]
    assert main([*command, "--out", out, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["bound"] < 0.3
    assert data["scope"].startswith("all of R^2, up to |x| = ")
    assert data["checked"]["holds"]
    assert load(out).certificate.balls == data["balls"]
    before = (tmp_path / "gauss.safetensors").read_bytes()
    assert main([*command, "--out", out]) == 2
    assert "exists; use --force" in capsys.readouterr().err
    assert (tmp_path / "gauss.safetensors").read_bytes() == before
    assert main([*command, "--out", out, "--force", "--width", "growing"]) == 0
    shown = capsys.readouterr().out
    assert "rests on" in shown
    assert "written to" in shown
    assert load(out).certificate.width == "growing"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--box=0:1", "--eps", "-1"], "must be a positive number"),
        (["--eps", "0.1"], "exactly one of --box, --ball and --points"),
        (["--box=0:1", "--ball=0:1", "--eps", "0.1"], "exactly one"),
        (["--box=0", "--eps", "0.1"], "expected ranges"),
        (["--box=a:b", "--eps", "0.1"], "not made of numbers"),
        (["--box=0:inf", "--eps", "0.1"], "not finite"),
        (["--ball=0", "--eps", "0.1"], "a centre and a radius"),
        (["--points=nowhere.csv", "--eps", "0.1"], "no such file"),
        (["--box=0:1", "--eps", "0.1", "--lipschitz", "much"], "a number or MODULE:FUNCTION"),
        (["--box=0:1", "--eps", "0.1", "--limit", "1"], "expected A;b"),
        (["--box=0:1", "--eps", "0.1", "--limit", "1,2/3;1"], "different lengths"),
        (["--box=0:1", "--eps", "0.1", "--dtype", "float8"], "float64 or float32"),
        (["--box=0:1", "--eps", "1e-7", "--lipschitz", "1"], "would fit"),
    ],
)
def test_the_command_refuses_what_makes_no_sense_and_writes_nothing(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["approximate", "sin(x)", *options, "--out", "out.safetensors"]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_points_balls_and_functions_of_your_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((50, 2)))
    np.savetxt("x.csv", np.linspace(0, 1, 20), delimiter=",")
    (tmp_path / "mine_for_radnet.py").write_text(
        "def f(x):\n    return x.sum(1)\n\ndef slope(lo, hi):\n    return 1.5 + 0 * lo[:, 0]\n"
    )
    assert main(["approximate", "x1*x2", "--points", "x.npy", "--eps", "0.5"]) == 0
    assert "all 50 points" in capsys.readouterr().out
    assert main(["approximate", "x", "--points", "x.csv", "--eps", "0.2", "--dtype", "float32"]) == 0
    capsys.readouterr()
    assert (
        main(
            ["approximate", "mine_for_radnet:f", "--ball=0,0:1", "--eps", "0.5", "--lipschitz", "mine_for_radnet:slope"]
        )
        == 0
    )
    assert "Lipschitz constants of boxes" in capsys.readouterr().out
    (tmp_path / "bad.csv").write_text("a,b\n")
    assert main(["approximate", "x", "--points", "bad.csv", "--eps", "0.2"]) == 2


# --- pictures


def test_pictures_show_what_they_should():
    axes = lambda: matplotlib.figure.Figure().subplots()  # noqa: E731
    line = radnet.approximate(torch.sin, radnet.Box(0, 6), 0.3, lipschitz=1)
    ax = plots.graph(axes(), line, torch.sin)
    f, network = (np.asarray(curve.get_ydata()) for curve in ax.lines)
    x = np.asarray(ax.lines[0].get_xdata())
    assert np.abs(f - network)[(x >= 0) & (x <= 6)].max() < 0.3
    assert len(plots.cover(axes(), line).collections[0].get_segments()) == len(line.cover)
    case = CASES[1]
    plane = radnet.approximate(case.f, case.domain, 0.5, lipschitz=GAUSS)
    points = torch.as_tensor(case.domain.sample(500, np.random.default_rng(0)))
    left = [
        len(plots.collapse(axes(), plane, points, layer).lines[1].get_xdata()) for layer in (0, 5, len(plane.cover))
    ]
    assert left[0] == 500 > left[1] > left[2] == 0
    for call, message in (
        (lambda: plots.collapse(axes(), plane, points, 10**6), "balls, one for each layer"),
        (lambda: plots.collapse(axes(), line, points, 1), "two variables"),
        (lambda: plots.graph(axes(), plane, case.f), "one variable"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    space = radnet.approximate(lambda x: x[:, 0], radnet.Box([0] * 3, [1] * 3), 0.9, lipschitz=1)
    with pytest.raises(ValueError, match="one or two dimensions"):
        plots.cover(axes(), space)


@pytest.mark.parametrize("case", [CASES[1], CASES[9], CASES[12]], ids=repr)
def test_the_running_bound_of_width_max_bounds_what_float32_does(case, evidence):
    """In front of each activation of the second half every state is within the bound of where it should be."""
    from radnet.approximation.constructions.width_max import _frame, _Moves, _running_rounding

    a = radnet.approximate(case.f, case.domain, case.widest[0], lipschitz=case.lipschitz, width="max")
    moved, M = a.outside, len(a.cover)
    moves = _Moves(moved.d, moved.clearance, 1.0, moved.offset)
    bound = _running_rounding(moved.centres, moves, 2.0**-24)
    assert a.certificate.threshold_margin > 1
    assert moves.safety(moved.centres, 2.0**-24) == pytest.approx(
        (np.minimum(moves.clearance, np.linalg.norm(moved.centres - moves.d, axis=1)) / (4 * bound)).min()
    )
    a.network.float()
    x = torch.as_tensor(a.cover.samples, dtype=torch.float32)
    ball = a.cover.tree.first(x.double().numpy())
    states = a.network.partial(x)[1:-1]
    worst = 0.0
    for i in range(M):
        Q, D = _frame(moved.centres[i], moves.d[i], moves.clearance[i])
        p = (states[M + i].double().numpy() / D) @ Q + moves.d[i]
        expected = np.where((ball <= i)[:, None], moves.d[ball], moved.centres[ball])
        off = float(np.linalg.norm(p - expected, axis=1).max())
        assert off <= bound[i]
        worst = max(worst, off / bound[i])
    assert worst > 1e-3  # a bound, not a wish
    evidence("running bound of width max", case=case.name, balls=M, share_of_bound=worst)
