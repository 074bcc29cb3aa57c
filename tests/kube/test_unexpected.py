"""Exceptions that nobody expected, and what blocks beside an event loop."""

import asyncio
import threading

import pytest

from closeby.kube.client.waiting import in_thread
from closeby.objects.process import Contained, brief, fields_of


def stumble() -> int:
    raise KeyError("cost")


def wait_for_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(20)


def stopped(error: BaseException) -> Contained:
    with Contained() as block:
        raise error
    return block


def test_a_fault_is_kept_and_reported_with_its_place() -> None:
    with Contained() as block:
        stumble()
    assert block.error is not None
    assert brief(block.error).startswith("KeyError: 'cost' (test_unexpected.py:")
    told = fields_of(block.error)
    assert told["error"] == brief(block.error)
    assert told["traceback"].startswith("Traceback (most recent call last):")
    assert ", in stumble\n" in told["traceback"]
    assert brief(stopped(ZeroDivisionError()).error or KeyError()).startswith("ZeroDivisionError (test_")


def test_what_went_well_leaves_nothing() -> None:
    with Contained() as block:
        len("well")
    assert block.error is None


@pytest.mark.parametrize("end", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_an_end_is_no_fault(end: type[BaseException]) -> None:
    with pytest.raises(end):
        stopped(end())


def test_a_thread_of_its_own_answers_and_raises() -> None:
    async def run() -> None:
        assert await in_thread("t", lambda: threading.current_thread().name) == "t"
        with pytest.raises(KeyError, match="cost"):
            await in_thread("t", stumble)

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_ends_the_thread_ends_nothing_else() -> None:
    def leave() -> None:
        raise SystemExit

    async def run() -> None:
        with pytest.raises(RuntimeError, match="t has ended its thread"):
            await in_thread("t", leave)

    asyncio.run(run())
    # What it raises is told in this test, and in no other.
    wait_for_threads("t")


def test_no_caller_waits_for_a_thread_that_hangs() -> None:
    """Neither who is cancelled nor the end of the loop; what it says afterwards is for nobody."""
    hangs = threading.Event()

    async def run() -> None:
        # More than the loop has threads for others.
        waiting = [asyncio.create_task(in_thread("hangs", lambda: hangs.wait(100))) for _ in range(40)]
        assert await asyncio.to_thread(lambda: "free") == "free"
        for one in waiting:
            one.cancel()
        assert {type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)} == {
            asyncio.CancelledError
        }

    asyncio.run(run())
    assert sum(thread.name == "hangs" for thread in threading.enumerate()) == 40
    hangs.set()
    wait_for_threads("hangs")
