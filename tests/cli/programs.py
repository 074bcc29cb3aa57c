"""Commands that run on, as programs of their own."""

import subprocess
import sys


def started(command: str, *arguments: str) -> "subprocess.Popen[str]":
    """`closeby COMMAND …` with its standard output and error at hand."""
    return subprocess.Popen(
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
