"""Measured traffic on a real API server with a real Prometheus: it changes, and so do decisions."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.writing.lease import LeaseSettings
from closeby.measurements.bandwidth import BandwidthReadings
from closeby.measurements.prometheus import Prometheus as Provider
from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.live import unique
from tests.kube.live_world import World, until, world
from tests.kube.scraping import scrape
from tests.measurements.real_prometheus import Exporter, Prometheus, quick_queries, scraped

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(400)]

BANDWIDTH = "network.aware.com/bandwidth"
MBIT = 1e6
#: A busy machine scrapes late, or not at all for a second or two.
QUERIES = quick_queries(rates="3s")
INSTEAD = "nodes count as using what their pods request, without swings"
#: What is told about measurements.
TURNS = ("measurements", "measurements get old", "no measurements")


class Links:
    """Two nodes with links of 1 Gbit/s, and what crosses them."""

    def __init__(self, prometheus: Prometheus, exporters: Mapping[str, Exporter]) -> None:
        self.prometheus = prometheus
        self.one, self.other = exporters
        self._exporters = exporters
        self._provider = Provider(prometheus.address, QUERIES, window=2.0)

    @property
    def nodes(self) -> list[Object]:
        return [node(name, allocatable={BANDWIDTH: "1G"}) for name in self._exporters]

    @property
    def configuration(self) -> Configuration:
        """Refused above 80 % of a link, if what crosses it is steady."""
        arguments = {
            "prometheusAddress": self.prometheus.address,
            "prometheusQueries": msgspec.to_builtins(QUERIES),
            "windowSeconds": 2,
            "refreshSeconds": 1,
            "maxAgeSeconds": 6,
            "RiskThreshold": 0.4,
        }
        return Configuration(plugins=(PluginEntry(name="CheckRiskNodeBandwidth", arguments=arguments),))

    async def carry(self, one: float, other: float) -> None:
        """So many Mbit/s cross the links from now on; waits until Prometheus says so."""
        wanted = {self.one: one, self.other: other}
        for name, mbit in wanted.items():
            self._exporters[name].carry(sent=mbit * MBIT / 2, received=mbit * MBIT)

        async def so() -> bool:
            found = await asyncio.to_thread(self._provider.read)
            return isinstance(found, BandwidthReadings) and all(
                name in found.hosts
                and found.hosts[name].average == pytest.approx(mbit * MBIT, rel=0.05)
                and found.hosts[name].deviation < 0.05 * mbit * MBIT
                for name, mbit in wanted.items()
            )

        await until(so)


@contextmanager
def links(folder: Path) -> Iterator[Links]:
    with scraped(folder, unique("one"), unique("other")) as (prometheus, exporters):
        yield Links(prometheus, exporters)


def talking(it: World, name: str, bandwidth: str = "100M") -> Object:
    made = it.pod(name, 0)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"][BANDWIDTH] = resources["limits"][BANDWIDTH] = bandwidth
    return made


def patient_lease(namespace: str) -> LeaseSettings:
    """One that a machine which stands still for seconds does not lose."""
    who = unique("replica")
    return LeaseSettings(namespace=namespace, name="closeby", identity=who, duration=100, deadline=90)


class Gauges:
    """What the scheduler says of its measurements."""

    def __init__(self) -> None:
        self.meters = SchedulerMeters("closeby")

    @property
    def missing(self) -> float:
        return sum(scrape(self.meters).all("closeby_measurements_missing").values())

    @property
    def ages(self) -> list[float]:
        return list(scrape(self.meters).all("closeby_measurements_age_seconds").values())

    @property
    def failures(self) -> float:
        return sum(scrape(self.meters).all("closeby_measurement_failures_total").values())

    async def anew(self) -> None:
        """Waits until it decides by what was measured of both nodes from now on."""
        now = time.monotonic()

        async def so() -> bool:
            told = scrape(self.meters)
            ages = told.all("closeby_measurements_age_seconds").values()
            nodes = list(told.all("closeby_measured_nodes").values())
            return nodes == [2] and all(time.monotonic() - age > now for age in ages)

        await until(so)


class Telling(World):
    """A scheduler with measurements, and how those stood at each turn that it told."""

    def __init__(self, like: World) -> None:
        super().__init__(like.api, like.transport, like.namespace, topology=like.topology)
        self.gauges = Gauges()
        self.stood: list[tuple[float, list[float]]] = []

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        super().say(message, warning=warning, **fields)
        self.stood.append((self.gauges.missing, self.gauges.ages) if message in TURNS else (-1, []))

    @property
    def turns(self) -> list[str]:
        return [message for message, _ in self.lines if message in TURNS]

    async def said_since(self, line: int, message: str) -> int:
        """Waits until the log says it after so many lines; which line it is."""
        found: list[int] = []

        async def there() -> bool:
            found[:] = [
                place for place, (text, _) in enumerate(self.lines) if place >= line and text == message
            ]
            return bool(found)

        await until(there)
        return found[0]


async def told(it: World, reason: str) -> Object:
    """Waits for the only Event with this reason, which is about the scheduler's Lease."""
    found: list[Object] = []

    async def there() -> bool:
        found[:] = await it.events(reason)
        return bool(found)

    await until(there)
    (event,) = found
    lease = await it.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{it.namespace}/leases/closeby")
    assert event["regarding"] == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "namespace": it.namespace,
        "name": "closeby",
        "uid": lease["metadata"]["uid"],
    }
    return event


