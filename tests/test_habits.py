"""What the project says about itself in several places is the same in all of them."""

import datetime
import os
import re
import shutil
import subprocess
import tomllib

import pytest

import radnet
from places import ROOT

GITHUB = ROOT / ".github"

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="the project's files are not part of this copy"
)


def text(path):
    return (ROOT / path).read_text()


def settings(path):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(text(path))


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(text("pyproject.toml"))["project"]


def recipe(target):
    """The lines of a target of the Makefile, with the folder of the tools put in."""
    found = re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", text("Makefile"), flags=re.M)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def would_run(target):
    """The commands that make prints when it is asked not to run them."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "--dry-run", target]
    return subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True, timeout=60).stdout


# --- versions


def test_the_newest_dated_section_of_the_changelog_is_this_version():
    headings = re.findall(r"^## (.*)$", text("CHANGELOG.md"), flags=re.M)
    assert headings[0] == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    assert released
    assert all(released), headings
    assert released[0][1] == radnet.__version__
    dates = [datetime.date.fromisoformat(match[2]) for match in released]
    assert dates == sorted(dates, reverse=True)


def test_the_citation_is_of_this_version_and_names_the_paper():
    citation = settings("CITATION.cff")
    assert citation["version"] == radnet.__version__
    assert f"## {citation['version']} - {citation['date-released']}\n" in text("CHANGELOG.md")
    assert citation["authors"] == [{"name": "the radnet contributors"}]
    paper = citation["preferred-citation"]
    assert paper["title"] == "Universal approximation and model compression for radial neural networks"
    names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert names == ["Iordan Ganev", "Twan van Laarhoven", "Robin Walters"]
    assert [entry["value"] for entry in paper["identifiers"]] == ["arXiv:2107.02550"]


def test_the_authors_are_the_contributors(project):
    assert project["authors"] == [{"name": "the radnet contributors"}]


def test_every_python_that_is_claimed_is_tried(project):
    claimed = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert settings(".github/workflows/ci.yml")["jobs"]["all"]["strategy"]["matrix"]["python"] == claimed
    assert project["requires-python"] == f">={claimed[0]}"
    minors = [int(version.removeprefix("3.")) for version in claimed]
    assert minors == list(range(minors[0], minors[-1] + 1))


# --- commands


def test_the_workflow_runs_what_runs_here():
    jobs = settings(".github/workflows/ci.yml")["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"all": [".ci/run"], "torch": ["make ${{ matrix.target }}"]}
    assert [one["target"] for one in jobs["torch"]["strategy"]["matrix"]["include"]] == ["oldest", "newest"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_hooks_before_a_commit_are_the_commands_of_make_lint():
    hooks = [hook for repository in settings(".pre-commit-config.yaml")["repos"] for hook in repository["hooks"]]
    assert len(recipe("lint")) == 4
    assert [hook["entry"] for hook in hooks] == recipe("lint")
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_the_oldest_torch_is_the_one_that_is_claimed(project):
    claim = next(need for need in project["dependencies"] if need.startswith("torch")).removeprefix("torch>=")
    commands = would_run("oldest")
    assert re.findall(r"torch==([\d.]+)", commands) == [claim]
    assert "-c .venv-oldest/constraints.txt" in commands
    assert ".venv-oldest/bin/python -m pytest" in commands


def test_the_newest_torch_is_no_older_than_the_pinned_one():
    commands = would_run("newest")
    newest, pinned = (re.findall(r"torch==([\d.]+)", lines) for lines in (commands, text("constraints.txt")))
    assert len(newest) == len(pinned) == 1
    assert [int(part) for part in newest[0].split(".")] >= [int(part) for part in pinned[0].split(".")]
    assert ".venv-newest/bin/python -m pytest" in commands


@pytest.mark.parametrize("target", ["oldest", "newest"])
def test_other_torches_are_installed_beside_all_other_pins(target, tmp_path):
    """The line that writes their constraints, run on its own."""
    line = next(line for line in would_run(target).splitlines() if line.startswith("grep"))
    (tmp_path / f".venv-{target}").mkdir()
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    subprocess.run(line, shell=True, cwd=tmp_path, check=True, timeout=60)  # noqa: S602
    left = (tmp_path / f".venv-{target}/constraints.txt").read_text().splitlines()
    gone = {line.partition("==")[0] for line in set(text("constraints.txt").splitlines()) - set(left)}
    assert gone == {"torch", "sympy", "filelock", "fsspec", "networkx"}  # torch, and what each of its versions wants
    assert any(line.startswith("torch-pruning==") for line in left)


def test_make_test_does_not_bring_other_torches():
    assert "oldest" not in would_run("test")
    assert "newest" not in would_run("test")


def test_the_documentation_is_built_with_pins_and_warnings_as_errors(project):
    hosted = settings(".readthedocs.yaml")
    assert (ROOT / hosted["sphinx"]["configuration"]).is_file()
    assert hosted["sphinx"]["fail_on_warning"] is True
    assert all("-c constraints.txt" in line for line in hosted["build"]["jobs"]["install"])
    extras = re.search(r"\[([\w,]+)\]", hosted["build"]["jobs"]["install"][-1])[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])


# --- templates


def test_every_template_for_issues_has_a_name_and_says_what_it_is_about():
    yaml = pytest.importorskip("yaml")
    names = {}
    for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.md")):
        _, head, body = path.read_text().split("---\n", 2)
        about = yaml.safe_load(head)
        names[about["name"]] = about["about"]
        assert body.strip()
    assert set(names) == {"Bug", "Teach compress a layer", "Add an activation", "The paper is wrong here"}
    assert all(names.values())


def test_templates_name_files_headings_and_commands_that_exist():
    for path in [*GITHUB.glob("*.md"), *(GITHUB / "ISSUE_TEMPLATE").glob("*.md")]:
        said = path.read_text()
        for name in re.findall(r"(?<![\w/-])[\w/-]+\.(?:md|py)\b", said):
            assert (ROOT / name).is_file(), (path.name, name)
        for heading in re.findall(r'CONTRIBUTING\.md, "([^"]+)"', " ".join(said.split())):
            assert f"## {heading}\n" in text("CONTRIBUTING.md"), (path.name, heading)
        for line in re.findall(r"`make ([a-z ]+)`", said):
            assert all(re.search(rf"^{target}:", text("Makefile"), flags=re.M) for target in line.split())


# --- tests


def test_every_test_file_that_is_named_somewhere_is_there():
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *GITHUB.rglob("*.md"),
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
    ]
    named = {
        name
        for path in texts
        if "_build" not in path.parts
        for name in re.findall(r"\btests/[\w/]+\.py\b", path.read_text())
    }
    assert len(named) > 30
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_make_prove_tries_every_test_once():
    """What one part leaves out is what two others run."""
    left_out = re.findall(r"--ignore (\S+)", would_run("prove-tests"))
    run = [*re.findall(r"tests/\S+\.py", would_run("prove-attack") + would_run("prove-programs"))]
    assert sorted(run) == sorted(left_out)
    assert all((ROOT / name).is_file() for name in run)
