"""Odd models and odd inputs: `compress` returns the same function or says in a RadNetError what is the matter.

Never another exception, never a warning; and afterwards the model, its inputs and the process are as they were.
"""

import contextlib
import copy
import dataclasses
import io
import logging
import re
import resource
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

import radnet
from trust_models import chain, linear, model_of, network, normal, same_function, unchanged

X = normal(16, 3)
S = nn.Sequential


def small():
    return chain(radnet.Squash())


@dataclasses.dataclass(frozen=True)
class Odd:
    """A model, what `compress` is given, and why it may be refused (None: there is no reason to)."""

    name: str
    model: Callable[[], Any]
    reason: str | None
    given: Any = dataclasses.field(default_factory=lambda: X.clone())
    options: dict = dataclasses.field(default_factory=dict)
    around: Callable[[], Any] = contextlib.nullcontext

    def __str__(self):
        return self.name


# --- models


def by(function, **parts):
    return lambda: model_of(function, parts)


def _mask(self, x, mask=None):
    h = self.a(x)
    if mask is not None:
        h = h * mask
    return self.b(self.rho(h))


def _asserts(self, x):
    h = self.rho(self.a(x))
    assert h.shape[-1] == 48
    return self.b(h)


def _joins_by_ndim(self, x):
    h = self.a(x)
    return self.q(torch.cat([h, self.rho(h)], dim=h.ndim - 1))


def _flattens_by_ndim(self, x):
    h = self.a(x)
    return self.b(self.rho(h.flatten(h.ndim - 1)))


def _asks_for_tensors(self, x):
    return self.b(self.rho(self.a(x.tensors if hasattr(x, "tensors") else x)))


def _identity_on_a_tuple(self, x):
    return self.b(self.i(self.l(x))[0])


def _sum_of_many(self, x):
    h = self.layers[0](x)
    for layer in list(self.layers)[1:]:
        h = h + layer(x)
    return self.b(self.n(h))


def _stream_of_many(self, x):
    h = self.a(x)
    for layer in self.layers:
        h = h + self.rho(layer(h))
    return self.b(h)


def _to_float(self, x):
    return self.b(self.rho(self.a(x.float())))


def _one_hot(self, x):
    return self.b(self.rho(self.a(F.one_hot(x.argmax(1), 3).float())))


def _starts_with_zeros(self, x):
    return self.b(self.rho(self.a(x) + self.q(torch.zeros(16, 48).to(x))))


def _two(self, x, y):
    return self.b(self.rho(self.a(x)))


def _masked(self, x, keep):
    h = self.rho(self.a(x))
    return self.b(h * keep.unsqueeze(-1))


def _gathered(self, x, index):
    h = self.rho(self.a(x))
    return self.b(h[index[0]] + h[index[1]])


def _up_to_lengths(self, x, lengths):
    h = self.rho(self.a(x))
    seen = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
    return self.b((h * seen.unsqueeze(-1)).sum(1))


def _of_time(self, t, x):
    return self.b(self.rho(self.a(x) * t))


def _of_a_dictionary(self, d):
    return self.b(self.rho(self.a(d["x"])))


def _keywords_only(self, *, x):
    return self.b(self.rho(self.a(x)))


def _out_features(self, x):
    return self.b(self.rho(self.a(x)) * self.a.out_features**-0.5)


def _another_kind_of_layer(self, x):
    return self.b(self.rho(self.a(x)) * (getattr(self.a, "out_channels", None) or self.a.out_features) ** -0.5)


def _length_of_a_weight(self, x):
    return self.b(self.rho(self.a(x)) / len(self.a.weight))


def _shape_of_a_weight(self, x):
    return self.b(self.rho(self.a(x)) / self.a.weight.shape[0])


def _normalises_its_input(self, x):
    return self.b(self.rho(self.a(x.sub_(0.5).div_(0.25))))


def _raises(self, x):
    raise KeyError("boom")


