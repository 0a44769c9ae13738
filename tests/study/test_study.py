"""The study: its data, contestants of equal size, the contest, ranks, runs that go on where they were cut off."""

import dataclasses
import itertools
import json
import statistics

import numpy as np
import pytest
import scipy.integrate
import torch

import radnet
from radnet.cli import main
from radnet.study import contest, report, running
from radnet.study.contest import CONTESTANTS, QUICK, Entry, compete, table_of
from radnet.study.data import DATA, motions, named
from radnet.study.data.fields import _to_box
from radnet.study.networks import NETWORKS, WIDER, Knobs, Task, shipped_widths
from radnet.study.ranking import beside, ranks, width

SMALL = dataclasses.replace(QUICK, steps=4, rows=80, calls=1)
EASY = ("diabetes", "iris")


@pytest.fixture(scope="module")
def loaded():
    return {data.name: data.load() for data in DATA}


# --- data


def test_half_of_at_least_twenty_data_sets_are_set_aside():
    assert len(DATA) == len({d.name for d in DATA}) == 27
    assert sum(d.aside for d in DATA) == 14
    looked_at = {"robot arm", "distance", "pendulum", "friedman 1", "steps", "china", "breast cancer", "digits", "wine"}
    assert not any(named(name).aside for name in looked_at)  # tried while the library was built


def test_data_are_numbers_the_same_every_time(loaded):
    for d in DATA:
        X, y = loaded[d.name]
        again = d.load()
        assert np.array_equal(X, again[0]), d.name
        assert np.array_equal(y, again[1]), d.name
        assert np.isfinite(X).all(), d.name
        assert len(X) == len(y), d.name
        if d.classes is not None:
            assert set(np.unique(y)) == set(range(d.classes))


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [  # worked out by hand from the formulas
        ("borehole", [0.1, 25050, 89335, 1050, 89.55, 760, 1400, 10950], 71.3),
        ("circuit", [100, 47.5, 1.75, 1.85, 0.725, 175], 5.27),
        ("piston", [45, 0.0125, 0.006, 3000, 100_000, 293, 350], 0.46),
        ("wing", [175, 260, 8, 0, 30.5, 0.75, 0.13, 4.25, 2100, 0.0525], 268),
        ("steps", [0.6, 0.5, 0.2, 0.9], 3),
        ("robot arm", [0, 0, 0, 0, 1, 1, 1, 0.5], 3.5),
    ],
)
def test_a_formula_gives_what_it_says_in_the_middle_of_its_box(name, row, value, loaded):
    X, y = loaded[name]
    scaled = np.abs(X - np.array(row)) / (X.max(axis=0) - X.min(axis=0))
    if name in ("steps", "robot arm"):  # too rough for its neighbours to tell: the function itself is asked
        function = {"steps": _steps, "robot arm": _robot_arm}[name]
        assert function(np.array([row]))[0] == pytest.approx(value)
        assert function(X) == pytest.approx(y)
        return
    near = np.argsort((scaled**2).sum(axis=1))[:40]
    design = np.column_stack([np.ones(40), (X[near] - row) / X.std(axis=0)])
    assert np.linalg.lstsq(design, y[near], rcond=None)[0][0] == pytest.approx(value, rel=0.06)


def _steps(x):
    return (
        (x[:, :1] >= [0.25, 0.5, 0.75]).sum(axis=1) + np.where(x[:, 1] > x[:, 2], 2, 0) - np.where(x[:, 3] > 0.7, 1, 0)
    )


def _robot_arm(x):
    turns = np.exp(1j * np.cumsum(x[:, :4], axis=1))
    return np.abs((x[:, 4:] * turns).sum(axis=1))


