"""What `fit` and `find_rate` are given that does not go: told before anything is trained."""

import pytest
import torch
from torch import nn

import radnet
from radnet.training import find_rate, fit

X = torch.linspace(-1, 1, 50).unsqueeze(1)
Y = 2 * X


def run(data=(X, Y), **options):
    """Train, and if that is refused, as it should be, see that nothing has changed."""
    net = radnet.RadNet((1, 4, 1), "squash", generator=torch.Generator().manual_seed(0))
    before = {name: x.clone() for name, x in net.state_dict().items()}
    make = options.pop("optimizer", lambda net: torch.optim.Adam(net.parameters()))
    try:
        fit(net, data, epochs=options.pop("epochs", 3), optimizer=make(net), **options)
    finally:
        assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"data": (X, Y[:1])}, "50 rows of inputs and 1 of targets"),
        ({"data": (X, Y[:7])}, "50 rows of inputs and 7 of targets"),
        ({"data": (X, torch.cat([Y, Y], 1))}, r"outputs have shape \(50, 1\), the targets \(50, 2\)"),
        ({"data": (X, torch.cat([Y, Y], 1)), "loss": nn.L1Loss()}, r"\(50, 1\), the targets \(50, 2\)"),
        ({"data": (X[:0], Y[:0])}, "the data gave no rows"),
        ({"data": 5}, "data is a int; expected a pair"),
        ({"data": [X, Y]}, "a batch is a Tensor; expected pairs"),
        ({"validation": (X, Y[:1])}, "50 rows of inputs and 1 of targets"),
        ({"validation": (X, torch.cat([Y, Y], 1))}, r"outputs have shape \(50, 1\), the targets \(50, 2\)"),
        ({"validation": 5}, "data is a int; expected a pair"),
        ({"loss": nn.MSELoss}, "the loss is the class MSELoss; did you mean MSELoss"),
        ({"loss": nn.MSELoss(reduction="none")}, r"the loss gave a tensor of shape \(50, 1\)"),
        ({"loss": lambda a, b: None}, "the loss gave a NoneType"),
        ({"loss": lambda a, b: (a - b).detach().square().mean()}, "the loss has no gradient"),
        ({"optimizer": lambda net: torch.optim.LBFGS(net.parameters())}, "LBFGS evaluates the loss several times"),
        ({"target": float("nan")}, "target"),
        ({"max_seconds": -1.0}, "max_seconds=-1.0: must be at least 0"),
        ({"checkpoint": 5}, "a path was expected, got a int"),
    ],
)
def test_what_does_not_go_is_refused_before_anything_is_trained(options, match):
    with pytest.raises(radnet.RadNetError, match=match):
        run(**options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"data": (X, Y[:3])}, "50 rows of inputs and 3 of targets"),
        ({"optimizer": torch.optim.LBFGS}, "without a closure"),
        ({"optimizer": torch.optim.Adam([nn.Parameter(X)])}, "find_rate needs a class of torch.optim"),
        ({"loss": lambda a, b: None}, "the loss gave a NoneType"),
    ],
)
def test_what_find_rate_is_given_is_refused_with_a_reason(options, match):
    data = options.pop("data", (X, Y))
    with pytest.raises(radnet.RadNetError, match=match):
        find_rate(radnet.RadNet((1, 4, 1)), data, **options)


def test_a_model_that_is_frozen_has_no_rate():
    with pytest.raises(radnet.RadNetError, match="the loss has no gradient: are all parameters frozen"):
        find_rate(radnet.RadNet((1, 4, 1)).requires_grad_(False), (X, Y))


def test_a_scheduler_that_looks_at_the_loss_gets_it():
    net = radnet.RadNet((1, 4, 1), "squash", generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.9)
    result = fit(net, (X, Y), epochs=6, optimizer=optimizer, scheduler=scheduler, validation=(X, Y))
    assert result.rates[-1] < result.rates[0]


def test_a_scheduler_that_is_at_its_end_is_told():
    net = radnet.RadNet((1, 4, 1), "squash")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=3)
    with pytest.raises(radnet.RadNetError, match="the scheduler OneCycleLR refuses to go on"):
        fit(net, (X, Y), epochs=9, optimizer=optimizer, scheduler=scheduler)
