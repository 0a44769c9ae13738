"""The operations that random programs are made of: text, with fields that a `Writer` fills in.

Each operation reads a value {v} of certain kinds and makes one. Its texts are alternatives: an expression, or whole
statements that make {y}; or, with `in_place`, what writes into {v} itself. See `Fields` for what else a text may hold.
"""

from dataclasses import dataclass

LAST = ("rows", "positions")  # features are the last axis
CONVOLVED = ("channels", "image")  # features are the second axis
FLOATS = LAST + CONVOLVED
SEVERAL = ("positions", "channels", "image")  # there is more than one position
ROWS = dict.fromkeys(SEVERAL, "rows")

VOCABULARY = 7
WIDEST = 48


@dataclass(frozen=True)
class Operation:
    """One line of the table."""

    name: str
    kinds: dict[str, str]  # the kind that it reads -> the kind that it makes
    texts: tuple[str, ...]
    in_place: bool
    by_export: bool  # torch.fx cannot follow it
    weight: float  # how often it is drawn where nothing asks for it
    mixes: bool  # what happens to a row depends on other rows


class Impossible(Exception):
    """The operation does not fit this value."""


#: name -> operation
OPERATIONS: dict[str, Operation] = {}


def operation(name, kinds, *texts, in_place=False, by_export=False, weight=1.0, mixes=False):
    kinds = kinds if isinstance(kinds, dict) else {kind: kind for kind in kinds}
    OPERATIONS[name] = Operation(name, kinds, texts, in_place, by_export, weight, mixes)


# layers
operation("linear", LAST, "{new.Linear}({v})", weight=5)
operation("linear_without_bias", LAST, "{new.LinearWithoutBias}({v})", weight=2)
operation("linear_shared", LAST, "{square}({square}({v}))", "{square}({rho}({square}({v})))")
operation(
    "linear_tied",
    LAST,
    "{tied[0]}({v}) + {tied[1]}({v})",
    "{tied[0]}({v}) - {tied[1]}(-{v})",
    "F.linear({tied[0]}({v}), {tied[1]}.weight.t())",
)
operation("functional_linear", LAST, "F.linear({v}, {new.Linear}.weight, {new.Linear}.bias)")
operation("functional_linear_without_bias", LAST, "F.linear({v}, {new.Linear}.weight)")
operation("matrix_parameter", LAST, "{v} @ {new.Matrix}")
operation("conv", CONVOLVED, *(f"{{new.Conv{i}}}({{v}})" for i in range(5)), weight=4)
operation("conv_with_stride", CONVOLVED, "{new.Stride}({v})")
operation("conv_1x1", CONVOLVED, "{up}({v})", weight=2)
operation("functional_conv", CONVOLVED, "F.conv{d}d({v}, {new.Conv1}.weight, {new.Conv1}.bias, padding=1)")
operation("embedding", {"tokens": "positions"}, "{new.Embedding}({v})", weight=5)
operation("one_hot_tokens", {"tokens": "positions"}, "F.one_hot({v}, {vocabulary}).to({new.Row}.dtype) + {new.Row}")
operation("token_arithmetic", ["tokens"], "({v} + 1) % {vocabulary}", "6 - {v}", "{v}.clamp(max=4)")
operation("token_slice", ["tokens"], "{v}[:, 1:]", "{v}.flip(1)", "{v}[:, ::2]")
operation("looked_up", LAST, "{v} + {new.Table}({ids})")
operation("second_input", LAST, "{v} + {new.Second}({more})", "torch.cat([{v}, {more}], -1)")
operation("parameter_added", FLOATS, "{v} + {new.Bias}")
operation("gain", FLOATS, "{v} * {new.Gain}", weight=0.5)

