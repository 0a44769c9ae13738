"""Writing: the old file or the new one, at every moment and whatever fails; nobody else's files; one at a time."""

import builtins
import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import socket
import stat
import threading

import pytest
import torch

import radnet
from radnet.checkpoints import Progress, write_checkpoint
from radnet.errors import InvalidValue, MissingFile, NotWritten
from radnet.writing import exclusively, remove_leftovers, write_atomically


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_mode_of_a_file_stays(tmp_path):
    path = tmp_path / "a"
    write_atomically(path, b"old")
    for mode in (0o600, 0o640, 0o664):
        path.chmod(mode)
        write_atomically(path, b"new")
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_nobody_else_can_read_a_file_while_it_is_rewritten(mode, tmp_path, monkeypatch):
    path, seen = tmp_path / "a", []
    write_atomically(path, b"old")
    path.chmod(mode)

    def watched(function):
        def call(*args, **kwargs):
            modes = [stat.S_IMODE(other.stat().st_mode) for other in tmp_path.iterdir() if other != path]
            seen.append((function.__name__, modes))
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(fcntl, "flock", watched(fcntl.flock))
    monkeypatch.setattr(os, "chmod", watched(os.chmod))
    before = os.umask(0)
    try:
        write_atomically(path, b"new")
    finally:
        os.umask(before)
    assert seen == [("flock", [0o600]), ("chmod", [0o600])]
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_links_are_followed_and_stay(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(there / "real")
    (tmp_path / "chain").symlink_to("link")
    (tmp_path / "dangling").symlink_to(there / "new")
    for link, target in (("link", "real"), ("chain", "real"), ("dangling", "new")):
        write_atomically(tmp_path / link, link.encode())
        assert (tmp_path / link).is_symlink()
        assert (there / target).read_bytes() == link.encode()
    assert names(there) == ["new", "real"]


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "itself").symlink_to("itself")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, message in (
            ("folder", "is a folder"),
            ("pipe", "is no regular file"),
            ("socket", "is no regular file"),
            ("itself", "is a link to itself"),
        ):
            before = os.lstat(tmp_path / name)
            with pytest.raises(InvalidValue, match=message):
                write_atomically(tmp_path / name, b"x")
            assert os.path.samestat(before, os.lstat(tmp_path / name))
            with pytest.raises(radnet.RadNetError, match=message):
                radnet.save(radnet.RadNet((1, 1)), tmp_path / name)
            with pytest.raises(radnet.RadNetError, match="is no regular file|symbolic links"):
                radnet.load(tmp_path / name)
    with pytest.raises(MissingFile, match="there is no folder"):
        write_atomically(tmp_path / "none" / "a", b"x")
    assert names(tmp_path) == ["folder", "itself", "pipe", "socket"]


@pytest.mark.parametrize("name", ["n" * 233, "n" * 255, "é" * 127, "run[1]", "a b*?", ".hidden", "-"])
def test_names_of_all_kinds(name, tmp_path):
    path = tmp_path / name
    for data in (b"old", b"new"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    with exclusively(path, "held"):
        pass
    assert not [other for other in names(tmp_path) if other.endswith(".tmp")]


def test_leftovers_of_this_file_go_and_nobody_elses(tmp_path):
    ours = [".run.0123456789abcdef.tmp", ".run.ffffffffffffffff.tmp"]
    foreign = [
        ".run.notes.tmp", ".run.0123456789abcde.tmp", ".run.0123456789ABCDEF.tmp", ".run.final.0123456789abcdef.tmp",
        "run.0123456789abcdef.tmp", ".running.0123456789abcdef.tmp", ".run.0123456789abcdef.tmp.bak",
    ]  # fmt: skip
    for name in (*ours, *foreign):
        (tmp_path / name).write_text(name)
    (tmp_path / ".run.aaaaaaaaaaaaaaaa.tmp").mkdir()
    (tmp_path / ".run.bbbbbbbbbbbbbbbb.tmp").symlink_to(tmp_path / foreign[0])
    write_atomically(tmp_path / "run", b"x")
    assert set(names(tmp_path)) == {
        "run", *foreign, ".run.aaaaaaaaaaaaaaaa.tmp", ".run.bbbbbbbbbbbbbbbb.tmp"
    }  # fmt: skip
    assert all((tmp_path / name).read_text() == name for name in foreign)


def test_a_file_that_is_being_written_is_no_leftover(tmp_path, monkeypatch):
    seen = []
    replace = os.replace

    def look(source, target):
        remove_leftovers(tmp_path / "a")
        seen.append(os.path.exists(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    write_atomically(tmp_path / "a", b"x")
    assert seen == [True]


def test_threads_that_write_one_file_leave_one_of_their_contents(tmp_path, count):
    path, errors = tmp_path / "a", []
    contents = [bytes([i]) * 5000 for i in range(4)]
    path.write_bytes(contents[0])

    def write(data):
        try:
            for _ in range(count(10, 200)):
                write_atomically(path, data)
                assert path.read_bytes() in contents
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert names(tmp_path) == ["a"]


def _network(path):
    radnet.save(radnet.RadNet((2, 3, 1)), path)


def _checkpoint(path):
    net = radnet.RadNet((2, 3, 1))
    write_checkpoint(path, net, torch.optim.Adam(net.parameters()), Progress([1.0], [0.1]))


class Failing:
    """The k-th call of any of these functions raises what a full disk does."""

    def __init__(self, monkeypatch, k):
        self.left, self.where = k, None
        for name in ("open", "listdir", "stat", "chmod", "fsync", "replace"):
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name)))
        monkeypatch.setattr(builtins, "open", self.wrapped("open", open))

    def wrapped(self, name, function):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                self.where = name
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("write", [_network, _checkpoint])
def test_every_system_call_may_fail_once(write, tmp_path, evidence):
    path = tmp_path / "file.safetensors"
    write(path)
    old = path.read_bytes()
    failed = []
    for k in range(1, 60):
        with pytest.MonkeyPatch.context() as patch:
            failing = Failing(patch, k)
            try:
                write(path)
                said = None
            except radnet.RadNetError as error:
                said = str(error)
        if failing.where is None:
            break
        failed.append(failing.where)
        if said is None:  # it was not needed: the folder could not be looked through, or made durable
            assert failing.where in ("listdir", "open", "stat"), failing.where
        else:
            assert "file.safetensors" in said or str(tmp_path) in said
            assert "No space left" in said
            assert path.read_bytes() == old or "written, but it may be gone" in said
            old = path.read_bytes()
        assert names(tmp_path) == ["file.safetensors"]
    evidence(f"every system call of {write.__name__[1:]} fails once", calls=len(failed), kinds=sorted(set(failed)))
    assert len(failed) >= 5


