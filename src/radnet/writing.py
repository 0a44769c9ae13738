"""Writing files: all or nothing, over regular files alone, and never two at a time.

A write goes to a temporary file beside the target and is renamed, so that a crash at any moment leaves the old file or
the new one. Links are followed, the mode of the old file is kept, and until the rename nobody but its owner can read
what takes its place; anything that is not a regular file is refused. What a killed write leaves behind is removed by
the next one: a temporary file is locked as long as somebody writes it, so a leftover is one that nobody holds.

Locks are locks of the system on files or folders that stay; they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .checks import check_path
from .errors import InvalidValue, MissingFile, NotWritten, RadNetError

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows: there are no locks there, and no leftovers are removed
    fcntl = None  # type: ignore[assignment]

#: longest name of a file, in bytes, on the file systems there are
_LONGEST = 255
_HEX = 16


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment it holds either its old content or all of the new one.

    Parameters
    ----------
    path : str or path
        A link is followed; an existing file keeps its mode.
    data : bytes

    Raises
    ------
    MissingFile
        If there is no such folder.
    InvalidValue
        If there is something at the path that is not a regular file.
    NotWritten
        If the system refuses: no room, no permission. The old file is as it was.
    """
    try:
        target = check_target(path)
        remove_leftovers(target)
        _write(target, data)
    except RadNetError:
        raise
    except OSError as error:
        raise NotWritten(f"{path}: not written, and what was there is as it was ({error})") from error
    try:
        _sync_folder(target.parent)
    except OSError as error:
        raise NotWritten(f"{path}: written, but it may be gone if the machine stops now ({error})") from error


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete the temporary files of writes to this path that were cut off; no others, and none that is being written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in (".run.0123456789abcdef.tmp", ".run.notes.tmp"):
    ...         _ = Path(folder, name).write_text("")
    ...     remove_leftovers(Path(folder, "run"))
    ...     os.listdir(folder)
    ['.run.notes.tmp']
    """
    target = Path(os.path.realpath(path))
    if fcntl is None or not target.parent.is_dir():
        return
    ours = re.compile(re.escape(_beginning(target)) + rf"[0-9a-f]{{{_HEX}}}\.tmp")
    for name in os.listdir(target.parent):
        if ours.fullmatch(name):
            _remove_unless_held(target.parent / name)


@contextmanager
def exclusively(path: str | os.PathLike[str], refusal: str) -> Iterator[None]:
    """While this lasts, nobody else is in here with the same path: a folder, or a file that need not be there.

    For a file the lock is a file of its own beside it, which stays. ``refusal`` is what is said if somebody is.
    """
    if fcntl is None:
        yield
        return
    place = Path(os.path.realpath(path))
    descriptor = _opened(place if place.is_dir() else place.with_name(_short(f".{place.name}.lock")))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise NotWritten(f"{path}: cannot be locked ({error})") from error
            raise InvalidValue(refusal) from error
        yield
    finally:
        os.close(descriptor)  # which ends the lock; the file stays, since others may be waiting with it open


def _opened(lock: Path) -> int:
    """A lock, opened: a folder, or a file, which is made if it is not there and otherwise left as it is."""
    if lock.is_dir():
        return os.open(lock, os.O_RDONLY)
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except FileNotFoundError:
        raise MissingFile(f"{lock.parent}: there is no such folder") from None
    except OSError as error:
        raise NotWritten(f"{lock}: cannot be used as a lock ({error}); is it a link?") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidValue(f"{lock}: is no regular file and cannot be used as a lock; move it away")
    return descriptor


def check_target(path: str | os.PathLike[str]) -> Path:
    """Where a write goes, links followed; raises where nothing can be written, so that long work asks for it first."""
    check_path(path)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise MissingFile(f"{path}: there is no folder {target.parent}")
    if os.path.lexists(target) and not target.is_file():
        kind = "a folder" if target.is_dir() else "a link to itself" if target.is_symlink() else "no regular file"
        raise InvalidValue(f"{path}: is {kind}; give the name of a file")
    return target


def _write(target: Path, data: bytes) -> None:
    mode = stat.S_IMODE(target.stat().st_mode) if target.is_file() else None
    file, temporary = _temporary(target, 0o666 if mode is None else 0o600)  # nobody else reads it before it is done
    try:
        with file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.chmod(temporary, mode)
            os.fsync(file.fileno())
            os.replace(temporary, target)  # still held: nobody takes it for a leftover
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(target: Path, mode: int) -> tuple[IO[bytes], Path]:
    """A new file beside the target, of a mode from which the umask is taken, and its path; held, where possible."""
    while True:
        path = target.with_name(f"{_beginning(target)}{secrets.token_hex(_HEX // 2)}.tmp")
        file = open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is(path, file.fileno()):  # else somebody took it for a leftover, before it was held
                return file, path
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()


def _beginning(target: Path) -> str:
    return _short(f".{target.name}.", _HEX + len(".tmp"))


def _short(name: str, more: int = 0) -> str:
    """A name that fits with so many bytes more; a long one is replaced by its digest."""
    if len(os.fsencode(name)) + more <= _LONGEST:
        return name
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()}."


def _remove_unless_held(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone meanwhile, or not ours to read
        return
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is(path, descriptor):
            path.unlink()
    except OSError:  # somebody is writing it, or we may not
        return
    finally:
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