@pytest.mark.parametrize(
    ("name", "time", "field"),
    [
        ("pendulum", 1.0, lambda t, s, x: [s[1], -9.81 * np.sin(s[0])]),
        ("lorenz", 0.25, lambda t, s, x: [10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]]),
        ("van der pol", 1.0, lambda t, s, x: [s[1], x[2] * (1 - s[0] ** 2) * s[1] - s[0]]),
    ],
)
def test_a_motion_is_where_an_independent_solver_says(name, time, field, loaded):
    X, y = loaded[name]
    for x, there in zip(X[:5], y[:5], strict=True):
        found = scipy.integrate.solve_ivp(field, (0, time), x[: len(there)], args=(x,), rtol=1e-10, atol=1e-10)
        assert found.y[:, -1] == pytest.approx(there, abs=1e-5)


def test_a_double_pendulum_keeps_its_energy():
    x, acceleration = motions.double_pendulum()
    a, b, u, v = x.T
    p, q = acceleration.T
    # d/dt of u^2 + v^2/2 + u v cos(a - b) - g (2 cos a + cos b)
    change = 2 * u * p + v * q + (p * v + u * q) * np.cos(a - b) - u * v * np.sin(a - b) * (u - v)
    assert change + 9.81 * (2 * np.sin(a) * u + np.sin(b) * v) == pytest.approx(0, abs=1e-9)


def test_a_distance_is_how_far_it_is():
    x = np.array([[2.0, 0.0], [2.0, 2.0], [0.0, 0.0], [0.9, 0.0]])
    assert _to_box(x, np.array([1.0, 1.0])) == pytest.approx([1.0, 2**0.5, -1.0, -0.1])


# --- contestants


def test_nobody_ships_more_than_is_allowed_and_everybody_uses_it():
    for d in map(named, ("iris", "mnist", "china", "borehole")):
        X, _ = d.load()
        outputs = d.classes or 1
        task = Task(X.shape[1], outputs, d.parameters, torch.from_numpy(X[:2000]).float())
        for network, depth in itertools.product(NETWORKS, (0.0, 0.99)):
            net = network.build(task, Knobs(0.5, 0.2, depth, 0.5), torch.Generator().manual_seed(0))
            ships = radnet.compress(net, task.rows[:9]).network if network.name == "radial, wide" else net
            size = sum(p.numel() for p in ships.parameters())
            assert size <= d.parameters, (d.name, network.name)
            least = {"blocks, residual": 0.69, "radial": 0, "radial, wide": 0}.get(network.name, 0.87)
            assert size > least * d.parameters, (d.name, network.name, size)


def test_what_is_judged_is_what_ships(monkeypatch):
    seen = []
    real = contest._microseconds
    monkeypatch.setattr(contest, "_microseconds", lambda predict, *rest: seen.append(predict) or real(predict, *rest))
    e = compete("friedman 1", "radial, wide", dataclasses.replace(QUICK, steps=20, calls=1))
    assert e.trained_parameters > e.parameters <= 800
    net = seen[0].__closure__[0].cell_contents
    assert sum(p.numel() for p in net.parameters()) == e.parameters
    assert len(e.sizes) == len(e.searched) == 2


def test_pixels_have_one_scale_and_columns_of_a_table_their_own():
    digits, wine = (table_of(named(name), QUICK) for name in ("digits", "wine"))
    assert wine.x.std(axis=0) == pytest.approx(1)
    assert np.sqrt((digits.x.std(axis=0) ** 2).mean()) == pytest.approx(1)
    assert np.abs(digits.x_test).max() < 10


@pytest.mark.parametrize("name", ["Fourier", "blocks, waves"])
def test_frequencies_are_those_of_a_row_however_many_columns_it_has(name):
    network, knobs = next(n for n in NETWORKS if n.name == name), Knobs(0.5, 0.2, 0.0, 0.5)
    spread = []
    for n in (2, 200):
        x = torch.randn(500, n, generator=torch.Generator().manual_seed(0))
        net = network.build(Task(n, 1, 2000 * n, x), knobs, torch.Generator().manual_seed(1))
        W = net[0].B if name == "Fourier" else net[0].weight
        spread.append(float((x @ W.T).std().detach()))
    assert spread[1] == pytest.approx(spread[0], rel=0.35)