def _raises_late(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    if self.calls > 1:
        raise ValueError("boom at the second call")
    return self.b(self.rho(self.a(x)))


def _raises_elsewhere(self, x):
    if x.shape != (16, 3):
        raise ValueError("made for 16 rows")
    return self.b(self.rho(self.a(x)))


def _raises_by_assertion(self, x):
    assert x.shape[0] == 16, "made for 16 rows"
    return self.b(self.rho(self.a(x)))


def _interrupts(self, x):
    raise KeyboardInterrupt("from the model")


def _gives_none(self, x):
    self.b(self.rho(self.a(x)))


def _gives_words(self, x):
    return f"{len(x)} rows"


def _gives_a_number(self, x):
    return 3


def _gives_integers(self, x):
    return self.b(self.rho(self.a(x))).argmax(1)


def _gives_nothing_in_a_tuple(self, x):
    return ()


def _gives_an_input_back(self, x):
    return x, self.b(self.rho(self.a(x)))


def _draws(self, x):
    return self.b(self.rho(F.dropout(self.a(x), 0.5, training=True)))


def _draws_and_forgets(self, x):
    torch.rand(3)
    return self.b(self.rho(self.a(x)))


def _warns(self, x):
    warnings.warn("this model is old", DeprecationWarning, stacklevel=2)
    return self.b(self.rho(self.a(x)))


def _by_dictionaries(self, x):
    h = self.parts["first"](x) + self.table["shift"]
    return self.parts["last"](self.rho(h * self.factors[0]))


def _dequantises(self, x):
    return self.b(self.rho(F.linear(x, self.q.weight.to(x) * 0.01)))


def with_buffer(buffer, forward=lambda self, x: self.b(self.rho(self.a(x)))):
    """A model with a buffer of its own."""

    def make():
        model = model_of(forward)
        model.register_buffer("kept", buffer)
        return model

    return make


def _attends(self, x):
    y = self.b(self.rho(self.a(x)))
    return torch.softmax(y @ y.mT + self.kept, -1) @ y


def _attends_as_told(self, x, mask):
    y = self.b(self.rho(self.a(x)))
    return torch.softmax(y @ y.mT + mask, -1) @ y


class Closes(nn.Module):
    """A function on it closes over the model, so that of a copy uses the layers of the original."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.rho = nn.Linear(3, 48), nn.Linear(48, 2), nn.Linear(3, 2), radnet.Squash()
        self.skip = lambda x: self.c(x)

    def forward(self, x):
        return self.b(self.rho(self.a(x))) + self.skip(x)


def _sparse_between(self, x):
    h = self.rho(self.a(x))
    return self.b(torch.sparse.mm(torch.eye(len(x), dtype=x.dtype).to_sparse(), h))


def _gives_a_sparse_one(self, x):
    return self.b(self.rho(self.a(x))).to_sparse()


def _gives_a_jagged_one(self, x):
    return torch.nested.nested_tensor([*self.b(self.rho(self.a(x)))], layout=torch.jagged)


def _by_vmap(self, x):
    return torch.func.vmap(lambda v: self.b(self.rho(self.a(v))))(x)


def _jacobians(self, x):
    return torch.func.vmap(torch.func.jacrev(lambda v: self.b(self.rho(self.a(v)))))(x)


def _packed(self, x):
    lengths = torch.arange(len(x)) % 3 + 1
    h = self.rho(self.a(x)).unsqueeze(1).expand(-1, 3, -1)
    packed = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
    return self.b(self.g(packed)[1][0])


def _conditional(self, x):
    h = self.rho(self.a(x))
    return torch.cond(x.sum() > 0, lambda h: self.b(h), lambda h: -self.b(h), (h,))


class Alias(nn.Module):
    """A norm without parameters under two names."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(48, affine=False)
        self.bn.running_var.fill_(4.0)
        self.net = S(nn.Linear(3, 48), self.bn, radnet.Squash(), nn.Linear(48, 2))

    def forward(self, x):
        return self.net(x)


class Returns(nn.Sequential):
    """Its deep copy is itself."""

    def __deepcopy__(self, memo):
        return self


class Uncopied(nn.Sequential):
    def __deepcopy__(self, memo):
        raise RuntimeError("this model is not to be copied")


def pruned():
    layer = nn.Linear(3, 48)
    prune.l1_unstructured(layer, "weight", 0.5)
    return S(layer, radnet.Squash(), nn.Linear(48, 2))


def pruned_twice():
    model = pruned()
    prune.ln_structured(model[2], "weight", 0.5, n=2, dim=1)
    prune.random_unstructured(model[0], "bias", 0.5)
    return model


def old(norm):
    def make():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return S(norm(nn.Linear(3, 48)), radnet.Squash(), nn.Linear(48, 2))

    return make


def with_attribute(name, value):
    def make():
        model = small()
        setattr(model, name, value())
        return model

    return make


def with_graph():
    """A tensor is left from training, with all that made it."""
    model = small()
    model.seen = model[0](X).sum()
    model[1].seen = [model[0](X)]
    return model


def after_training():
    model = small()
    model(X).sum().backward()
    return model


def changed(change):
    def make():
        model = small()
        with torch.no_grad():
            change(model)
        return model

    return make


def _expanded(model):
    model[0].weight = nn.Parameter(torch.randn(1, 3).expand(48, 3))


def _transposed(model):
    model[0].weight = nn.Parameter(torch.randn(3, 48).t())


def _in_one_memory(model):
    flat = torch.randn(48 * 3 + 2 * 48)
    model[0].weight, model[2].weight = (
        nn.Parameter(flat[: 48 * 3].view(48, 3)),
        nn.Parameter(flat[48 * 3 :].view(2, 48)),
    )


def _overlapping(model):
    flat = torch.randn(48 * 3)
    model[0].weight, model[2].weight = nn.Parameter(flat.view(48, 3)), nn.Parameter(flat[:96].view(2, 48))


def _nan(model):
    model[2].weight[0, 0] = torch.nan


def _infinite(model):
    model[0].bias[3] = torch.inf


def _complex(model):
    model[0].weight = nn.Parameter(model[0].weight.to(torch.complex64))


def _sparse(model):
    model[0].weight = nn.Parameter(model[0].weight.to_sparse())


def _mixed(model):
    model[1] = S(radnet.Squash(), To(torch.float64))
    model[2].double()


class To(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(small(), {nn.Linear}, dtype=torch.qint8)


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(S(nn.Linear(3, 48), nn.Linear(48, 2)))


def partly_scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = torch.jit.script(S(nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU()).eval())
    return S(nn.Linear(3, 48), radnet.Squash(), part, nn.Linear(48, 48), radnet.Squash(), nn.Linear(48, 2))


def traced():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(S(nn.Linear(3, 48), nn.Linear(48, 2)).eval(), X)


def made_in_inference_mode():
    with torch.inference_mode():
        return small()


def made_of_meta():
    with torch.device("meta"):
        return small()


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def pooled(pool, n):
    return lambda: S(nn.Linear(3, 48), radnet.Squash(), copy.deepcopy(pool), nn.Linear(n, 2))


def exported():
    return torch.export.export(S(nn.Linear(3, 48), nn.Linear(48, 2)), (X,)).module()


def inference_tensor():
    with torch.inference_mode():
        return X.clone()


def network_with(change):
    def make():
        net = network()
        change(net)
        return net

    return make


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Seen(TorchDispatchMode):
    """A mode of one's own: counts what runs."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def memory_of(gigabytes):
    """No more than so much beside what the process has already."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(gigabytes * 2**30), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


MANY = {
    "layers": lambda: nn.ModuleList(nn.Linear(3, 24) for _ in range(300)),
    "n": lambda: nn.LayerNorm(24),
    "b": linear(24, 2),
}
STREAM = {"layers": lambda: nn.ModuleList(nn.Linear(8, 8) for _ in range(60)), "a": linear(3, 8), "b": linear(8, 2)}
BOXES = {
    "parts": lambda: nn.ModuleDict({"first": nn.Linear(3, 48), "last": nn.Linear(48, 2)}),
    "table": lambda: nn.ParameterDict({"shift": nn.Parameter(torch.randn(48))}),
    "factors": lambda: nn.ParameterList([nn.Parameter(torch.tensor(0.5))]),
}
INT8 = {"q": lambda: quietly(_int8)}


def _int8():
    part = nn.Module()
    part.weight = nn.Parameter(torch.randint(-99, 99, (48, 3), dtype=torch.int8), requires_grad=False)
    return part


#: models; all are given 16 rows of 3 numbers
MODELS = [
    Odd("a mask that is not given", by(_mask), None),
    Odd("an assertion on a width", by(_asserts), r"width|relies|assert"),
    Odd("an assertion on rows", by(_raises_by_assertion), None),
    Odd("cat along ndim - 1", by(_joins_by_ndim, q=linear(96, 2)), None),
    Odd("flatten from ndim - 1", by(_flattens_by_ndim), None),
    Odd("pruned", pruned, r"prun|hook"),
    Odd("pruned twice", pruned_twice, r"prun|hook"),
    Odd("old weight_norm", old(torch.nn.utils.weight_norm), r"weight_norm|hook"),
    Odd("old spectral_norm", old(torch.nn.utils.spectral_norm), r"spectral_norm|hook"),
    Odd("adaptive pooling of features", pooled(nn.AdaptiveAvgPool1d(16), 16), None),
    Odd("average pooling of features", pooled(nn.AvgPool1d(3, 1, 1), 48), None),
    Odd("largest of features", pooled(nn.MaxPool1d(2), 24), None),
    Odd("hasattr(x, 'tensors')", by(_asks_for_tensors), None),
    Odd("300 layers summed", by(_sum_of_many, **MANY), None),
    Odd("a stream of 60 blocks", by(_stream_of_many, **STREAM), None),
    Odd("300 layers in a row", lambda: S(nn.Linear(3, 4), *(nn.Linear(4, 4) for _ in range(300))), None),
    Odd("float8", lambda: small().to(torch.float8_e4m3fn), r"float8"),
    Odd("float8 in one place", changed(lambda m: m[2].to(torch.float8_e5m2)), r"float8"),
    Odd("int8 weights", by(_dequantises, **INT8), r"int8"),
    Odd("x.float()", by(_to_float), None),
    Odd("one_hot(...).float()", by(_one_hot), None),
    Odd("zeros of 16 rows", by(_starts_with_zeros, q=linear(48, 48)), None),
    Odd("a norm under two names", Alias, None),
    Odd("out_features", by(_out_features), None),
    Odd("out_channels, if there are any", by(_another_kind_of_layer), None),
    Odd("the length of a weight", by(_length_of_a_weight), None),
    Odd("the shape of a weight", by(_shape_of_a_weight), None),
    Odd("an input normalised in place", by(_normalises_its_input), None),
    Odd("no parameters", lambda: S(radnet.Squash()), r"parameter|nothing|layer"),
    Odd("nothing at all", lambda: S(), r"parameter|nothing|layer"),
    Odd("forward raises", by(_raises), r"boom"),
    Odd("forward raises the second time", by(_raises_late), r"boom|earlier calls"),
    Odd("forward raises at other shapes", by(_raises_elsewhere), None),
    Odd("forward gives None", by(_gives_none), r"None|no tensor|nothing"),
    Odd("forward gives words", by(_gives_words), r"\bstr\b|no .*tensor|nothing"),
    Odd("forward gives a number", by(_gives_a_number), r"\bint\b|no .*tensor|nothing"),
    Odd("forward gives integers", by(_gives_integers), r"integer|int64|no .*tensor|nothing"),
    Odd("forward gives an empty tuple", by(_gives_nothing_in_a_tuple), r"no .*tensor|nothing"),
    Odd("forward gives its input back", by(_gives_an_input_back), None),
    Odd("forward draws what it uses", by(_draws), r"random|twice|differ"),
    Odd("forward draws what it does not use", by(_draws_and_forgets), r"random"),
    Odd("forward warns", by(_warns), r"this model is old"),
    Odd("dropout in training mode", lambda: S(nn.Linear(3, 48), nn.Dropout(), nn.Linear(48, 2)).train(), r"eval"),
    Odd("no forward", nn.Module, r"forward"),
    Odd("lazy", lambda: S(nn.Linear(3, 48), radnet.Squash(), nn.LazyLinear(2)), r"initiali"),
    Odd("a lock", with_attribute("lock", threading.Lock), r"copied|copy|lock"),
    Odd("an open file", with_attribute("file", lambda: io.TextIOWrapper(io.BytesIO())), r"copied|copy|TextIOWrapper"),
    Odd("a generator", with_attribute("drawn", lambda: (k for k in range(3))), r"copied|copy|generator"),
    Odd("a tensor with its graph", with_graph, None),
    Odd("gradients", after_training, None),
    Odd("a deep copy that is itself", lambda: Returns(*small()), r"copied|copy"),
    Odd("a deep copy that is refused", lambda: Uncopied(*small()), r"copied|copy"),
    Odd("dictionaries and lists", by(_by_dictionaries, **BOXES), None),
    Odd("a function that closes over the model", Closes, r"Closes: a copy of it uses c\.\w+ of the model that it was"),
    Odd("sparse in between", by(_sparse_between), None),
    Odd("forward gives a sparse tensor", by(_gives_a_sparse_one), None),
    Odd("forward gives a jagged tensor", by(_gives_a_jagged_one), r"cannot be traced"),
    Odd("vmap", by(_by_vmap), None),
    Odd("Jacobians", by(_jacobians), r"cannot be traced"),
    Odd("packed sequences", by(_packed, g=lambda: nn.GRU(48, 48, batch_first=True)), r"cannot be traced"),
    Odd("DataParallel", lambda: nn.DataParallel(small()), r"DataParallel"),
    Odd("scripted", scripted, r"script"),
    Odd("partly scripted", partly_scripted, None),
    Odd("traced by torch.jit", traced, r"script|trace"),
    Odd("compiled", lambda: torch.compile(small()), r"_orig_mod"),
    Odd("a graph module", lambda: torch.fx.symbolic_trace(S(nn.Linear(3, 48), nn.Linear(48, 2))), None),
    Odd("exported", exported, r"copied|copy"),
    Odd("quantised", quantised, r"quanti"),
    Odd("weights of inference mode", made_in_inference_mode, r"inference"),
    Odd("on the meta device", made_of_meta, r"meta"),
    Odd("partly on the meta device", changed(lambda m: m[2].to("meta")), r"meta|device"),
    Odd("NaN", changed(_nan), r"NaN"),
    Odd("infinite", changed(_infinite), r"infinite"),
    Odd("complex weights", changed(_complex), r"complex"),
    Odd("sparse weights", changed(_sparse), r"sparse"),
    Odd("a mask of -inf", with_buffer(torch.full((16, 16), -torch.inf).triu(1), _attends), None),
    Odd("a best loss of inf", with_attribute("best", lambda: nn.Buffer(torch.tensor(torch.inf))), None),
    Odd("an empty buffer", with_buffer(torch.empty(0)), None),
    Odd("a complex buffer", with_buffer(torch.polar(torch.ones(5), torch.arange(5.0))), None),
    Odd("a sparse buffer", with_buffer(torch.eye(5).to_sparse()), None),
    Odd("an expanded weight", changed(_expanded), None),
    Odd("a transposed weight", changed(_transposed), None),
    Odd("weights in one memory", changed(_in_one_memory), None),
    Odd("weights that overlap", changed(_overlapping), None),
    Odd("a frozen layer", changed(lambda m: m[0].requires_grad_(False)), None),
    Odd("two dtypes", changed(_mixed), r"float64|dtype"),
    Odd("half, rows in float32", lambda: small().half(), r"float16|Half|dtype"),
    Odd("a layer without outputs", lambda: quietly(lambda: S(nn.Linear(3, 0), nn.Linear(0, 2))), r"zero|empty|\b0\b"),
    Odd("a number", lambda: 3, r"Module"),
    Odd("a function", lambda: torch.tanh, r"Module"),
    Odd("a class", lambda: nn.Linear, r"Module"),
    Odd("None", lambda: None, r"Module"),
]


def tokens(self, words):
    return self.b(self.rho(self.e(words)))


#: inputs; the result has to be right at 16 ordinary rows
INPUTS = [
    Odd("NumPy", small, r"ndarray|tensor", X.numpy()),
    Odd("a dictionary", small, r"dict", {"x": X}),
    Odd("another dtype", small, r"float64|Double|dtype", X.double()),
    Odd("another width", small, r"width|shape|5", normal(4, 5)),
    Odd("nothing given", small, None, None),
    Odd("an empty tuple", small, r"input", ()),
    Odd("no rows", small, r"row|empty", normal(0, 3)),
    Odd("a number as a tensor", small, r"row|0-d|axis|axes|dimension|scalar|shape", torch.tensor(1.0)),
    Odd("a number", small, r"int|tensor", 3),
    Odd("None in a tuple", small, r"None|no tensor", (None,)),
    Odd("lists of numbers", small, r"list|float|tensor", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    Odd("words", small, r"str", "three rows"),
    Odd("a set", small, r"set|tensor", {1, 2}),
    Odd("words beside a tensor", by(_mask), r"str|does not run", (X, "mask")),
    Odd("a generator", small, r"generator|tensor", (x for x in [X])),
    Odd("on the meta device", small, r"meta", X.to("meta")),
    Odd("sparse", small, r"sparse", X.to_sparse()),
    Odd("nested", small, r"nested|Nested", quietly(lambda: torch.nested.nested_tensor([X, X[:3]]))),
    Odd("complex", small, r"complex", X.to(torch.complex64)),
    Odd("integers", small, r"int64|integer|Long|dtype", torch.ones(16, 3, dtype=torch.long)),
    Odd("true and false", small, r"bool|dtype|float", torch.ones(16, 3, dtype=torch.bool)),
    Odd("float8", small, r"float8", X.to(torch.float8_e4m3fn)),
    Odd("NaN", small, r"NaN", torch.full((4, 3), torch.nan)),
    Odd("infinite", small, r"infinite", torch.full((4, 3), torch.inf)),
    Odd("that need gradients", small, None, X.clone().requires_grad_()),
    Odd("a parameter", small, None, nn.Parameter(X.clone())),
    Odd("of inference mode", small, None, inference_tensor()),
    Odd("computed ones", small, None, (X.clone().requires_grad_() * 2)),
    Odd("expanded", small, None, normal(1, 3).expand(16, 3)),
    Odd("transposed", small, None, normal(3, 16).t()),
    Odd("a list of one tensor", small, None, [X.clone()]),
    Odd("one row", small, None, normal(1, 3)),
    Odd("a row without an axis for rows", small, r"row|axis|axes|dimension|shape", normal(3)),
    Odd("one too many", small, r"argument|takes|input", (X, X)),
    Odd("one missing", by(_two), r"argument|missing|input", X.clone()),
    Odd("by keyword only", by(_keywords_only), r"argument|keyword|positional", X.clone()),
    Odd(
        "words of a dictionary that are too many",
        by(tokens, e=lambda: nn.Embedding(5, 48)),
        r"index|range",
        (torch.tensor([9]),),
    ),
]

#: more than one input, or others than rows of floating-point numbers; the result has to be right at these
SEVERAL = [
    Odd("a mask of bool beside", by(_two), None, (X, torch.ones(16, dtype=torch.bool))),
    Odd("indices beside", by(_two), None, (X, torch.zeros(2, 9, dtype=torch.long))),
    Odd("a mask that is used", by(_masked), None, (X, torch.arange(16) % 3 > 0)),
    Odd("a mask of -inf", by(_attends_as_told), None, (X, torch.full((16, 16), -torch.inf).triu(1))),
    Odd("indices that are used", by(_gathered), None, (X, torch.arange(18).reshape(2, 9) % 16)),
    Odd("lengths that are used", by(_up_to_lengths), None, (normal(8, 5, 3), torch.arange(8) % 6)),
    Odd("a time beside", by(_of_time), r"row|0-d|axis|axes|dimension|scalar|shape", (torch.tensor(0.5), X)),
    Odd(
        "a time alone",
        lambda: model_of(lambda self, t: t),
        r"row|0-d|axis|axes|dimension|scalar|shape",
        (torch.tensor(0.5),),
    ),
    Odd("a dictionary as the input", by(_of_a_dictionary), r"dict", ({"x": X},)),
    Odd(
        "a tuple from an LSTM",
        by(_identity_on_a_tuple, i=nn.Identity, l=lambda: nn.LSTM(3, 48)),
        None,
        (normal(4, 5, 3),),
    ),
    Odd("words", by(tokens, e=lambda: nn.Embedding(5, 48)), None, (torch.tensor([0, 3, 4, 4]),)),
    Odd(
        "pictures",
        lambda: S(nn.Conv2d(1, 8, 3), radnet.Squash(dim=1), nn.Flatten(), nn.Linear(8 * 36, 2)),
        None,
        (normal(4, 1, 8, 8),),
    ),
]

#: what else can be asked of `compress`
OPTIONS = [
    Odd("data in a list", small, r"list|data", None, {"data": [X]}),
    Odd("data as words", small, r"str|data", None, {"data": "all"}),
    Odd("data of another width", small, r"width|shape|5", None, {"data": normal(16, 5)}),
    Odd("data without rows", small, r"row|empty", None, {"data": normal(0, 3)}),
    Odd("data with NaN", small, r"NaN", None, {"data": torch.full((4, 3), torch.nan)}),
    Odd(
        "data with infinity", small, r"infinite", None, {"data": torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, torch.inf]])}
    ),
    Odd("data as a number", small, r"row|0-d|axis|axes|dimension|scalar|shape", None, {"data": torch.tensor(1.0)}),
    Odd("integers as data", small, r"int64|integer|dtype|float", None, {"data": torch.ones(4, 3, dtype=torch.long)}),
    Odd("RadNet, rewritten", network, None, None, {"rewrite": True}),
    Odd("RadNet, with a tolerance", network, None, None, {"tol": 1e-12}),
    Odd("RadNet, with data", network, None, None, {"data": X}),
    Odd("RadNet, rewritten with inputs", network, None, X, {"rewrite": True}),
    Odd("a seed for a generator", small, r"generator", X, {"generator": 0}),
    Odd("a tolerance that is NaN", small, r"tol", X, {"tol": float("nan")}),
]

