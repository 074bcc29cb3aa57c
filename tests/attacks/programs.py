"""closeby's programs as processes of their own, as an operator runs them, and what becomes of them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kube.live import unique


class Program:
    """A process that was started, and its log."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def memory(self) -> int:
        """The most resident memory that it has had, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        return int(kilobytes) << 10

    def said(self) -> str:
        """The log so far."""
        return self.log.read_text(errors="replace")

    async def until_said(self, text: str, seconds: float = 60.0) -> None:
        """Waits until this stands in the log."""
        async with asyncio.timeout(seconds):
            while text not in self.said():
                assert self.process.poll() is None, self.said()[-2000:]
                await asyncio.sleep(0.05)


@asynccontextmanager
async def running(folder: Path, command: str, kubeconfig: Path, *arguments: str) -> AsyncIterator[Program]:
    """``closeby COMMAND`` runs inside the context, and is killed in the end if it still does.

    When the context ends with an error, what the program said goes to standard output.
    """
    log = folder / f"{command}-{unique('log')}.txt"
    whole = [sys.executable, "-m", "closeby", command, "--kubeconfig", str(kubeconfig), *arguments]
    with log.open("wb") as written:
        process = await asyncio.to_thread(subprocess.Popen, whole, stderr=written)
    started = Program(process, log)
    try:
        yield started
    except BaseException:
        sys.stdout.write(f"\n{command}: exit code {process.poll()}, its log:\n{started.said()[-8000:]}\n")
        raise
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
