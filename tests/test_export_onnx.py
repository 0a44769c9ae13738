"""Models as ONNX, TorchScript and programs of torch.export: the same numbers, few nodes, refused by name."""

import io
import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import radnet
from radnet.cli import main
from radnet.errors import InvalidType, InvalidValue, MissingPackage
from radnet.export import export_program
from radnet.measuring import DRAWS, TIMES_CONDITIONING, ULPS, gap_by_rows, nudged
from radnet.running import copied
from random_models import FAMILIES, random_model

#: operators that onnxruntime does not have in float64
LACKING = ("Conv", "ConvTranspose", "AveragePool", "Erf")


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run(path, *inputs, optimization="all"):
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimization == "all" else level.ORT_ENABLE_BASIC
    found = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in found.get_inputs()]
    return torch.from_numpy(found.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})[0])


def assert_near(model, x, found):
    """Within 64 eps of a row, or 10 times what one ulp does to the model."""
    with torch.no_grad():
        F = model(x.clone())
        gap = gap_by_rows(F, found)
        allowed = ULPS * torch.finfo(F.dtype).eps * gap.scale
        draws, D = torch.Generator().manual_seed(5), torch.zeros_like(gap.rows)
        for _ in range(DRAWS if bool((gap.rows > allowed).any()) else 0):
            near = copied(model, lambda t: nudged(t, draws))
            D = torch.maximum(D, gap_by_rows(F, near(nudged(x, draws) if x.is_floating_point() else x)).rows)
    assert bool((gap.rows <= torch.maximum(allowed, TIMES_CONDITIONING * D)).all())


@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_random_models_come_out_the_same(family, count, evidence, tmp_path):
    """In float32 and float64, compressed and not; as ONNX and as TorchScript."""
    path, written, refused, traced = tmp_path / "model.onnx", 0, 0, 0
    for seed in range(family, len(FAMILIES) * count(1, 40), len(FAMILIES)):
        model, rng = random_model(seed)
        x = model.inputs(16, rng)
        dtypes = (torch.float64, torch.float32) if count(0, 1) or family == 0 else (torch.float32,)
        for dtype in dtypes:
            given = x.to(dtype) if x.is_floating_point() else x
            model = model.to(dtype)
            shipped = radnet.compress(model, given).network if seed % 2 else model
            buffer = io.BytesIO()
            torch.jit.save(torch.jit.trace(shipped, (given,), check_trace=False), buffer)
            buffer.seek(0)
            assert_near(shipped, given, torch.jit.load(buffer)(given).detach())
            traced += 1
            try:
                found = radnet.export_onnx(shipped, path, given)
                said = ""
            except InvalidValue as error:
                said = str(error)
            if said:
                assert dtype == torch.float64, (seed, said)
                named = re.fullmatch(r"onnxruntime \S+ has no (\w+) of float64; export model.float\(\)", said)
                assert named is not None, (seed, said)
                assert named[1] in LACKING, (seed, said)
                refused += 1
                continue
            other = torch.cat([given, given.flip(0)])[:23]
            assert_near(shipped, other, run(path, other, optimization=found.optimization))
            written += 1
    evidence("ONNX and TorchScript of random models", onnx=written, refused_by_name=refused, torchscript=traced)
    assert written > 0


NODES = {
    "squash": radnet.Squash,
    "step": radnet.StepReLU,
    "shifted": lambda **k: radnet.ShiftedReLU(0.5, **k),
    "sigmoid": radnet.RadialSigmoid,
}


@pytest.mark.parametrize("name", NODES)
def test_an_activation_is_at_most_seven_nodes(name, tmp_path, evidence):
    for shift in (None, 0.3):
        model = nn.Sequential(nn.Linear(3, 8), NODES[name](shift=shift)).eval()
        found = radnet.export_onnx(model, tmp_path / "one.onnx")
        evidence("nodes of an activation", name=name, shift=shift, nodes=found.nodes - 1)
        assert found.nodes - 1 <= 7