# radial activations and norm layers
operation("radial", FLOATS, "{rho}({v})", weight=6)
operation("radial_shift", FLOATS, "{new.Shift}({v})", "{new.Trainable}({v})", weight=2)
operation("radial_blocks", FLOATS, "{new.Blocks}({v})")
operation("step_relu", FLOATS, "{new.Step}({v})")
operation("radial_second_axis", FLOATS, "{new.SecondAxis}({v})")  # features or positions, whatever stands there
operation(
    "functional_rescaling", FLOATS, "radnet.rescaling.rescale({v}, torch.tanh, dim={axis})", by_export=True, weight=0.3
)
operation("rms_norm", LAST, "{new.RMSNorm0}({v})", "{new.RMSNorm1}({v})", "{new.RMSNorm2}({v})")
operation("layer_norm", LAST, "{new.LayerNorm0}({v})", "{new.LayerNorm1}({v})", "{new.LayerNorm2}({v})")
operation("batch_norm", ("rows", *CONVOLVED), "{new.BatchNorm0}({v})", "{new.BatchNorm1}({v})")
operation("radnet_part", LAST, "{new.RadNet}({v})")

# pointwise, sums, multiples
operation("relu", FLOATS, "F.relu({v})", "{v}.relu()", "{new.ReLU}({v})", weight=0.7)
operation("gelu", FLOATS, "F.gelu({v})", weight=0.5)
operation("tanh", FLOATS, "torch.tanh({v})", "{v}.sigmoid()", weight=0.5)
operation("softmax", FLOATS, "{v}.softmax({axis})", weight=0.5)
operation("dropout", FLOATS, "{new.Dropout}({v})", "F.dropout({v}, 0.5, self.training)")
operation("add", FLOATS, "{v} + {u}", "torch.add({v}, {u})", "{u} + {v}", "torch.add({v}, {u}, alpha=2)", weight=2)
operation("residual", FLOATS, "{v} + {down}({rho}({up}({v})))", "{v} - 2 * {down}({rho}({up}({v})))", weight=2)
operation("subtract", FLOATS, "{v} - {u}", "{u} - {v}")
operation("times_constant", FLOATS, "{v} * {c}", "{c} * {v}", "torch.mul({v}, 0.3)")
operation("divided", FLOATS, "{v} / {c}", "torch.div({v}, 1.7)")
operation("negative", FLOATS, "-{v}", "{v}.neg()", "1 - {v}")
operation("product", FLOATS, "{v} * {u}.tanh()", weight=0.5)

# in place
operation("plus_equals", FLOATS, "{v} += {u}", "{v} -= {u}", "{v} += 1.0", in_place=True)
operation("times_equals", FLOATS, "{v} *= {c}", "{v} /= 2", in_place=True)
operation(
    "clamp_in_place",
    FLOATS,
    "torch.clamp_({v}, -{far}, {far})",
    "{v}.clamp_(-{far}, {far})",
    "{y} = {v}.clamp_(min=-{far})",
    in_place=True,
)
operation(
    "relu_in_place",
    FLOATS,
    "F.relu({v}, inplace=True)",
    "torch.relu_({v})",
    "{y} = {new.InPlace}({v})",
    "{v}.copy_(F.relu({v}))",
    in_place=True,
)
operation("hardtanh_in_place", FLOATS, "F.hardtanh_({v}, -{far}, {far})", "{y} = torch.threshold_({v}, -{far}, 0.0)",
          in_place=True)  # fmt: skip
operation(
    "foreach_in_place",
    FLOATS,
    "torch._foreach_mul_([{v}, {u}], 0.5)",
    "torch._foreach_add_([{v}], [{u}])",
    "torch._foreach_clamp_max_([{v}], {far})",
    in_place=True,
)
operation(
    "add_in_place",
    FLOATS,
    "{v}.add_({u})",
    "{y} = {v}.sub_({u}, alpha=0.5)",
    "{v}.add_({u}).mul_(0.5)",
    "torch.add({v}, {u}, out={v})",
    in_place=True,
)
operation(  # y = v; y is changed; v is read
    "alias_written",
    FLOATS,
    *("{a} = {v}\n" + line for line in ("{a} += {u}", "{a}.mul_(0.5)", "{a}.add_({u})", "{a} *= 3", "F.relu_({a})")),
    in_place=True,
)
operation(
    "view_written",
    FLOATS,
    "{a} = {v}[{dots} :2]\n{a}.mul_(0.5)",
    "{a} = {v}[:1]\n{a} += 1",
    "{a} = {v}.transpose(0, 1)\ntorch.clamp_({a}, max={far})",
    "{a} = {v}.detach()\n{a}.mul_(0.5)",
    "{a} = {v}.unsqueeze(0)\n{a} += 1",
    "{a} = {v}.flatten(1)\n{a}.mul_(2)",
    "{a} = {v}.view({v}.shape)\ntorch.clamp_({a}, -{far}, {far})",
    in_place=True,
)
operation("item_set", FLOATS, "{v}[:, 0] = {u}[:, 0]", "{v}[..., 0] = 0.5", "{v}[:, :1] = -{u}[:, :1]",
          in_place=True, by_export=True)  # fmt: skip
