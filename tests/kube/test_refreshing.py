"""Sources that answer, fail, hang and come back, beside an event loop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from closeby.kube.scheduler import refreshing
from closeby.kube.scheduler.refreshing import Refreshing
from closeby.measurements.ageing import Known
from closeby.scheduling.services import Measured, Measurements, Reading, Source
from tests.plugins.asking import handle_of

FIGURES = "figures"


class Clock:
    """By which what is known grows old: on a busy machine it would, by its own, before it is read anew."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def good(self) -> Reading:
        """Measured now."""
        return Reading(values=FIGURES, measured=self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(refreshing, "Known", partial(Known, clock=made, epoch=made))
    return made


class Gauge(Measured):
    """A plugin that is measured by what a test says."""

    name = "Gauge"

    def __init__(self, read: Callable[[], Reading | str], max_age: float = 60.0) -> None:
        self.handle = handle_of([])
        self._source = Source(
            name="there", argument="address", read=read, every=0.05, max_age=max_age, fallback="guesses"
        )

    @property
    def source(self) -> Source:
        return self._source

    def take(self, measurements: Measurements) -> bool:
        return True

    @property
    def measured_nodes(self) -> int:
        return 0


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, bool, dict[str, object]]] = []

    def __call__(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, warning, fields))

    @property
    def messages(self) -> list[str]:
        return [message for message, _, _ in self.lines]


@asynccontextmanager
async def at_work(plugin: Gauge, log: Log) -> AsyncIterator[Refreshing]:
    """Read again and again inside the context."""
    work = Refreshing([plugin], log, lambda: None)
    task = asyncio.create_task(work.run())
    try:
        yield work
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while True:
            if met():
                return
            await asyncio.sleep(0.01)


def test_each_change_of_state_is_logged_once(clock: Clock) -> None:
    answers = [FIGURES]
    asked = []

    def read() -> Reading | str:
        asked.append(threading.current_thread() is threading.main_thread())
        return clock.good() if answers[-1] == FIGURES else answers[-1]

    async def run() -> None:
        log = Log()
        async with at_work(Gauge(read), log) as work:
            assert not work.begun
            await until(lambda: work.begun)
            (first,) = work.take()
            assert first.plugin == "Gauge"
            assert first.measurements.reading is not None and first.measurements.reading.values == FIGURES
            await until(lambda: len(asked) >= 3)
            assert log.messages == ["measurements"]
            answers.append("it is gone")
            await until(lambda: "measurements get old" in log.messages)
            assert work.take()[-1].measurements.reading is not None
            clock.now += 60.0
            await until(lambda: "no measurements" in log.messages)
            assert work.take()[-1].measurements.reading is None
            count = len(asked)
            await until(lambda: len(asked) >= count + 2)
            answers.append(FIGURES)
            await until(lambda: len(log.messages) == 4)
            assert work.take()[-1].measurements.reading is not None
        assert [(message, warning) for message, warning, _ in log.lines] == [
            ("measurements", False),
            ("measurements get old", True),
            ("no measurements", True),
            ("measurements", False),
        ]
        assert log.lines[1][2]["error"] == log.lines[2][2]["error"] == "it is gone"
        assert log.lines[2][2]["instead"] == "guesses"
        assert not any(asked), "the event loop itself reads"

    asyncio.run(run())


def test_a_source_that_hangs_holds_nothing_up(clock: Clock) -> None:
    """What is known is dropped while it hangs, and the end does not wait for it."""
    hangs = threading.Event()
    answers = iter([clock.good()])
    late = []

    def read() -> Reading | str:
        if answer := next(answers, None):
            return answer
        late.append(hangs.wait(100))
        return "late"

    async def run() -> None:
        log = Log()
        async with at_work(Gauge(read, max_age=0.3), log) as work:
            await until(lambda: "measurements" in log.messages)
            clock.now += 0.5
            await until(lambda: "no measurements" in log.messages)
            assert work.take()[-1].measurements.reading is None
            assert log.lines[-1][2]["error"] == "there gave nothing newer for 0.3 s"

    asyncio.run(run())
    assert not late
    hangs.set()


def test_the_first_decisions_wait_for_a_while_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "FIRST_WAIT", 0.2)
    hangs = threading.Event()

    async def run() -> None:
        log = Log()
        async with at_work(Gauge(lambda: str(hangs.wait(100))), log) as work:
            assert not work.begun
            await until(lambda: work.begun)
            assert work.take() == [] and log.messages == []

    asyncio.run(run())
    hangs.set()


def test_attempts_become_rarer_while_they_fail() -> None:
    asked: list[float] = []

    def read() -> str:
        asked.append(time.monotonic())
        return "it is gone"

    async def run() -> None:
        async with at_work(Gauge(read), Log()):
            await until(lambda: len(asked) >= 8)

    asyncio.run(run())
    # Half to all of 4 x 0.05 s in the end.
    assert asked[-1] - asked[-2] >= 0.1


def test_a_faulty_source_is_logged_like_one_that_is_gone() -> None:
    def read() -> str:
        raise ZeroDivisionError

    async def run() -> None:
        log = Log()
        async with at_work(Gauge(read), log) as work:
            await until(lambda: "no measurements" in log.messages)
            assert work.begun
        (message, warning, why), (_, _, told) = log.lines[:2]
        assert (message, warning) == ("reading failed unexpectedly", True)
        assert "ZeroDivisionError" in str(why["error"]) and "in read" in str(why["traceback"])
        assert told["error"] == "reading there failed unexpectedly"

    asyncio.run(run())


def test_without_sources_nothing_is_waited_for() -> None:
    assert Refreshing([], Log(), lambda: None).begun
