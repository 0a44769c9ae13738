"""What compression tells people: the table, the picture, and what it says to inputs it cannot take."""

import copy
import io
import math
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import radnet
from known_models import Stream, compressed, normal, widths
from radnet.compression.judging.certificate import Certificate
from radnet.compression.model import ModelCompression, multiply_adds, parameters, stored_bytes
from radnet.compression.picture import Edge, draw
from radnet.compression.pipeline import affine_hull
from radnet.compression.result import Compression, interleaved_times


def test_the_table_is_this_table():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1200), radnet.Squash(), nn.Linear(1200, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    text = radnet.compress(model).report()
    assert text.splitlines()[:7] == [
        "space                         before     after  why not smaller",
        "0                              1,200         4",
        "2                                  8         8  3 (ReLU) does not commute with a change of basis",
        "4                                  2         2  it is an output of the model",
        "parameters                    14,426        74  (194.9 times fewer)",
        "bytes                         57,704       296  (194.9 times fewer)",
        "multiply-adds a row           13,216        60  (220.3 times fewer)",
    ]
    assert text.splitlines()[7] == ""
    assert text.split("\n\n")[1] == str(radnet.compress(model).certificate)


def test_the_table_of_a_chain_is_this_table():
    net = radnet.RadNet((1, 8, 1600, 8, 1), generator=torch.Generator().manual_seed(0))
    c = radnet.compress(net)
    assert c.report() == "\n".join(
        [
            "layer             before     after",
            "input                  1         1",
            "hidden 1               8         2",
            "hidden 2           1,600         3",
            "hidden 3               8         4",
            "output                 1         1",
            "parameters        27,233        34  (801.0 times fewer)",
            "bytes            108,932       136",
            "",
            str(c.certificate),
        ]
    )


def columns_of(lines):
    """Where the numbers before and after end, in every line of a table."""
    found = [re.search(r"  (before|[\d,]+) +(after|[\d,]+)(?=  |$)", line) for line in lines]
    return {(match.end(1), match.end(2)) for match in found}


def test_the_columns_of_a_model_with_millions_of_parameters_do_not_shift():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 1200), radnet.Squash(), nn.Linear(1200, 1200), radnet.Squash(), nn.Linear(1200, 2)
    )
    lines = radnet.compress(model.eval()).report().split("\n\n")[0].splitlines()
    assert lines[-3].startswith("parameters                   1,448,402        ")
    assert len(columns_of(lines)) == 1


def test_the_columns_of_a_chain_with_billions_of_parameters_do_not_shift():
    """Only what a report asks of a network: so large a one takes minutes."""
    wide = SimpleNamespace(widths=(784, 65536, 65536, 10), parameter_count=4_347_068_426)
    small = SimpleNamespace(widths=(784, 785, 786, 10), parameter_count=1_241_891, weights=(torch.zeros(1),))
    lines = Compression(small, Certificate, wide, None, None).report().split("\n\n")[0].splitlines()
    assert "17,388,273,704" in lines[-1]
    assert len(columns_of(lines)) == 1


def test_times_are_in_microseconds_and_say_how_many_times(monkeypatch):
    """A clock that takes two milliseconds for the original and half of one for the small network."""
    from radnet.compression import model as model_module
    from radnet.compression import result

    ran = []

    def timed(a, b):
        ran.append((a(), b()))
        return 2e-3, 5e-4

    monkeypatch.setattr(result, "interleaved_times", timed)
    monkeypatch.setattr(model_module, "interleaved_times", timed)
    chain = radnet.compress(radnet.RadNet((3, 50, 2), dtype=torch.float64)).report(timing=True)
    assert chain.splitlines()[6:8] == [
        "µs, batch 1        2,000       500  (4.0 times faster)",
        "µs, batch 256      2,000       500  (4.0 times faster)",
    ]
    other = radnet.compress(nn.Sequential(nn.Linear(3, 50), radnet.Squash(), nn.Linear(50, 2))).report(timing=True)
    assert other.splitlines()[6:8] == [
        "µs, batch 1                    2,000       500  (4.0 times faster)",
        "µs, batch 256                  2,000       500  (4.0 times faster)",
    ]
    assert [tuple(out.shape) for pair in ran for out in pair] == [(1, 2), (1, 2), (256, 2), (256, 2)] * 2
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in ran)
    assert not torch.allclose(ran[1][0][0], ran[1][0][1])  # rows that differ