def test_nobody_learns_where_it_was_made(tmp_path):
    net = radnet.RadNet((2, 8, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.5)  # whose bytes are no letters
    radnet.export_onnx(net, tmp_path / "net.onnx")
    data = (tmp_path / "net.onnx").read_bytes()
    assert b".py" not in data
    assert b"/" not in data.replace(b"ai.onnx", b"")


def test_the_number_of_rows_is_open_and_words_are_in_the_metadata(tmp_path, generator):
    c = radnet.compress(radnet.RadNet((3, 64, 2), "squash", generator=generator))
    found = radnet.export_onnx(c, tmp_path / "net.onnx", opset=20)
    proto = onnx.load(tmp_path / "net.onnx")
    said = {p.key: p.value for p in proto.metadata_props}
    assert (json.loads(said["widths"]), said["radnet"]) == ([3, 4, 2], radnet.__version__)
    assert json.loads(said["certificate"])["lossless"] is True
    assert (proto.opset_import[0].version, found.opset) == (20, 20)
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for rows in (1, 2, 300):
        x = torch.randn(rows, 3, generator=generator)
        assert_near(c.network, x, run(tmp_path / "net.onnx", x))
    fixed = radnet.export_onnx(c, tmp_path / "fixed.onnx", torch.ones(1, 3), dynamic=False)
    assert (fixed.rows, fixed.to_dict()["weights"]) == (1, "float32")


def test_shorter_weights_are_measured(tmp_path, generator):
    net = radnet.RadNet((8, 64, 64, 3), "squash", generator=generator).eval()
    x = torch.randn(50, 8, generator=generator)
    found = {
        kind: radnet.export_onnx(net, tmp_path / f"{kind}.onnx", x, weights=kind) for kind in (None, "float16", "int8")
    }
    assert found[None].bytes > 1.7 * found["float16"].bytes > 2.5 * found["int8"].bytes
    assert found[None].gap < 1e-5 < found["float16"].gap < found["int8"].gap < 0.2 * found["int8"].scale
    for kind, said in found.items():
        gap = float((run(tmp_path / f"{kind}.onnx", x) - net(x).detach()).abs().max())
        assert gap == pytest.approx(said.gap, rel=1e-3, abs=1e-6)


def test_shorter_weights_of_convolutions_and_tables(tmp_path, generator):
    layers = nn.Conv2d(2, 6, 3), radnet.Squash(dim=1), nn.ConvTranspose2d(6, 3, 2), nn.Flatten(), nn.Linear(75, 4)
    conv, tokens = (
        nn.Sequential(*layers).eval(),
        nn.Sequential(nn.Embedding(9, 8), radnet.Squash(), nn.Linear(8, 2)).eval(),
    )
    for model, x in (
        (conv, torch.randn(3, 2, 6, 6, generator=generator)),
        (tokens, torch.randint(0, 9, (4, 5), generator=generator)),
    ):
        for kind in ("float16", "int8"):
            found = radnet.export_onnx(model, tmp_path / "short.onnx", x, weights=kind)
            assert 0 < found.gap < 0.05 * found.scale


REFUSED = {
    "no module": (lambda: 3, {}, InvalidType, "needs a module or a compression, got a int"),
    "weights": (lambda: nn.Linear(2, 1), {"weights": "int4"}, InvalidValue, "expected None, \"float16\" or \"int8\""),
    "an opset of the future": (lambda: nn.Linear(2, 1), {"opset": 99}, InvalidValue, "write opsets 18 to"),
    "an opset of the past": (lambda: nn.Linear(2, 1), {"opset": 5}, InvalidValue, "write opsets 18 to"),
    "quantised twice": (
        lambda: torch.ao.quantization.quantize_dynamic(radnet.RadNet((2, 8, 1)), {nn.Linear}),
        {"weights": "int8"}, InvalidValue, r"layers.0: is quantised already \(Linear\)",
    ),
    "no numbers": (lambda: nn.Linear(2, 1, device="meta"), {}, InvalidValue, "weight: has no numbers yet"),
    "one row": (lambda: nn.Linear(2, 1), {"inputs": torch.ones(1, 2)}, InvalidValue, "one row, of which torch makes"),
    "no matrix": (lambda: nn.Tanh(), {"inputs": torch.ones(2, 2), "weights": "int8"}, InvalidValue, "no matrix"),
    "8 bits of float64": (lambda: nn.Linear(2, 1).double(), {"weights": "int8"}, InvalidValue, "are for float32"),
    "too large for halves": (
        lambda: nn.Linear(2, 1, bias=False), {"weights": "float16"}, InvalidValue, "float16 ends at 65,504",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_written_is_refused_and_nothing_is_there(name, tmp_path):
    make, options, kind, said = REFUSED[name]
    model = make()
    if name == "too large for halves":
        nn.init.constant_(model.weight, 1e6)
    with pytest.raises(kind, match=said):
        radnet.export_onnx(model, tmp_path / "net.onnx", **options)
    assert list(tmp_path.iterdir()) == []


class Odd(nn.Module):
    """Its second part does what no graph can say."""

    def forward(self, x):
        return x * x.detach().numpy().sum()


def test_the_layer_that_cannot_be_exported_is_named(tmp_path):
    model = nn.Sequential(nn.Linear(2, 3), Odd(), nn.Linear(3, 1)).eval()
    with pytest.raises(InvalidValue, match=r"^1 \(Odd\): torch cannot export it"):
        radnet.export_onnx(model, tmp_path / "net.onnx")


def test_a_gap_is_an_error(tmp_path, monkeypatch):
    """A graph that gives other numbers is not written."""
    from radnet.export import onnx as ours

    right = ours._graph

    def wrong(*arguments):
        proto = right(*arguments)
        W = next(x for x in proto.graph.initializer if len(x.dims) == 2)
        W.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(W) + np.float32(1e-3), W.name))
        return proto

    monkeypatch.setattr(ours, "_graph", wrong)
    with pytest.raises(
        InvalidValue, match="the given inputs, row .* the exported model differs by .*; nothing was written"
    ):
        radnet.export_onnx(radnet.RadNet((2, 8, 1), "squash"), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_without_onnxruntime_the_error_says_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackage, match=r"needs onnxruntime: pip install 'radnet\[onnx\]'"):
        radnet.export_onnx(nn.Linear(2, 1), tmp_path / "net.onnx")


def test_the_model_is_as_it_was(tmp_path):
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(), radnet.Squash(), nn.Linear(8, 1)).train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    radnet.export_onnx(model, tmp_path / "net.onnx")
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_networks_of_ours_and_several_arguments(tmp_path, generator):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.rho = nn.Linear(3, 8), nn.Linear(5, 8), radnet.Squash(blocks=2)

        def forward(self, x, y, scale=None):
            return self.rho(self.a(x) + self.b(y)), x.sum(-1)

    x, y = torch.randn(6, 3, generator=generator), torch.randn(6, 5, generator=generator)
    found = radnet.export_onnx(Two().eval(), tmp_path / "two.onnx", (x, y))
    assert (len(found.inputs), len(found.outputs)) == (2, 2)
    rbf = radnet.rbf.to_rbf(radnet.RadNet((3, 8, 2), "squash", generator=generator))
    residual = radnet.models.ResidualRadialMLP(3, 2, width=16, hidden=16, depth=2)
    blocks = radnet.models.BlockRadialMLP((3, 16, 2), block=4)
    for model in (residual, blocks, rbf):
        radnet.export_onnx(model.eval(), tmp_path / "ours.onnx", x)


