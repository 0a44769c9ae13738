"""A network as C: compiled without a warning, the same function, no heap, clean under the sanitizers."""

import ctypes
import itertools
import json
import math
import random
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from radnet.cli import main
from radnet.errors import InvalidType, InvalidValue
from radnet.export import export_c
from radnet.export.plan import plan_of
from radnet.models import BlockRadialMLP, ResidualRadialMLP

CC = shutil.which("cc")
STRICT = ["-O2", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-std=c99"]
CTYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
needs_a_compiler = pytest.mark.skipif(CC is None, reason="no C compiler")


def compiled(model, folder, **options):
    """The rows of a tensor through the C of a model."""
    export_c(model, folder / "network.h", **options)
    text = (folder / "network.h").read_text()
    real = "double" if "static const double" in text else "float"
    (folder / "run.c").write_text(
        f'#include "network.h"\nvoid run(const {real} *x, {real} *y, size_t rows);\n'
        f"void run(const {real} *x, {real} *y, size_t rows) {{ network_rows(x, y, rows); }}\n"
    )
    library = folder / f"lib{random.getrandbits(40)}.so"  # a library that is loaded stays the same
    subprocess.run([CC, *STRICT, "-fPIC", "-shared", folder / "run.c", "-o", library, "-lm"], check=True, cwd=folder)
    function = ctypes.CDLL(str(library)).run
    plan = plan_of(model, options.get("dtype"))

    def run(x):
        x = np.ascontiguousarray(x.numpy())
        y = np.full((len(x), plan.widths[-1]), np.nan, x.dtype)
        pointers = [array.ctypes.data_as(ctypes.POINTER(CTYPES[plan.dtype])) for array in (x, y)]
        function(*pointers, ctypes.c_size_t(len(x)))
        return torch.from_numpy(y)

    return run


def random_model(seed):
    """A chain, one in blocks, a residual MLP, or a Sequential with odd parts; some of them compressed."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    name = rng.choice(["squash", "sigmoid", "shifted_relu", "step_relu"])
    shift = rng.choice([None, 0.25, "trainable"])
    n, m = rng.randint(1, 9), rng.randint(1, 5)
    kind = seed % 5
    if kind == 0:
        widths = (n, *(rng.randint(1, 40) for _ in range(rng.randint(0, 4))), m)
        output = rng.choice([None, "squash"])
        model = radnet.RadNet(widths, name, shift=shift, bias=rng.random() < 0.8, output=output or "identity")
    elif kind == 1:
        block = rng.randint(1, 4)
        widths = (n, *(block * rng.randint(1, 8) for _ in range(rng.randint(1, 3))), m)
        model = BlockRadialMLP(widths, block=block, activation=name, shift=shift)
    elif kind == 2:
        sizes = {"width": rng.randint(2, 20), "hidden": rng.randint(2, 30), "depth": rng.randint(0, 3)}
        model = ResidualRadialMLP(n, m, **sizes, activation=name, shift=shift)
    elif kind == 3:
        rho = radnet.Squash(blocks=(3, 5, 1)) if rng.random() < 0.5 else radnet.Identity(shift=0.5)
        model = nn.Sequential(nn.Linear(n, 9), rho, nn.Dropout(0.5), nn.Linear(9, 6, bias=False), radnet.Squash(dim=1))
    else:
        model = nn.Sequential(nn.Linear(n, 24), nn.RMSNorm(24, eps=rng.choice([1e-6, None])), nn.Linear(24, m))
        return radnet.compress(model.eval()).network
    for p in model.parameters():
        if p.ndim == 0:
            nn.init.constant_(p, 0.2)
        elif p.ndim == 1:
            nn.init.normal_(p, std=0.3)
    model = model.eval()
    return radnet.compress(model).network if rng.random() < 0.4 and kind != 3 else model


def excused(model, x):
    """The rows in float64, and for each ten times what one ulp of the dtype does to it."""
    dtype, wide = next(model.parameters()).dtype, radnet.running.in_float64
    exact, worst = wide(model)(x), torch.zeros(len(x), dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    for _ in range(4):
        with torch.no_grad():
            other = radnet.running.copied(model, lambda p: radnet.measuring.nudged(p, rng).to(dtype))
        worst = torch.maximum(worst, (wide(other)(x) - exact).abs().amax(1))
    return exact, 10 * worst


@needs_a_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_c_of_a_random_network_is_the_same_function(dtype, tmp_path, count, evidence):
    worst, number, far = 0.0, count(10, 100), 0
    for seed in range(number):
        model = random_model(seed).to(dtype)
        n = plan_of(model).widths[0]
        x = torch.randn(40, n, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        x[0] = 0
        y = compiled(model, tmp_path)(x)
        assert torch.isfinite(y).all(), seed
        exact, allowed = excused(model, x)
        gap, scale = (y.double() - exact).abs().amax(1), exact.abs().amax(1)
        eps = torch.finfo(dtype).eps
        beyond = gap > torch.where(scale > 0, 256 * eps * scale, allowed)
        far += int(beyond.sum())
        jumps = any(m.jumps for m in model.modules() if isinstance(m, radnet.RadialActivation))
        assert int(beyond.sum()) <= (1 if jumps else 0), (seed, model, gap[beyond])
        worst = max(worst, float((gap / (eps * scale).clamp(min=1e-300))[~beyond & (scale > 0)].max()))
    evidence(f"C, {dtype}", networks=number, worst_in_eps=worst, rows_at_a_jump=far)


@needs_a_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["squash", "sigmoid", "shifted_relu", "step_relu"])
def test_norms_of_every_size_are_rescaled_as_in_pytorch(dtype, name, tmp_path):
    eye = [torch.eye(3, dtype=dtype)] * 2
    rho = radnet.activations.named_activation(name)
    net = radnet.RadNet.from_parameters(eye, [None, None], [rho, radnet.Identity()])
    info = torch.finfo(dtype)
    sizes = torch.logspace(math.log10(info.tiny) - 3, math.log10(info.max) - 0.6, 400, dtype=torch.float64)
    x = (sizes[:, None] * torch.tensor([0.6, -0.5, 0.62])).to(dtype)
    y, expected = compiled(net, tmp_path)(x), net(x).detach()
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y, expected, rtol=8 * info.eps, atol=4 * info.tiny)
    assert compiled(net, tmp_path)(torch.full((1, 3), math.nan, dtype=dtype)).isnan().all()
    assert (compiled(net, tmp_path)(torch.zeros(1, 3, dtype=dtype)) == 0).all()


MAIN = """
#include <stdio.h>
#include "network.h"
int main(void)
{
    static float x[8 * network_inputs], y[8 * network_outputs];
    int i;
    for (i = 0; i < 8 * network_inputs; i++) x[i] = (float)(i % 7) - 3;
    network_rows(x, y, 8);
    printf("%.9g\\n", (double)y[8 * network_outputs - 1]);
    return 0;
}
"""


@needs_a_compiler
@pytest.mark.parametrize("seed", range(5))
def test_sanitizers_find_nothing(seed, tmp_path):
    export_c(random_model(seed), tmp_path / "network.h")
    (tmp_path / "main.c").write_text(MAIN)
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n")
    if subprocess.run([CC, *checks, "empty.c", "-o", "empty"], cwd=tmp_path, check=False).returncode:
        pytest.skip("the compiler has no sanitizers")
    subprocess.run([CC, *STRICT, "-g", *checks, "main.c", "-o", "main", "-lm"], cwd=tmp_path, check=True)
    end = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False, timeout=60)
    assert (end.returncode, end.stderr) == (0, "")
    float(end.stdout)


@needs_a_compiler
def test_a_compressed_network_is_small_and_needs_no_heap(tmp_path, evidence):
    net = radnet.RadNet((30, 512, 512, 512, 1), "squash", generator=torch.Generator().manual_seed(0))
    size = export_c(radnet.compress(net).network, tmp_path / "network.h")
    (tmp_path / "run.c").write_text(
        '#include "network.h"\nvoid run(const float *x, float *y);\n'
        "void run(const float *x, float *y) { network(x, y); }\n"
    )
    subprocess.run([CC, *STRICT, "-c", "run.c", "-o", "run.o"], cwd=tmp_path, check=True)
    named = subprocess.run(
        ["nm", "--undefined-only", "run.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert set(named.stdout.split()) - {"U"} <= {"sqrt", "_GLOBAL_OFFSET_TABLE_"}
    sections = subprocess.run(["size", "run.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    total = int(sections.splitlines()[1].split()[3])
    evidence("C of a compressed (30, 512, 512, 512, 1)", weights=size, object_bytes=total)
    assert size == 4 * 3108
    assert total < 40_000


def test_numbers_are_those_of_the_network_to_the_last_bit(tmp_path):
    net = radnet.RadNet((2, 3, 1), "squash", generator=torch.Generator().manual_seed(0))
    export_c(net, tmp_path / "n.h", name="mine")
    text = (tmp_path / "n.h").read_text()
    for k, (W, b) in enumerate(zip(net.weights, net.biases, strict=True), start=1):
        for letter, x in (("W", W), ("b", b)):
            body = re.search(rf"mine_{letter}{k}\[\d+\] = \{{(.*?)\}}", text, re.S)[1]
            numbers = [float.fromhex(word.rstrip("f")) for word in body.replace(",", " ").split()]
            assert numbers == x.detach().flatten().tolist()


@needs_a_compiler
@pytest.mark.parametrize("kind", ["layer", "activation", "block"])
def test_parts_that_serve_twice_are_written_twice(kind, tmp_path):
    torch.manual_seed(0)
    layer, rho = nn.Linear(4, 4), radnet.Squash(shift=0.2)
    block = nn.Sequential(nn.Linear(4, 4), radnet.Squash())
    parts = {
        "layer": (layer, radnet.Squash(), layer),
        "activation": (nn.Linear(4, 4), rho, nn.Linear(4, 4), rho),
        "block": (block, block, nn.Linear(4, 1)),
    }
    model, x = nn.Sequential(*parts[kind]), torch.randn(9, 4)
    torch.testing.assert_close(compiled(model, tmp_path)(x), model(x).detach(), rtol=1e-5, atol=1e-6)


def test_activations_that_are_alike_share_a_function(tmp_path):
    net = radnet.RadNet((2, 3, 3, 3, 1), ["squash", "sigmoid", "squash"])
    export_c(net, tmp_path / "n.h")
    assert len(re.findall(r"^static inline void network_rho\d", (tmp_path / "n.h").read_text(), re.M)) == 2


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    model = nn.Sequential(nn.Linear(2, 3), radnet.Squash())
    model[0].register_forward_hook(lambda m, x, y: 2 * y)
    return model


def hooked_inside(part):
    net = radnet.RadNet((2, 3, 1), "shifted_relu")
    getattr(net, part)[0].register_forward_hook(lambda m, x, y: 2 * y)
    return net


def with_its_own_forward():
    net = radnet.RadNet((2, 3, 1))
    net.layers[0].forward = lambda x: torch.ones(len(x), 3)
    return net


def with_its_own_profile():
    rho = radnet.Squash()
    rho.profile = torch.sin
    return nn.Sequential(nn.Linear(2, 3), rho)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU()), InvalidType, "^1: this ReLU is not written"),
        (lambda: nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3))), InvalidType, "^0.0: this Conv2d is not written"),
        (lambda: nn.Sequential(Doubled(2, 3)), InvalidType, "^0: this Doubled is not written"),
        (hooked, InvalidType, "^0: this Linear has hooks"),
        (lambda: hooked_inside("layers"), InvalidType, "^RadNet: layer 1: this Linear has hooks"),
        (lambda: hooked_inside("rescalings"), InvalidType, "^RadNet: activation 1: this ShiftedReLU has hooks; what"),
        (with_its_own_forward, InvalidType, "^RadNet: layer 1: this Linear is not written"),
        (lambda: radnet.RadNet((2, 3)).to("meta"), InvalidValue, "layer 1: is on the meta device"),
        (with_its_own_profile, InvalidType, "^1: this Squash"),
        (lambda: nn.Sequential(nn.Linear(2, 3), radnet.Radial(torch.tanh)), InvalidType, "^1: a Radial has a profile"),
        (lambda: nn.Sequential(nn.Linear(2, 3), radnet.Squash(dim=2)), InvalidType, "^1: this Squash lies along"),
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 1)), InvalidValue, "^1: reads 4 entries, but 3 arrive"),
        (lambda: nn.Sequential(nn.Linear(2, 3), radnet.Squash(blocks=2)), InvalidValue, "does not split"),
        (lambda: nn.Sequential(radnet.Squash(), nn.Linear(2, 3)), InvalidValue, "^0: an activation before the first"),
        (lambda: radnet.RadNet((2, 3)).to(torch.bfloat16), InvalidValue, "torch.float32 or torch.float64"),
        (lambda: nn.Sequential(), InvalidValue, "0 dtypes"),
        (lambda: "network", InvalidType, "got a str"),
    ],
)  # fmt: skip
def test_what_has_no_c_is_refused_by_name_and_nothing_is_written(make, error, match, tmp_path):
    with pytest.raises(error, match=match):
        export_c(make(), tmp_path / "n.h")
    assert list(tmp_path.iterdir()) == []


def test_names_sizes_and_numbers_that_do_not_go(tmp_path):
    net = radnet.RadNet((2, 3, 1))
    for name in (
        "int",
        "1st",
        "a-b",
        "",
        "ä",
        3,
        "x",
        "kept",
        "sqrtf",
        "fabs",
        "NULL",
        "size_t",
        "exp",
        "atanhl",
        "isnan",
    ):
        with pytest.raises(InvalidValue, match="a name for a function of C"):
            export_c(net, tmp_path / "n.h", name=name)
    with pytest.raises(InvalidValue, match="take 52 bytes, above max_bytes=51"):
        export_c(net, tmp_path / "n.h", max_bytes=51)
    with torch.no_grad():
        net.weights[0][0, 0] = math.inf
    with pytest.raises(InvalidValue, match="layer 1: has numbers that are not finite"):
        export_c(net, tmp_path / "n.h")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_header(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    radnet.save(radnet.RadNet((2, 3, 1)), "net.safetensors")
    assert main(["export", "net.safetensors", "net.h", "--c", "--name", "mine", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"file": "net.h", "format": "c", "name": "mine", "bytes": 52}
    assert "static inline void mine(const float *x, float *y)" in (tmp_path / "net.h").read_text()
    for more, said in itertools.chain(
        [((), "net.h exists; use --force"), (("--force", "--max-bytes", "8"), "above max_bytes=8")],
        [(("--force", "--dtype", "int8"), "--dtype int8: expected float32 or float64")],
    ):
        assert main(["export", "net.safetensors", "net.h", "--c", *more]) == 2
        assert said in capsys.readouterr().err
    assert main(["export", "net.safetensors", "other.h"]) == 2
    assert "say as what" in capsys.readouterr().err
    assert main(["export", "net.safetensors", "net.h", "--c", "--dtype", "float64", "--force"]) == 0
    assert "104 bytes" in capsys.readouterr().out


class Twice(nn.Sequential):
    def __call__(self, x):
        return 2 * super().__call__(x)


class Backwards(nn.Sequential):
    def __iter__(self):
        return reversed(list(super().__iter__()))


def residual(**parts):
    model = radnet.models.ResidualRadialMLP(3, 2, width=4, hidden=5, depth=2)
    for name, part in parts.items():
        setattr(model, name, part)
    return model


def shifted(shift):
    rho = radnet.Squash(shift=0.5)
    rho.shift = torch.tensor(shift)
    return nn.Sequential(nn.Linear(2, 2), rho)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Twice(nn.Linear(3, 2)), "this Twice is not written"),
        (lambda: Backwards(nn.Linear(3, 3), radnet.Squash(), nn.Linear(3, 3)), "this Backwards is not written"),
        (lambda: residual(stem=nn.Identity()), r"blocks.0: no linear layer stands before it"),
        (
            lambda: residual(stem=nn.Linear(3, 1), blocks=nn.ModuleList([nn.Linear(1, 4)])),
            "blocks.0: reads 1 entries and gives 4",
        ),
        (lambda: shifted([0.1, 0.2]), "its shift is not one finite number"),
        (lambda: shifted(float("nan")), "its shift is not one finite number"),
        (lambda: nn.Sequential(nn.Identity()), "0 dtypes: it has none, or is quantised"),
    ],
)
def test_what_is_not_what_its_class_says_is_not_written(make, said, tmp_path):
    with pytest.raises(radnet.RadNetError, match=said):
        export_c(make(), tmp_path / "net.h")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["linux", "finite", "printf", "malloc", "strlen", "remove", "index", "toupper"])
def test_names_that_are_taken_beside_the_header_are_refused(name, tmp_path):
    with pytest.raises(radnet.RadNetError, match="that is free: more than one letter"):
        export_c(radnet.RadNet((2, 5, 3)), tmp_path / "net.h", name=name)


def test_words_of_the_template_may_be_in_a_name(tmp_path):
    export_c(radnet.RadNet((2, 5, 3), "squash", shift=0.5), tmp_path / "net.h", name="netTYPE_SHIFT")
    text = (tmp_path / "net.h").read_text()
    assert "static inline void netTYPE_SHIFT_affine(const float *W" in text
    assert "netfloat" not in text
