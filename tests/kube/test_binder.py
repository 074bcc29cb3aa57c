"""When the binder still lets a write go out."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from closeby.kube.client.errors import ApiError
from closeby.kube.gangs.binder import Binder
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import Decided
from closeby.kube.state.ownership import ForeignMembers, OwnGangs
from closeby.kube.writing.writer import DONE, Written
from closeby.objects.pods import DEFAULT_SCHEDULER
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import BindFailed, BindingsWithdrawn, PodUpserted, Tick
from closeby.scheduling.outcomes import Binding, bindings_of
from tests.worlds import pods, world


class Leader:
    """A scheduler that leads until it does not, and knows its cluster."""

    gated = None

    def __init__(self, engine: Engine) -> None:
        self.own = OwnGangs(DEFAULT_SCHEDULER, engine.state, ForeignMembers())
        self.leads = True

    def informed(self) -> bool:
        return True

    async def until_informed(self) -> None:
        """It always is."""

    def catch_up(self) -> bool:
        return True

    def may_bind(self) -> bool:
        return self.leads

    async def quiet(self, uid: str) -> None:
        """Nothing is ever written about a pod."""

    async def write_plan(self, key: str) -> Written:
        return DONE

    def bound(self, binding: Binding) -> None:
        """It is noted by the writes."""

    def write_refused(self, bindings: Sequence[Binding], error: ApiError | None, times: int = 1) -> None:
        raise AssertionError(error)

    def give_back(self, failure: BindFailed | BindingsWithdrawn) -> None:
        raise AssertionError(failure)

    def review(self, key: str, *, waits: bool) -> None:
        """No status is written."""


def silent(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Logs nothing."""


class SlowWrites:
    """The pod is read before it is written, and the lead is lost meanwhile."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.wanted: list[bool] = []

    async def bind(self, bind: Binding, wanted: Callable[[], bool] | None = None) -> Written:
        assert wanted is not None
        self.wanted.append(wanted())
        self.leader.leads = False
        self.wanted.append(wanted())
        return DONE

    async def look(self, bind: Binding) -> Written:
        return DONE


class HangingWrites:
    """No write ever ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def bind(self, bind: Binding, wanted: Callable[[], bool] | None = None) -> Written:
        self.begun.set()
        await asyncio.Event().wait()
        return DONE

    async def look(self, bind: Binding) -> Written:
        return DONE


def test_nothing_is_sent_by_a_process_that_does_not_lead_any_more() -> None:
    drawn = world("zone-a rack-1 : a1=4")
    (binding,) = bindings_of(drawn.engine.handle(*map(PodUpserted, pods(None, 1)), Tick()))
    leader = Leader(drawn.engine)
    writes = SlowWrites(leader)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            binder = Binder(drawn.engine, GangObjects(), writes, silent, tasks, leader)
            binder.handle(Decided((binding,), "2027-01-01T00:00:00Z"))

    asyncio.run(run())
    assert writes.wanted == [True, False]


@pytest.mark.parametrize(("within", "said"), [(0.0, []), (0.1, ["bindings not finished"])])
def test_what_is_not_waited_for_is_not_said_to_be_unfinished(within: float, said: list[str]) -> None:
    drawn = world("zone-a rack-1 : a1=4")
    (binding,) = bindings_of(drawn.engine.handle(*map(PodUpserted, pods(None, 1)), Tick()))
    lines: list[str] = []

    def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
        lines.append(message)

    async def run() -> None:
        writes = HangingWrites()
        async with asyncio.TaskGroup() as tasks:
            binder = Binder(drawn.engine, GangObjects(), writes, say, tasks, Leader(drawn.engine))
            binder.handle(Decided((binding,), "2027-01-01T00:00:00Z"))
            await writes.begun.wait()
            await binder.finish(within)

    asyncio.run(run())
    assert lines == said
