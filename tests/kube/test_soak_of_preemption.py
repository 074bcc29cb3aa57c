"""Gangs and pods of three priorities want twice what a cluster has, for minutes, while requests
fail, watches end and schedulers are killed. CLOSEBY_SOAK_SECONDS says for how long (300 if nothing is said).

No pod is evicted without a written plan, no plan is left without its gang started or given up with a reason,
evictions are bounded, and nothing is half placed.
"""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp
import pytest

from tests.control_plane.api import ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import kubelets, node
from tests.kube.auditing import GPU, GROUP_LABEL, audited, pages
from tests.kube.live_world import RACK, ZONE, World, behind_proxy, replica, until_none
from tests.kube.priority_classes import priority_class
from tests.kube.soaking import Harm, at, background, judged, persist, settled

SECONDS = float(os.environ.get("CLOSEBY_SOAK_SECONDS", "300"))
#: 10 racks of 8 nodes of 8 GPUs.
RACKS, IN_RACK, GPUS = 10, 8, 8
#: How many gangs and plain pods are there at once, and for how many seconds each.
GANGS, PLAIN, LIFE = 36, 12, (30.0, 120.0)
#: Priorities, and how many of ten items have each; the first of each owner has the lowest.
CLASSES = {10: 4, 100: 3, 1_000: 3}
#: Seconds for which a scheduler is at work before it is killed; in the last fifth of the time none is.
KILLED = (15.0, 45.0)
#: Evictions of one gang: three protect it from the same priority, but not from a higher one.
MOST = 4
_PLAN = re.compile(r"plan (\w+) evicts .*: (.*)$")


