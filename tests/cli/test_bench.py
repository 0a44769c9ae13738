"""`radnet bench`: times in turns, claims, curves, pictures."""

import json

import pytest
import torch

import radnet
from radnet.bench import baselines
from radnet.bench.comparisons import Claim, Comparison, comparisons
from radnet.bench.growth import CURVES, Point, exponent
from radnet.bench.report import Measured
from radnet.bench.timing import Times, interleave
from radnet.cli import main
from radnet.native.library import LIBRARY


def times(ms):
    return Times(ms, ms, ms)


def test_runs_take_turns_and_warm_up_without_being_timed():
    seen, told = [], []
    found = interleave(
        {"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, rounds=3, warmup=2, repeats=2, tell=told.append
    )
    assert "".join(seen) == "aabb" * 5
    assert told == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(0 <= t.q1_ms <= t.median_ms <= t.q3_ms for t in found.values())


def test_a_claim_holds_or_fails_and_says_what_was_measured():
    claims = (
        Claim("b at most 2 of a", "b", "a", at_most=2),
        Claim("b at least 4 of a", "b", "a", at_least=4),
        Claim("with kernels", "b", "a", native=LIBRARY is not None),
        Claim("the other way", "b", "a", native=LIBRARY is None),
        Claim("of something that was not run", "c", "a"),
    )
    found = Measured(Comparison("pair", "a", dict, claims), {"a": times(2.0), "b": times(6.0)})
    assert [(c.text, ratio, holds) for c, ratio, holds in found.verdicts()] == [
        ("b at most 2 of a", 3.0, False), ("b at least 4 of a", 3.0, False), ("with kernels", 3.0, True),
    ]  # fmt: skip
    assert "FAILS   b at most 2 of a: 3.00" in found.text()


@pytest.mark.parametrize("p", [0.5, 1.0, 3.0])
def test_the_exponent_is_that_of_the_upper_half(p):
    floor = 100.0
    points = [Point(n, times(max(floor, n**p))) for n in (1, 2, 2**16, 2**17, 2**18, 2**19)]
    assert exponent(points) == pytest.approx(p, abs=0.01)


def test_the_baselines_are_the_functions_they_are_compared_with(generator):
    v = torch.randn(5, 8, generator=generator)
    torch.testing.assert_close(baselines.naive_squash(v), radnet.Squash()(v))
    net = radnet.RadNet((3, 20, 20, 2), "sigmoid", generator=generator)
    x = torch.randn(6, 3, generator=generator)
    torch.testing.assert_close(baselines.AsThePaperSays(net)(x), net(x))
    expected = [A.abs() for A in radnet.compress(net).network.double().merged()]
    for found in (baselines.complete_qr(net), baselines.floor_of_compression(net)):
        for A, B in zip(found, expected, strict=True):  # up to signs, which a rule of ours fixes
            torch.testing.assert_close(torch.as_tensor(A).abs(), B, rtol=1e-5, atol=1e-6)


def test_every_comparison_names_runs_that_it_has():
    for c in comparisons():
        if not c.slow and "experiment 3" not in c.name:
            runs = c.runs()
            assert c.against in runs
            assert {name for claim in c.claims for name in (claim.of, claim.beside)} <= runs.keys()


def test_curves_have_the_sizes_that_they_say():
    for curve in CURVES:
        size, run = curve.run(curve.quick[0])
        run()
        assert curve.quick[0] <= size <= 2 * curve.quick[0]


def test_the_command_prints_writes_and_draws(tmp_path, capsys):
    assert main(["bench", "--quick", "--only", "64 x 64, no gradient", "--out", str(tmp_path), "--json", "-q"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "bench.json").read_text())
    assert len(data["comparisons"]) == 2
    assert data["machine"]["kernels"] == (LIBRARY is not None)
    assert "| squashing function alone, 64 x 64, no gradient |" in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "comparisons.svg").read_text().startswith("<?xml")
    assert main(["bench", "--quick", "--only", "by nobody"]) == 2
    assert "no comparison or curve has 'by nobody' in its name" in capsys.readouterr().err
