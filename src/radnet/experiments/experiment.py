"""What an experiment is: one frozen object that holds all that is known of it.

Every experiment is whole in a file of its own: its settings, what a trial is and how it is run, its rows beside the
paper's, its sentences, its table, its pictures. The object `Experiment` at the end of that file names them, and the
tuple in `collection` names the file; what runs trials and what reports on them knows nothing else of an experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from .figure import Figure

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure as Canvas

SettingsT = TypeVar("SettingsT", bound="DataclassInstance")
TrialT = TypeVar("TrialT", bound="DataclassInstance")

#: is told what share of a trial is done
Tell: TypeAlias = Callable[[float], None]

#: settings that differ from those given elsewhere, by name
Changes: TypeAlias = Mapping[str, object]

#: one line of a table: a value for each column
Line: TypeAlias = Mapping[str, object]

#: the seed of a run is at most this: the seeds of its trials follow, and twice a seed and one more must be a seed of
#: torch's generator, which keeps 32 bits
LARGEST_SEED = 2**31 - 1001


@dataclass(frozen=True)
class Part(Generic[SettingsT]):
    """Trials with the same settings: what they are called, and how many there are in a full run."""

    name: str
    settings: SettingsT
    trials: int


@dataclass(frozen=True)
class QuickLook:
    """What a quick look changes in the settings of each part, and how many trials it runs of it."""

    changes: Changes
    trials: int


@dataclass(frozen=True)
class Outcome(Generic[SettingsT, TrialT]):
    """What came of a part: the settings it was run with, and its trials."""

    settings: SettingsT
    trials: tuple[TrialT, ...]


#: what came of an experiment, part by part
Outcomes: TypeAlias = Mapping[str, Outcome[SettingsT, TrialT]]


@dataclass(frozen=True)
class Row:
    """One figure: ours, the paper's, whether they agree (None: there is nothing to compare) and by which rule.

    A row whose ``erratum`` is set is known to differ from what is printed, for the reason that the errata give.
    """

    experiment: int
    part: str
    figure: str
    trials: int
    ours: Figure | None
    paper: Figure | None = None
    agrees: bool | None = None
    rule: str = ""
    note: str = ""
    erratum: int | None = None
    timed: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure of matplotlib's for the page: its name there, what is written below it, and what it shows in words."""

    name: str
    canvas: Canvas
    caption: str
    alt: str


@dataclass(frozen=True)
class Headline:
    """What came out in a word or a number, the sentence that goes with it, and whether it is what the paper claims."""

    word: str
    said: str
    holds: bool


def _no_pictures(outcomes: object) -> Iterable[Drawing]:
    return ()


def _no_changes(mnist: str | None) -> Changes:
    return {}


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[SettingsT, TrialT]):
    """All that is known of an experiment.

    Settings and trials are frozen dataclasses of plain data (`plain`): numbers, text, tuples and dicts of them, and
    dataclasses of such.
    """

    number: int
    title: str
    #: whether the paper has it; if not it is one that the paper leaves open
    printed: bool
    settings: type[SettingsT]
    result: type[TrialT]
    parts: tuple[Part[SettingsT], ...]
    quick: QuickLook
    #: about how long a trial takes on one core; the slowest experiments are run first
    seconds: float
    #: runs one trial, given settings, a seed, and whom to tell what share of it is done
    trial: Callable[[SettingsT, int, Tell], TrialT]
    #: ours beside the paper's, each with the rule by which they agree
    rows: Callable[[Outcomes[SettingsT, TrialT]], list[Row]]
    #: what it says, in sentences that follow the numbers, whatever these turn out to be
    findings: Callable[[Outcomes[SettingsT, TrialT]], list[str]]
    #: what the page opens with
    headline: Callable[[Outcomes[SettingsT, TrialT]], Headline] | None = None
    #: the lines of one trial, given the trial and its seed, with single numbers only; curves are in ``results.json``
    table: Callable[[TrialT, int], Iterable[Line]]
    #: drawn when the page is made; matplotlib is imported then and not before
    pictures: Callable[[Outcomes[SettingsT, TrialT]], Iterable[Drawing]] = _no_pictures
    #: for an experiment that needs images: what the settings say of those that ``--mnist`` names (None: the usual
    #: ones). Raises `MissingPackage` if there are none: it is then left out, unless it was asked for
    prepare: Callable[[str | None], Changes] = _no_changes
    #: for an experiment whose trials are several initialisations, trained together: the setting that counts them
    together: str | None = None

    def seeds_of(self, settings: SettingsT) -> int:
        """How many seeds a trial takes up, from its own on."""
        return 1 if self.together is None else int(getattr(settings, self.together))


#: one of several, and what came of it, whatever its settings and trials are
AnyExperiment: TypeAlias = Experiment[Any, Any]
AnyOutcomes: TypeAlias = Outcomes[Any, Any]
