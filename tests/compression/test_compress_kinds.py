"""Arguments of other kinds than were judged are refused, and what forward leaves in arguments is an output."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from torch import nn

import radnet
from known_models import normal


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.rho, self.c = nn.Linear(4, 32), radnet.Squash(), nn.Linear(32, 3)

    def hidden(self, x):
        return self.rho(self.a(x))


class Mask(Base):
    def forward(self, x, mask):
        h = self.hidden(x)
        if mask is None:
            return self.c(h.relu())
        return self.c(h * mask) if mask.dtype == torch.bool or mask.ndim == x.ndim else self.c(h.relu() * mask[:, None])


class Either(Base):
    def forward(self, x):
        if isinstance(x, list):
            return self.c(self.hidden(x[0]).relu())
        return self.c(self.hidden(x))


class Flags(Base):
    def forward(self, x, a=False, b=False, c=False):
        h = self.hidden(x)
        return self.c(h.relu() if a and b and c else h)


@dataclasses.dataclass
class Options:
    positive: bool = False


class Configured(Base):
    def forward(self, x, options=Options()):  # noqa: B008
        h = self.hidden(x)
        return self.c(h.relu() if options.positive else h)


class Many(Base):
    def forward(self, *xs):
        h = self.hidden(xs[0])
        return self.c(h + self.hidden(xs[1])) if len(xs) > 1 else self.c(h.relu())


X = normal(20, 4).float()
MASK = torch.arange(20).unsqueeze(1) % 2 == 0


@pytest.mark.parametrize(
    ("model", "given", "later"),
    [
        (Either, (X,), ([X],)),
        (Flags, (X,), (X, True, True, True)),
        (Configured, (X,), (X, Options(True))),
        (Many, (X, X), (X,)),
        (Mask, (X, MASK), (X, MASK[:, 0].float())),
    ],
    ids=["another container", "three flags", "a field", "fewer inputs", "another dtype and axis"],
)
def test_a_call_of_a_kind_that_was_not_judged_is_refused(model, given, later):
    """Where the original runs; what was judged is the same."""
    original = model().eval()
    c = radnet.compress(original, given)
    torch.testing.assert_close(c.network(*given), original(*given), rtol=1e-4, atol=1e-5)
    original(*later)
    try:
        found = c.network(*later)
    except radnet.errors.InvalidValue as error:
        assert "not judged with such arguments" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found, original(*later), rtol=1e-4, atol=1e-5)
    assert c.network.a.out_features < 32 or model is Mask  # there None is tried, which takes a ReLU


@pytest.mark.parametrize("given", [(X, MASK), (X, None)], ids=["a tensor", "None"])
def test_none_instead_of_a_tensor_is_tried(given):
    original = Mask().eval()
    c = radnet.compress(original, given)
    torch.testing.assert_close(c.network(*given), original(*given), rtol=1e-4, atol=1e-5)
    for mask in (MASK, None):
        try:
            found = c.network(X, mask)
        except radnet.errors.InvalidValue:
            continue
        torch.testing.assert_close(found, original(X, mask), rtol=1e-4, atol=1e-5)


def test_values_of_numbers_are_free_and_places_and_names_mean_the_same():
    class Scaled(Base):
        def forward(self, x, scale=1.0):
            return self.c(self.hidden(x)) * scale

    c = radnet.compress(Scaled().eval(), (X,))
    assert c.network.a.out_features == 5
    for call in ((X, 3.0), (X, 7)):
        torch.testing.assert_close(c.network(*call), call[1] * c.network(x=X), rtol=1e-4, atol=1e-5)


class Taps(Base):
    def forward(self, x, taps=None):
        h = self.hidden(x)
        if taps is not None:
            taps["h"] = h
        return self.c(h)


@pytest.mark.parametrize("given", [(X,), (X, {})], ids=["left out", "given"])
def test_what_forward_leaves_in_a_dictionary_of_the_caller_is_an_output(given):
    original, found, expected = Taps().eval(), {}, {}
    c = radnet.compress(original, given)
    original(X, expected)
    try:
        c.network(X, found)
    except radnet.errors.InvalidValue as error:
        assert "not judged" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found["h"], expected["h"])


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["python", "numpy"])
def test_a_forward_that_draws_outside_of_torch_is_refused_however_seldom_it_matters(draw):
    class Drops(Base):
        def forward(self, x):
            h = self.hidden(x)
            return self.c(h.relu() if draw() < 1e-9 else h)

    with pytest.raises(radnet.errors.InvalidValue, match="draws random numbers"):
        radnet.compress(Drops().eval(), X)


def test_a_guarded_model_can_be_copied_compiled_and_exported():
    import copy

    c = radnet.compress(Flags().eval(), (X,))
    expected = c.network(X)
    assert torch.equal(copy.deepcopy(c.network)(X), expected)
    program = torch.export.export(c.network, (X,)).module()
    torch.testing.assert_close(program(X), expected)
    assert radnet.compress(c.network, (X,)).network.a.out_features == c.network.a.out_features
