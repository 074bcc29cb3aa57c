"""Fabrics in the real simulator ibsim, and what the real ibnetdiscover sees of them.

ibsim (Debian's ibsim-utils) plays a fabric out of a text; a library of it stands in for the kernel's
InfiniBand devices, so that ibnetdiscover (infiniband-diags) needs neither hardware nor rights.
"""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_SECONDS = 60
#: A folder with an ibnetdiscover that waits for the simulator's answers as long, and not only for a second or
#: two, which a simulator on a busy machine may stand still.
_PATIENT = "patient"


class Simulator:
    """A fabric that runs; ``console`` changes it while it does."""

    def __init__(self, folder: Path, program: "subprocess.Popen[str]", library: Path, name: str) -> None:
        self._folder = folder
        self._program = program
        self._library = library
        self._name = name

    def console(self, command: str) -> None:
        """Such as ``Unlink "L1"[8]``: the cable in that port is out soon."""
        assert self._program.stdin is not None
        self._program.stdin.write(f"{command}\n")
        self._program.stdin.flush()

    def environment(self, host: str) -> dict[str, str]:
        """In which programs see the fabric from the first port of ``host``."""
        return {
            **os.environ,
            "PATH": os.pathsep.join((str(self._folder / _PATIENT), _PATH)),
            "SIM_HOST": host,
            "LD_PRELOAD": str(self._library),
            "IBSIM_SOCKNAME": self._name,
        }

    def scan_without(self, gone: str, host: str) -> str:
        """What ibnetdiscover prints there once ``gone`` stands in it no more."""
        until = time.monotonic() + _SECONDS
        while gone in (text := self.scan(host)):
            assert time.monotonic() < until, text
        return text

    def scan(self, host: str, *arguments: str) -> str:
        """What ibnetdiscover prints there."""
        done = subprocess.run(
            [str(self._folder / _PATIENT / "ibnetdiscover"), *arguments],
            env=self.environment(host),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def simulated(network: str, folder: Path) -> Iterator[Simulator]:
    """ibsim with this network, while the context lasts."""
    programs = [shutil.which(name, path=_PATH) for name in ("ibsim", "ibnetdiscover")]
    library = _library()
    if None in programs or library is None:
        pytest.skip("needs ibsim and ibnetdiscover: apt-get install ibsim-utils infiniband-diags")
    (folder / "network").write_text(network)
    _make_patient(folder / _PATIENT, str(programs[1]))
    name = f"ibsim-{secrets.token_hex(6)}"
    with (folder / "ibsim.log").open("w") as log:
        program = subprocess.Popen(
            [str(programs[0]), "-s", "network"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            cwd=folder,
            env={**os.environ, "IBSIM_SOCKNAME": name},
        )
        try:
            _wait_for(name, program, folder / "ibsim.log")
            yield Simulator(folder, program, library, name)
        finally:
            program.kill()
            program.communicate()


def _make_patient(folder: Path, program: str) -> None:
    folder.mkdir(exist_ok=True)
    patient = folder / "ibnetdiscover"
    patient.write_text(f'#!/bin/sh\nexec {program} -t {1000 * _SECONDS} "$@"\n')
    patient.chmod(0o755)


def _library() -> Path | None:
    for folder in _LIBRARIES:
        for found in sorted(Path(folder).glob("**/umad2sim/libumad2sim.so")):
            return found
    return None


def _wait_for(name: str, program: "subprocess.Popen[str]", log: Path) -> None:
    """Until the simulator takes clients."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until and program.poll() is None:
        if f"@{name}:ctl" in Path("/proc/net/unix").read_text():
            return
        time.sleep(0.02)
    raise AssertionError(log.read_text(errors="replace"))
