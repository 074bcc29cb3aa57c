"""Starts of gangs on a real API server: the plan before the first binding, a process that ends in the middle,
what the PodGroup says meanwhile, and who leads.
"""

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from closeby.kube.scheduler.live import LiveScheduler
from closeby.kube.writing.lease import LeaseSettings
from closeby.objects.pods import Pod
from closeby.scheduling.placing.deciding import CycleResult, Decider
from tests.control_plane.api import Api, Object
from tests.control_plane.clouds import binds_with_labels
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live import through_proxy
from tests.kube.live_world import (
    behind_proxy,
    condition,
    group_of,
    host,
    planned,
    replica,
    until,
    until_said,
    world,
)

#: Two racks that hold the gang of eight; nothing but the plan says which nodes of a rack it takes.
HOSTS = [host(f"r{rack}-{i}", f"r{rack}", 4) for rack in range(2) for i in range(3)]
#: Looks, at least 2 s apart, by which one that stands by finds out that a Lease of 15 s has run out: one may
#: be on the way, one sees the last renewal, and eight more. A busy machine takes its time, not more looks.
LOOKS = 10
#: Renewals, at least 2 s apart, that are tried in the 10 s after which a leader gives up.
RENEWALS = 5
#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


def logged(folder: Path) -> str:
    """What the only replica has logged."""
    (file,) = folder.glob("log*.txt")
    return file.read_text()