def _hold(path, tries, counter, found):
    double = got = 0
    for _ in range(tries):
        try:
            with exclusively(path, "held"):
                got += 1
                with counter.get_lock():
                    counter.value += 1
                    double += counter.value > 1
                with counter.get_lock():
                    counter.value -= 1
        except InvalidValue:
            pass
    found.put((got, double))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_two_processes_never_hold_one_lock(kind, tmp_path, count, evidence):
    context = multiprocessing.get_context("fork")
    counter, found = context.Value("i", 0), context.Queue()
    path = tmp_path if kind == "folder" else tmp_path / "run"
    tries = count(500, 100_000)
    processes = [context.Process(target=_hold, args=(path, tries, counter, found)) for _ in range(2)]
    for process in processes:
        process.start()
    results = [found.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    got, double = (sum(x) for x in zip(*results, strict=True))
    evidence(f"two processes hammering the lock of a {kind}", tries=2 * tries, held=got, held_by_two=double)
    assert got > 0
    assert double == 0


def test_a_lock_says_who_is_refused_and_touches_nothing(tmp_path):
    (tmp_path / ".run.lock").write_text("mine")
    with (
        exclusively(tmp_path / "run", "somebody is here"),
        pytest.raises(InvalidValue, match="somebody is here"),
        exclusively(tmp_path / "run", "somebody is here"),
    ):
        pass
    assert (tmp_path / ".run.lock").read_text() == "mine"
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".link.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(NotWritten, match="cannot be used as a lock"), exclusively(tmp_path / "link", ""):
        pass
    assert (tmp_path / "victim").read_text() == "precious"
    os.mkfifo(tmp_path / ".pipe.lock")
    with pytest.raises(InvalidValue, match="is no regular file"), exclusively(tmp_path / "pipe", ""):
        pass
    with pytest.raises(MissingFile, match="no such folder"), exclusively(tmp_path / "none" / "a", ""):
        pass


def _as_nobody(folder, result):
    """In a process of its own, without the rights of root."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        write_atomically(folder / "a", b"new")
        result.put("written")
    except radnet.RadNetError as error:
        result.put(f"{type(error).__name__}: {error}")


def _with_little_room(path, result):
    """In a process of its own that may write files of 2,000 bytes and no more."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    torch.set_num_threads(1)  # the threads of the process this is a fork of are not here
    try:
        radnet.save(radnet.RadNet((40, 30, 20)), path)
        result.put("written")
    except radnet.RadNetError as error:
        result.put(f"{type(error).__name__}: {error}")


def elsewhere(function, *arguments):
    context = multiprocessing.get_context("fork")
    result = context.Queue()
    process = context.Process(target=function, args=(*arguments, result))
    process.start()
    said = result.get(timeout=60)
    process.join()
    return said


def test_a_folder_that_may_not_be_written_into(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "a").write_bytes(b"old")
    folder.chmod(0o555)
    for parent in (*tmp_path.parents[:2], tmp_path):
        parent.chmod(0o755)
    said = elsewhere(_as_nobody, folder)
    assert said.startswith("NotWritten")
    assert "Permission denied" in said
    assert (folder / "a").read_bytes() == b"old"
    assert names(folder) == ["a"]


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path):
    path = tmp_path / "net"
    radnet.save(radnet.RadNet((2, 1)), path)
    before = path.read_bytes()
    said = elsewhere(_with_little_room, path)
    assert said.startswith("NotWritten")
    assert "not written, and what was there is as it was" in said
    assert path.read_bytes() == before
    assert names(tmp_path) == ["net"]
