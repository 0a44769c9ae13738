"""Evaluation by columns is the same function, trained alike."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import radnet
from radnet.columns import Columns
from radnet.testing import assert_same_function


class Doubling(radnet.RadialActivation):
    """One that does more than its profile says."""

    def profile(self, r):
        return r

    def forward(self, v):
        return 2 * v


ACTIVATIONS = ["step_relu", "squash", "shifted_relu", "sigmoid", "identity", radnet.Radial(torch.sin), Doubling()]


@given(
    activation=st.sampled_from(ACTIVATIONS),
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    shift=st.sampled_from([None, "trainable"]),
    bias=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_by_columns_or_by_rows_it_is_the_same_function(activation, widths, shift, bias, seed):
    generator = torch.Generator().manual_seed(seed)
    given_shift = shift if isinstance(activation, str) else None
    net = radnet.RadNet(
        widths, copy.deepcopy(activation), shift=given_shift, bias=bias, generator=generator, dtype=torch.float64
    )
    x = torch.randn(40, widths[0], generator=generator, dtype=torch.float64)
    assert_same_function(net, Columns(net), x)
    assert Columns(net)(x[:0]).shape == (0, widths[-1])
    assert torch.equal(Columns(net)(x.reshape(5, 8, -1)).reshape(40, -1), Columns(net)(x))


def test_training_by_columns_is_training_the_network(generator):
    net = radnet.RadNet((2, 4, 5, 1), "sigmoid", shift="trainable", generator=generator, dtype=torch.float64)
    other = copy.deepcopy(net)
    x = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    for model, network in ((Columns(net), net), (other, other)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(50):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert network.parameter_count == sum(p.numel() for p in model.parameters())
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=1e-10, atol=1e-12)


def test_columns_refuses_what_it_cannot_evaluate():
    with pytest.raises(TypeError, match="expected a RadNet, got Linear"):
        Columns(torch.nn.Linear(2, 2))

    class Own(radnet.RadNet):
        def forward(self, x):
            return super().forward(x) + 1

    with pytest.raises(TypeError, match="Own has a forward of its own"):
        Columns(Own((2, 3, 1)))
    hooked = radnet.RadNet((2, 3, 1))
    hooked.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="hooks"):
        Columns(hooked)(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="Columns"):
        Columns(radnet.RadNet((2, 3, 1)))(torch.zeros(4, 3))
    with pytest.raises(TypeError, match="Columns: input is torch.float64, the parameters are torch.float32"):
        Columns(radnet.RadNet((2, 3, 1)))(torch.zeros(4, 2, dtype=torch.float64))