def certificate(**figures):
    plain = {
        "rows": 9, "dtype": "float32", "max_gap": 0.25, "mean_gap": 0.125, "max_gap64": 1e-9, "mean_gap64": 2e-9,
        "scale": 3.0, "ulps": 7.0, "conditioning": 0.5, "rows_at_jump": 0, "rows_ill_conditioned": 0, "rows_failed": 0,
        "rows_not_finite": 0, "rows_judged": 12, "rounding": 0.75,
    }  # fmt: skip
    return Certificate(**{**plain, **figures})


def test_a_certificate_reads_like_this():
    assert str(certificate()) == "\n".join(
        [
            "lossless, on 9 inputs",
            "  gap in float64   max 1e-09, mean 2e-09",
            "  gap in float32   max 0.25, mean 0.125; rounding alone moves the original by up to 0.75",
            "  max|F| 3",
        ]
    )
    worse = certificate(
        rows_failed=2, rows_ill_conditioned=3, rows_not_finite=1, rows_at_jump=4, judged_in="bfloat16",
        tried=("one row", "length 4 in place of 3"), failures=("output differs at one row",),
    )  # fmt: skip
    assert str(worse).splitlines()[0] == "NOT lossless: 2 rows beyond rounding, on 9 inputs"
    assert str(worse).splitlines()[1] == "  gap in bfloat16  max 1e-09, mean 2e-09"
    assert str(worse).splitlines()[4:] == [
        "  output differs at one row",
        "  judged too: one row, length 4 in place of 3",
        "  the models do not run in float64, so equality is judged in bfloat16",
        "  3 rows above 64 eps, within a multiple of what one ulp does (up to 0.5)",
        "  1 row where F itself is not finite, or the other is not alike",
        "  4 rows at a jump of the profile, drawn anew",
    ]
    assert not worse.lossless
    assert not certificate(failures=("output differs at one row",)).lossless
    text = str(certificate(failures=tuple("abcde")))
    assert [line.strip() for line in text.splitlines() if len(line.strip()) == 1] == ["a", "b", "c"]
    nothing = certificate(rows_judged=0)
    assert not nothing.lossless
    assert str(nothing).startswith(
        "NOT judged: every row is at a jump of a profile, or gives no finite number, on 9 inputs"
    )
    assert certificate().lossless
    assert certificate().to_dict()["lossless"] is True
    assert certificate().to_dict()["conditioning"] == 0.5


class Several(nn.Module):
    """Several inputs, and outputs of all kinds in a dictionary."""

    def __init__(self, add=0.0, where="a"):
        super().__init__()
        self.linear, self.words = nn.Linear(3, 2, dtype=torch.float64), nn.Embedding(4, 2, dtype=torch.float64)
        nn.init.ones_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        nn.init.ones_(self.words.weight)
        self.add, self.where = add, where

    def forward(self, x, y, i):
        out = {"a": self.linear(x), "b": [y.sum(), (self.words(i),)], "c": i, "d": x.mean(0)}
        if self.where == "a":
            out["a"] = out["a"] + self.add
        if self.where == "b":
            out["b"][0] = out["b"][0] + self.add
        if self.where == "d":
            out["d"] = out["d"] + self.add
        return out