class TestThePlan:
    def test_it_stands_before_the_first_binding_and_goes_after_the_last(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        plans: list[dict[str, str]] = []

        async def run() -> None:
            async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):

                async def look() -> None:
                    plans.append(planned(await group_of(it, "g")))

                proxy.before("POST", "/binding", look)
                # All members are there first: a gang that waits for some is told so, which is a patch more.
                await it.gang("g", 8, required="rack")
                async with it.scheduling():
                    placed = await it.bound(8)
                    assert plans == [placed]
                    said = await until_said(it, "g", "Placed")
                    group = await group_of(it, "g")
                rack = next(iter(placed.values())).partition("-")[0]
                assert (said["status"], said["message"]) == ("True", f"8 members are placed in z1/{rack}")
                assert said["observedGeneration"] == 1
                assert (group["status"]["scheduled"], group["status"]["domain"]) == (8, f"z1/{rack}")
                assert "plan" not in group["status"]
                # One for the plan, one for the end; one between where the bindings take long.
                assert proxy.count("PATCH", "/podgroups/g/status") in (2, 3)

        asyncio.run(run())

    def test_without_it_nothing_is_bound(self, control_plane: ControlPlane, namespace: str) -> None:
        async def run() -> None:
            async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), it.scheduling():
                refused: list[int] = []

                async def count() -> None:
                    refused.append(proxy.count("PATCH", "/podgroups/g/status"))

                proxy.inject("PATCH", "/podgroups/g/status", Refuse(503), times=9)
                proxy.before("POST", "/binding", count)
                await it.gang("g", 4, required="rack")
                await it.bound(4)
                # The first binding came after a plan that was not refused.
                assert refused[0] > 9

        asyncio.run(run())

    def test_single_pods_and_late_members_need_none(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        async def run() -> None:
            async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
                groups = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups"
                version = (await it.api.get(groups))["metadata"]["resourceVersion"]
                await it.gang("one", 1)
                await it.bound(1)
                await until_said(it, "one", "Placed")
                await it.create(it.pod("one-late", gang="one"))
                await it.bound(2)
                said: list[Object] = []
                async with asyncio.timeout(60):
                    async for kind, group in it.api.watch(groups, version):
                        if kind == "MODIFIED":
                            said.append(group["status"])
                            if said[-1]["scheduled"] == 2:
                                break
                assert [status for status in said if "plan" in status] == []

        asyncio.run(run())


class TestConditions:
    def test_a_gang_that_waits_says_why_once(self, control_plane: ControlPlane, namespace: str) -> None:
        async def run() -> None:
            hosts = [host("n1", "r1", 2), host("n2", "r2", 3)]
            async with world(control_plane, namespace, *hosts) as it, it.scheduling():
                await it.gang("wide", 4, required="rack")
                said = await until_said(it, "wide", "TopologyPlacementFailed")
                assert said["status"] == "False"
                assert "no rack of topology" in said["message"]
                version = (await group_of(it, "wide"))["metadata"]["resourceVersion"]
                async with joined(it.api, [host("small", "r3", 1)]):
                    await asyncio.sleep(2.0)
                assert (await group_of(it, "wide"))["metadata"]["resourceVersion"] == version
                async with joined(it.api, [host("n3", "r2", 3)]):
                    await it.bound(4)
                    assert (await until_said(it, "wide", "Placed"))["status"] == "True"

        asyncio.run(run())

    def test_a_problem_is_a_condition_until_it_is_corrected(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        async def run() -> None:
            async with world(control_plane, namespace, host("n1")) as it, it.scheduling() as scheduler:
                constraint = {"topology": "nowhere", "preferredTopologyLevel": "rack"}
                await it.declare_group("g", {"minMember": 2, "topologyConstraint": constraint})
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
                await it.bound(2)
                said = await until_said(it, "g", "TopologyNotFound", "Valid")
                assert said["status"] == "False"
                assert "nowhere" in said["message"]
                await it.change_group("g", {"spec": {"topologyConstraint": None}})
                await until(lambda: _mended(scheduler))
                await it.create(it.pod("g-late", gang="g"))
                said = await until_said(it, "g", "Valid", "Valid")
                assert said["status"] == "True"

        async def _mended(scheduler: LiveScheduler) -> bool:
            return scheduler.engine.state.groups[f"{namespace}/g"].constraint is None

        asyncio.run(run())

    def test_conditions_of_others_are_left_alone(self, control_plane: ControlPlane, namespace: str) -> None:
        async def run() -> None:
            async with world(control_plane, namespace, host("n1")) as it, it.scheduling():
                await it.create_group("g", 2)
                path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/g/status"
                theirs = {"type": "Mine", "status": "True", "reason": "R", "message": "m"}
                theirs["lastTransitionTime"] = "2026-01-01T00:00:00Z"
                await it.api.patch(path, {"status": {"conditions": [theirs]}}, kind="merge")
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
                await it.bound(2)
                await until_said(it, "g", "Placed")
                assert (await condition(it, "g", "Mine"))["message"] == "m"

        asyncio.run(run())


def hold_back(proxy: Proxy, namespace: str, *members: int) -> None:
    """The server does not answer to the bindings of these members."""
    for member in members:
        proxy.inject("POST", f"/{namespace}/pods/g-{member}/binding", Refuse(503), times=1000)


class TestTheEndOfAProcess:
    @pytest.mark.parametrize("bound", [0, 1, 7])
    def test_the_next_one_carries_the_start_on(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path, bound: int
    ) -> None:
        """Killed after so many of eight bindings: each of the others goes where it was promised to."""

        async def run() -> None:
            async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
                hold_back(proxy, namespace, *range(bound, 8))
                async with replica(it, proxy, tmp_path, "--no-leader-elect") as process:
                    await it.gang("g", 8, required="rack")

                    async def begun() -> bool:
                        promised = planned(await group_of(it, "g"))
                        return len(promised) == 8 and len(await it.placed()) == bound

                    await until(begun)
                    promised = planned(await group_of(it, "g"))
                    process.send_signal(signal.SIGKILL)
                    await asyncio.to_thread(process.wait)
                proxy.forgive()
                async with replica(it, proxy, tmp_path, "--no-leader-elect"):
                    assert await it.bound(8) == promised
                    await until_said(it, "g", "Placed")
                    assert "plan" not in (await group_of(it, "g"))["status"]
                    pods = await it.pods()
                if await binds_with_labels(it.api):
                    ranks = [one["metadata"]["labels"]["closeby.dev/rank"] for one in pods.values()]
                    assert sorted(ranks, key=int) == [str(i) for i in range(8)]

        asyncio.run(run())

    def test_whose_place_is_taken_meanwhile_stays_in_the_domain(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        async def run() -> None:
            async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
                hold_back(proxy, namespace, 6, 7)
                async with replica(it, proxy, tmp_path, "--no-leader-elect"):
                    await it.gang("g", 8, required="rack")
                    first = await it.bound(6)
                    promised = planned(await group_of(it, "g"))
                node = promised["g-7"]
                await it.create(it.pod("thief", 1, schedulerName="nobody"))
                binding = {"metadata": {"name": "thief"}, "target": {"kind": "Node", "name": node}}
                await it.api.create(f"/api/v1/namespaces/{namespace}/pods/thief/binding", binding)
                proxy.forgive()
                async with replica(it, proxy, tmp_path, "--no-leader-elect"):
                    placed = await it.bound(9)
                del placed["thief"]
                assert {name: placed[name] for name in first} == first
                assert len({one.partition("-")[0] for one in placed.values()}) == 1
                assert Counter(placed.values())[node] == 3

        asyncio.run(run())

    def test_a_fully_bound_gang_is_reported_as_scheduled(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """Killed between the last binding and the word that all is well."""

        async def run() -> None:
            async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):

                async def no_more() -> None:
                    proxy.inject("PATCH", "/podgroups/g/status", Refuse(503), times=1000)

                proxy.before("POST", "/binding", no_more)
                async with replica(it, proxy, tmp_path, "--no-leader-elect"):
                    await it.gang("g", 4, required="rack")
                    await it.bound(4)
                assert len(planned(await group_of(it, "g"))) == 4
                proxy.forgive()
                async with replica(it, proxy, tmp_path, "--no-leader-elect"):
                    await until_said(it, "g", "Placed")
                    assert "plan" not in (await group_of(it, "g"))["status"]

        asyncio.run(run())


async def leader_of(api: Api, namespace: str) -> str:
    """Who holds the Lease of the replicas there; empty when nobody does."""
    found = await api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    return next((one["spec"].get("holderIdentity") or "" for one in found["items"]), "")


async def stands_by(proxy: Proxy) -> bool:
    """Whether the replica behind it hears of gangs and looks at the Lease."""
    return proxy.count("WATCH", "/podgroups") > 0 and proxy.count("GET", "/leases/") > 0


def looks_until_it_leads(proxy: Proxy) -> list[int]:
    """Gets the looks at the Lease of the replica behind it, up to when that writes itself into it."""
    looks: list[int] = []

    async def count() -> None:
        looks.append(proxy.count("GET", "/leases/"))

    proxy.before("PUT", "/leases/", count)
    return looks


class TestTwoReplicas:
    def test_the_other_goes_on_when_the_leader_is_killed_in_the_middle(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        async def run() -> None:
            async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
                access = control_plane.access()
                async with (
                    through_proxy(access) as (other_proxy, _),
                    replica(it, proxy, tmp_path) as first,
                ):
                    await until(lambda: leader_of(it.api, namespace))
                    async with replica(it, other_proxy, tmp_path):
                        hold_back(proxy, namespace, 3, 4, 5, 6, 7)
                        await it.gang("g", 8, required="rack")
                        await it.bound(3)
                        promised = planned(await group_of(it, "g"))
                        # The one that stands by hears of it all, and writes nothing.
                        await until(lambda: stands_by(other_proxy))
                        assert other_proxy.count("POST", "/binding") == 0
                        assert other_proxy.count("PATCH", "") == 0
                        before = other_proxy.count("GET", "/leases/")
                        looks = looks_until_it_leads(other_proxy)
                        first.send_signal(signal.SIGKILL)
                        placed = await it.bound(8)
                        assert placed == promised
                        assert looks[0] - before <= LOOKS
                        # No binding was sent twice: three by the first, five by the other.
                        assert other_proxy.count("POST", "/binding") == 5
                        await until_said(it, "g", "Placed")

        asyncio.run(run())

    def test_a_leader_that_ends_in_peace_hands_over_at_once(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        async def run() -> None:
            async with (
                behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
                through_proxy(control_plane.access()) as (other_proxy, _),
                replica(it, proxy, tmp_path) as first,
            ):
                await it.gang("a", 2)
                await it.bound(2)
                leader = await leader_of(it.api, namespace)
                async with replica(it, other_proxy, tmp_path):
                    await until(lambda: stands_by(other_proxy))
                    looks = looks_until_it_leads(other_proxy)
                    first.send_signal(signal.SIGTERM)
                    assert await asyncio.to_thread(first.wait) == 0
                    before = other_proxy.count("GET", "/leases/")
                    assert await leader_of(it.api, namespace) != leader
                    await it.gang("b", 2)
                    await it.bound(4)
                    # Its next look tells it; one may have been on the way before.
                    assert looks[0] - before <= 2

        asyncio.run(run())

    def test_a_leader_that_is_cut_off_stops_writing_and_stands_by(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """The same process leads again once it can, and takes up what has come meanwhile."""

        async def run() -> None:
            async with (
                behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
                replica(it, proxy, tmp_path) as first,
            ):

                def writes() -> int:
                    return proxy.count("POST", "") + proxy.count("PATCH", "")

                async def stands_by_again() -> bool:
                    return "waiting for leadership" in logged(tmp_path).partition("leadership lost")[2]

                await it.gang("a", 2)
                await it.bound(2)
                before = proxy.count("PUT", "/leases/")
                proxy.inject("PUT", "/leases/", Refuse(503), times=1000)
                await until(stands_by_again)
                # Before another one may lead.
                assert proxy.count("PUT", "/leases/") - before <= RENEWALS + 1
                written = writes()
                await it.gang("b", 2)
                await asyncio.sleep(1.0)
                assert writes() == written
                proxy.forgive()
                await it.bound(4)
                assert first.poll() is None

        asyncio.run(run())

    def test_an_outage_of_the_api_server_ends_no_process(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """What came meanwhile is bound by the process that led before; it waits for the server inside."""
        times = ("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s")

        async def run() -> None:
            async with (
                behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
                replica(it, proxy, tmp_path, *times, "--leader-elect-retry-period=0.5s") as only,
            ):

                async def waits() -> bool:
                    return "waiting for the API server" in logged(tmp_path).partition("leadership lost")[2]

                await it.gang("a", 2)
                await it.bound(2)
                proxy.chance = lambda method, path: Refuse(503)
                proxy.cut_streams()
                await it.gang("b", 2)
                await until(waits)
                proxy.forgive()
                await it.bound(4)
                assert only.poll() is None

        asyncio.run(run())

    def test_a_decision_that_takes_long_does_not_cost_the_lead(
        self, control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The event loop stands still for longer than the Lease is valid."""
        lease = LeaseSettings(
            namespace=namespace, name="slow", identity="thinker", duration=8, deadline=6.0, retry=0.5
        )
        decide = Decider.decide
        thought: list[str] = []

        def think(decider: Decider, key: str, waiting: tuple[Pod, ...]) -> CycleResult:
            if not thought:
                time.sleep(10.0)
            thought.append(key)
            return decide(decider, key, waiting)

        async def run() -> None:
            async with world(control_plane, namespace, *HOSTS) as it, it.scheduling(lease=lease) as scheduler:
                with monkeypatch.context() as patched:
                    patched.setattr(Decider, "decide", think)
                    await it.gang("g", 2)
                    await it.bound(2)
                assert thought
                assert scheduler.leading
                found = await it.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/slow")
                assert found["spec"]["holderIdentity"] == "thinker"
                assert found["spec"]["leaseTransitions"] == 0

        asyncio.run(run())