def test_a_program_is_written_and_read(tmp_path, generator):
    c = radnet.compress(radnet.RadNet((3, 64, 2), "squash", generator=generator))
    program = export_program(c, tmp_path / "net.pt2")
    x = torch.randn(7, 3, generator=generator)
    assert_near(c.network, x, torch.export.load(tmp_path / "net.pt2").module()(x).detach())
    assert sum(node.op == "call_function" for node in program.graph.nodes) < 12


@pytest.mark.filterwarnings("ignore")
def test_quantised_by_others(generator):
    """torch's dynamic quantisation, and torchao's weights of 8 bits."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    net = radnet.RadNet((8, 64, 64, 3), "squash", shift="trainable", generator=generator).eval()
    x = torch.randn(50, 8, generator=generator)
    expected = net(x)
    short = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    assert "DynamicQuantizedLinear" in str(short)
    quantize_(net, Int8WeightOnlyConfig())
    for found in (short(x), net(x)):
        assert 0 < float((found - expected).detach().abs().max()) < 0.2 * float(expected.detach().abs().max())
    with pytest.raises(InvalidValue, match="is quantised already"):
        radnet.export_onnx(net, "unused.onnx")


@pytest.mark.filterwarnings("ignore")
def test_compiled_ahead_of_time(tmp_path, generator, count):
    if count(0, 1) == 0:
        pytest.skip("at full counts only")
    net = radnet.RadNet((3, 16, 2), "squash", generator=generator).eval()
    x = torch.randn(8, 3, generator=generator)
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(net, (x,)), package_path=str(tmp_path / "m.pt2")
    )
    assert_near(net, x, torch._inductor.aoti_load_package(package)(x))


def test_the_older_exporter_of_torch_takes_it_too(tmp_path, generator):
    net = radnet.RadNet((3, 16, 2), "squash", shift=0.3, generator=generator).eval()
    x = torch.randn(8, 3, generator=generator)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), str(tmp_path / "old.onnx"), dynamo=False, verbose=False)
    assert_near(net, x, run(tmp_path / "old.onnx", x))


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    radnet.compress(radnet.RadNet((2, 32, 1))).save("small.safetensors")
    np.save("x.npy", np.ones((4, 2), dtype=np.float32))
    assert (
        main(
            ["export", "small.safetensors", "net.onnx", "--onnx", "--weights", "float16", "--inputs", "x.npy", "--json"]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["weights"], said["rows"], said["file"]) == ("onnx", "float16", 4, "net.onnx")
    assert main(["export", "small.safetensors", "net.pt2", "--torch"]) == 0
    assert main(["export", "small.safetensors", "net.onnx", "--onnx"]) == 2
    assert main(["export", "small.safetensors", "other.onnx"]) == 2
    assert main(["export", "small.safetensors", "other.onnx", "--onnx", "--c"]) == 2
    assert main(["export", "small.safetensors", "other.onnx", "--onnx", "--weights", "int4"]) == 2
    errors = capsys.readouterr().err
    assert "net.onnx exists" in errors
    assert errors.count("say as what, with one of --onnx, --c, --torch, --hub") == 2
    assert "expected float16 or int8" in errors


def test_options_of_another_format_are_refused_and_the_source_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    radnet.save(radnet.RadNet((2, 32, 1)), "net.safetensors")
    before = (tmp_path / "net.safetensors").read_bytes()
    assert main(["export", "net.safetensors", "net.h", "--c", "--weights", "int8"]) == 2
    assert main(["export", "net.safetensors", "net.onnx", "--onnx", "--dtype", "float64"]) == 2
    assert main(["export", "net.safetensors", "net.safetensors", "--onnx", "--force"]) == 2
    errors = capsys.readouterr().err
    assert "--weights: says nothing about --c" in errors
    assert "is the network itself" in errors
    assert (tmp_path / "net.safetensors").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("activation", ["squash", "step_relu", "sigmoid"])
def test_in_float64_zeros_stay_zeros(activation, tmp_path, generator):
    """Bounds of norms that float32 has not were 0 in the graph, where another constant was 0 too."""
    net = radnet.RadNet((3, 8, 8, 2), activation, bias=False, shift=0.3, dtype=torch.float64, generator=generator)
    found = radnet.export_onnx(net, tmp_path / "a.onnx")
    x = torch.zeros(4, 3, dtype=torch.float64)
    assert torch.equal(run(tmp_path / "a.onnx", x, optimization=found.optimization), torch.zeros(4, 2).double())


class Written(nn.Module):
    """A linear layer and whatever a function makes of it."""

    def __init__(self, function, **buffers):
        super().__init__()
        self.layer, self.function = nn.Linear(3, 3), function
        for name, x in buffers.items():
            self.register_buffer(name, x)

    def forward(self, x):
        return self.function(self, x)


def counting(m, x):
    m.n += 1
    return m.layer(x) + m.n


ANOTHER_FUNCTION = {
    "a hundred rows at most": (lambda m, x: m.layer(x[:100]), {}, "101 rows: the exported model gives shapes"),
    "otherwise beyond a thousand": (
        lambda m, x: -m.layer(x) if x.shape[0] > 1000 else m.layer(x),
        {},
        "1001 rows, row",
    ),
    "a length that is a number": (lambda m, x: -m.layer(x) if len(x) > 1000 else m.layer(x), {}, "makes a constant of"),
    "otherwise at seven": (lambda m, x: m.layer(x) if x.shape[0] != 7 else x, {}, "7 rows, row"),
    "too many to try": (lambda m, x: -m.layer(x) if x.shape[0] > 10**7 else m.layer(x), {}, "too many to compare"),
    "by chance": (lambda m, x: nn.functional.dropout(m.layer(x), 0.5, True), {}, "draws random numbers"),
    "a state": (counting, {"n": torch.zeros(())}, "depends on what earlier calls left"),
    "beyond the range of torch's graph": (lambda m, x: nn.functional.logsigmoid(m.layer(x)), {}, "a thousand times"),
    "words": (lambda m, x: (m.layer(x), "words"), {}, "gives 'words' among its outputs"),
}


@pytest.mark.parametrize("name", ANOTHER_FUNCTION)
def test_what_would_be_another_function_elsewhere_is_refused(name, tmp_path, generator):
    function, buffers, said = ANOTHER_FUNCTION[name]
    with pytest.raises(InvalidValue, match=said):
        radnet.export_onnx(Written(function, **buffers), tmp_path / "a.onnx", torch.randn(20, 3, generator=generator))
    assert list(tmp_path.iterdir()) == []


def test_a_program_refuses_numbers_of_rows_by_itself_and_says_so(tmp_path, generator):
    model = Written(lambda m, x: -m.layer(x) if x.shape[0] > 20 else m.layer(x))
    x = torch.randn(20, 3, generator=generator)
    with pytest.raises(InvalidValue, match=r"21 rows: the program refuses .* give dynamic=False"):
        export_program(model, tmp_path / "a.pt2", x)
    export_program(model, tmp_path / "a.pt2", x, dynamic=False)
    with pytest.raises(InvalidType, match="dynamic='no': expected True or False"):
        export_program(model, tmp_path / "a.pt2", x, dynamic="no")


def test_rows_that_must_be_even_and_open_lists_of_arguments_are_written(tmp_path, generator):
    x = torch.randn(20, 3, generator=generator)
    pairs = Written(lambda m, x: m.layer(x).reshape(-1, 2, 3))
    radnet.export_onnx(pairs, tmp_path / "a.onnx", x)
    assert torch.allclose(run(tmp_path / "a.onnx", x[:6]), pairs(x[:6]).detach(), atol=1e-6)

    class Any(nn.Module):
        def forward(self, *xs):
            return sum(xs)

    radnet.export_onnx(Any(), tmp_path / "b.onnx", (x, x))
    assert torch.allclose(run(tmp_path / "b.onnx", x[:6], x[:6]), 2 * x[:6])


class Permuted(nn.Module):
    """A table of indices before a table of vectors."""

    def __init__(self, generator):
        super().__init__()
        self.register_buffer("order", torch.randperm(5000, generator=generator))
        self.table = nn.Embedding(5000, 4)

    def forward(self, i):
        return self.table(torch.index_select(self.order, 0, i))


def test_shorter_weights_leave_indices_alone_and_refuse_what_is_not_finite(tmp_path, generator):
    model, i = Permuted(generator), torch.arange(3000, 3020)
    for kind in ("float16", "int8"):
        found = radnet.export_onnx(model, tmp_path / "a.onnx", i, weights=kind)
        assert found.gap < 0.02 * found.scale
        other = torch.arange(4000, 4050)
        assert float((run(tmp_path / "a.onnx", other) - model(other).detach()).abs().max()) < 0.05
    with torch.no_grad():
        model.table.weight[7, 1] = -torch.inf
    for kind in ("float16", "int8"):
        with pytest.raises(InvalidValue, match="has numbers that are not finite"):
            radnet.export_onnx(model, tmp_path / "b.onnx", i, weights=kind)
    part = Written(lambda m, x: m.layer(torch.einsum("ij,bj->bi", m.W, x)), W=torch.eye(3))
    assert radnet.export_onnx(part, tmp_path / "c.onnx", torch.ones(4, 3), weights="int8").weights in (
        "int8",
        "float32, int8",
    )


@pytest.mark.parametrize("h", [lambda r: 1 / r**2, torch.acosh, lambda r: torch.exp(1 / r)])
def test_a_profile_without_a_limit_at_0_is_0_there(h, generator):
    rho = radnet.Radial(h)
    v = torch.cat([torch.zeros(2, 3), 2 + torch.rand(3, 3, generator=generator)])
    assert torch.allclose(torch.jit.trace(rho, (v,), check_trace=False)(v), rho(v))


def test_what_is_wrong_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    from radnet.export import onnx as ours

    def never(*arguments, **options):
        raise AssertionError("this takes its time")

    net = radnet.RadNet((2, 8, 1))
    monkeypatch.setattr(ours, "prepared", never)
    monkeypatch.setattr(ours, "_LARGEST", 10)
    for path, options, kind, said in (
        (tmp_path / "none" / "a.onnx", {}, radnet.errors.MissingFile, "there is no folder"),
        (tmp_path, {}, InvalidValue, "is a folder"),
        (tmp_path / "a.onnx", {"certificate": 5}, InvalidType, "expected what radnet.verify gives"),
        (tmp_path / "a.onnx", {"certificate": {}}, InvalidType, "expected what radnet.verify gives"),
        (tmp_path / "a.onnx", {"certificate": {"lossless": np.nan}}, InvalidValue, "expected plain finite data"),
        (tmp_path / "a.onnx", {}, InvalidValue, "132 bytes of weights; an ONNX file has at most 2 GiB"),
    ):
        with pytest.raises(kind, match=said):
            radnet.export_onnx(net, path, **options)


def test_errors_speak_of_this_function(tmp_path):
    with pytest.raises(InvalidValue, match=r"export has to run it once, .* give inputs"):
        radnet.export_onnx(nn.Conv2d(1, 2, 3), tmp_path / "a.onnx")
    with pytest.raises(InvalidType, match="give it model._orig_mod"):
        radnet.export_onnx(torch.compile(nn.Linear(2, 1)), tmp_path / "a.onnx")
    own = type("Net", (nn.Linear,), {"__module__": "my_quantized_nets"})
    radnet.export_onnx(own(2, 1), tmp_path / "a.onnx")
