"""Servers of other programs that an agent runs beside itself, for the peers that measure with them."""

import shutil
import subprocess
from threading import Event, Thread
from typing import Final

from closeby.agents.troubles import Say, Trouble

#: How each is told its port, by the name of the program that asks it.
COMMANDS: Final = {
    "qperf": ("qperf", "-lp"),
    "netperf": ("netserver", "-D", "-p"),
    "iperf3": ("iperf3", "-s", "-p"),
}
#: Seconds until one that has ended is started anew.
_AGAIN: Final = 2.0
#: Until it is killed.
_FAREWELL: Final = 0.3


class Companion:
    """One server, from ``open`` to ``close``; started anew when it ends."""

    def __init__(self, program: str, port: int, say: Say) -> None:
        """``program`` is one of ``COMMANDS``."""
        self._command = (*COMMANDS[program], str(port))
        self._say = say
        self._end = Event()
        #: What runs; None before the first time.
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name=program, daemon=True)

    def open(self) -> Trouble | None:
        """Starts it; a trouble if there is no such program."""
        name = self._command[0]
        if shutil.which(name) is None:
            return Trouble("ProgramMissing", f"there is no {name}: install it, or measure without it")
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
        while not self._end.is_set():
            quiet = subprocess.DEVNULL
            with subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet) as self.process:
                if self._end.is_set():
                    self.process.kill()
            if not self._end.wait(_AGAIN):
                code = self.process.returncode
                self._say("a server ended", warning=True, program=self._command[0], code=code)
