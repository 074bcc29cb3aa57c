"""What preemption would do, said once for each plan: in the log, in an Event on the preemptor, in a metric.

No pod is evicted. It takes part where the configuration says ``preemption: observe``.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import Note, Reference
from closeby.objects.pods import Pod
from closeby.objects.saying import Say
from closeby.objects.words import names_text, path_text, plural
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import Outcome
from closeby.scheduling.preempting.records import Preemption
from closeby.scheduling.preempting.rule import PodTimes, Preemptible, rule_of

#: Preemptors of which it is remembered what was said last.
_KEPT: Final = 1_000
_Said = tuple[str, tuple[str, ...]]


class ObservedPreemption:
    """Makes the engine look for plans, if the configuration asks for that, and reports them."""

    def __init__(
        self,
        engine: Engine,
        scheduler_name: str,
        excluded_namespaces: Collection[str],
        say: Say,
        meters: SchedulerMeters,
    ) -> None:
        """Pods of ``excluded_namespaces`` are never victims."""
        self._engine = engine
        self._say = say
        self._meters = meters
        #: By preemptor: the domain and the victims (by uid) of the plan that was said last.
        self._last: OrderedDict[str, _Said] = OrderedDict()
        rule = rule_of(engine.profile.post_filters)
        if rule is None or rule.preemption != "observe":
            return

        def times(pod: Pod) -> PodTimes | None:
            if pod.namespace in excluded_namespaces:
                return None
            return PodTimes(pod.created if pod.started is None else pod.started, pod.checkpointed)

        engine.preempt(Preemptible(scheduler_name=scheduler_name, namespaces=(), times=times, observe=True))

    def decided(self, outcome: Outcome, events: Events | None, objects: GangObjects) -> None:
        """Reports the plans of a decision that are others than before: without ``events`` in the log."""
        if self._last and outcome.bindings:
            for key in (outcome.key, *(binding.pod.key for binding in outcome.bindings)):
                self._last.pop(key, None)
        for plan in outcome.preemptions:
            where = plan.node or path_text(plan.path)
            said = where, tuple(pod.uid for pod in plan.victims)
            if self._last.get(plan.preemptor) == said:
                continue
            self._last[plan.preemptor] = said
            self._last.move_to_end(plan.preemptor)
            if len(self._last) > _KEPT:
                self._last.popitem(last=False)
            self._report(plan, where, events, objects)

    def _report(self, plan: Preemption, where: str, events: Events | None, objects: GangObjects) -> None:
        self._meters.preemption_observed(len(plan.victims))
        self._say(
            "would preempt",
            item=plan.preemptor,
            domain=where,
            pods=len(plan.victims),
            priority=plan.cost.highest_priority,
            gangs=plan.cost.gangs_broken,
        )
        about = self._about(plan, objects)
        if events is None or about is None:
            return
        namespace = plan.preemptor.partition("/")[0]
        # The owner of the preemptor does not learn the names of pods in other namespaces.
        named = [pod.name for pod in plan.victims if pod.namespace == namespace]
        other = len(plan.victims) - len(named)
        whom = [names_text(named)] if named else []
        whom += [f"{plural(other, 'pod')} of other namespaces"] if other else []
        text = f"with preemption on, {' and '.join(whom)} would be evicted, so that it fits in {where}"
        events.post(about, Note(reason="PreemptionObserved", action="Preempting", text=text))

    def _about(self, plan: Preemption, objects: GangObjects) -> Reference | None:
        """The PodGroup, or the pod."""
        state = self._engine.state
        if plan.is_gang:
            group = state.groups.get(plan.preemptor)
            found = None if group is None else objects.of(group)
            return None if found is None else found.reference
        pod = state.pods.get(plan.places[0][0])
        if pod is None:
            return None
        return Reference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
