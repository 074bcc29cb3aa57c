"""Measured traffic on a real API server with a real Prometheus: it changes, and so do decisions."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.writing.lease import LeaseSettings
from closeby.measurements.bandwidth import BandwidthReadings
from closeby.measurements.prometheus import Prometheus as Provider
from closeby.objects.configuration import Configuration, PluginEntry
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.live import unique
from tests.kube.live_world import World, until, world
from tests.kube.scraping import scrape
from tests.measurements.real_prometheus import Exporter, Prometheus, quick_queries, scraped

pytestmark = [pytest.mark.live, pytest.mark.slow]

BANDWIDTH = "network.aware.com/bandwidth"
MBIT = 1e6


class Links:
    """Two nodes with links of 1 Gbit/s, and what crosses them."""

    def __init__(self, prometheus: Prometheus, exporters: Mapping[str, Exporter]) -> None:
        self.prometheus = prometheus
        self.one, self.other = exporters
        self._exporters = exporters
        self._provider = Provider(prometheus.address, quick_queries(), window=2.0)

    @property
    def nodes(self) -> list[Object]:
        return [node(name, allocatable={BANDWIDTH: "1G"}) for name in self._exporters]

    @property
    def configuration(self) -> Configuration:
        """Refused above 80 % of a link, if what crosses it is steady."""
        arguments = {
            "prometheusAddress": self.prometheus.address,
            "prometheusQueries": msgspec.to_builtins(quick_queries()),
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


async def said(it: World, message: str, times: int = 1) -> list[dict[str, object]]:
    """Waits until the log says it so often."""

    async def enough() -> bool:
        return len(it.said(message)) >= times

    await until(enough)
    found = it.said(message)
    assert len(found) == times
    return found


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
            async with world(control_plane, namespace, *net.nodes) as it:
                await net.carry(10, 900)
                async with it.scheduling(net.configuration):
                    await it.create(talking(it, "first"))
                    assert (await it.bound(1))["first"] == net.one

                    await net.carry(900, 10)
                    await asyncio.sleep(2.5)
                    await it.create(talking(it, "second"))
                    assert (await it.bound(2))["second"] == net.other

                    await net.carry(900, 900)
                    await asyncio.sleep(2.5)
                    await it.create(talking(it, "third"))
                    refusal = await it.refusal("third")
                    assert refusal.startswith("BandwidthRisk: ")
                    await asyncio.sleep(2.5)
                    assert "third" not in await it.placed()

                    # Nothing happens but that the traffic falls.
                    await net.carry(900, 10)
                    assert (await it.bound(3))["third"] == net.other
                    assert len(it.said("measurements")) == 1
                    assert it.said("no measurements") == it.said("measurements get old") == []

    asyncio.run(run())


def test_without_prometheus_measurements_get_old_and_are_dropped(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """What was measured last refuses a pod, until it is too old: then only what pods request counts."""
    meters = SchedulerMeters("closeby")
    lease = LeaseSettings(namespace=namespace, name="closeby", identity=unique("replica"))

    def missing() -> float:
        return sum(scrape(meters).all("closeby_measurements_missing").values())

    def ages() -> list[float]:
        return list(scrape(meters).all("closeby_measurements_age_seconds").values())

    async def run() -> None:
        with links(tmp_path) as net:
            async with world(control_plane, namespace, *net.nodes) as it:
                await net.carry(900, 900)
                async with it.scheduling(net.configuration, meters=meters, lease=lease):
                    await it.create(talking(it, "waits"))
                    await it.refusal("waits")
                    assert missing() == 0 and len(ages()) == 1
                    assert list(scrape(meters).all("closeby_measured_nodes").values()) == [2]

                    await asyncio.to_thread(net.prometheus.stop)
                    (old,) = await said(it, "measurements get old")
                    assert "can't be reached" in str(old["error"]) and old["age"]
                    assert missing() == 0 and ages()[0] > 0
                    assert "waits" not in await it.placed()

                    began = time.monotonic()
                    (gone,) = await said(it, "no measurements")
                    assert gone["instead"] == "nodes count as using what their pods request, without swings"
                    assert time.monotonic() - began < 7
                    await it.bound(1)
                    assert missing() == 1 and ages() == []
                    assert sum(scrape(meters).all("closeby_measurement_failures_total").values()) >= 2
                    lost = await told(it, "MeasurementsLost")
                    assert lost["type"] == "Warning"
                    assert lost["note"].startswith("CheckRiskNodeBandwidth: http://127.0.0.1")
                    assert lost["note"].endswith(
                        "; nodes count as using what their pods request, without swings"
                    )

                    await asyncio.to_thread(net.prometheus.start)
                    await said(it, "measurements", 2)
                    assert missing() == 0 and len(ages()) == 1
                    back = await told(it, "MeasurementsBack")
                    assert (back["type"], back["regarding"]) == ("Normal", lost["regarding"])
                    # What was measured counts again.
                    await net.carry(900, 900)
                    await asyncio.sleep(2.5)
                    await it.create(talking(it, "next"))
                    assert (await it.refusal("next")).startswith("BandwidthRisk: ")

    asyncio.run(run())


def test_a_scheduler_starts_without_its_source(control_plane: ControlPlane, namespace: str) -> None:
    """It says what it does instead, and schedules; also as an Event, though it came before the lead."""
    lease = LeaseSettings(namespace=namespace, name="closeby", identity=unique("replica"))
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
            (unsafe,) = it.said("measured unsafely")
            assert unsafe["source"] == "https://127.0.0.1:1"

    asyncio.run(run())
