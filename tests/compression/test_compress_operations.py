"""What compression calls every operation it meets, by either way of tracing, against a table written by hand."""

import operator

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import radnet
from known_models import OtherRMSNorm
from radnet.compression.operations import operation_of_module, whole_module
from radnet.compression.operations.arithmetic import Add, Scale
from radnet.compression.operations.convolution import Convolution
from radnet.compression.operations.embedding import Embedding, Parameter
from radnet.compression.operations.ends import Input, Output
from radnet.compression.operations.join import Concatenate
from radnet.compression.operations.linear import Linear
from radnet.compression.operations.norm import Norm
from radnet.compression.operations.pool import Mean, Pool
from radnet.compression.operations.radial import Radial
from radnet.compression.operations.same import Same
from radnet.compression.operations.shape import Flatten, Permute, SizeOf, Slice
from radnet.compression.operations.transposed import TransposedConvolution
from radnet.compression.program import Step, Unknown
from radnet.compression.reasons import Cause, Reason
from radnet.compression.rms_norms import rms_norm
from radnet.compression.tracing.exported import trace_exported
from radnet.compression.tracing.fx import trace


class Calls(nn.Module):
    """A function as a module; x has shape (2, 3, 4, 4), y the same."""

    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def forward(self, x, y):
        return tuple(f(x, y) for f in self.functions)


def inputs(shape=(2, 3, 4, 4)):
    return torch.ones(shape), torch.ones(shape)


def kinds(steps):
    """The operation of every step between the inputs and the output."""
    return [step.operation for step in steps if not isinstance(step.operation, Input | Output | Parameter)]


UNKNOWN, SAME = Unknown(), Same()
BY_HAND = Unknown(Cause(Reason.NORM_BY_HAND))


def scale(factor):
    return Scale(factor)


def add(a, b):
    return Add((a, b))


def flatten(start, end, **more):
    return Flatten(start, end, **more)


def mean(dims, keepdim):
    return Mean(tuple(dims), keepdim)


def pool(zeros, axes=2):
    return Pool(zeros, axes)


def cut(dims, dropped):
    return Slice(tuple(dims), tuple(dropped))


def size(*dims):
    return SizeOf(dims)


def unknown(reason, detail=""):
    return Unknown(Cause(reason, detail))


