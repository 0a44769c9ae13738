"""The command line: answers on stdout, the rest on stderr, exit codes as documented, torch imported late."""

import json
import subprocess
import sys

import pytest

from radnet.cli import main


def radnet(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "radnet.cli", *arguments], capture_output=True, text=True, check=False, timeout=120
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
        ["reproduce", "--experiment", "9"],
        ["inspect", "1,2", "--frobnicate"],
    ):
        result = radnet(*arguments)
        assert result.returncode == 2, arguments
        assert result.stdout == ""
        assert result.stderr


def test_reproduce_prints_ours_beside_the_papers(capsys):
    assert main(["reproduce", "--experiment", "1", "--trials", "3"]) == 0
    out, err = capsys.readouterr()
    assert "1.31e-08 ± 4.45e-09" in out
    assert out.count("\n") == 3
    assert err == ""


def test_reproduce_answers_as_json_and_repeats_itself(capsys):
    answers = []
    for _ in range(2):
        assert main(["reproduce", "--experiment", "1", "--trials", "2", "--seed", "5", "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["schema_version"] == 1
    assert [row["dtype"] for row in answers[0]["rows"]] == ["float32", "float64"]
    assert answers[0]["rows"][0]["paper"] == {"mean": 1.31e-8, "std": 4.45e-9}


def test_reproduce_runs_experiment_2_too(capsys, monkeypatch):
    from radnet.experiments import descent

    monkeypatch.setattr(descent, "run", lambda *_: [descent.Result("float32", (1.0, 2.0), (1.0, 2.0))])
    assert main(["reproduce", "--experiment", "2"]) == 0
    assert "4.02e-09 ± 7.01e-09" in capsys.readouterr().out


def test_an_interrupt_is_exit_code_130(monkeypatch):
    from radnet.experiments import lossless

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lossless, "run", interrupt)
    assert main(["reproduce"]) == 130


def test_a_failure_is_exit_code_1_in_one_line(monkeypatch, capsys):
    from radnet.experiments import lossless

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(lossless, "run", fail)
    assert main(["reproduce"]) == 1
    assert capsys.readouterr().err == "radnet: OSError: disk full\n"


def test_a_figure_that_disagrees_with_the_paper_is_exit_code_3(monkeypatch, capsys):
    from radnet.experiments import lossless

    monkeypatch.setattr(lossless, "PAPER", lossless.Figure(1.0, 0.1))
    assert main(["reproduce", "--experiment", "1", "--trials", "2"]) == 3
    assert " no" in capsys.readouterr().out


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


def test_progress_is_shown_only_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(["reproduce", "--experiment", "1", "--trials", "2"]) == 0
    shown = capsys.readouterr()
    assert "experiment 1" in shown.err
    assert "experiment 1" not in shown.out
    assert main(["reproduce", "--experiment", "1", "--trials", "2", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
