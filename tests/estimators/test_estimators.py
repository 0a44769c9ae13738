"""The estimators: scikit-learn's own checks, its tools, what is kept, what is refused, and the way to other worlds."""

import copy
import pickle
import subprocess
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import radnet
from radnet.activations import NAMES
from radnet.estimators import RadialApproximator, RadialClassifier, RadialRegressor
from radnet.estimators.arrays import (
    MANY,
    PROFILES,
    Scales,
    arrays_of,
    forward,
    moved_inputs,
    moved_outputs,
    network_of,
)
from radnet.models import BlockRadialMLP

SMALL = {"hidden": (24,), "epochs": 120, "random_state": 0}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def waves(rows=300, columns=3, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, columns)) * 10.0 ** np.arange(columns) + 5
    Z = (X - X.mean(0)) / X.std(0)
    y = np.stack([np.sin(Z[:, 0] * Z[:, 1] + k) for k in range(outputs)], axis=1) * 7 - 3
    return X, y[:, 0] if outputs == 1 else y


@parametrize_with_checks([RadialRegressor(), RadialClassifier(), RadialApproximator()])
def test_scikit_learns_own_checks(estimator, check, count):
    """As they come from the constructor at full counts; with fewer epochs in short."""
    if isinstance(estimator, RadialRegressor | RadialClassifier):
        estimator.set_params(epochs=count(100, "auto"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        check(estimator)


# --- its tools


def test_it_works_in_pipelines_searches_and_processes():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), RadialClassifier(**SMALL))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.93
    grid = {"profile": ["sin", "squash"], "block_size": [3, None]}
    found = GridSearchCV(RadialClassifier(**SMALL), grid, cv=2, n_jobs=2).fit(X, y)
    assert found.best_score_ > 0.9
    halving = HalvingGridSearchCV(
        RadialRegressor(hidden=(12,), random_state=0), {"learning_rate": [0.001, 0.01]},
        resource="epochs", min_resources=20, max_resources=60, cv=2,
    ).fit(*waves(90))  # fmt: skip
    assert halving.best_estimator_.n_iter_ <= 60
    here = joblib.Parallel(n_jobs=2)(joblib.delayed(_fit)(seed) for seed in range(2))
    assert all(np.array_equal(there, _fit(seed)) for seed, there in enumerate(here))


def _fit(seed):
    X, y = waves(60)
    torch.set_num_threads(1)
    return RadialRegressor(hidden=(12,), epochs=20, random_state=seed).fit(X, y).predict(X)


def test_it_pickles_clones_and_keeps_plain_values():
    X, y = waves()
    model = RadialRegressor(**SMALL).fit(X, y)
    kept = vars(model)
    assert not any(isinstance(value, torch.Tensor | torch.nn.Module) for value in _leaves(kept))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert len(pickle.dumps(model)) < 40_000
    fresh = clone(model)
    assert not hasattr(fresh, "layers_")
    assert np.array_equal(fresh.fit(X, y).predict(X), model.predict(X))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        clone(model).predict(X)


def _leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def test_frames_name_their_columns():
    X, y = waves()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RadialRegressor(**SMALL).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert np.array_equal(model.predict(frame), RadialRegressor(**SMALL).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])
    frame.iloc[7, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN at row 7, column 'b'"):
        model.fit(frame, y)
    polars = pytest.importorskip("polars")
    assert RadialRegressor(**SMALL).fit(polars.DataFrame(X, schema=["a", "b", "c"]), y).n_features_in_ == 3


def test_predictions_take_no_graph_and_fits_leave_torchs_random_numbers_alone(monkeypatch):
    X, y = waves()
    state = torch.random.get_rng_state()
    model = RadialRegressor(**SMALL).fit(X, y)
    assert torch.equal(torch.random.get_rng_state(), state)
    monkeypatch.setattr(torch.nn.Module, "__call__", lambda *_: pytest.fail("PyTorch was asked"))
    assert model.score(X, y) > 0.9


# --- what it learns


def test_rows_that_count_twice_are_rows_that_stand_there_twice():
    X, y = waves(60)
    weight = np.random.default_rng(1).integers(0, 3, 60)
    for model in (RadialRegressor(**SMALL), RadialClassifier(**SMALL)):
        target = y if isinstance(model, RadialRegressor) else y > y.mean()
        a = clone(model).fit(X, target, sample_weight=weight)
        b = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(target, weight, axis=0))
        for first, second in zip(_leaves([layer["weight"] for layer in a.layers_]), b.layers_, strict=True):
            np.testing.assert_allclose(first, second["weight"], rtol=1e-6, atol=1e-8)


