"""What should be said of pods, in any order, between failures: what is written, how often, and its Events."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Protocol

import pytest

from closeby.kube.client.waiting import RequestPace
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import Desired, StatusReconciler
from closeby.kube.writing.work_queue import Places, WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import Note, Reference, StatusCondition, Writer, Written
from closeby.objects.pods import Pod
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Cut, Proxy, Refuse
from tests.kube.live import create_pods, delete_now, eventually, through_proxy

SOON = RequestPace(0.2, 1.0)
STATES = ("calm", "busy", "late")
#: Retried, or (403) refused for good.
FAULTS = (
    Refuse(503),
    Refuse(429, {"Retry-After": "1"}),
    Refuse(409),
    Refuse(403),
    Cut(),
    Cut(carried_out=True),
)


class Moods:
    """A state for each of some pods, as their condition ``tests.closeby.dev/Mood``."""

    name = "moods"

    def __init__(
        self, api: Api, proxy: Proxy, writer: Writer, pods: list[Pod], insistence: RequestPace
    ) -> None:
        self.api = api
        self.proxy = proxy
        self.pods = {pod.uid: pod for pod in pods}
        self.moods: dict[str, str] = {}
        #: Writes that ended, and how often a write is to stumble over a fault of ours.
        self.written: list[tuple[str, str, Written]] = []
        self.stumbles = 0
        self.lines: list[tuple[str, dict[str, object]]] = []
        self._writer = writer
        work = WorkQueue(
            time.monotonic, self._namespace, RequestPace(0.02, 0.2), places=Places(all=8, rate=200.0)
        )
        self.statuses = StatusReconciler(
            self, work, Events(writer, self.say), self.say, insistence=insistence
        )

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, fields))

    def want(self, uid: str, mood: str) -> None:
        self.moods[uid] = mood
        self.statuses.work.add(uid)

    def forget(self, uid: str) -> None:
        self.moods.pop(uid, None)
        self.statuses.forget(uid)

    def regarding(self, key: str) -> Reference:
        pod = self.pods[key]
        return Reference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=key)

    def desired(self, key: str) -> Desired | None:
        mood = self.moods.get(key)
        if mood is None:
            return None
        note = Note(reason="Mood", action="Testing", text=mood)
        return Desired(
            about=self.regarding(key),
            content=mood,
            write=lambda: self._write(key, mood),
            events={mood: note},
        )

    async def _write(self, key: str, mood: str) -> Written:
        if self.stumbles:
            self.stumbles -= 1
            raise ZeroDivisionError("a fault of ours")
        condition = StatusCondition(type="tests.closeby.dev/Mood", status="True", reason=mood)
        written = await self._writer.pod_conditions(self.pods[key], [condition])
        self.written.append((key, mood, written))
        return written

    async def mood(self, uid: str) -> str:
        """As it stands in the cluster."""
        pod = self.pods[uid]
        found = await self.api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        conditions: list[Object] = found["status"].get("conditions") or []
        return next((one["reason"] for one in conditions if one["type"].endswith("/Mood")), "")

    async def agree(self) -> bool:
        """Whether the cluster says of each pod what it should."""
        return {uid: await self.mood(uid) for uid in self.moods} == self.moods

    async def events(self, uid: str) -> list[str]:
        """The moods of a pod that Events reported, the first one first."""
        await self.statuses.events.finish(60)
        namespace = self.pods[uid].namespace
        found = (await self.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))["items"]
        ours = [one for one in found if one["regarding"].get("uid") == uid and one["reason"] == "Mood"]
        return [one["note"] for one in sorted(ours, key=lambda one: one["eventTime"])]

    async def rest(self) -> bool:
        """Whether nothing is due, or under way."""
        work = self.statuses.work
        return (work.wait(), work.longest) == (None, 0.0)

    def patches(self, uid: str) -> int:
        return self.proxy.count("PATCH", f"/pods/{self.pods[uid].name}/status")

    def _namespace(self, key: str) -> str:
        return self.pods[key].namespace


@asynccontextmanager
async def moods(
    control_plane: ControlPlane, namespace: str, pods: int, insistence: RequestPace
) -> AsyncIterator[Moods]:
    """They are written as long as the context lasts, and what was under way is over at its end."""
    access = control_plane.access()
    async with Api(access) as api, through_proxy(access) as (proxy, transport):
        made = await create_pods(api, namespace, pods)
        it = Moods(api, proxy, Writer(transport, "closeby-test", "replica-0"), made, insistence)
        stopping = asyncio.Event()
        working = asyncio.create_task(Workers(it.statuses, it.say).run(stopping))
        try:
            yield it
        finally:
            stopping.set()
            await asyncio.wait_for(working, 60)
            await it.statuses.events.finish(60)


Test = Callable[[Moods], Awaitable[None]]


class Run(Protocol):
    def __call__(self, pods: int, test: Test, insistence: RequestPace = SOON) -> None:
        """Runs a test on so many pods; ``insistence``: pauses before what was refused is written again."""


@pytest.fixture
def with_pods(control_plane: ControlPlane, namespace: str) -> Run:
    def run(pods: int, test: Test, insistence: RequestPace = SOON) -> None:
        async def go() -> None:
            async with moods(control_plane, namespace, pods, insistence) as it:
                await test(it)

        asyncio.run(go())

    return run


@pytest.mark.parametrize("seed", range(6))
def test_the_last_state_is_written_last_whatever_failed(with_pods: Run, seed: int) -> None:
    chance = random.Random(seed)

    async def test(it: Moods) -> None:
        wanted: dict[str, list[str]] = {uid: [] for uid in it.pods}
        it.proxy.chance = lambda method, path: (
            chance.choice(FAULTS) if method == "PATCH" and chance.random() < 0.4 else None
        )
        for _ in range(120):
            uid = chance.choice(list(it.pods))
            match chance.randrange(8):
                case 0:
                    await it.statuses.write_now(uid)
                case 1:
                    it.stumbles += 1
                case 2:
                    await it.statuses.quiet(uid)
                case _:
                    wanted[uid].append(chance.choice(STATES))
                    it.want(uid, wanted[uid][-1])
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.05)
        it.proxy.forgive()
        it.stumbles = 0
        await eventually(it.agree)
        await eventually(it.rest)
        for uid in it.moods:
            states = [mood for key, mood, written in it.written if key == uid and written.ok]
            assert states[-1] == wanted[uid][-1], f"seed {seed}"
            # Events follow the states that were written or refused, each transition once.
            reported = await it.events(uid)
            assert set(reported) <= set(wanted[uid]) and reported[-1] == wanted[uid][-1]
            assert all(one != other for one, other in pairwise(reported))

    with_pods(4, test)


def test_equal_states_are_written_once(with_pods: Run) -> None:
    async def test(it: Moods) -> None:
        (uid,) = it.pods
        for _ in range(20):
            it.want(uid, "calm")
            await asyncio.sleep(0.01)
        await eventually(it.agree)
        it.want(uid, "calm")
        await eventually(it.rest)
        assert (it.patches(uid), await it.events(uid)) == (1, ["calm"])
        # A transition and back is two.
        for mood in ("busy", "calm"):
            it.want(uid, mood)
            await eventually(it.agree)
        await eventually(it.rest)
        assert (it.patches(uid), await it.events(uid)) == (3, ["calm", "busy", "calm"])

    with_pods(1, test)


def test_a_refusal_is_logged_once_and_tried_again_after_ever_longer_pauses(with_pods: Run) -> None:
    async def test(it: Moods) -> None:
        (uid,) = it.pods
        it.proxy.inject("PATCH", "/status", Refuse(403), times=4)
        began = time.monotonic()
        it.want(uid, "calm")
        await eventually(it.agree)
        await eventually(lambda: asyncio.sleep(0, len(it.written) == 5))
        # Half to all of 0.2, 0.4, 0.8 and 1 s.
        assert time.monotonic() - began >= 0.5 * (0.2 + 0.4 + 0.8 + 1.0)
        assert it.patches(uid) == 5
        assert [message for message, _ in it.lines] == ["status refused"]
        assert await it.events(uid) == ["calm"]

    with_pods(1, test)


def test_another_state_does_not_wait_for_one_that_was_refused(with_pods: Run) -> None:
    async def test(it: Moods) -> None:
        (uid,) = it.pods
        it.proxy.inject("PATCH", "/status", Refuse(403))
        it.want(uid, "calm")
        await eventually(lambda: asyncio.sleep(0, bool(it.lines)))
        it.want(uid, "busy")
        await eventually(it.agree)
        # The cluster may say so before the answer is here.
        await eventually(lambda: asyncio.sleep(0, len(it.written) == 2))
        assert [mood for _, mood, _ in it.written] == ["calm", "busy"]

    with_pods(1, test, RequestPace(600.0, 600.0))


def test_what_may_have_been_written_is_not_relied_upon(with_pods: Run) -> None:
    async def test(it: Moods) -> None:
        (uid,) = it.pods
        it.want(uid, "calm")
        await eventually(it.agree)
        # Carried out each time, without an answer.
        it.proxy.inject("PATCH", "/status", Cut(carried_out=True), times=1_000)
        it.want(uid, "busy")
        await eventually(lambda: asyncio.sleep(0, any(not written.ok for _, _, written in it.written)))
        assert await it.mood(uid) == "busy"
        it.want(uid, "calm")
        it.proxy.forgive()
        await eventually(it.agree)

    with_pods(1, test)


def test_a_fault_of_ours_with_one_object_stops_no_other(with_pods: Run) -> None:
    async def test(it: Moods) -> None:
        one, *others = it.pods
        it.stumbles = 1
        it.want(one, "calm")
        await eventually(lambda: asyncio.sleep(0, bool(it.lines)))
        for uid in others:
            it.want(uid, "busy")
        await eventually(it.agree)
        ((message, fields),) = it.lines
        assert (message, str(fields["object"])) == ("reconcile failed", str(it.regarding(one)))
        assert "in _write" in str(fields["traceback"])

    with_pods(3, test)


def test_of_objects_that_are_gone_nothing_is_kept(with_pods: Run) -> None:
    async def test(it: Moods) -> None:
        for turn in range(3):
            for uid, pod in it.pods.items():
                it.want(uid, STATES[turn])
                if turn == 2:
                    await delete_now(it.api, pod.namespace, pod.name)
            await asyncio.sleep(0.02)
        for uid in it.pods:
            # While a write may be under way.
            it.forget(uid)
        await eventually(lambda: asyncio.sleep(0, it.statuses.work.longest == 0))
        assert not any(uid in it.statuses for uid in it.pods)
        assert (it.statuses.work.depth, it.statuses.work.wait()) == (0, None)

    with_pods(6, test)
