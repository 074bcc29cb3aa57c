"""Keeps the status of every NetworkTopology: how many nodes there are, and what talk between them costs.

The network-aware scheduling KEP's NetworkTopology controller. Costs come from latencies that a Prometheus
keeps, and are recalculated every ``freqUpdate`` minutes and when nodes come, go or move. Only status is
written; costs that users gave are theirs, in the spec of the published shape as in the status of an object
without ``metricProvider``.
"""

import asyncio
import time
from collections.abc import Hashable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.networks import Counts
from closeby.controllers.counting import COUNTS, Counting, counts_condition
from closeby.controllers.networks.memory import MeasuredCosts, Memory
from closeby.controllers.networks.settings import (
    NetworkSettings,
    PrometheusAccess,
    SettingsReading,
    read_settings,
)
from closeby.controllers.networks.status import Failure, Limit, Measurement, network_status
from closeby.controllers.networks.weights import NetworkPlace, place_of
from closeby.controllers.running import News
from closeby.controllers.statuses import Key, SeenStatus, WantedStatus, desired_status, namespace_of, seen
from closeby.kube.client.waiting import RequestPace, in_thread
from closeby.kube.state.decoding import Decoded
from closeby.kube.watch.changes import Deleted
from closeby.kube.watch.resources import NODES, Watched
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import INSISTENCE, StatusWriter
from closeby.kube.writing.work_queue import Places, WorkQueue
from closeby.kube.writing.writer import Note, Reference, Writer
from closeby.measurements.addresses import TIMEOUT, Address, read_address
from closeby.measurements.bandwidth import Cause, Unavailable
from closeby.measurements.latencies import PrometheusLatencies
from closeby.objects.applications import NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.process import Say
from closeby.objects.reasons import Condition, Reason

