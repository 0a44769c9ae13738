"""skorch and Lightning train a radial network as they train any module; skipped where they are not installed."""

import warnings

import numpy as np
import pytest
import torch

import radnet


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8)).astype("float32")
    return X, np.sin(X[:, :1])


def test_skorch_trains_a_radial_network_without_an_adapter():
    skorch = pytest.importorskip("skorch")
    X, y = table()
    net = skorch.NeuralNetRegressor(
        radnet.RadNet((8, 64, 64, 1), "squash"), optimizer=torch.optim.Adam, lr=0.001, max_epochs=20, verbose=0
    )
    net.fit(X, y)
    assert net.history[-1]["train_loss"] < 0.8 * net.history[0]["train_loss"]
    assert radnet.compress(net.module_).network.widths == (8, 9, 10, 1)


def test_lightning_trains_a_radial_network_without_an_adapter():
    lightning = pytest.importorskip("lightning")

    class Regression(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = radnet.RadNet((8, 64, 64, 1), "squash")

        def training_step(self, batch, _):
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    data = torch.utils.data.TensorDataset(*map(torch.from_numpy, table()))
    model = Regression()
    with torch.no_grad():
        before = float(model.training_step(data.tensors, 0))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(max_epochs=20, **options).fit(model, torch.utils.data.DataLoader(data, batch_size=50))
    assert float(model.training_step(data.tensors, 0).detach()) < 0.8 * before
    assert radnet.compress(model.net).network.widths == (8, 9, 10, 1)
