"""The examples run, and show what they claim."""

import importlib.util
import os
import subprocess
import sys

import pytest

from places import ROOT

EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))

pytestmark = pytest.mark.skipif(not FILES, reason="the examples are not part of this copy")


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_example_runs(path, tmp_path):
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::UserWarning", path]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_relu_networks_are_invariant_under_positive_rescaling_and_radial_ones_under_rotation():
    gaps = load("relu_rescaling").main()
    assert gaps["ReLU network, positive rescaling"] < 1e-12
    assert gaps["ReLU network, rotation"] > 0.1
    assert gaps["radial network, rotation"] < 1e-12
    assert gaps["radial network, positive rescaling"] > 0.1


def test_not_one_prediction_changes_in_the_compression_example(capsys):
    compression = load("compress_a_network").main()
    assert "predictions changed: 0" in capsys.readouterr().out
    assert compression.network.widths == (2, 3, 4, 2)
    assert compression.certificate.lossless


def test_growing_beats_staying_narrow_in_the_growth_example():
    results = load("grow_train_compress").main()
    assert sum(grown < stayed for stayed, grown in results) >= 5
    assert sum(grown for _, grown in results) < 0.8 * sum(stayed for stayed, _ in results)


def test_the_shipped_network_is_a_hundred_times_smaller_and_predicts_the_same_labels(evidence):
    outcome = load("train_wide_ship_tiny").main()
    evidence("train wide, ship tiny", ratio=outcome["ratio"], labels_changed=outcome["changed"], rows=outcome["rows"])
    assert outcome["ratio"] >= 100
    assert outcome["changed"] == 0
    assert outcome["compression"].certificate.lossless
    assert outcome["rows"]["the same, compressed"]["accuracy"] > 0.9


def test_a_convolutional_network_on_real_digits_shrinks_and_changes_no_prediction(count, evidence):
    found = load("compress_digits").main(epochs=count(3, 12))
    assert found.pop("compression").certificate.lossless
    evidence("digits", **found)
    assert found["changed"] == 0
    assert found["channels"] == 10
    assert found["accuracy"] >= count(0.9, 0.97)
