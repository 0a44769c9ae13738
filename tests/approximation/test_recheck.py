"""Certificates read from files say that they were recorded, and are measured again; forged ones are found."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import radnet
from radnet.approximation import load
from radnet.cli import main
from radnet.expressions import parse_formula
from radnet.reading import enough_memory, pack, unpack

KEY = "radnet-approximation"
FORMULA = "sin(x1) * x2, x1 + x2"
FORMULA_OF_ONE = "where(x1 > 0.999985, 1000, 0), 0*x"  # not 0 at one point of 100,000


def made(width="max+1", domain=None, dtype=torch.float64, f=None):
    domain = domain or radnet.Box([0, 0], [1, 1])
    lipschitz = None if isinstance(domain, radnet.Points) else 2.2
    f = f or parse_formula(FORMULA)
    return radnet.approximate(f, domain, 0.5, lipschitz=lipschitz, width=width, dtype=dtype)


def rewritten(path, tmp_path, change):
    """The file with something in it changed and a checksum that is right: what a forger writes."""
    header, tensors = unpack(path, KEY, 2, "")
    change(header, tensors)
    forged = tmp_path / "forged.safetensors"
    forged.write_bytes(pack(tensors, KEY, header))
    return forged


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("width", ["growing", "n+m+1", "max+1", "max"])
@pytest.mark.parametrize(
    "domain",
    [
        radnet.Box([0, -1], [1, 1]),
        radnet.Ball([0, 0.5], 1),
        radnet.Points(np.random.default_rng(0).random((40, 2))),
    ],
)
def test_an_approximation_holds_again_after_it_was_written_and_read(width, domain, dtype, tmp_path):
    a = made(width, domain, dtype)
    assert not a.certificate.recorded
    a.save(tmp_path / "a")
    b = load(tmp_path / "a")
    assert b.certificate.recorded
    assert not b.network.training
    assert "recorded       in the file; not measured again" in b.report()
    assert "recorded" not in a.report()
    assert repr(b.domain) == repr(domain)
    assert b.formula == FORMULA
    found = b.recheck(points=500)
    assert found.holds
    assert found.against == f"the formula {FORMULA}"
    assert 0 < found.from_f <= found.bound < found.eps
    assert found.uncovered == 0


def test_what_it_was_measured_against_is_said(tmp_path):
    a = made(f=lambda x: torch.stack([x[:, 0].sin() * x[:, 1], x.sum(1)], 1))
    a.save(tmp_path / "a")
    b = load(tmp_path / "a")
    alone = b.recheck()
    assert (alone.holds, alone.from_f) == (True, None)
    assert alone.against == "its closed form alone: f is neither given nor in the file"
    given = b.recheck(parse_formula(FORMULA))
    assert (given.holds, given.against) == (True, "f as given")
    assert not b.recheck(parse_formula("x1 + 1, x2")).holds
    with pytest.raises(radnet.RadNetError, match="points=0: expected a positive whole number"):
        b.recheck(points=0)


def forged_eps(header, tensors):
    header["certificate"] |= {"eps": 1e-9, "bound": 1e-10}


def forged_bound(header, tensors):
    header["certificate"]["bound"] = 0.6


def moved_values(header, tensors):
    tensors["outputs"] += 0.01


def moved_weights(header, tensors):
    tensors["network.last_bias"] = tensors["network.last_bias"] + 1e-6


def larger_domain(header, tensors):
    header["domain"]["hi"] = [3.0, 3.0]


FORGERIES = [forged_eps, forged_bound, moved_values, moved_weights, larger_domain]


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("formula", [True, False])
def test_what_was_forged_is_found_when_it_is_measured(forgery, formula, tmp_path):
    a = made()
    a.save(tmp_path / "a")

    def change(header, tensors):
        name = next(name for name in tensors if name.startswith("network.") and name.endswith("bias"))
        tensors["network.last_bias"] = tensors.pop(name)
        forgery(header, tensors)
        tensors[name] = tensors.pop("network.last_bias")
        if not formula:
            header["formula"] = None

    b = load(rewritten(tmp_path / "a", tmp_path, change))
    assert b.certificate.recorded
    if forgery is forged_eps and not formula:  # that needs f
        assert b.recheck().from_f is None
        assert not b.recheck(parse_formula(FORMULA)).holds
    else:
        assert not b.recheck().holds


def test_files_of_earlier_versions_are_measured_at_the_points_they_have(tmp_path):
    made().save(tmp_path / "a")

    def older(header, tensors):
        del header["domain"], header["formula"]

    b = load(rewritten(tmp_path / "a", tmp_path, older))
    assert (b.domain, b.formula) == (None, None)
    found = b.recheck(parse_formula(FORMULA))
    assert found.holds
    assert found.points == len(b.cover)
    assert found.against == (
        f"f as given; at the {len(b.cover):,} points in the file alone, which does not say what the domain is"
    )
    assert f"looked at      {len(b.cover):,} points in the file, which does not say what" in found.report()
    assert "recorded for   the domain Box([0.0, 0.0], [1.0, 1.0]); only what was looked at was" in found.report()


def test_a_file_without_a_domain_counts_a_point_once(tmp_path):
    made().save(tmp_path / "a")

    def older(header, tensors):
        header["domain"], tensors["cover.samples"][:] = None, tensors["cover.samples"][:1].clone()

    found = load(rewritten(tmp_path / "a", tmp_path, older)).recheck()
    assert found.points == 1
    assert "at the 1 points in the file alone" in found.against


def test_all_points_of_a_finite_domain_are_looked_at(tmp_path):
    """Also those that would not be drawn: one wrong value in 100,000 is found."""
    x = np.stack([np.arange(100_000) / 100_000, np.zeros(100_000)], 1)
    made("growing", radnet.Points(x[:5]), f=parse_formula("0*x, 0*x")).save(tmp_path / "a")

    def forged(header, tensors):
        tensors["domain.x"], header["formula"] = torch.tensor(x), FORMULA_OF_ONE
        for name in ("inner", "radii", "outer"):
            tensors[f"cover.{name}"] *= 1e6

    def honest(header, tensors):
        forged(header, tensors)
        header["formula"] = "0*x, 0*x"

    found = load(rewritten(tmp_path / "a", tmp_path, forged)).recheck(points=10)
    assert (found.points, found.from_f, found.holds) == (100_000, 1000, False)
    assert load(rewritten(tmp_path / "a", tmp_path, honest)).recheck().from_f == 0
    assert found.domain == "all of the domain Points(100000 points in R^2)"


def test_random_points_are_others_every_time_unless_a_seed_says_so():
    a = made()
    seen = []

    def f(x):
        seen.append(x.clone())
        return parse_formula(FORMULA)(x)

    for seed in (None, None, 3, 3):
        assert a.recheck(f, points=50, seed=seed).holds
    drawn = [x for x in seen if len(x) == 50 and not torch.equal(x, torch.from_numpy(a.cover.samples[:50]))]
    assert len(drawn) == 4
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[2], drawn[3])
    for wrong in (-1, 0.5, True, "x"):
        with pytest.raises(radnet.RadNetError, match="expected a whole number, at least 0"):
            a.recheck(seed=wrong)


def a_large_rounding(header, tensors):
    header["certificate"]["rounding"] = 1e300
    tensors["outputs"].fill_(12345.0)


def a_rounding_above_the_bound(header, tensors):
    header["certificate"]["rounding"] = 1.01 * header["certificate"]["bound"]


@pytest.mark.parametrize("forgery", [a_large_rounding, a_rounding_above_the_bound])
def test_a_rounding_beyond_the_bound_excuses_nothing(forgery, tmp_path):
    made().save(tmp_path / "a")

    def forged(header, tensors):
        header["formula"] = None
        forgery(header, tensors)

    assert not load(rewritten(tmp_path / "a", tmp_path, forged)).recheck().holds


def test_an_approximation_most_of_whose_points_are_near_a_sphere_does_not_hold():
    a = made()
    wide = dataclasses.replace(a, cover=dataclasses.replace(a.cover, slack=1e9))
    found = wide.recheck()
    assert (found.from_closed_form, found.near_a_sphere) == (0, found.points)
    assert not found.holds
    assert f"near a sphere  {found.points:,} points, not compared" in found.report()


def test_what_was_looked_at_is_named_and_a_scope_beyond_it_was_not_measured(tmp_path):
    a = made()
    plain = a.recheck(points=20)
    assert plain.whole_scope
    assert plain.domain == "random points of the domain Box([0.0, 0.0], [1.0, 1.0])"
    assert "looked at      random points of the domain Box([0.0, 0.0], [1.0, 1.0])" in plain.report()
    assert "only what was looked at" not in plain.report()
    a.save(tmp_path / "a")

    def everywhere(header, tensors):
        header["certificate"]["scope"] = "all of R^2"

    found = load(rewritten(tmp_path / "a", tmp_path, everywhere)).recheck(points=20)
    assert not found.whole_scope
    assert "recorded for   all of R^2; only what was looked at was measured" in found.report()
    assert "holds          yes, on what was looked at" in found.report()
    limit = radnet.approximate(torch.sin, radnet.Box(0, 3), 1.5, lipschitz=1, limit=([[0]], [0])).recheck(points=20)
    assert limit.holds
    assert "recorded for   all of R^1, up to |x| =" in limit.report()


def test_a_recheck_in_a_high_dimension_looks_at_fewer_points_and_at_few_at_a_time(tmp_path):
    n = 20_000
    a = radnet.approximate(
        lambda x: 0 * x[:, :2], radnet.Points(torch.zeros(1, 3)), 0.1, lipschitz=0.0, width="growing"
    )
    a.save(tmp_path / "a")

    def widened(header, tensors):
        for name, x in list(tensors.items()):
            if x.ndim and x.shape[-1] == 3:
                tensors[name] = torch.zeros(*x.shape[:-1], n, dtype=x.dtype)
        header["domain"] = {"kind": "ball", "centre": [0.0] * n, "radius": 1e-9}
        header["certificate"]["parameters"] = n * (n + 1) + n + 1 + 2 * (n + 1) + 2
        del tensors["domain.x"]

    b = load(rewritten(tmp_path / "a", tmp_path, widened))
    sizes = []

    def f(x):
        sizes.append(x.numel())
        return 0 * x[:, :2]

    found = b.recheck(f)
    assert found.points == 1 + 2**22 // n
    assert b.recheck(f, points=300).points == 301
    assert max(sizes) <= 2**22
    assert len(found.report()) < 20_000


OUT_OF_MEMORY = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000000 bytes")


def test_torch_says_in_its_own_words_that_there_is_no_memory():
    with pytest.raises(radnet.errors.NotEnoughMemory, match="a: not enough memory"), enough_memory("a"):
        torch.empty(2**58, dtype=torch.uint8)


def test_no_memory_and_parts_that_do_not_fit_are_said_in_our_words(monkeypatch):
    for raised, kind in (
        (MemoryError(), radnet.errors.NotEnoughMemory),
        (OUT_OF_MEMORY, radnet.errors.NotEnoughMemory),
        (RuntimeError("sizes differ"), radnet.errors.InvalidValue),
        (IndexError("no such ball"), radnet.errors.InvalidValue),
    ):
        a = made()

        def fails(x, raised=raised):
            raise raised

        monkeypatch.setattr(a.network, "forward", fails)
        with pytest.raises(kind, match="recheck: "):
            a.recheck()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain": {"kind": "box", "lo": [0], "hi": [1]}}, "the domain has 1 coordinates, the network 2"),
        ({"domain": {"kind": "points"}}, "does not hold what its header announces"),
        ({"domain": 7}, "does not hold what its header announces"),
        ({"formula": 7}, "the formula is a int"),
    ],
)
def test_domains_and_formulas_that_are_none_are_refused(change, message, tmp_path):
    made().save(tmp_path / "a")
    path = rewritten(tmp_path / "a", tmp_path, lambda header, tensors: header.update(change))
    with pytest.raises(radnet.RadNetError, match=message):
        load(path)


def test_a_formula_in_a_file_is_parsed_and_never_imported(tmp_path, monkeypatch):
    made().save(tmp_path / "a")
    path = rewritten(tmp_path / "a", tmp_path, lambda header, tensors: header.update(formula="lurking:f"))
    (tmp_path / "lurking.py").write_text("raise SystemError('code was run')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(radnet.RadNetError, match="is not a formula"):
        load(path).recheck()


def smaller_balls(header, tensors):
    tensors["cover.radii"] *= 0.5


def larger_balls(header, tensors):
    tensors["cover.radii"] *= 2


def a_wide_slack(header, tensors):
    header["cover"]["slack"] = 1e9


def a_slack_of_a_thousandth(header, tensors):
    header["cover"]["slack"] = 2e-3 * float(tensors["cover.radii"].min())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("forgery", [smaller_balls, larger_balls, a_wide_slack, a_slack_of_a_thousandth])
def test_a_cover_without_room_for_its_slack_is_refused(forgery, dtype, tmp_path):
    made(dtype=dtype).save(tmp_path / "a")
    with pytest.raises(radnet.RadNetError, match="the cover leaves less room between its inner, own and outer radii"):
        load(rewritten(tmp_path / "a", tmp_path, forgery))


NUMBERS = (None, True, "x", [], {}, -1, 2**62, 1e308)


@pytest.mark.parametrize("width", ["growing", "max"])
def test_every_field_in_a_file_is_checked_before_anything_is_built_from_it(width, tmp_path):
    made(width).save(tmp_path / "a")
    header, _ = unpack(tmp_path / "a", KEY, 2, "")
    fields = [("certificate", name) for name in header["certificate"]] + [("cover", name) for name in header["cover"]]
    accepted = []
    for part, name in fields:
        for value in (*NUMBERS, {"float64": "x", "float32": 0}, {"float64": -1.0}, {"int8": 0.5}):
            path = rewritten(tmp_path / "a", tmp_path, lambda h, t: h[part].update({name: value}))  # noqa: B023
            try:
                b = load(path)
                b.report(), repr(b), b.recheck(points=20).report()
                accepted.append((part, name, value))
            except radnet.RadNetError:
                continue
    numbers = {"eps", "bound", "variation", "snapping", "rounding", "sphere_margin", "threshold_margin"}
    numbers |= {"scale", "unit", "pitch"}
    for _, name, value in accepted:  # numbers of any size, None for infinite, texts, yes and no, bounds of no dtype
        if name in numbers:
            assert value in (2**62, 1e308) or (name, value) == ("threshold_margin", None)
            assert value is not True
        else:
            assert (name, value) in [
                *((text, "x") for text in ("rests_on", "scope", "cover", "kind")),
                ("proven", True), ("bounds", {}), ("reach", {}),
            ]  # fmt: skip


@pytest.mark.parametrize("width", ["growing", "max+1", "max"])
def test_tensors_that_do_not_fit_together_are_refused_when_a_file_is_read(width, tmp_path):
    made(width).save(tmp_path / "a")
    _, tensors = unpack(tmp_path / "a", KEY, 2, "")
    for name, x in tensors.items():
        others = [
            x[None],
            x.flatten()[:, None, None],
            torch.zeros(0),
            torch.zeros(3, dtype=torch.int64),
            x.to(torch.int8),
        ]
        others += [x.half(), torch.zeros(1, 1, dtype=x.dtype), torch.zeros(*x.shape, 0, dtype=x.dtype)]
        for other in others:
            path = rewritten(tmp_path / "a", tmp_path, lambda h, t: t.update({name: other}))  # noqa: B023
            with pytest.raises(radnet.RadNetError, match="forged.safetensors: "):
                load(path)


INJECTED = "\n\x1b[1A\x1b[2Kholds          yes\x9b8m\u202e"


def test_nothing_in_a_file_reaches_the_terminal_but_printable_characters(tmp_path, capsys):
    made().save(tmp_path / "a")

    def injected(header, tensors):
        header["certificate"] |= dict.fromkeys(("rests_on", "scope", "cover"), INJECTED)

    path = rewritten(tmp_path / "a", tmp_path, injected)
    a = load(path)
    for report in (a.report(), a.recheck().report()):
        assert all(line.isprintable() for line in report.split("\n"))
        assert sum(line.startswith("holds ") for line in report.split("\n")) == 1
    path = rewritten(tmp_path / "a", tmp_path, lambda header, tensors: header.update(formula="0*x" + INJECTED))
    assert main(["verify", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("radnet: '0*x")
    assert err.removesuffix("\n").isprintable()
    path = rewritten(tmp_path / "a", tmp_path, lambda header, tensors: header.update(network=INJECTED))
    assert main(["verify", str(path)]) == 2
    assert "\x1b" not in capsys.readouterr().err


# --- on the command line


def test_the_command_measures_an_approximation_again(tmp_path, capsys):
    path = str(tmp_path / "a")
    command = ["approximate", FORMULA, "--box=0:1,0:1", "--eps", "0.5", "--lipschitz", "2.2", "--formula-only"]
    assert main([*command, "--out", path]) == 0
    capsys.readouterr()
    assert main(["verify", path]) == 0
    assert f"against        the formula {FORMULA}" in capsys.readouterr().out
    assert main(["verify", path, "--function", "x1, x2", "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert (data["holds"], data["against"]) == (False, "f as given")
    assert main(["verify", path, "--function", "math:sin", "--formula-only"]) == 2
    assert "is not a formula" in capsys.readouterr().err
    assert main(["approximate", "math:sin", "--box=0:1", "--eps", "0.5", "--formula-only"]) == 2
    assert main(["approximate", "x", "--box=0:1", "--eps", "0.5", "--lipschitz", "math:sin", "--formula-only"]) == 2
    assert "--lipschitz math:sin: expected a number" in capsys.readouterr().err


def test_the_command_compares_two_networks(tmp_path, capsys):
    net = radnet.RadNet((2, 16, 1), "squash")
    small = radnet.compress(net).network
    other = radnet.RadNet((2, 16, 1), "squash")
    for name, network in (("net", net), ("small", small), ("other", other)):
        radnet.save(network, tmp_path / name)
    net_, small_, other_ = (str(tmp_path / name) for name in ("net", "small", "other"))
    assert main(["verify", net_, small_]) == 0
    assert capsys.readouterr().out.startswith("lossless, on 256 inputs")
    assert main(["verify", net_, other_, "--rows", "10"]) == 3
    assert capsys.readouterr().out.startswith("NOT lossless: 10 rows beyond rounding, on 10 inputs")
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert main(["verify", net_, small_, "--inputs", str(tmp_path / "x.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    np.save(tmp_path / "x.npy", np.ones((3, 5)))
    assert main(["verify", net_, small_, "--inputs", str(tmp_path / "x.npy")]) == 2
    assert main(["verify", net_]) == 2
    assert "holds a network; give the one it is to be compared with too" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "none")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_a_file_of_another_kind_names_what_reads_it(tmp_path):
    made().save(tmp_path / "a")
    radnet.save(radnet.RadNet((2, 1)), tmp_path / "n")
    with pytest.raises(
        radnet.RadNetError, match=r"not a network, but an approximation, which radnet.approximation.load\(path\) reads"
    ):
        radnet.files.load(tmp_path / "a")
    with pytest.raises(
        radnet.RadNetError, match=r"not an approximation, but a network, which radnet.load\(path\) reads"
    ):
        load(tmp_path / "n")