operation("slice_added_to", FLOATS, "{v}[..., :2] += {c}", "{v}[:, :2] *= {c}", "{v}[:, 1:] -= {c}", "{v}[:1] += 1",
          in_place=True, by_export=True)  # fmt: skip

# joins
operation("cat", FLOATS, "torch.cat([{v}, {near}], {axis})", "torch.cat([{near}, {v}], dim={axis})")
operation(  # two stages of one stream, side by side
    "cat_of_stages",
    FLOATS,
    "{a} = {v} + {down}({rho}({up}({v})))\n{y} = torch.cat([{v}, {a}], {axis})",
    "{a} = {v} + {down}({rho}({up}({v})))\n{y} = torch.cat(({a}, {v}), {axis})",
)
operation(
    "stack_mean", FLOATS, "torch.stack([{v}, {u}]).mean(0)", "torch.stack([{v}, {u}], 1).mean(1)", "sum([{v}, {u}])"
)
operation(
    "chunks",
    FLOATS,
    "{a}, {b} = {v}.split([1, {n} - 1], {axis})\n{y} = torch.cat([{b}, {a}], {axis})",
    "{a}, {b} = {v}.chunk(2, {axis})\n{y} = {a} + {b}",
    "{a}, {b} = {v}.chunk(2, {axis})\n{y} = {a} * {b}.sigmoid()",
)

# shapes
operation("flatten", ROWS, "{v}.flatten(1)", "torch.flatten({v}, 1)", "{v}.reshape({v}.size(0), -1)")
operation(
    "reshaped",
    FLOATS,
    "{v}.reshape({v}.shape)",
    "{v}.unsqueeze(1).squeeze(1)",
    "{v}.contiguous().view({v}.size())",
    "{v}[None].squeeze(0)",
    "{v}.flatten(0, 1).view({v}.size(0), {v}.size(1), -1)",
)
operation("transposed", {"positions": "channels", "channels": "positions"}, "{v}.transpose(1, 2)",
          "{v}.permute(0, 2, 1)", "{v}.mT", weight=0.7)  # fmt: skip
operation("patches", {"image": "positions"}, "{v}.flatten(2).transpose(1, 2)", "{v}.permute(0, 2, 3, 1).flatten(1, 2)",
          weight=0.7)  # fmt: skip
operation("rows_turned", ["positions"], "{up}({v}.transpose(0, 1)).transpose(0, 1)")
operation("unsqueezed", {"rows": "positions"}, "{v}.unsqueeze(1)", "{v}[:, None]", "torch.stack([{v}, 2 * {v}], 1)",
          weight=0.5)  # fmt: skip
operation("positions_sliced", ["positions"], "{v}[:, 1:]", "{v}[:, ::2]", "{v}[:, :-1]")
operation("last_axis_sliced", CONVOLVED, "{v}[..., 1:]", "{v}[..., :-1]")
operation("position_taken", {"positions": "rows"}, "{v}[:, 0]", "{v}[:, -1]", "{v}.select(1, 0)", weight=0.7)
operation("last_axis_taken", {"channels": "rows", "image": "channels"}, "{v}[..., 0]", "{v}[..., -1]", weight=0.7)
operation("features_sliced", FLOATS, "{v}[{dots} :{some}]", "{v}[{dots} -{some}:]", "{v}.narrow({axis}, 0, {some})",
          "{v}.flip({axis})")  # fmt: skip
operation("mean_over_positions", ROWS, "{v}.mean({positions})", "torch.mean({v}, dim={positions})")
operation("sum_over_positions", ROWS, "{v}.sum({positions})")
operation("largest_over_positions", ROWS, "{v}.amax({positions})", weight=0.5)
operation("centred_over_positions", SEVERAL, "{v} - {v}.mean({positions}, keepdim=True)")
operation("average_pool", CONVOLVED, "F.avg_pool{d}d({v}, 2)", "{new.Pool}({v})", "{new.AdaptivePool}({v})",
          "F.avg_pool{d}d({v}, 3, 1, 1)")  # fmt: skip
