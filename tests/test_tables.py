"""Tables from files: columns by name, and what is wrong with a cell is told with its row and its column."""

import math

import numpy as np
import pytest
import torch

import radnet
from radnet.errors import InvalidValue, MissingFile, MissingPackage
from radnet.tables import read_table
from radnet.training import learning


@pytest.fixture
def written(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_csv_file_has_the_names_of_its_first_row_or_numbers(written):
    table = read_table(written('a,"b, c",d\r\n1,2,x\r\n\r\n3,4.5,y\r\n'))
    assert (table.names, len(table), table.named) == (["a", "b, c", "d"], 2, True)
    assert table.numbers(["b, c", "a"]).tolist() == [[2, 1], [4.5, 3]]
    assert table.labels("d") == ["x", "y"]
    assert table.labels("a") == ["1", "3"]
    plain = read_table(written("1,2\n3,4\n"))
    assert (plain.names, plain.named, plain.numbers(["2"]).tolist()) == (["1", "2"], False, [[2], [4]])


def test_an_npz_file_has_columns_and_matrices(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(6).reshape(3, 2), y=np.array([1.5, 2, 3]))
    table = read_table(tmp_path / "t.npz")
    assert table.names == ["x.1", "x.2", "y"]
    assert table.numbers(["x.2", "y"]).tolist() == [[1, 1.5], [3, 2], [5, 3]]
    assert table.labels("y") == ["1.5", "2", "3"]


def test_a_parquet_file_is_read_by_pyarrow(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1, 2], "b": ["x", None], "c": [True, False]}), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert table.numbers(["a", "c"]).tolist() == [[1, 1], [2, 0]]
    with pytest.raises(InvalidValue, match="row 2, column b: is empty"):
        table.labels("b")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match=r"pip install 'radnet\[tables\]'"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "the table is empty"),
        ("a,b\n", "the table is empty"),
        ("a,b\n1,2\n3\n", "row 3 has 1 cells, the first one 2"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("a,\n1,2\n", "a column has no name"),
        (b"a,b\n\xff\xfe,2\n", "the text is not UTF-8 .*; save the table as UTF-8"),
        ('a,b\n"1,2\n', "not a CSV file, or damaged"),
    ],
)
def test_a_damaged_csv_file_is_refused_with_a_reason(text, match, written):
    with pytest.raises(InvalidValue, match=match):
        read_table(written(text))


@pytest.mark.parametrize(
    ("cell", "match"),
    [
        ("x\x1b[8m", r"row 4, column b: is 'x\\x1b\[8m', which is no number"),
        ("", "row 4, column b: is empty"),
        ("nan", "row 4, column b: is nan; expected a finite number"),
        ("1e999", "row 4, column b: is inf"),
    ],
)
def test_a_cell_that_is_no_number_is_told_with_row_and_column(cell, match, written):
    table = read_table(written(f"a,b\n1,2\n\n3,{cell}\n5,6\n"))
    assert table.numbers(["a"]).tolist() == [[1], [3], [5]]
    with pytest.raises(InvalidValue, match=match):
        table.numbers(["a", "b"])


def test_other_files_are_refused(tmp_path, written):
    with pytest.raises(MissingFile, match="there is no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InvalidValue, match=r"expected a \.csv, \.npz or \.parquet file"):
        read_table(written("1", "t.txt"))
    with pytest.raises(InvalidValue, match="not a Parquet file, or damaged"):
        read_table(written("PAR1 no", "t.parquet"))
    np.savez(tmp_path / "a.npz", x=np.ones(3), y=np.ones(4))
    with pytest.raises(InvalidValue, match="x has 3 rows, y 4"):
        read_table(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.ones((3, 2, 2)))
    with pytest.raises(InvalidValue, match="x has 3 axes"):
        read_table(tmp_path / "b.npz")


# --- from a table to a network


def lines(rows=200):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2)) * [3.0, 0.01] + [100.0, -5.0]
    return x, np.sin((x[:, 0] - 100) / 3) + 200 * (x[:, 1] + 5) + 40


def table_of(x, y, written, name="y"):
    rows = "\n".join(f"{a!r},{b!r},{c}" for (a, b), c in zip(x.tolist(), y, strict=True))
    return read_table(written(f"a,b,{name}\n{rows}\n"))


