"""Volumes that can't be had as it was decided: who hears of it, what is undone, and where pods go then."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.calling import closeby
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.faulty_proxy import Cut, Fault, Refuse
from tests.kube.live import unique
from tests.kube.live_world import (
    ZONE,
    World,
    condition,
    group_of,
    kubeconfig_to,
    planned,
    replica,
    until,
    until_logged,
    until_said,
)
from tests.kube.provisioner import Provisioner
from tests.kube.test_live_volume_binding import SHORT, claiming, gang_with_claims, hosts, storing

pytestmark = pytest.mark.timeout(400)
VOLUMES = "/api/v1/persistentvolumes"
FAULTS = [Refuse(409, reason="Conflict"), Refuse(410), Refuse(500), Cut(), Cut(carried_out=True)]


def names(nodes: list[Object]) -> list[str]:
    return [str(one["metadata"]["name"]) for one in nodes]


async def withdrawn(it: World) -> None:
    await until_logged(it, "bindings withdrawn")


def test_no_node_is_tried_twice_while_others_are_left(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = hosts()
    monkeypatch.setattr("closeby.cluster.volumes_by_class.INITIAL_BACKOFF", 600.0)

    async def run() -> None:
        async with storing(control_plane, namespace, *nodes) as (it, _, made), it.scheduling():
            *full, last = names(nodes)
            made.full |= set(full)
            # The only node that is not full is taken at first.
            await it.create(it.pod("first", nodeSelector={ZONE: "z3"}))
            await it.bound(1)
            await made.claim("data")
            await it.create(claiming(it, "p", "data"))

            async def all_tried() -> bool:
                return len(made.asked) == len(full)

            await until(all_tried)
            message = await it.refusal("p", "is not tried again")
            assert f"claim {namespace}/data" in message
            await it.delete("first")
            assert await it.bound(1) == {"p": last}
            tried = [where for _, where in made.asked]
            assert sorted(tried) == sorted([*full, last]) and tried[-1] == last

    asyncio.run(run())


def test_the_gang_says_which_volume_of_which_member(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, _, made), it.scheduling():
            made.refuses["c3"] = 1
            made.silent |= {"c0", "c1", "c2"}
            await gang_with_claims(it, made)
            said = await until_said(it, "g", "VolumeNotBindable", "VolumesBound")
            # The gang may be placed again already.
            claim, where = made.asked[0]
            for part in (f"claim {namespace}/{claim}", where, "g-3", f"kubectl describe pvc {claim}"):
                assert part in said["message"]

            async def posted() -> bool:
                events = await it.events("FailedScheduling")
                about = [str(one["note"]) for one in events if one["regarding"]["kind"] == "PodGroup"]
                return any(f"claim {namespace}/c3" in one for one in about)

            await until(posted)
            await until_logged(it, "bindings withdrawn")
            made.silent.clear()
            await it.bound(4)
            await until_said(it, "g", "VolumesBound", "VolumesBound")
            assert (await condition(it, "g", "VolumesBound"))["status"] == "True"
            assert dict(made.asked)["c3"] != where

    asyncio.run(run())


def test_a_gang_that_was_never_in_trouble_says_nothing_of_volumes(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, _, made), it.scheduling():
            await gang_with_claims(it, made)
            await it.bound(4)
            await until_said(it, "g", "Placed")
            assert await condition(it, "g", "VolumesBound") == {}

    asyncio.run(run())


def test_a_volume_that_is_taken_between_the_decision_and_the_write(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Another one of the same node will do."""

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts(1)) as (it, proxy, made):
            there = [await made.volume("z0") for _ in range(2)]
            await made.claim("other", made.by_hand)
            taken: list[str] = []

            async def take(name: str) -> None:
                if not taken:
                    taken.append(name)
                    ref = {"namespace": namespace, "name": "other", "kind": "PersistentVolumeClaim"}
                    await it.api.patch(f"{VOLUMES}/{name}", {"spec": {"claimRef": ref}})

            for name in there:
                proxy.before("GET", f"/persistentvolumes/{name}", lambda name=name: take(name))  # type: ignore[misc]
            async with it.scheduling():
                await made.claim("data", made.by_hand)
                await it.create(claiming(it, "p", "data"))
                await it.bound(1)
            (left,) = set(there) - set(taken)
            assert (await made.bound())["data"] == left

    asyncio.run(run())


def roomy() -> list[Object]:
    """Two nodes that two members share, and one of another zone."""
    two = {"nvidia.com/gpu": "2"}
    return [node(unique(f"n{i}"), labels={ZONE: f"z{i}"}, allocatable=two) for i in range(2)]


async def gang_that_shares(it: World, made: Provisioner) -> None:
    await it.create_group("g", 2)
    await made.claim("shared")
    await it.create(*(claiming(it, f"g-{i}", "shared", "g") for i in range(2)))


def test_members_that_share_a_claim(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *roomy()) as (it, _, made), it.scheduling():
            await gang_that_shares(it, made)
            assert len(set((await it.bound(2)).values())) == 1
            assert len(made.asked) == 1

    asyncio.run(run())


