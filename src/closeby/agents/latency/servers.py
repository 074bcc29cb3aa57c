"""Servers of other programs that an agent runs beside itself, for the peers that measure with them."""

import shutil
import subprocess
import time
from threading import Event, Thread
from typing import Final

from closeby.objects.process import Say
from closeby.objects.reasons import Problem

#: The option that sets its port, by the name of the program that asks it.
COMMANDS: Final = {
    "qperf": ("qperf", "-lp"),
    "netperf": ("netserver", "-D", "-p"),
    "iperf3": ("iperf3", "-s", "-p"),
}
#: Seconds until one that has exited is restarted, twice as long each time up to the longest; after one that
#: held out longer than that the shortest again.
_AGAIN: Final = 2.0
_LONGEST: Final = 120.0
#: Until it is killed.
_FAREWELL: Final = 0.3


class ProgramServer:
    """One server, from ``open`` to ``close``; restarted when it exits."""

    def __init__(self, program: str, port: int, say: Say) -> None:
        """``program`` is one of ``COMMANDS``."""
        self._command = (*COMMANDS[program], str(port))
        self._say = say
        self._end = Event()
        #: What runs; None before the first time.
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name=program, daemon=True)

    def open(self) -> Problem | None:
        """Starts it; a problem if there is no such program."""
        name = self._command[0]
        if shutil.which(name) is None:
            return Problem(
                f"there is no {name}", "install it, or measure without it", reason="ProgramMissing"
            )
        self._thread.start()
        return None

    def close(self) -> None:
        """Ends it."""
        self._end.set()
        process = self.process
        if process is not None:
            process.terminate()
            try:
                process.wait(_FAREWELL)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread.is_alive():
            self._thread.join(_FAREWELL)

    def _run(self) -> None:
        wait = _AGAIN
        while not self._end.is_set():
            began = time.monotonic()
            code, why = self._serve()
            if time.monotonic() - began > _LONGEST:
                wait = _AGAIN
            if not self._end.is_set():
                name, seconds = self._command[0], round(wait)
                self._say(
                    "server exited", warning=True, program=name, code=code, error=why, retry_seconds=seconds
                )
                self._end.wait(wait)
                wait = min(2 * wait, _LONGEST)

    def _serve(self) -> tuple[int | None, str | None]:
        """The code it ends with, or why it can't be started."""
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet)
        except OSError as error:
            return None, error.strerror or str(error)
        with process as self.process:
            if self._end.is_set():
                process.kill()
        return process.returncode, None
