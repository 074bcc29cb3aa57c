"""Tells the cluster what a node's network carries: the extended resource in the status of the node.

The network-aware scheduling KEP's bandwidth component. Capacity is written as Kubernetes' documentation on
extended resources for a node has it, by a JSON patch of the ``status`` subresource. A kubelet derives
``allocatable`` from it within seconds; we write that too, so that no pod waits, and for nodes without one.

The kubelet resets the resources of a node that was recreated, and so does a client that replaces the object:
the agent watches the node, and writes them again. What is not known is not written, and takes nothing away
that stands there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct

from closeby.agents.bandwidth.interfaces import Speed
from closeby.errors import QuantityError
from closeby.objects.process import Say
from closeby.objects.reasons import Problem
from closeby.reading.decoding.bandwidth import BANDWIDTH, bits_per_second

#: One operation of a JSON patch (RFC 6902).
Operation = dict[str, object]
#: Patches the status of our node; why it could not.
Patch = Callable[[Sequence[Operation]], Awaitable[Problem | None]]

#: Seconds until the interface is looked at again, and until what was refused is tried again.
EVERY: Final = 30.0
AGAIN: Final = 5.0
#: Until it is written once more: another writer may write something else each time.
PAUSE: Final = 1.0


class AdvertisedNode(Struct, frozen=True, kw_only=True):
    """What the cluster has of our node: None where the resource, or all of the map, is not there."""

    uid: str
    capacity: str | None = None
    allocatable: str | None = None
    has_capacity: bool = False
    has_allocatable: bool = False


def patch_of(node: AdvertisedNode, bits: int) -> Sequence[Operation]:
    """What makes the node say ``bits``; nothing if it does."""
    key = BANDWIDTH.replace("~", "~0").replace("/", "~1")
    operations: list[Operation] = []
    for field, there, now in (
        ("capacity", node.has_capacity, node.capacity),
        ("allocatable", node.has_allocatable, node.allocatable),
    ):
        if amount(now) == bits:
            continue
        if not there:
            # The kubelet may have written it meanwhile; a test for null asks whether it is not there.
            operations.append({"op": "test", "path": f"/status/{field}", "value": None})
            operations.append({"op": "add", "path": f"/status/{field}", "value": {}})
        operations.append({"op": "add", "path": f"/status/{field}/{key}", "value": str(bits)})
    # Not on another node that took the name meanwhile: that may be another machine.
    of_this: Operation = {"op": "test", "path": "/metadata/uid", "value": node.uid}
    return [of_this, *operations] if operations else []


def amount(text: str | None) -> int | None:
    """Bits/s; None for what is not a quantity."""
    if text is None:
        return None
    try:
        return bits_per_second(text, "down")
    except QuantityError:
        return None


class Advertiser:
    """Keeps the node's status true. For one event loop."""

    def __init__(
        self,
        speed: Callable[[], Speed | Problem],
        patch: Patch,
        say: Say,
        *,
        every: float = EVERY,
        again: float = AGAIN,
        pause: float = PAUSE,
    ) -> None:
        """Seconds: ``speed`` is asked every ``every``; ``again`` and ``pause`` as of ``AGAIN``, ``PAUSE``."""
        self._look = speed
        self._patch = patch
        self._say = say
        self._every = every
        self._again = again
        self._pause = pause
        self._written = False
        self._node: AdvertisedNode | None = None
        self._news = asyncio.Event()
        self._told = ""
        #: What the interface carries, and what the node says; None where that is not known.
        self.speed: int | None = None

    @property
    def advertised(self) -> int | None:
        """Bits/s that the node's status says."""
        return amount(self._node.capacity) if self._node is not None else None

    def heard(self, node: AdvertisedNode | None) -> None:
        """What the cluster has of our node now; None: there is none."""
        self._node = node
        self._news.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._news.clear()
            wait = self._again if await self._once() else self._every
            if self._written:
                await asyncio.sleep(self._pause)
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _once(self) -> Problem | None:
        """Compares and writes; what could not be written."""
        self._written = False
        found = self._look()
        if isinstance(found, Problem):
            self.speed = None
            self._tell(found, "no bandwidth is advertised")
            return None
        self.speed = found.bits
        if self._node is None:
            return None
        operations = patch_of(self._node, found.bits)
        problem = await self._patch(operations) if operations else None
        if problem is not None:
            self._tell(problem, "bandwidth can't be advertised")
            return problem
        self._written = bool(operations)
        if operations:
            self._say("bandwidth advertised", interface=found.interface, bits=found.bits)
        self._told = ""
        return None

    def _tell(self, problem: Problem, message: str) -> None:
        if self._told != str(problem):
            self._say(message, warning=True, error=problem)
        self._told = str(problem)
