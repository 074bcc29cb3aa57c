"""Makes the engine look for plans of preemption, and says what they would do where no pod is to be evicted.

Each plan is said once: in the log, in an Event on the preemptor, in a metric. That is so where the
configuration says ``preemption: observe``, in a dry run, and where another scheduler binds.
"""

from collections import OrderedDict
from typing import Final, Protocol

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.preempting.notes import preemptor_of, victims_text, where_text
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.state.ownership import scheduler_of
from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import Note
from closeby.objects.pods import Pod
from closeby.objects.process import Say
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import Outcome, Preemption
from closeby.scheduling.preemption.rule import Preemptible, rule_of

#: Preemptors of which it is remembered what was said last.
_KEPT: Final = 1_000
_Said = tuple[str, tuple[str, ...]]


class PreemptionSettings(Protocol):
    """How a live scheduler behaves, as far as preemption goes by it."""

    @property
    def scheduler_name(self) -> str:
        """Pods that name it are its own."""

    @property
    def excluded_namespaces(self) -> tuple[str, ...]:
        """Namespaces whose pods are never victims."""

    @property
    def dry_run(self) -> bool:
        """Whether nothing is written."""

    @property
    def gates(self) -> bool:
        """Whether another scheduler binds, and evicts for its pods."""


class ObservedPreemption:
    """Makes the engine look for plans, unless the configuration says ``off``, and reports those observed."""

    def __init__(
        self,
        engine: Engine,
        settings: PreemptionSettings,
        say: Say,
        meters: SchedulerMeters,
    ) -> None:
        """In a dry run, and where another scheduler binds, all plans are observed."""
        self._engine = engine
        self._settings = settings
        self._say = say
        self._meters = meters
        #: By preemptor: the domain and the victims (by uid) of the plan that was said last.
        self._last: OrderedDict[str, _Said] = OrderedDict()
        self._rule = rule = rule_of(engine.profile.post_filters)
        #: Whether plans are to be carried out, and whether anything is written.
        may_evict = not (settings.dry_run or settings.gates)
        self.evicts = rule is not None and rule.preemption == "on" and may_evict
        self.writes = not settings.dry_run
        if rule is None:
            return
        engine.preempt(
            Preemptible(
                scheduler_name=settings.scheduler_name,
                namespaces=(),
                excluded_namespaces=settings.excluded_namespaces,
                observe=not self.evicts,
                reports=True,
            )
        )

    def may_evict(self, pod: Pod) -> bool:
        """Whether a pod may be a victim, by its namespace and its scheduler."""
        all_schedulers = self._rule is not None and self._rule.victims == "all"
        eligible = all_schedulers or scheduler_of(pod) == self._settings.scheduler_name
        return eligible and pod.namespace not in self._settings.excluded_namespaces

    def decided(self, outcome: Outcome, events: Events | None, objects: GangObjects) -> None:
        """Reports the plans of a decision that are others than before: without ``events`` in the log."""
        if self._last and outcome.bindings:
            for key in (outcome.key, *(binding.pod.key for binding in outcome.bindings)):
                self._last.pop(key, None)
        for plan in outcome.preemptions:
            if not plan.observed:
                continue
            where = where_text(plan)
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
        about = preemptor_of(plan, self._engine.state, objects)
        if events is None or about is None:
            return
        text = f"with preemption on, {victims_text(plan)} would be evicted, so that it fits in {where}"
        events.post(about, Note(reason="PreemptionObserved", action="Preempting", text=text))