def test_outputs_of_all_kinds_are_compared():
    x, y, i = normal(5, 3), normal(5, 4, seed=1), torch.tensor([0, 1, 2, 3, 0])
    assert radnet.verify(Several(), Several(), (x, y, i)).lossless
    for where in ("a", "b", "d"):
        c = radnet.verify(Several(), Several(1e-3, where), (x, y, i))
        assert not c.lossless
        assert c.rows_failed == 5
        assert c.max_gap == pytest.approx(1e-3)
    assert radnet.verify(Several(), Several(), (x, y.float(), i)).lossless

    class Counts(nn.Module):
        def __init__(self, above=0):
            super().__init__()
            self.above = above

        def forward(self, x):
            return {"n": (x > self.above).sum(1)}

    assert radnet.verify(Counts(), Counts(), x).lossless
    assert not radnet.verify(Counts(), Counts(0.5), x).lossless
    with pytest.raises(TypeError, match="^Counts gives no floating-point tensor; there is nothing to compare$"):
        radnet.compress(Counts(), x)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "^there is no tensor among the inputs; give a tensor of inputs with at least one row$"),
        (torch.zeros(0, 3), "^a tensor of inputs with at least one row is needed$"),
        (torch.tensor(1.0), "^a tensor of inputs with at least one row is needed$"),
        ("x", "^the inputs are a str; give a tensor, or a tuple with one entry for each argument"),
        (torch.zeros(2, 3).to_sparse(), "^an input is sparse, quantised or on the meta device; give ordinary tensors$"),
        (torch.zeros(2, 3, device="meta"), "^an input is sparse, quantised or on the meta device"),
        (torch.zeros(2, 3).to(torch.float8_e4m3fn), "^an input is torch.float8_e4m3fn, in which nothing can be"),
        ((torch.zeros(2, 3), 3), "^RadNet does not run on the given inputs, which are torch.float32 .TypeError"),
        (torch.zeros(2, 3, dtype=torch.long), "^RadNet does not run on the given inputs, which are torch.int64"),
        (torch.zeros(2, 3, dtype=torch.complex64), "^RadNet does not run on the given inputs, which are torch.comp"),
        (torch.full((2, 3), math.nan), "^the inputs hold NaN or infinite values; a certificate needs finite ones$"),
    ],
)
def test_inputs_that_cannot_be_compared_are_refused(inputs, message):
    net = radnet.RadNet((3, 4, 2))
    with pytest.raises((TypeError, ValueError), match=message):
        radnet.verify(net, net, inputs)


def test_long_names_are_cut_and_growth_and_bounds_are_told():
    c = radnet.compress(Stream(nn.Identity()).double().eval(), normal(32, 3), rewrite=True)
    line = c.report().splitlines()[1]
    assert line == "stem + down.0 + down.1 ...        64        32  grows: 4, 8, 16, 32"
    told = radnet.compress(Stream(nn.Identity()).double().eval(), normal(32, 3), tol=1e-9).report()
    assert told.splitlines()[-1].startswith("  outputs change by at most ")


def test_times_are_told_for_one_row_and_for_many():
    seen = io.StringIO()  # a list would be put back after every run

    class Watched(nn.Sequential):
        def forward(self, x):
            if not isinstance(x, torch.fx.Proxy):
                seen.write(f"{len(x)} ")
            return super().forward(x)

    model = Watched(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2)).eval()
    c = radnet.compress(model, torch.randn(7, 3))
    seen.seek(0)
    seen.truncate()
    lines = c.report(timing=True).splitlines()
    assert set(seen.getvalue().split()) == {"1", "256", "7"}
    assert [re.sub(r"[\d.,]+", "#", line) for line in lines[6:8]] == [
        re.sub(r"[\d.,]+", "#", line)
        for line in lines[6:8]
        if "times faster)" in line and line.startswith("µs, batch ")
    ]
    assert [line.split()[2] for line in lines[6:8]] == ["1", "256"]
    assert [len(line.split("  (")[0]) for line in lines[6:8]] == [46, 46]


def test_times_are_medians_of_turns():
    turns = []
    a, b = interleaved_times(lambda: turns.append("a"), lambda: turns.append("b"), runs=3)
    assert turns == ["a", "b"] * 5  # two to warm up
    assert 0 < a < 1
    assert 0 < b < 1
    graded = []
    interleaved_times(lambda: graded.append(torch.is_grad_enabled()), lambda: None, runs=1)
    assert not any(graded)


def test_sizes_and_work_are_counted():
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert parameters(tied) == 16 + 8
    assert stored_bytes(tied.double()) == 8 * 24
    conv = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 4, 3))
    assert multiply_adds(conv, [torch.zeros(7, 2, 4, 4)]) == 7 * (5 * 4 * 18 + 20 * 3)
    assert not conv[0]._forward_hooks


