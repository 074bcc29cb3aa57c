"""Commands that run on, as programs of their own."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any


class Program(subprocess.Popen[str]):
    """Is killed at the end of its context if a test failed there, and waited for else."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It would run on otherwise, and the test with it."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


def started(command: str, *arguments: str) -> Program:
    """`closeby COMMAND …` with its standard output and error at hand."""
    return Program(
        [sys.executable, "-m", "closeby", command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_until(process: "subprocess.Popen[str]", part: str) -> str:
    """The program's first line with ``part``."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if part in line:
            return line
    raise AssertionError("".join(lines))


def until_beside(process: "subprocess.Popen[Any]", workers: int, seconds: float = 60.0) -> None:
    """Waits until so many processes of a pool work for a program, and it hears an interrupt.

    While it starts them it does not.
    """
    end = time.monotonic() + seconds
    while not (_heeds_interrupts(process.pid) and _workers(process.pid) >= workers):
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < end, "it starts no processes"
        time.sleep(0.05)


def _workers(process: int) -> int:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return sum("spawn_main" in _line(child) for child in children)


def _line(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def _heeds_interrupts(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << (signal.SIGINT - 1))
