"""What tests of preemption on a real API server share: classes of priority, a full cluster, its plan."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Proxy
from tests.kube.live_world import World, behind_proxy, group_of, host
from tests.kube.priority_classes import priority_class

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


async def plan_of(it: World, name: str) -> Object:
    """``status.preemption`` of a PodGroup; empty without one."""
    found: Object = (await group_of(it, name)).get("status", {}).get("preemption", {})
    return found


def seen_order(proxy: Proxy) -> list[str]:
    """Methods and paths of all requests so far, each as it was seen first."""
    return list(proxy.seen)