# name: the function, what torch.fx shows, and what torch.export shows where that is something else
TABLE = {
    "sum": (lambda x, y: x + y, [add(1.0, 1.0)]),
    "torch.add": (lambda x, y: torch.add(x, y), [add(1.0, 1.0)]),
    "add method": (lambda x, y: x.add(y), [add(1.0, 1.0)]),
    "difference": (lambda x, y: x - y, [add(1.0, -1.0)]),
    "torch.sub": (lambda x, y: torch.sub(x, y), [add(1.0, -1.0)]),
    "sub method": (lambda x, y: x.sub(y), [add(1.0, -1.0)]),
    "sum with a factor": (lambda x, y: torch.add(x, y, alpha=2), [UNKNOWN]),
    "sum with a number": (lambda x, y: x + 3, [UNKNOWN]),
    "negative": (lambda x, y: -x, [scale(-1.0)]),
    "torch.neg": (lambda x, y: torch.neg(x), [scale(-1.0)]),
    "neg method": (lambda x, y: x.neg(), [scale(-1.0)]),
    "multiple": (lambda x, y: 3 * x, [scale(3.0)]),
    "torch.mul": (lambda x, y: torch.mul(x, 2.5), [scale(2.5)]),
    "mul method": (lambda x, y: x.mul(2), [scale(2.0)]),
    "product": (lambda x, y: x * y, [UNKNOWN]),
    "quotient": (lambda x, y: x / 4, [scale(0.25)]),
    "torch.div": (lambda x, y: torch.div(x, 2.0), [scale(0.5)]),
    "true_divide": (lambda x, y: torch.true_divide(x, 2.0), [scale(0.5)]),
    "div method": (lambda x, y: x.div(8), [scale(0.125)]),
    "by zero": (lambda x, y: x / 0, [UNKNOWN]),
    "reciprocal": (lambda x, y: 2 / x, [UNKNOWN], [UNKNOWN, scale(2.0)]),
    "rounded quotient": (lambda x, y: torch.div(x, 2, rounding_mode="floor"), [UNKNOWN]),
    "cat": (lambda x, y: torch.cat([x, y], 1), [Concatenate(1)]),
    "cat by names": (lambda x, y: torch.cat(tensors=(x, y), dim=2), [Concatenate(2)]),
    "concat": (lambda x, y: torch.concat([x, y]), [Concatenate(0)]),
    "cat along an axis": (lambda x, y: torch.cat([x, y], axis=1), [UNKNOWN], [Concatenate(1)]),
    "flatten": (lambda x, y: torch.flatten(x), [flatten(0, -1)]),
    "flatten from": (lambda x, y: torch.flatten(x, 1), [flatten(1, -1)]),
    "flatten between": (lambda x, y: x.flatten(start_dim=1, end_dim=2), [flatten(1, 2)]),
    "view": (lambda x, y: x.view(2, -1), [flatten(1, -1, given=True)]),
    "view as a tuple": (lambda x, y: x.view((2, 3, -1)), [flatten(2, -1, given=True)]),
    "view of a size": (
        lambda x, y: x.view(x.size(0), -1),
        [size(0), flatten(1, -1, given=True)],
        [flatten(1, -1, given=True)],
    ),
    "reshape of a shape": (
        lambda x, y: torch.reshape(x, (x.shape[0], -1)),
        [size(0), UNKNOWN, flatten(1, -1, given=True)],
        [flatten(1, -1, given=True)],
    ),
    "reshape method": (lambda x, y: x.reshape(-1), [flatten(0, -1, given=True)]),
    "view with given sizes": (lambda x, y: x.view(2, 48), [UNKNOWN]),
    "view across rows": (lambda x, y: x.view(4, -1), [UNKNOWN]),
    "mean": (lambda x, y: x.mean(1), [mean([1], False)]),
    "means": (lambda x, y: torch.mean(x, dim=(2, 3), keepdim=True), [mean([2, 3], True)]),
    "mean kept": (lambda x, y: x.mean(1, True), [mean([1], True)]),
    "mean of all": (lambda x, y: x.mean(), [UNKNOWN]),
    "permute": (lambda x, y: x.permute(0, 2, 3, 1), [Permute((0, 2, 3, 1))]),
    "torch.permute": (lambda x, y: torch.permute(x, (1, 0, 2, 3)), [Permute((1, 0, 2, 3))]),
    "permute by name": (lambda x, y: x.permute(dims=(0, 1, 3, 2)), [Permute((0, 1, 3, 2))]),
    "transpose": (lambda x, y: x.transpose(1, 2), [Permute((1, 2), exchanged=True)]),
    "torch.transpose": (lambda x, y: torch.transpose(x, dim0=0, dim1=-1), [Permute((0, -1), exchanged=True)]),
    "T": (lambda x, y: x.mT, [UNKNOWN]),
    "part of positions": (lambda x, y: x[:, :, 1:], [cut([2], [])]),
    "a single place": (lambda x, y: x[:, 0], [cut([], [1])], [cut([], [1])]),
    "a part and a place": (lambda x, y: x[1:, :, 0], [cut([0], [2])], [cut([0], []), cut([], [2])]),
    "a row": (lambda x, y: x[1], [cut([], [0])]),
    "an ellipsis": (lambda x, y: x[..., 0], [UNKNOWN], [cut([], [3])]),
    "a new axis": (lambda x, y: x[None], [UNKNOWN]),
    "contiguous": (lambda x, y: x.contiguous(), [SAME], []),
    "clone": (lambda x, y: x.clone(), [SAME]),
    "dropout off": (lambda x, y: F.dropout(x, 0.5, False), [SAME]),
    "dropout2d off": (lambda x, y: F.dropout2d(x, training=False), [SAME]),
    "alpha dropout off": (lambda x, y: F.alpha_dropout(x, training=False), [SAME]),
    "dropout on": (lambda x, y: F.dropout(x), [UNKNOWN]),
    "average pool": (lambda x, y: F.avg_pool2d(x, 2), [pool(False)]),
    "padded pool": (lambda x, y: F.avg_pool2d(x, 2, padding=1), [pool(True)]),
    "padded pool by place": (lambda x, y: F.avg_pool2d(x, 2, 2, (0, 1)), [pool(True)]),
    "padding not counted": (lambda x, y: F.avg_pool2d(x, 2, 2, 1, False, False), [pool(False)]),
    "pool with a divisor": (lambda x, y: F.avg_pool2d(x, 2, divisor_override=3), [UNKNOWN]),
    "adaptive pool": (lambda x, y: F.adaptive_avg_pool2d(x, 1), [pool(False)]),
    "maximum": (lambda x, y: F.max_pool2d(x, 2), [UNKNOWN]),
    "pointwise": (lambda x, y: torch.tanh(x), [UNKNOWN]),
}


