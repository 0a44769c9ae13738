"""Ctrl-C, SIGTERM, a closed and a full stdout: one line at most, the exit code a shell expects, nothing left behind."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import radnet
import radnet.__main__ as start
from radnet.cli import main

#: commands and for how many seconds, at most, they are left alone
COMMANDS = {
    "inspect": (["inspect", "1,8,16,8,1"], 0.3),
    "approximate": (["approximate", "sin(x1) * x2", "--box=0:1,0:1", "--eps", "0.02", "--lipschitz", "1.5"], 4.0),
    "reproduce": (["reproduce", "--quick", "--experiment", "1", "--experiment", "6"], 6.0),
    "train": (["train", "data.csv", "--target", "y", "--epochs", "400", "--patience", "400", "--rate", "0.01"], 5.0),
    "compress": (["compress", "wide.safetensors", "small.safetensors"], 4.0),
    "stream": (["compress", "wide.safetensors.index.json", "small.safetensors"], 4.0),
    "predict": (["predict", "net.safetensors", "x.csv", "--out", "y.csv"], 3.0),
}
#: what is tried at full counts only
IN_FULL = {(name, signal.SIGINT) for name in ("train", "compress", "stream", "predict")}
IN_FULL |= {(name, signal.SIGTERM) for name in ("inspect", "approximate", "compress")}
#: what they write
OUTPUTS = {
    "train": {"model.safetensors"},
    "compress": {"small.safetensors"},
    "stream": {"small.safetensors"},
    "predict": {"y.csv"},
}
#: what python -X importtime says of a module once it is imported
IMPORTED = re.compile(rb"import time:.*\n?")
#: what commands say on stderr that are not at their end, or were
SAID = ("radnet: interrupted", "experiment ", "layer ", "checking the file")


@pytest.fixture
def folder(tmp_path):
    """A table, networks, inputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    rows = [f"{a},{b},{a * b}" for a, b in x.tolist()]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "x.csv").write_text("\n".join(f"{a},{b}" for a, b in x.tolist()) + "\n")
    generator = torch.Generator().manual_seed(0)
    radnet.save(radnet.RadNet((2, 16, 1), generator=generator), tmp_path / "net.safetensors")
    wide = radnet.RadNet((8, 1500, 1500, 1), generator=generator)
    radnet.save(wide, tmp_path / "wide.safetensors")
    radnet.save(wide, tmp_path / "wide.safetensors.index.json")
    return tmp_path


def interrupted(arguments, seconds, folder, number):
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
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: to the command and all it has started
        else:
            process.send_signal(number)  # as kill does: what it has started is its own business
    os.set_blocking(process.stderr.fileno(), True)
    _, rest = process.communicate(timeout=60)
    return process.pid, process.returncode, IMPORTED.sub(b"", said + rest).decode()


def running(session):
    """The processes of a session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_end_at_any_moment_is_silent_and_leaves_nothing_behind(name, number, folder, count, evidence):
    arguments, longest = COMMANDS[name]
    if count(0, 1) == 0 and (name, number) in IN_FULL:
        pytest.skip("at full counts only")
    rng, codes, before = random.Random(f"{name} {number}"), [], set(os.listdir(folder))
    for i in range(count(1, 12)):
        pid, code, said = interrupted(arguments, rng.uniform(0, longest), folder, number)
        code = 128 + number if code == -number else code  # Python was gone already, and the system ended the process
        codes.append(code)
        assert code in (0, 128 + number), (i, code, said)
        assert "Traceback" not in said, (i, said)
        assert [line for line in said.splitlines() if line.strip() and not line.startswith(SAID)] == [], (i, said)
        assert list(folder.rglob(".*.tmp")) == [], i
        new = set(os.listdir(folder)) - before - {"report"}
        assert new in (set(), OUTPUTS.get(name, set())), (i, new)  # all of what the command writes, or nothing
        for path in new:
            (folder / path).unlink()
        end = time.monotonic() + 10
        while (left := running(pid)) and time.monotonic() < end:
            time.sleep(0.05)
        assert left == []
    evidence(f"{signal.Signals(number).name}: {name}", signals=len(codes), ended_by_it=codes.count(128 + number))
    if len(codes) >= 12:
        assert codes.count(128 + number) > 2


def test_an_interrupt_inside_text_that_is_executed_ends_with_the_code_of_its_signal(tmp_path):
    """Python itself would say SIGINT there, in a module that is run by ``python -m``."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "text = 'import os, signal; os.kill(os.getpid(), signal.SIGTERM); [0 for _ in range(10**7)]'\n"
        "sys.modules['radnet.cli'] = types.SimpleNamespace(main=lambda: exec(text))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "radnet", "inspect", "1,2,1"]
    end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (end.returncode, end.stderr) == (143, "")


ANSWERING = {
    "help": ["--help"],
    "inspect": ["inspect", "1,8,16,8,1"],
    "inspect FILE": ["inspect", "net.safetensors", "--json"],
    "compress": ["compress", "net.safetensors", "small.safetensors", "--force"],
    "verify": ["verify", "net.safetensors", "net.safetensors"],
    "train": ["train", "data.csv", "--target", "y", "--epochs", "3", "--rate", "0.01", "--quiet", "--force"],
    "predict": ["predict", "net.safetensors", "x.csv"],
    "approximate": ["approximate", "sin(x1)", "--box=0:1", "--eps", "0.1", "--lipschitz", "1"],
}


@pytest.mark.parametrize("name", ANSWERING)
def test_an_answer_that_nobody_takes_is_a_failure_in_one_line(name, folder, count):
    if count(0, 1) == 0 and name not in ("help", "inspect", "predict"):
        pytest.skip("at full counts only")
    command = [sys.executable, "-m", "radnet", *ANSWERING[name]]
    with open("/dev/full", "w") as full:
        end = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (end.returncode, end.stderr) == (1, "radnet: the answer could not be written (No space left on device)\n")
    reading, writing = os.pipe()
    os.close(reading)
    end = subprocess.run(command, cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert (end.returncode, end.stderr) == (1, "")
    assert list(folder.rglob(".*.tmp")) == []


def test_an_interrupt_outside_an_import_is_pythons_own():
    with pytest.raises(KeyboardInterrupt, match="^$"):
        start._interrupt(signal.SIGINT, sys._getframe())
    with pytest.raises(KeyboardInterrupt, match="^$"):
        start._interrupt(signal.SIGINT, None)
    assert start._Ending.code == 130
    start._Ending.code = None


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