#: Objects that are looked at together, and those of them that ask the same server: who waits for one server
#: leaves room for who asks another.
_PLACES: Final = Places(all=16, sharing=4)
#: Reason in ``LatenciesMeasured``: the operator does not let this address be asked.
NOT_ALLOWED: Final = "AddressNotAllowed"


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds."""

    #: How long a minute of ``freqUpdate`` is; shorter only for those who can't wait.
    minute: float = 60.0
    #: Until the next attempt when nothing could be measured, unless it is due before.
    retry: float = 30.0
    #: Nodes come and go together: their changes are gathered so long.
    gathered: float = 5.0
    #: How old costs may get while nothing can be measured.
    max_age: float = 24 * 3600.0
    #: How long each word of a server's answer is waited for.
    answer: float = TIMEOUT
    #: Between two writes of the very same status.
    insistence: RequestPace = INSISTENCE


class _Known(Struct, frozen=True):
    """One object, and what it asks for."""

    it: SeenStatus
    network: NetworkTopology | Condition
    reading: SettingsReading


class NetworkTopologyController:
    """A reconciler (see ``running``)."""

    name: Final = "network-topologies"
    followed: Final = (
        Watched("scheduling.sigs.k8s.io", "NetworkTopology", ("v1alpha1",)),
        Watched("networktopology.diktyo.x-k8s.io", "NetworkTopology", ("v1alpha1",)),
    )

    def __init__(
        self,
        writer: Writer,
        say: Say,
        *,
        timing: Timing | None = None,
        prometheus: PrometheusAccess | None = None,
        counting: Counting | None = None,
    ) -> None:
        """``counting``: which costs the scheduler goes by; no others are measured.

        None: all are, and objects do not learn whether theirs count.
        """
        self._say = say
        self._scope = None if counting is None else counting.scope
        #: For whom each object counts.
        self._counts: dict[Key, Counts] = {}
        self._timing = timing or Timing()
        self._prometheus = prometheus or PrometheusAccess()
        self.events = Events(writer, say)
        #: Which server each object wants to have asked.
        self._servers: dict[Key, Hashable] = {}
        self.work: WorkQueue[Key] = WorkQueue(
            time.monotonic, namespace_of, places=_PLACES, shares=self._servers.get
        )
        self._writer = writer
        self._statuses = StatusWriter(self.work, self.events, say, insistence=self._timing.insistence)
        self._nodes: dict[str, NetworkPlace] = {}
        self._networks: dict[Key, _Known] = {}
        self._memory = Memory(is_operators=self._is_operators)
        #: Costs between many nodes take memory while they are calculated.
        self._calculating = asyncio.Lock()

    def observe(self, news: News) -> None:
        """Takes in one change."""
        if news.resource == NODES:
            self._node(news)
        elif news.resource.kind == "NetworkTopology":
            self._network((news.resource, news.change.key), news)

    def regarding(self, key: Key) -> Reference | None:
        """The NetworkTopology."""
        found = self._networks.get(key)
        return None if found is None else found.it.reference

    def _node(self, news: News) -> None:
        before = self._nodes.get(news.change.key)
        match news.read:
            case Decoded(record=Node() as node):
                self._nodes[node.name] = place_of(node)
            case None:
                self._nodes.pop(news.change.key, None)
        if self._nodes.get(news.change.key) != before:
            for key in self._networks:
                self.work.add(key, after=self._timing.gathered)

    def _network(self, key: Key, news: News) -> None:
        if isinstance(news.change, Deleted):
            self._networks.pop(key, None)
            for known in (self._servers, self._counts):
                known.pop(key, None)
            self._memory.forget(key)
            self._statuses.forget(key)
            return
        match news.read:
            case Decoded(record=NetworkTopology() as record) | (Condition() as record):
                it = seen(news.resource, news.change)
                self._counts.pop(key, None)
                if isinstance(record, NetworkTopology):
                    if self._scope is not None:
                        self._counts[key] = self._scope.counts(record)
                    # The costs in it are of no use here, and may be many.
                    record = replace(record, weight_sets=())
                # Read once: a spec may be long.
                reading = read_settings(it.key, it.spec)
                self._networks[key] = _Known(it, record, reading)
                self._servers[key] = self._server(key, reading.settings)
                self.work.add(key)

    async def reconcile(self, key: Key) -> None:
        """Measures if that is due, and brings the status of one NetworkTopology up to date."""
        found = self._networks.get(key)
        if found is None:
            return
        it, network, reading = found.it, found.network, found.reading
        measurement = None
        if reading.measured and it.is_kep:
            measured = await self._measure(key, it.uid, reading)
            measurement = measured.measurement
            self.work.add(key, after=max(0.0, measured.due - time.monotonic()))
        limit = Limit(time.time(), self._timing.max_age)
        async with self._calculating:
            nodes = dict(self._nodes)
            # Many links take long enough to keep the loop from other work: a lease, say.
            wanted = await asyncio.to_thread(network_status, it, network, reading, measurement, nodes, limit)
        latest = self._networks.get(key)
        if latest is None:
            return
        if latest.it.spec != it.spec or latest.it.uid != it.uid:
            self.work.add(key)
            return
        wanted = self._counted(key, latest.it, wanted)
        events = self._not_counted(key, latest.it)
        await self._statuses.keep(key, desired_status(self._writer, latest.it, wanted, time.time(), events))

    def _counted(self, key: Key, it: SeenStatus, wanted: WantedStatus) -> WantedStatus:
        """With the condition that says whether the object counts."""
        if self._scope is None or not it.is_kep:
            return wanted
        counts = self._counts.get(key)
        said = () if counts is None else (counts_condition(self._scope, counts),)
        return replace(wanted, conditions=(*wanted.conditions, *said), types=wanted.types | {COUNTS})

    def _not_counted(self, key: Key, it: SeenStatus) -> dict[Hashable, Note]:
        """An Event says that an object does not count: the published shape has no conditions."""
        counts = self._counts.get(key)
        if self._scope is None or counts is None or it.is_kep:
            return {}
        condition, reason = counts_condition(self._scope, counts), Reason.NETWORK_TOPOLOGY_NOT_COUNTED.value
        if condition.status != "False":
            return {}
        return {reason: Note(reason=reason, action="Reconciling", text=condition.message, warning=True)}

    def _is_operators(self, namespace: str) -> bool:
        """Whether the objects of a namespace are the operator's."""
        return self._scope is None or self._scope.is_operators(namespace)

    def _server(self, key: Key, settings: NetworkSettings) -> Hashable:
        """Which server is asked for these settings; None: none is."""
        asked = self._asked(key, settings)
        return None if isinstance(asked, Failure) else asked.origin

    def _asked(self, key: Key, settings: NetworkSettings) -> Address | Failure:
        """The address that is asked for an object, or why none is."""
        address = read_address(settings.address)
        if address is None:
            return Failure("InvalidSpec", "no usable metricProvider is given")
        asked = self._prometheus.permitted(address)
        if asked is None:
            remedy = "let the operator allow it (closeby controllers --allow-prometheus-address)"
            return Failure(
                NOT_ALLOWED,
                f"{address.url} is not an address that may be asked; {remedy} or name one that is",
            )
        # One that can't be read counts for no application.
        counts = self._counts.get(key, Counts.NOT_HERE)
        if self._scope is None or self._is_operators(namespace_of(key)) or counts is Counts.BESIDE:
            return asked
        return Failure(
            counts.value, f"its costs do not count, so nothing is measured; {self._scope.remedy(counts)}"
        )

    async def _measure(self, key: Key, uid: str, reading: SettingsReading) -> MeasuredCosts:
        """What is known of latencies, asked for if that is due."""
        settings = reading.settings
        every = settings.frequency * self._timing.minute
        asked = self._asked(key, settings)
        if isinstance(asked, Failure):
            self._memory.forget(key)
            return MeasuredCosts(uid, settings, Measurement(failure=asked), time.monotonic() + every)
        before = self._memory.get(key)
        if before is not None and (before.uid != uid or before.settings != settings):
            before = None
        if before is not None and time.monotonic() < before.due:
            return before
        known = before.measurement if before is not None else Measurement()
        new = await self._ask(key, asked, settings, known)
        wait = every if new.failure is None else min(every, self._timing.retry)
        measured = MeasuredCosts(uid, settings, new, time.monotonic() + wait)
        if key in self._networks:
            for gone in self._memory.keep(key, measured):
                self.work.add(gone)
        return self._memory.get(key) or measured

    async def _ask(
        self, key: Key, address: Address, settings: NetworkSettings, known: Measurement
    ) -> Measurement:
        provider = PrometheusLatencies(
            address.url,
            minutes=settings.time_range,
            metric=settings.metric,
            access=self._prometheus.access_to(settings, operators=self._is_operators(namespace_of(key))),
            timeout=self._timing.answer,
        )
        # Some reporters put underscores in the places of dots.
        names = self._nodes.keys() | {name.replace(".", "_") for name in self._nodes}
        answer = await in_thread("asking for latencies", lambda: provider.read(names))
        failed = known.failure is not None
        if isinstance(answer, Unavailable):
            if not failed:
                # What the server said is for the operator alone.
                why = answer.sentence()
                self._say("no latencies", warning=True, object=f"NetworkTopology/{key[1]}", error=why)
            failure = Failure("NoLatencies", _told(address, provider.query, answer.cause))
            return Measurement(latencies=known.latencies, time=known.time, failure=failure)
        if failed:
            self._say("latencies recovered", object=f"NetworkTopology/{key[1]}")
        return Measurement(latencies=answer, time=time.time())


def _told(address: Address, query: str, cause: Cause) -> str:
    """Why there are no latencies, without a word of what the server said, or of files of the controller."""
    if cause is Cause.EMPTY:
        return f"{address.url} has no latencies for {query}; do the probes run?"
    return f"{address.url} {cause.value}; the log of closeby's controllers says more"