def test_the_picture_is_to_scale():
    svg = "{http://www.w3.org/2000/svg}"
    spaces = [("a", 100, 25, ""), ("b" * 50, 50, 50, "w" * 70)]
    root = ET.fromstring(draw(spaces, [Edge("layer", (0,), (1,)), Edge("across", (1,), (1,))]))  # noqa: S314
    assert root.get("viewBox") == "0 0 860 132"
    assert root.find(f"{svg}title").text == "Spaces of a model before and after compression"
    bars = [(float(r.get("x")), float(r.get("y")), float(r.get("width"))) for r in root.iter(f"{svg}rect")]
    assert bars == [(150, 20, 260), (150, 20, 65), (150, 64, 130), (150, 64, 130)]
    texts = [(float(t.get("x")), float(t.get("y")), t.text) for t in root.iter(f"{svg}text")]
    assert texts == [
        (416, 31, "100 → 25"), (150, 16, "a"), (516, 31, None),
        (286, 75, "50"), (150, 60, "b" * 39 + "…"), (386, 75, "w" * 59 + "…"),
    ]  # fmt: skip
    arc, _ = root.iter(f"{svg}path")
    assert arc.get("d") == "M148 27 C116 27 116 71 148 71"
    assert arc.find(f"{svg}title").text == "layer"
    far = ET.fromstring(draw([("a", 1, 1, "")] * 30, [Edge("<", (29,), (0,))]))  # noqa: S314
    assert next(far.iter(f"{svg}path")).get("d") == "M148 1303 C18 1303 18 27 148 27"
    thin = ET.fromstring(draw([("a", 10_000, 1, "")], []))  # noqa: S314
    assert [float(r.get("width")) for r in thin.iter(f"{svg}rect")] == [260, 2]
    assert "10,000 → 1" in draw([("a", 10_000, 1, "")], [])
    assert draw([], []).endswith("</svg>")


def test_a_chain_is_drawn_side_by_side_and_to_scale():
    svg = "{http://www.w3.org/2000/svg}"
    edges = [Edge("in", (), (0,)), Edge("one", (0,), (1,)), Edge("two", (1,), (2,))]
    root = ET.fromstring(draw([("a", 4, 4, "pinned"), ("b", 400, 16, ""), ("c" * 30, 1, 1, "")], edges))  # noqa: S314
    assert root.get("viewBox") == "0 0 390 270"
    bars = [(float(r.get("x")), float(r.get("height"))) for r in root.iter(f"{svg}rect")]
    assert bars == [(52, 19), (52, 19), (182, 190), (182, 38), (312, 9.5), (312, 9.5)]  # as tall as the root of a width
    middles = {float(r.get("y")) + float(r.get("height")) / 2 for r in root.iter(f"{svg}rect")}
    assert middles == {131.0} or max(middles) - min(middles) < 0.1
    assert [t.text for t in root.iter(f"{svg}text")] == ["a", "4", "b", "400 → 16", "c" * 19 + "…", "1"]
    assert root.find(f"{svg}rect/{svg}title").text == "pinned"
    funnels = [p.get("d") for p in root.iter(f"{svg}path")]
    assert len(funnels) == 4
    assert funnels[0].startswith("M78 121.5c52 0 52 -85.5 104 -85.5v190.0")  # from 19 to 190 high
    assert "<path" not in draw([("a", 4, 4, "")] * 10, [])


def test_edges_name_the_spaces_they_join():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 20), nn.Linear(3, 30), nn.Linear(50, 40)

        def forward(self, x, y):
            return self.c(torch.cat([self.a(x), self.b(y)], dim=1))

    c = compressed(Joined(), normal(6, 2), normal(6, 3))
    assert c.edges == (Edge("a", (), (0,)), Edge("b", (), (1,)), Edge("c", (0, 1), (2,)))
    assert [s.space for s in c.spaces] == ["a", "b", "c"]
    assert isinstance(c, ModelCompression)
    assert c.inputs[0].shape == (6, 2)


# --- what it is measured on


def test_inputs_are_drawn_where_the_first_layer_says_how_wide_they_are():
    model = nn.Sequential(nn.Linear(3, 64), radnet.Squash(), nn.Linear(64, 2)).double()
    a, b = radnet.compress(model), radnet.compress(model)
    assert a.inputs[0].shape == (256, 3)
    assert a.inputs[0].dtype == torch.float64
    assert torch.equal(a.inputs[0], b.inputs[0])
    assert not torch.equal(radnet.compress(model, generator=torch.Generator().manual_seed(5)).inputs[0], a.inputs[0])
    given = normal(9, 3).requires_grad_()
    c = radnet.compress(model, given)
    assert c.certificate.rows == 9
    assert not c.inputs[0].requires_grad
    data = normal(11, 3)
    assert radnet.compress(model, data=data).certificate.rows == 11


