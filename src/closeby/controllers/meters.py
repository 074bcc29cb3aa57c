"""What the controllers do, as numbers for Prometheus.

The lengths of queues have the names of Kubernetes' own controllers (``component-base`` of Kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client import Counter
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from closeby.kube.metrics.meters import Meters, gauge
from closeby.kube.writing.work_queue import WorkQueue


class ControllerMeters(Meters):
    """The metrics of a process that runs controllers."""

    def __init__(self) -> None:
        super().__init__()
        self._queues = _Queues()
        self.registry.register(self._queues)
        self._unexpected = Counter(
            "closeby_reconcile_errors",
            "Attempts at an object that ended with an unexpected error, by controller.",
            ("controller",),
            registry=self.registry,
        )

    def works(self, controller: str, work: WorkQueue[Any]) -> None:
        """This controller does this work."""
        self._queues.works[controller] = work
        self._unexpected.labels(controller)

    def unexpected(self, controller: str) -> None:
        """An unexpected error occurred."""
        self._unexpected.labels(controller).inc()


class _Queues(Collector):
    """How each controller keeps up."""

    def __init__(self) -> None:
        self.works: dict[str, WorkQueue[Any]] = {}

    def collect(self) -> Iterator[Metric]:
        """Numbers by controller."""
        yield gauge(
            "workqueue_depth",
            "Objects that are due and wait for their turn.",
            ("name",),
            {(name,): work.depth for name, work in self.works.items()},
        )
        yield gauge(
            "workqueue_longest_running_processor_seconds",
            "Time since the oldest attempt at an object that is not over yet was begun.",
            ("name",),
            {(name,): work.longest for name, work in self.works.items()},
        )
