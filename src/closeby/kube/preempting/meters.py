"""Plans of preemption and evictions, as numbers for Prometheus."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from closeby.kube.writing.evictions import EvictionVerdict

#: Seconds, from one to an hour: most of it is the victims' grace.
_DURATIONS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 3600.0)


class PreemptionMeters:
    """Counts what becomes of plans, and what the API server says of evictions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "scheduler_preemption_attempts_total",
            "Total preemption attempts in the cluster till now",
            registry=registry,
        )
        self._victims = Histogram(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            buckets=[2.0**power for power in range(11)],
            registry=registry,
        )
        plans = Counter(
            "closeby_preemption_plans_total",
            "Plans of preemption that came to their end: the preemptor was placed, or the plan was given up.",
            ("result",),
            registry=registry,
        )
        self._placed, self._given_up = (plans.labels(result) for result in ("placed", "given_up"))
        self._duration = Histogram(
            "closeby_preemption_plan_duration_seconds",
            "Time from a plan of preemption until its preemptor was placed.",
            buckets=_DURATIONS,
            registry=registry,
        )
        evictions = Counter(
            "closeby_preemption_evictions_total",
            "What the API server said of the evictions of victims: budget means that a PodDisruptionBudget "
            "did not allow one at that time.",
            ("result",),
            registry=registry,
        )
        self._evictions = {one: evictions.labels(one.value) for one in EvictionVerdict}
        self._in_force = Gauge(
            "closeby_preemption_plans_in_force",
            "Plans of preemption whose victims leave, or whose nodes are kept free.",
            registry=registry,
        )

    def begun(self, victims: int) -> None:
        """A plan with so many victims is carried out from now on."""
        self._attempts.inc()
        self._victims.observe(victims)

    def in_force(self, plans: int) -> None:
        """So many plans are carried out at the moment."""
        self._in_force.set(plans)

    def evicted(self, verdict: EvictionVerdict) -> None:
        """An eviction was answered."""
        self._evictions[verdict].inc()

    def placed(self, seconds: float) -> None:
        """The preemptor was placed, so long after the plan was made."""
        self._placed.inc()
        self._duration.observe(seconds)

    def given_up(self) -> None:
        """A plan was given up."""
        self._given_up.inc()