operation("max_pool", CONVOLVED, "F.max_pool{d}d({v}, 2, 1)", weight=0.5)

# dtypes, constants, other inputs and arguments
operation("same_dtype", FLOATS, "{v}.to({v}.dtype)", "{v}.type_as({v})", "{v}.clone()", "{v}.contiguous()")
operation("to_float", FLOATS, "{v}.float(){back}")
operation("one_hot", LAST, "F.one_hot({v}.argmax(-1), {n}).float(){back}")
operation("new_zeros", LAST, "{up}({v}) + {wide}({v}.new_zeros({leading}, {k}))",
          "{up}({v}) + {wide}({v}.new_ones({leading}, {k}))")  # fmt: skip
operation("zeros_of_rows", LAST, "{up}({v}) + {wide}(torch.zeros({leading}, {k}{dtype}))",
          "{up}({v}) + {wide}(torch.ones({leading}, {k}{dtype}))", by_export=True)  # fmt: skip
operation("masked", LAST, "{v} * {mask}.unsqueeze(-1)", "{v}.masked_fill(~{mask}.unsqueeze(-1), 0.0)",
          "torch.where({mask}[..., None], {v}, -{v})")  # fmt: skip
operation("times_width", FLOATS, "{v} * {v}.shape[{axis}]", "{v} * {v}.shape[{axis}] ** -0.5", "{v} / {v}.size({axis})")
operation("root_of_width", LAST, "{v} / math.sqrt({v}.shape[-1])", by_export=True)
operation("times_rows", FLOATS, "{v} / {v}.size(0)", "{v} * {v}.shape[0]")
operation("minus_mean_row", FLOATS, "{v} - {v}.mean(0, keepdim=True)", mixes=True, weight=0.5)
operation("length_asked", FLOATS, "{v} * (1 / len({v}))", by_export=True)
operation("optional_scale", FLOATS, "{y} = {v}\nif {option.scale} is not None:\n    {y} = {option.scale} * F.relu({y})",
          weight=0.3)  # fmt: skip
operation("optional_mask", FLOATS, "{y} = {v} if {option.mask} is None else F.relu({v} + {option.mask})", weight=0.3)
operation("optional_flag", FLOATS, "{y} = F.relu({v}) if {option.flag} else {v}", by_export=True)
operation("optional_depth", FLOATS,
          "{y} = {v}\nfor _ in range({option.depth}):\n    {y} = {y} + {down}({rho}({up}({y})))",
          by_export=True)  # fmt: skip

# loops and branches
operation(
    "loop",
    FLOATS,
    "{y} = {v}\nfor _ in range(2):\n    {y} = {rho}({square}({y}))",
    "{y} = {v}\nfor _ in range(3):\n    {y} = {y} + {rho}({square}({y}))",
    "{y} = {v}\nfor _ in range(3):\n    {y} = {rho}({square}({y}) + {v})",
)
operation(
    "recurrent",
    {"positions": "rows"},
    "{y} = {rho}({up}({v}[:, 0]))\nfor t in range(1, {v}.shape[1]):\n    {y} = {rho}({up}({v}[:, t]) + {wide}({y}))",
    by_export=True,
)
operation("each_position", ["positions"], "torch.stack([{rho}({up}({v}[:, t])) for t in range({v}.shape[1])], 1)",
          by_export=True)  # fmt: skip
operation("branch_on_rows", FLOATS, "{y} = F.relu({v}) if {v}.shape[0] > 2 else {v}",
          "{y} = F.relu({v}) if {v}.shape[0] > 30 else {v}", by_export=True)  # fmt: skip
operation("branch_on_length", SEVERAL, "{y} = F.relu({v}) if {v}.shape[{length}] > {steps} else {v}", by_export=True)
operation(
    "branch_on_ndim", FLOATS, "if {v}.ndim > {ndim}:\n    {y} = F.relu({v})\nelse:\n    {y} = {v}", by_export=True
)
operation("branch_on_class", FLOATS, "{y} = {v}.clamp(-{far}, {far}) if isinstance({v}, torch.Tensor) else {v}",
          by_export=True)  # fmt: skip