def test_a_wide_radial_network_ships_as_the_narrow_one():
    task = Task(4, 1, 800, torch.zeros(1, 4))
    assert shipped_widths(task, 2) == [5, 6]
    knobs = Knobs(0.5, 0.2, 0.0, 0.5)
    by_name = {network.name: network for network in NETWORKS}
    wide = by_name["radial, wide"].build(task, knobs, torch.Generator().manual_seed(0))
    narrow = by_name["radial"].build(task, knobs, torch.Generator().manual_seed(0))
    assert [m.out_features for m in wide if isinstance(m, torch.nn.Linear)] == [5 * WIDER, 6 * WIDER, 1]
    small = radnet.compress(wide, torch.randn(9, 4)).network
    assert [p.shape for p in small.parameters()] == [p.shape for p in narrow.parameters()]


def test_the_search_draws_the_same_for_everybody_and_never_sees_test_rows(monkeypatch):
    seen = []
    fit = contest._fit

    def noted(who, data, table, knobs, settings, seed):
        seen.append((who.name, knobs, seed))
        hidden = table._replace(x_test=table.x_test * np.nan, y_test=table.y_test * np.nan)
        return fit(who, data, hidden, knobs, settings, seed)

    monkeypatch.setattr(contest, "_fit", noted)
    for name in ("ReLU", "blocks", "trees"):
        compete("diabetes", name, SMALL)
    draws = {
        name: [knobs for who, knobs, seed in seen if who == name and seed == 0] for name in ("ReLU", "blocks", "trees")
    }
    assert draws["ReLU"] == draws["blocks"] == draws["trees"]
    assert len(set(draws["ReLU"])) == SMALL.trials
    table = table_of(named("diabetes"), QUICK)
    together = np.concatenate([table.x, table.x_test])
    assert len(np.unique(together, axis=0)) == len(together) == 442  # no row is in both


@pytest.mark.parametrize("contestant", list(CONTESTANTS))
@pytest.mark.parametrize("data", EASY)
def test_every_contestant_learns(data, contestant):
    e = compete(data, contestant, dataclasses.replace(QUICK, steps=150, calls=1))
    guess = 2 / 3 if data == "iris" else 1.0
    assert e.scores[0] < (1.1 if contestant in ("Fourier", "blocks, waves") else 0.95) * guess
    assert all(np.isfinite(e.searched))
    assert e.lossless == (1 if contestant.startswith(("radial", "blocks")) else None)
    assert not e.changed
    assert e.microseconds > 0


# --- ranks


def entry(data, contestant, *scores, searched=(1.0,), trained=10):
    sizes = (trained,) * len(searched) if isinstance(trained, int) else trained
    return Entry(data, contestant, scores, searched, sizes, 0.01, max(sizes), 10, 1.0, 1.0, None, None)


def test_ranks_and_their_critical_difference_are_those_of_the_literature():
    """Demsar 2006, section 3.2.3: four learners on 14 data sets, their AUC."""
    table = [
        (0.763, 0.768, 0.771, 0.798), (0.599, 0.591, 0.590, 0.569), (0.954, 0.971, 0.968, 0.967),
        (0.628, 0.661, 0.654, 0.657), (0.882, 0.888, 0.886, 0.898), (0.936, 0.931, 0.916, 0.931),
        (0.661, 0.668, 0.609, 0.685), (0.583, 0.583, 0.563, 0.625), (0.775, 0.838, 0.866, 0.875),
        (1.000, 1.000, 1.000, 1.000), (0.940, 0.962, 0.965, 0.962), (0.619, 0.666, 0.614, 0.669),
        (0.972, 0.981, 0.9751, 0.975), (0.957, 0.978, 0.946, 0.970),
    ]  # fmt: skip
    names = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
    scores = {str(i): {n: [-auc] for n, auc in zip(names, row, strict=True)} for i, row in enumerate(table)}
    found = ranks(scores, names)
    assert list(found.mean.values()) == pytest.approx([3.143, 2.0, 2.893, 1.964], abs=1e-3)
    assert found.difference == pytest.approx(1.25, abs=0.01)
    assert found.p == pytest.approx(0.026, abs=0.01)  # chi squared 9.28


