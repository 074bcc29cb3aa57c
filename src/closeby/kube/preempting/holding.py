"""Holds cleared nodes against other schedulers by a taint, and takes it back (``hold: taint``).

What should be tainted follows from the plans in force and from the bindings under way, whatever happened
before: so a taint that an earlier process left behind goes as well.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final, Protocol

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.state.held_nodes import HeldNodes
from closeby.kube.writing.node_taints import set_taint
from closeby.objects.nodes import describe
from closeby.objects.places import is_for_places
from closeby.objects.saying import Say
from closeby.scheduling.engine import Engine

#: Between attempts at one node (seconds).
_PACE: Final = RequestPace(0.5, 30.0)
#: Between two looks at nodes that are held (seconds).
_LOOK: Final = 0.25
#: Nodes that are written at the same time.
_AT_ONCE: Final = 16
#: A remedy is said with these refusals.
_FORBIDDEN: Final = 403
_REMEDY: Final = "give the scheduler the right to patch nodes: scheduler.taintNodes=true in the chart"


class HoldControl(Protocol):
    """What holding nodes needs of those who own the plans."""

    @property
    def to_hold(self) -> frozenset[str]:
        """The nodes of all plans that are carried out."""

    def leads(self) -> bool:
        """Whether this process certainly leads."""

    async def rest(self, seconds: float) -> bool:
        """Waits; False when the process stops meanwhile."""


class NodeHolds:
    """Which nodes are held by the taint, and which should be."""

    def __init__(
        self, engine: Engine, transport: Transport, say: Say, held: HeldNodes, control: HoldControl
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._say = say
        self._held = held
        self._control = control
        #: What was written of nodes and the watch has not reported yet: whether they have the taint.
        self._written: dict[str, bool] = {}
        #: Nodes that could not be written: until when they rest (monotonic seconds).
        self._failed: dict[str, tuple[Backoff, float]] = {}
        self._busy: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def hold(self, nodes: Iterable[str]) -> None:
        """Returns when each of these was tried once. One that can't be held is no reason to wait."""
        await asyncio.gather(*(self._change(node, present=True) for node in nodes))

    async def run(self) -> None:
        """Makes the taints what they should be, until the process stops."""
        while await self._control.rest(_LOOK):
            due = self._due()
            if due:
                await asyncio.gather(*(self._change(node, present=present) for node, present in due))

    def _due(self) -> list[tuple[str, bool]]:
        """Nodes that should get the taint, or lose it."""
        for node in [one for one, there in self._written.items() if there == (one in self._held.names)]:
            del self._written[node]
        now, wanted = time.monotonic(), self._control.to_hold
        tainted = {one for one in self._held.names | self._written.keys() if self._has(one)}
        due = [(one, True) for one in sorted(wanted - tainted)]
        due += [(one, False) for one in sorted(tainted - wanted) if not self._binds_on(one)]
        for node in self._failed.keys() - {one for one, _ in due}:
            del self._failed[node]
        return [one for one in due if one[0] not in self._failed or self._failed[one[0]][1] <= now]

    def _has(self, node: str) -> bool:
        return self._written.get(node, node in self._held.names)

    def _binds_on(self, node: str) -> bool:
        """Whether a pod is to be bound to it, and is not yet."""
        cluster, pods = self._engine.cluster, self._engine.state.pods
        slot = cluster.slot(node)
        if slot is None:
            return False
        there = (pods.get(one.uid) for one in cluster.pods_at(slot))
        waiting = (pod for pod in there if pod is not None and pod.node_name is None)
        # Stand-ins wait for a quota, which may take hours.
        return any(pod.group is None or not is_for_places(pod.group) for pod in waiting)

    async def _change(self, node: str, *, present: bool) -> None:
        if node in self._busy or self._has(node) == present:
            return
        self._busy.add(node)
        try:
            async with self._slots:
                if not self._control.leads() or present != (node in self._control.to_hold):
                    return
                error = await set_taint(self._transport, node, self._held.taint, present=present)
        finally:
            self._busy.discard(node)
        if error is None:
            self._written[node] = present
            self._failed.pop(node, None)
            return
        attempts, _ = self._failed.get(node) or (Backoff(_PACE), 0.0)
        self._failed[node] = attempts, time.monotonic() + attempts.next(error.retry_after)
        self._complain(node, error, present=present, first=attempts.failures == 1)

    def _complain(self, node: str, error: ApiError, *, present: bool, first: bool) -> None:
        if first:
            remedy = _REMEDY if error.code == _FORBIDDEN else None
            said = "node not held" if present else "node still held"
            taint = describe(self._held.taint)
            self._say(said, warning=True, node=node, taint=taint, error=error, remedy=remedy)
