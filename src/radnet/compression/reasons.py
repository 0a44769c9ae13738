"""Why a space stays as it is: reasons that code can ask for, with the words that people read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """Why a space must stay as it is. The value is a sentence; ``{who}`` and ``{detail}`` are filled in.

    Examples
    --------
    >>> str(Why(Reason.NOT_EQUIVARIANT, "act (ReLU)"))
    'act (ReLU) does not commute with a change of basis'
    """

    # the step itself
    NOT_EQUIVARIANT = "{who} does not commute with a change of basis"
    NORM_BY_HAND = (
        "{who} is part of a norm written out by hand, which is not seen as one; use nn.RMSNorm or radnet.Radial"
    )
    NORM_SHARED = "{who} serves in several places, so its gain cannot move into the layers around it"
    NORM_GAIN = "{who} has a gain that would have to move into what reads it, and not all of that is nn.Linear"
    NORM_WRITERS = (
        "{who} subtracts a mean that would have to move into what writes it, and not all of that is nn.Linear"
    )
    GROUPED = "{who} is a grouped convolution, which ties channels together"
    OUTPUT = "it is an output of the model"
    # the module is not what its class says
    HOOKS = "{who} has hooks"
    REPLACED = "{who} calls a function of torch.nn.functional that was replaced"
    PARAMETRIZED = "{who} is parametrized"
    OWN_FORWARD = "{who} has a forward of its own"
    ODD_PARAMETER = "{who} has a {detail}"
    # how it is called, and what becomes of it
    SEVERAL_TENSORS = "{who} is called with more than one tensor"
    SEVERAL_PLACES = "{who} is used in several places, and not all of them are followed"
    LOOP = "{who} is called in a loop whose length depends on the inputs"
    CHANGED = "{who} is changed in place"
    USED_INSIDE = "{who} is used from inside"
    READS_UNFOLLOWED = "{who} reads something that is not followed"
    KEPT = "{who} is kept on the model"
    MADE_AND_KEPT = "what {who} gives, or something made of it, is kept on the model"
    # axes and lengths
    MIXES_POSITIONS = "{who} mixes its positions"
    OTHER_AXIS = "{who} reads another axis than the one that is followed"
    OTHER_SHAPE = "{who} adds something of another shape"
    ADDS_UNFOLLOWED = "{who} adds something that is not followed"
    JOINED = "{who} joins it along another axis"
    NOT_FOLLOWED = "{who} is not followed"
    LENGTH_ASKED = "{who} asks for its length"
    SIZE_ASKED = "forward asks for {who}"
    SHAPE_ASKED = "forward asks for the shape of what {who} gives, or of something made of it"
    REORDERED = "its entries are taken apart or put in another order"
    # several wishes at once
    TIED = "{who} serves in places that need different bases"
    BLOCKS = "{who} is used in places that need blocks of different sizes"
    # numbers
    FLOAT16 = (
        "in float16 a coordinate could be {detail} times its largest entry and pass 65,504; compress it in float32 or "
        "bfloat16 and convert afterwards"
    )
    FULL = "every direction of it is used"


class Cause(NamedTuple):
    """A reason before it is known of whom it speaks."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True)
class Why:
    """A reason, of whom it speaks (a layer, a function, a value), and what else its sentence needs."""

    reason: Reason
    who: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return str(self.reason.value).format(who=self.who, detail=self.detail)
