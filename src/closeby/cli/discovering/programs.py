"""Runs a program of others and hands on what it prints."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from closeby.discovery.source_files import shown
from closeby.errors import UnreadableError

#: Of what the program complains about, for messages.
_SHOWN: Final = 300
#: Programs that run now.
_running: Final[list[subprocess.Popen[bytes]]] = []


def end_programs() -> None:
    """Ends what ``output_of`` runs in other threads, which then fails."""
    for one in tuple(_running):
        one.kill()


@contextmanager
def output_of(program: str, timeout: float, *arguments: str) -> Iterator[BinaryIO]:
    """What ``program`` printed, once it ended; it is in a file that is gone afterwards.

    Raises:
        UnreadableError: there is no such program, it failed, or took longer than ``timeout`` (seconds).
    """
    path = shutil.which(program)
    if path is None:
        raise UnreadableError(
            program, "is not installed here", "install infiniband-diags, or give a file with what it prints"
        )
    called = " ".join((program, *arguments))
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        try:
            running = subprocess.Popen(
                [path, *arguments], stdin=subprocess.DEVNULL, stdout=printed, stderr=complaints
            )
        except OSError as error:
            raise UnreadableError(
                program, f"can't be run: {error.strerror or error}", "check the path"
            ) from error
        _running.append(running)
        try:
            code = running.wait(timeout)
        except subprocess.TimeoutExpired as error:
            message = f"did not end within {timeout:g} seconds"
            raise UnreadableError(
                called, message, "check the fabric, or allow more with --timeout"
            ) from error
        finally:
            running.kill()
            running.wait()
            _running.remove(running)
        if code:
            complaints.seek(0)
            lines = complaints.read(1 << 16).decode(errors="replace").strip().splitlines()
            said = f": {shown(lines[-1][:_SHOWN])}" if lines else ""
            raise UnreadableError(called, f"failed with exit code {code}{said}", "run it by hand to see more")
        printed.seek(0)
        yield printed
