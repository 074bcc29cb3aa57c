"""Writes the nominated nodes of a plan of preemption into the status of its pods, and clears them again.

The status of a plain pod holds its plan. For the members of a gang the node is a hint to others, on which
nothing depends. Which pods have one is in ``nominated``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from closeby.kube.preempting.evicting import PlanUnderway
from closeby.kube.preempting.records import EVICTING, GIVEN_UP, PLACED, PREEMPTING, message_of
from closeby.kube.writing.pod_statuses import Nomination, PodStatuses
from closeby.kube.writing.writer import StatusCondition, WriteResult, Written
from closeby.objects.pods import Pod
from closeby.objects.process import Say
from closeby.scheduling.engine import Engine

#: Nominations that are sent at the same time: fewer than evictions, which matter more.
_AT_ONCE: Final = 4


class Nominations:
    """The nominated nodes of all plans of one scheduler."""

    def __init__(
        self,
        engine: Engine,
        statuses: PodStatuses,
        say: Say,
        *,
        leads: Callable[[], bool],
        in_force: Callable[[PlanUnderway], bool],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``start`` runs in the background what is to be written there."""
        self._engine = engine
        self._state = engine.state
        self._statuses = statuses
        self._say = say
        self._leads = leads
        self._in_force = in_force
        self._start = start
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def write_plan(self, carried: PlanUnderway) -> Written:
        """Writes the plan of a plain pod."""
        plan = carried.plan
        uid, node = plan.places[0]
        pod = self._state.pods.get(uid)
        if pod is None or pod.node_name is not None:
            return Written(WriteResult.GONE)
        carried.nominated.add(uid)
        message = message_of(carried.status.id, node, (one.uid for one in plan.victims))
        condition = _condition("True", EVICTING, message, carried.status.made)
        return await self._statuses.nominate(pod, Nomination(node=node, condition=condition))

    def nominate_members(self, carried: PlanUnderway) -> None:
        """Tells others where the members of a gang go."""
        self._start(self._nominate_members(carried))

    def clear(self, carried: PlanUnderway, others: set[str], why: str) -> None:
        """Clears what the pods say of a plan that is in force no more; ``others`` (uids) belong to others."""
        for uid in carried.nominated - others:
            pod = self._state.pods.get(uid)
            if pod is None or pod.node_name is not None:
                continue
            said = f"plan {carried.status.id} is given up: {why}" if why else ""
            condition = None
            if not carried.plan.is_gang:
                condition = _condition("False", GIVEN_UP if why else PLACED, said)
            nomination = Nomination(node=None, condition=condition)
            if self._engine.cluster.placement(uid) is None:
                self._start(self._nominate(pod, nomination))
            elif condition is not None:
                self._statuses.nominated(uid, nomination)  # It is written before the binding.

    def clear_pod(self, uid: str) -> None:
        """Clears the node of a pod that waits and belongs to no plan."""
        pod = self._state.pods.get(uid)
        if pod is not None and pod.node_name is None:
            self._start(self._nominate(pod, Nomination(node=None)))

    async def _nominate_members(self, carried: PlanUnderway) -> None:
        async def one(uid: str, node: str) -> None:
            pod = self._state.pods.get(uid)
            if pod is not None and pod.node_name is None:
                await self._nominate(pod, Nomination(node=node), carried)

        await asyncio.gather(*(one(uid, node) for uid, node in carried.plan.places))

    async def _nominate(self, pod: Pod, nomination: Nomination, by: PlanUnderway | None = None) -> None:
        async with self._slots:
            if not (self._leads() if by is None else self._in_force(by)):
                return
            if by is not None:
                by.nominated.add(pod.uid)
            written = await self._statuses.nominate(pod, nomination)
            if written.error is not None and written.verdict is not WriteResult.GONE:
                self._say("not nominated", warning=True, pod=pod.key, error=written.error)


def _condition(status: str, reason: str, message: str, since: str = "") -> StatusCondition:
    return StatusCondition(
        type=PREEMPTING, status=status, reason=reason, message=message, last_transition_time=since
    )
