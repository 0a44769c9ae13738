"""The certificate: what was measured of two models, and the verdict; `judging` makes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ... import notebook
from ...errors import InvalidType, InvalidValue
from ...measuring import ULPS
from ...wording import counted


@dataclass(frozen=True, repr=False)
class Certificate:
    """Measured gaps between two networks.

    Attributes
    ----------
    rows : int
        Inputs given.
    dtype : str
        The dtype the networks ship in.
    max_gap, mean_gap : float
        ``|F - F_red|`` in that dtype.
    max_gap64, mean_gap64 : float
        The same in float64: of the functions, not of their rounded evaluation.
    scale : float
        ``max |F|`` over the inputs.
    ulps : float
        ``max_gap`` in units of ``eps * scale``.
    conditioning : float
        The largest D(x) that was needed: how far F moves when weights, biases and x move by one ulp; 0 if no row
        needed that excuse.
    rows_at_jump : int
        Rows with a hidden norm within 64 eps of a jump of its profile (Step-ReLU at 1); they are drawn anew, since
        there two runs of the *same* network may differ. So may they, and these rows count here, where `compress` finds
        that rounding alone moves F by more than 1e-10 of its size.
    rows_ill_conditioned : int
        Rows whose gap is above 64 eps of their size but within 10 D(x).
    rows_failed : int
        Rows whose gap nothing excuses, those where F is not finite included.
    rows_not_finite : int
        Rows where F overflows in the dtype that ships, or NaN and infinity do not stand in the same places.
    rows_judged : int
        Rows that were compared, those of other inputs included.
    rounding : float
        What the dtype that ships does to the original by itself: ``max |F - F_float64|``.
    judged_in : str
        "float64", or the dtype of the models where they do not run in float64.
    tried : tuple of str
        The other inputs that were compared: other scales, numbers of rows, lengths, arguments.
    failures : tuple of str
        Where and by how much the functions differ.
    limits : tuple of str
        What a model that `compress` gives back refuses: inputs with another number of axes than the given ones, where
        the original does something else, and calls of layers that ran in no call that was tried.
    """

    rows: int
    dtype: str
    max_gap: float
    mean_gap: float
    max_gap64: float
    mean_gap64: float
    scale: float
    ulps: float
    conditioning: float
    rows_at_jump: int
    rows_ill_conditioned: int
    rows_failed: int
    rows_not_finite: int
    rows_judged: int
    rounding: float
    judged_in: str = "float64"
    tried: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()

    @property
    def lossless(self) -> bool:
        """Whether rows were judged, and every one is within 64 eps of its size or a multiple of D(x), in float64."""
        return self.rows_failed == 0 and self.rows_judged > 0 and not self.failures

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON."""
        return {**asdict(self), "lossless": self.lossless}

    def for_file(self) -> dict[str, object]:
        """The same for a file, which holds no infinities: None in their place."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.to_dict().items()
        }

    @property
    def verdict(self) -> str:
        """In words: lossless or not, and on how many inputs.

        >>> import radnet
        >>> radnet.compress(radnet.RadNet((1, 8, 1))).certificate.verdict
        'lossless, on 256 inputs'
        """
        said = "lossless" if self.lossless else f"NOT lossless: {counted(self.rows_failed, 'row')} beyond rounding"
        if not self.lossless and self.rows_judged == 0:
            said = "NOT judged: every row is at a jump of a profile, or gives no finite number"
        return f"{said}, on {counted(self.rows, 'input')}"

    def __repr__(self) -> str:
        gaps = f"max_gap64={self.max_gap64:.3g}, max_gap={self.max_gap:.3g} in {self.dtype}"
        return f"Certificate({self.verdict}; {gaps})"

    def html(self, *parts: str) -> str:
        """For a notebook: the verdict, then what is given as HTML, then the figures."""
        verdict, *lines = str(self).split("\n")
        return notebook.whole(notebook.verdict(self.lossless, verdict), *parts, notebook.lines(lines))

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        lines = [
            self.verdict,
            f"  gap in {self.judged_in:<9} max {self.max_gap64:.3g}, mean {self.mean_gap64:.3g}",
            f"  gap in {self.dtype:<9} max {self.max_gap:.3g}, mean {self.mean_gap:.3g}; "
            f"rounding alone moves the original by up to {self.rounding:.3g}",
            f"  max|F| {self.scale:.3g}",
        ]
        lines += [f"  {failure}" for failure in self.failures[:3]]
        if self.tried:
            lines.append(f"  judged too: {', '.join(self.tried)}")
        if self.limits:
            lines.append(f"  the small model refuses what it is not known to be the same for: {', '.join(self.limits)}")
        if self.judged_in != "float64":
            lines.append(f"  the models do not run in float64, so equality is judged in {self.judged_in}")
        if self.rows_ill_conditioned:
            above = f"{counted(self.rows_ill_conditioned, 'row')} above {ULPS} eps"
            lines.append(f"  {above}, within a multiple of what one ulp does (up to {self.conditioning:.3g})")
        if self.rows_not_finite:
            where = counted(self.rows_not_finite, "row")
            lines.append(f"  {where} where F itself is not finite, or the other is not alike")
        if self.rows_at_jump:
            lines.append(f"  {counted(self.rows_at_jump, 'row')} at a jump of the profile, drawn anew")
        return "\n".join(lines)


#: a certificate, or what a file says of one
Measured = Certificate | Mapping[str, object]


def plain_data(measured: Measured | None) -> dict[str, object] | None:
    """What a file holds of a certificate."""
    if measured is None:
        return None
    if isinstance(measured, Certificate):
        return measured.for_file()
    if not isinstance(measured, Mapping) or "lossless" not in measured:
        raise InvalidType(f"certificate={measured!r:.60}: expected what radnet.verify gives, or what a file says of it")
    try:
        plain: dict[str, object] = json.loads(json.dumps(dict(measured), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"certificate: expected plain finite data ({error})") from error
    return plain