operation("shape_asserted", FLOATS, "assert {v}.shape[{axis}] == {n}", in_place=True, by_export=True)
operation("kept", FLOATS, "self.{kept} = {v}\n{y} = {v} + 1", "self.{kept} = {v} * 2\n{y} = {v}",
          "self.{kept} = {new.Seven}({v})\n{y} = {v}", "self.{kept} = {v}.detach()\n{y} = -{v}")  # fmt: skip

ORDINARY = tuple(name for name, rule in OPERATIONS.items() if not rule.by_export)
BY_EXPORT = tuple(name for name, rule in OPERATIONS.items() if rule.by_export)


def between(a, b):
    """Kinds that a makes and b reads."""
    return sorted(set(OPERATIONS[a].kinds.values()) & set(OPERATIONS[b].kinds))


#: every pair (a, b) in which b can read what a made, by the way that follows it
PAIRS = tuple((a, b) for a in ORDINARY for b in ORDINARY if between(a, b))
PAIRS_BY_EXPORT = tuple((a, b) for a in OPERATIONS for b in OPERATIONS if between(a, b) and {a, b} & set(BY_EXPORT))

# --- parts of a module, by name

LAYERS = {
    "Linear": "nn.Linear({n}, {k})",
    "LinearWithoutBias": "nn.Linear({n}, {k}, bias=False)",
    "Second": "nn.Linear(2, {n})",
    "Matrix": "nn.Parameter(torch.randn({n}, {k}) / 2)",
    "Conv0": "nn.Conv{d}d({n}, {k}, 3, padding=1)",
    "Conv1": "nn.Conv{d}d({n}, {k}, 3)",
    "Conv2": "nn.Conv{d}d({n}, {k}, 2)",
    "Conv3": "nn.Conv{d}d({n}, {k}, 3, padding='same')",
    "Conv4": "nn.Conv{d}d({n}, {k}, 3, padding=1, bias=False)",
    "Stride": "nn.Conv{d}d({n}, {k}, 3, stride=2, padding=1)",
    "Embedding": "nn.Embedding({vocabulary}, {k})",
    "Table": "nn.Embedding({vocabulary}, {n})",
    "Row": "nn.Parameter(torch.randn({vocabulary}))",
    "Bias": "nn.Parameter(torch.randn({n}{ones}))",
    "Gain": "nn.Parameter(torch.rand({n}{ones}) + 0.5)",
    "Shift": "radnet.{profile}shift=0.3, dim={axis})",
    "Trainable": "radnet.{profile}shift='trainable', dim={axis})",
    "Blocks": "radnet.{profile}blocks={blocks}, dim={axis})",
    "Step": "radnet.StepReLU(dim={axis})",
    "SecondAxis": "radnet.{profile}dim=1)",
    "RMSNorm0": "nn.RMSNorm({n}, eps=1e-3)",
    "RMSNorm1": "nn.RMSNorm({n}, eps=1e-2, elementwise_affine=False)",
    "RMSNorm2": "nn.RMSNorm({n})",
    "LayerNorm0": "nn.LayerNorm({n}, eps=1e-2)",
    "LayerNorm1": "nn.LayerNorm({n}, eps=1e-2, elementwise_affine=False)",
    "LayerNorm2": "nn.LayerNorm({n}, eps=1e-3, bias=False)",
    "BatchNorm0": "nn.BatchNorm{d}d({n})",
    "BatchNorm1": "nn.BatchNorm{d}d({n}, affine=False)",
    "RadNet": "radnet.RadNet(({n}, {k}, 12), '{activation}')",
    "ReLU": "nn.ReLU()",
    "InPlace": "nn.ReLU(inplace=True)",
    "Dropout": "nn.Dropout(0.5)",
    "Pool": "nn.AvgPool{d}d(2, stride=1)",
    "AdaptivePool": "nn.AdaptiveAvgPool{d}d(2)",
}
OPTIONS = {
    "scale": ("scale=None", "0.5"),
    "mask": ("mask=None", "torch.tensor(-0.3, dtype=dtype)"),
    "flag": ("flag: bool = False", "True"),
    "depth": ("depth: int = 2", "5"),
}