def test_a_shared_claim_is_given_back_once_no_member_waits_for_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *roomy()) as (it, _, made):
            made.silent.add("shared")
            async with it.scheduling(SHORT):
                await gang_that_shares(it, made)
                await until_logged(it, "bindings withdrawn")
                first = await until_said(it, "g", "VolumeNotBindable", "VolumesBound")
                assert "not bound within 2 s" in first["message"]

                async def free() -> bool:
                    return not await made.selected()

                await until(free)
                made.silent.clear()
                assert len(set((await it.bound(2)).values())) == 1

    asyncio.run(run())


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_trouble_with_the_writes_of_a_gang(control_plane: ControlPlane, namespace: str, fault: Fault) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made), it.scheduling():
            for method in ("GET", "PATCH"):
                proxy.inject(method, "/persistentvolumeclaims/", fault, times=6)
            await gang_with_claims(it, made)
            placed = await it.bound(4)
            await until_said(it, "g", "Placed")
            assert dict(made.asked) == {f"c{i}": placed[f"g-{i}"] for i in range(4)}

    asyncio.run(run())


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_trouble_while_a_gang_is_given_back(
    control_plane: ControlPlane, namespace: str, fault: Fault
) -> None:
    """Nothing stays written, whatever the server does meanwhile."""

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):
            made.silent |= {"c0", "c1", "c2", "c3"}
            async with it.scheduling():
                await gang_with_claims(it, made)

                async def written() -> bool:
                    return len(await made.selected()) == 4

                await until(written)

                for method in ("GET", "PATCH"):
                    proxy.inject(method, "/persistentvolumeclaims/", fault, times=6)
                made.full |= set((await made.selected()).values())
                made.silent.discard("c3")
                await until_logged(it, "bindings withdrawn")

                async def free() -> bool:
                    return not await made.selected()

                await until(free)
                made.full.clear()
                made.silent.clear()
                await it.bound(4)

    asyncio.run(run())


def test_a_process_that_is_killed_in_the_middle(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):
            made.silent |= {"c0", "c1", "c2", "c3"}

            async def written() -> bool:
                return len(await made.selected()) == 4

            alone = ("--no-leader-elect",)
            async with replica(it, proxy, tmp_path, *alone) as first:
                await gang_with_claims(it, made)
                await until(written)
                promised = planned(await group_of(it, "g"))
                first.kill()
                await asyncio.to_thread(first.wait)
            assert proxy.count("POST", "/binding") == 0
            made.silent.clear()
            async with replica(it, proxy, tmp_path, *alone):
                assert await it.bound(4) == promised
                await until_said(it, "g", "Placed")

    asyncio.run(run())


def test_a_process_that_is_killed_while_it_keeps_volumes_for_claims(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Some volumes of a gang are kept for its claims, and no member has its node yet."""

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):
            there = {await made.volume(f"z{i}") for i in range(4)}
            alone = ("--no-leader-elect",)
            async with replica(it, proxy, tmp_path, *alone) as first:

                async def pass_on() -> None:
                    pass

                async def kill() -> None:
                    first.kill()
                    await asyncio.to_thread(first.wait)

                for act in (pass_on, pass_on, kill):
                    proxy.before("PATCH", "/persistentvolumes/", act)
                await it.create_group("g", 4)
                for i in range(4):
                    await made.claim(f"c{i}", made.by_hand)
                await it.create(*(claiming(it, f"g-{i}", f"c{i}", "g") for i in range(4)))
                await asyncio.to_thread(first.wait)
                promised = planned(await group_of(it, "g"))
            assert proxy.count("POST", "/binding") == 0
            async with replica(it, proxy, tmp_path, *alone):
                assert await it.bound(4) == promised
                await until_said(it, "g", "Placed")
            assert set((await made.bound()).values()) == there

    asyncio.run(run())


def test_what_the_command_line_says_of_claims_of_a_cluster(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The claims of the cluster are read; one that is not there is missing there and not in any input."""
    nodes = hosts()

    async def run() -> None:
        async with storing(control_plane, namespace, *nodes) as (it, proxy, made):
            await made.volume("z2")
            await made.claim("data", made.by_hand)
            await it.create(claiming(it, "p", "data"), claiming(it, "lost", "dat"))
            access = ("--kubeconfig", kubeconfig_to(proxy, tmp_path), "--scheduler-name", it.name)

            async def explained(pod: str) -> Object:
                question = ("explain", f"pod/{pod}", "-n", namespace, *access, "--scheduler", "off")
                done = await asyncio.to_thread(closeby, *question, "-o", "json")
                assert done.exit_code == 0, done.stderr
                found: Object = json.loads(done.stdout)
                return found

            (there,) = (await explained("p"))["pods"]
            assert there["node"] == names(nodes)[2]
            (lost,) = (await explained("lost"))["pods"]
            assert lost["reason"] == "ClaimNotFound"
            assert f"claim {namespace}/dat" in lost["message"] and "input" not in lost["message"]

    asyncio.run(run())