def test_clearly_better_is_in_every_seed_of_three():
    scores = {
        "a": {"x": [1, 2, 2], "y": [3, 4, 4]},
        "b": {"x": [5, 6, 6], "y": [1, 2, 2]},
        "c": {"x": [1, 3, 3], "y": [2, 4, 4]},
    }
    assert beside(scores, "x", "y") == (1, 1, 1)
    assert beside(scores, "y", "x") == (1, 1, 1)
    assert beside({"a": {"x": [0.1], "y": [0.2]}}, "x", "y") == (0, 1, 0)  # one seed tells nothing


def test_width_is_judged_in_the_draws_in_which_there_is_any():
    same = [entry("iris", "radial", 0.1), entry("iris", "radial, wide", 0.1)]
    assert width(same) is None
    wide = [
        entry("wine", "radial", 0.1, searched=(4.0, 1.0, 2.0, 7.0)),
        entry("wine", "radial, wide", 0.1, searched=(2.0, 1.5, 0.5, 7.0), trained=(99, 99, 99, 10)),
        entry("digits", "radial", 0.1, searched=(0.0, 1.0)),
        entry("digits", "radial, wide", 0.1, searched=(0.0, 2.0), trained=(20, 20)),
    ]
    found = width(same + wide)
    assert found[:2] == (5, 2)
    assert found.better == pytest.approx(2 / 5)
    assert found.ratio == pytest.approx(1.0)
    assert found.by_data == pytest.approx({"wine": 0.5, "digits": 1.5})


def test_equal_scores_have_no_p_and_go_into_json():
    entries = [entry(d, c, 1.0, 1.0, 1.0) for d in ("iris", "wine") for c in CONTESTANTS]
    found = report.summary(entries, QUICK)["halves"]["looked at"]
    assert found["friedman_p"] is None
    json.dumps(found, allow_nan=False)


def test_the_verdict_is_about_median_ranks():
    def half(*places):
        return [
            entry("iris", n.name, float(places[0]) if n.name == report.OURS else 5.0 if n.name == report.RIVAL else 9.0)
            for n in NETWORKS
        ]

    assert report.verdict(half(1))
    assert report.verdict(half(5))
    assert not report.verdict(half(8))
    assert "behind" in report.text(with_references(half(8)), QUICK)
    assert "better than" in report.text(with_references(half(1)), QUICK)


def with_references(entries):
    return [*entries, entry("iris", "linear", 3.0), entry("iris", "trees", 3.0)]


def test_runs_of_ranks_that_chance_explains_are_joined():
    assert report.joined([1.0, 1.5, 3.0, 3.2], 0.6) == [(1.0, 1.5), (3.0, 3.2)]
    assert report.joined([1.0, 2.0, 3.0], 5.0) == [(1.0, 3.0)]
    assert report.joined([1.0, 2.0, 3.0], 0.5) == []


# --- runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    data = [named(name) for name in EASY]
    told = []
    entries = running.run(folder, data, SMALL, jobs=1, tell=lambda *done: told.append(done))
    assert told[0] == (0, 24)
    assert told[-1] == (24, 24)
    return folder, data, entries


def test_a_study_goes_on_where_it_was_and_ends_with_the_same_figures(finished, monkeypatch):
    folder, data, entries = finished
    lost = folder / "entries" / running.Job("iris", "blocks").file
    lost.unlink()
    (folder / "entries" / running.Job("iris", "GELU").file).write_text("{")
    ran = []
    compete_one = running.compete
    monkeypatch.setattr(running, "compete", lambda *a: ran.append(a[:2]) or compete_one(*a))
    again = running.run(folder, data, SMALL, jobs=1)
    assert sorted(ran) == [("iris", "GELU"), ("iris", "blocks")]
    assert [dataclasses.replace(e, seconds=0, microseconds=0) for e in again] == [
        dataclasses.replace(e, seconds=0, microseconds=0) for e in entries
    ]


