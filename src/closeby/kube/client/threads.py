"""What blocks, beside an event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from closeby.objects.unexpected import Contained

T = TypeVar("T")


async def in_thread(name: str, work: Callable[[], T]) -> T:
    """What ``work`` returns, called in a thread of its own; raises what it raises.

    For what may hang. The few threads of ``asyncio.to_thread`` would be taken from others who need one, and
    the end of the process would wait for them; for this one nobody waits who is cancelled.
    """
    told: Future[T] = Future()
    # From now on it can't be cancelled: the thread has somewhere to put its answer.
    told.set_running_or_notify_cancel()

    def run() -> None:
        found = Contained()
        try:
            with found:
                told.set_result(work())
        finally:
            if not told.done():
                told.set_exception(found.error or RuntimeError(f"{name} has ended its thread"))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(told)
