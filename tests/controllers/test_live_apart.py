"""What goes wrong with one object, or takes long, leaves the others alone: on a real API server."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

import msgspec

from closeby.controllers.networks.settings import NetworkSettings
from closeby.controllers.running import News
from closeby.measurements.addresses import Access, Address
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.controllers.at_work import Site, site
from tests.controllers.listening import GROUPS, Listener
from tests.controllers.networks import HOSTS, Neighbours, answering, condition, controller, costs, spec
from tests.kube.live import create_pods, eventually
from tests.kube.scraping import scrape
from tests.measurements.serving import serving

NAME = "network-topologies"


class Trickle:
    """A server that takes connections and never comes to the end of its answer."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        #: Connections so far, and those that are open.
        self.taken = 0
        self._open: list[socket.socket] = []
        self._end = threading.Event()

    @property
    def open(self) -> int:
        return len(self._open)

    @contextmanager
    def running(self) -> Iterator["Trickle"]:
        """It does so inside the context, and then breaks all off."""
        threads = [threading.Thread(target=one) for one in (self._accept, self._drip)]
        for one in threads:
            one.start()
        try:
            yield self
        finally:
            self._end.set()
            self._listening.shutdown(socket.SHUT_RDWR)
            for one in threads:
                one.join()
            self._listening.close()
            for connected in self._open:
                connected.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                with suppress(OSError):  # Somebody may have left already.
                    connected.sendall(b"HTTP/1.1 200 OK\r\n")
                self._open.append(connected)
                self.taken += 1

    def _drip(self) -> None:
        """One header after the other, so that no word is waited for long."""
        while not self._end.wait(0.5):
            for connected in tuple(self._open):
                try:
                    connected.sendall(b"X-More: to come\r\n")
                except OSError:
                    connected.close()
                    self._open.remove(connected)


class Faulty(Neighbours, frozen=True):
    """What knows a server that brings a fault of ours to light, and when that happened."""

    stumbles: list[float] = msgspec.field(default_factory=list)

    def permitted(self, address: Address) -> Address | None:
        return address

    def access_to(self, settings: NetworkSettings, *, operators: bool) -> Access:
        if "faulty" in settings.address:
            self.stumbles.append(time.monotonic())
            raise ZeroDivisionError("nobody thought of this")
        return super().access_to(settings, operators=operators)


def test_a_server_that_never_ends_its_answer_keeps_only_those_waiting_who_ask_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    """There are more of them than are asked together, and they were there first."""

    async def run() -> None:
        async with site(control_plane, namespace, *HOSTS) as it, it.running(controller(it)) as meters:
            with Trickle().running() as slow, serving(answering(("x-1", "y-1", 5.0))) as address:
                for number in range(20):
                    await it.create("networktopologies", f"slow-{number}", spec(slow.address))
                await eventually(lambda: asyncio.sleep(0, slow.taken == 4))
                await it.create("networktopologies", "good", spec(address))
                first = await it.until("networktopologies", "good", costs)
                # Again and again, and what it asks for is heard at once.
                await it.until(
                    "networktopologies",
                    "good",
                    lambda one: one["weightCalculationTime"] > first["weightCalculationTime"],
                )
                await it.api.patch(it.path("networktopologies", "good"), {"spec": {"freqUpdate": 5000}})
                await it.until(
                    "networktopologies", "good", lambda one: condition(one, "Valid")["status"] == "False"
                )
                # All that went by while the same four wait, and nobody else waits for that server.
                assert (slow.taken, slow.open) == (4, 4)

                async def others_wait() -> bool:
                    # Another one that is due goes first.
                    return scrape(meters).value("workqueue_depth", name=NAME) == 16

                await eventually(others_wait)
                longest = scrape(meters).value("workqueue_longest_running_processor_seconds", name=NAME)
                assert longest is not None and longest > 0

    asyncio.run(run())


def test_one_object_is_not_looked_after_twice_at_once(control_plane: ControlPlane, namespace: str) -> None:
    """Its spec changes while its server is waited for, and so do the nodes."""

    async def run() -> None:
        async with site(control_plane, namespace, *HOSTS) as it, it.running(controller(it)):
            with Trickle().running() as slow:
                await it.create("networktopologies", "net", spec(slow.address))
                await eventually(lambda: asyncio.sleep(0, slow.taken == 1))
                for minutes in range(2, 8):
                    change = {"spec": {"timeRangeInMinutes": minutes}}
                    await it.api.patch(it.path("networktopologies", "net"), change)
                    await asyncio.sleep(0.2)
                assert slow.taken == 1
            # It breaks off; what is asked for now counts.
            with serving(answering(("x-1", "y-1", 5.0))) as address:
                mended = {"spec": {"metricProvider": {"address": address}}}
                await it.api.patch(it.path("networktopologies", "net"), mended)
                await it.until("networktopologies", "net", costs)

    asyncio.run(run())


