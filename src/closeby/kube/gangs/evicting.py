"""Ends starts that stopped in the middle for too long, where the gang asks for that (``onPartial: Evict``).

Members that a controller will recreate are evicted, so that the gang can start as a whole somewhere else.
Besides this closeby evicts pods for plans of preemption alone (``kube/preempting``).
"""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.gangs.binder import Binder
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import Reconciled
from closeby.kube.gangs.status import GangStanding
from closeby.kube.watch.resources import PODS
from closeby.kube.writing.events import Events
from closeby.kube.writing.evictions import EvictionVerdict, evict
from closeby.kube.writing.writer import Note
from closeby.objects.groups import OnPartial, PodGroup
from closeby.objects.pods import Pod
from closeby.objects.process import Contained, Reported, Say, fields_of

#: How often is looked (seconds).
_EVERY: Final = 1.0
#: Between attempts to evict one pod (seconds).
_PACE: Final = RequestPace(2.0, 60.0)
_GONE: Final = 404


class _Owner(Struct):
    controller: bool | None = None


class _Meta(Struct, rename="camel"):
    uid: str = ""
    owner_references: list[_Owner] | None = None


class _Member(Struct):
    metadata: _Meta


_read: Final = msgspec.json.Decoder(_Member).decode


class Evictor:
    """Looks after starts that do not come to their end."""

    def __init__(
        self,
        transport: Transport,
        events: Events,
        say: Say,
        binder: Binder,
        objects: GangObjects,
        may_evict: Callable[[], bool],
    ) -> None:
        """``may_evict``: whether it is this process' to evict, and what it knows may be relied upon."""
        self._transport = transport
        self._events = events
        self._say = say
        self._binder = binder
        self._starts = binder.starts
        self._may_evict = may_evict
        self._objects = objects
        #: uids of members that are not asked again: the server agreed, or no controller would recreate them.
        self._settled: set[str] = set()
        #: By uid: when a member whose eviction was refused may be asked again (monotonic seconds).
        self._refused: dict[str, tuple[Backoff, float]] = {}

        #: By gang: the fault that lasts.
        self._faults: Reported[str] = Reported()

    async def run(self) -> None:
        """Looks and evicts, until it is cancelled."""
        while True:
            self._binder.handle(Reconciled())
            unfinished = tuple(self._starts.unfinished())
            held = {pod.uid for standing in unfinished for pod, _ in standing.held}
            self._settled &= held
            keys = {standing.group.key for standing in unfinished}
            for key in {*self._faults} - keys:
                self._faults.over(key)
            self._refused = {uid: kept for uid, kept in self._refused.items() if uid in held}
            for key in keys:
                await self._look_at(key)
            await asyncio.sleep(_EVERY)

    async def _look_at(self, key: str) -> None:
        """A fault of ours with one gang does not keep us from all the others."""
        with Contained() as evicting:
            standing = self._overdue(key)
            if standing is not None:
                await self._evict(standing)
            self._faults.over(key)
        if evicting.error is not None:
            fields = fields_of(evicting.error)
            if self._faults.changes(key, fields["error"]):
                self._say("not evicted", warning=True, gang=key, **fields)

    def _overdue(self, key: str) -> GangStanding | None:
        """The gang as it stands now, if its start is to be ended; to be asked again after each ``await``."""
        standing, made = self._starts.standing(key), self._starts.plan_made(key)
        if standing is None or not standing.unfinished or standing.reduced or not made:
            return None
        if standing.group.on_partial is not OnPartial.EVICT or not self._may_evict():
            return None
        try:
            began = datetime.fromisoformat(made).timestamp()
        except ValueError:  # Another client wrote what is not a time.
            return None
        return standing if time.time() - began > standing.group.completion_timeout else None

    async def _evict(self, standing: GangStanding) -> None:
        group, leaving = standing.group, []
        now = time.monotonic()
        for pod, _ in standing.held:
            if pod.uid in self._settled or pod.uid in standing.on_the_way:
                continue
            if pod.uid in self._refused and now < self._refused[pod.uid][1]:
                continue
            recreated = await self._has_controller(pod)
            if isinstance(recreated, ApiError):
                self._not_now(group, pod, recreated)
                continue
            if not recreated:
                self._settled.add(pod.uid)
                continue
            if self._overdue(group.key) is None:
                break  # It has come to its end meanwhile, or its owner wants something else.
            evicted = await evict(self._transport, pod)
            if evicted.agreed or evicted.verdict is EvictionVerdict.GONE:
                self._settled.add(pod.uid)
                leaving += [pod.name] if evicted.agreed else []
                continue
            self._not_now(group, pod, evicted.error)
        if not leaving:
            return
        self._say("evicted", warning=True, gang=group.key, pods=len(leaving))
        found = self._objects.of(group)
        if found is None:
            return
        text = (
            f"the start was not complete within {group.completion_timeout:g} s: "
            f"{len(leaving)} members evicted, so that the gang can start over"
        )
        note = Note(reason="Evicted", action="Evicting", text=text, warning=True)
        self._events.post(found.reference, note)

    def _not_now(self, group: PodGroup, pod: Pod, error: ApiError | None) -> None:
        """The pod is asked again later."""
        backoff = self._refused[pod.uid][0] if pod.uid in self._refused else Backoff(_PACE)
        wait = backoff.next(error.retry_after if error else None)
        self._refused[pod.uid] = backoff, time.monotonic() + wait
        self._say("not evicted", warning=True, gang=group.key, pod=pod.key, error=error)

    async def _has_controller(self, pod: Pod) -> bool | ApiError:
        """Whether a controller will recreate the pod; an error when that is not known."""
        body = await self._transport.get(PODS.item(pod.namespace, pod.name))
        if isinstance(body, ApiError):
            return False if body.code == _GONE else body
        try:
            found = _read(body).metadata
        except msgspec.DecodeError:
            return False
        return found.uid == pod.uid and any(one.controller for one in found.owner_references or ())
