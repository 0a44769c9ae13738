"""Ctrl-C on the command line: silence and exit code 130, whatever is being imported or done."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

import radnet.__main__ as start
from radnet.cli import main

COMMANDS = {
    "inspect": ["inspect", "1,8,16,8,1"],
    "approximate": ["approximate", "sin(x1) * x2", "--box=0:1,0:1", "--eps", "0.02", "--lipschitz", "1.5"],
    "reproduce": ["reproduce", "--quick", "--experiment", "1", "--experiment", "6"],
}
#: what python -X importtime says of a module once it is imported
IMPORTED = re.compile(rb"import time:.*\n?")


def interrupted(arguments, seconds, folder):
    """Exit code and stderr of a command that is interrupted some time after it has begun to import its modules."""
    command = [sys.executable, "-X", "importtime", "-m", "radnet", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    said = b""
    while b"radnet.errors" not in said:  # the first import of the command line
        said += process.stderr.readline()
    os.set_blocking(process.stderr.fileno(), False)
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        said += process.stderr.read() or b""
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and all it has started
    os.set_blocking(process.stderr.fileno(), True)
    _, rest = process.communicate(timeout=60)
    return process.returncode, IMPORTED.sub(b"", said + rest).decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_at_any_moment_ends_in_silence(name, tmp_path, count, evidence):
    rng, codes = random.Random(name), []
    longest = {"inspect": 0.3, "approximate": 4.0, "reproduce": 6.0}[name]
    for i in range(count(3, 40)):
        folder = tmp_path / str(i)
        folder.mkdir()
        code, said = interrupted(COMMANDS[name], rng.uniform(0, longest), folder)
        code = 130 if code == -signal.SIGINT else code  # Python was gone already, and the system ended the process
        codes.append(code)
        assert code in (0, 130), (i, code, said)
        assert "Traceback" not in said, (i, said)
        lines = [line for line in said.splitlines() if line.strip()]
        assert all(line.startswith(("radnet: interrupted", "experiment ")) for line in lines), (i, said)
    evidence(f"interrupts: {name}", interrupts=len(codes), ended_by_it=codes.count(130))
    if len(codes) >= 40:
        assert codes.count(130) > 5


def test_an_interrupt_outside_an_import_is_pythons_own():
    with pytest.raises(KeyboardInterrupt, match="^$"):
        start._interrupt(signal.SIGINT, sys._getframe())
    with pytest.raises(KeyboardInterrupt, match="^$"):
        start._interrupt(signal.SIGINT, None)


def test_an_interrupt_in_an_import_leaves_at_once(tmp_path, monkeypatch):
    (tmp_path / "halfway.py").write_text("import radnet.__main__ as s, sys; s._interrupt(2, sys._getframe())")
    monkeypatch.syspath_prepend(tmp_path)
    left = []

    def leave(code):
        left.append(code)
        raise SystemExit

    monkeypatch.setattr(os, "_exit", leave)
    with contextlib.suppress(SystemExit):
        import halfway  # noqa: F401
    assert left == [130]


def test_main_leaves_the_handler_of_its_caller_alone(capsys):
    before = signal.getsignal(signal.SIGINT)
    assert main(["inspect", "1,2,1"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