@dataclass
class Plans:
    """Every plan that was ever written, and every pod that was ever evicted, in the server's order."""

    it: World
    #: By plan: who gets the room, and uids of the victims.
    preemptor: dict[str, str] = field(default_factory=dict)
    victims: dict[str, set[str]] = field(default_factory=dict)
    #: By uid: whose pod it is, and its priority; and those that the Eviction API ended.
    owner: dict[str, str] = field(default_factory=dict)
    priority: dict[str, int] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)
    #: Gangs and pods that were ever bound.
    started: set[str] = field(default_factory=set)

    async def follow(self, path: str, see: Callable[[Object], None]) -> None:
        """Watches without a gap: from the version that was seen last, past every failure."""
        version = ""
        while True:
            with suppress(aiohttp.ClientError, ApiError):
                if not version:
                    found = await self.it.api.get(path)
                    for one in found["items"]:
                        see(one)
                    version = found["metadata"]["resourceVersion"]
                while True:
                    async for kind, one in self.it.api.watch(path, version):
                        version = one["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            see(one)
            await asyncio.sleep(0.1)

    def see_group(self, group: Object) -> None:
        plan = group.get("status", {}).get("preemption")
        if plan:
            self.preemptor[plan["id"]] = group["metadata"]["name"]
            self.victims.setdefault(plan["id"], set()).update(one["uid"] for one in plan.get("victims", ()))

    def see_pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        name = metadata.get("labels", {}).get(GROUP_LABEL, metadata["name"])
        self.owner[metadata["uid"]] = name
        self.priority[metadata["uid"]] = pod["spec"].get("priority", 0)
        if pod["spec"].get("nodeName"):
            self.started.add(name)
        for condition in pod.get("status", {}).get("conditions", ()):
            if condition["type"] == "DisruptionTarget" and condition["reason"] == "EvictionByEvictionAPI":
                self.evicted.add(metadata["uid"])
            found = _PLAN.search(condition.get("message", ""))
            if condition["type"] == "closeby.dev/Preempting" and found:
                self.preemptor[found[1]] = metadata["name"]
                self.victims.setdefault(found[1], set()).update(found[2].split(", "))


@dataclass
class Owners:
    """Make gangs and pods, and make again what was evicted, as controllers do."""

    it: World
    random: Random
    classes: dict[int, str]
    made: int = 0
    deleted: set[str] = field(default_factory=set)

    async def own(self, until: float, *, gang: bool) -> None:
        """One item after another. The one that is there at ``until`` is kept until this is cancelled."""
        first = True
        while time.monotonic() < until:
            value = min(CLASSES) if first else self.random.choices(list(CLASSES), list(CLASSES.values()))[0]
            first = False
            self.made += 1
            name = f"g{self.made}" if gang else f"p{self.made}"
            size, gpus = self.random.choice(((1, 8), (2, 8), (4, 8), (8, 4), (8, 8), (16, 4), (6, 2)))
            size, gpus = (size, gpus) if gang else (1, self.random.choice((1, 4, 8)))
            await self.one(name, value, size, gpus, until, gang=gang)

    async def one(self, name: str, value: int, size: int, gpus: int, until: float, *, gang: bool) -> None:
        if gang:
            spec: Object = {"minMember": size if self.random.random() < 0.7 else max(1, size // 2)}
            if self.random.random() < 0.6:
                spec["topologyConstraint"] = {
                    "topology": self.it.topology,
                    "requiredTopologyLevel": "rack",
                }
            await persist(lambda: self.it.declare_group(name, spec), 409)
        names = [f"{name}-{index}" for index in range(size)] if gang else [name]
        fields = {"priorityClassName": self.classes[value], "terminationGracePeriodSeconds": 1}
        pods = [self.it.pod(one, gpus, gang=name if gang else None, cpu="100m", **fields) for one in names]
        ends = time.monotonic() + self.random.uniform(*LIFE)
        while time.monotonic() < ends or ends >= until:
            # One that is there already, or leaves still, is tried again.
            await asyncio.gather(*map(self.create, pods))
            await asyncio.sleep(self.random.uniform(1.0, 3.0))
        self.deleted.add(name)
        await asyncio.gather(*map(self.delete, names))
        if gang:
            group = f"/apis/closeby.dev/v1alpha1/namespaces/{self.it.namespace}/podgroups/{name}"
            await persist(lambda: self.it.api.delete(group), 404)

    async def create(self, pod: Object) -> None:
        await persist(lambda: self.it.create(pod), 409)

    async def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.it.namespace}/pods/{name}"
        await persist(lambda: self.it.api.delete(path, {"gracePeriodSeconds": 0}), 404)


async def underway(it: World) -> list[str]:
    """Plans that are not at their end."""
    groups = await pages(it.api, f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups")
    pods = await pages(it.api, f"/api/v1/namespaces/{it.namespace}/pods")
    found = [one["metadata"]["name"] for one in groups if "preemption" in one.get("status", {})]
    for pod in pods:
        conditions = pod.get("status", {}).get("conditions", ())
        if any(one["type"] == "closeby.dev/Preempting" and one["status"] == "True" for one in conditions):
            found.append(pod["metadata"]["name"])
    return found


async def at_work(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Waits until the scheduler that began last has decided about all that it found."""
    while not await asyncio.to_thread(newest_is_ready, folder):
        assert process.poll() is None, "the scheduler ended by itself"
        await asyncio.sleep(0.5)


def newest_is_ready(folder: Path) -> bool:
    """Whether the newest log says that its scheduler is ready."""
    log = max(folder.glob("log-*.txt"), key=lambda path: path.stat().st_mtime_ns)
    return "msg=ready" in log.read_text()


def said_of_plans(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Plans that were completed, and those that were given up with the reason, as the logs say."""
    complete: set[str] = set()
    given_up: dict[str, str] = {}
    for log in folder.glob("log-*.txt"):
        text = log.read_text()
        assert "Traceback" not in text
        complete.update(re.findall(r'msg="preemption complete".* plan=(\w+)', text))
        given_up.update(re.findall(r'msg="preemption given up".* plan=(\w+) why=(.*)', text))
    return complete, given_up


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
def test_three_priorities_on_too_few_nodes(
    bare_control_plane: ControlPlane, tmp_path: Path, pytestconfig: pytest.Config, tell: Callable[[str], None]
) -> None:
    seed = pytestconfig.option.hypothesis_seed
    said: list[str] = [f"soak of preemption: seed {seed}"]
    random = Random(f"{seed} kills")
    kills = 0

    async def run() -> tuple[Plans, Owners]:
        nonlocal kills
        async with AsyncExitStack() as stack:
            it, proxy = await stack.enter_async_context(behind_proxy(bare_control_plane, "default", *hosts()))
            classes = {value: await stack.enter_async_context(priority_class(it, value)) for value in CLASSES}
            audit = await stack.enter_async_context(audited(it.api, it.namespace, GPUS))
            await stack.enter_async_context(kubelets(it.api))
            plans, owners = Plans(it), Owners(it, Random(f"{seed} load"), classes)
            groups = f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups"
            await stack.enter_async_context(
                background(
                    plans.follow(groups, plans.see_group),
                    plans.follow(f"/api/v1/namespaces/{it.namespace}/pods", plans.see_pod),
                )
            )
            harm = Harm(proxy, Random(f"{seed} harm"))
            start = time.monotonic()
            end = start + SECONDS
            # They go on while the end is judged: what is evicted then is made again too.
            await stack.enter_async_context(
                background(*(owners.own(end, gang=number < GANGS) for number in range(GANGS + PLAIN)))
            )
            async with background(harm.run()):
                while time.monotonic() < start + 0.8 * SECONDS:
                    async with replica(it, proxy, tmp_path, "--no-leader-elect") as process:
                        await at_work(tmp_path, process)
                        await at(time.monotonic() + random.uniform(*KILLED))
                        process.send_signal(signal.SIGKILL)
                        kills += 1
                last = await stack.enter_async_context(replica(it, proxy, tmp_path, "--no-leader-elect"))
                await at_work(tmp_path, last)
                await at(end)
            proxy.forgive()
            await until_none(lambda: underway(it))
            await settled(it, audit)
            bound, waiting = await judged(it, audit)
            await until_none(lambda: underway(it))
            last.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(last.wait, 120) == 0
            said.append(f"{owners.made} gangs and pods, {kills} kills; {bound} bound and {waiting} waiting")
            said.append(f"harm done: {dict(harm.done)}")
            return plans, owners

    try:
        plans, owners = asyncio.run(run())
        complete, given_up = said_of_plans(tmp_path)
        said.append(
            f"{len(plans.victims)} plans, {len(plans.evicted)} evictions; {len(complete)} complete, "
            f"{len(given_up)} given up: {dict(Counter(given_up.values()).most_common(5))}"
        )
    finally:
        tell("; ".join(said))
    planned = {uid for victims in plans.victims.values() for uid in victims}
    assert plans.evicted <= planned, f"evicted without a plan: {plans.evicted - planned}"
    assert plans.evicted
    highest = {plans.owner[uid]: plans.priority[uid] for uid in plans.owner}
    for plan, victims in plans.victims.items():
        by = plans.preemptor[plan]
        assert all(plans.priority[uid] < highest[by] for uid in victims if uid in plans.priority), plan
        ended = plan in complete or given_up.get(plan) or by in plans.started or by in owners.deleted
        assert ended, f"plan {plan} of {by} is neither carried out nor given up"
    evictions: dict[str, set[str]] = defaultdict(set)
    for plan, victims in plans.victims.items():
        for uid in victims & plans.evicted:
            evictions[plans.owner[uid]].add(plan)
    # A kill between an eviction and its record is one that is not counted.
    often = {name: len(found) for name, found in evictions.items() if name.startswith("g")}
    assert max(often.values(), default=0) <= MOST + kills, often


def hosts() -> list[Object]:
    return [
        node(
            f"n{rack}-{index}",
            labels={ZONE: "z", RACK: f"r{rack}"},
            allocatable={GPU: str(GPUS)},
        )
        for rack in range(RACKS)
        for index in range(IN_RACK)
    ]