#: radial networks that were changed after they were built
NETWORKS = [
    Odd("inputs in a tuple", network, r"tuple", (X,)),
    Odd("inputs of another width", network, r"5", normal(4, 5)),
    Odd("NumPy", network, r"ndarray|tensor", X.numpy()),
    Odd("no rows", network, r"row", normal(0, 3)),
    Odd(
        "a sequence for a layer",
        network_with(lambda n: n.layers.__setitem__(0, S(nn.Linear(3, 48)))),
        r"Sequential|nn.Linear",
    ),
    Odd("a layer too many", network_with(lambda n: n.layers.append(nn.Linear(2, 2))), r"layer|activation"),
    Odd("a bias missing", network_with(lambda n: n.layers.__setitem__(1, nn.Linear(48, 48, bias=False))), r"bias"),
    Odd("a width that does not fit", network_with(lambda n: n.layers.__setitem__(1, nn.Linear(7, 48))), r"7|48|shape"),
    Odd("pruned", network_with(lambda n: prune.l1_unstructured(n.layers[1], "weight", 0.5)), r"prun|hook"),
    Odd("a lock", network_with(lambda n: setattr(n, "lock", threading.Lock())), r"copied|copy|lock"),
    Odd("float8", network_with(lambda n: n.to(torch.float8_e4m3fn)), r"float8"),
    Odd("gradients", network_with(lambda n: n(X).sum().backward()), None),
    Odd("a tensor with its graph", network_with(lambda n: setattr(n, "seen", n(X))), None),
]

