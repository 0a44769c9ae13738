"""A model whose Python turns another way at some sizes is followed there, or refuses them once it is small."""

import copy

import pytest
import torch
from torch import nn

import radnet
from known_models import normal
from radnet.compression.judging import exploring, fakes, sizes, turning
from radnet.compression.judging.code import compares
from radnet.compression.judging.comparisons import Comparison, solved
from radnet.compression.judging.sizes import Turns
from radnet.running import Call, Precision

WIDE, SMALL = 32, 5  # of 4 inputs and a constant


class Base(nn.Module):
    """Where `turns` says so, a ReLU between the layers: nothing can be gained there."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.c = nn.Linear(4, WIDE), radnet.Squash(), nn.Linear(WIDE, 3)

    def forward(self, x):
        h = self.rho(self.a(x))
        return self.c(h.relu() if self.turns(x, h) else h)


class LongerThanATable(Base):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(700, 4)

    def turns(self, x, h):
        return x.shape[1] > self.table.num_embeddings


class ManyRows(Base):
    def turns(self, x, h):
        return len(x) > 4096


class LongRows(Base):
    def turns(self, x, h):
        return len(x[0]) >= 3000


class Positions(Base):
    def turns(self, x, h):
        return x.shape[0] * x.size(1) > 20_000


class Remainder(Base):
    def turns(self, x, h):
        return x.shape[1] % 97 == 3


class TwoAtOnce(Base):
    def turns(self, x, h):
        return x.shape[0] > 40 and x.shape[1] > 40


class Numbers(Base):
    def turns(self, x, h):
        return h.numel() > 300_000


class Band(Base):
    def turns(self, x, h):
        return 1200 <= x.shape[1] < 1210


class Shortest(Base):
    def turns(self, x, h):
        return min(x.shape[0], x.shape[1]) > 30


class Half(Base):
    def turns(self, x, h):
        return x.shape[1] // 2 == 250


X = normal(4, 6, 4).float()
TURNING = {
    LongerThanATable: (2, 701),
    ManyRows: (4097, 2),
    LongRows: (2, 3000),
    Positions: (200, 101),
    Remainder: (2, 100),
    TwoAtOnce: (41, 41),
    Numbers: (100, 100),
    Band: (2, 1205),
    Shortest: (31, 31),
    Half: (3, 501),
}


def same(original, small, x):
    torch.testing.assert_close(small(x), original(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", TURNING)
def test_sizes_at_which_forward_turns_another_way_are_followed(make):
    original = make().eval()
    c = radnet.compress(original, X)
    for lengths in ((4, 6), TURNING[make]):
        same(original, c.network, normal(*lengths, 4).float())


@pytest.mark.parametrize("make", [LongerThanATable, ManyRows, Positions, TwoAtOnce, Half])
def test_sizes_that_are_too_large_to_be_tried_are_refused(make, monkeypatch):
    """What is left is as small as it can be, and the same."""
    monkeypatch.setattr(turning, "TURN_RUN", 0)
    monkeypatch.setattr(exploring.Explorer, "attempt", lambda *args, **kwargs: 0)
    original = make().eval()
    c = radnet.compress(original, X)
    assert c.network.a.out_features == SMALL
    assert [limit for limit in c.certificate.limits if limit.startswith("sizes with")]
    same(original, c.network, X)
    there = normal(*TURNING[make], 4).float()
    for network in (c.network, copy.deepcopy(c.network)):
        with pytest.raises(radnet.errors.InvalidValue, match="was not judged with such sizes"):
            network(there)


def test_what_is_refused_is_told_in_words(monkeypatch):
    monkeypatch.setattr(turning, "TURN_RUN", 0)
    monkeypatch.setattr(exploring.Explorer, "attempt", lambda *args, **kwargs: 0)
    c = radnet.compress(Positions().eval(), X)
    assert c.certificate.limits == ("sizes with x.shape[0] * x.shape[1] > 20000",)
    assert "sizes with x.shape[0] * x.shape[1] > 20000" in c.report()


def test_a_forward_that_refuses_sizes_itself_takes_no_other_way():
    class Checked(Base):
        def forward(self, x):
            assert x.size(1) <= 64, "too long"
            if x.shape[0] > 10_000:
                raise ValueError("too many")
            return self.c(self.rho(self.a(x)))

    original = Checked().eval()
    c = radnet.compress(original, X)
    assert (c.network.a.out_features, c.certificate.limits) == (SMALL, ())
    same(original, c.network, normal(30, 64, 4).float())
    with pytest.raises(AssertionError, match="too long"):
        c.network(normal(2, 65, 4).float())


def test_tensors_that_go_together_are_resized_together():
    class Masked(Base):
        def forward(self, x, mask):
            h = self.rho(self.a(x)) * mask.unsqueeze(-1)
            return self.c(h.relu() if x.shape[1] > 800 else h)

    original = Masked().eval()
    c = radnet.compress(original, (X, torch.ones(4, 6)))
    x, mask = normal(2, 801, 4).float(), torch.ones(2, 801)
    torch.testing.assert_close(c.network(x, mask), original(x, mask), rtol=1e-4, atol=1e-5)


def test_what_pytorch_compares_inside_its_functions_is_no_turn():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.q = nn.Linear(4, WIDE), nn.Linear(WIDE, 3 * WIDE)

        def forward(self, x):
            B, T, _ = x.shape
            q, k, v = (y.view(B, T, 4, 8).transpose(1, 2) for y in self.q(self.a(x)).split(WIDE, dim=2))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(B, T, -1)

    turns = Turns(Precision().copy(Attention()), Call((X,)), Precision())
    assert turns.found() == []
    assert turns._path(turns.given) == ()


def test_a_loop_over_a_length_is_no_turn_and_a_turn_inside_one_is():
    class Recurrent(Base):
        def __init__(self, most):
            super().__init__()
            self.r, self.most = nn.Linear(WIDE, WIDE), most

        def forward(self, x):
            h = x.new_zeros(len(x), WIDE)
            for t in range(x.shape[1]):
                h = self.rho(self.a(x[:, t]) + self.r(h))
                if t > self.most:
                    h = h.tanh()
            return self.c(h)

    assert Turns(Precision().copy(Recurrent(10**9)), Call((X,)), Precision()).found() == []
    turns = Turns(Precision().copy(Recurrent(19)), Call((X,)), Precision()).found()
    assert turns[0].examples == ((4, 21, 4),)


class ManyOperations(Base):
    """More of them than a loop may have more than the first run."""

    def forward(self, x):
        for _ in range(600):
            x = x + 1
        h = self.rho(self.a(x - 600))
        return self.c(h.relu() if len(x[0]) > 5000 else h)


def test_a_model_of_many_operations_has_its_turns_found():
    turns = Turns(Precision().copy(ManyOperations()), Call((X,)), Precision(), named=[5000, 5001]).found()
    assert ((4, 5001, 4),) in [turn.examples for turn in turns]


class Steps(Base):
    """A loop over a length, and something else beyond some length: behind more operations than are waited for."""

    def __init__(self, most=5000):
        super().__init__()
        self.r, self.most = nn.Linear(4, 4), most

    def forward(self, x):
        n, s, h = len(x[0]), x[:, 0], self.rho(self.a(x)).mean(1)
        for t in range(n):
            s = self.r(s + x[:, t]).tanh()
        return self.c(h.relu() if n > self.most else h), s


@pytest.fixture
def impatient(monkeypatch):
    """Loops are long after a tenth of the operations; the tests end sooner."""
    monkeypatch.setattr(sizes, "MORE_OPERATIONS", 50)
    monkeypatch.setattr(sizes, "LONG_LOOPS", 300)


def test_a_turn_behind_a_long_loop_is_refused(impatient):
    original = Steps().eval()
    c = radnet.compress(original, X)
    x = normal(1, 5001, 4).float()
    assert c.network.a.out_features == SMALL
    with pytest.raises(radnet.RadNetError, match=r"x.shape\[1\] >= 5000"):
        c.network(x)
    torch.testing.assert_close(c.network(x[:, :4999]), original(x[:, :4999]), rtol=1e-4, atol=1e-5)
    assert any("5000" in limit for limit in c.certificate.limits)


def test_sizes_that_code_names_and_no_run_reaches_are_refused(impatient):
    turns = Turns(Precision().copy(Steps(10**6)), Call((X,)), Precision(), named=[10**6]).found()
    assert ((Comparison("n[1] >= 1000000", True),), (), False) in turns


def test_code_that_compares_nothing_has_no_turn_behind_a_long_loop(impatient):
    assert Turns(Precision().copy(Steps()), Call((X,)), Precision(), named=[5000, 5001], compares=False).found() == []
    assert compares(Steps())
    assert not compares(Base())


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["assert x.shape[-1] == 14"], False),
        (["assert len(x) in (1, 2), 'rows'"], False),
        (["assert x.shape[-1] == 14", "if len(x) > 3:", "    x = -x"], True),
        (["try:", "    assert len(x) == 3", "except AssertionError:", "    x = -x"], True),
        (["if len(x) == 3:", "    raise AssertionError"], True),
        (["x = -x if len(x) > 3 else x"], True),
    ],
)
def test_an_assert_leads_nowhere_unless_somebody_catches_it(lines, expected):
    """Such a number names no size at which forward could turn: it made a small model refuse long inputs."""
    names = {"__name__": "mine", "nn": nn}
    body = "\n".join(f"        {line}" for line in lines)
    exec(f"class Model(nn.Module):\n    def forward(self, x):\n{body}\n        return x", names)  # noqa: S102
    assert compares(names["Model"]()) is expected


@pytest.mark.parametrize(
    ("comparisons", "expected"),
    [
        ((("n[0] > 700", True),), (701, 6)),
        ((("n[0]*n[1] > 20", True),), (4, 6)),
        ((("n[0] > 40", True), ("n[1] > 40", True)), (41, 41)),
        ((("n[0] % 7 == 3", True),), (3, 6)),
        ((("n[0] > 5000000", True),), (5000001, 6)),
        ((("n[0] > 4", True), ("n[0] < 5", True)), None),
        ((("n[0] // n[1] == 3", True), ("n[0] > 50", True)), None),
    ],
)
def test_sizes_for_comparisons(comparisons, expected):
    path = tuple(Comparison(*c) for c in comparisons)
    found = solved(path, (2, 6))
    assert found == expected or (expected is None and found is not None and all(c.holds(found) for c in path))


def test_a_model_that_asks_for_numbers_has_no_turns_that_could_be_told():
    class Asks(Base):
        def forward(self, x):
            return self.c(self.rho(self.a(x)) * float(x.sum()))

    assert Turns(Precision().copy(Asks()), Call((X,)), Precision()).found() == []


@pytest.mark.parametrize(
    "code",
    ["__import__('os')", "n.__class__", "(lambda: 1)()", "[k for k in n]", "n[0] ** n[1]", "1 << n[0]", "n['a'] > 0",
     "math.factorial(n[0]) > 1", "f'{n}'", "n[0] >", "x > 1", "min(n[0], default=3)", "1 " + "+ 1" * 1000],
)  # fmt: skip
def test_what_is_no_comparison_of_sizes_is_not_run(code):
    assert not Comparison(code, True).holds((2, 3))
    assert not Comparison(code, False).holds((2, 3))


@pytest.mark.parametrize(
    ("code", "n"),
    [("n[0] // 2 == 3", (7,)), ("math.ceil(n[0]/2) == 4", (7,)), ("max(n[0], n[1]) > 4 and not n[0] > 4", (2, 6)),
     ("n[0]**2 - 4*n[1] != 0", (2, 3)), ("(n[0] % 7) == 3", (10,)), ("-n[0] < 0", (1,))],
)  # fmt: skip
def test_comparisons_of_sizes_are_made(code, n):
    assert Comparison(code, True).holds(n)
    assert not Comparison(code, True).otherwise.holds(n)


# --- a branch that adds h itself or the input: the same operations, other operands


class Leak(nn.Module):
    """The first entries of what is hidden where `turns` says so, of the input otherwise."""

    def __init__(self):
        super().__init__()
        self.a, self.rho, self.c = nn.Linear(4, WIDE), radnet.Squash(), nn.Linear(WIDE, 4)

    def forward(self, x, *more):
        h = self.rho(self.a(x))
        return self.c(self.between(h, *more)) + (h if self.turns(x) else x)[..., :1]

    def between(self, h, *more):
        return h


class Multiples(Leak):
    def between(self, h):
        B, T, _ = h.shape
        return h.view(B, T // 3, 3, WIDE).flatten(1, 2)

    def turns(self, x):
        return x.shape[1] > 600


class InASet(Leak):
    def turns(self, x):
        return x.shape[1] in {320, 640}


class InADictionary(Leak):
    def turns(self, x):
        return {320: True}.get(x.shape[1], False)


class Caught(Leak):
    def turns(self, x):
        try:
            return bool(x.shape[1] > 600)
        except Exception:
            return False


class Chunked(Leak):
    def between(self, h):
        return torch.cat([h[:, k : k + 300] * 1.0 for k in range(0, h.shape[1], 300)], 1)

    def turns(self, x):
        return x.shape[1] > 600


class Unsqueezed(Leak):
    def between(self, h):
        return h + 0 * h[:, None].mean(1)

    def turns(self, x):
        return 600 < x.shape[1] < 700


class Rooted(Leak):
    def turns(self, x):
        return x.shape[1] ** 0.5 > 24.5


class Resized(Leak):
    def between(self, h):
        halves = nn.functional.interpolate(h.mT, size=(h.shape[1] // 2 + 1,))
        return h + halves.mean(-1).unsqueeze(1)

    def turns(self, x):
        return x.shape[1] > 600


@pytest.mark.parametrize("make", [Multiples, InASet, InADictionary, Caught, Chunked, Unsqueezed, Rooted, Resized])
@pytest.mark.parametrize("length", [9, 320, 603, 639])
def test_a_turn_that_hides_is_found_or_refused(make, length):
    original = make().eval()
    small = _small(make)
    x = normal(2, length, 4).float()
    try:
        expected = original.load_state_dict(_original(make).state_dict()) and original(x)
    except RuntimeError:
        return  # it does not take this length
    try:
        found = small(x)
    except radnet.RadNetError as error:
        assert "was not judged with such sizes" in str(error)  # noqa: PT017
        assert length > 300
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


MADE = {}


def _original(make):
    if make not in MADE:
        model = make().eval()
        MADE[make] = model, radnet.compress(model, normal(4, 6, 4).float()).network
    return MADE[make][0]


def _small(make):
    _original(make)
    return MADE[make][1]


def test_inputs_whose_sizes_differ_by_one_are_resized_together():
    class Shifted(Leak):
        def between(self, h, y):
            return h + self.rho(self.a(y))[:, 1:]

        def turns(self, x):
            return x.shape[1] > 600

    original = Shifted().eval()
    small = radnet.compress(original, (normal(4, 6, 4).float(), normal(4, 7, 4).float())).network
    x, y = normal(2, 601, 4).float(), normal(2, 602, 4).float()
    torch.testing.assert_close(small(x, y), original(x, y), rtol=1e-4, atol=1e-5)


def test_a_guard_needs_only_the_tensors_that_it_is_about(monkeypatch):
    monkeypatch.setattr(turning, "TURN_RUN", 0)

    class Masked(Base):
        def forward(self, x, mask=None):
            h = self.rho(self.a(x))
            y = self.c(h.relu() if x.shape[0] * x.shape[1] > 20_000 else h)
            return y if mask is None else y * mask.unsqueeze(-1)

    original = Masked().eval()
    small = radnet.compress(original, (X, torch.ones(4, 6))).network
    for call in ((normal(2, 10_001, 4).float(),), (normal(2, 10_001, 4).float(), torch.ones(2, 10_001))):
        with pytest.raises(radnet.errors.InvalidValue, match="was not judged with such sizes"):
            small(*call)


def test_many_buckets_do_not_make_sizes_impossible():
    class Buckets(Base):
        def __init__(self):
            super().__init__()
            self.bounds = (3, 10, 17, 24, 31)

        def forward(self, x):
            k = sum(int(x.shape[1] > bound) for bound in self.bounds)
            return self.c(self.rho(self.a(x))) * (1 + k)

    original = Buckets().eval()
    c = radnet.compress(original, X)
    for length in (2, 8, 20, 40):
        same(original, c.network, normal(2, length, 4).float())
    assert c.network.a.out_features == SMALL


def test_what_is_refused_is_told_shortly():
    from radnet.compression.guards import LONGEST, SizesGuard

    guard = SizesGuard(["x"], {"x": 2}, [Comparison(f"n[0] > {k}", True) for k in range(200)])
    assert len(guard.words) < LONGEST + 10


def test_a_guard_looks_at_its_own_tensors_whatever_else_is_there():
    from radnet.compression.guards import SizesGuard

    guard = SizesGuard(["x", "mask"], {"x": 2, "mask": 1}, [Comparison("n[1] > 4", True)])
    for args, kwargs in (
        ((torch.ones(1, 5),), {}),
        ((), {"x": torch.ones(1, 5)}),
        ((torch.ones(1, 5), torch.ones(1)), {}),
    ):
        with pytest.raises(radnet.errors.InvalidValue, match=r"x.shape\[1\] > 4"):
            guard(nn.Identity(), args, kwargs)
    guard(nn.Identity(), (torch.ones(1, 4),), {})
    guard(nn.Identity(), (torch.ones(5),), {})


def test_what_was_tried_is_not_refused_because_another_way_leads_back_to_it():
    class Short(Base):
        def forward(self, x):
            h = self.rho(self.a(x))
            return self.c(h) + (h if x.shape[1] > 6 else x)[..., :1]

    original = Short().eval()
    c = radnet.compress(original, X)
    assert c.certificate.limits == ()
    for length in (3, 6, 7, 30):
        same(original, c.network, normal(2, length, 4).float())


def test_sizes_that_only_tensors_with_numbers_take_are_tried_with_numbers():
    class Picks(Base):
        def forward(self, x):
            h = self.rho(self.a(x))
            h = h[:, torch.arange(x.shape[1])[torch.ones(x.shape[1]) > 0]]  # how many there are, numbers tell
            return self.c(h.relu() if x.shape[0] > 5_000 else h)

    original = Picks().eval()
    c = radnet.compress(original, X)
    try:
        found = c.network(normal(5_001, 2, 4).float())
    except radnet.RadNetError as error:
        assert "was not judged with such sizes" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found, original(normal(5_001, 2, 4).float()), rtol=1e-4, atol=1e-5)


def test_a_way_at_other_sizes_that_cannot_be_traced_is_refused_alone():
    """As with kinds of arguments: a table that grows when a longer input comes."""

    class Grows(Base):
        def __init__(self):
            super().__init__()
            self.longest = 8
            self.register_buffer("table", torch.linspace(1, 2, 8).unsqueeze(1), persistent=False)

        def forward(self, x):
            T = x.shape[1]
            if self.longest < T:
                if bool(x.sum() > 1e9):  # what no tracer follows
                    x = x + 1
                return self.c(self.rho(self.a(x)).relu())
            return self.c(self.rho(self.a(x * self.table[:T])))

    original = Grows().eval()
    c = radnet.compress(original, X)
    assert c.network.a.out_features == SMALL
    assert c.certificate.limits == ("sizes with x.shape[1] > 8",)
    for length in (1, 5, 8):
        same(original, c.network, normal(3, length, 4).float())
    with pytest.raises(radnet.errors.InvalidValue, match=r"not judged with such sizes \(x.shape\[1\] > 8\)"):
        c.network(normal(3, 9, 4).float())


def test_operations_of_unknown_sizes_never_run_on_many_numbers(monkeypatch):
    """A matrix of rows by rows is asked for at 2^24 rows: no such zeros are made."""
    made = []
    zeros_like = torch.zeros_like
    monkeypatch.setattr(torch, "zeros_like", lambda x, **kwargs: made.append(x.numel()) or zeros_like(x, **kwargs))

    class Sparse(Base):
        def forward(self, x):
            h = self.rho(self.a(x))
            return self.c(torch.sparse.mm(torch.eye(len(x), dtype=x.dtype).to_sparse(), h))

    assert radnet.compress(Sparse().eval(), normal(6, 4).float()).certificate.lossless
    assert made
    assert max(made) <= fakes.MOST_ZEROS


class SecondTurn(Base):
    def forward(self, x):
        n, h = len(x), self.rho(self.a(x))
        h = h * 0.5 if n > 5000 else h
        return self.c(h.clamp(-0.01, 0.01) if n > 20_000 else h)


class SizeInside(Base):
    def forward(self, x):
        n, h = len(x), self.rho(self.a(x)) / len(x) ** 0.5
        return self.c(h.clamp(-0.001, 0.001) if n > 5000 else h)


class Band(Base):
    def forward(self, x):
        n, h = len(x), self.rho(self.a(x))
        return self.c(h.clamp(-0.01, 0.01) if 5000 < n < 7000 else h)


@pytest.mark.parametrize("make", [SecondTurn, SizeInside, Band])
@pytest.mark.parametrize("rows", [3, 5001, 6000, 7001, 20_001])
def test_turns_of_a_size_that_is_a_plain_number_are_found_one_after_the_other(make, rows):
    original = make().eval()
    c = radnet.compress(original, normal(6, 4).float())
    x = normal(rows, 4).float()
    try:
        found = c.network(x)
    except radnet.RadNetError:
        assert rows > 3
    else:
        torch.testing.assert_close(found, original(x), rtol=1e-4, atol=1e-6)


class FlagAndSize(Base):
    def forward(self, x, flag=False):
        h = self.rho(self.a(x)).mean(1)
        return self.c(h.clamp(-0.01, 0.01) if flag and x.shape[1] > 50 else h)


class OptionalAxis(Base):
    def forward(self, x, y=None):
        h = self.rho(self.a(x)).mean(1)
        return self.c(h.clamp(-0.01, 0.01) if y is not None and y.shape[1] > 50 else h)


class LongAndShort(Base):
    def forward(self, x):
        h = self.rho(self.a(x)).mean(1)
        return self.c(h.clamp(-0.01, 0.01) if len(x) > 100 and int(x.shape[1]) < 4 else h)


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (FlagAndSize, lambda: ((normal(3, 60, 4).float(),), {"flag": True})),
        (OptionalAxis, lambda: ((normal(3, 6, 4).float(),), {"y": normal(3, 60).float()})),
        (LongAndShort, lambda: ((normal(101, 2, 4).float(),), {})),
    ],
)
def test_sizes_at_which_an_argument_begins_to_matter_are_found(make, call):
    """With the sizes that are given, these arguments change nothing."""
    original = make().eval()
    c = radnet.compress(original, normal(4, 6, 4).float())
    args, kwargs = call()
    try:
        found = c.network(*args, **kwargs)
    except radnet.RadNetError:
        return
    torch.testing.assert_close(found, original(*args, **kwargs), rtol=1e-4, atol=1e-6)


def test_numbers_in_parameters_decide_turns_too(generator):
    """Turns are looked for with parameters that have no numbers, and where forward asks for them, with their own."""

    class Limited(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rho, self.b = nn.Linear(3, 24), radnet.Squash(), nn.Linear(24, 2)
            self.limit = nn.Parameter(torch.tensor([700.0]), requires_grad=False)

        def forward(self, x):
            y = self.b(self.rho(self.a(x)))
            return y.abs() if len(x) > self.limit.tolist()[0] else y

    found = Turns(Precision().copy(Limited()), Call((torch.randn(5, 3, generator=generator),)), Precision()).found()
    assert [turn.examples for turn in found] == [((701, 3),)]
