"""Says in the status of a PodGroup that asks for places where they are, or why there are none.

Nothing is bound for it. The plan in its status says which placeholder pod is on which node, so that another
process holds the same places.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from closeby.kube.gangs.objects import GangObject, GangObjects
from closeby.kube.gangs.status import PLACED, SCHEDULED
from closeby.kube.state.awaited_kinds import AwaitedKinds
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import Desired, ReportingSettings, StatusReconciler
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import Reference, StatusCondition, Writer, Written
from closeby.objects.bounds import clipped
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.process import Say
from closeby.objects.quantities import utc
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import plural
from closeby.reading.common.plans import PlanWire, planned_nodes
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import Outcome

#: Seconds within which it is written that pods took their places: they come together.
_GATHERED: Final = 1.0
_LONGEST_MESSAGE: Final = 1024


class HeldPlaces:
    """All PodGroups that ask for places, by the key of the gang of placeholders."""

    name: Final = "held-places"

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        events: Events,
        say: Say,
        objects: GangObjects,
        settings: ReportingSettings,
        informed: Callable[[], bool],
    ) -> None:
        """``informed``: whether what is known of the cluster may be relied upon."""
        self._engine = engine
        self._writer = writer
        self._objects = objects
        #: Kinds on which pods to come may depend, and which are not all listed yet, or hidden.
        self.awaited: Sequence[AwaitedKinds] = ()
        self._stands = settings.stands
        work: WorkQueue[str] = WorkQueue(time.monotonic, lambda key: key.partition("/")[0])
        self._statuses = StatusReconciler(
            self, work, events, say, informed=informed, insistence=settings.insistence
        )
        self.workers = Workers(self._statuses, say)

    def decided(self, outcome: Outcome) -> bool:
        """Notes a decision about such a gang; False for any other one."""
        if outcome.key not in self._engine.placeholders:
            return False
        # A refusal must have stood a moment.
        self._statuses.work.add(outcome.key, after=self._stands if outcome.refused else 0.0)
        return True

    def look(self) -> None:
        """The engine took in what happened: pods may have taken their places, or others are asked for."""
        for key in self._engine.placeholders.take_news():
            if key in self._engine.placeholders:
                self._statuses.work.add(key, after=_GATHERED)
            else:
                self._statuses.forget(key)

    # What is to be said

    def regarding(self, key: str) -> Reference | None:
        """The PodGroup that asks."""
        found = self._found(key)
        return None if found is None else found.reference

    def desired(self, key: str) -> Desired | None:
        """Its status; None where nothing is decided yet, or it is gone."""
        found, members = self._found(key), self._engine.state.members.get(key)
        if found is None:
            return None
        placed = () if members is None else self._placed(tuple(members.placed.values()))
        domain, true, reason = "", True, PLACED
        outcome = self._engine.outcome(key)
        if members is not None and members.waiting:
            if outcome is None or outcome.reason is None:
                return None
            waiting = tuple(members.waiting.values())
            if self._is_yet_to_be_decided(key, outcome.reason, waiting):
                return None
            hidden = any(kinds.lack(pod) for kinds in self.awaited for pod in waiting)
            # What it may not see it can't know to be impossible: a right cures that.
            refused = Reason.VOLUME_NOT_BINDABLE if hidden else outcome.reason
            true, reason, message = False, str(refused), outcome.message or ""
            if self._keeps_its_word(key, found):
                held = f"{plural(len(placed), 'place')} held, {len(members.waiting)} lost"
                true, reason, message = True, PLACED, f"{held}: {reason}: {message}"
        else:
            place = self._engine.recheck.place(key)
            if place is not None and place.level is not None:
                domain = "/".join(value or "" for value in place.path)
            where = f" in {domain}" if domain else ""
            lost = self._engine.placeholders.lost(key)
            message = (
                f"{plural(len(placed), 'place')} held{where}"
                if placed or lost
                else "no place is needed any more"
            )
            if lost:
                message += f", {lost} lost: not looked for elsewhere, since pods of the Workload run"
        notes = [one.located() for one in self._notes(key)]
        said = (true, reason, clipped("; ".join((message, *notes)), _LONGEST_MESSAGE))
        # A pod may not be bound yet, or end, while no process is there: its place is kept by the next one.
        kept = (*placed, *self._engine.placeholders.taken(key))
        plan = PlanWire(nodes=planned_nodes(sorted(kept, key=lambda one: (one[1], one[0].uid))))
        return Desired(
            about=found.reference,
            content=(found.generation, said, domain, plan),
            gist=None if true else (true, reason),
            write=lambda: self._write(found, said, domain, len(placed), plan),
        )

    async def _write(
        self, found: GangObject, said: tuple[bool, str, str], domain: str, count: int, plan: PlanWire
    ) -> Written:
        true, reason, message = said
        status = "True" if true else "False"
        before = found.conditions.get(SCHEDULED)
        same = before is not None and before.status == status
        condition = StatusCondition(
            type=SCHEDULED,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=before.last_transition_time if before and same else utc(time.time()),
            observed_generation=found.generation,
        )
        body: dict[str, object] = {"conditions": [condition], "scheduled": count, "domain": domain}
        if plan.nodes:
            body["plan"] = msgspec.to_builtins(plan)
        resource: Resource = found.resource
        return await self._writer.apply_status(resource, found.namespace, found.name, found.uid, body)

    def _keeps_its_word(self, key: str, found: GangObject) -> bool:
        """Whether pods came to places that were held: a loss after that takes nothing back from them."""
        before = found.conditions.get(SCHEDULED)
        return before is not None and before.status == "True" and self._engine.placeholders.started(key)

    def _is_yet_to_be_decided(self, key: str, reason: str, waiting: Sequence[Pod]) -> bool:
        """Whether kinds are being listed on which these pods depend, or what was decided before that stands.

        Then nothing is known of their places; a Workload must not be rejected, or lose its own, by that.
        """
        for kinds in self.awaited:
            if not kinds.hidden and any(kinds.lack(pod) for pod in waiting):
                return True
        state = self._engine.state
        group = state.groups.get(key)
        blocked = group is not None and any(one.blocking for one in group.conditions)
        return (
            reason is Reason.UNSUPPORTED
            and not blocked
            and state.gated.keys().isdisjoint(pod.uid for pod in waiting)
        )

    def _notes(self, key: str) -> tuple[Condition, ...]:
        """What is to be known of the question, and keeps nothing from being placed."""
        group = self._engine.state.groups.get(key)
        if group is None or group.places is None:
            return ()
        to_come = self._engine.cluster.volumes.to_come
        at_once = (
            _bound_at_once(group, i, name)
            for i, one in enumerate(group.places.sets)
            for name in to_come.bound_at_once(one.template)
        )
        return (*(one for one in group.conditions if not one.blocking), *at_once)

    def _found(self, key: str) -> GangObject | None:
        group = self._engine.state.groups.get(key)
        asked = None if group is None else group.places
        return None if asked is None else self._objects.asking(asked.asker)

    def _placed(self, pods: tuple[Pod, ...]) -> tuple[tuple[Pod, str], ...]:
        cluster = self._engine.cluster
        found = ((pod, cluster.placement(pod.uid)) for pod in pods)
        named = ((pod, cluster.names[slot]) for pod, slot in found if slot is not None)
        return tuple(
            sorted(((pod, name) for pod, name in named if name), key=lambda one: (one[1], one[0].uid))
        )


def _bound_at_once(group: PodGroup, number: int, name: str) -> Condition:
    return Condition(
        reason=Reason.UNSUPPORTED,
        object=f"PodGroup/{group.key}",
        field=f"spec.placesFor.podSets[{number}].template.spec.volumes",
        message=f"places are held without a look at ephemeral volume {name}, which is bound before its pod "
        "has a node, wherever that is",
        remedy="use a class with volumeBindingMode WaitForFirstConsumer",
    )
