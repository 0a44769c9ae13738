"""Compiles the kernels when the package is built or installed; without a C++ compiler the package is Python alone.

The library is called through ctypes, so one wheel serves every Python of a platform. ``CXX`` names another compiler,
and ``python hatch_build.py`` compiles in place.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("src") / "radnet" / "native" / "kernels.cpp"
LIBRARY = SOURCE.with_name("_kernels.so")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-pthread", "-Wno-psabi")
LIBRARIES = ("-ldl",)


def compiler() -> list[str] | None:
    """The C++ compiler of this machine, if there is one, as the beginning of a command."""
    asked = shlex.split(os.environ.get("CXX", ""))
    candidates = [asked] if asked else [["c++"], ["g++"], ["clang++"]]
    return next((command for command in candidates if shutil.which(command[0])), None)


def compiled(source: Path, library: Path, *flags: str) -> bool:
    """Compile, and put the result in its place at once; whether that worked. What was there before goes either way."""
    library.unlink(missing_ok=True)
    cxx = compiler()
    if cxx is None or os.name != "posix":
        return False
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        made = Path(work) / library.name
        command = [*cxx, *FLAGS, *flags, str(source), "-o", str(made), *LIBRARIES]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=600)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return False
        made.replace(library)
    return True


def platform_tag() -> str:
    """Any Python 3 on this platform."""
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # compiled by hand
    pass
else:

    class Kernels(BuildHookInterface):  # type: ignore[type-arg]
        """Adds the library to wheels; an editable install finds it in the source."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile before the files are gathered."""
            if self.target_name != "wheel":
                return
            if compiled(SOURCE, LIBRARY):
                build_data["force_include"][str(LIBRARY)] = f"radnet/native/{LIBRARY.name}"
                build_data["pure_python"] = False
                build_data["tag"] = platform_tag()
            else:
                self.app.display_warning("radnet: no C++ compiler that works; the package will run on PyTorch alone")


if __name__ == "__main__":
    sys.exit(0 if compiled(SOURCE, LIBRARY) else "no C++ compiler that works")
