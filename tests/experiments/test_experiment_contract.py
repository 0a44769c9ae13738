"""What holds for every experiment, and for the plain data that jobs and trials become."""

import ast
import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import radnet.experiments
from radnet.errors import InvalidValue
from radnet.experiments.collection import FILES, NUMBERS, experiments, find
from radnet.experiments.figure import Figure
from radnet.experiments.plain import as_plain, from_plain
from radnet.experiments.reporting import results
from small_run import SMALL

pytestmark = pytest.mark.xdist_group("report")
HOME = Path(radnet.experiments.__file__).parent


def test_the_tuple_has_every_experiment_once_and_in_order():
    assert [experiment.number for experiment in experiments()] == list(NUMBERS) == list(SMALL)
    assert len({experiment.title for experiment in experiments()}) == len(FILES) == len(set(FILES))
    assert [experiment.number for experiment in experiments() if experiment.printed] == [1, 2, 3, 4]


@pytest.mark.parametrize("number", NUMBERS)
def test_an_experiment_is_whole(number):
    experiment = find(number)
    names = {field.name for field in dataclasses.fields(experiment.settings)}
    assert set(experiment.quick.changes) <= names
    assert experiment.together is None or experiment.together in names
    assert all(isinstance(part.settings, experiment.settings) for part in experiment.parts)
    assert all(part.trials >= 1 for part in experiment.parts)
    assert len({part.name for part in experiment.parts}) == len(experiment.parts)
    for value in (experiment, experiment.settings(), experiment.parts[0]):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'number'"):
            value.number = 0


@pytest.mark.parametrize("number", NUMBERS)
def test_rows_findings_and_lines_come_from_the_trials(number, small_report):
    experiment = find(number)
    outcomes = results.read(small_report).of(number).outcomes()
    rows = experiment.rows(outcomes)
    assert {row.experiment for row in rows} == {number}
    assert len({(row.part, row.figure) for row in rows}) == len(rows)
    assert all(row.rule for row in rows if row.agrees is not None)
    assert all(said.endswith(".") for said in experiment.findings(outcomes))
    columns = {tuple(line) for part in outcomes.values() for t in part.trials for line in experiment.table(t, 0)}
    assert len(columns) == 1


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_that_lacks_a_part_cannot_be_read(number, small_report, tmp_path):
    data = json.loads((small_report / "results.json").read_text())
    data["experiments"][number - 1]["parts"][0]["part"] = "other"
    (tmp_path / "results.json").write_text(json.dumps(data))
    with pytest.raises(InvalidValue, match=f"experiment {number} has the parts other.*--force"):
        results.read(tmp_path)


def test_an_experiment_that_was_not_run_has_no_results(small_report):
    found = results.read(small_report)
    with pytest.raises(InvalidValue, match="experiment 1 was not run"):
        dataclasses.replace(found, experiments=found.experiments[1:]).of(1)


def test_a_trial_with_a_value_of_another_type_cannot_be_read(small_report, tmp_path):
    data = json.loads((small_report / "results.json").read_text())
    data["experiments"][0]["parts"][0]["trials"][1]["result"]["errors"]["float32"] = "small"
    (tmp_path / "results.json").write_text(json.dumps(data))
    with pytest.raises(InvalidValue, match=r"trials\[1\]\.result\.errors\.float32 is 'small', expected float"):
        results.read(tmp_path)


def test_the_experiments_are_imported_without_matplotlib_and_counted_without_torch():
    code = (
        "import sys\n"
        "from radnet.experiments import collection\n"
        "assert collection.NUMBERS and 'torch' not in sys.modules\n"
        "assert collection.experiments() and 'torch' in sys.modules\n"
        "import radnet.experiments.reproduce\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def imported_by(path):
    """The modules of radnet.experiments that a file imports, wherever it does."""
    package = [".".join(path.relative_to(HOME).parts[:-1])] if path.parent != HOME else [""]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [part for part in package[0].split(".") if part]
            if node.level > len(base) + 1:
                continue  # outside of radnet.experiments
            base = base[: len(base) + 1 - node.level]
            found |= {".".join([*base, *filter(None, [node.module]), name.name]) for name in node.names}
    return found


def test_experiments_know_nothing_of_running_and_reporting_and_these_none_of_them():
    for path in HOME.rglob("*.py"):
        first = path.relative_to(HOME).with_suffix("").parts[0]
        known = {name.split(".")[0] for name in imported_by(path)}
        if first in FILES:
            assert not known & {"reproduce", "reporting", "running", "collection"}, path
        else:
            assert not known & set(FILES), path
    assert {"experiment", "figure"} < {name.split(".")[0] for name in imported_by(HOME / "lossless.py")}
    assert "plain.as_plain" in imported_by(HOME / "running" / "runner.py")


def test_the_schema_knows_how_many_experiments_there_are():
    numbers = json.loads(results.schema())["$defs"]["row"]["properties"]["experiment"]
    assert numbers == {"type": "integer", "minimum": 1, "maximum": len(FILES)}


def test_modules_are_known_by_their_short_names():
    from radnet import experiments

    assert experiments.plan.plan is experiments.running.plan.plan
    assert experiments.runner.run is experiments.running.runner.run
    assert experiments.results.read is results.read
    assert experiments.findings.findings is experiments.reporting.report.findings
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        experiments.nonsense  # noqa: B018


# --- plain data


@dataclass(frozen=True)
class Inner:
    count: int
    share: float


@dataclass(frozen=True)
class Outer:
    name: str | None
    inner: Inner | None
    rows: tuple[tuple[float, ...], ...]
    table: dict[str, Inner]
    free: object = None


WHOLE = Outer("x", Inner(1, 0.5), ((1.0, 2.0), ()), {"a": Inner(2, 1.0)}, Figure(1.0, 0.0))


def test_plain_data_goes_through_json_and_back():
    assert from_plain(Outer, json.loads(json.dumps(as_plain(WHOLE))), free=Figure) == WHOLE
    bare = dataclasses.replace(WHOLE, name=None, inner=None)
    assert from_plain(Outer, json.loads(json.dumps(as_plain(bare))), free=Figure) == bare


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "Outer.name is 1, expected str"),
        ({"inner": {"count": 1}}, "Outer.inner is {'count': 1}, expected count, share"),
        ({"inner": {"count": 1.5, "share": 1.0}}, "Outer.inner.count is 1.5, expected int"),
        ({"inner": {"count": True, "share": 1.0}}, "Outer.inner.count is True, expected int"),
        ({"rows": [[1.0], 2.0]}, r"Outer.rows\[1\] is 2.0, expected tuple"),
        ({"rows": [[1.0, "2"]]}, r"Outer.rows\[0\]\[1\] is '2', expected float"),
        ({"table": {"a": None}}, "Outer.table.a is None, expected count, share"),
        ({"table": []}, r"Outer.table is \[\], expected dict"),
        ({"free": {"mean": 1.0}}, "Outer.free is {'mean': 1.0}, expected mean, std"),
        ({"more": 1}, "expected name, inner, rows, table, free"),
    ],
)
def test_plain_data_that_does_not_fit_is_refused_with_the_place(change, message):
    with pytest.raises(TypeError, match=message):
        from_plain(Outer, {**as_plain(WHOLE), **change}, free=Figure)


def test_what_is_not_plain_data_is_refused():
    with pytest.raises(TypeError, match="a set is not plain data"):
        as_plain(dataclasses.replace(WHOLE, free={1}))
    with pytest.raises(TypeError, match="a dict is not a dataclass"):
        as_plain({})
