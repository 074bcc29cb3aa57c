"""Latencies out of Prometheus' answers: which are usable, and what is said when there are none."""

import contextlib
import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.fetching import fetch
from closeby.measurements.latencies import (
    METRICS,
    Latencies,
    Latency,
    PrometheusLatencies,
    is_metric,
    latency_query,
    parse_latencies,
)
from tests.measurements.serving import LONG, handled_by, left_in_the_end, serving


def answer(*series: tuple[dict[str, str], str]) -> str:
    result = [{"metric": labels, "value": [1_700_000_000.5, value]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def between(origin: str, destination: str) -> dict[str, str]:
    return {"origin": origin, "destination": destination}


def test_the_keps_example() -> None:
    text = answer((between("worker-4", "worker-2"), "302"), (between("worker-3", "worker-1"), "270"))
    assert parse_latencies(text.encode(), "prometheus") == Latencies(
        (Latency("worker-4", "worker-2", 302.0), Latency("worker-3", "worker-1", 270.0))
    )


def test_series_that_are_no_latencies_are_counted() -> None:
    text = answer(
        (between("a", "b"), "NaN"),
        (between("a", "c"), "-1"),
        (between("a", "d"), "+Inf"),
        (between("a", "e"), "x"),
        (between("a", "f"), "1e300"),
        ({"origin": "a"}, "1"),
        ({}, "1"),
        (between("a", "b"), "0.5"),
    )
    assert parse_latencies(text.encode(), "prometheus") == Latencies((Latency("a", "b", 0.5),), 7)


def test_the_query_takes_the_median_over_the_time_range() -> None:
    queries = []

    def answering(path: str) -> tuple[int, str]:
        parts = urlsplit(path)
        assert parts.path == "/api/v1/query"
        queries.append(parse_qs(parts.query)["query"])
        return 200, answer((between("a", "b"), "7"))

    with serving(answering) as address:
        found = PrometheusLatencies(address + "/", minutes=30, metric=METRICS[1], timeout=LONG).read()
    assert found == Latencies((Latency("a", "b", 7.0),))
    over_time = "quantile_over_time(0.5, netperf_p90_latency_microseconds[30m])"
    assert queries == [[f"quantile by (origin, destination) (0.5, {over_time})"]]


def test_no_measurements_are_told() -> None:
    with serving(lambda path: (200, answer())) as address:
        found = PrometheusLatencies(address, minutes=5, timeout=LONG).read()
    assert isinstance(found, Unavailable)
    query = latency_query(METRICS[0], 5)
    assert found.sentence() == f"{address}/api/v1/query has no latencies for {query}; do the probes run?"


def test_an_error_of_prometheus_is_told() -> None:
    text = '{"status": "error", "errorType": "timeout", "error": "query timed out"}'
    with serving(lambda path: (503, text)) as address:
        found = PrometheusLatencies(address, minutes=5, timeout=LONG).read()
    assert isinstance(found, Unavailable)
    assert found.message == f"{address}/api/v1/query answers 503 Service Unavailable: query timed out"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("netperf_p50_latency_microseconds", True),
        ("job:latency:p90", True),
        ("", False),
        ("9lives", False),
        ("up) or vector(1", False),
        ("up\n", False),
    ],
)
def test_names_of_metrics(name: str, good: bool) -> None:
    assert is_metric(name) == good


def test_the_token_is_for_the_server_that_was_asked_alone() -> None:
    """A server sends us on to another one, which must not learn the token."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            first = self.path == "/first"
            self.send_response(302 if first else 200)
            if first:
                self.send_header("Location", f"http://localhost:{self.server.server_port}/second")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        server: HTTPServer

    with handled_by(Handler) as address:
        fetch(f"{address}/first", LONG, token="secret")
    assert seen == ["Bearer secret", None]


def test_an_answer_without_end_is_given_up() -> None:
    with serving(lambda path: (200, "x" * 2000)) as address:
        found = fetch(address, LONG, longest=1000)
        assert found == Unavailable(f"{address} answers more than 1,000 bytes", "ask for less")
        exact = fetch(address, LONG, longest=2000)
    assert not isinstance(exact, Unavailable) and len(exact.body) == 2000


def test_a_server_that_never_stops_to_answer_is_left() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.02)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        found = left_in_the_end(address, 0.1)
    assert found == Unavailable(f"{address} is not done with its answer after 0.6 s")