def test_heavy_rows_count_in_whichever_batch_they_are():
    """The share of a class is its share of the weights, not of the batches that have one of it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 1)), (rng.random(3000) < 0.02).astype(int)
    weight = np.where(y, 100.0, 0.5)
    model = RadialClassifier(hidden=(12,), epochs=30, random_state=0).fit(X, y, sample_weight=weight)
    assert abs(model.predict_proba(X)[:, 1].mean() - np.average(y, weights=weight)) < 0.05
    for extreme in (np.where(y, 1e308, 1e290), np.where(np.arange(3000) == 0, 1.0, 1e-60)):
        few = RadialRegressor(hidden=(12,), epochs=2, random_state=0).fit(X.astype("f4"), y, sample_weight=extreme)
        assert np.isfinite(few.predict(X.astype("f4"))).all()


def test_several_outputs_and_large_tables():
    X, y = waves(3000, outputs=3)
    model = RadialRegressor(hidden=(48, 24), random_state=0, epochs=40).fit(X, y)
    assert model.predict(X).shape == (3000, 3)
    assert model.score(X, y) > 0.95
    assert len(model.validation_curve_) == model.n_iter_
    assert model.loss_ == min(model.validation_curve_)
    one = RadialRegressor(**SMALL).fit(X[:100], y[:100, :1])
    assert one.predict(X[:5]).shape == (5, 1)


def test_float32_stays_float32():
    X, y = waves()
    model = RadialRegressor(**SMALL).fit(X.astype(np.float32), y.astype(np.float32))
    assert model.layers_[0]["weight"].dtype == np.float32
    assert model.to_torch()[0].weight.dtype == torch.float32
    assert model.score(X.astype(np.float32), y) > 0.9


def test_training_ends_where_nothing_gets_better_and_the_best_weights_are_kept():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)), rng.normal(size=400)  # noise: there is nothing to learn
    model = RadialRegressor(hidden=(90,), epochs=300, patience=10, random_state=0, batch_size=32).fit(X, y)
    assert model.n_iter_ < 300
    assert model.best_epoch_ + 10 == model.n_iter_
    assert model.loss_ == pytest.approx(min(model.validation_curve_))
    assert model.validation_curve_[model.best_epoch_ - 1] == model.loss_


def test_restarts_keep_the_best_and_warm_starts_go_on():
    X, y = waves(120)
    once = [RadialRegressor(hidden=(12,), epochs=60, restarts=k, random_state=3).fit(X, y) for k in (1, 4)]
    assert once[1].loss_ <= once[0].loss_
    warm = RadialRegressor(hidden=(12,), epochs=60, warm_start=True, random_state=3).fit(X, y)
    first = warm.loss_curve_[-1]
    assert warm.fit(X, y).loss_curve_[0] < 1.5 * first
    assert warm.loss_ < first
    auto = RadialRegressor(hidden=(12,), epochs=60, learning_rate="auto", random_state=3).fit(X, y)
    assert 1e-5 < auto.learning_rate_ < 1


def test_a_network_that_looks_otherwise_is_not_gone_on_from():
    X, y = waves(60)
    model = RadialRegressor(hidden=(12,), epochs=20, warm_start=True, random_state=3).fit(X, y)
    before = model.set_params(profile="squash").predict(X)
    assert np.array_equal(before, model.set_params(profile="sin").predict(X))  # what is there is what was fitted
    for change in ({"hidden": (24,)}, {"profile": "squash"}, {"shift": None}):
        other = copy.deepcopy(model).set_params(**change)
        name = next(iter(change))
        for call in (other.fit, other.partial_fit):
            with pytest.raises(ValueError, match=f"the network that is there has {name}="):
                call(X, y)
        assert np.array_equal(other.set_params(warm_start=False).predict(X), before)
        assert other.fit(X, y).n_iter_ == 20


def test_partial_fit_learns_pass_by_pass():
    X, y = waves(200)
    model = RadialRegressor(hidden=(24,), random_state=0)
    for _ in range(150):
        model.partial_fit(X, y)
    assert model.n_steps_ == len(model.loss_curve_) == 150
    assert model.loss_curve_[-1] < 0.2 * model.loss_curve_[0]
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.partial_fit(X, y).predict(X), model.partial_fit(X, y).predict(X))
    classes = RadialClassifier(hidden=(12,), random_state=0).partial_fit(X[:50], np.zeros(50), classes=[0, 1, 2])
    assert classes.predict_proba(X).shape == (200, 3)
    with pytest.raises(ValueError, match=r"y has classes \[5.0\], of which the network knows nothing"):
        classes.partial_fit(X[:2], [5.0, 0.0])
    with pytest.raises(ValueError, match="the first call had"):
        classes.partial_fit(X[:2], [0, 1], classes=[0, 1])


def test_a_stream_may_begin_with_one_row_or_with_columns_that_do_not_change_yet():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) * [1, 1000, 1e-3] + [5, 0, 1]
    X[:20, 1] = 7
    y = ((X - X.mean(0)) / X.std(0)) @ [1, 2, 3.0] * 50
    for first in (1, 20):
        model = RadialRegressor(hidden=(24,), random_state=0)
        model.partial_fit(X[:first], np.full(first, 3.0))
        assert np.allclose(model.predict(X[:first]), 3.0, atol=1e-12)
        for _ in range(40):
            for i in range(0, 400, 40):
                model.partial_fit(X[i : i + 40], y[i : i + 40])
        assert model.score(X, y) > 0.98
    seen = np.concatenate([X[:20], *[X] * 40])
    np.testing.assert_allclose(model._scales.mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(model._scales.size, seen.std(0), rtol=1e-9)


def test_scales_that_move_leave_the_function_as_it_is():
    X, y = waves(200)
    model = RadialRegressor(hidden=(24,), epochs=30, random_state=0).fit(X, y)
    before = model.predict(X)
    other = Scales(model._scales.mean + 3, model._scales.size * 2)
    model.layers_, model._scales = moved_inputs(model.layers_, model._scales, other), other
    target = Scales(model._y_scales.mean - 5, model._y_scales.size / 3)
    model.layers_, model._y_scales = moved_outputs(model.layers_, model._y_scales, target), target
    np.testing.assert_allclose(model.predict(X), before, rtol=1e-10, atol=1e-10)


def test_the_number_of_digits_and_the_optimizer_may_change_between_passes():
    X, y = waves(60)
    for first, then in ((np.float32, np.float64), (np.float64, np.float32)):
        model = RadialRegressor(hidden=(12,), epochs=5, warm_start=True, random_state=0)
        model.partial_fit(X.astype(first), y).partial_fit(X.astype(then), y).fit(X.astype(then), y)
        assert model.layers_[0]["weight"].dtype == first
    for name in ("nadam", "sgd", "adamw", "adam"):
        model.set_params(optimizer=name).partial_fit(X, y)
    with torch.no_grad(), torch.inference_mode():
        assert np.isfinite(model.fit(X, y).partial_fit(X, y).predict(X)).all()


def test_a_fit_that_fails_leaves_what_was_fitted_before():
    X, y = waves(60)
    model = RadialRegressor(hidden=(12,), epochs=20, random_state=0).fit(X, y)
    before, kept = model.predict(X), dict(vars(model))
    model.set_params(shift="abc")
    with pytest.raises(ValueError, match="shift='abc'"):
        model.fit(X * 100 + 7, y * 5)
    assert np.array_equal(model.predict(X), before)
    assert {**vars(model), "shift": "per_block"} == kept or vars(model).keys() == kept.keys()
    classes = RadialClassifier(hidden=(12,), epochs=5, random_state=0).fit(X, y > 0)
    with pytest.raises(ValueError, match="NaN"):
        classes.fit(np.full((4, 2), np.nan), [0, 1, 2, 3])
    assert classes.classes_.tolist() == [False, True]
    assert classes.n_features_in_ == 3


def test_a_column_that_never_changed_changes_nothing():
    X, y = waves(300)
    X[:, 2] = 2024
    model = RadialRegressor(**SMALL).fit(X, y)
    later = X + np.array([0, 0, 1])
    assert np.array_equal(model.predict(later), model.predict(X))


def test_wide_blocks_are_compressed_and_no_prediction_changes(evidence):
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :4]
    options = {"hidden": (64, 64), "block_size": None, "profile": "squash", "epochs": 60, "random_state": 0}
    wide, small = (RadialClassifier(compress=c, **options).fit(X, y) for c in (False, True))
    assert wide.n_parameters_ > 20 * small.n_parameters_
    assert small.certificate_["lossless"] is True
    assert wide.certificate_ is None
    assert np.array_equal(wide.predict(X), small.predict(X))
    np.testing.assert_allclose(wide.predict_proba(X), small.predict_proba(X), rtol=1e-9, atol=1e-12)
    evidence("a compressed classifier", before=wide.n_parameters_, after=small.n_parameters_, changed=0)


# --- elsewhere


@pytest.mark.parametrize("kind", [RadialRegressor, RadialClassifier])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_goes_to_torch_onnx_and_c(kind, dtype, tmp_path):
    X, y = waves(150, outputs=2)
    X = X.astype(dtype)
    y = y if kind is RadialRegressor else (y[:, 0] > y.mean()).astype(int) + (y[:, 0] > 3)
    model = kind(scale="per_block", **SMALL).fit(X, y)
    net = model.to_torch()
    with torch.no_grad():
        out = net(torch.tensor(X)).numpy()
    expected = model.predict(X) if kind is RadialRegressor else model._outputs(X)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(out, expected, rtol=5e3 * eps, atol=5e3 * eps * np.abs(expected).max())
    found = model.to_onnx(tmp_path / "model.onnx")
    assert found.gap <= 1e5 * eps * max(1.0, found.scale)
    assert model.to_c(tmp_path / "model.h", name="model") > 0
    (tmp_path / "main.c").write_text('#include "model.h"\nint main(void) { return 0; }\n')
    subprocess.run(["gcc", "-std=c99", "main.c", "-o", "main", "-lm"], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("rows", [1, MANY - 1, MANY, 50])
@pytest.mark.parametrize("profile", NAMES)
def test_the_arrays_are_the_network(profile, rows, generator):
    assert set(PROFILES) == set(NAMES)
    for hidden in ([(5, 3), (2, 7)], [(1, 9)], [(4, 1)], [(3, 20), (3, 2)]):
        net = BlockRadialMLP(2, hidden, 2, profile=profile, scale="per_block", generator=generator, dtype=torch.float64)
        with torch.no_grad():
            for p in net.parameters():
                p += 0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        small = copy.deepcopy(net)
        small[0].weight.data[-1] = 0
        x = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
        for one in (net, radnet.compress(net.eval(), torch.randn(40, 2, generator=generator).double()).network, small):
            layers = arrays_of(one)
            with torch.no_grad():
                np.testing.assert_allclose(forward(layers, profile, x.numpy()), one(x), rtol=1e-10, atol=1e-12)
                assert torch.equal(network_of(layers, profile)(x), one(x))


# --- what is odd


def test_constant_targets_one_class_and_constant_columns():
    X, _ = waves(30)
    X[:, 1] = 1e9 + 0.1
    assert np.array_equal(RadialRegressor(**SMALL).fit(X, np.full(30, 0.1)).predict(X), np.full(30, 0.1))
    one = RadialClassifier(**SMALL).fit(X, np.full(30, "only"))
    assert set(one.predict(X)) == {"only"}
    assert np.array_equal(one.predict_proba(X), np.ones((30, 1)))
    many = RadialClassifier(**SMALL).fit(X[:4], list("abcd"))
    assert many.predict_proba(X).shape == (30, 4)
    assert (many.predict(X[:4]) == list("abcd")).mean() > 0.7


def test_numbers_of_any_size_are_learned_from_and_predicted_for():
    X, y = waves(200)
    model = RadialRegressor(**SMALL).fit(X * [1e200, 1e-200, 1], y * 1e150)
    assert model.score(X * [1e200, 1e-200, 1], y * 1e150) > 0.9
    plain = RadialRegressor(**SMALL).fit(X, y)
    far = plain.predict(np.array([[1e308, 0, 0], [1e160, -1e160, 5], [0, 0, 0]]))
    assert np.isfinite(far).all()
    assert np.isfinite(RadialRegressor(profile="swish", **SMALL).fit(X, y).predict(X * 1e300)).all()
    bounded = RadialRegressor(profile="tanh", **SMALL).fit(X.astype("f4"), y)
    far = np.array([[1e15, 3e15, -1e15]], dtype="f4")
    np.testing.assert_allclose(bounded.predict(far), bounded.predict(far * np.float32(1e10)), rtol=1e-4, atol=1e-3)
    assert RadialRegressor(validation_fraction=0.999, **SMALL).fit(X, y).n_iter_ > 0
    scales = Scales.of(np.array([[1e308], [-1e308]]), np.ones(2))
    assert scales.size == pytest.approx(1e308)


def test_a_rate_that_diverges_keeps_the_best_weights_before_it():
    X, y = waves(400)
    model = RadialRegressor(
        hidden=(24,), profile="identity", shift=None, optimizer="sgd", learning_rate=1e3, random_state=0,
        schedule="constant", validation_fraction=0.0,
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match="diverged in epoch .* with learning rate 1000; the best weights"):
        model.fit(X, y)
    assert np.isfinite(model.predict(X)).all()


BAD = {
    "blocks": ({"hidden": (10,)}, "10 does not split into blocks of 3"),
    "hidden": ({"hidden": "96"}, "expected widths of hidden layers"),
    "nothing": ({"hidden": (0,)}, "expected widths of hidden layers"),
    "profile": ({"profile": "sine"}, "profile='sine': expected one of identity"),
    "optimizer": ({"optimizer": "lbfgs"}, "expected one of adam"),
    "schedule": ({"schedule": None}, "schedule=None: expected one of cosine"),
    "rate": ({"learning_rate": -1.0}, "expected a number above 0, or 'auto'"),
    "epochs": ({"epochs": 0}, "epochs=0: expected a whole number of at least 1"),
    "batch": ({"batch_size": 2.5}, "batch_size=2.5: expected a whole number"),
    "fraction": ({"validation_fraction": 1.0}, "of at least 0 and below 1"),
    "profile of another kind": ({"profile": ["sin"]}, r"profile=\['sin'\]: expected one of"),
    "shift": ({"shift": "each"}, "shift='each': expected None, a number"),
    "restarts": ({"restarts": 0}, "restarts=0"),
}


@pytest.mark.parametrize("name", BAD)
def test_parameters_that_are_none_are_named(name):
    settings, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        RadialRegressor(**settings).fit(*waves(20))
    assert isinstance(caught.value, radnet.RadNetError)


def test_data_that_cannot_be_learned_from_is_refused():
    X, y = waves(30)
    model = RadialRegressor(**SMALL)
    with pytest.raises(ValueError, match="all weights are zero"):
        model.fit(X, y, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="Input X contains infinity at row 2, column 1"):
        model.fit(np.where(np.arange(90).reshape(30, 3) == 7, np.inf, X), y)
    with pytest.raises(ValueError, match="contains NaN"):
        model.fit(X, np.where(np.arange(30) == 4, np.nan, y))
    from scipy import sparse

    with pytest.raises(TypeError, match="[Ss]parse"):
        model.fit(sparse.csr_matrix(X), y)
    assert not hasattr(model, "layers_")


# --- by construction


def test_an_approximator_is_within_eps_at_every_row():
    X, y = waves(150, columns=2, outputs=2)
    X = X / X.std(0)
    model = RadialApproximator(eps=1.5).fit(X, y)
    assert float(np.linalg.norm(model.predict(X) - y, axis=1).max()) < 1.5
    assert model.certificate_["balls"] < 150
    assert model.certificate_["eps"] == 1.5
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.allclose(again.predict(X + 1e6), y.mean(0))


def test_rows_that_contradict_each_other_or_a_claim_are_named():
    X, y = np.array([[0.0], [1.0], [1.0], [2.0]]), np.array([0.0, 1.0, 1.5, 2.0])
    with pytest.raises(ValueError, match=r"rows 1 and 2 have the same inputs, and targets that differ by 0.5"):
        RadialApproximator(eps=0.2).fit(X, y)
    assert np.abs(RadialApproximator(eps=0.4).fit(X, y).predict(X) - y).max() < 0.4
    with pytest.raises(ValueError, match=r"lipschitz=0.1 does not hold: from \[0.0\] to \[1.0\] .* 1.25 times"):
        RadialApproximator(eps=0.4, lipschitz=0.1).fit(X, y)
    with pytest.raises(ValueError, match="eps=-1"):
        RadialApproximator(eps=-1).fit(X, y)


def test_without_scikit_learn_the_error_says_what_to_install():
    import sys

    code = (
        "import sys\nsys.modules['sklearn'] = None\nimport radnet\n"
        "try:\n    radnet.estimators.RadialRegressor\nexcept radnet.errors.MissingPackage as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'radnet[sklearn]'" in out.stdout