@pytest.mark.parametrize("name", TABLE)
def test_torch_fx_shows_every_operation_for_what_it_is(name):
    f, expected, *_ = TABLE[name]
    assert kinds(trace(Calls(f), inputs())) == expected


def test_torch_export_shows_the_same_operations():
    rows = [row for name, row in TABLE.items() if name not in ("dropout on", "maximum")]
    expected = [kind for _, *shown in rows for kind in shown[-1]]
    assert kinds(trace_exported(Calls(*(row[0] for row in rows)), inputs())) == expected


@pytest.mark.parametrize("dims", [1, 3])
def test_pools_of_one_and_three_axes_are_known_to_both(dims):
    f = [getattr(F, f"avg_pool{dims}d"), getattr(F, f"adaptive_avg_pool{dims}d"), getattr(F, f"dropout{dims}d")]
    calls = Calls(lambda x, y: f[0](x, 2, padding=1), lambda x, y: f[1](x, 1), lambda x, y: f[2](x, training=False))
    x = inputs((2, 3, *[4] * dims))
    assert kinds(trace(calls, x)) == [pool(True, dims), pool(False, dims), SAME]
    assert kinds(trace_exported(calls, x)) == [pool(True, dims), pool(False, dims), SAME]
    without_rows = inputs((3, *[4] * dims))  # what would be channels are positions there
    assert kinds(trace(calls, without_rows)) == [UNKNOWN, UNKNOWN, SAME]
    assert not any(isinstance(operation, Pool) for operation in kinds(trace_exported(calls, without_rows)))


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x, y: torch.zeros(x.shape[1]), [size(1), UNKNOWN, UNKNOWN]),
        (lambda x, y: torch.zeros(x.size()[-1]), [size(-1), UNKNOWN, UNKNOWN]),
        (lambda x, y: torch.zeros(x.size(dim=2)), [size(2), UNKNOWN]),
        (lambda x, y: torch.zeros(1, device=x.device, dtype=y.dtype), [size(), size(), UNKNOWN]),
        (lambda x, y: torch.zeros(x.ndim), [size(), UNKNOWN]),
        (lambda x, y: torch.zeros(x.shape), [UNKNOWN, UNKNOWN]),
        (lambda x, y: torch.zeros(x.shape[1:]), [UNKNOWN, UNKNOWN, UNKNOWN]),
        (lambda x, y: torch.zeros(x.size(y.size(0))), [size(0), size(2), UNKNOWN]),
        (lambda x, y: x.permute(x.ndim - 1, 0, 1, 2), [size(), UNKNOWN, Permute((3, 0, 1, 2))]),
        (lambda x, y: x.mean(x.ndim - 1), [size(), UNKNOWN, mean([3], False)]),
        (lambda x, y: x * x.shape[1], [size(1), UNKNOWN, UNKNOWN]),  # a number that was computed may change
        (lambda x, y: x * float(y.sum()), None),
    ],
)
def test_what_asks_for_lengths_says_of_which_axes(f, expected):
    if expected is None:
        with pytest.raises(ValueError, match="cannot be traced"):
            trace(Calls(f), inputs())
        return
    assert kinds(trace(Calls(f), inputs())) == expected


