"""Runs several reconcilers in one process: one list and watch for all of them, one Lease, one way to end.

To write one, keep three things apart. ``observe`` takes in what happened and notes which objects are to be
looked at (``work``); it is called for everything there is, then for every change, and does no input or
output.
A pure function (``status_of(...)``) says what should be. ``reconcile`` compares that with what is, for one
object, and writes what differs::

    class AppGroups:
        name = "app-groups"
        followed = (Watched("scheduling.sigs.k8s.io", "AppGroup", ("v1alpha1",)),)

        def __init__(self, writer: Writer, say: Say) -> None:
            self.work: WorkQueue[str] = WorkQueue(time.monotonic, namespace=lambda key: key.partition("/")[0])
            self.events = Events(writer, say)
            ...

        def observe(self, news: News) -> None:
            match news:
                case News(resource=Resource(kind="AppGroup"), read=Decoded(record=AppGroup() as group)):
                    self._groups[group.key] = group
                    self.work.add(group.key)

        async def reconcile(self, key: str) -> None:
            written = await self._writer.status(...)
            if written.verdict in (WriteResult.RETRYABLE, WriteResult.CONFLICT):
                self.work.failed(key, written.error and written.error.retry_after)
            else:
                self.work.done(key)

        def regarding(self, key: str) -> Reference | None:
            ...

A replica that does not lead receives everything, so that it is ready to, but its ``reconcile`` is not called.
While ``reconcile`` waits for the server, ``observe`` goes on, and so does ``reconcile`` for other objects:
read what you need again after each ``await``.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct

from closeby.controllers.meters import ControllerMeters
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import unless
from closeby.kube.metrics.health import Right
from closeby.kube.state.decoding import Decoded, Decoder
from closeby.kube.state.following import Following
from closeby.kube.watch.changes import Deleted, Upserted
from closeby.kube.watch.resources import NODES, PODS, Resource, Watched
from closeby.kube.writing.leading import Lead
from closeby.kube.writing.lease import LeaseSettings
from closeby.kube.writing.work_queue import Key
from closeby.kube.writing.workers import STUCK_AFTER, Workers, Working
from closeby.objects.process import Contained, Say, collector_paused, fields_of, settle, thaw
from closeby.objects.reasons import Condition
from closeby.reading.registry import READERS

#: What is under way when the end comes gets so many seconds.
_TO_FINISH: Final = 10.0
_EVENTS_TO_FINISH: Final = 5.0


class News(Struct, frozen=True):
    """An object that appeared, changed or is gone, read once for all reconcilers."""

    resource: Resource
    #: Its key and uid; an Upserted also has the object as JSON (``raw``) and its ``version``.
    change: Upserted | Deleted
    #: The record, or what is wrong with the object; None if it is gone, or of a kind that has no reader.
    read: Decoded | Condition | None


class Reconciler(Working[Key], Protocol[Key]):
    """Keeps one thing in the cluster true."""

    @property
    def followed(self) -> tuple[Watched, ...]:
        """Kinds it follows besides nodes and pods; those that the server lacks may arrive later."""

    def observe(self, news: News) -> None:
        """Notes one change."""


class Running(Struct, frozen=True, kw_only=True):
    """How the reconcilers are run (times in seconds)."""

    #: None: there is one replica only, and it leads.
    lease: LeaseSettings | None = None
    #: What it must be allowed to do.
    needed: tuple[Right, ...] = ()
    #: Between two looks at what came, so that what belongs together is applied together.
    pause: float = 0.05
    discover_every: float = 10.0
    #: An attempt at one object that takes longer is logged, and the process is not ready meanwhile.
    stuck_after: float = STUCK_AFTER


class ControllerRunner:
    """Runs reconcilers on one cluster until it is stopped, or does not lead any more."""

    def __init__(
        self,
        transport: Transport,
        reconcilers: Sequence[Reconciler[Any]],
        running: Running,
        say: Say,
        meters: ControllerMeters | None = None,
    ) -> None:
        self._running = running
        self._say = say
        self._reconcilers = reconcilers
        self._meters = meters = meters or ControllerMeters()
        self._workers: list[Workers[Any]] = []
        for one in reconcilers:
            meters.works(one.name, one.work)
            unexpected = partial(meters.unexpected, one.name)
            self._workers.append(Workers(one, say, unexpected, running.stuck_after))
        followed = dict.fromkeys(kind for one in reconcilers for kind in one.followed)
        self._following = Following(
            transport, say, followed=followed, discover_every=running.discover_every, meters=meters
        )
        self._decoder = Decoder()
        #: Set once everything that existed at the start was listed.
        self.ready = asyncio.Event()
        self._lead = Lead(transport, running.lease, say, running.needed)
        if running.lease is not None:
            meters.leads(running.lease.name, lambda: self._lead.certain)
        self._stopping = asyncio.Event()

    @property
    def unready(self) -> str | None:
        """Why it is not ready to work, or to take over; None when it is."""
        return self._lead.rights.lacking or self._following.unready

    @property
    def stuck(self) -> str | None:
        """How many attempts do not come to an end, by controller; None if all do."""
        return "; ".join(told for one in self._workers if (told := one.stuck)) or None

    @property
    def leading(self) -> bool:
        """Whether this replica leads."""
        return self._lead.held.is_set()

    async def run(self, stop: asyncio.Event) -> ApiError | None:
        """Runs until ``stop`` is set, then lets what is under way finish.

        Returns an error if the cluster can't be talked to, or (``LEASE_LOST``) if another replica may lead.
        """
        error = await unless(stop, self._following.look)
        if stop.is_set() or error is not None:
            return error
        thaw()
        async with asyncio.TaskGroup() as tasks:
            receiving = [tasks.create_task(one) for one in (self._following.run(), self._receive())]
            keeping = [tasks.create_task(self._keep(one)) for one in self._workers]
            campaign = tasks.create_task(self._lead.campaign())
            stopped = tasks.create_task(stop.wait())
            await asyncio.wait([stopped, campaign], return_when=asyncio.FIRST_COMPLETED)
            lost = campaign.result() if campaign.done() else None
            self._say("stopping")
            self._stopping.set()
            if lost is None and keeping:
                await asyncio.wait(keeping, timeout=_TO_FINISH)
            ending = [*keeping, *receiving, stopped]
            for task in ending:
                task.cancel()
            # The lead goes last, when nothing is under way any more.
            await asyncio.wait(ending)
            within = _EVENTS_TO_FINISH if lost is None else 0.0
            await asyncio.gather(*(one.events.finish(within) for one in self._reconcilers))
            campaign.cancel()
        self._say("stopped")
        return lost

    async def _receive(self) -> None:
        while True:
            await self._following.news.wait()
            self._take_in()
            if self._following.complete and not self.ready.is_set():
                settle()
                self.ready.set()
                self._say("ready")
            await asyncio.sleep(self._running.pause)

    def _take_in(self) -> None:
        with collector_paused():
            for resource, change in self._following.take():
                if not isinstance(change, Upserted | Deleted):
                    continue
                following = [one for one in self._reconcilers if _follows(one, resource)]
                if following:
                    news = News(resource, change, self._read(resource, change))
                    for reconciler in following:
                        self._apply(reconciler, news)

    def _read(self, resource: Resource, change: Upserted | Deleted) -> Decoded | Condition | None:
        if isinstance(change, Deleted) or (resource.group, resource.kind) not in READERS:
            return None
        return self._decoder.read(resource, change)

    def _apply(self, reconciler: Reconciler[Any], news: News) -> None:
        """What one reconciler makes of one object ends nothing else, whatever it is."""
        with Contained() as applying:
            reconciler.observe(news)
        if applying.error is not None:
            self._meters.unexpected(reconciler.name)
            self._say(
                "change not applied",
                warning=True,
                controller=reconciler.name,
                object=f"{news.resource.kind}/{news.change.key}",
                **fields_of(applying.error),
            )

    async def _keep(self, workers: Workers[Any]) -> None:
        """Lets the work of one reconciler be done from when it may be until it is stopped."""
        await unless(self._stopping, self.ready.wait)
        await unless(self._stopping, self._lead.held.wait)
        await workers.run(self._stopping)


def _follows(reconciler: Reconciler[Any], resource: Resource) -> bool:
    if resource in (NODES, PODS):
        return True
    return any((one.group, one.kind) == (resource.group, resource.kind) for one in reconciler.followed)
