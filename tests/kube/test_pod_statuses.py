"""What the scheduler says on pods, on a real API server: when, how often, and to whom first."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import pytest
from msgspec.structs import replace

from closeby.kube.writing.events import Events
from closeby.kube.writing.pod_statuses import APP_GROUP_FOUND, PodStatuses
from closeby.kube.writing.statuses import ReportingSettings
from closeby.kube.writing.writer import Writer
from closeby.objects.pods import Pod
from closeby.objects.quantities import utc
from closeby.objects.reasons import Reason
from closeby.reading.dialects.grouping import held_for_the_grouper
from closeby.scheduling.outcomes import Binding, Leftover
from tests.control_plane.api import Api, Object, create_namespace
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Proxy
from tests.kube.live import create_pods, eventually, through_proxy

AT_ONCE = ReportingSettings(stands=0.0, settles=0.0, rephrased_after=0.0, retold_after=0.0)


def refused(pod: Pod, message: str = "no room", reason: Reason = Reason.INSUFFICIENT_RESOURCES) -> Leftover:
    return Leftover(pod=pod, reason=reason, message=message)


def owned(pod: Pod) -> Pod:
    return replace(pod, owner="Job/train")


class Reported:
    """Statuses of pods at work, and what a user sees of them."""

    def __init__(self, api: Api, proxy: Proxy, writer: Writer, settings: ReportingSettings) -> None:
        self.api = api
        self.proxy = proxy
        self.pods: list[Pod] = []
        self.informed = True
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.events = Events(writer, self.say)
        self.statuses = PodStatuses(writer, self.events, self.say, settings, lambda: self.informed)

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, fields))

    async def condition(self, pod: Pod, kind: str = "PodScheduled") -> Object:
        found = await self.api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        conditions: list[Object] = found["status"].get("conditions") or []
        return next((one for one in conditions if one["type"] == kind), {})

    async def message(self, pod: Pod) -> str:
        """Why it waits, for whom looks at its condition."""
        return str((await self.condition(pod)).get("message", ""))

    async def until(self, pod: Pod, message: str) -> None:
        async def so() -> bool:
            return message in await self.message(pod)

        await eventually(so)

    async def reasons(self, pod: Pod) -> list[str]:
        """Of its Events, the first one first."""
        await self.events.finish(60)
        path = f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events"
        found = [one for one in (await self.api.get(path))["items"] if one["regarding"].get("uid") == pod.uid]
        return [one["reason"] for one in sorted(found, key=lambda one: one["eventTime"])]

    def patches(self, pod: Pod) -> int:
        return self.proxy.count("PATCH", f"/{pod.namespace}/pods/{pod.name}/status")


@asynccontextmanager
async def reported(
    control_plane: ControlPlane, namespace: str, pods: int, settings: ReportingSettings
) -> AsyncIterator[Reported]:
    access = control_plane.access()
    async with Api(access) as api, through_proxy(access) as (proxy, transport):
        it = Reported(api, proxy, Writer(transport, "closeby-test", "replica-0"), settings)
        it.pods = await create_pods(api, namespace, pods)
        stopping = asyncio.Event()
        working = asyncio.create_task(it.statuses.run(stopping))
        try:
            yield it
        finally:
            stopping.set()
            await asyncio.wait_for(working, 60)
            await it.events.finish(60)


def held_up(proxy: Proxy, method: str, part: str) -> tuple[asyncio.Event, asyncio.Event]:
    """The next such request waits before the server hears of it: until the second event is set. The first one
    says that it has arrived.
    """
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        arrived.set()
        await go_on.wait()

    proxy.before(method, part, hold)
    return arrived, go_on


Test = Callable[[Reported], Awaitable[None]]


class Run(Protocol):
    def __call__(self, pods: int, settings: ReportingSettings, test: Test) -> None:
        """Runs a test on so many pods."""


@pytest.fixture
def with_pods(control_plane: ControlPlane, namespace: str) -> Run:
    def run(pods: int, settings: ReportingSettings, test: Test) -> None:
        async def go() -> None:
            async with reported(control_plane, namespace, pods, settings) as it:
                await test(it)

        asyncio.run(go())

    return run


def test_a_namespace_with_many_refusals_does_not_hold_up_another(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (other,) = await create_pods(it.api, await create_namespace(it.api, service_accounts=False), 1)
        for pod in it.pods:
            it.statuses.refused(refused(pod))
        it.statuses.refused(refused(other))
        for pod in (*it.pods, other):
            await it.until(pod, "no room")
        order = [request for request in it.proxy.seen if request.startswith("PATCH ")]
        assert [other.namespace in request for request in order].index(True) < 5

    with_pods(40, replace(AT_ONCE, rate=50.0), test)


def test_a_pod_that_is_decided_meanwhile_is_never_called_unschedulable(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        decided, waits = it.pods
        it.statuses.refused(refused(decided))
        it.statuses.refused(refused(waits))
        it.statuses.decided(decided, with_group=None)
        await it.until(waits, "no room")
        assert (await it.condition(decided), it.patches(decided)) == ({}, 0)

    with_pods(2, replace(AT_ONCE, stands=0.3), test)


def test_a_binding_waits_for_the_refusal_that_is_being_written(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (pod,) = it.pods
        arrived, go_on = held_up(it.proxy, "PATCH", "/status")
        it.statuses.refused(refused(pod))
        await arrived.wait()
        it.statuses.decided(pod, with_group=None)
        binding = asyncio.create_task(it.statuses.before_binding(pod.uid))
        await asyncio.sleep(0.1)
        assert not binding.done()
        go_on.set()
        await asyncio.wait_for(binding, 60)
        assert await it.message(pod)
        it.statuses.bound(Binding(pod, "n"))
        assert await it.reasons(pod) == ["FailedScheduling", "Scheduled"]

    with_pods(1, AT_ONCE, test)


def test_a_binding_does_not_wait_for_the_event_of_a_refusal(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (pod,) = it.pods
        arrived, go_on = held_up(it.proxy, "POST", "/events")
        it.statuses.refused(refused(pod))
        await arrived.wait()
        it.statuses.decided(pod, with_group=None)
        await asyncio.wait_for(it.statuses.before_binding(pod.uid), 60)
        it.statuses.bound(Binding(pod, "n"))
        # The Events of one pod keep their order.
        await it.message(pod)
        assert it.proxy.count("POST", "/events") == 1
        go_on.set()
        assert await it.reasons(pod) == ["FailedScheduling", "Scheduled"]

    with_pods(1, AT_ONCE, test)


def test_other_words_for_the_same_reason_wait_and_another_reason_does_not(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (pod,) = it.pods
        it.statuses.refused(refused(pod, "3 nodes are full"))
        await it.until(pod, "3 nodes")
        it.statuses.refused(refused(pod, "2 nodes are full"))
        it.statuses.refused(refused(pod, "no node has the label", Reason.NODE_AFFINITY_MISMATCH))
        await it.until(pod, "label")
        it.statuses.refused(refused(pod, "no node has that label", Reason.NODE_AFFINITY_MISMATCH))
        await asyncio.sleep(0.3)
        assert await it.message(pod) == "NodeAffinityMismatch: no node has the label"
        assert await it.reasons(pod) == ["FailedScheduling"] * 2
        assert it.patches(pod) == 2

    with_pods(1, replace(AT_ONCE, rephrased_after=600.0), test)


def test_other_details_of_the_same_reason_are_no_new_event(with_pods: Run) -> None:
    """The roomiest rack changes with every pod that comes or goes."""

    async def test(it: Reported) -> None:
        (pod,) = it.pods
        for rack in ("r1", "r2", "r3"):
            it.statuses.refused(refused(pod, f"the roomiest, {rack}, takes 3"))
            await it.until(pod, rack)
        it.statuses.refused(refused(pod, "no node has the label", Reason.NODE_AFFINITY_MISMATCH))
        await it.until(pod, "label")
        assert await it.reasons(pod) == ["FailedScheduling"] * 2

    with_pods(1, replace(AT_ONCE, retold_after=600.0), test)


def test_a_pod_whose_gang_is_not_complete_yet_is_not_called_unschedulable_at_once(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        incomplete, waits, other = it.pods
        it.statuses.refused(refused(incomplete, "6 of at least 8", Reason.GANG_INCOMPLETE))
        lack = held_for_the_grouper(owned(waits))
        it.statuses.refused(refused(lack, "the pod-grouper has not said yet", Reason.UNSUPPORTED))
        it.statuses.refused(refused(other))
        await it.until(other, "no room")
        assert [await it.reasons(pod) for pod in (incomplete, waits)] == [[], []]
        # What it waits for then is not soon over.
        it.statuses.refused(refused(incomplete))
        await it.until(incomplete, "no room")

    with_pods(3, replace(AT_ONCE, settles=600.0), test)


def test_the_time_of_a_transition_is_that_of_the_status_and_not_of_the_words(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (pod,) = it.pods
        it.statuses.refused(refused(pod))
        await it.until(pod, "no room")
        since = str((await it.condition(pod))["lastTransitionTime"])

        async def later() -> bool:
            return utc(time.time()) > since

        await eventually(later)
        it.statuses.refused(refused(pod, "no node has the label", Reason.NODE_AFFINITY_MISMATCH))
        await it.until(pod, "label")
        assert (await it.condition(pod))["lastTransitionTime"] == since

    with_pods(1, AT_ONCE, test)


def test_nothing_is_written_while_the_cluster_is_read_again(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (pod,) = it.pods
        it.informed = False
        it.statuses.refused(refused(pod))
        await asyncio.sleep(0.4)
        assert it.patches(pod) == 0
        it.informed = True
        await it.until(pod, "no room")

    with_pods(1, AT_ONCE, test)


def test_that_the_app_group_is_missing_is_written_before_the_binding_and_corrected(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        pod = replace(it.pods[0], labels={"app-group.scheduling.sigs.k8s.io": "a1"})
        it.statuses.decided(pod, with_group=True)
        await it.statuses.before_binding(pod.uid)
        assert it.patches(pod) == 0
        it.statuses.decided(pod, with_group=False)
        await it.statuses.before_binding(pod.uid)
        assert (await it.condition(pod, APP_GROUP_FOUND))["status"] == "False"
        # The binding fails, and the pod waits.
        it.statuses.refused(refused(pod))
        await it.until(pod, "no room")
        assert (await it.condition(pod, APP_GROUP_FOUND))["status"] == "False"
        it.statuses.decided(pod, with_group=True)
        await it.statuses.before_binding(pod.uid)
        assert (await it.condition(pod, APP_GROUP_FOUND))["status"] == "True"
        assert await it.reasons(pod) == ["AppGroupNotFound", "FailedScheduling"]

    with_pods(1, AT_ONCE, test)


def test_where_only_an_event_may_say_it_no_condition_is_written(with_pods: Run) -> None:
    async def test(it: Reported) -> None:
        (pod,) = it.pods
        it.statuses.refused(refused(pod, "its namespace is excluded", Reason.NAMESPACE_EXCLUDED))

        async def seen() -> bool:
            return await it.reasons(pod) == ["FailedScheduling"]

        await eventually(seen)
        assert (await it.condition(pod), it.patches(pod)) == ({}, 0)

    with_pods(1, AT_ONCE, test)
