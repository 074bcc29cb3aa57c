"""Attack: the scheduler is killed (SIGKILL) at each step of what it does over minutes: while nodes are kept
free for a gang (``reserveAfter``), and while a start that can not end is given up (``onPartial: Evict``).

What must hold: nothing is evicted twice, nothing is evicted whose gang became complete; a gang that waits
gets its nodes after all, and nobody else keeps them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.attacks.programs import Program
from tests.attacks.programs import running as program
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live_world import (
    World,
    behind_proxy,
    group_of,
    host,
    kubeconfig_to,
    planned,
    until,
    until_said,
)
from tests.kube.test_live_evictions import an_owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@asynccontextmanager
async def scheduler(it: World, proxy: Proxy, folder: Path, *arguments: str) -> AsyncIterator[Program]:
    """Behind the proxy, as a process of its own."""
    kubeconfig = kubeconfig_to(proxy, folder)
    whole = ("--scheduler-name", it.name, "--no-leader-elect", "--metrics-address", "off", *arguments)
    async with program(folder, "scheduler", kubeconfig, *whole) as started:
        yield started
        assert started.process.poll() is None
    assert "Traceback" not in started.said() and "traceback=" not in started.said()


def killed_before(proxy: Proxy, step: str, one: Program) -> asyncio.Event:
    """The process is killed before the server hears of this step; set once it is gone."""
    killed = asyncio.Event()

    async def kill() -> None:
        one.process.kill()
        await asyncio.to_thread(one.process.wait)
        killed.set()

    proxy.before(*STEPS[step], kill)
    return killed


async def overdue(it: World, proxy: Proxy, name: str = "g", members: int = 3) -> dict[str, str]:
    """A gang whose last member is never bound, and which its owner would make anew; the uids of its pods."""
    proxy.inject("POST", f"/pods/{name}-{members - 1}/binding", Refuse(403), times=10**6)
    placement = {"onPartial": "Evict", "completionTimeout": "2s"}
    await it.declare_group(name, {"minMember": members, "placement": placement})
    owner = await an_owner(it)
    pods = [it.pod(f"{name}-{i}", gang=name) for i in range(members)]
    for pod in pods:
        pod["metadata"]["ownerReferences"] = owner
    await it.create(*pods)
    return {one: pod["metadata"]["uid"] for one, pod in (await it.pods()).items()}


#: By what it is: the request before which the scheduler is killed. The server gets it all the same.
STEPS: dict[str, tuple[str, str]] = {
    "the plan": ("PATCH", "/podgroups/g"),
    "the first binding": ("POST", "/pods/g-0/binding"),
    # Whichever comes first: that goes by which member was bound first.
    "the look at a member": ("GET", "/pods/g-"),
    "the first eviction": ("POST", "/pods/g-0/eviction"),
    "the second eviction": ("POST", "/pods/g-1/eviction"),
    "the Event": ("POST", "/events"),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_while_a_start_is_given_up(
    step: str, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Another scheduler takes over: the members go, each once, and no other pod does."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n")) as (it, proxy):
            bystander = it.pod("bystander")
            bystander["metadata"]["ownerReferences"] = await an_owner(it)
            await it.create(bystander)
            async with kept(it, proxy, tmp_path) as first:
                await it.bound(1)
                killed = killed_before(proxy, step, first)
                uids = await overdue(it, proxy)
                await asyncio.wait_for(killed.wait(), 120)
            async with scheduler(it, proxy, tmp_path):

                async def gone() -> bool:
                    return not {"g-0", "g-1"} & (await it.pods()).keys()

                await until(gone, 120)
            left = await it.pods()
            assert left.keys() == {"bystander", "g-2"}
            assert left["g-2"]["metadata"]["uid"] == uids["g-2"]
            # One for each member; that before which the scheduler was killed may have been carried out.
            for name in ("g-0", "g-1"):
                assert proxy.count("POST", f"/pods/{name}/eviction") <= 2

    asyncio.run(run())


@pytest.mark.parametrize("step", ["the plan", "the first binding", "the look at a member"])
def test_a_gang_that_became_complete_meanwhile(
    step: str, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """While nobody schedules, what kept the last member from its node is gone: the start comes to its end."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n")) as (it, proxy):
            async with kept(it, proxy, tmp_path) as first:
                killed = killed_before(proxy, step, first)
                uids = await overdue(it, proxy)
                await asyncio.wait_for(killed.wait(), 120)
            proxy.forgive()
            # Its owner gives the next scheduler the time that it takes to bind the last member.
            await it.change_group("g", {"spec": {"placement": {"completionTimeout": "10m"}}})
            async with scheduler(it, proxy, tmp_path):
                await it.bound(3, 120)
                await until_said(it, "g", "Placed")
                await it.change_group("g", {"spec": {"placement": {"completionTimeout": "1s"}}})
                # Who is evicted later shows that the scheduler has looked at overdue starts since then.
                other = await overdue(it, proxy, "other", 2)

                async def gone() -> bool:
                    return "other-0" not in await it.pods()

                await until(gone, 120)
            left = {name: pod["metadata"]["uid"] for name, pod in (await it.pods()).items()}
            assert left == {**uids, "other-1": other["other-1"]}
            assert planned(await group_of(it, "g")) == {}

    asyncio.run(run())


@asynccontextmanager
async def kept(it: World, proxy: Proxy, folder: Path, *arguments: str) -> AsyncIterator[Program]:
    """A scheduler that may be killed before the end of the context."""
    try:
        async with scheduler(it, proxy, folder, *arguments) as started:
            await started.until_said("msg=ready")
            yield started
            await asyncio.to_thread(started.process.wait)
    except AssertionError:
        if started.process.returncode != -9:
            raise


def reserving(folder: Path) -> tuple[str, str]:
    """The option that keeps nodes free for a gang that has waited a second."""
    file = folder / "configuration.yaml"
    file.write_text("reserveAfter: 1s\n")
    return "--config", str(file)


def test_killed_again_and_again_while_nodes_are_kept_free(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Single pods take every GPU that gets free, unless it is kept for the gang, which would starve.

    A reservation is in memory alone. Each scheduler makes it again: the gang has waited since its first pod.
    """
    hosts = [host(f"r{rack}-{i}", f"r{rack}", 1) for rack in (1, 2) for i in (1, 2)]

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts) as (it, proxy):
            options = reserving(tmp_path)
            async with kept(it, proxy, tmp_path, *options) as first:
                await it.create(*(it.pod(f"old-{i}") for i in range(4)))
                placed = await it.bound(4)
                await it.gang("big", 2, required="rack")
                await until_said(it, "big", "GangDoesNotFit")
                await first.until_said("msg=reserved")
                first.process.kill()
            on = {node: name for name, node in placed.items()}
            for node in ("r1-1", "r2-1"):
                await it.delete(on[node])
                async with kept(it, proxy, tmp_path, *options) as again:
                    await again.until_said("msg=reserved")
                    again.process.kill()
            async with scheduler(it, proxy, tmp_path, *options) as last:
                await last.until_said("msg=reserved")
                await it.create(*(it.pod(f"late-{i}") for i in range(4)))
                said = last.said()
                rack = "r1" if "z1/r1" in said[said.index("msg=reserved") :] else "r2"
                await it.delete(on[f"{rack}-2"])

                async def started() -> bool:
                    now = await it.placed()
                    return {now.get("big-0"), now.get("big-1")} == {f"{rack}-1", f"{rack}-2"}

                await until(started, 120)

    asyncio.run(run())
