"""Radial modules behave as people expect of PyTorch modules: compiled, exported, copied, saved, nested, mapped."""

import copy
import io
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import radnet
from radnet.testing import assert_same_function
from strategies import ACTIVATIONS, Bump

KINDS = sorted(ACTIVATIONS)


def network(generator, **keywords):
    hidden = ["squash", radnet.Radial(torch.tanh), "sigmoid"]
    return radnet.RadNet((3, 8, 6, 5, 2), hidden, init="linear", generator=generator, **keywords)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.xdist_group("compile")
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_activation_agrees_with_eager_in_value_and_gradient(kind, generator):
    rho = ACTIVATIONS[kind](shift="trainable")
    v = torch.randn(16, 6, generator=generator)
    v[0] = 0
    gy = torch.randn(16, 6, generator=generator)
    results = []
    for f in (rho, torch.compile(rho, fullgraph=True)):
        x = v.clone().requires_grad_()
        rho.zero_grad()
        y = f(x)
        y.backward(gy)
        results.append((y.detach(), x.grad, rho.shift.grad.clone()))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.xdist_group("compile")
def test_a_compiled_network_agrees_with_eager(generator, evidence):
    net = network(generator)
    compiled = torch.compile(net, fullgraph=True)
    x = torch.randn(32, 3, generator=generator)
    assert_same_function(net, compiled, x)
    gap = radnet.testing.functional_gap(net, compiled, x)
    evidence("torch.compile agrees with eager", ulps=gap.ulps)
    net(x).square().sum().backward()
    eager = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    compiled(x).square().sum().backward()
    for a, p in zip(eager, net.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.xdist_group("compile")
def test_rows_at_the_origin_are_compiled_right(generator):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), radnet.RadialSigmoid())
    x = torch.zeros(2, 3)
    y = torch.compile(net, fullgraph=True)(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(2, 4))
    assert net[0].weight.grad.isfinite().all()


@pytest.mark.xdist_group("compile")
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_network_agrees_with_eager_for_any_batch(strict, generator, evidence):
    net = network(generator, shift=None)
    x = torch.randn(32, 3, generator=generator)
    program = torch.export.export(net, (x,), strict=strict, dynamic_shapes=({0: torch.export.Dim.AUTO},))
    for rows in (32, 7):
        assert_same_function(net, program.module(), x[:rows])
    evidence("torch.export agrees with eager", strict=strict)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_activation_agrees_with_eager(kind, generator):
    rho = ACTIVATIONS[kind](shift=0.25)
    v = torch.randn(16, 6, generator=generator)
    v[0] = 0
    program = torch.export.export(rho, (v,)).module()
    torch.testing.assert_close(program(v), rho(v), rtol=1e-6, atol=1e-7)


def test_a_network_can_be_copied_pickled_saved_and_converted(generator):
    net = network(generator)
    x = torch.randn(8, 3, generator=generator)
    twin = network(torch.Generator().manual_seed(99))
    assert not torch.equal(twin(x), net(x))
    twin.load_state_dict(net.state_dict())
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    loaded = network(torch.Generator().manual_seed(98))
    loaded.load_state_dict(torch.load(buffer, weights_only=True))
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), twin, loaded):
        assert torch.equal(other(x), net(x))
    double = copy.deepcopy(net).to(torch.float64)
    assert double(x.double()).dtype == torch.float64
    torch.testing.assert_close(double(x.double()).float(), net(x))
    assert {p.dtype for p in net.half().parameters()} == {torch.float16}


def test_state_dict_names_are_stable():
    names = list(radnet.RadNet((1, 2, 1), "squash", shift="trainable").state_dict())
    assert names == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "rescalings.0.shift",
    ]  # fmt: skip


def test_radial_modules_nest_in_sequential_and_train_from_a_data_loader(generator):
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 6),
        radnet.ShiftedReLU(0.1, blocks=2),
        radnet.RadNet((6, 8, 3), "sigmoid", shift="trainable", generator=generator),
        torch.nn.Linear(3, 1),
    )
    x = torch.randn(64, 2, generator=generator)
    y = x @ torch.tensor([[1.0], [-2.0]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(15):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16):
            optimizer.zero_grad()
            loss = (model(xb) - yb).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(float((model(x) - y).square().mean().detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert model[2].activations[0].shift.detach() != 0
    assert torch.equal(copy.deepcopy(model)(x), model(x))


def test_channels_of_images_are_rescaled_pixel_by_pixel(generator):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), radnet.Squash(dim=1), torch.nn.Flatten())
    images = torch.randn(4, 1, 5, 5, generator=generator)
    pixel = model[0](images)[2, :, 1, 0]
    torch.testing.assert_close(model[1](model[0](images))[2, :, 1, 0], radnet.Squash()(pixel))


@pytest.mark.parametrize("kind", KINDS)
def test_function_transforms_agree_with_loops(kind, generator):
    rho = ACTIVATIONS[kind](dtype=torch.float64)
    v = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(rho)(v), rho(v))
    jacobian = torch.vmap(torch.func.jacrev(rho))(v)
    forward = torch.vmap(torch.func.jacfwd(rho))(v)
    looped = torch.stack([torch.autograd.functional.jacobian(rho, row) for row in v])
    torch.testing.assert_close(jacobian, looped)
    torch.testing.assert_close(forward, looped)


def test_an_ensemble_of_networks_runs_in_one_vmap(generator):
    nets = [network(generator, shift=None) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(nets)
    x = torch.randn(4, 3, generator=generator)
    base = copy.deepcopy(nets[0]).to("meta")
    out = torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(out, torch.stack([net(x) for net in nets]))


def test_a_shift_can_be_mapped_over(generator):
    v = torch.randn(4, 3, generator=generator)
    shifts = torch.tensor([0.0, 0.5, -0.5])
    out = torch.vmap(lambda t: radnet.rescaling.rescale(v, torch.sigmoid, shift=t))(shifts)
    torch.testing.assert_close(out[1], radnet.RadialSigmoid(shift=0.5)(v))


def test_autocast_is_left_to_torch(generator):
    net = network(generator)
    x = torch.randn(8, 3, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x)
    torch.testing.assert_close(y.float(), net(x), rtol=0.1, atol=0.1)


def test_a_subclass_needs_nothing_but_its_profile(generator):
    net = radnet.RadNet((2, 7, 1), Bump(), generator=generator)
    assert radnet.compress(net).certificate.lossless
    net(torch.randn(3, 2, generator=generator)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