@pytest.mark.parametrize("way", [trace, trace_exported])
def test_conversions_between_floating_point_dtypes_are_no_step_and_others_are(way):
    steps = kinds(way(Calls(lambda x, y: x.half(), lambda x, y: x.to(torch.bfloat16)), inputs()))
    assert steps == [SAME, SAME]
    assert kinds(way(Calls(lambda x, y: x.long(), lambda x, y: x.to(torch.int8)), inputs())) == [UNKNOWN, UNKNOWN]


def test_arithmetic_with_lengths_is_not_arithmetic_with_tensors():
    steps = trace(Calls(lambda x, y: x[: -x.size(0) * 2 + 5]), inputs())
    lengths = [step for step in steps if isinstance(step.operation, Unknown)]
    assert [step.inputs for step in lengths[:2]] == [(), ()]
    assert scale(2.0) not in kinds(steps)


# --- in place


def test_a_sum_in_place_is_a_sum_where_nobody_looks_at_what_was_there():
    def fresh(x, y):
        z = x * 2
        z += y
        z *= 3
        z -= y
        z /= 4
        return z.mul_(2)

    expected = [scale(2.0), add(1.0, 1.0), scale(3.0), add(1.0, -1.0), scale(0.25), scale(2.0)]
    assert kinds(trace(Calls(fresh), inputs())) == expected
    assert kinds(trace_exported(Calls(fresh), inputs())) == expected


CHANGED = unknown(Reason.CHANGED)


def read_later(x, y):
    """A value that is read before and after something is added to it under another name."""
    z = 2 * x
    w = z.contiguous()
    before = -z
    w += y
    return before, -z


@pytest.mark.parametrize("way", [trace, trace_exported])
def test_who_reads_after_a_sum_in_place_reads_the_sum(way):
    steps = way(Calls(read_later), inputs())
    made = {step.output.name: step for step in steps if step.output is not None}
    (total,) = [step for step in steps if isinstance(step.operation, Add)]
    first, second = [step for step in steps if step.operation == scale(-1.0)]
    assert total.in_place
    assert CHANGED not in kinds(steps)
    assert second.inputs == (total.output,)
    assert first.inputs[0] is not total.output
    assert made[first.inputs[0].name].operation == scale(2.0)


def view_of_it(x, y):
    z = 2 * x
    seen = z.view(2, -1)
    z += y
    return z, seen


def part_of_it(x, y):
    z = 2 * x
    z[:, 0] += y[:, 0]
    return z


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: (2 * x).relu_(),
        lambda x, y: F.relu(2 * x, inplace=True),
        lambda x, y: F.hardtanh_(2 * x),
        lambda x, y: torch.clamp_(2 * x, -1, 1),
        lambda x, y: torch.threshold_(2 * x, 0.1, 0.0),
        lambda x, y: torch._foreach_tanh_([2 * x]),
        lambda x, y: torch.tanh(x, out=2 * x),
        lambda x, y: operator.ipow(2 * x, 2),
        lambda x, y: (2 * x).masked_fill_(y > 0, 0.0),
        lambda x, y: (2 * x).add_(y, alpha=2),
        lambda x, y: (2 * x).data.clamp_(-1, 1),
        lambda x, y: x.clamp_(-1, 1),
        view_of_it,
    ],
)
def test_whatever_else_writes_into_memory_pins_what_lies_there(f):
    steps = trace(Calls(f), inputs())
    (writing,) = [step for step in steps if step.operation == CHANGED]
    assert writing.inputs
    if f is not view_of_it and "data" not in f.__code__.co_names:
        assert kinds(trace_exported(Calls(f), inputs())).count(CHANGED) == 1