@pytest.mark.parametrize(
    ("model", "keywords", "message"),
    [
        (nn.Linear(2, 2), {"generator": 3}, "^generator is a int; expected a torch.Generator$"),
        (nn.Linear(2, 2), {"tol": 1.0}, r"^tol=1.0: expected a number from 0 to 1, for example 1e-6$"),
        (3, {}, "^compress needs an nn.Module, got int$"),
        (
            nn.Conv1d(1, 1, 1),
            {},
            "^Conv1d: compress has to run it once, and its first layer is a Conv1d, which does not say how large "
            "inputs are; give example_inputs$",
        ),
        (
            nn.Tanh(),
            {},
            "^Tanh: compress has to run it once, and it has no layers, which does not say how large inputs are; "
            "give example_inputs$",
        ),
    ],
)
def test_what_it_cannot_take_it_says(model, keywords, message):
    with pytest.raises((TypeError, ValueError), match=message):
        radnet.compress(model, **keywords)


def test_compiled_models_are_sent_back():
    model = nn.Sequential(nn.Linear(2, 8), radnet.Squash(), nn.Linear(8, 1))
    with pytest.raises(TypeError, match="^compress needs an nn.Module, got OptimizedModule; give it model._orig_mod$"):
        radnet.compress(torch.compile(model))
    with pytest.raises(TypeError, match="OptimizedModule; give it model._orig_mod$"):
        radnet.compress(torch.compile(radnet.RadNet((2, 8, 1))))


