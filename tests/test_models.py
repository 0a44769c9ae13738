"""Models on the core: what they compute, what compression makes of them, what they refuse."""

import pytest
import torch
from torch import nn

import radnet
from radnet.models import BlockRadialMLP, RadialConv2d, ResidualRadialMLP


def test_a_radial_convolution_rescales_the_channels_of_every_pixel(generator):
    layer = RadialConv2d(2, 5, 3, "sigmoid", shift="trainable", padding=1)
    x = torch.randn(3, 2, 6, 6, generator=generator)
    v = layer[0](x)
    r = v.norm(dim=1, keepdim=True)
    assert torch.allclose(layer(x), torch.sigmoid(r) * v / r, atol=1e-6)
    assert isinstance(layer[1].shift, nn.Parameter)


def test_a_residual_radial_mlp_is_its_formula(generator):
    model = ResidualRadialMLP(3, 2, width=8, hidden=16, depth=2, activation="shifted_relu")
    x = torch.randn(7, 3, generator=generator)
    y = model.stem(x)
    for up, rho, down in model.blocks:
        v = up(y)
        r = v.norm(dim=1, keepdim=True)
        y = y + down((r - 0.5).clamp(min=0) * v / r)
        assert rho.b == 0.5
    assert torch.allclose(model(x), model.head(y), atol=1e-6)


def test_blocks_of_one_entry_are_pointwise_and_one_block_is_radial(generator):
    x = torch.randn(9, 3, generator=generator)
    pointwise = BlockRadialMLP((3, 6, 2), block=1)
    v = pointwise[0](x)
    assert torch.allclose(pointwise(x), pointwise[2](v.sign() * v**2 / (1 + v**2)), atol=1e-6)
    whole = BlockRadialMLP((3, 6, 2), block=6)
    assert torch.allclose(whole(x), whole[2](radnet.Squash()(whole[0](x))), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "x", "expected"),
    [
        (ResidualRadialMLP(3, 2, width=64, hidden=256, depth=3), (3,), [32, 4, 8, 16]),
        (BlockRadialMLP((3, 24, 24, 2), block=8), (3,), [4, 4, 4, 8, 8, 8]),
        (nn.Sequential(RadialConv2d(1, 30, 3), RadialConv2d(30, 2, 3)), (1, 6, 6), [10]),
    ],
)
def test_what_compression_makes_of_them(model, x, expected):
    model = model.double().eval()
    c = radnet.compress(model, torch.randn(16, *x, dtype=torch.float64))
    assert [space.after for space in c.spaces if "output" not in space.why] == expected


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="do not split into blocks of 8"):
        BlockRadialMLP((3, 20, 2), block=8)
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        ResidualRadialMLP(3, 2, width=0, hidden=4, depth=1)
    with pytest.raises(ValueError, match="activation"):
        RadialConv2d(1, 2, 3, "nonsense")