#: what may be switched on while `compress` runs
AROUND = [
    Odd("no_grad", small, None, around=torch.no_grad),
    Odd("inference_mode", small, None, around=torch.inference_mode),
    Odd("inference_mode, RadNet", network, None, around=torch.inference_mode),
    Odd("inference_mode, torch.export", by(_raises_elsewhere), None, around=torch.inference_mode),
    Odd("float64 by default", small, None, around=lambda: default_dtype(torch.float64)),
    Odd("float64 by default, RadNet", network, None, around=lambda: default_dtype(torch.float64)),
    Odd("float16 by default", small, None, around=lambda: default_dtype(torch.float16)),
    Odd("the meta device by default", small, None, around=lambda: torch.device("meta")),
    Odd("the meta device by default, RadNet", network, None, around=lambda: torch.device("meta")),
    Odd("autocast", small, r"autocast", around=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    Odd("autocast, RadNet", network, r"autocast", around=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    Odd("deterministic algorithms", small, None, around=deterministic),
    Odd("a mode of one's own", small, r"mode", around=Seen),
]


def outcome(odd):
    """What came of it: a compression or a refusal; anything else is raised, and nothing may be left changed."""
    torch.manual_seed(len(odd.name))
    model = odd.model()
    if isinstance(model, nn.Module) and odd.name not in ("dropout in training mode", "exported"):
        model.eval()
    with odd.around(), unchanged(model, (odd.given, odd.options)):
        try:
            c = radnet.compress(model, odd.given, **odd.options)
        except radnet.RadNetError as error:
            return model, error
    with odd.around(), unchanged(model, odd.given):
        assert "lossless" in c.report()
    return model, c


def judge(odd, at):
    model, c = outcome(odd)
    if isinstance(c, radnet.RadNetError):
        assert odd.reason is not None, f"refused, and there is no reason to: {c}"
        assert re.search(odd.reason, str(c), re.IGNORECASE), f"refused, but not for {odd.reason!r}: {c}"
        return
    assert c.certificate.lossless
    same_function(model, c.network, *at)


@pytest.mark.parametrize("odd", MODELS, ids=str)
def test_an_odd_model_is_compressed_or_refused_for_its_reason(odd):
    judge(odd, (X,))


@pytest.mark.parametrize("odd", INPUTS, ids=str)
def test_odd_inputs_are_taken_or_refused_for_their_reason(odd):
    judge(odd, (X,))


@pytest.mark.parametrize("odd", SEVERAL, ids=str)
def test_several_inputs_are_taken_as_they_are(odd):
    judge(odd, odd.given)


@pytest.mark.parametrize("odd", OPTIONS, ids=str)
def test_odd_options_are_taken_or_refused_for_their_reason(odd):
    judge(odd, (X,))


@pytest.mark.parametrize("odd", NETWORKS, ids=str)
def test_an_odd_network_is_compressed_or_refused_for_its_reason(odd):
    judge(odd, (X,))


@pytest.mark.parametrize("odd", AROUND, ids=str)
def test_settings_of_torch_do_not_matter_and_stay(odd):
    judge(odd, (X,))


def test_a_wide_input_costs_no_square_matrix():
    n = 3 * 128 * 128  # an identity matrix of this size has 19 GB
    torch.manual_seed(0)
    model = S(nn.Flatten(), nn.Linear(n, 32), radnet.Squash(), nn.Linear(32, 10)).eval()
    x = normal(1, 3, 128, 128)
    with memory_of(gigabytes=4), unchanged(model, x):
        c = radnet.compress(model, x)
    assert c.certificate.lossless
    same_function(model, c.network, x)


def _by_experts(self, x):
    h, best = self.rho(self.a(x)), self.g(x).argmax(-1)
    out = torch.zeros_like(h)
    for i, layer in enumerate(self.layers):
        mine = best == i
        out[mine] = layer(h[mine])
    return self.b(out) if bool(out.sum() > 0) else -self.b(out)


def test_functions_that_are_handed_to_pytorch_are_refused():
    with pytest.raises(radnet.RadNetError, match=r"its forward hands functions to PyTorch \(torch\.cond"):
        radnet.compress(by(_conditional)().eval(), X)


def test_torch_export_prints_nothing(capfd):
    parts = {"g": linear(3, 2), "layers": lambda: nn.ModuleList(nn.Linear(48, 48) for _ in range(2))}
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    before = list(logger.filters)
    with pytest.raises(radnet.RadNetError, match="nor can torch.export"):
        radnet.compress(by(_by_experts, **parts)().eval(), X)
    assert capfd.readouterr() == ("", "")
    assert logger.filters == before
    assert "print" not in vars(torch.export._trace)


def test_an_interrupt_is_not_held_up():
    model = model_of(_interrupts)
    with unchanged(model, X), pytest.raises(KeyboardInterrupt, match="from the model"):
        radnet.compress(model, X)


class Grumbling(S):
    """Does not tell which buffers it has."""

    def named_buffers(self, *args, **kwargs):
        raise RuntimeError("ask somebody else")


class Prickly(torch.Tensor):
    """A tensor that nothing can be done with."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("ask somebody else")


@pytest.mark.parametrize(
    ("model", "given"), [(Grumbling(*small()), X), (small(), X.as_subclass(Prickly))], ids=["the model", "the inputs"]
)
def test_what_is_looked_at_first_raises_nothing_raw_either(model, given):
    with pytest.raises(radnet.RadNetError, match=r"did not expect \(RuntimeError: ask somebody else\)"):
        radnet.compress(model.eval(), given)


def test_three_hundred_calls_deep_there_is_still_an_answer():
    """Part of the stack may be taken already."""

    def deep(k):
        return deep(k - 1) if k else radnet.compress(small().eval(), X)

    assert deep(300).certificate.lossless


# --- verify


def constant(value):
    return model_of(lambda self, x: value)


VERIFIED = {
    "NumPy": (small, small, X.numpy(), r"ndarray|tensor"),
    "another width": (small, small, normal(4, 5), r"width|shape|5"),
    "another dtype": (small, small, X.long(), r"int64|integer|dtype|float"),
    "no rows": (small, small, normal(0, 3), r"row"),
    "None": (small, small, None, r"None|input|tensor"),
    "words": (small, small, "rows", r"str|tensor"),
    "a dictionary": (small, small, {"x": X}, r"dict|str|tensor"),
    "forward raises": (by(_raises), by(_raises), X, r"boom"),
    "the second raises": (small, by(_raises), X, r"boom"),
    "nothing to compare": (by(_gives_words), by(_gives_words), X, r"str|tensor|nothing"),
    "None to compare": (by(_gives_none), by(_gives_none), X, r"None|tensor|nothing"),
    "a model that is none": (small, lambda: 3, X, r"module|int"),
    "NaN among the inputs": (small, small, torch.full((4, 3), torch.nan), r"NaN"),
    "float8": (lambda: small().to(torch.float8_e4m3fn), small, X, r"float8"),
    "on the meta device": (small, made_of_meta, X, r"meta|device"),
    "lazy": (small, lambda: S(nn.LazyLinear(2)), X, r"initiali"),
}


@pytest.mark.parametrize("name", VERIFIED)
def test_verify_refuses_for_the_reason(name):
    first, second, x, reason = VERIFIED[name]
    a, b = first(), second()
    with unchanged(a, x), unchanged(b, x), pytest.raises(radnet.RadNetError, match=f"(?i){reason}"):
        radnet.verify(a, b, x)


NOT_THE_SAME = {
    "another shape": (lambda: nn.Linear(3, 2), lambda: nn.Linear(3, 4)),
    "rows in another order": (by(lambda self, x: (x, x.sort(0))), by(lambda self, x: (x.flip(0), x.sort(0)))),
    "another index": (by(lambda self, x: (x, x.argmax(1))), by(lambda self, x: (x, x.argmin(1)))),
    "one more": (by(lambda self, x: (x,)), by(lambda self, x: (x, x))),
    "a number": (by(lambda self, x: (x, 1)), by(lambda self, x: (x, 2))),
    "nothing": (by(lambda self, x: (x, x)), by(lambda self, x: (x, None))),
}


@pytest.mark.parametrize("name", NOT_THE_SAME)
def test_verify_never_says_lossless_of_other_outputs(name):
    torch.manual_seed(0)
    first, second = (make() for make in NOT_THE_SAME[name])
    try:
        lossless = radnet.verify(first, second, X).lossless
    except radnet.RadNetError:
        lossless = False
    assert not lossless


# --- what the small model is made of


def operations(model, x):
    """The operations of ATen that an exporter has to know."""
    program = torch.export.export(model, (x,))
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    schemas = [getattr(node.target, "_schema", None) for graph in graphs for node in graph.nodes]
    return {schema.name.removeprefix("aten::") for schema in schemas if schema is not None}


#: operations of ATen that torch.onnx has a translation for, of those a rescaling may be made of
IN_ONNX = {
    "__and__", "_assert_tensor_metadata", "_to_copy", "abs", "add", "addmm", "amax", "bitwise_and", "bitwise_not",
    "cat", "clamp", "clamp_min", "clone", "detach", "div", "eq", "exp", "expand", "full", "full_like", "ge", "gt",
    "isfinite", "isinf", "le", "linalg_vector_norm", "linear", "logical_and", "logical_not", "lt", "masked_fill",
    "maximum", "mean", "minimum", "mm", "mul", "ne", "neg", "ones_like", "pow", "reciprocal", "rsqrt",
    "scalar_tensor", "slice", "split", "split_with_sizes", "sqrt", "square", "squeeze", "sub", "sum", "t", "to",
    "unsqueeze", "view", "where", "zeros_like",
}  # fmt: skip


@pytest.mark.parametrize("norm", [nn.RMSNorm(48, eps=1e-6), nn.LayerNorm(48), nn.RMSNorm(48)], ids=str)
def test_the_small_model_is_made_of_operations_that_onnx_knows(norm):
    torch.manual_seed(0)
    model = chain(copy.deepcopy(norm)).eval()
    c = radnet.compress(model, X)
    assert sum(p.numel() for p in c.network.parameters()) < sum(p.numel() for p in model.parameters())
    more = operations(c.network, X) - operations(model, X)
    assert more <= IN_ONNX, f"not known to ONNX: {more - IN_ONNX}"
