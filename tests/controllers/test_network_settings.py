"""What the spec of a NetworkTopology asks for, and what is said of what makes no sense."""

from typing import Any

import pytest

from closeby.controllers.networks.settings import NetworkSettings, PrometheusAccess, read_settings
from closeby.measurements.addresses import Access
from tests.golden.fixture import Golden

ADDRESS = "http://prometheus-k8s.monitoring.svc.cluster.local:9090"


def test_the_keps_example() -> None:
    provider = {"type": "Prometheus", "address": ADDRESS}
    found = read_settings(
        "a/b",
        {
            "metricProvider": provider,
            "topologyAlgorithm": "Dijkstra",
            "freqUpdate": 5,
            "timeRangeInMinutes": 30,
        },
    )
    assert found.measured and found.problems == ()
    assert found.settings == NetworkSettings(address=ADDRESS, frequency=5, time_range=30)
    assert found.settings.metric == "netperf_p50_latency_microseconds"


@pytest.mark.parametrize("provider", [None, {}, []])
def test_without_a_provider_nothing_is_measured(provider: object) -> None:
    found = read_settings("a/b", {"metricProvider": provider})
    assert (found.measured, found.settings, found.problems) == (False, NetworkSettings(), ())


def test_the_schema_of_the_kep_has_a_list_of_providers() -> None:
    provider = {"address": ADDRESS, "token": "t", "metric": "netperf_p99_latency_microseconds"}
    found = read_settings("a/b", {"metricProvider": [provider]})
    expected = NetworkSettings(address=ADDRESS, token="t", metric="netperf_p99_latency_microseconds")
    assert (found.measured, found.settings, found.problems) == (True, expected, ())


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"freqUpdate": 0}, "freqUpdate", "0 is not a usable number of minutes"),
        ({"freqUpdate": -5}, "freqUpdate", "-5 is not a usable number of minutes"),
        ({"freqUpdate": 1441}, "freqUpdate", "1441 is not a usable number of minutes"),
        ({"freqUpdate": True}, "freqUpdate", "True is not a usable number of minutes"),
        ({"freqUpdate": "5m"}, "freqUpdate", "'5m' is not a usable number of minutes"),
        ({"timeRangeInMinutes": 0}, "timeRangeInMinutes", "0 is not a usable number of minutes"),
        ({"timeRangeInMinutes": 10**9}, "timeRangeInMinutes", "1000000000 is not a usable number of minutes"),
        (
            {"metricProvider": {"type": "SignalFx"}},
            "metricProvider.type",
            "'SignalFx' is not a provider of latencies",
        ),
        ({"metricProvider": {"type": "Prometheus"}}, "metricProvider.address", "is missing"),
        ({"metricProvider": "here"}, "metricProvider.address", "is missing"),
        (
            {"metricProvider": {"address": "file:///etc/passwd"}},
            "metricProvider.address",
            "'file:///etc/passwd' is not a URL",
        ),
    ],
)
def test_invalid_settings_are_reported_and_not_used(spec: dict[str, Any], field: str, message: str) -> None:
    found = read_settings("a/b", spec)
    (problem,) = found.problems
    assert (problem.field, problem.message) == (f"spec.{field}", message)
    assert problem.object == "NetworkTopology/a/b"
    assert problem.remedy
    assert found.settings == NetworkSettings()
    assert found.measured == ("metricProvider" in spec)


def test_a_metric_that_prometheus_would_not_take(golden: Golden) -> None:
    found = read_settings("a/b", {"metricProvider": {"address": ADDRESS, "metric": "up} or {x"}})
    (problem,) = found.problems
    golden("controllers", (problem.field, problem.message))
    assert found.settings == NetworkSettings(address=ADDRESS)


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("https://p.example:9090", True),
        ("https://P.example:9090/tenant", True),
        ("https://P.example.:9090/", True),
        ("https://me@p.example:9090", False),
        ("http://p.example:9090", False),
        ("https://p.example", False),
        ("https://p.example:9090@evil.example", False),
        ("https://p.example.evil:9090", False),
        ("https://p.example:x", False),
        ("", False),
    ],
)
def test_what_the_controller_has_is_for_one_server(address: str, ours: bool) -> None:
    mine = Access(token_file="/token", ca_file="/ca")
    found = PrometheusAccess("https://p.example:9090", mine).access_to(
        NetworkSettings(address=address), operators=True
    )
    assert found == (mine if ours else Access())


def test_a_token_of_the_object_comes_first() -> None:
    address = "https://p.example"
    prometheus = PrometheusAccess(address, Access(token_file="/token", ca_file="/ca"))
    found = prometheus.access_to(NetworkSettings(address=address, token="theirs"), operators=True)
    assert found == Access(token="theirs", ca_file="/ca")
    nobody = PrometheusAccess().access_to(NetworkSettings(address=address, token="theirs"), operators=True)
    assert nobody == Access(token="theirs")
    assert PrometheusAccess().access_to(NetworkSettings(), operators=True) == Access()