def quantised():
    model = nn.Sequential(nn.Linear(2, 4))
    model.register_buffer("table", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    return model


def compressed_rows():
    model = nn.Sequential(nn.Linear(2, 4))
    model[0].weight = nn.Parameter(torch.eye(4, 2).to_sparse_csr())
    return model


def two_devices():
    """Tensors that say they are on a GPU, which need not be there."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    with FakeTensorMode():
        model[1].weight = nn.Parameter(torch.empty(1, 4, device="cuda"))
    return model


@pytest.mark.filterwarnings("ignore:.*deprecat:UserWarning", "ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (quantised, "^table is sparse or quantised; compress needs ordinary tensors$"),
        (compressed_rows, "^0.weight is sparse or quantised; compress needs ordinary tensors$"),
        (
            two_devices,
            r"^the model is on several devices \(1.bias on cpu, 1.weight on cuda:0\); move it to one, then compress$",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 4, device="meta")),
            "^0.weight is on the meta device and has no values; load weights, then compress$",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 4, dtype=torch.complex64)),
            "^0.weight is complex; radial activations rescale by norms of real entries$",
        ),
        (
            lambda: radnet.RadNet((2, 4, 1), device="meta"),
            "^layers.0.weight is on the meta device and has no values; load weights, then compress$",
        ),
    ],
)
def test_tensors_without_ordinary_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        radnet.compress(make())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_none_are_refused_with_their_place(value):
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    with torch.no_grad():
        model[1].bias[0] = value
    with pytest.raises(ValueError, match="^1.bias holds NaN or infinite values; nothing was compressed$"):
        radnet.compress(model)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 4)).eval()
    model[0].running_mean[0] = value
    with pytest.raises(ValueError, match="^0.running_mean holds NaN or infinite values; nothing was compressed$"):
        radnet.compress(model, torch.ones(2, 2))


# --- models that look at themselves


class Scaled(nn.Module):
    """Divides by the number of rows, between two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.rho = nn.Linear(3, 16), nn.Linear(16, 16), nn.Linear(16, 2), radnet.Squash()

    def forward(self, x):
        return self.c(self.rho(self.b(self.a(x) / len(x))))


class OnlyFour(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)

    def forward(self, x):
        if len(x) != 4:
            raise ValueError("four rows, please")
        return self.b(self.rho(self.a(x)))


class Wide(nn.Module):
    """Relies on the width of a hidden layer, in Python."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)

    def forward(self, x):
        h = self.rho(self.a(x))
        if not isinstance(h, torch.fx.Proxy) and h.shape[1] != 16:
            raise RuntimeError("sixteen, please")
        return self.b(h)


def test_a_model_that_counts_its_rows_is_tried_on_another_number_of_them():
    """torch.export takes the number of rows for a constant, and a constant on the way would be scaled by it."""
    model = Scaled().double()
    c = radnet.compress(model, normal(8, 3))
    for rows in (1, 8, 20):
        assert torch.allclose(model(normal(rows, 3)), c.network(normal(rows, 3)), rtol=1e-12, atol=1e-13)
    assert c.network.a.out_features < 16
    c = radnet.compress(OnlyFour(), torch.randn(4, 3))
    assert c.traced_by == "torch.export"
    assert widths(c) == [4]


class Table(nn.Module):
    """Rows, and a table that is the same for all of them."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.b = nn.Linear(3, 16), radnet.Squash(), nn.Linear(16, 2)

    def forward(self, x, table):
        if len(x) < 1:
            raise ValueError("no rows")
        return self.b(self.rho(self.a(x))) + table.mean(0)


def test_only_what_has_a_row_for_each_row_gets_another_one():
    c = radnet.compress(Table().eval(), (torch.randn(8, 3), torch.randn(5, 2)))
    assert c.traced_by == "torch.export"
    assert c.spaces[0].after == 4
    assert [tuple(x.shape) for x in c.inputs] == [(8, 3), (5, 2)]


class Pointwise(nn.Module):
    def __init__(self, f, look=False):
        super().__init__()
        self.a, self.b, self.f, self.look = nn.Linear(3, 16), nn.Linear(16, 2), f, look

    def forward(self, x):
        if self.look and len(x) < 1:
            raise ValueError("no rows")
        h = self.f(self.a(x)) if self.f is not None else self.a(x).abs()
        return self.b(h)


def test_a_reason_quotes_the_operation_and_its_line():
    quoted = (
        "(h = self.f(self.a(x)) if self.f is not None else self.a(x).abs()) does not commute with a change of basis"
    )
    for f in (None, torch.abs):
        (space, _) = radnet.compress(Pointwise(f).eval(), torch.randn(6, 3)).spaces
        assert space.why == f"abs {quoted}"
    (space, _) = radnet.compress(Pointwise(torch.abs, look=True).eval(), torch.randn(6, 3)).spaces
    assert space.why == f"aten.abs.default {quoted}"


def test_a_width_that_a_model_relies_on_stays():
    (space, _) = radnet.compress(Wide(), torch.randn(8, 3)).spaces
    assert space.after == 16
    assert space.why == "forward asks for the shape of what rho gives, or of something made of it"


def test_a_model_that_relies_on_a_width_in_a_way_nobody_sees_is_refused():
    class Sized(Wide):
        def forward(self, x):
            h = self.rho(self.a(x))
            if vars(self.a)["out_features"] != 16:
                raise RuntimeError("sixteen, please")
            return self.b(h)

    message = r"Sized: the smaller model does not run \(sixteen, please\); its forward relies"
    with pytest.raises(ValueError, match=message):
        radnet.compress(Sized(), torch.randn(8, 3))


# --- the hull of data


def test_the_hull_of_data_is_their_mean_and_their_directions():
    x = normal(30, 2) @ normal(2, 6, seed=1) + 5
    hull = affine_hull(x)
    assert hull.n == 6
    assert torch.allclose(hull.c, x.mean(dim=0))
    assert hull.directions.shape == (6, 2)
    tokens = affine_hull(x.reshape(5, 6, 6))
    assert torch.allclose(tokens.c, hull.c)
    assert tokens.directions.shape == (6, 2)
    point = affine_hull(torch.ones(4, 3))
    assert (point.n, point.directions.shape) == (3, (3, 0))


def test_grey_pictures_have_one_channel_however_many_are_stored():
    grey = normal(10, 1, 6, 6).expand(10, 3, 6, 6) * torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64).reshape(
        3, 1, 1
    )
    model = nn.Sequential(nn.Conv2d(3, 40, 2), radnet.Squash(dim=1), nn.Conv2d(40, 2, 1))
    assert widths(compressed(copy.deepcopy(model), grey)) == [13]
    assert widths(compressed(copy.deepcopy(model), grey, data=grey)) == [5]
    assert affine_hull(grey, 1).directions.shape == (3, 1)


def test_a_hull_is_that_of_its_own_axis():
    """Five channels of five positions: what is known of the last axis says nothing about the other one."""
    x = normal(10, 5, 1) * normal(1, 1, 5, seed=1)
    model = nn.Sequential(nn.Conv1d(5, 40, 1), radnet.Squash(dim=1), nn.Conv1d(40, 2, 1))
    assert widths(compressed(model, x, data=x)) == [6]


def test_data_of_positions_and_of_the_first_of_two_inputs():
    x = normal(40, 2) @ normal(2, 20, seed=1) + 1
    model = nn.Sequential(nn.Linear(20, 30), radnet.Squash(), nn.Linear(30, 2))
    assert widths(compressed(copy.deepcopy(model), x.reshape(10, 4, 20), data=x.reshape(10, 4, 20))) == [3]
    assert widths(compressed(copy.deepcopy(model), x)) == [21]
