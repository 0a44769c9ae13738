"""A model as a program: steps between values, each with the operation that it is.

`tracing` makes programs of models, `operations` has all that is known about each operation, and everything after that
(`spaces`, `bounds`, `surgery`) asks the operation and never what it is called.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, fx, nn

from ..errors import InvalidValue
from ..modes import Argument
from .reasons import Cause, Reason

if TYPE_CHECKING:
    from .bounds.lengths import Size
    from .bounds.sizes import Sizes
    from .spaces.coordinates import Change
    from .spaces.features import Feature
    from .spaces.follow import Analysis, Use
    from .spaces.layouts import Layout


@dataclass(eq=False)
class Value:
    """A tensor that flows through the model: its name in the trace, its shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A function or method in a graph that has run; numbers that the graph computed are there as numbers."""

    node: fx.Node
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    results: Mapping[fx.Node, object]

    @classmethod
    def of(cls, node: fx.Node, results: Mapping[fx.Node, object]) -> FunctionCall:
        """The call of a node; operands that are tensors stay nodes."""

        def number(n: fx.Node) -> object:
            found = results.get(n)
            return found if isinstance(found, bool | int | float | str | torch.dtype | torch.device) else n

        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), number)  # type: ignore[arg-type]
        return cls(node, tuple(args), dict(kwargs), results)

    @property
    def target(self) -> Callable[..., object] | str:
        """The function, or the name of the method."""
        return self.node.target

    @property
    def aten(self) -> str:
        """The name by which torch.export shows it."""
        return str(self.node.target)

    def tensor(self, x: object) -> Tensor | None:
        """What a node made, if it is a tensor."""
        found = self.results.get(x) if isinstance(x, fx.Node) else None
        return found if isinstance(found, Tensor) else None

    @property
    def floating(self) -> bool:
        """Whether its first operand and its result are floating point and of one shape."""
        x, y = self.tensor(self.args[0] if self.args else None), self.tensor(self.node)
        return (
            x is not None and y is not None and x.is_floating_point() and y.is_floating_point() and x.shape == y.shape
        )

    def argument(self, at: int, name: str, default: object = None) -> Argument:
        """An argument of a call, by place or by name."""
        return self.args[at] if len(self.args) > at else self.kwargs.get(name, default)


class Operation(abc.ABC):
    """One thing that a model can do, with everything that compression has to know about it.

    How it is recognised, what it does to the set of vectors that can stand along a feature axis, how far it stretches
    an error, and, if it has parameters, how these change when the features it reads and writes change basis. A subclass
    says what it can; what it does not say pins the features it touches, which costs size and never correctness.
    `radnet.compression.register` makes a subclass of your own known.

    Attributes
    ----------
    classes : tuple of module classes
        The layers that are this operation, if `trust` finds that nothing else runs when they are called.
    functions : tuple
        The functions, and the names of methods, that are this operation where torch.fx shows them.
    atens : tuple of str
        The operations of torch.export that are.
    layer_atens : mapping
        The operations by which torch.export shows a layer of `classes`: where its input and its weight stand among the
        arguments.
    parameters : tuple of str
        The names of those parameters of its layers that `change` gives new values.
    calls : tuple of str
        The functions of torch.nn.functional that its layers call: if one is patched later, they are not trusted.
    several : bool
        Whether its layers run several operations, and are to be one step nevertheless.
    updates : bool
        Whether it is the same operation where its result takes the place of its first operand.
    module : nn.Module, optional
        The layer, for an operation that is one.
    """

    classes: ClassVar[tuple[type[nn.Module], ...]] = ()
    functions: ClassVar[tuple[Callable[..., object] | str, ...]] = ()
    atens: ClassVar[tuple[str, ...]] = ()
    layer_atens: ClassVar[Mapping[str, tuple[int, int]]] = {}
    parameters: ClassVar[tuple[str, ...]] = ("weight", "bias")
    calls: ClassVar[tuple[str, ...]] = ()
    several: ClassVar[bool] = False
    updates: ClassVar[bool] = False
    module: nn.Module | None = None

    # --- how it is recognised

    @classmethod
    def of_module(cls, module: Any) -> Operation | None:
        """The operation that a layer of one of `classes` is; None if it is not known."""
        return None

    @classmethod
    def of_function(cls, call: FunctionCall) -> Operation | None:
        """The operation that a call of one of `functions` is; None if it is not known."""
        return None

    @classmethod
    def of_aten(cls, call: FunctionCall) -> Operation | None:
        """The operation that one of `atens` is; None if it is not known."""
        return None

    def operands(self, call: FunctionCall, now: Mapping[fx.Node, Value]) -> tuple[Value, ...] | None:
        """The values it works on, in order; None if they are not what it needs. By default the one there is."""
        found = values_in(call.node, now)
        return found if len(found) == 1 else None

    # --- what it does

    @abc.abstractmethod
    def follow(self, step: Step, analysis: Analysis) -> Feature | None:
        """The feature axis of what it makes; None if that is not followed. What must stay as it is gets a pin."""

    def size(self, step: Step, sizes: Sizes) -> Size:
        """How long what it makes can be, and how far off (docs/bounds.md); by default nothing is known."""
        return sizes.unknown(step)

    # --- how its parameters change

    def change(self, use: Use, layout: Layout) -> Change:
        """Its new parameters where it reads and writes features in other bases; only for operations with parameters."""
        raise InvalidValue(f"{use.step.name}: {type(self).__name__} has no parameters that could change basis")

    @classmethod
    def work(cls, weight: Tensor, output: Tensor) -> int:
        """How many multiplications a layer with this weight took for this output; by default nothing is counted."""
        return 0

    def resize(self, module: Any) -> None:
        """Set the sizes that a layer keeps beside its parameters, which were replaced; by default it keeps none."""
        return


def values_in(node: fx.Node, now: Mapping[fx.Node, Value]) -> tuple[Value, ...]:
    """The values that a node reads, each once."""
    return tuple(now[n] for n in node.all_input_nodes if n in now)


#: attributes that tell nothing of a tensor's numbers, nor of its lengths
_KINDS = ("dtype", "device", "layout", "ndim", "requires_grad", "is_cuda")
#: conversions to the dtype and the device of their second operand
_TO_ANOTHERS = ("to", "type_as", "aten.to.other", "aten.type_as.default")


def asks_for_kind(user: fx.Node, node: fx.Node) -> bool:
    """Whether a node that uses another asks for its dtype, its device or the like, and for nothing else of it."""
    if user.target is getattr:
        return user.args[1] in _KINDS
    return str(user.target) in _TO_ANOTHERS and user.args[0] is not node


@dataclass(eq=False)
class Step:
    """One operation at one place: tensors in, a tensor out, and for a layer or parameter its path in the model."""

    operation: Operation
    name: str
    inputs: tuple[Value, ...]
    output: Value | None
    path: str | None = None
    in_place: bool = False  # whether its result stands where its first operand stood

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is one."""
        return self.operation.module

    @property
    def who(self) -> str:
        """Its name for people, with the class of a layer."""
        return self.name if self.module is None else f"{self.name} ({type(self.module).__name__})"

    @property
    def made(self) -> Value:
        """The value it makes; every step of a known kind but the model's output makes one."""
        if self.output is None:
            raise InvalidValue(f"{self.name} gives no tensor; compress needs layers that do")
        return self.output


NOT_EQUIVARIANT = Cause(Reason.NOT_EQUIVARIANT)


@dataclass(frozen=True)
class Unknown(Operation):
    """Anything that is not known: what it touches stays as it is."""

    cause: Cause = NOT_EQUIVARIANT
    module: nn.Module | None = field(default=None, compare=False)

    def operands(self, call: FunctionCall, now: Mapping[fx.Node, Value]) -> tuple[Value, ...]:
        """All there are."""
        return values_in(call.node, now)

    def follow(self, step: Step, analysis: Analysis) -> None:
        """Pin what it reads."""
        analysis.unknown(step, self.cause)