def test_decisions_follow_what_is_measured(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The scheduler runs all the time. The pods that were placed ask for little beside what is measured."""

    async def run() -> None:
        with links(tmp_path) as net:
            async with world(control_plane, namespace, *net.nodes) as seen:
                it = Telling(seen)
                await net.carry(10, 900)
                async with it.scheduling(net.configuration, meters=it.gauges.meters):
                    await it.create(talking(it, "first"))
                    assert (await it.bound(1))["first"] == net.one

                    await net.carry(900, 10)
                    await it.gauges.anew()
                    await it.create(talking(it, "second"))
                    assert (await it.bound(2))["second"] == net.other

                    await net.carry(900, 900)
                    await it.gauges.anew()
                    await it.create(talking(it, "third"))
                    refusal = await it.refusal("third")
                    assert refusal.startswith("BandwidthRisk: ")
                    await it.gauges.anew()
                    await it.gauges.anew()
                    assert "third" not in await it.placed()

                    # Nothing happens but that the traffic falls.
                    await net.carry(900, 10)
                    assert (await it.bound(3))["third"] == net.other
                    # Told once; on a busy machine Prometheus may have been late, which is told as well.
                    assert it.turns[0] == "measurements"
                    assert all(one != other for one, other in pairwise(it.turns))

    asyncio.run(run())


def test_without_prometheus_measurements_get_old_and_are_dropped(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """What was measured last refuses a pod, until it is too old: then only what pods request counts."""
    lease = patient_lease(namespace)

    async def run() -> None:
        with links(tmp_path) as net:
            async with world(control_plane, namespace, *net.nodes) as seen:
                it = Telling(seen)
                gauges = it.gauges
                await net.carry(900, 900)
                async with it.scheduling(net.configuration, meters=gauges.meters, lease=lease):
                    await it.create(talking(it, "waits"))
                    await it.refusal("waits")
                    await gauges.anew()
                    assert gauges.missing == 0 and len(gauges.ages) == 1

                    stopped = len(it.lines)
                    await asyncio.to_thread(net.prometheus.stop)
                    old = await it.said_since(stopped, "measurements get old")
                    assert it.lines[old][1]["error"] and it.lines[old][1]["age"]
                    missing, ages = it.stood[old]
                    assert missing == 0 and ages[0] > 0

                    gone = await it.said_since(old, "no measurements")
                    told_then = it.lines[gone][1]
                    assert "can't be reached" in str(told_then["error"])
                    assert told_then["instead"] == INSTEAD
                    await it.bound(1)
                    # Not before.
                    assert [text for text, _ in it.lines[:gone] if text == "placed"] == []
                    assert gauges.missing == 1 and gauges.ages == []
                    assert gauges.failures >= 2
                    lost = await told(it, "MeasurementsLost")
                    assert lost["type"] == "Warning"
                    assert lost["note"].startswith("CheckRiskNodeBandwidth: http://127.0.0.1")
                    assert lost["note"].endswith(f"; {INSTEAD}")

                    await asyncio.to_thread(net.prometheus.start)
                    back_again = await it.said_since(gone, "measurements")
                    missing, ages = it.stood[back_again]
                    assert missing == 0 and len(ages) == 1
                    back = await told(it, "MeasurementsBack")
                    assert (back["type"], back["regarding"]) == ("Normal", lost["regarding"])
                    # What was measured counts again.
                    await net.carry(900, 900)
                    await gauges.anew()
                    await it.create(talking(it, "next"))
                    assert (await it.refusal("next")).startswith("BandwidthRisk: ")

    asyncio.run(run())


def test_a_scheduler_starts_without_its_source(control_plane: ControlPlane, namespace: str) -> None:
    """It says what it does instead, and schedules; also as an Event, though it came before the lead."""
    lease = patient_lease(namespace)
    arguments = {"prometheusAddress": "https://127.0.0.1:1", "insecureSkipVerify": True}
    configuration = Configuration(plugins=(PluginEntry(name="CheckRiskNodeBandwidth", arguments=arguments),))

    async def run() -> None:
        host = node(unique("n"), allocatable={BANDWIDTH: "1G"})
        async with world(control_plane, namespace, host) as it, it.scheduling(configuration, lease=lease):
            assert "Connection refused" in (await told(it, "MeasurementsLost"))["note"]
            await it.create(talking(it, "p"))
            await it.bound(1)
            (gone,) = it.said("no measurements")
            assert "Connection refused" in str(gone["error"])
            (unsafe,) = it.said("insecure measurements")
            assert unsafe["source"] == "https://127.0.0.1:1"

    asyncio.run(run())
