"""The command line: answers on stdout, the rest on stderr, exit codes as documented, torch imported late."""

import json
import subprocess
import sys

import pytest

from radnet import __version__
from radnet.cli import main


def radnet(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "radnet", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_inspect_shows_the_reduced_widths(capsys):
    assert main(["inspect", "1,8,16,8,1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "widths      1, 8, 16, 8, 1",
        "reduced     1, 2, 3, 4, 1",
        "parameters  305 -> 34 (9.0 times fewer)",
    ]
    assert err == ""


def test_the_version_is_shown_on_stdout_and_does_not_wait_for_torch(capsys):
    assert main(["--version"]) == 0
    out, err = capsys.readouterr()
    assert out == f"radnet {__version__}\n"
    assert err == ""
    code = "import sys, radnet.cli\nradnet.cli.main(['--version'])\nsys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)


@pytest.mark.parametrize("module", ["radnet", "radnet.cli"])
def test_python_m_is_the_command_line(module):
    command = [sys.executable, "-m", module]
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == f"radnet {__version__}\n"
    wrong = subprocess.run([*command, "inspect", "7"], capture_output=True, text=True, check=False, timeout=60)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("radnet: widths (7,): a network needs")


def test_inspect_answers_as_json(capsys):
    assert main(["inspect", "3, 64, 64, 1", "--no-bias", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "widths": [3, 64, 64, 1],
        "reduced_widths": [3, 3, 3, 1],
        "bias": False,
        "parameters": 4352,
        "reduced": 21,
    }


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ("1,x,1", "entry 1 is 'x' (str); a width must be an int"),
        ("1,2.5,1", "entry 1 is 2.5; a width must be a whole number"),
        ("7", "a network needs at least an input and an output width"),
        ("", "a network needs at least an input and an output width"),
        ("1,0,1", "entry 1 is 0; a width must be at least 1"),
    ],
)
def test_bad_widths_are_a_usage_error_with_a_reason(widths, message, capsys):
    assert main(["inspect", widths]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_usage_errors_have_exit_code_2():
    for arguments in (
        ["nonsense"],
        ["inspect"],
        ["reproduce", "--trials", "0"],
        ["reproduce", "--experiment", "99"],
        ["inspect", "1,2", "--frobnicate"],
        ["verify", "a", "b", "--seed", str(10**30)],
        ["verify", "a", "b", "--seed", str(2**63)],
        ["verify", "a", "b", "--seed", "-1"],
        ["verify", "a", "b", "--rows", str(10**7 + 1)],
    ):
        result = radnet(*arguments)
        assert result.returncode == 2, arguments
        assert result.stdout == ""
        assert result.stderr
        assert "no such file" not in result.stderr


def test_reproduce_prints_ours_beside_the_papers(capsys, tmp_path):
    out = tmp_path / "report"
    arguments = ["reproduce", "--experiment", "1", "--trials", "3", "--seed", "5", "--jobs", "1", "--out", str(out)]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "1.31e-08 ± 4.45e-09" in shown.out
    assert f"the page is {out / 'index.html'}" in shown.out
    assert shown.err == "experiment 1: 3 trials done\n"
    written = (out / "results.json").read_bytes()
    assert main([*arguments, "--json"]) == 0  # a second run: nothing is run, nothing overwritten
    again = capsys.readouterr()
    answer = json.loads(again.out)
    assert [row["part"] for row in answer["rows"]] == ["float32", "float64"]
    assert answer["rows"][0]["paper"] == {"mean": 1.31e-8, "std": 4.45e-9}
    assert "nothing was run" in again.err
    assert (out / "results.json").read_bytes() == written


@pytest.fixture
def instead_of_running(monkeypatch):
    """Put something in the place of the trials."""

    def put(action):
        monkeypatch.setattr("radnet.experiments.running.runner.run", action)

    return put


def test_an_interrupt_is_exit_code_130(instead_of_running, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    instead_of_running(interrupt)
    assert main(["reproduce", "--experiment", "1", "--out", str(tmp_path)]) == 130


def test_a_failure_is_exit_code_1_in_one_line(instead_of_running, capsys, tmp_path):
    def fail(*_, **__):
        raise OSError("disk full")

    instead_of_running(fail)
    assert main(["reproduce", "--experiment", "1", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "radnet: OSError: disk full\n"


def test_a_figure_that_disagrees_with_the_paper_is_exit_code_3(instead_of_running, capsys, tmp_path):
    from radnet.experiments.lossless import Trial
    from radnet.experiments.running.folder import Finished

    trial = Trial((1, 2, 3, 1), {"float32": 1.0, "float64": 0.0})
    instead_of_running(lambda jobs, *_, **__: {job.name: Finished(job, trial, 0.0) for job in jobs})
    assert main(["reproduce", "--experiment", "1", "--trials", "2", "--out", str(tmp_path)]) == 3
    assert capsys.readouterr().out.splitlines()[1].endswith(" no")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, radnet, radnet.cli\n"
        "try: radnet.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "radnet.cli.main(['inspect', '1,2,1'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "inspect" in result.stdout


def test_a_bar_for_each_experiment_is_shown_on_a_terminal_only(monkeypatch, capsys):
    from radnet.cli.progress import bars
    from radnet.experiments.running.plan import plan

    jobs = plan([1, 2], trials=2)

    def shown(quiet):
        with bars(quiet) as begin:
            if begin is None:
                return capsys.readouterr().err
            advance = begin(jobs)
            for job in jobs:
                advance(job, 0.5)
                advance(job, 1.0)
        return capsys.readouterr().err

    assert shown(quiet=True) == ""
    assert shown(quiet=False) == "experiment 2: 2 trials done\nexperiment 1: 2 trials done\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    drawn = shown(quiet=False)
    assert "experiment 1" in drawn
    assert "100%" in drawn
