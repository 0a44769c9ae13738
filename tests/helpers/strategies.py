"""Random radial networks, the awkward ones included, and what any module must be able to do."""

import torch
from hypothesis import strategies as st

import radnet


class Bump(radnet.RadialActivation):
    """A profile made up for the tests: not monotone, negative for large norms."""

    def profile(self, r):
        return r * torch.exp(-r) - 0.1 * r


ACTIVATIONS = {
    "identity": radnet.Identity,
    "step_relu": radnet.StepReLU,
    "squash": radnet.Squash,
    "shifted_relu": radnet.ShiftedReLU,
    "sigmoid": radnet.RadialSigmoid,
    "tanh": lambda **keywords: radnet.Radial(torch.tanh, **keywords),
    "bump": Bump,
}
#: for networks of any depth: rounding grows near the zeros of sin(r) at large r, and where exp(-r^2/2) is tiny
CALM = sorted(ACTIVATIONS)
ACTIVATIONS |= {
    "smooth_tanh": radnet.activations.RadialTanh,
    "sin": radnet.activations.RadialSin,
    "gaussian": radnet.activations.RadialGaussian,
    "swish": radnet.activations.RadialSwish,
}
DAMAGE = ("none", "zero biases", "dead input", "repeated rows", "zero matrix", "zero row", "tiny")


@st.composite
def activations(draw, shift=True):
    kind = draw(st.sampled_from(CALM))
    t = draw(st.sampled_from([None, None, 0.25, -0.5, "trainable"])) if shift else None
    rho = ACTIVATIONS[kind](shift=t, dtype=torch.float64)
    if t == "trainable":
        with torch.no_grad():
            rho.shift.fill_(draw(st.sampled_from([0.0, 0.3, -0.7])))
    return rho


@st.composite
def networks(draw, max_depth=8, max_width=64):
    """A RadNet in float64 of depth 1 to 8 and widths 1 to 64, possibly damaged."""
    depth = draw(st.integers(1, max_depth))
    widths = draw(st.lists(st.integers(1, max_width), min_size=depth + 1, max_size=depth + 1))
    bias = draw(st.booleans())
    hidden = [draw(activations()) for _ in range(depth - 1)]
    output = draw(activations()) if draw(st.booleans()) else "identity"
    seed = draw(st.integers(0, 2**31 - 1))
    net = radnet.RadNet(
        widths, hidden, output=output, bias=bias, init=draw(st.sampled_from(["stable", "linear"])),
        generator=torch.Generator().manual_seed(seed), dtype=torch.float64,
    )  # fmt: skip
    damage(net, draw(st.sampled_from(DAMAGE)), draw(st.integers(0, depth - 1)))
    return net


@torch.no_grad()
def damage(net, how, i):
    """Do one awkward thing to layer i."""
    W, b = net.weights[i], net.biases[i]
    if how == "zero biases":
        for b_i in net.biases:
            if b_i is not None:
                b_i.zero_()
    elif how == "dead input":
        W[:, 0] = 0
    elif how == "repeated rows":
        W[:] = W[:1].clone()
        if b is not None:
            b[:] = b[:1].clone()
    elif how == "zero matrix":
        W.zero_()
    elif how == "zero row":
        W[-1] = 0
        if b is not None:
            b[-1] = 0
    elif how == "tiny":
        W.mul_(1e-6)


def assert_training_helps(module, optimizer, generator):
    """A hundred steps halve the loss and move every parameter."""
    x = torch.randn(128, 2, generator=generator)
    y = torch.sin(2 * x[:, :1]) * x[:, 1:]
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    opt = getattr(torch.optim, optimizer)(module.parameters(), lr=0.01)
    losses = []
    for _ in range(100):
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(not torch.equal(before[name], p) for name, p in module.named_parameters())