def test_a_study_with_other_settings_or_in_a_foreign_folder_is_refused(finished, tmp_path):
    folder, data, _ = finished
    with pytest.raises(radnet.RadNetError, match="other settings"):
        running.run(folder, data, QUICK, jobs=1)
    said = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**said, "version": 7}))
    with pytest.raises(radnet.RadNetError, match="version 7"):
        running.run(folder, data, SMALL, jobs=1)
    (folder / "study.json").write_text(json.dumps(said))
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(radnet.RadNetError, match=r"holds letter\.txt"):
        running.run(tmp_path, data, SMALL, jobs=1)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_what_is_not_of_a_study_is_neither_taken_for_one_nor_removed(tmp_path):
    data = [named("iris")]
    for name, files in {
        "mine": ["summary.json", "study.md"], "diary": ["entries/2026--05.json"], "half": ["entries/iris--blocks.json"],
    }.items():  # fmt: skip
        for file in files:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        for force in (False, True):
            with pytest.raises(radnet.RadNetError, match="not of a study"):
                running.run(tmp_path / name, data, SMALL, jobs=1, force=force)
        assert all((tmp_path / name / file).read_text() == "mine" for file in files)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "entries").symlink_to(tmp_path / "half" / "entries")
    with pytest.raises(radnet.RadNetError, match="not of a study"):
        running.run(tmp_path / "linked", data, SMALL, jobs=1, force=True)


@pytest.mark.parametrize(
    "damage",
    [{"scores": []}, {"scores": [-5.0]}, {"searched": [1.0]}, {"parameters": -3}, {"seconds": 1e999}, {"sizes": []}],
)
def test_an_entry_that_cannot_be_is_made_anew(damage, finished):
    folder, _, _ = finished
    job = running.Job("iris", "GELU")
    path = folder / "entries" / job.file
    good = path.read_text()
    assert running._kept(folder, job, SMALL) is not None
    path.write_text(json.dumps({**json.loads(good), **damage}))
    assert running._kept(folder, job, SMALL) is None
    path.write_text(good)


def test_data_sets_are_run_once_and_by_name_or_by_half():
    assert [d.name for d in running.chosen("both", ("iris", "iris"))] == ["iris"]
    with pytest.raises(radnet.RadNetError, match="give one of them"):
        running.chosen("aside", ("iris",))


def test_the_report_says_what_the_entries_say(finished):
    _, _, entries = finished
    found = report.summary(entries, SMALL)
    text = report.text(entries, SMALL)
    assert set(found["halves"]) == {"looked at"}
    assert found["lossless"]["compressed"] == found["lossless"]["lossless"] == 10  # one seed
    own = next(e for e in entries if (e.data, e.contestant) == ("diabetes", "GELU"))
    assert f"{statistics.fmean(own.scores):.3f}" in next(
        row for row in text.splitlines() if row.startswith("| diabetes")
    )
    json.dumps(found, allow_nan=False)


def test_the_command_runs_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(contest, "QUICK", SMALL)
    out = tmp_path / "out"
    assert main(["study", "--quick", "--data", "iris", "--out", str(out), "--jobs", "1", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["steps"] == SMALL.steps
    assert {p.name for p in out.iterdir()} == {
        "entries",
        "study.json",
        "summary.json",
        "study.md",
        "ranks-looked-at.svg",
    }
    assert (out / "ranks-looked-at.svg").read_text().startswith("<?xml")
    assert main(["study", "--data", "no such", "--out", str(out)]) == 2
    assert "there is no data set 'no such'" in capsys.readouterr().err
    assert main(["study", "--half", "third", "--out", str(tmp_path / "other")]) == 2