def test_a_part_that_is_written_into_pins_the_whole():
    steps = trace_exported(Calls(part_of_it), inputs())
    doubled = next(step for step in steps if isinstance(step.operation, Scale))
    assert any(doubled.output in step.inputs for step in steps if step.operation == CHANGED)
    (output,) = [step for step in steps if isinstance(step.operation, Output)]
    assert doubled.output not in output.inputs


def test_what_a_model_keeps_is_an_output_and_stays_away_from_the_model():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.all = nn.Linear(4, 4), []

        def forward(self, x, y):
            h = self.a(x)
            self.last, self.pair = h, {"y": 2 * y}
            self.all.append(-h)
            return h + 1

    model = Keeps()
    kept = {step.name for step in trace(model, inputs()) if step.operation == unknown(Reason.KEPT)}
    assert kept == {"last", "pair['y']", "all[0]"}
    assert model.all == []
    assert not hasattr(model, "last")


# --- modules


class Subclass(nn.Linear):
    pass


class Overrides(nn.Linear):
    def forward(self, x):
        return super().forward(x).clamp(-1, 1)


def with_forward(module):
    module.forward = lambda x: x
    return module


class Own(radnet.Squash):
    def forward(self, v):
        return v.abs()


def parametrized():
    return nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))


def hooked(module, pre=False):
    register = module.register_forward_pre_hook if pre else module.register_forward_hook
    register(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(2, 2), Linear),
        (Subclass(2, 2), Linear),
        (Overrides(2, 2), unknown(Reason.OWN_FORWARD)),
        (with_forward(nn.Linear(2, 2)), unknown(Reason.OWN_FORWARD)),
        (hooked(nn.Linear(2, 2)), unknown(Reason.HOOKS)),
        (hooked(nn.Linear(2, 2), pre=True), unknown(Reason.HOOKS)),
        (parametrized(), unknown(Reason.PARAMETRIZED)),
        (nn.Conv1d(2, 2, 3), Convolution),
        (nn.Conv2d(2, 2, 3), Convolution),
        (nn.Conv3d(2, 2, 3), Convolution),
        (nn.ConvTranspose1d(2, 2, 3), TransposedConvolution),
        (nn.ConvTranspose2d(2, 2, 3), TransposedConvolution),
        (nn.ConvTranspose3d(2, 2, 3), TransposedConvolution),
        (nn.ConvTranspose2d(2, 2, 3, groups=2), unknown(Reason.GROUPED)),
        (
            nn.Conv2d(2, 2, 3, groups=2),
            unknown(Reason.GROUPED),
        ),
        (nn.Embedding(3, 2), Embedding),
        (nn.Embedding(3, 2, max_norm=1.0), UNKNOWN),
        (nn.Embedding(3, 2, sparse=True), UNKNOWN),
        (nn.Identity().train(), SAME),
        (nn.Dropout().eval(), SAME),
        (nn.Dropout().train(), UNKNOWN),
        (nn.AlphaDropout().eval(), SAME),
        (nn.Dropout1d().eval(), SAME),
        (nn.Dropout2d().eval(), SAME),
        (nn.Dropout3d().eval(), SAME),
        (nn.Flatten(), flatten(1, -1)),
        (nn.Flatten(2, 3), flatten(2, 3)),
        (nn.AvgPool1d(2), pool(False, 1)),
        (nn.AvgPool2d(2, padding=1), pool(True)),
        (nn.AvgPool3d(2, padding=1, count_include_pad=False), pool(False, 3)),
        (nn.AvgPool3d(2, divisor_override=2), UNKNOWN),
        (nn.AdaptiveAvgPool1d(1), pool(False, 1)),
        (nn.AdaptiveAvgPool2d(1), pool(False)),
        (nn.AdaptiveAvgPool3d(1), pool(False, 3)),
        (nn.MaxPool1d(2), UNKNOWN),
        (nn.LayerNorm(3), Norm),
        (nn.LayerNorm((2, 3)), UNKNOWN),
        (nn.RMSNorm(3), Norm),
        (nn.RMSNorm((2, 3)), UNKNOWN),
        (nn.GroupNorm(1, 3), UNKNOWN),
        (nn.BatchNorm1d(3), UNKNOWN),
        (radnet.Squash(), Radial),
        (radnet.Radial(torch.tanh), Radial),
        (Own(), unknown(Reason.OWN_FORWARD)),
        (nn.ReLU(), UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules_are_known_by_their_class_if_nothing_else_runs(module, expected):
    found = operation_of_module(module)
    assert isinstance(found, expected) if isinstance(expected, type) else found == expected


def test_a_layer_that_is_given_more_than_one_tensor_is_not_known():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.bilinear, self.linear = nn.Bilinear(4, 4, 2), nn.Linear(4, 2)

        def forward(self, x, y):
            return self.bilinear(x, y), self.linear(input=x)

    assert kinds(trace(Pair().double(), inputs())) == [unknown(Reason.SEVERAL_TENSORS)] * 2


def test_parameters_and_whole_modules_have_their_paths():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.p, self.rho, self.unused = nn.Parameter(torch.ones(4)), radnet.Squash(), nn.Parameter(torch.ones(2))

        def forward(self, x, y):
            assert self.unused is not None
            return self.rho(self.rho(x + self.p))

    for way in (trace, trace_exported):
        steps = way(Parts(), inputs())
        found = [(type(step.operation), step.path, len(step.inputs)) for step in steps if step.path]
        assert found == [(Parameter, "p", 0), (Radial, "rho", 1), (Radial, "rho", 1)]
        assert [step.made.shape for step in steps if isinstance(step.operation, Radial)] == [(2, 3, 4, 4)] * 2
        assert isinstance(steps[-1].operation, Output)


def test_a_step_that_makes_nothing_says_so():
    with pytest.raises(ValueError, match="^layer gives no tensor; compress needs layers that do$"):
        Step(SAME, "layer", (), None).made  # noqa: B018


# --- norm layers of other libraries


class Misnamed(OtherRMSNorm):
    pass


class BrokenRMSNorm(OtherRMSNorm):
    def forward(self, v):
        raise RuntimeError("not today")


class NarrowRMSNorm(OtherRMSNorm):
    def forward(self, v):
        return super().forward(v)[..., :-1]


class EpsRMSNorm(OtherRMSNorm):
    """Another name for its eps, a number of its own besides its gain."""

    def __init__(self, n, eps):
        super().__init__(n, eps)
        self.eps = self.variance_epsilon
        del self.variance_epsilon

    def forward(self, v):
        return self.weight * v * torch.rsqrt(v.square().mean(-1, keepdim=True) + self.eps)


class BiasRMSNorm(OtherRMSNorm):
    def __init__(self, n, eps):
        super().__init__(n, eps)
        self.bias = nn.Parameter(torch.zeros(n))


def test_rms_norms_are_tried_out_before_they_are_believed():
    for norm in (OtherRMSNorm(6, 1e-5), EpsRMSNorm(6, 1e-5)):
        found = rms_norm(norm)
        assert (found.n, found.eps) == (6, 1e-5)
        assert found.gain is norm.weight
        assert whole_module(norm)
    believed = [Misnamed(6, 1e-5), OtherRMSNorm(6, 1e-5, factor=1.001), BrokenRMSNorm(6, 1e-5), BiasRMSNorm(6, 1e-5)]
    believed += [NarrowRMSNorm(6, 1e-5), hooked(OtherRMSNorm(6, 1e-5)), OtherRMSNorm(6, 1), nn.ReLU()]
    for norm in believed:
        assert rms_norm(norm) is None
        assert not whole_module(norm)


def test_torchs_own_rms_norm_says_what_it_is():
    assert rms_norm(nn.RMSNorm(5, eps=0.25))[:2] == (5, 0.25)
    assert rms_norm(nn.RMSNorm(5, elementwise_affine=False)) == (5, None, None)
    assert rms_norm(nn.RMSNorm((2, 5))) is None
    assert whole_module(nn.RMSNorm((2, 5)))
    assert [whole_module(m) for m in (nn.LayerNorm(3), nn.BatchNorm1d(3), nn.Linear(3, 3))] == [True, True, False]