def test_an_unexpected_error_is_logged_and_retried_and_ends_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    faulty = Faulty()

    async def run() -> None:
        async with (
            site(control_plane, namespace, *HOSTS) as it,
            it.running(controller(it, prometheus=faulty)) as meters,
        ):
            with serving(answering(("x-1", "y-1", 5.0))) as address:
                await it.create("networktopologies", "bad", spec("http://faulty"))
                await it.create("networktopologies", "good", spec(address))
                await it.until("networktopologies", "good", costs)
                await eventually(lambda: asyncio.sleep(0, len(it.said("reconcile failed")) >= 3))
                for one in it.said("reconcile failed"):
                    assert one["controller"] == NAME
                    assert str(one["object"]) == f"NetworkTopology/{namespace}/bad"
                    assert "ZeroDivisionError: nobody thought of this" in str(one["error"])
                    assert "in access_to" in str(one["traceback"])
                waits = [float(str(one["retry_in"]).removesuffix("s")) for one in it.said("reconcile failed")]
                assert waits[0] <= 1.0 <= waits[1] <= 2.0 <= waits[2] <= 4.0
                count = scrape(meters).value("closeby_reconcile_errors_total", controller=NAME)
                assert count is not None and count >= 3
                await tells_once(it, "bad")

                # The pause is kept; then what was mended counts.
                change = {"spec": {"metricProvider": {"address": address}}}
                await it.api.patch(it.path("networktopologies", "bad"), change)
                await it.until("networktopologies", "bad", costs)
                mended = time.monotonic()
                waits = [float(str(one["retry_in"]).removesuffix("s")) for one in it.said("reconcile failed")]
                attempts = pairwise((*faulty.stumbles, mended))
                # They are told to a tenth of a second.
                assert all(
                    after - before > wait - 0.1 for (before, after), wait in zip(attempts, waits, strict=True)
                )

    asyncio.run(run())


def test_a_new_object_of_the_same_name_gets_its_status_too(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def told(it: Site) -> bool:
        found: Object = await it.api.get(it.path("networktopologies", "bad"))
        uid = found["metadata"]["uid"]
        return any(event["regarding"]["uid"] == uid for event in await it.events("NotReconciled"))

    async def run() -> None:
        async with (
            site(control_plane, namespace, *HOSTS) as it,
            it.running(controller(it, prometheus=Faulty())),
        ):
            for _ in range(2):
                await it.create("networktopologies", "bad", spec("http://faulty"))
                await eventually(lambda: told(it))
                await it.api.delete(it.path("networktopologies", "bad"))

    asyncio.run(run())


async def tells_once(it: Site, name: str) -> None:
    found: list[Object] = []

    async def there() -> bool:
        found[:] = await it.events("NotReconciled")
        return bool(found)

    await eventually(there)
    (event,) = found
    assert (event["type"], event["action"]) == ("Warning", "Reconciling")
    bad: Object = await it.api.get(it.path("networktopologies", name))
    assert event["regarding"]["uid"] == bad["metadata"]["uid"]
    assert "a fault of closeby: ZeroDivisionError: nobody thought of this" in event["note"]


class HardOfHearing(Listener):
    """One that stumbles over a pod of this name."""

    def observe(self, news: News) -> None:
        if news.change.key.endswith("/p1"):
            raise KeyError("p1")
        super().observe(news)


def test_a_change_that_cannot_be_applied_does_not_hold_up_others(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with site(control_plane, namespace, node("w1")) as it:
            hard = HardOfHearing(it.transport, namespace, GROUPS)
            fine = Listener(it.transport, namespace)
            async with it.running(hard, fine) as meters:
                await create_pods(it.api, namespace, 3)
                await eventually(lambda: asyncio.sleep(0, set(fine.names("Pod")) == {"+p0", "+p1", "+p2"}))
                assert set(hard.names("Pod")) == {"+p0", "+p2"}
                one, *_ = it.said("change not applied")
                assert (one["controller"], one["object"]) == (hard.name, f"Pod/{namespace}/p1")
                assert "KeyError: 'p1'" in str(one["error"]) and "in observe" in str(one["traceback"])
                count = scrape(meters).value("closeby_reconcile_errors_total", controller=hard.name)
                assert count is not None and count >= 1

    asyncio.run(run())
