"""What the live scheduler does with pods and gangs, as numbers for Prometheus.

The names are kube-scheduler's where they mean the same (``pkg/scheduler/metrics/metrics.go`` of Kubernetes
1.36), with its labels and buckets. A method here costs well under a microsecond for most pods, because each
pod passes all of them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from closeby.kube.metrics.meters import Meters, gauge
from closeby.kube.preempting.meters import PreemptionMeters
from closeby.kube.scheduler.gang_meters import GangMeters
from closeby.kube.scheduler.queue_meters import GATED, PodWait, pods_by_queue, pods_by_reason, sizes
from closeby.kube.scheduler.usage_meters import UsageMeters
from closeby.measurements.ageing import Known, State
from closeby.objects.reasons import Reason
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, PodDeleted, PodUpserted
from closeby.scheduling.outcomes import Outcome, Place, item_key
from closeby.scheduling.services import Measured

#: From so many attempts on they are counted as one, as upstream does.
_MANY: Final = 15
#: What single nodes are called among the levels, whatever alias a topology gives them.
_NODE: Final = "hostname"


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2.0**power for power in range(count))


_ATTEMPT_BUCKETS: Final = _doubling(0.001, 15)
_SLI_BUCKETS: Final = _doubling(0.01, 20)
_DOMAIN_BUCKETS: Final = _doubling(1.0, 11)
_PREPARATION_BUCKETS: Final = _doubling(0.1, 14)


class SchedulerMeters(Meters):
    """The metrics of one scheduler. Call each method from the event loop that serves them."""

    def __init__(self, profile: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``profile`` is the scheduler's name, as pods give it."""
        super().__init__(clock)
        self.profile = profile
        #: By uid.
        self.waits: dict[str, PodWait] = {}
        self.engine: Engine | None = None
        self.use: UsageMeters | None = None
        self.in_flight: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.measured: Mapping[Measured, Known] = {}
        self.registry.register(_Standing(self))
        self._add_pods(profile)
        self._add_gangs(profile)
        self._rounds = self._histogram(
            "closeby_decision_duration_seconds",
            "Time of the engine for one batch of work items (gangs, applications, plain pods).",
            _ATTEMPT_BUCKETS,
        )
        self._reservations = Counter(
            "closeby_reservations_total",
            "Reservations of nodes for gangs that have waited long, moves to other nodes included.",
            registry=self.registry,
        )
        self._observed, self._observed_victims = (
            Counter(f"closeby_preemption_observed_{what}_total", text, registry=self.registry)
            for what, text in (
                ("plans", "Plans of preemption that were only reported (preemption: observe)."),
                ("victims", "Pods that these plans would have evicted."),
            )
        )
        self.preemption = PreemptionMeters(self.registry)
        self._bindings = self._histogram(
            "closeby_binding_duration_seconds",
            "Time from the decision until the API server has agreed to a binding.",
            _ATTEMPT_BUCKETS,
        )

        self._preparations = self._histogram(
            "closeby_volume_preparation_duration_seconds",
            "Time until the claims of a pod were bound before its binding, or could not be.",
            _PREPARATION_BUCKETS,
            "result",
        )
        self._volume_failures = Counter(
            "closeby_volume_preparation_failures_total",
            "Pods whose claims could not be bound as it was decided, by the reason.",
            ("reason",),
            registry=self.registry,
        )

    def _add_pods(self, profile: str) -> None:
        attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be "
            "scheduled, while 'error' means that its binding failed, or a fault of the scheduler.",
            ("result", "profile"),
            registry=self.registry,
        )
        durations = self._histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            _ATTEMPT_BUCKETS,
            "result",
            "profile",
        )
        self._scheduled, self._unschedulable, self._error = (
            (attempts.labels(result, profile), durations.labels(result, profile))
            for result in ("scheduled", "unschedulable", "error")
        )
        self._tries = self._histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            _doubling(1.0, 5),
        )
        self._sli = self._histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and "
            "might involve multiple scheduling attempts.",
            _SLI_BUCKETS,
            "attempts",
        )
        #: By number of attempts.
        self._slis: dict[int, Histogram] = {}

    def _add_gangs(self, profile: str) -> None:
        attempts = Counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by the result.",
            ("result", "profile"),
            registry=self.registry,
        )
        self._gang_scheduled, self._gang_unschedulable, self._gang_error = (
            attempts.labels(result, profile) for result in ("scheduled", "unschedulable", "error")
        )
        self._spans = self._histogram(
            "closeby_gang_span",
            "Domains of a level that a gang touches once it is placed: the fewer, the closer.",
            _DOMAIN_BUCKETS,
            "level",
        )
        self.gangs = GangMeters(self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def reserved(self) -> None:
        """Nodes are kept free for a gang from now on."""
        self._reservations.inc()

    def preemption_observed(self, victims: int) -> None:
        """A plan of preemption with so many victims was reported, and is not carried out."""
        self._observed.inc()
        self._observed_victims.inc(victims)

    # Pods

    def took_in(self, events: Iterable[Event]) -> None:
        """Notes which pods began to wait and which do so no more, as the engine takes it in."""
        now = self.clock()
        for event in events:
            if isinstance(event, PodUpserted):
                pod = event.pod
                if pod.node_name is not None or pod.terminating or pod.finished:
                    self._settled(pod.uid)
                elif pod.uid not in self.waits:
                    self.waits[pod.uid] = PodWait(now)
            elif isinstance(event, PodDeleted):
                self._settled(event.uid)
                self.gangs.gone(event.uid)

    def _settled(self, uid: str) -> None:
        """It has a node, or is gone; of one that is being bound the binding itself tells the end."""
        wait = self.waits.get(uid)
        if wait is None:
            return
        if wait.binding_since is None:
            del self.waits[uid]
        else:
            wait.over = True

    def decided(self, outcomes: Iterable[Outcome], seconds: float) -> None:
        """What one batch of decisions came to; each work item counts with an equal share of ``seconds``."""
        batch = tuple(outcomes)
        if not batch:
            return
        self._rounds.observe(seconds)
        for outcome in batch:
            self._decided(outcome, seconds / len(batch))

    def _decided(self, outcome: Outcome, seconds: float) -> None:
        item, gang = item_key(outcome.kind, outcome.key), outcome.is_gang
        for binding in outcome.bindings:
            wait = self.waits.get(binding.pod.uid)
            if wait is not None:
                wait.attempts += 1
                wait.spent, wait.reason, wait.item, wait.gang = seconds, None, item, gang
        fault = outcome.reason is Reason.SCHEDULER_ERROR
        attempts, durations = self._error if fault else self._unschedulable
        refused = 0
        for left in outcome.leftover:
            wait = self.waits.get(left.pod.uid)
            if wait is not None:
                wait.reason, wait.item, wait.gang = left.reason, item, gang
                if left.reason not in GATED:
                    wait.attempts += 1
                    refused += 1
                    durations.observe(seconds)
        if refused:
            attempts.inc(refused)
        if gang and outcome.bindings:
            self._gang_scheduled.inc()
            if outcome.place is not None:
                self._spread(outcome.place)
            self.gangs.decided(outcome, self.waits.get)
        elif gang and refused:
            (self._gang_error if fault else self._gang_unschedulable).inc()

    def _spread(self, place: Place) -> None:
        levels = (*tuple(place.span)[:-1], _NODE)
        for level, domains in zip(levels, place.span.values(), strict=True):
            if domains:
                self._spans.labels(level).observe(domains)

    # Bindings

    def binding(self, uid: str) -> None:
        """A pod's binding begins."""
        now = self.clock()
        wait = self.waits.get(uid)
        if wait is None:
            # Carried on from before a restart, perhaps: it arrived before this process counted.
            wait = self.waits[uid] = PodWait(now)
        wait.binding_since = now

    def bound(self, uid: str) -> None:
        """It stands."""
        wait = self.waits.pop(uid, None)
        if wait is None or wait.binding_since is None:
            return
        now = self.clock()
        took = now - wait.binding_since
        attempts, durations = self._scheduled
        attempts.inc()
        durations.observe(wait.spent + took)
        self._bindings.observe(took)
        tries = max(1, wait.attempts)
        self._tries.observe(tries)
        sli = self._slis.get(tries)
        if sli is None:
            label = str(tries) if tries < _MANY else f"{_MANY}+"
            sli = self._slis[tries] = self._sli.labels(label)
        sli.observe(now - wait.arrived)
        self.gangs.bound(uid, now)

    def not_bound(self, uid: str, *, final: bool = False) -> None:
        """It failed, or was given up; ``final``: the pod is not to be placed again."""
        wait = self.waits.get(uid)
        if wait is None or wait.binding_since is None:
            return
        attempts, durations = self._error
        attempts.inc()
        durations.observe(wait.spent + self.clock() - wait.binding_since)
        wait.binding_since = None
        if final or wait.over:
            del self.waits[uid]
            self.gangs.gone(uid)

    def volumes_ended(self, seconds: float, reason: str) -> None:
        """The claims of a pod were bound after so many seconds, or could not be for this reason."""
        self._preparations.labels("failed" if reason else "bound").observe(seconds)
        if reason:
            self._volume_failures.labels(reason).inc()

    # What is looked up for each scrape

    def shows(self, engine: Engine) -> None:
        """The caches and queues of this engine are shown, which knows of no pod yet."""
        self.waits.clear()
        self.engine = engine
        self.use = UsageMeters(engine)
        self.gangs.shows(engine)

    def binds(self, in_flight: Callable[[], tuple[int, int]]) -> None:
        """``in_flight`` counts bindings that have not ended: under way, and awaiting volumes."""
        self.in_flight = in_flight

    def measures(self, measured: Mapping[Measured, Known]) -> None:
        """The age of these plugins' measurements is shown."""
        self.measured = measured


class _Standing(Collector):
    """Looks up what waits now, and why."""

    def __init__(self, meters: SchedulerMeters) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        """All gauges of pods and gangs."""
        # This collector is the first, so that what it measures is shown in the same answer.
        self._meters.gangs.measure()
        waits, engine = self._meters.waits.values(), self._meters.engine
        yield pods_by_queue(waits, frozenset(() if engine is None else engine.backing_off))
        yield from pods_by_reason(waits, self._meters.profile, engine)
        yield from sizes(*self._meters.in_flight(), engine)
        yield from ages(self._meters.measured)
        if self._meters.use is not None:
            yield from self._meters.use.gauges()


def ages(measured: Mapping[Measured, Known]) -> Iterator[Metric]:
    """Of each plugin with a source; the age is absent while nothing is known."""
    names = {(plugin.name, known.source.name): (plugin, known) for plugin, known in measured.items()}
    labels = ("plugin", "source")
    yield gauge(
        "closeby_measurements_age_seconds",
        "Time since what a plugin decides by was measured; absent while nothing is known.",
        labels,
        {key: age for key, (_, known) in names.items() if (age := known.age) is not None},
    )
    yield gauge(
        "closeby_measured_nodes",
        "Nodes of which something is known.",
        labels,
        {key: plugin.measured_nodes for key, (plugin, _) in names.items()},
    )
    yield gauge(
        "closeby_measurements_missing",
        "Whether a plugin does without measurements (1), because there are none or they are too old.",
        labels,
        {key: known.state in (State.UNREAD, State.GONE) for key, (_, known) in names.items()},
    )
    failures = CounterMetricFamily(
        "closeby_measurement_failures_total", "Attempts to read measurements that failed.", labels=labels
    )
    for key, (_, known) in names.items():
        failures.add_metric(key, known.failures)
    yield failures
