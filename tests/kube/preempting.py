"""What tests of preemption on a real API server share: classes of priority, a full cluster, its plan."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Proxy
from tests.kube.live_world import World, behind_proxy, group_of, host, until, until_placed
from tests.kube.priority_classes import priority_class

#: More requests than any test sends.
NEVER = 100_000
#: Two racks of two nodes with one GPU each.
HOSTS = [host(f"r{rack}-{index}", f"r{rack}", 1) for rack in (1, 2) for index in (1, 2)]


def preempting(**arguments: Any) -> Configuration:
    """The default configuration with these arguments of DefaultPreemption."""
    return Configuration(plugins=(PluginEntry(name="DefaultPreemption", arguments=arguments),))


class Classes:
    """Names of priority classes, by value."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names

    def __getitem__(self, value: int) -> str:
        return self._names[value]


@asynccontextmanager
async def ranked(
    control_plane: ControlPlane, namespace: str, *values: int, hosts: list[Object] | None = None
) -> AsyncIterator[tuple[World, Proxy, Classes]]:
    """A cluster behind a proxy, with classes of these priorities."""
    async with AsyncExitStack() as stack:
        it, proxy = await stack.enter_async_context(
            behind_proxy(control_plane, namespace, *(HOSTS if hosts is None else hosts))
        )
        names = {value: await stack.enter_async_context(priority_class(it, value)) for value in values}
        yield it, proxy, Classes(names)


async def gang(it: World, name: str, members: int, class_name: str, **group: Any) -> None:
    """A gang that requires one rack."""
    await it.create_group(name, members, required="rack", **group)
    await it.create(*(it.pod(f"{name}-{i}", gang=name, priorityClassName=class_name) for i in range(members)))


async def two_full_racks(it: World, classes: Classes) -> None:
    """``cheap`` in one rack, ``dear`` in the other."""
    await gang(it, "cheap", 2, classes[10])
    await it.bound(2)
    await gang(it, "dear", 2, classes[20])
    await it.bound(4)


@asynccontextmanager
async def full_racks(
    control_plane: ControlPlane, namespace: str, configuration: Configuration
) -> AsyncIterator[tuple[World, Proxy, Classes]]:
    """A scheduler on two full racks; ``train`` of priority 1,000 is to come."""
    async with ranked(control_plane, namespace, 10, 20, 1_000) as world:
        it, _, classes = world
        async with it.scheduling(configuration):
            await two_full_racks(it, classes)
            yield world


async def until_train_replaced_cheap(it: World) -> None:
    """Waits until ``train`` has the rack of ``cheap``; ``dear`` is where it was."""
    await until_placed(it, "train-0", "train-1")
    assert (await it.placed()).keys() == {"dear-0", "dear-1", "train-0", "train-1"}


async def plan_of(it: World, name: str) -> Object:
    """``status.preemption`` of a PodGroup; empty without one."""
    found: Object = (await group_of(it, name)).get("status", {}).get("preemption", {})
    return found


async def until_no_plan(it: World, name: str) -> None:
    """Waits until the PodGroup has no plan of preemption."""

    async def none() -> bool:
        return not await plan_of(it, name)

    await until(none)


async def stuck(it: World, classes: Classes) -> None:
    """Two full racks; a finalizer holds a pod of ``cheap`` until ``release``."""
    for name, value in (("cheap", 10), ("dear", 20)):
        await it.create_group(name, 2, required="rack")
        fields: Any = {"priorityClassName": classes[value], "terminationGracePeriodSeconds": 1}
        pods = [it.pod(f"{name}-{i}", gang=name, **fields) for i in range(2)]
        if name == "cheap":
            pods[0]["metadata"]["finalizers"] = ["tests.closeby.dev/stays"]
        await it.create(*pods)
        await it.bound(value // 5)


async def until_half_gone(it: World) -> None:
    """Waits until one pod of ``cheap`` is gone, and the one with the finalizer is being deleted."""

    async def half() -> bool:
        pods = await it.pods()
        return "cheap-1" not in pods and "deletionTimestamp" in pods["cheap-0"]["metadata"]

    await until(half)


async def release(it: World, pod: str = "cheap-0") -> None:
    """Removes the finalizers of a pod."""
    path = f"/api/v1/namespaces/{it.namespace}/pods/{pod}"
    await it.api.patch(path, {"metadata": {"finalizers": None}})


async def until_evictions(it: World, name: str, number: int) -> None:
    """Waits until the PodGroup's status names so many evictions."""

    async def noted() -> bool:
        return len((await group_of(it, name)).get("status", {}).get("evictions", ())) == number

    await until(noted)
