"""Tensors that have sizes and no numbers, and a note of every comparison of sizes that the user's own code makes."""

from __future__ import annotations

import sys
from itertools import count

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ...modes import Argument, Mode
from ...surroundings import is_own
from .comparisons import Sizes

#: operations that PyTorch knows no sizes of (on sparse tensors, say) are run on zeros: so many numbers, and no more
MOST_ZEROS = 2**24
#: the files through which a comparison of symbols goes
_SYMBOLIC = ("sym_node.py", "symbolic_shapes.py", "recording.py", "torch/__init__.py")


class TooLong(Exception):
    """A run has more operations than are waited for."""


class Refused(Exception):
    """The model's own code refuses sizes."""


class Unknown(Exception):
    """An operation whose results have unknown sizes, on more numbers than are made for that."""


class Cap(Mode):
    """Ends a run on fake tensors that has more operations than are waited for."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        self.left -= 1
        if self.left < 0:
            raise TooLong
        return func(*args, **(kwargs or {}))


class FewZeros(Mode):
    """Ends a run on fake tensors that would need many real numbers."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_dispatch__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        dense = (x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.layout == torch.strided)
        zeros = sum(x.numel() for x in dense)
        self.world.mode.allow_fallback_kernels = zeros <= MOST_ZEROS
        return func(*args, **(kwargs or {}))


class Between(TorchFunctionMode):
    """Stands between the user's code and the functions of PyTorch that it calls, and does nothing.

    So what PyTorch compares inside a function is not taken for the user's: see `_by_user`.
    """

    def __torch_function__(
        self, func: Argument, types: Argument, args: Argument = (), kwargs: Argument = None
    ) -> Argument:
        """Call one function."""
        return func(*args, **(kwargs or {}))


class World:
    """Fake tensors, and who asks for their sizes. (torch's own modules for it take a second to import.)"""

    def __init__(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException

        self.between, self.unsupported = Between(), UnsupportedOperatorException
        self.asked: Argument = _asking()()
        self.mode: Argument = FakeTensorMode(shape_env=self.asked, allow_non_fake_inputs=True)

    def parameter(self, p: Tensor) -> Tensor:
        """A fake tensor in the place of a parameter, which PyTorch would make of it at every use."""
        fake: Tensor = self.mode.from_tensor(p.detach(), static_shapes=True)
        return fake

    def static(self, x: Tensor, sizes: Sizes) -> Tensor:
        """A fake tensor of these sizes."""
        with self.mode:
            return torch.empty(sizes, dtype=x.dtype, device=x.device)

    def symbolic(self, x: Tensor, sizes: Sizes) -> Tensor:
        """A fake tensor whose sizes are symbols that stand for these."""
        with self.mode:
            return torch.empty([self.asked.symbol_for(size) for size in sizes], dtype=x.dtype, device=x.device)


def _asking() -> type:
    """`Asking`, a class that inherits from one of torch's that takes its time to import."""
    import sympy  # type: ignore[import-untyped]
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
    from torch.utils._sympy.printers import PythonPrinter

    class Asking(ShapeEnv):
        """Decides comparisons of sizes by what the symbols stand for, and notes those of the user's own code."""

        def __init__(self) -> None:
            super().__init__(duck_shape=False, specialize_zero_one=False)
            self._count = count()
            self.begin()

        def begin(self) -> None:
            """Forget what was asked."""
            self.values: dict[Argument, Argument] = {}  # what the symbols stand for, in the order of the sizes
            self.seen: list[tuple[Argument, Argument]] = []

        def symbol_for(self, size: int) -> Argument:
            """A symbol that stands for a size."""
            source = ConstantSource(f"n{len(self.values)}_{next(self._count)}")
            symbol = self.create_symbol(size, source, dynamic_dim=DimDynamic.DYNAMIC)
            self.values[symbol] = sympy.Integer(size)
            return self.create_symintnode(symbol, hint=size, source=source)

        def evaluate_expr(self, orig_expr: Argument, *args: Argument, **kwargs: Argument) -> Argument:
            """Decide."""
            if not orig_expr.free_symbols <= self.values.keys():  # it depends on numbers in tensors
                return super().evaluate_expr(orig_expr, *args, **kwargs)
            value = orig_expr.xreplace(self.values)
            if orig_expr.free_symbols and _by_user():
                self.seen.append((orig_expr, value))
            return value

        def told(self) -> tuple[str, list[tuple[str, bool]]]:
            """What was turned into plain numbers, and the comparisons, as code."""
            named = {symbol: sympy.Symbol(f"n[{k}]", integer=True) for k, symbol in enumerate(self.values)}
            lost, found = [], []
            for expression, value in self.seen:
                code = PythonPrinter().doprint(expression.xreplace(named)).replace("torch.sym_float", "float")
                if value in (sympy.true, sympy.false):
                    found.append((code, bool(value)))
                else:
                    lost.append(code)
            return " ".join(lost), found

    return Asking


def _by_user() -> bool:
    """Whether it is the user's own code that compares sizes: the first frame outside of symbols is the user's."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_SYMBOLIC):
        frame = frame.f_back
    return is_own(frame.f_globals.get("__name__"))


def raised_by_user(error: Exception) -> bool:
    """Whether it is the user's own code that raises, and not an operation that it calls."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and is_own(frame.tb_frame.f_globals.get("__name__"))
