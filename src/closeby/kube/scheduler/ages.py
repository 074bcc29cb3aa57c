"""How old that is which plugins decide by, as metrics tell it."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from closeby.kube.metrics.meters import gauge
from closeby.measurements.ageing import Known, State
from closeby.scheduling.services import Measured


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
