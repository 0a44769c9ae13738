"""What compression does not do where nothing can be gained: decompose, store the identity, recurse, take long loops."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from radnet.compression import chain
from radnet.compression.chain import complete_bases, qr_compress
from radnet.compression.operations import operation_of_module
from radnet.compression.operations.arithmetic import Add
from radnet.compression.operations.ends import Input, Output
from radnet.compression.operations.linear import Linear
from radnet.compression.operations.radial import Radial
from radnet.compression.program import Step, Value
from radnet.compression.spaces.bases import lay_out, range_growth
from radnet.compression.spaces.features import Features
from radnet.compression.spaces.follow import Analysis
from radnet.compression.spaces.growing import grown
from radnet.compression.spaces.layouts import reports
from radnet.compression.spaces.ranks import Columns, span_basis
from radnet.compression.spaces.spans import AffineSet, Lazy, Names, Part, stacked
from radnet.compression.surgery import changes


def steps_of(layers, shape):
    """The steps of a chain of layers, without running it; shapes as they come out of each."""
    value = Value("x", shape, torch.float32)
    steps = [Step(Input(), "x", (), value)]
    for k, m in enumerate(layers):
        size = {nn.Linear: lambda m=m: m.out_features, nn.Flatten: lambda s=value.shape: int(np.prod(s[1:]))}
        last = size.get(type(m), lambda s=value.shape: s[-1])()
        out = Value(f"v{k}", (shape[0], last), torch.float32)
        steps.append(Step(operation_of_module(m), str(k), (value,), out, str(k)))
        value = out
    return [*steps, Step(Output(), "output", (value,), None)]


def laid_out(layers, shape, **keywords):
    analysis = Analysis(steps_of(layers, shape), {}, {})
    layout = lay_out(analysis, set(), None, **keywords)
    return analysis, layout, changes(analysis, layout)


@pytest.fixture
def decompositions(monkeypatch):
    """The shapes of what is decomposed, by name."""
    found = {"qr": [], "svd": [], "lu_factor_ex": []}

    def counted(name, function):
        def call(A, *args, **keywords):
            found[name].append(tuple(A.shape))
            return function(A, *args, **keywords)

        return call

    for name in found:
        monkeypatch.setattr(torch.linalg, name, counted(name, getattr(torch.linalg, name)))
    monkeypatch.setattr(np.linalg, "qr", counted("qr", np.linalg.qr))
    return found


def mlp(activation, n=96):
    return [m for _ in range(3) for m in (nn.Linear(n, n), activation())] + [nn.Linear(n, 10)]


def test_pinned_spaces_are_not_decomposed(decompositions):
    _, layout, found = laid_out(mlp(nn.ReLU), (2, 96))
    assert decompositions == {"qr": [], "svd": [], "lu_factor_ex": []}
    assert found == []
    assert all(basis is None for basis in layout.bases)


def test_full_width_takes_one_factorisation_for_each_layer_and_no_decomposition(decompositions):
    _, layout, found = laid_out(mlp(radnet.Squash), (2, 96))
    assert decompositions == {"qr": [], "svd": [], "lu_factor_ex": [(96, 96)] * 3}
    assert found == []
    assert [r.why for r in reports(layout)][:3] == ["every direction of it is used"] * 3


def test_a_chain_of_full_width_is_not_decomposed(decompositions, monkeypatch):
    monkeypatch.setattr(chain, "WIDE", 1)
    net = radnet.RadNet((40, 40, 30, 30, 5), "squash")
    decompositions["qr"].clear()  # those of its initial weights
    reduced = qr_compress(net.weights, net.biases)
    assert decompositions["qr"] == []
    assert reduced.bases == [None, None, None]
    for W, V in zip(net.weights, reduced.weights, strict=True):
        assert torch.equal(W.detach().double(), V)
    assert all(torch.equal(Q, torch.eye(len(Q), dtype=torch.float64)) for Q in complete_bases(reduced))
    c = radnet.compress(net)
    assert [tuple(Q.shape) for Q in c.action.matrices] == [(40, 40), (30, 30), (30, 30)]
    for A, B in zip(net.merged(), c.transformed().merged(), strict=True):
        assert torch.equal(A, B)
    assert not any(bool(U.any()) for U in c.remainder())


def test_a_layer_after_one_that_keeps_its_width_is_reduced_as_if_it_were_the_first(monkeypatch):
    monkeypatch.setattr(chain, "WIDE", 1)
    net = radnet.RadNet((9, 4, 30, 2), "squash", init="linear", dtype=torch.float64)
    reduced = qr_compress(net.weights, net.biases)
    assert reduced.bases[0] is None
    (tail,) = (qr_compress(net.weights[1:], net.biases[1:]),)
    for V, T in zip(reduced.weights[1:], tail.weights, strict=True):
        assert torch.equal(V, T)
    R = torch.cat([reduced.biases[1].unsqueeze(1), reduced.weights[1]], dim=1)
    assert torch.equal(R, R.triu())
    assert (R.diagonal() >= 0).all()
    c = radnet.compress(net)
    assert c.network.widths == (9, 4, 5, 2)
    back = c.action.apply(c.transformed())
    for A, B in zip(net.merged(), back.merged(), strict=True):
        torch.testing.assert_close(A, B, rtol=1e-12, atol=1e-13)


def test_a_wide_input_is_neither_stored_as_an_identity_nor_converted(decompositions):
    """Flatten and a layer of 64 on 30,000 numbers: an identity would take 7.2 GB."""
    n = 3 * 100 * 100
    layers = [nn.Flatten(), nn.Linear(n, 64), radnet.Squash(), nn.Linear(64, 10)]
    weight = 8 * 64 * n
    tracemalloc.start()
    analysis, layout, _ = laid_out(layers, (1, 3, 100, 100))
    span = analysis.features.all[0].span
    assert tracemalloc.get_traced_memory()[1] < weight
    tracemalloc.stop()
    assert span.is_full
    assert decompositions == {"qr": [], "svd": [], "lu_factor_ex": [(64, 64)]}
    assert [basis is None for basis in layout.bases] == [True, True]


def test_no_identity_is_made_for_a_full_space(monkeypatch):
    made = []
    eye = torch.eye
    monkeypatch.setattr(torch, "eye", lambda *args, **keywords: made.append(args) or eye(*args, **keywords))
    laid_out(mlp(radnet.Squash), (2, 96))
    laid_out([nn.Linear(3, 4096), radnet.Squash(blocks=256), nn.Linear(4096, 10)], (2, 3))
    assert made == []


def test_many_blocks_and_wide_layers_are_laid_out_by_block(decompositions):
    layers = [nn.Linear(3, 4096), radnet.Squash(blocks=1024), nn.Linear(4096, 10)]
    analysis, layout, found = laid_out(layers, (2, 3))
    assert len(layout.spaces) == 1025
    assert found == []
    assert decompositions["svd"] == []
    assert {shape for shapes in decompositions.values() for shape in shapes} == {(4, 4)}
    layers = [nn.Linear(3, 4096), radnet.Squash(blocks=256), nn.Linear(4096, 10)]
    analysis, layout, found = laid_out(layers, (2, 3))
    assert [basis.width for basis in layout.bases[:-1]] == [4] * 256
    assert analysis.radial[0].makes.span.parts[("rescaled by", "1", 1), 7].start == 7 * 16
    assert found[1].tensors["weight"].shape == (10, 1024)


@pytest.mark.parametrize("pairs", [1200, 2500])
def test_depth_is_followed_without_recursion(pairs):
    layers = [m for _ in range(pairs) for m in (nn.Linear(8, 8), radnet.Squash())]
    _, layout, _ = laid_out([*layers, nn.Linear(8, 2)], (2, 8))
    assert len(layout.spaces) == pairs + 1


def test_a_set_deep_down_is_computed_without_recursion():
    lazy = Lazy(lambda: AffineSet.everything(2, "x"))
    names, calls = Names(), []

    def then(below):
        return Lazy(lambda: calls.append(1) or below.get().renamed("moved", names), [below])

    for _ in range(5000):
        lazy = then(lazy)
    assert lazy.get().is_full
    assert lazy.get() is lazy.get()
    assert len(calls) == 5000


def test_a_sum_of_many_layers_is_one_space():
    x = Value("x", (2, 3), torch.float32)
    steps, total = [Step(Input(), "x", (), x)], None
    for k in range(1200):
        out = Value(f"l{k}", (2, 16), torch.float32)
        steps.append(Step(Linear(nn.Linear(3, 16)), f"l{k}", (x,), out, f"l{k}"))
        if total is not None:
            both = Value(f"s{k}", (2, 16), torch.float32)
            steps.append(Step(Add((1.0, 1.0)), "add", (total, out), both))
            out = both
        total = out
    made = Value("r", (2, 16), torch.float32)
    steps.append(Step(Radial(radnet.Squash()), "rho", (total,), made, "rho"))
    analysis = Analysis(steps, {}, {})
    layout = lay_out(analysis, set(), None)
    assert [s.width for s in layout.spaces] == [16]
    assert analysis.of[made].span.directions.shape == (16, 4)


def test_entries_are_united_as_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(50):
        features = Features()
        n = int(rng.integers(1, 40))
        features.new(n, "w")
        parent = list(range(n))
        for _ in range(int(rng.integers(0, 30))):
            k = int(rng.integers(1, 5))
            a, b = rng.integers(0, n, k), rng.integers(0, n, k)
            features.unite(a, b)
            for x, y in zip(a, b, strict=True):
                old, new = max(parent[x], parent[y]), min(parent[x], parent[y])
                parent = [new if p == old else p for p in parent]
        assert features.roots().tolist() == parent


def test_a_tolerance_looks_at_lengths_and_none_does_not(decompositions):
    layers = mlp(radnet.Squash, 24)
    with torch.no_grad():
        layers[0].weight[:, 0] *= 1e-6
        layers[0].bias.zero_()
    analysis = Analysis(steps_of(layers, (2, 24)), {}, {})
    assert lay_out(analysis, set(), None).bases[0] is None
    with pytest.raises(ValueError, match="keeps the lengths of directions if there is a tolerance, and only then"):
        lay_out(analysis, set(), 1e-4)
    cut = lay_out(Analysis(steps_of(layers, (2, 24)), {}, {}, lengths=True), set(), 1e-4).bases[0]
    assert (cut.U.shape, cut.cut) == ((24, 23), True)
    assert lay_out(analysis, set(), None).bases[0] is None
    decompositions["svd"].clear()
    lay_out(Analysis(steps_of(layers[:2], (2, 24)), {}, {}, lengths=True), set(), 1e-4)
    assert decompositions["svd"] == [(24, 24)] * len(decompositions["svd"])


# --- the algebra of sets


def test_multiples_of_the_identity_add_up_and_cancel():
    x = AffineSet.everything(5, "x")
    assert x.scaled(2.0).plus(x).pieces["x"].factor == 3.0
    assert x.scaled(-1.0).plus(x).pieces == {}
    assert not x.scaled(-1.0).plus(x).is_full
    W = torch.randn(4, 5)
    assert x.mapped(W, None).pieces["x"].M.data_ptr() == W.data_ptr()
    torch.testing.assert_close(x.scaled(2.0).mapped(W, None).directions, 2 * W.double())
    torch.testing.assert_close(x.plus(x.mapped(W[:, :5].mT @ W, None)).directions, torch.eye(5).double() + (W.mT @ W))


def test_rows_of_stacked_sets():
    W = torch.randn(3, 2, dtype=torch.float64)
    h = AffineSet.everything(2, "x").mapped(W, torch.ones(3))
    both = stacked([h, AffineSet.everything(2, "y"), h.scaled(-1.0)])
    assert both.n == 8
    assert both.fills(slice(3, 5))
    assert both.fills(slice(4, 5))
    assert not both.fills(slice(2, 5))
    assert not both.is_full
    expected = torch.cat([W, torch.zeros(2, 2).double(), -W])
    torch.testing.assert_close(both.pieces["x"].matrix(), expected)
    torch.testing.assert_close(both.c, torch.tensor([1.0, 1, 1, 0, 0, -1, -1, -1]).double())
    assert both.at(slice(5, 8)).M.shape == (3, 2)
    assert both.at(slice(4, 8), constant=True).M.shape == (4, 4)


def test_a_flattened_axis_reads_every_position_by_itself():
    M, c, W = (torch.randn(*s, dtype=torch.float64) for s in ((4, 2), (4,), (6, 12)))
    image = AffineSet(4, c, {"s": M}).mapped(W, None, inner=3)
    parts = W.reshape(6, 4, 3)
    torch.testing.assert_close(image.c, sum(parts[:, :, k] @ c for k in range(3)))
    torch.testing.assert_close(
        image.directions.reshape(6, 2, 3), torch.stack([parts[:, :, k] @ M for k in range(3)], 2)
    )


def test_a_basis_of_unit_vectors_where_entries_are_always_zero():
    M = torch.zeros(6, 3, dtype=torch.float64)
    M[[0, 2, 5]] = torch.randn(3, 3, dtype=torch.float64)
    U = span_basis(Columns(M, None)).U
    assert torch.equal(U, torch.eye(6, dtype=torch.float64)[:, [0, 2, 5]])


def test_a_column_that_is_only_rounding_has_no_direction():
    M = torch.tensor([[1.0, 3e-16], [1.0, -2e-16]], dtype=torch.float64)
    assert span_basis(Columns(M, torch.ones(2, 2).double())).U.shape == (2, 1)
    assert span_basis(Columns(M, M.abs())).U is None
    assert span_basis(Columns(M, None)).U is None
    tiny = torch.tensor([[1.0, 3e-9], [1.0, -2e-9]], dtype=torch.float64)
    assert span_basis(Columns(tiny, torch.ones(2, 2).double())).U is None


# --- float16


def narrow_layers(zeros):
    layers = [nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2)]
    with torch.no_grad():
        layers[0].weight[zeros:], layers[0].bias[zeros:] = 0, 0
    return layers


def test_how_far_a_coordinate_can_exceed_the_entries():
    U = torch.linalg.qr(torch.randn(50, 7, dtype=torch.float64))[0]
    g = range_growth(U)
    signs = U[:, U.abs().sum(dim=0).argmax()].sign()
    assert float((U.mT @ signs).abs().max()) == pytest.approx(g)
    v = 2 * torch.rand(1000, 50, dtype=torch.float64) - 1
    assert float((v @ U).abs().max()) <= g
    assert range_growth(torch.zeros(4, 0)) == 0


def test_a_space_in_float16_changes_only_to_unit_vectors():
    _, layout, found = laid_out(narrow_layers(64), (2, 3), narrow=lambda feature: True)
    assert found == []
    why = next(reports(layout)).why
    assert why.startswith("in float16 a coordinate could be ")
    assert why.endswith(" and pass 65,504; compress it in float32 or bfloat16 and convert afterwards")
    assert 2 <= int(why.split()[6]) <= 8
    _, layout, found = laid_out(narrow_layers(10), (2, 3), narrow=lambda feature: True)
    assert torch.equal(layout.bases[0].U, torch.eye(64, dtype=torch.float64)[:, :10])
    assert found[0].tensors["weight"].shape == (10, 3)
    _, layout, _ = laid_out(narrow_layers(10), (2, 3), narrow=lambda feature: False)
    assert layout.bases[0].width == 4


# --- in place, and several traces of one model


def stream_steps(modules, in_place=False, rows=2):
    """``h = stem(x); s = h + down(rho(up(h))); y = head(s)``, the sum in place if told."""
    x, h, u, r, d, s, y = (
        Value(name, (rows, n), torch.float32) for name, n in zip("xhurdsy", (2, 20, 9, 9, 20, 20, 2), strict=True)
    )
    return [
        Step(Input(), "x", (), x),
        Step(Linear(modules["stem"]), "stem", (x,), h, "stem"),
        Step(Linear(modules["up"]), "up", (h,), u, "up"),
        Step(Radial(modules["rho"]), "rho", (u,), r, "rho"),
        Step(Linear(modules["down"]), "down", (r,), d, "down"),
        Step(Add((1.0, 1.0)), "add", (h, d), s, in_place=in_place),
        Step(Linear(modules["head"]), "head", (s,), y, "head"),
        Step(Output(), "output", (y,), None),
    ]


@pytest.fixture
def modules():
    torch.manual_seed(0)
    layers = {"stem": nn.Linear(2, 20), "up": nn.Linear(20, 9), "down": nn.Linear(9, 20), "head": nn.Linear(20, 2)}
    return {**layers, "rho": radnet.Squash()}


def test_what_is_made_in_place_has_one_width(modules):
    along = []
    for in_place in (False, True):
        analysis = Analysis(stream_steps(modules, in_place), {}, {})
        layout = lay_out(analysis, set(), None)
        before = next(reports(layout))
        along.append(next(reports(grown(analysis, layout, set()))).along)
        assert next(reports(layout)) == before
    assert along == [(3, 6), (6,)]


def test_several_traces_of_one_model_give_what_one_gives(modules):
    (one, alone), (several, joined) = (
        (analysis, lay_out(analysis, set(), None))
        for analysis in (
            Analysis(stream_steps(modules), {}, {}),
            Analysis([step for rows in (2, 5, 3) for step in stream_steps(modules, rows=rows)], {}, {}),
        )
    )
    assert [(r.space, r.after) for r in reports(joined)] == [(r.space, r.after) for r in reports(alone)]
    wanted = {change.use.owner: change for change in changes(one, alone)}
    found = changes(several, joined)
    assert len(found) == 3 * len(wanted)
    for change in found:
        torch.testing.assert_close(change.tensors, wanted[change.use.owner].tensors, rtol=0, atol=1e-13)


def test_parts_may_have_any_rows():
    part = Part(2, torch.ones(2, 3), start=4)
    assert (part.stop, part.width, part.moved(2).start) == (6, 3, 6)
    assert part.within(slice(5, 8)).M.tolist() == [[1.0, 1, 1], [0, 0, 0], [0, 0, 0]]