def test_a_network_learns_a_table_in_the_numbers_of_the_table(written):
    x, y = lines()
    table = table_of(x, y, written)
    columns = learning.choose_columns(table, ["y"], None, classify=False)
    learned = learning.learn(table, columns, epochs=400)
    assert (learned.rows, learned.held_out, learned.network.widths) == (160, 40, (2, 64, 64, 1))
    assert learned.score < 0.35 * learned.baseline
    aside = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:40].numpy()
    with torch.no_grad():
        found = learned.network(torch.from_numpy(x[aside]).float())[:, 0].double().numpy()
    assert learned.score == pytest.approx(math.sqrt(np.mean((found - y[aside]) ** 2)), rel=1e-6)
    inside = np.setdiff1d(np.arange(200), aside)
    assert learned.baseline == pytest.approx(math.sqrt(np.mean((y[inside].mean() - y[aside]) ** 2)), rel=1e-6)


def test_classes_are_told_apart_and_beside_the_commonest(written):
    x, y = lines()
    table = table_of(x, np.where(y > 40, "high", "low"), written)
    columns = learning.choose_columns(table, ["y"], ["a", "b"], classify=True)
    assert (columns.classes, columns.outputs) == (("high", "low"), 2)
    learned = learning.learn(table, columns, epochs=200, held_out=0.25)
    assert learned.score > 0.85 > 0.75 > learned.baseline


def test_few_rows_are_all_trained_on(written):
    x, y = lines(8)
    table = table_of(x, y, written)
    learned = learning.learn(table, learning.choose_columns(table, ["y"], None, classify=False), epochs=5, rate=0.01)
    assert (learned.rows, learned.held_out, learned.result.validation) == (8, 0, ())


def test_where_no_rate_is_found_it_is_adams_own(written, monkeypatch):
    def nothing(*args, **kwargs):
        raise InvalidValue("no learning rate")

    monkeypatch.setattr(learning, "find_rate", nothing)
    table = table_of(*lines(20), written)
    columns = learning.choose_columns(table, ["y"], None, classify=False)
    assert learning.learn(table, columns, epochs=2).rate == learning.ADAMS_RATE


def test_the_same_seed_gives_the_same_bits_and_batches_are_drawn_from_it(written, monkeypatch):
    monkeypatch.setattr(learning, "FULL_BATCH", 50)
    x, y = lines()
    table = table_of(x, y, written)
    columns = learning.choose_columns(table, ["y"], None, classify=False)
    nets = [learning.learn(table, columns, epochs=3, rate=0.01, seed=s).network.merged() for s in (4, 4, 5)]
    assert all(torch.equal(a, b) for a, b in zip(nets[0], nets[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(nets[0], nets[2], strict=True))


def test_scales_go_into_networks_that_can_take_them(generator):
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    m, s, u, v = (torch.rand(n, generator=generator).double() + 0.5 for n in (3, 3, 2, 2))
    for widths in ((3, 2), (3, 7, 2), (3, 7, 8, 2)):
        net = radnet.RadNet(widths, "sigmoid", dtype=torch.float64, generator=generator)
        torch.testing.assert_close(learning.with_scales(net, m, s, u, v)(x), u + v * net((x - m) / s))
    for net in (radnet.RadNet((3, 7, 2), bias=False), radnet.RadNet((3, 7, 2), output="squash")):
        with pytest.raises(InvalidValue, match="scales go into a network that has biases"):
            learning.with_scales(net, m, s, u, v)


@pytest.mark.parametrize(
    ("targets", "inputs", "classify", "match"),
    [
        (["z"], None, False, "there is no column 'z'; it has a, b, y"),
        (["y"], ["y"], False, "y cannot be input and target at once"),
        (["a", "b", "y"], None, False, "at least one input and one target"),
        (["a", "y"], None, True, "classes stand in one column"),
        (["c"], None, True, "there is no column"),
    ],
)
def test_columns_that_cannot_be_are_refused(targets, inputs, classify, match, written):
    table = table_of(*lines(20), written)
    with pytest.raises(InvalidValue, match=match):
        learning.choose_columns(table, targets, inputs, classify)


def test_one_label_is_no_classes_and_a_share_is_below_one(written):
    x, _ = lines(20)
    table = table_of(x, ["same"] * 20, written)
    with pytest.raises(InvalidValue, match="1 different labels; expected 2 to 1,000"):
        learning.choose_columns(table, ["y"], None, classify=True)
    with pytest.raises(InvalidValue, match="below 1"):
        learning.learn(table, learning.Columns(("a",), ("b",)), held_out=1.0)
