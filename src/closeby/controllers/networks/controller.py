"""Keeps the status of every NetworkTopology: how many nodes there are, and what talk between them costs.

The network-aware scheduling KEP's NetworkTopology controller. Costs come from latencies that a Prometheus
keeps, and are calculated anew every ``freqUpdate`` minutes and when nodes come, go or move. Only status is
written; costs that users gave are theirs, in the spec of the published shape as in the status of an object
without ``metricProvider``.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Final

from msgspec import Struct

from closeby.controllers.networks.settings import (
    Acquaintance,
    Settings,
    SettingsReading,
    origin,
    read_settings,
)
from closeby.controllers.networks.status import Failure, Limit, Measurement, is_kep, network_status
from closeby.controllers.networks.weights import Place, place_of
from closeby.controllers.running import News
from closeby.controllers.statuses import INSISTENCE, Key, Seen, StatusKeeper, namespace_of, seen
from closeby.controllers.work import Places, Work
from closeby.kube.client.backoff import Pace
from closeby.kube.client.saying import Say
from closeby.kube.client.threads import in_thread
from closeby.kube.state.decoding import Decoded
from closeby.kube.watch.changes import Deleted
from closeby.kube.watch.resources import NODES, Watched
from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import Reference, Writer
from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.fetching import TIMEOUT
from closeby.measurements.latencies import PrometheusLatencies
from closeby.objects.networks import NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition

#: Objects that are looked at together, and those of them that ask the same server: who waits for one server
#: leaves room for who asks another.
_PLACES: Final = Places(all=16, sharing=4)


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


class _Measured(Struct, frozen=True):
    """What was measured for one object."""

    uid: str
    settings: Settings
    measurement: Measurement
    #: When it is to be measured again, by the clock that never goes back.
    due: float


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
        acquaintance: Acquaintance | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        insistence: Pace = INSISTENCE,
    ) -> None:
        """``clock`` never goes back, ``now`` is in seconds since the epoch."""
        self._say = say
        self._timing = timing or Timing()
        self._acquaintance = acquaintance or Acquaintance()
        self._clock = clock
        self._now = now
        self.events = Events(writer, say)
        #: Which server each object wants to have asked.
        self._servers: dict[Key, Hashable] = {}
        self.work: Work[Key] = Work(clock, namespace_of, places=_PLACES, shares=self._servers.get)
        self._keeper = StatusKeeper(writer, say, self.work, clock, insistence)
        self._nodes: dict[str, Place] = {}
        self._networks: dict[Key, tuple[Seen, NetworkTopology | Condition]] = {}
        self._measured: dict[Key, _Measured] = {}

    def heard(self, news: News) -> None:
        """Takes in one change."""
        if news.resource == NODES:
            self._node(news)
        elif news.resource.kind == "NetworkTopology":
            self._network((news.resource, news.change.key), news)

    def regarding(self, key: Key) -> Reference | None:
        """The NetworkTopology."""
        found = self._networks.get(key)
        return None if found is None else found[0].reference

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
            for known in (self._networks, self._measured, self._servers):
                known.pop(key, None)
            self._keeper.forget(key)
            self.work.forget(key)
            return
        match news.read:
            case Decoded(record=NetworkTopology() as record) | (Condition() as record):
                it = seen(news.resource, news.change)
                self._networks[key] = it, record
                self._servers[key] = origin(read_settings(it.key, it.spec).settings.address)
                self.work.add(key)

    async def reconcile(self, key: Key) -> None:
        """Measures if that is due, and brings the status of one NetworkTopology up to date."""
        found = self._networks.get(key)
        if found is None:
            return
        it, network = found
        reading = read_settings(it.key, it.spec)
        measurement = None
        if reading.measured and is_kep(it):
            measured = await self._measure(key, it.uid, reading)
            measurement = measured.measurement
            self.work.add(key, after=max(0.0, measured.due - self._clock()))
        # Many links take long enough to keep the loop from other work: a lease, say.
        limit = Limit(self._now(), self._timing.max_age)
        nodes = dict(self._nodes)
        wanted = await asyncio.to_thread(network_status, it, network, reading, measurement, nodes, limit)
        latest = self._networks.get(key)
        if latest is None:
            return
        if latest[0].spec != it.spec or latest[0].uid != it.uid:
            self.work.add(key)
            return
        await self._keeper.keep(latest[0], wanted, self._now())

    async def _measure(self, key: Key, uid: str, reading: SettingsReading) -> _Measured:
        """What is known of latencies, asked for if that is due."""
        settings = reading.settings
        before = self._measured.get(key)
        if before is not None and (before.uid != uid or before.settings != settings):
            before = None
        if before is not None and self._clock() < before.due:
            return before
        known = before.measurement if before is not None else Measurement()
        every = settings.frequency * self._timing.minute
        if settings.address:
            new = await self._ask(key, settings, known)
        else:
            new = Measurement(failure=Failure("InvalidSpec", "no usable metricProvider is given"))
        wait = every if new.failure is None or not settings.address else min(every, self._timing.retry)
        measured = _Measured(uid, settings, new, self._clock() + wait)
        if key in self._networks:
            self._measured[key] = measured
        return measured

    async def _ask(self, key: Key, settings: Settings, known: Measurement) -> Measurement:
        provider = PrometheusLatencies(
            settings.address,
            minutes=settings.time_range,
            metric=settings.metric,
            access=self._acquaintance.access_to(settings),
            timeout=self._timing.answer,
        )
        answer = await in_thread("asking for latencies", provider.read)
        failed = known.failure is not None
        if isinstance(answer, Unavailable):
            if not failed:
                why = answer.sentence()
                self._say("no latencies", warning=True, object=f"NetworkTopology/{key[1]}", error=why)
            failure = Failure("NoLatencies", answer.sentence())
            return Measurement(latencies=known.latencies, time=known.time, failure=failure)
        if failed:
            self._say("latencies again", object=f"NetworkTopology/{key[1]}")
        return Measurement(latencies=answer, time=self._now())
