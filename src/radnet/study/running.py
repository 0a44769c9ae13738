"""The runs of a study: a file for each contestant on each data set, so that what is cut off goes on where it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..errors import InvalidValue
from ..experiments.plain import Json, as_plain, from_plain
from ..experiments.running.folder import environment, locked, make_folder
from ..reading import LARGEST_TEXT, parse_json, regular_file
from ..training.trials import run_trials
from ..writing import write_atomically
from .contest import CONTESTANTS, Entry, Settings, compete
from .data import DATA, named
from .dataset import DataSet

VERSION = 2
#: what else may lie in the folder of a study
OURS = ("study.json", "entries", "summary.json", "study.md", "ranks-set-aside.svg", "ranks-looked-at.svg")
#: data sets that take longest, which come first
SLOW = ("mnist", "digits", "china", "flower")


class Job(NamedTuple):
    """One contestant on one data set."""

    data: str
    contestant: str

    @property
    def file(self) -> str:
        """The name of its file.

        >>> Job("miles per gallon", "blocks, waves").file
        'miles-per-gallon--blocks-waves.json'
        """
        return "--".join(re.sub(r"[^a-z0-9]+", "-", part.lower()) for part in self) + ".json"


def chosen(half: str, names: Sequence[str] = ()) -> list[DataSet]:
    """The data sets of a half ("first", "aside" or "both"), or those that are named."""
    if names:
        if half != "both":
            raise InvalidValue(f"half={half!r} and data sets by name: give one of them")
        return [named(name) for name in dict.fromkeys(names)]
    if half not in ("first", "aside", "both"):
        raise InvalidValue(f"half={half!r}: expected first, aside or both")
    return [data for data in DATA if half == "both" or data.aside == (half == "aside")]


def run(
    folder: Path,
    data: Sequence[DataSet],
    settings: Settings,
    *,
    jobs: int | None = None,
    force: bool = False,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[Entry]:
    """Run what is missing in a folder and give all entries of these data sets; ``tell`` hears how many are done.

    Raises
    ------
    InvalidValue
        If the folder holds something else, or a study with other settings. Nothing is changed then.
    """
    make_folder(folder)
    with locked(folder):
        _open(folder, settings, force=force)
        wanted = [Job(d.name, name) for d in data for name in CONTESTANTS]
        missing = [job for job in _slow_first(wanted) if _kept(folder, job, settings) is None]
        done = len(wanted) - len(missing)
        tell(done, len(wanted))
        run_trials(
            partial(_run, folder, missing, settings),
            range(len(missing)),
            jobs=jobs,
            tell=lambda count: tell(done + count, len(wanted)),
        )
        return list(entries(folder, wanted, settings))


def entries(folder: Path, wanted: Sequence[Job], settings: Settings) -> Iterator[Entry]:
    """What is kept of these jobs."""
    for job in wanted:
        found = _kept(folder, job, settings)
        if found is None:
            raise InvalidValue(f"{folder / 'entries' / job.file} is missing or damaged; the same command makes it anew")
        yield found


def _run(folder: Path, jobs: Sequence[Job], settings: Settings, k: int) -> None:
    found = compete(*jobs[k], settings)
    write_atomically(folder / "entries" / jobs[k].file, (json.dumps(as_plain(found), allow_nan=False) + "\n").encode())


def _slow_first(jobs: Sequence[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: SLOW.index(job.data) if job.data in SLOW else len(SLOW))


def _kept(folder: Path, job: Job, settings: Settings) -> Entry | None:
    try:
        found = from_plain(Entry, _parsed(folder / "entries" / job.file))
    except (OSError, ValueError, TypeError):
        return None
    return found if (found.data, found.contestant) == job and found.is_of(settings) else None


def _parsed(path: Path) -> Json:
    if regular_file(path).stat().st_size > LARGEST_TEXT:
        raise InvalidValue(f"{path}: more than {LARGEST_TEXT:,} bytes")
    found: Json = parse_json(path.read_bytes(), str(path))
    return found


def _open(folder: Path, settings: Settings, *, force: bool) -> None:
    """Begin the study of a folder, or take it up."""
    path, kept = folder / "study.json", folder / "entries"
    foreign = _foreign(folder)
    if foreign:
        raise InvalidValue(f"{folder} holds {foreign[0]}, which is not of a study; give another folder with --out")
    said: dict[str, Json] = {"version": VERSION, "settings": as_plain(settings), "environment": {**environment()}}
    if force:
        for old in (*OURS[2:], *(f"entries/{job.file}" for job in _all_jobs())):
            (folder / old).unlink(missing_ok=True)
    elif path.exists():
        try:
            found = _parsed(path)
        except (OSError, ValueError) as error:
            raise InvalidValue(f"{path} cannot be read ({error}); --force starts anew") from error
        if not isinstance(found, dict) or found.get("version") != VERSION:
            version = found.get("version") if isinstance(found, dict) else None
            raise InvalidValue(f"{path} has version {version}, this radnet reads {VERSION}; --force starts anew")
        for part in ("settings", "environment"):
            if found.get(part) != said[part]:
                raise InvalidValue(f"{folder} has a study with other {part}; give another --out, or --force")
    write_atomically(path, (json.dumps(said, indent=1) + "\n").encode())
    kept.mkdir(exist_ok=True)


def _all_jobs() -> list[Job]:
    return [Job(d.name, name) for d in DATA for name in CONTESTANTS]


def _foreign(folder: Path) -> list[str]:
    """What is in a folder and not of a study, in which everything is a file but ``entries``."""
    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if not visible:
        return []
    kept, files = folder / "entries", {job.file for job in _all_jobs()}
    wrong = [path.name for path in visible if path.name not in OURS or path.is_symlink()]
    wrong += [path.name for path in visible if path.name != "entries" and not path.is_file()]
    if kept.exists() and not kept.is_dir():
        wrong.append("entries")
    elif kept.is_dir() and not kept.is_symlink():
        inside = [path for path in kept.iterdir() if not path.name.startswith(".")]
        wrong += [f"entries/{path.name}" for path in sorted(inside) if path.name not in files or not path.is_file()]
    if not wrong and not (folder / "study.json").exists():
        wrong = [path.name for path in visible]
    return wrong
